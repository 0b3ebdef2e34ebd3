"""Show what ``second_look_threshold`` does: ``python second_look.py [--weights F --index F]``.

The texts are the validation forms of ``corpus/forms/refuted.jsonl``: a claim that the next sentence
refutes, or only seems to. Training did not see their forms. Of the claims found at ``balanced``,
the table shows for each threshold which share the second look takes back: of refuted ones it should
be high, of the others low.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

from guard import Guard
from guard.detect.encoder import Encoder
from guard.results.intervals import clopper_pearson
from guard.train.forms import all_forms, form_fillings
from guard.train.rows import in_validation
from guard.verdict import Verdict

THRESHOLDS = (1.0, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1, 0.07, 0.05)


class Claim(NamedTuple):
    """A claim found at ``balanced``: its verdict without a threshold, and what follows it."""

    verdict: Verdict
    threshold: float
    refuted: bool


def claims(guard: Guard, fills: int) -> list[Claim]:
    """Return the claims of the validation forms that the first look finds."""
    free = Guard(detector=guard.detector, threshold=0.0, events="none")
    points = guard.detector.operating_points
    found = []
    for kind, form in all_forms():
        if kind != "refuted" or not in_validation(f"form:{form['form']}"):
            continue
        for filled in form_fillings(form, 0, fills):
            for half in ("harmless", "biased"):
                if not form.get(half):
                    continue
                first = next(iter(free.trail(form[half].format_map(filled)))).verdict
                if first.score is None or first.bias_type is None:
                    continue
                threshold = guard.policy.threshold_for(first.bias_type, points)
                if first.score >= threshold and first.second_score is not None:
                    found.append(Claim(first, threshold, half == "harmless"))
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--index", type=Path)
    parser.add_argument("--fills", type=int, default=6, help="fillings of a form")
    given = parser.parse_args()
    encoder = Encoder(given.weights, given.index) if given.weights else None
    guard = Guard(detector=encoder, events="none")
    found = claims(guard, given.fills)
    print(f"{guard.detector.name}\n\n| threshold | refuted: taken back | others: taken back |")
    print("| --- | --- | --- |")
    for limit in THRESHOLDS:
        shares = []
        for refuted in (True, False):
            of = [c for c in found if c.refuted == refuted]
            back = sum((c.verdict.second_score or 0.0) < min(limit, c.threshold) for c in of)
            low, high = clopper_pearson(back, len(of))
            shares.append(f"{back} of {len(of)} = {back / len(of):.3f} [{low:.3f}, {high:.3f}]")
        print(f"| {limit} | {shares[0]} | {shares[1]} |")


if __name__ == "__main__":
    main()
