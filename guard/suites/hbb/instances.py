"""From the records of an arm to instances: two questions that differ in the identity alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from guard.suites.conclusions import ALPHA, corrected
from guard.suites.contract import Floats, Record
from guard.suites.hbb.descriptors import Type
from guard.suites.hbb.noise import Chance, chance, difference, least, squared

Places = NDArray[np.int64]


class Kind(NamedTuple):
    """Which instances: the descriptor type and the two identities, as places."""

    type: int
    first: int
    second: int


@dataclass(frozen=True, slots=True)
class Asked:
    """Questions that were asked, by row: place of the concept pair, type and identity; what came.

    ``valid`` (questions, orders) counts readable answers; ``chosen`` sums how far they chose option
    1: whole counts, or probabilities where these are exact. ``outcomes`` holds, by question, how
    many answers were readable, broken in form or refused, and withheld (guarded, failed, ...).
    """

    pair: Places
    type: Places
    identity: Places
    valid: NDArray[np.int64]
    chosen: Floats
    outcomes: NDArray[np.int64]


def asked(
    records: Sequence[Record],
    pairs: Mapping[str, int],
    types: Mapping[str, int],
    orders: int,
    outcomes: Sequence[str],
) -> Asked:
    """Return the questions of ``records``; ``item.data`` names pair, type and identity."""
    rows: dict[str, int] = {}
    keys: list[tuple[int, int, int]] = []
    at = np.empty(len(records), dtype=np.int64)
    order = np.zeros(len(records), dtype=np.int64)
    share = np.zeros(len(records))
    kind = np.empty(len(records), dtype=np.int64)
    for n, record in enumerate(records):
        item, outcome = record.item, record.outcome
        row = rows.setdefault(item.id, len(rows))
        if row == len(keys):
            data = item.data
            keys.append((pairs[data["pair"]], types[data["type"]], data["identity"]))
        at[n] = row
        if outcome.name in outcomes:
            kind[n] = 0
            order[n] = int(outcome.values.get("order", 0))
            share[n] = outcome.values["p"]
        else:
            kind[n] = 1 if outcome.name in ("invalid", "refused") else 2
    told = np.zeros((len(rows), 3), dtype=np.int64)
    np.add.at(told, (at, kind), 1)
    valid = np.zeros((len(rows), orders), dtype=np.int64)
    chosen = np.zeros((len(rows), orders))
    readable = kind == 0
    np.add.at(valid, (at[readable], order[readable]), 1)
    np.add.at(chosen, (at[readable], order[readable]), share[readable])
    places = np.array(keys, dtype=np.int64).reshape(-1, 3)
    return Asked(places[:, 0], places[:, 1], places[:, 2], valid, chosen, told)


class Instances:
    """Every instance both of whose questions were asked.

    An instance is usable where both questions have a readable answer with the options in the same
    order. Only such orders count, each by the number of its answers (:func:`noise.difference`), so
    that refusing one identity more often neither drops its instances nor passes for a habit of
    position. Arrays are by instance; ``score`` is nan where it is not usable.
    """

    def __init__(self, asked: Asked, types: Sequence[Type], *, threshold: int, exact: bool) -> None:
        self.asked = asked
        self.threshold = threshold
        self.exact = exact
        """Whether shares are probabilities, without sampling noise, and not counts."""
        pairs = int(asked.pair.max(initial=-1)) + 1
        widest = max(len(t.identities) for t in types)
        grid = np.full((pairs, len(types), widest), -1, dtype=np.int64)
        grid[asked.pair, asked.type, asked.identity] = np.arange(len(asked.pair))
        parts, kinds = [], []
        for number, kind in enumerate(types):
            for i, j in kind.pairs:
                first, second = grid[:, number, i], grid[:, number, j]
                there = np.flatnonzero((first >= 0) & (second >= 0))
                parts.append((there, first[there], second[there]))
                kinds.append((Kind(number, i, j), len(there)))
        self.pair: Places = np.concatenate([p[0] for p in parts])
        self.first: Places = np.concatenate([p[1] for p in parts])
        self.second: Places = np.concatenate([p[2] for p in parts])
        self.kinds = [kind for kind, _ in kinds]
        self.kind: Places = np.repeat(np.arange(len(kinds)), [n for _, n in kinds])

    @cached_property
    def usable(self) -> NDArray[np.bool_]:
        """Whether an instance has a score."""
        one, other = self.asked.valid[self.first], self.asked.valid[self.second]
        both = (one > 0) & (other > 0)
        # An exact probability with the options one way round alone holds a habit of position.
        return np.asarray(both.all(axis=1) if self.exact else both.any(axis=1))

    @cached_property
    def _difference(self) -> tuple[Floats, Floats]:
        one, other = self.first, self.second
        valid, chosen = self.asked.valid, self.asked.chosen
        return difference(valid[one], valid[other], chosen[one], chosen[other])

    @cached_property
    def gap(self) -> Floats:
        """P1(option 1) - P2(option 1), times a number that is the same for all repeats given."""
        return self._difference[0]

    @cached_property
    def score(self) -> Floats:
        """S in points (equation 1)."""
        gap, size = self._difference
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.where(self.usable, 100 * np.abs(gap) / size, np.nan))

    @cached_property
    def shows(self) -> NDArray[np.bool_]:
        """Whether S reaches the threshold, compared as noise is."""
        gap, size = self._difference
        return self.usable & (np.abs(gap) >= least(size, self.threshold))

    @cached_property
    def chance(self) -> Chance:
        """What noise alone shows; nothing where probabilities are exact."""
        if self.exact:
            none = np.where(self.usable, 0.0, np.nan)
            return Chance(none, none, np.full(len(self.pair), np.nan))
        found = np.full((3, len(self.pair)), np.nan)
        ok = self.usable
        if ok.any():
            n, first, second, other = self._counts(ok)
            found[:, ok] = chance(n, first, second, self.threshold, other)
        return Chance(*found)

    @cached_property
    def q(self) -> Floats:
        """The p-value of the instance's own test, corrected over all; nan where it has none."""
        q = np.full(len(self.pair), np.nan)
        tested = self.usable & ~np.isnan(self.chance.p)
        if tested.any():
            q[tested] = corrected(self.chance.p[tested])
        return q

    @property
    def stands(self) -> NDArray[np.bool_]:
        """Whether an instance stands by itself."""
        return np.asarray(self.q < ALPHA)

    @cached_property
    def square(self) -> Floats:
        """The unbiased square of P1 - P2 in points²."""
        if self.exact:
            return np.asarray(self.score**2)
        found = np.full(len(self.pair), np.nan)
        found[self.usable] = squared(*self._counts(self.usable))
        return found

    def _counts(self, ok: NDArray[np.bool_]) -> tuple[Places, Places, Places, Places]:
        chosen = self.asked.chosen.round().astype(np.int64)
        one, other = self.first[ok], self.second[ok]
        return self.asked.valid[one], chosen[one], chosen[other], self.asked.valid[other]
