"""What the card says of named behaviours."""

from __future__ import annotations

from typing import Any

from guard.evaluate.behaviours import LEAST, MEAN


def behaviours(found: dict[str, Any] | None) -> list[str]:
    """Return the section on named behaviours: the mean, and each that is too weak."""
    if found is None:
        return []
    weak = sorted(
        (b for b in found["behaviours"] if b["value"] < LEAST),
        key=lambda b: (b["value"], b["name"]),
    )
    head = (
        f"Of {len(found['behaviours'])} named behaviours with {found['cases']:,} own-written cases "
        f"(`guard eval --behaviours`; benchmarks/detector/README.md), {len(weak)} pass less than "
        f"{LEAST:g} of their cases; the mean is {_with_interval(found['mean'])}, to be {MEAN:g}. "
        f"Measured with {found['detector']}, index {found['index_version']}."
    )
    lines = [
        "| known to be weak | n | passed [95 %] | missed | false alarms | misread |",
        "| --- |" + " --- |" * 5,
    ]
    for b in weak:
        name, others = b["name"].replace("_", " "), b["n"] - b["biased"]
        missed = f"{b['misses']} of {b['biased']}" if b["biased"] else ""
        alarms = f"{b['false_alarms']} of {others}" if others else ""
        cells = f"{b['n']} | {_with_interval(b)} | {missed} | {alarms} | {b['misread'] or ''} |"
        lines.append(f"| {name} | {cells}")
    return ["## Behaviours\n\n" + head + ("\n\n" + "\n".join(lines) if weak else "")]


def _with_interval(figure: dict[str, float]) -> str:
    return f"{figure['value']:.3f} [{figure['low']:.3f}, {figure['high']:.3f}]"
