"""``guard check``: the verdict on text, with its evidence."""

from __future__ import annotations

import errno
import json
import re
import sys
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
        return _decoded(sys.stdin.buffer.read(), "standard input")
    try:
        path = Path(text)
        if not path.is_file():
            if _LIKE_A_FILE.fullmatch(text):
                raise UsageError(
                    f"There is no file {text}; if it is the text to judge, pipe it: guard check -"
                )
            return text
        return _decoded(path.read_bytes(), text)
    except UsageError:
        raise
    except ValueError:  # holds a null character: no path
        return text
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return text
        raise UsageError(f"{text} cannot be read: {error.strerror}.") from None


# One word with a folder before it or a usual ending of text files behind it.
_LIKE_A_FILE = re.compile(
    r"(?:[.~]{0,2}/)?[\w.-]+(?:/[\w.-]+)*\.(?:txt|md|csv|tsv|json|jsonl|html|xml|log|rst|yaml|yml)"
)


def _decoded(said: bytes, where: str) -> str:
    try:
        return said.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{where} is not UTF-8 text; convert it first.") from None


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
