"""Prints verdicts on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console

    from guard.verdict import Verdict

_REFERENCES = 3  # at most, under a verdict


def show_verdict(console: Console, text: str, verdict: Verdict) -> None:
    """Print the finding on ``text``: type, score, attributions and references.

    ``text`` is empty for a passage that must not be shown.
    """
    if verdict.score is None or verdict.threshold is None:
        console.print(Text(f"unjudged ({verdict.unjudged})  ", "yellow") + Text(text, "dim"))
        return
    if not verdict.biased:
        head = Text(f"not biased {verdict.score:.2f}  ", "green")
        if verdict.second_score is not None:
            head += Text("(read with the next sentence)  ", "green")
        console.print(head + Text(text, "dim"))
        return
    head = Text(f"biased {verdict.score:.2f}", "bold red")
    kind = f"{verdict.bias_type}, implied" if verdict.implied else verdict.bias_type
    head += Text(f" (threshold {verdict.threshold:.2f})  {kind}  ", "red")
    if verdict.second_score is not None:
        head += Text(f"{verdict.second_score:.2f} with the next sentence  ", "red")
    head += Text(f"{verdict.elapsed_ms:.0f} ms", "dim")
    console.print(head)
    if text:
        console.print(Text(f"  “{text}”", "dim"))
    for pair in verdict.attributions:
        console.print(
            Text("  group ") + Text(pair.group, "bold") + Text("  tied to ")
            + Text(pair.attribute, "bold")
        )  # fmt: skip
    for reference in verdict.references[:_REFERENCES]:
        line = f"  evidence {reference.similarity:.2f}  {reference.statement}"
        console.print(Text(f"{line}  [{reference.bias_type}]", "dim"))
