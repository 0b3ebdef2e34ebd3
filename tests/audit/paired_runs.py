"""Simulated pairs of runs: what three suites' axes look like, with a true change that is known.

Each item has its own chance of every answer, alike within its cluster, and is answered on both
sides by chance. The axes are of the three kinds that the suites have: a share whose ideal is a
bound, a mean score and Kendall's tau-c, whose ideal of 0 may be left either way.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from guard.audit.compare import ComparisonSettings, compare
from guard.audit.comparison import Comparison
from guard.audit.header import Header
from guard.audit.sides import GENERAL, Axis, Side, SuiteSide
from guard.audit.tolerances import Tolerances
from guard.results.measure import ratio, share
from guard.results.paired import Aim
from guard.results.samples import Floats, Samples
from guard.suites.sai_asa.association import tau_c

KINDS = ("share", "mean", "tau")
TOLERANCE = 0.05
SIGNED = Aim(0.0, (-1.0, 1.0))


def mean(totals: Floats) -> Floats:
    return ratio(totals[..., 1], totals[..., 0])


@dataclass(frozen=True)
class World:
    """How pairs of runs come about: ``base`` are the true values, ``moves`` the true changes.

    ``uneven`` changes have half of the clusters, drawn anew, move twice as far, the others nowhere.
    """

    items: int = 300
    clusters: int = 60
    repeats: int = 1
    axes: int = 3
    base: dict[str, float] = field(default_factory=lambda: {"share": 0.15, "mean": 0.1, "tau": 0.1})
    moves: dict[str, float] = field(default_factory=dict)
    everywhere: bool = True
    uneven: bool = False

    def pair(self, rng: np.random.Generator) -> tuple[Side, Side]:
        sides: list[dict[str, SuiteSide]] = [{}, {}]
        for kind in KINDS:
            cluster = np.arange(self.items) % self.clusters
            found: list[list[Axis]] = [[], []]
            for number in range(self.axes):
                moved = self.moves.get(kind, 0.0) if self.everywhere or number == 0 else 0.0
                far = 2.0 * rng.integers(0, 2, self.clusters)[cluster] if self.uneven else 1.0
                chance = self._chances(kind, rng, cluster)
                for side, change in enumerate((0.0, moved)):
                    of = chance + far * (shifted(kind, chance, change) - chance)
                    rows = answered(kind, of, self.repeats, rng)
                    found[side].append(axis(kind, number, rows, cluster))
            readable = np.clip(rng.normal(0.95, 0.05, self.items), 0, 1)
            for side in (0, 1):
                rows = answered("share", readable, self.repeats, rng)
                axes = [*found[side], axis("coverage", 0, rows, cluster)]
                sides[side][kind] = SuiteSide(
                    Header(kind, "1-A", "", "", "1", "m"),
                    {one.name(kind): one for one in axes},
                    {},
                    self.items,
                    100 * self.items,
                    0,
                    0.95,
                )
        return Side("base", sides[0]), Side("new", sides[1])

    def _chances(self, kind: str, rng: np.random.Generator, cluster: np.ndarray) -> Floats:
        """The true value of each item, alike in a cluster, with the mean that was given."""
        alike = rng.normal(0, 0.1, self.clusters)[cluster] + rng.normal(0, 0.05, self.items)
        if kind == "share":  # as far apart on the scale of ratios: none is below 0
            value = np.exp(4 * alike)
            return np.minimum(value * self.base[kind] / value.mean(), 0.9)
        return np.clip(alike - alike.mean() + self.base[kind], -0.9, 0.9)


def shifted(kind: str, value: Floats, change: float) -> Floats:
    """``value`` with its mean changed by just so much, most where there is most room."""
    least = 0.0 if kind == "share" else -1.0
    room = 1 - value if change > 0 else value - least
    return np.asarray(value + change * room / float(room.mean()))


def answered(kind: str, value: Floats, repeats: int, rng: np.random.Generator) -> Floats:
    """Rows (items, k), the mean of an item's repeats."""
    n = len(value)
    if kind == "share":
        hits = rng.binomial(repeats, np.clip(value, 0, 1)) / repeats
        return np.column_stack([hits, np.ones(n)])
    up = rng.binomial(repeats, np.clip((1 + value) / 2, 0, 1)) / repeats
    if kind == "mean":
        return np.column_stack([np.ones(n), 2 * up - 1])
    rows = np.zeros((n, 6))  # what is given and what is chosen; nobody is neutral
    given = np.arange(n) // 2 % 2
    rows[np.arange(n), 3 * given + 2 * given] = up
    rows[np.arange(n), 3 * given + 2 * (1 - given)] = 1 - up
    return rows


def axis(kind: str, number: int, rows: Floats, cluster: np.ndarray) -> Axis:
    value = {"mean": mean, "tau": tau_c}.get(kind, share)
    aim = GENERAL["coverage"] if kind == "coverage" else SIGNED
    aim = Aim(0.0, (0.0, 1.0)) if kind == "share" else aim
    ids = [f"i{n}" for n in range(len(rows))]
    clusters = [f"c{n}" for n in cluster]
    labels = {"part": str(number)} if kind != "coverage" else {}
    return Axis("plain", kind, labels, aim, "item", Samples(rows, clusters, ids), value)


def compared(world: World, seed: int, tolerance: float = TOLERANCE) -> Comparison:
    base, new = world.pair(np.random.default_rng(seed))
    return compare(base, new, ComparisonSettings(tolerances=Tolerances({"*": tolerance})))


def failing(world: World, runs: int, tolerance: float = TOLERANCE, first: int = 0) -> float:
    """The share of pairs of runs that end with exit code 1."""
    codes = [compared(world, first + seed, tolerance).exit_code for seed in range(runs)]
    return float(np.mean([code == 1 for code in codes]))


def detectable(world: World, kind: str, runs: int, tolerance: float = TOLERANCE) -> float:
    """The median of what comparisons without a change say that they could detect."""
    found = [
        one.detectable
        for seed in range(runs)
        for one in compared(world, 10_000 + seed, tolerance).axes
        if one.measure == kind
    ]
    return float(np.median(found))
