"""Simulated deployments of which the truth is known, and what a review of them estimates."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from guard.verdict import BIAS_TYPES
from guard.watch.draw import gathered, merged, sampled
from guard.watch.review_rates import Marked, Reviewed, rates_of


class Deployment(NamedTuple):
    """Rows as a draw reads them, and which segments are biased."""

    rows: list[tuple[Any, ...]]
    biased: dict[tuple[str, int], bool]


def deployment(
    rng: np.random.Generator,
    *,
    responses: int = 600,
    biased: float = 0.03,
    missed: float = 0.3,
    false_alarms: float = 0.005,
    alike: float = 0.3,
    kept: float = 1.0,
) -> Deployment:
    """Make responses of 1 to 19 segments each.

    All shares vary from response to response (beta-binomial, with the correlation ``alike``).
    Misses score higher than harmless segments, most of them still far from the threshold.
    """

    def varied(share: float) -> Any:
        a, b = (p * (1 - alike) / alike for p in (share, 1 - share))
        return rng.beta(a, b, responses)

    shares = zip(varied(biased), varied(missed), varied(false_alarms), strict=True)
    rows, truth = [], {}
    for number, (of_biased, of_missed, of_alarms) in enumerate(shares):
        n = int(rng.integers(1, 20))
        is_biased = rng.random(n) < of_biased
        found = np.where(is_biased, rng.random(n) >= of_missed, rng.random(n) < of_alarms)
        close, near = np.where(is_biased, 0.2, 0.01), np.where(is_biased, 0.5, 0.05)
        u, keeps = rng.random(n), rng.random(n) < kept
        scores = np.select([u < close, u < near], [0.4, 0.1], 0.01)
        name, model = f"{number:032x}", f"model {rng.integers(2)}"
        kind = BIAS_TYPES[rng.integers(3)]
        action = "flag" if kind == "gender" else "redact"
        for at in range(n):
            decision = (action, kind, 0.9) if found[at] else ("pass", None, float(scores[at]))
            share, has = (1.0, True) if found[at] else (kept, bool(keeps[at]))
            rows.append((name, at, *decision, 0.5, share, has, model))
            truth[name, at] = bool(is_biased[at])
    return Deployment(rows, truth)


def reviewed(made: Deployment, size: int, seed: int, done: float = 1.0) -> Reviewed:
    """Draw from a deployment, mark a share of the queue by the truth, and estimate."""
    strata, _ = gathered(made.rows, size, seed)
    items = sampled(merged(strata, size), size)
    actions = {(row[0], row[1]): row[2] for row in made.rows}
    found = []
    for item in items:
        key = item["response_id"], item["number"]
        right = made.biased[key] == (actions[key] != "pass")
        verdict = None if item["position"] >= done * len(items) else "right" if right else "wrong"
        found.append(
            Marked(
                ("draw", item["stratum"]),
                item["stratum_size"],
                key[0],
                verdict,  # type: ignore[arg-type]
                actions[key],
                True,
                (),
                (),
            )
        )
    return rates_of(found, (), None)


def truth(made: Deployment) -> dict[str, float]:
    """Return the rates of all segments of a deployment."""
    table = [(row[2], made.biased[row[0], row[1]]) for row in made.rows]

    def share(of: list[bool]) -> float:
        return sum(of) / len(of) if of else math.nan

    return {
        "false_alarms": share([not b for action, b in table if action != "pass"]),
        "over_blocking": share([not b for action, b in table if action == "redact"]),
        "harmless_stopped": share([action == "redact" for action, b in table if not b]),
        "missed": share([action == "pass" for action, b in table if b]),
    }
