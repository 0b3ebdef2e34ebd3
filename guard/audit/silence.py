"""Withheld answers by identity: the shares of refused, unreadable and stopped ones.

Whether they differ is tested by permuting the identities among the elements of a block with the
same number of samples. If the identity made no difference, its count would be distributed like the
sum over equally many elements drawn at random from each block. If the suite says that elements of
any size are exchangeable, their shares are drawn in place of counts. The distribution is exact,
whatever the dependence within a block (Lehmann and Romano 2005, section 5.8); a normal
approximation replaces it where counting takes too long.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from guard.results.conclusions import ALPHA
from guard.results.intervals import p_text
from guard.results.jackknife import Line, NoInterval
from guard.results.measure import Measure, column, share
from guard.results.permutation import permutation_p
from guard.results.samples import Floats, Samples, positions
from guard.suites import Item, Record
from guard.suites.contract import ComparisonGroup

KINDS: Mapping[str, tuple[str, ...]] = {
    "refused": ("refused",),
    "unreadable": ("invalid",),
    "stopped": ("guarded", "unjudged"),
}
"""The outcomes that are counted, by kind."""
_PARTS = 1_000
"""Shares are rounded to one of so many parts, or more: the permuted sums are of whole numbers."""


def silence_measures(records: Sequence[Record]) -> list[Measure]:
    """Return the shares of every identity of every comparison that items name."""
    answered = [r for r in records if r.outcome.name != "failed"]
    hits = {k: np.array([r.outcome.name in v for r in answered]) for k, v in KINDS.items()}
    compared = compared_identities([r.item for r in answered])
    return [measure for comparison in compared for measure in comparison.measures(hits)]


def compared_identities(items: Sequence[Item]) -> list[ComparedIdentities]:
    """Return the comparisons that samples of ``items`` name."""
    groups: dict[tuple[tuple[str, str], ...], ComparedIdentities] = {}
    for at, item in enumerate(items):
        for compared in item.comparison_groups:
            key = tuple(compared.axis.items())
            group = groups.setdefault(key, ComparedIdentities(dict(compared.axis)))
            group.add(at, compared)
    return list(groups.values())


class _Elements:
    """What is permuted in a comparison: the element of each sample, with its block and identity.

    Unless they may have ``any_size``, only elements of the same size are exchangeable.
    """

    def __init__(self, *, any_size: bool) -> None:
        self._any_size = any_size
        self._places: dict[tuple[str, str, int], int] = {}
        self._element: list[int] = []

    def add(self, block: str, name: str, identity: int) -> None:
        """Add a sample."""
        self._element.append(self._places.setdefault((block, name, identity), len(self._places)))

    @cached_property
    def element(self) -> NDArray[np.int64]:
        """The element of each sample."""
        return np.array(self._element)

    @cached_property
    def identity(self) -> NDArray[np.int64]:
        """The identity of each element."""
        return np.array([identity for *_, identity in self._places])

    @cached_property
    def size(self) -> NDArray[np.int64]:
        """The number of samples of each element."""
        return np.bincount(self.element)

    @cached_property
    def block(self) -> NDArray[np.int64]:
        """The block of each element."""
        sizes = [0] * len(self._places) if self._any_size else self.size.tolist()
        return positions([(name, n) for (name, *_), n in zip(self._places, sizes, strict=True)])[1]

    def permuted_values(self, hit: NDArray[np.bool_]) -> Floats:
        """Return what is permuted, by element: counts of ``hit``, which is by sample, or shares.

        Shares are rounded to multiples of a unit, for exact distributions.
        """
        counted, size = np.bincount(self.element, hit, len(self.identity)), self.size
        if not self._any_size:
            return counted.astype(np.float64)
        # Of equal sizes these are multiples of the counts, which give the same p.
        unit = size.max() * math.ceil(_PARTS / size.max())
        shares: Floats = np.round(counted * unit / size)
        return shares

    def p_of_identity(self, identity: int, values: Floats) -> float:
        """Return the p of permuting ``values``, by element, between an identity and the others."""
        return permutation_p(values, self.identity == identity, self.block)


class ComparedIdentities:
    """The samples of one comparison, with the identity, block and elements of each."""

    def __init__(self, axis: dict[str, str]) -> None:
        self._axis = axis
        self._rows: list[int] = []
        self._identities: dict[str, int] = {}
        self._ways: list[_Elements] = []

    @property
    def key(self) -> tuple[tuple[str, str], ...]:
        """What tells the comparison from others of its suite."""
        return tuple(self._axis.items())

    def add(self, row: int, group: ComparisonGroup) -> None:
        """Add the sample at ``row``."""
        names = (group.element, *group.crossed)
        if not self._rows:
            self._ways = [_Elements(any_size=group.any_size) for _ in names]
        self._rows.append(row)
        identity = self._identities.setdefault(group.identity, len(self._identities))
        for elements, name in zip(self._ways, names, strict=True):
            elements.add(group.block, name, identity)

    @cached_property
    def _of_rows(self) -> NDArray[np.int64]:
        return np.array(self._rows)

    def about(self, identity: str) -> frozenset[int]:
        """Return the samples that are about an identity."""
        mine = self._identity == self._identities[identity]
        return frozenset(self._of_rows[mine].tolist())

    @property
    def _identity(self) -> NDArray[np.int64]:
        """The identity of each row."""
        elements = self._ways[0]
        return elements.identity[elements.element]

    def measures(self, hits: Mapping[str, NDArray[np.bool_]]) -> Iterator[Measure]:
        """Yield the shares; ``hits`` are by sample.

        They have no intervals: those of rare outcomes in few clusters do not keep their level.
        """
        for kind, every in hits.items():
            hit = every[self._of_rows]
            permuted = [(elements, elements.permuted_values(hit)) for elements in self._ways]
            for identity, place in self._identities.items():
                mine = hit[self._identity == place]
                # A nan, of elements that cannot be exchanged, is the largest.
                max_p = np.max([way.p_of_identity(place, values) for way, values in permuted])
                yield Measure(
                    kind,
                    {**self._axis, "identity": identity},
                    Samples.total(mine.sum(), len(mine)),
                    share,
                    column(1),
                    interval=NoInterval(float(max_p)),
                )

    def shares(self, hit: NDArray[np.bool_], identity: str) -> tuple[float, float]:
        """Return the share of an identity's answers, and that of its blocks' answers.

        Each answer counts once, as in every other figure of the report, also where the test
        exchanges the shares of elements of any size.
        """
        elements, withheld = self._ways[0], hit[self._of_rows]
        block = elements.block[elements.element]
        mine = self._identity == self._identities[identity]
        means = np.bincount(block, withheld) / np.bincount(block)
        return float(withheld[mine].mean()), float(means[block[mine]].mean())


class UnequalShare(NamedTuple):
    """A significantly different share of an identity, beside that expected if it did not matter.

    Both count each answer once, the expected one within the blocks of the test's comparison.
    ``about`` are the samples that are about the identity; ``hit``, a row for each sample, says
    whether it is withheld.
    """

    line: Line
    share: float
    expected: float
    n: float
    q: float
    about: frozenset[int]
    hit: NDArray[np.bool_]

    @property
    def name(self) -> str:
        """The comparison and the identity."""
        return " ".join(self.line.measure.axis.values())

    def share_of(self, samples: frozenset[int]) -> float:
        """Return the share of ``samples`` that is withheld."""
        return float(self.hit[list(samples)].mean())

    @property
    def is_more(self) -> bool:
        """Whether more answers are withheld than if the identity did not matter."""
        return self.share > self.expected


def significant_shares(
    lines: Sequence[Line], records: Sequence[Record], *, guarded: bool = False
) -> list[UnequalShare]:
    """Return the shares that differ significantly in an arm, the smallest q first.

    ``records`` are the arm's, from which :func:`measures` made ``lines``.
    """
    named = [(line, line.guarded if guarded else line.plain) for line in lines]
    named = [(line, e) for line, e in named if e is not None and e.q < ALPHA]
    if not named:
        return []
    answered = [r for r in records if r.outcome.name != "failed"]
    by_axis = {one.key: one for one in compared_identities([r.item for r in answered])}
    unequal = []
    for line, e in named:
        assert e is not None
        hit = np.array([r.outcome.name in KINDS[line.measure.name] for r in answered])
        _, axis = comparison_of(line)
        compared, identity = by_axis[axis], line.measure.axis["identity"]
        shares, about = compared.shares(hit, identity), compared.about(identity)
        unequal.append(UnequalShare(line, *shares, e.n, e.q, about, hit))
    return sorted(unequal, key=lambda share: share.q)


def comparison_of(line: Line) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return what the line of an identity shares with those that it is compared with."""
    axis = line.measure.axis
    return line.measure.name, tuple((k, v) for k, v in axis.items() if k != "identity")


def withheld_findings(unequal: Sequence[UnequalShare]) -> list[UnequalShare]:
    """Return which of the shares that :func:`significant` returns are findings, in their order.

    Answers are withheld from those with more than expected. That others in the same comparison have
    less follows from it, and is a finding only where nobody is shown to have more. Nor is a share
    that another one explains.
    """
    explained = {comparison_of(one.line) for one in unequal if one.is_more}
    shown = [one for one in unequal if one.is_more or comparison_of(one.line) not in explained]
    return [one for one in shown if not any(_explains_share(other, one) for other in shown)]


def silence_conclusion(findings: Sequence[UnequalShare]) -> str:
    """Return a sentence on answers that are withheld unequally; empty without ``findings``."""
    if not findings:
        return ""
    named = by_same_answers(findings)
    texts = [
        f"{_VERBS[one.line.measure.name]} {'more' if one.is_more else 'less'} often "
        f"for {' or '.join([one.name, *(other.name for other in others)])}"
        f"{', which the same questions name' if others else ''}: {one.share:.1%}, where "
        f"{one.expected:.1%} would be if that made no difference (n {one.n:,.0f}, "
        f"q {p_text(one.q)})"
        for one, *others in named[:3]
    ]
    rest = f"; {len(named) - 3} further such differences" if len(named) > 3 else ""
    return "Answers are withheld unequally: " + "; ".join(texts) + rest + "."


def by_same_answers(findings: Sequence[UnequalShare]) -> list[list[UnequalShare]]:
    """Return the findings, those of the same answers grouped: they are told together."""
    groups: dict[tuple[str, frozenset[int]], list[UnequalShare]] = {}
    for finding in findings:
        groups.setdefault((finding.line.measure.name, finding.about), []).append(finding)
    return list(groups.values())


def _explains_share(share: UnequalShare, other: UnequalShare) -> bool:
    """Return whether the difference of ``share`` explains that of ``other``.

    Where all answers about one identity are also about a second, which has others too, one of both
    explains the other's difference: the first, if the others' share is nearer to that expected
    than to the first's, else the second.
    """
    if share.line.measure.name != other.line.measure.name:
        return False
    if share.about < other.about:
        return not _others_too(share, other)
    return other.about < share.about and _others_too(other, share)


def _others_too(part: UnequalShare, whole: UnequalShare) -> bool:
    """Return whether the answers about ``whole`` that are not about ``part`` differ as it does."""
    others, own = (part.share_of(of) for of in (whole.about - part.about, part.about))
    return abs(others - own) < abs(others - whole.expected)


_VERBS = {
    "refused": "refuses",
    "unreadable": "gives unreadable answers",
    "stopped": "is stopped",
}
