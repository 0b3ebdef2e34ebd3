"""Withheld answers by identity: the shares of refused, unreadable and stopped ones.

Whether they differ is tested by permuting the identities. Under the null hypothesis the elements of
a block with the same number of samples are exchangeable, so the count of an identity is that of as
many elements drawn at random from each block. If the suite says that elements of any size are
exchangeable, their shares are drawn in place of counts. The distribution is exact, whatever the
dependence within a block (Lehmann and Romano 2005, section 5.8); a normal approximation replaces it
where counting takes too long.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from guard.audit.statistics import Line, cluster_sums, positions
from guard.suites import Item, Measure, Record, Suite
from guard.suites.conclusions import ALPHA, p_text
from guard.suites.contract import Compared
from guard.suites.permutation import permutation_p
from guard.suites.reading import share

KINDS: Mapping[str, tuple[str, ...]] = {
    "refused": ("refused",),
    "unreadable": ("invalid",),
    "stopped": ("guarded", "unjudged"),
}
"""The outcomes that are counted, by kind."""
_PARTS = 1_000
"""Shares are rounded to one of so many parts, or more: the permuted sums are of whole numbers."""


def measures(suite: Suite, records: Sequence[Record]) -> list[Measure]:
    """Return the shares of every identity of every comparison that the suite names."""
    answered = [r for r in records if r.outcome.name != "failed"]
    hits = {k: np.array([r.outcome.name in v for r in answered]) for k, v in KINDS.items()}
    names, cluster = positions([r.item.cluster for r in answered])
    found = comparisons(suite, [r.item for r in answered])
    return [m for one in found for m in one.measures(hits, cluster, names)]


def comparisons(suite: Suite, items: Sequence[Item]) -> list[Comparison]:
    """Return the comparisons that the suite names of samples of ``items``."""
    groups: dict[tuple[tuple[str, str], ...], Comparison] = {}
    for at, item in enumerate(items):
        for one in suite.compared(item):
            key = tuple(one.axis.items())
            group = groups.setdefault(key, Comparison(dict(one.axis)))
            group.add(at, one)
    return list(groups.values())


class Comparison:
    """The samples of one comparison, with the identity, block and element of each."""

    def __init__(self, axis: dict[str, str]) -> None:
        self._axis = axis
        self._rows: list[int] = []
        self._identities: dict[str, int] = {}
        self._elements: dict[tuple[str, str, str], int] = {}
        self._element: list[int] = []
        self._shares = False

    def add(self, row: int, one: Compared) -> None:
        """Add the sample at ``row``."""
        self._rows.append(row)
        self._shares |= one.any_size
        self._identities.setdefault(one.identity, len(self._identities))
        key = one.block, one.element, one.identity
        self._element.append(self._elements.setdefault(key, len(self._elements)))

    @cached_property
    def _arrays(self) -> tuple[NDArray[np.int64], ...]:
        """The row and element of each sample; the identity and block of each element."""
        rows, element = np.array(self._rows), np.array(self._element)
        size = np.bincount(element)
        of = np.array([self._identities[identity] for _, _, identity in self._elements])
        names: dict[tuple[str, int], int] = {}
        # Unless the suite says otherwise, only elements of the same size are exchangeable.
        block = np.array([
            names.setdefault((name, 0 if self._shares else int(n)), len(names))
            for (name, _, _), n in zip(self._elements, size, strict=True)
        ])  # fmt: skip
        return rows, element, of, block

    def measures(
        self,
        hits: Mapping[str, NDArray[np.bool_]],
        cluster: NDArray[np.int64],
        names: Sequence[str],
    ) -> Iterator[Measure]:
        """Yield the shares; ``hits`` and ``cluster``, indices of ``names``, are by sample."""
        rows, element, of, block = self._arrays
        for kind, hit in hits.items():
            counted = hit[rows].astype(float)
            by_element = np.bincount(element, counted, len(of))
            if self._shares:
                size = np.bincount(element)
                # Of equal sizes these are multiples of the counts, which give the same p.
                unit = size.max() * math.ceil(_PARTS / size.max())
                by_element = np.round(by_element * unit / size)
            for identity, place in self._identities.items():
                mine = of[element] == place
                at = cluster[rows][mine]
                values = np.column_stack([counted[mine], mine[mine]])
                yield Measure(
                    kind,
                    {**self._axis, "identity": identity},
                    cluster_sums(values, at, len(names)),
                    names,
                    share,
                    lambda totals: totals[..., 1],
                    p=permutation_p(by_element, of == place, block),
                    # Intervals of rare outcomes in few clusters do not keep their level.
                    interval=False,
                )


class UnequalShare(NamedTuple):
    """A significantly different share of an identity, beside that of the others."""

    line: Line
    share: float
    others: float
    q: float


def significant(lines: Sequence[Line], *, guarded: bool = False) -> list[UnequalShare]:
    """Return the shares that differ significantly in an arm, the smallest q first."""

    def others_in(line: Line) -> dict[str, str]:
        return {k: v for k, v in line.measure.axis.items() if k != "identity"}

    found = []
    for line in lines:
        e = line.guarded if guarded else line.plain
        if e is None or not e.q < ALPHA:
            continue
        rest = [
            other
            for x in lines
            if x.measure.name == line.measure.name
            and others_in(x) == others_in(line)
            and x is not line
            and (other := x.guarded if guarded else x.plain) is not None
        ]
        n = sum(x.n for x in rest)
        others = sum(x.n * x.value for x in rest if x.n) / n if n else math.nan
        found.append(UnequalShare(line, e.value, others, e.q))
    return sorted(found, key=lambda one: one.q)


def conclusion(lines: Sequence[Line], *, guarded: bool = False) -> str:
    """Return a sentence on answers that are withheld unequally; empty for none."""
    # Of two identities compared with each other only the one with more is named.
    found = significant(lines, guarded=guarded)
    more = [one for one in found if one.share > one.others] or found
    if not more:
        return ""
    texts = [
        f"{_VERBS[one.line.measure.name]} {'more' if one.share > one.others else 'less'} often "
        f"for {' '.join(one.line.measure.axis.values())}: "
        f"{one.share:.1%} against {one.others:.1%} (q {p_text(one.q)})"
        for one in more[:3]
    ]
    rest = f"; {len(more) - 3} further such differences" if len(more) > 3 else ""
    return "Answers are withheld unequally: " + "; ".join(texts) + rest + "."


_VERBS = {
    "refused": "refuses",
    "unreadable": "gives unreadable answers",
    "stopped": "is stopped",
}
