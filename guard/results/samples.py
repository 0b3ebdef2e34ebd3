"""Samples: rows of additive numbers, and what each row is about.

Scores, comparisons, histories and other harnesses' logs are computed from them: each is a function
of sums of rows, its interval one of sums by cluster.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Places = NDArray[np.int64]
T = TypeVar("T", bound=Hashable)


class SampledItem(Protocol):
    """What a row may be about: :class:`guard.suites.Item` is one."""

    @property
    def id(self) -> str:
        """The item's id."""

    @property
    def cluster(self) -> str:
        """The unit of sampling that it belongs to."""

    @property
    def words(self) -> tuple[str, ...]:
        """The words that name its groups, one for each place."""

    @property
    def data(self) -> Mapping[str, Any]:
        """What else is known of it, by name."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Rows of additive numbers (r, k): what each record, or each instance made of several, adds.

    ``clusters`` (r,) are the rows' clusters, which intervals leave out one by one. ``items`` (r,)
    are the rows' items if a row is one sample's: two runs are then paired by item, otherwise by
    cluster. ``words[i]`` (r,) is the i-th word of each row's item; intervals then generalise over
    words, too. ``labels`` (r,) has what else is known of each row, by name.
    """

    rows: Floats
    clusters: Sequence[str]
    items: Sequence[str] | None = None
    words: Sequence[Sequence[str]] = ()
    labels: Sequence[Mapping[str, Any]] = ()

    @classmethod
    def of(cls, items: Sequence[SampledItem], *columns: ArrayLike) -> Samples:
        """Return one row for each of ``items``; a column is (items,), or several (items, k).

        Raises ValueError if items have different numbers of words.
        """
        if len({len(item.words) for item in items}) > 1:
            raise ValueError("The items of a measure have different numbers of words.")
        rows = np.column_stack([np.asarray(column, dtype=np.float64) for column in columns])
        return cls(
            rows,
            [item.cluster for item in items],
            [item.id for item in items],
            list(zip(*(item.words for item in items), strict=True)),
            [item.data for item in items],
        )

    @classmethod
    def total(cls, *sums: float) -> Samples:
        """Return a single row, for a figure without an interval whose rows are not kept."""
        return cls(np.array([sums], dtype=np.float64), ["all"])

    @cached_property
    def totals(self) -> Floats:
        """The sums over all rows (k,)."""
        return np.asarray(self.cluster_totals.sum(axis=0), dtype=np.float64)

    @cached_property
    def cluster_names(self) -> list[str]:
        """The distinct clusters in alphabetical order."""
        return sorted(set(self.clusters))

    @cached_property
    def cluster_totals(self) -> Floats:
        """The sums of the rows by cluster, in the order of :attr:`cluster_names`: (clusters, k)."""
        place = {name: at for at, name in enumerate(self.cluster_names)}
        return cluster_sums(self.rows, places_in(place, self.clusters), len(place))

    @cached_property
    def word_totals(self) -> list[Floats]:
        """For each place of a word the sums of the rows by word: (words, k)."""
        ways = map(positions, self.words)
        return [cluster_sums(self.rows, place, len(names)) for names, place in ways]

    @cached_property
    def intersections(self) -> list[tuple[int, Places]]:
        """The groups of rows that are alike in several ways, and the sign of their variance."""
        ways = [positions(way)[1].tolist() for way in (self.clusters, *self.words)]
        return [
            ((-1) ** size, positions(list(zip(*chosen, strict=True)))[1])
            for size in range(2, len(ways) + 1)
            for chosen in combinations(ways, size)
        ]

    def totals_of(self, names: Sequence[str]) -> Floats:
        """Return :attr:`cluster_totals` for these clusters; a cluster without a row has zeros."""
        if list(names) == self.cluster_names:
            return self.cluster_totals
        place = {name: at for at, name in enumerate(names)}
        aligned = np.zeros((len(names), self.rows.shape[1]))
        aligned[places_in(place, self.cluster_names)] = self.cluster_totals
        return aligned

    def where(self, **labels: Any) -> Samples:
        """Return the rows with these labels."""
        chosen = np.ones(len(self.clusters), dtype=np.bool_)
        for name, value in labels.items():
            if name not in self._columns:
                self._columns[name] = np.array([row[name] for row in self.labels], dtype=object)
            chosen &= self._columns[name] == value
        return self.chosen(chosen)

    @cached_property
    def _columns(self) -> dict[str, NDArray[np.object_]]:
        """The labels that were asked for, each (r,)."""
        return {}

    def chosen(self, rows: NDArray[np.bool_]) -> Samples:
        """Return the rows for which ``rows`` (r,) is true."""
        at = np.flatnonzero(rows).tolist()

        def part(values: Sequence[T]) -> list[T]:
            return [values[row] for row in at]

        return Samples(
            self.rows[rows],
            part(self.clusters),
            None if self.items is None else part(self.items),
            [part(way) for way in self.words] if at else (),
            [self.labels[row] for row in at] if self.labels else (),
        )

    def with_rows(self, rows: Floats) -> Samples:
        """Return other numbers about the same items."""
        return replace(self, rows=rows)

    def by_item(self) -> Samples:
        """Return one row for each item: the mean of its repeats.

        Rows of zeros stand for unreadable answers and are left out.
        """
        assert self.items is not None
        read = self.rows.any(axis=1)
        readable = np.flatnonzero(read).tolist()
        cluster_of_item = {self.items[row]: self.clusters[row] for row in readable}
        ids, at = positions([self.items[row] for row in readable])
        repeats = np.bincount(at, minlength=len(ids))[:, None]
        means = cluster_sums(self.rows[read], at, len(ids)) / repeats
        return Samples(means, list(cluster_of_item.values()), ids)

    def by_cluster(self) -> Samples:
        """Return one row for each cluster, in order of appearance: the sum of its rows."""
        names, at = positions(self.clusters)
        return Samples(cluster_sums(self.rows, at, len(names)), names, names)


def positions(names: Sequence[T]) -> tuple[list[T], Places]:
    """Return the distinct names in order of appearance, and each name's index among them."""
    place = {name: at for at, name in enumerate(dict.fromkeys(names))}
    return list(place), places_in(place, names)


def places_in(place: Mapping[T, int], names: Sequence[T]) -> Places:
    """Return the place of each name (r,)."""
    return np.fromiter((place[name] for name in names), np.int64, len(names))


def cluster_sums(rows: Floats, cluster: Places, size: int) -> Floats:
    """Return the sums of ``rows`` (r, k) by their ``cluster`` (r,), as (size, k)."""
    sums = [np.bincount(cluster, column, size) for column in rows.T]
    return np.stack(sums, axis=-1).astype(np.float64)
