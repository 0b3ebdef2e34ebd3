"""One task in the log of another harness, as a side of a comparison.

Each number that a scorer gives a sample is a row of an axis; repeats of a sample are averaged. A
log does not state the score of a fair model, so the ideal of such an axis is nan until
:func:`guard.audit.tolerances.with_directions` sets it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from guard.audit.header import Header
from guard.audit.sides import GENERAL, Axis, SuiteSide, texts_by_item
from guard.errors import UsageError
from guard.results.measure import share
from guard.results.paired import UNKNOWN, Aim
from guard.results.samples import Samples

ARM = "plain"
_MOST = 1e15
_GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
_WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
_KINDS = {"list": "a list", "dict": "a table", "NoneType": "nothing"}


class Score(NamedTuple):
    """A scorer's result for a sample: the measure, its labels, and the value in the log."""

    measure: str
    labels: tuple[tuple[str, str], ...]
    value: object

    @property
    def axis(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        """The key of its axis."""
        return self.measure, self.labels


class ScoredAnswer(NamedTuple):
    """One answer to an item, scored. ``content`` is a hash of what was asked."""

    item: str
    content: str
    scores: Sequence[Score]

    def read_by(self, scorers: Set[str]) -> bool:
        """Return whether each of ``scorers`` gave it a value."""
        values = [score.value for score in self.scores]
        all_ = scorers <= {score.measure for score in self.scores}
        return bool(values) and all_ and not any(value != value for value in values)


@dataclass(frozen=True, slots=True)
class Task:
    """One task of a log.

    The run samples ``expected`` of ``available`` items, each ``repeats`` times. ``broken`` says
    that the run failed or was cancelled. ``better`` maps measures to the direction that the log
    states, "higher" or "lower". ``left_out`` names the scores that are not axes.
    """

    header: Header
    readings: Sequence[ScoredAnswer]
    expected: int
    repeats: int
    available: int
    broken: bool = False
    better: Mapping[str, str] = field(default_factory=dict)
    left_out: Sequence[str] = ()


def number_of(value: object) -> float | None:
    """Return a score as a number; None where it is not one.

    It follows ``value_to_float`` of inspect_ai 0.3, except that this takes any other text for 0.
    """
    if isinstance(value, int | float):
        # Infinite values have no mean; nan is an unreadable value.
        return float(value) if abs(value) <= _MOST or value != value else None
    if not isinstance(value, str):
        return None
    if value in _GRADES:
        return _GRADES[value]
    if value.lower() in _WORDS:
        return _WORDS[value.lower()]
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def side_of(task: Task) -> SuiteSide:
    """Return the side of ``task``; raises UsageError where no scorer gave its samples numbers."""
    name = task.header.suite
    axes: dict[str, Axis] = {}
    outcomes: dict[str, Mapping[str, str]] = {}
    left_out = list(task.left_out)
    values_by_axis: dict[tuple[str, tuple[tuple[str, str], ...]], list[tuple[str, object]]] = {}
    for reading in task.readings:
        for score in reading.scores:
            values_by_axis.setdefault(score.axis, []).append((reading.item, score.value))
    for (measure, labels), values in values_by_axis.items():
        unreadable = next((value for _, value in values if number_of(value) is None), _NONE)
        if unreadable is not _NONE:
            where = "/".join([measure, *("=".join(label) for label in labels)])
            left_out.append(f"{where} (a sample has {_value_kind(unreadable)})")
            continue
        # The names in GENERAL are guard's own axes.
        shown = f"{measure} (score)" if measure in GENERAL else measure
        axis = _axis_of(shown, dict(labels), values, task.better.get(measure, ""))
        axes[axis.name(name)] = axis
        outcomes[axis.name(name)] = _values_text(values)
    if not axes and task.readings:
        more = f": {'; '.join(left_out)}" if left_out else ", because it was not scored"
        raise UsageError(
            f"No scorer of {name} gave its samples numbers{more}; score it with another scorer."
        )
    items = [reading.item for reading in task.readings]
    scorers = {score.measure for reading in task.readings for score in reading.scores}
    read = [reading.read_by(scorers) for reading in task.readings]
    readings = _mean_samples(items, [float(x) for x in read])
    coverage = Axis(ARM, "coverage", {}, GENERAL["coverage"], "item", readings, share)
    axes[coverage.name(name)] = coverage
    values = [(item, "scored" if x else "unread") for item, x in zip(items, read, strict=True)]
    outcomes[ARM] = _values_text(values)
    missing = task.repeats * task.expected - len(task.readings)
    return SuiteSide(
        header=task.header,
        axes=axes,
        outcomes=outcomes,
        items=task.expected,
        available=task.available,
        missing=max(missing, int(task.broken)),
        coverage=sum(read) / len(read) if read else math.nan,
        contents={reading.item: reading.content for reading in task.readings},
        left_out=left_out,
    )


_NONE = object()


def _axis_of(
    measure: str, labels: Mapping[str, str], item_values: Sequence[tuple[str, object]], better: str
) -> Axis:
    values = [number_of(value) or 0.0 for _, value in item_values]
    known = [value for value in values if not math.isnan(value)]
    # Logs do not state the scale. Values that all lie between 0 and 1 count as shares.
    within = all(0 <= value <= 1 for value in known)
    aim = Aim(UNKNOWN, (0.0, 1.0) if within else (-math.inf, math.inf))
    items = [item for item, _ in item_values]
    return Axis(
        ARM, measure, labels, aim, "item", _mean_samples(items, values), share, better=better
    )


def _mean_samples(items: Sequence[str], values: Sequence[float]) -> Samples:
    """Return rows (value, 1), whose sums make a mean, one for each item; none for nan."""
    rows = np.column_stack([np.asarray(values, dtype=np.float64), np.ones(len(values))])
    rows[np.isnan(rows[:, 0])] = 0.0
    return Samples(rows, items, items).by_item()


def _values_text(item_values: Iterable[tuple[str, object]]) -> dict[str, str]:
    """Return the values of each item as text; of several values the count of each."""
    texts = (
        (item, f"{value:.4g}" if isinstance(value, float) else str(value))
        for item, value in item_values
    )
    return texts_by_item(texts, count_equal=False)


def _value_kind(value: object) -> str:
    if isinstance(value, str):
        return repr(value)
    return _KINDS.get(type(value).__name__, "a value that is not a number")


def json_digest(value: object) -> str:
    """Return the first 12 digits of the SHA-256 of ``value`` as JSON."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def hashed_values(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return settings with hashed values, which may be secrets or paths."""
    return {name: json_digest(value) for name, value in settings.items()}


def without_empty(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without those that are None or empty."""
    return {name: value for name, value in settings.items() if value not in (None, {}, [])}
