"""What a page was asked to show: a time, its parts, a breakdown and the values kept."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from urllib.parse import urlencode

from guard.errors import UsageError
from guard.watch.events import clean
from guard.watch.rates import COLUMNS, FINDINGS, LABELS, dimensions

RANGES: Mapping[str, tuple[str, float]] = {
    "24h": ("24 hours", 86_400.0),
    "7d": ("7 days", 604_800.0),
    "30d": ("30 days", 2_592_000.0),
}
CUSTOM = "custom"
DIMENSIONS = (*COLUMNS, *FINDINGS, *LABELS)
_STEPS_S = (60, 300, 900, 3_600, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 2_419_200)
_PARTS = 31  # that a chart can show on a telephone
_LAST = 4_102_444_800.0  # the year 2100
_MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class View:
    """What to show: responses that began in [``since``, ``until``), seconds since 1970.

    ``only`` are values of dimensions, ``by`` is the one to break down by; ``range`` is a key of
    RANGES or CUSTOM.
    """

    range: str
    since: float
    until: float
    by: str
    only: Mapping[str, str]

    @property
    def findings(self) -> tuple[str, ...]:
        """The dimensions of ``only`` that only a finding has."""
        return tuple(name for name in self.only if name in FINDINGS)

    def starts(self, most: int = _PARTS) -> list[float]:
        """Return the beginnings of parts of the time, at full minutes, hours or days.

        There are at most one more than ``most``, for the first may be a shorter one.
        """
        whole = self.until - self.since
        step = next((s for s in _STEPS_S if whole / s <= most), whole / most)
        first = math.floor(self.since / step) + 1
        full = (n * step for n in range(first, math.ceil(self.until / step)))
        return [self.since, *(start for start in full if self.since < start < self.until)]

    def query(self, **changed: str | None) -> str:
        """Return the query that asks for this with changes; None leaves a value out."""
        own: dict[str, str | None] = {"range": self.range}
        if self.range == CUSTOM:
            own |= {"since": minute(self.since), "until": minute(self.until)}
        own |= {"by": self.by, **self.only, **changed}
        return "?" + urlencode({name: value for name, value in own.items() if value is not None})


def view(asked: Mapping[str, str], now: float, others: Iterable[str] = ()) -> View:
    """Read a query; ``others`` are names in it that are not of the view.

    Raises UsageError on what is unknown.
    """
    span = asked.get("range", "24h")
    if span in RANGES:
        since, until = now - RANGES[span][1], now
    elif span == CUSTOM:
        since, until = _time(asked, "since"), _time(asked, "until")
        if until - since < _MINUTE_S:
            raise UsageError("The time has to begin at least a minute before it ends.")
    else:
        raise UsageError(f"range knows {', '.join(RANGES)} and {CUSTOM}, not {span[:40]!r}.")
    by = dimensions(asked.get("by") or "model")
    if len(by) != 1:
        raise UsageError("by takes one name.")
    own = {"range", "since", "until", "by", *others}
    only = {name: clean(value) for name, value in asked.items() if name not in own and value}
    for name in only:
        dimensions(name)
    return View(span, since, until, by[0], only)


def minute(seconds: float) -> str:
    """Return a time as a form's field has it: UTC, to the minute."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M")


def _time(asked: Mapping[str, str], name: str) -> float:
    text = asked.get(name, "")
    try:
        found = datetime.fromisoformat(text.removesuffix("Z"))
        seconds = found.replace(tzinfo=found.tzinfo or timezone.utc).timestamp()
    except (ValueError, OverflowError):
        raise UsageError(
            f"{name} takes a time in UTC such as 2030-01-31T08:00, got {text[:40]!r}."
        ) from None
    return min(max(seconds, 0.0), _LAST)
