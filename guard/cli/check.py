"""``guard check``: the verdict on text, with its evidence."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from guard.errors import UsageError

if TYPE_CHECKING:
    from guard.verdict import Decision, Verdict


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
    _show(said, list(trail) if every else trail.findings, len(trail), highest(trail, guard.policy))


def _read(text: str) -> str:
    if text == "-":
        return sys.stdin.read()
    try:
        path = Path(text)
        if not path.is_file():
            return text
    except (OSError, ValueError):  # too long for a path, or holds a null character
        return text
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{text} is not UTF-8 text; convert it first.") from None
    except OSError as error:
        raise UsageError(f"{text} cannot be read: {error.strerror}.") from None


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


def _show(said: str, decisions: list[Decision], total: int, top: Verdict) -> None:
    from rich.console import Console

    from guard.cli.evidence import show_verdict

    console = Console(highlight=False)
    for decision in decisions:
        show_verdict(console, said[slice(*decision.span)].strip(), decision.verdict)
    if not decisions:
        if top.unjudged:
            console.print(f"not judged ({top.unjudged}); {total} segment(s)")
        else:
            console.print(
                f"[green]not biased[/]  highest score {top.score:.2f} of {total} segment(s), "
                f"threshold {top.threshold:.2f}"
            )
