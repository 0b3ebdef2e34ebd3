"""Exit codes over simulated pairs of runs: how often a gate fails wrongly, and what it finds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.audit.paired_runs import KINDS, TOLERANCE, World, detectable, failing

WORLD = World()
NEARLY = dict.fromkeys(KINDS, TOLERANCE - 0.0001)
MIRRORED = {"mean": -0.2, "tau": -0.2}
FAIR: dict[str, tuple[World, float]] = {
    "no change": (WORLD, TOLERANCE),
    "no change, no tolerance": (WORLD, 0.0),
    "no change, no tolerance, at the ideal": (
        replace(WORLD, base={"share": 0.15, "mean": 0.0, "tau": 0.0}),
        0.0,
    ),
    "no change, no tolerance, items asked five times": (replace(WORLD, repeats=5), 0.0),
    "no change, no tolerance, ten templates": (replace(WORLD, clusters=10), 0.0),
    "every axis worse by nearly the tolerance": (replace(WORLD, moves=NEARLY), TOLERANCE),
    "the same, in half of the templates": (
        replace(WORLD, moves=NEARLY, uneven=True),
        TOLERANCE,
    ),
    "the same, of ten templates": (
        replace(WORLD, moves=NEARLY, uneven=True, clusters=10),
        TOLERANCE,
    ),
    "as far on the other side of the ideal": (replace(WORLD, moves=MIRRORED), TOLERANCE),
}


def moved(kind: str, by: float) -> World:
    """One axis of nine gets worse."""
    return replace(WORLD, moves={kind: by}, everywhere=False)


@pytest.mark.parametrize("name", ["no change, no tolerance", "the same, in half of the templates"])
def test_few_gates_fail_where_nothing_got_worse(name: str) -> None:
    world, tolerance = FAIR[name]
    # More than 6 of 25 come in 0.4 % of cases at a rate of 6.5 %, and in 98 % at 50 %.
    assert failing(world, 25, tolerance) <= 6 / 25


def test_a_gate_finds_what_it_says_that_it_can() -> None:
    least = detectable(WORLD, "share", 3)
    assert TOLERANCE < least < 0.4
    # Fewer than 12 of 20 come in 0.4 % of cases at a rate of 80 %.
    assert failing(moved("share", least), 20) >= 12 / 20


@pytest.mark.slow("simulates a thousand comparisons", limit_s=6000)
@pytest.mark.parametrize("name", FAIR)
def test_at_most_one_gate_in_fifteen_fails_where_nothing_got_worse(name: str) -> None:
    world, tolerance = FAIR[name]
    assert failing(world, 1000, tolerance) <= 0.065


@pytest.mark.slow("simulates a thousand comparisons", limit_s=6000)
@pytest.mark.parametrize("kind", KINDS)
def test_four_of_five_gates_find_the_size_that_they_state(kind: str) -> None:
    assert failing(moved(kind, detectable(WORLD, kind, 25)), 1000) >= 0.77
