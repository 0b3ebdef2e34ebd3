"""``guard index``: manages a custom bias index, also while guards use it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from guard.cli import detector_option, json_option, print_json, progress_bar, with_options
from guard.errors import UsageError

if TYPE_CHECKING:
    from guard.detect.encoder import Encoder
    from guard.retrieve.draft import Report
    from guard.retrieve.statement import BiasStatement
    from guard.retrieve.store import IndexChange


@click.group()
def index() -> None:
    """Manage a bias index: the statements that the detector retrieves and quotes as evidence.

    Guards with the index's folder use a change within a second; a running stream keeps the version
    that it began with.
    """


_FILE = click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True)
_FOLDER = click.Path(path_type=Path, file_okay=False)
_OWN = click.option("--index", "folder", type=_FOLDER, required=True, help="Folder of the index.")
_ANY = click.option(
    "--index", "folder", type=_FOLDER, help="Folder of the index; by default the one in use."
)


# Copied here so that --help imports no importer; a test compares it with the importers' list.
FORMATS = ("sbic", "implicit-hate", "seegull", "emgsd", "stereoset", "csv", "jsonl")
_reading = with_options(
    click.option(
        "--format",
        "kind",
        type=click.Choice(FORMATS),
        help="Format of the files; by default detected by their columns.",
    ),
    click.option("--skip-bad", is_flag=True, help="Leave out and report rows that cannot be read."),
)


@index.command()
@click.argument("files", metavar="FILE...", nargs=-1, type=_FILE)
@click.option("--to", "folder", type=_FOLDER, required=True, help="Folder of the new index.")
@click.option("--with-shipped", is_flag=True, help="Begin with the shipped statements.")
@click.option("--replace", is_flag=True, help="Replace an index in the folder.")
@detector_option
@_reading
@json_option
def build(
    files: tuple[Path, ...],
    folder: Path,
    with_shipped: bool,
    replace: bool,
    detector: str | None,
    kind: str | None,
    skip_bad: bool,
    as_json: bool,
) -> None:
    """Make an index of the statements in FILE... .

    A file is a published dataset, or CSV or JSON lines with statement, bias_type, group and
    attribute. Statements with the same words are stored once. An interrupted build resumes when the
    same command is run again. With custom weights, the shipped statements are embedded again.
    """
    if not files and not with_shipped:
        raise UsageError(
            "There is nothing to build an index from: name FILE..., or --with-shipped."
        )
    from guard.retrieve import store
    from guard.retrieve.index import BiasIndex

    embedder = _embedder(detector)
    base = BiasIndex.load(embedder.shipped_index, None) if with_shipped else None
    statements = _read(files, kind, skip_bad)
    with _progress() as report:
        change = store.create_index(
            folder, statements, embedder, base=base, replace=replace, report=report
        )
    _print_change(folder, change, as_json)


@index.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=_FILE)
@_OWN
@detector_option
@_reading
@json_option
def add(
    files: tuple[Path, ...],
    folder: Path,
    detector: str | None,
    kind: str | None,
    skip_bad: bool,
    as_json: bool,
) -> None:
    """Add the statements in FILE... to an index; those that it already has are left out."""
    change = add_statements(folder, _read(files, kind, skip_bad), detector)
    _print_change(folder, change, as_json)


def add_statements(
    folder: Path, statements: Sequence[BiasStatement], detector: str | None
) -> IndexChange:
    """Add statements to an index, and show how far that is."""
    from guard.retrieve import store

    with _progress() as report:
        return store.add_statements(folder, statements, _embedder(detector), report=report)


@index.command()
@_OWN
@click.option("--statement", "texts", multiple=True, help="A statement to remove; repeatable.")
@click.option(
    "--group", "groups", multiple=True, help="Remove all statements about this group; repeatable."
)
@click.option("--from", "file", type=_FILE, help="Remove all statements in this file.")
@_reading
@json_option
def remove(
    folder: Path,
    texts: tuple[str, ...],
    groups: tuple[str, ...],
    file: Path | None,
    kind: str | None,
    skip_bad: bool,
    as_json: bool,
) -> None:
    """Remove statements from an index, ignoring case and punctuation.

    Statements and groups that are not in the index are listed on standard error. If none is in it,
    nothing is changed and the exit code is 2.
    """
    if not texts and not groups and file is None:
        raise UsageError("There is nothing to remove: use --statement, --group or --from.")
    if file is None and (kind is not None or skip_bad):
        raise UsageError("--format and --skip-bad need a file; name it with --from.")
    from guard.retrieve import store

    read = _read(() if file is None else (file,), kind, skip_bad)
    every = [*texts, *(s.statement for s in read)]
    with _progress() as report:
        change = store.remove_statements(folder, statements=every, groups=groups, report=report)
    if not change.removed:
        raise UsageError(f"The bias index at {folder} has none of these; nothing was removed.")
    if change.unmatched:
        click.echo(f"Not in the bias index: {_some(change.unmatched)}.", err=True)
    _print_change(folder, change, as_json)


@index.command()
@click.argument("text")
@_ANY
@click.option("-k", "count", type=click.IntRange(1, 1000), default=5, show_default=True)
@detector_option
@json_option
def search(text: str, folder: Path | None, count: int, detector: str | None, as_json: bool) -> None:
    """Show the statements nearest to TEXT, with their cosine similarities."""
    if not text.strip():
        raise UsageError("TEXT is empty; pass text to search for.")
    from guard.retrieve.index import BiasIndex

    embedder = _embedder(detector)
    vectors = embedder.embed([text])
    place = _in_use(folder) or embedder.shipped_index
    bias_index = BiasIndex.load(place, embedder.name, vectors.shape[1])
    [hits] = bias_index.search(vectors, count, -1.0)
    references = [bias_index.reference(hit) for hit in hits]
    if as_json:
        from dataclasses import asdict

        shown = {"version": bias_index.version, "references": [asdict(r) for r in references]}
        print_json(shown)
        return
    for r in references:
        click.echo(f"{r.similarity:.2f}  {r.statement}  [{r.bias_type}: {r.group}, {r.attribute}]")
    if not references:
        click.echo("The bias index is empty.")


@index.command()
@_ANY
@detector_option
@json_option
def stats(folder: Path | None, detector: str | None, as_json: bool) -> None:
    """Check an index and show its content."""
    from guard.detect.weights import open_weights
    from guard.places import shipped_index
    from guard.retrieve.index import BiasIndex, statement_counts

    weights = open_weights(_weights(detector))
    place = _in_use(folder) or shipped_index(weights.settings.name)
    bias_index = BiasIndex.load(place, None)
    shown = {
        "index": str(place),
        "version": bias_index.version,
        "embedder": bias_index.embedder,
        "usable": bias_index.embedder == weights.name,
        "search": "exact" if bias_index.exact else "graph",
        "dim": bias_index.dim,
        **statement_counts(bias_index.table),
    }
    if as_json:
        print_json(shown)
        return
    how = "every vector is compared" if bias_index.exact else "by a graph (HNSW)"
    fits = "the weights in use" if shown["usable"] else f"not the weights in use, {weights.name}"
    click.echo(f"{place}, version {bias_index.version}")
    click.echo(f"  embedder    {bias_index.embedder} ({fits})")
    click.echo(f"  search      {how}, {bias_index.dim} dimensions")
    click.echo(f"  statements  {shown['statements']}, of them {shown['implicit']} implicit")
    click.echo(f"  groups      {shown['groups']}")
    for name, number in shown["types"].items():
        click.echo(f"  {name:11} {number}")


def _embedder(detector: str | None) -> Encoder:
    from guard.detect.encoder import Encoder

    return Encoder(_weights(detector), use_references=False)


def _weights(detector: str | None) -> Path:
    """Return the folder of the weights in use; ``detector`` is from the command line.

    The index of a cascade has the vectors of `encoder`.
    """
    from guard.config import merge_settings, read_settings
    from guard.detect.weights import shipped_weights
    from guard.places import DEFAULT, embedder_of

    own = merge_settings(read_settings(), {} if detector is None else {"detector": detector})
    folder = shipped_weights(embedder_of(own.get("detector", DEFAULT)))
    return Path(own["weights"]) if "weights" in own else folder


def _in_use(folder: Path | None) -> Path | None:
    """Return the index of the command line or the settings; None if neither names one."""
    from guard.config import read_settings

    named = folder or read_settings().get("index")
    return None if named is None else Path(named)


def _read(files: tuple[Path, ...], kind: str | None, skip_bad: bool) -> list[BiasStatement]:
    from guard.retrieve.importers import read_dataset

    statements: list[BiasStatement] = []
    for path in files:
        if str(path) == "-":
            raise UsageError(
                "Statements cannot be read from standard input, because their file is read more "
                "than once; write them to a file first."
            )
        statements += read_dataset(
            path, kind, skip_bad=skip_bad, skipped=lambda why: click.echo(why, err=True)
        )
    if files and not statements:
        raise UsageError(f"There is no statement in {', '.join(map(str, files))}.")
    return statements


# At most this many statements and groups that were not found are listed.
_SHOWN = 5


def _some(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return ", ".join(f"'{text}'" for text in texts[:_SHOWN]) + more


def _print_change(folder: Path, change: IndexChange, as_json: bool) -> None:
    if as_json:
        print_json({"index": str(folder), **change._asdict()})
        return
    done = [f"{change.added} added"] if change.added or not change.removed else []
    if change.duplicates:
        done.append(f"{change.duplicates} left out as duplicates")
    if change.removed:
        done.append(f"{change.removed} removed")
    click.echo(f"{', '.join(done)}; {change.statements} statements, version {change.version}")
    click.echo(str(folder))


def _report_wait(doing: str, done: int, total: int) -> None:
    from guard.retrieve.store import WAITING

    if doing == WAITING and not done:
        click.echo(f"{WAITING} ...", err=True)


@contextmanager
def _progress() -> Iterator[Report]:
    """Show a progress bar on standard error; without a terminal, only report other writers."""
    with progress_bar() as bar:
        if bar is None:
            yield _report_wait
            return
        tasks: dict[str, Any] = {}

        def report(doing: str, done: int, total: int) -> None:
            if doing not in tasks:
                tasks[doing] = bar.add_task(doing, total=total)
            bar.update(tasks[doing], completed=done, total=total)

        yield report
