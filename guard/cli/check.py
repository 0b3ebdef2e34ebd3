"""``guard check``: the verdict on text, with its evidence."""

from __future__ import annotations

import errno
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from guard.cli import detector_option, json_option, print_json, results_console
from guard.cli.input_paths import files_within, matching_paths
from guard.errors import UsageError
from guard.exit_codes import verdict_code

if TYPE_CHECKING:
    from guard.bulk.sources import FormatName
    from guard.verdict import Decision, GuardTrail


class _Input(NamedTuple):
    """A text to judge and the name of its file; ``name`` is empty for one from the command line."""

    name: str
    text: str


@click.command()
@click.argument("arguments", nargs=-1, metavar="[TEXT|-|FILE|FOLDER|GLOB]...")
@click.option(
    "--file",
    "files",
    multiple=True,
    metavar="FILE|FOLDER|GLOB",
    help="Judge these files; repeatable.",
)
@click.option(
    "--text", "texts", multiple=True, metavar="TEXT", help="Judge this as text; repeatable."
)
@click.option(
    "--operating-point",
    type=click.Choice(["strict", "balanced", "quiet"]),
    help="Set of thresholds to judge by.",
)
@detector_option
@click.option("--all", "every", is_flag=True, help="Show every segment, not only biased ones.")
@click.option(
    "--exit-code",
    "strict",
    is_flag=True,
    help="Exit with 1 if something is biased, else with 3 if something was not judged.",
)
@click.option(
    "--to",
    type=click.Path(path_type=Path),
    metavar="OUT",
    help="Judge each row of the files, and write the rows with their verdicts to OUT.",
)
@click.option("--column", metavar="NAME", help="With --to: the column of the text (text).")
@click.option(
    "--prefix",
    metavar="PREFIX",
    help="With --to: begins the added columns.  [default: guard_]",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "csv", "tsv", "text", "parquet"]),
    help="With --to: the files' format, if their suffix does not tell it.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 1024),
    metavar="N",
    help="With --to: processes, or Ray actors (one a core).",
)
@click.option(
    "--on", metavar="ray[=ADDRESS]", help="With --to: judge on a Ray cluster, or a local Ray."
)
@json_option
def check(
    arguments: tuple[str, ...],
    files: tuple[str, ...],
    texts: tuple[str, ...],
    operating_point: str | None,
    detector: str | None,
    every: bool,
    strict: bool,
    to: Path | None,
    column: str | None,
    prefix: str | None,
    form: FormatName | None,
    workers: int | None,
    on: str | None,
    as_json: bool,
) -> None:
    """Judge TEXT, standard input (-), or files of UTF-8 text.

    A FOLDER means all files in it and its subfolders, except hidden ones; a GLOB such as
    'out/**/*.txt' all files that match. An argument without white space, and with a slash or a
    file's suffix, is a file's name; --text judges it as text. For one text or file, --json prints
    one object of its verdict and "segments"; for several, a folder, a glob or --file, it prints
    {"files": [...]}, each with its "file". If there are several, empty ones are left out.

    With --to OUT, arguments are files of JSON lines, CSV, Parquet or text; a row is judged by its
    --column, and OUT has the rows unchanged with the columns of their verdicts. For several files
    OUT is a folder. The same command goes on where it was interrupted.

    The exit code is 0 whatever the verdict (but see --exit-code), and 2 if something cannot be read
    or there is nothing to judge.
    """
    if to is not None:
        from guard.cli.check_bulk import BulkOptions, check_files

        if texts or every:
            raise UsageError("--text and --all do not go with --to, which judges rows of files.")
        options = BulkOptions(
            to, column, prefix, form, on, workers, operating_point, detector, strict, as_json
        )
        check_files((*arguments, *files), options)
        return
    if column or form or workers or on or prefix is not None:
        raise UsageError("--column, --prefix, --format, --workers and --on need --to OUT.")
    from guard.core import Guard, highest_verdict

    inputs = [i for text in arguments for i in _read(text)]
    inputs += [i for name in files for i in _input_files(name)]
    inputs += [_Input("", text) for text in texts]
    single = len(arguments) + len(texts) == 1 and not files and not _any_plural(arguments)
    if not single:
        inputs = _not_empty(inputs)
    point = {"operating_point": operating_point} if operating_point else {}
    guard = Guard(point, detector=detector, events="none")
    trails = [guard.trail(i.text) for i in inputs]
    if as_json:
        results = []
        for (name, _), trail in zip(inputs, trails, strict=True):
            named = {} if single else {"file": name or None}
            verdict = highest_verdict(trail, guard.policy)
            results.append(
                {**named, **verdict.to_dict(), "segments": [_segment_text(d) for d in trail]}
            )
        print_json(results[0] if single else {"files": results})
    else:
        for (name, text), trail in zip(inputs, trails, strict=True):
            if not single and name:
                click.echo(f"{name}:")
            _show(text, list(trail) if every else trail.findings, trail)
    if strict:
        biased = any(trail.biased for trail in trails)
        unjudged = any(d.verdict.unjudged for trail in trails for d in trail)
        raise click.exceptions.Exit(verdict_code(biased=biased, unjudged=unjudged))


def _read(text: str) -> list[_Input]:
    if text == "-":
        if sys.stdin is None:
            raise UsageError("Standard input is closed; pass text or a file.")
        return [_Input("standard input", _file_contents("standard input", sys.stdin.buffer.read))]
    if not text.strip():
        return [_Input("", text)]
    if _exists(text) or (_GLOB.search(text) and matching_paths(text)):
        return _input_files(text)
    if _LIKE_A_PATH.fullmatch(text):
        raise UsageError(
            f"There is no file {text}; to judge it as text: guard check --text {shlex.quote(text)}"
        )
    return [_Input("", text)]


def _input_files(name: str) -> list[_Input]:
    """Return the files of a name, a folder or a glob; raises UsageError if there are none."""
    paths = [Path(name)]
    if not _exists(name):
        paths = [path for path in matching_paths(name) if path.is_file()]
    elif paths[0].is_dir():
        paths = files_within(paths[0])
    if not paths:
        raise UsageError(f"There is no file {name}." if not _exists(name) else f"{name} is empty.")
    return [_Input(str(path), _file_contents(str(path), path.read_bytes)) for path in paths]


def _any_plural(arguments: tuple[str, ...]) -> bool:
    """Whether any argument is a folder or a glob."""
    return any(
        text.strip()
        and text != "-"
        and (Path(text).is_dir() if _exists(text) else _GLOB.search(text) and matching_paths(text))
        for text in arguments
    )


def _not_empty(inputs: list[_Input]) -> list[_Input]:
    for name, text in inputs:
        if not text.strip():
            click.echo(f"{name or 'A text'} is empty; left out.", err=True)
    left = [i for i in inputs if i.text.strip()]
    if not left:
        raise UsageError("There is nothing to judge; pass text or files.")
    return left


def _exists(text: str) -> bool:
    """Whether ``text`` is the path of a file or folder."""
    try:
        Path(text).stat()
    except ValueError:  # has a null character
        return False
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return False
        raise _unreadable_error(text, error) from None
    return True


# One word with a path separator or a suffix.
_LIKE_A_PATH = re.compile(r"\S*[/\\]\S*|\S+\.[A-Za-z][A-Za-z0-9]{0,4}")
_GLOB = re.compile(r"^\S*[*?\[]\S*$")


def _file_contents(where: str, read: Callable[[], bytes]) -> str:
    try:
        text = read().decode("utf-8")
        if "\0" in text:  # a binary file may be valid UTF-8
            raise UsageError(f"{where} is binary, not text.")
        return text
    except UnicodeDecodeError:
        raise UsageError(f"{where} is not UTF-8 text; convert it first.") from None
    except OSError as error:
        raise _unreadable_error(where, error) from None


def _unreadable_error(where: str, error: OSError) -> UsageError:
    return UsageError(f"{where} cannot be read: {error.strerror}.")


def _segment_text(decision: Decision) -> dict[str, Any]:
    verdict = decision.verdict
    return {
        "start": decision.span.start,
        "end": decision.span.end,
        "biased": verdict.biased,
        "score": verdict.score,
        "bias_type": verdict.bias_type,
        "unjudged": verdict.unjudged,
    }


def _show(text: str, decisions: list[Decision], trail: GuardTrail) -> None:
    from guard.cli.evidence import show_verdict

    console = results_console()
    for decision in decisions:
        show_verdict(console, text[slice(*decision.span)].strip(), decision.verdict)
    unjudged = [d.verdict.unjudged for d in trail if d.verdict.unjudged]
    if unjudged:
        reasons = ", ".join(sorted(set(unjudged)))
        console.print(f"[yellow]unjudged[/]  {len(unjudged)} of {len(trail)} segments ({reasons})")
    if not decisions and len(unjudged) < len(trail):
        best = max(d.verdict.score for d in trail if d.verdict.score is not None)
        console.print(
            f"[green]not biased[/]  highest score {best:.2f} of "
            f"{len(trail) - len(unjudged)} segment(s)"
        )
