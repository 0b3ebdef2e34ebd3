"""Helpers of suites: answers without the model's thoughts, and measures over additive rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from guard.results.measure import Floats, Measure, Value
from guard.suites.contract import Item

_TAG = r"(?:think(?:ing)?|reasoning)"
_THOUGHT = re.compile(rf"<{_TAG}>.*?(?:</{_TAG}>|\Z)", re.DOTALL | re.IGNORECASE)


def without_thought(text: str) -> str:
    """Return an answer without the reasoning that a model wrote in tags."""
    return _THOUGHT.sub("", text)


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
