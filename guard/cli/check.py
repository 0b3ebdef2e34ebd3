"""``guard check``: the verdict on text, with its evidence."""

from __future__ import annotations

import errno
import json
import re
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from guard.errors import UsageError

if TYPE_CHECKING:
    from guard.verdict import Decision, GuardTrail, Verdict


@click.command()
@click.argument("text", metavar="TEXT|-|FILE")
@click.option(
    "--operating-point",
    type=click.Choice(["strict", "balanced", "quiet"]),
    help="Set of thresholds to judge by.",
)
@click.option("--all", "every", is_flag=True, help="Show every segment, not the biased ones alone.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def check(text: str, operating_point: str | None, every: bool, as_json: bool) -> None:
    """Judge TEXT, standard input (-) or a FILE.

    Exits with 0 whatever the verdict is, with 2 where there is nothing to judge.
    """
    from guard.core import Guard, highest

    said = _read(text)
    guard = Guard(operating_point=operating_point) if operating_point else Guard()
    trail = guard.trail(said)
    if as_json:
        verdict = highest(trail, guard.policy)
        found = {**_plain(verdict), "segments": [_segment(d) for d in trail]}
        click.echo(json.dumps(found, ensure_ascii=False))
        return
    _show(said, list(trail) if every else trail.findings, trail)


def _read(text: str) -> str:
    if text == "-":
        if sys.stdin is None:
            raise UsageError("Standard input is closed; give text, or a file.")
        return _contents("standard input", sys.stdin.buffer.read)
    if not text.strip() or not _there(text):
        return text
    path = Path(text)
    if path.is_dir():
        raise UsageError(f"{text} is a folder; name a file, or pipe the text: guard check -")
    return _contents(text, path.read_bytes)


def _there(text: str) -> bool:
    """Whether ``text`` is the name of something; raises UsageError where it can be nothing else."""
    try:
        Path(text).stat()
    except ValueError:  # holds a null character: no path
        return False
    except (FileNotFoundError, NotADirectoryError):
        if _LIKE_A_FILE.fullmatch(text):
            raise UsageError(
                f"There is no file {text}; if it is the text to judge, pipe it: guard check -"
            ) from None
        return False
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return False
        raise _unreadable(text, error) from None
    return True


# One word with a folder before it or a usual ending of text files behind it.
_LIKE_A_FILE = re.compile(
    r"(?:[.~]{0,2}/)?[\w.-]+(?:/[\w.-]+)*\.(?:txt|md|csv|tsv|json|jsonl|html|xml|log|rst|yaml|yml)"
)


def _contents(where: str, read: Callable[[], bytes]) -> str:
    try:
        return read().decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{where} is not UTF-8 text; convert it first.") from None
    except OSError as error:
        raise _unreadable(where, error) from None


def _unreadable(where: str, error: OSError) -> UsageError:
    return UsageError(f"{where} cannot be read: {error.strerror}.")


def _plain(verdict: Verdict) -> dict[str, Any]:
    # nan is not JSON; an unjudged verdict has neither score nor threshold.
    values = {k: None if v != v else v for k, v in asdict(verdict).items()}
    return {**values, "judgement": verdict.judgement}


def _segment(decision: Decision) -> dict[str, Any]:
    verdict = decision.verdict
    return {
        "start": decision.span.start,
        "end": decision.span.end,
        "biased": verdict.biased,
        "score": None if verdict.unjudged else verdict.score,
        "bias_type": verdict.bias_type,
        "unjudged": verdict.unjudged,
    }


def _show(said: str, decisions: list[Decision], trail: GuardTrail) -> None:
    from rich.console import Console

    from guard.cli.evidence import show_verdict

    console = Console(highlight=False)
    for decision in decisions:
        show_verdict(console, said[slice(*decision.span)].strip(), decision.verdict)
    unjudged = [d.verdict.unjudged for d in trail if d.verdict.unjudged]
    if unjudged:
        reasons = ", ".join(sorted(set(unjudged)))
        console.print(
            f"[yellow]not judged[/]  {len(unjudged)} of {len(trail)} segments ({reasons})"
        )
    if not decisions and len(unjudged) < len(trail):
        best = max(d.verdict.score for d in trail if not d.verdict.unjudged)
        console.print(
            f"[green]not biased[/]  highest score {best:.2f} of "
            f"{len(trail) - len(unjudged)} segment(s)"
        )
