"""Helpers of suites: answers without the model's thoughts, and measures over additive rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from guard.suites.contract import Floats, Item, Measure

_TAG = r"(?:think(?:ing)?|reasoning)"
_THOUGHT = re.compile(rf"<{_TAG}>.*?(?:</{_TAG}>|\Z)", re.DOTALL | re.IGNORECASE)
Value = Callable[[Floats], Floats]


def without_thought(text: str) -> str:
    """Return an answer without the reasoning that a model wrote in tags."""
    return _THOUGHT.sub("", text)


def ratio(above: Floats, below: Floats) -> Floats:
    """Return ``above / below`` by element, broadcast; nan where ``below`` is not above 0."""
    above, below = np.broadcast_arrays(above, below)
    nothing = np.full(below.shape, np.nan)
    return np.asarray(np.divide(above, below, out=nothing, where=below > 0), dtype=np.float64)


def share(totals: Floats) -> Floats:
    """Return the first over the second column of ``totals``, (..., 2 or more) -> (...)."""
    return ratio(totals[..., 0], totals[..., 1])


def column(place: int) -> Value:
    """Return the function that takes column ``place`` of totals (..., k)."""
    return lambda totals: totals[..., place]


def quotient(above: int, below: int) -> Value:
    """Return the function that divides two columns of totals (..., k); nan over 0."""
    return lambda totals: ratio(totals[..., above], totals[..., below])


@dataclass(frozen=True)
class Rows:
    """Additive statistics (r, k) of samples, with the item of each."""

    items: Sequence[Item]
    table: Floats
    _data: dict[str, NDArray[np.object_]] = field(default_factory=dict, init=False, repr=False)

    def where(self, **data: Any) -> Rows:
        """Return the rows whose items have these values in their data."""
        of = np.ones(len(self.items), dtype=bool)
        for name, value in data.items():
            if name not in self._data:
                self._data[name] = np.array([i.data[name] for i in self.items], dtype=object)
            of &= self._data[name] == value
        return Rows([self.items[n] for n in np.flatnonzero(of).tolist()], self.table[of])

    @cached_property
    def clusters(self) -> list[str]:
        """The items' clusters."""
        return [item.cluster for item in self.items]

    @cached_property
    def words(self) -> list[tuple[str, ...]]:
        """``words[i]`` (r,) is the i-th word of each item; empty without words.

        Raises ValueError if items have different numbers of words.
        """
        return list(zip(*(item.words for item in self.items), strict=True))

    @cached_property
    def ids(self) -> list[str]:
        """The items' ids, for measures that compare runs item by item."""
        return [item.id for item in self.items]

    def measure(
        self, name: str, axis: Mapping[str, str], value: Value, n: Value, **settings: Any
    ) -> Measure:
        """Return a measure over these rows; ``settings`` are those of :class:`Measure`."""
        words = self.words
        return Measure(name, axis, self.table, self.clusters, value, n, words=words, **settings)
