"""The view that a query selects: a period, a breakdown and filters."""

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
_MAX_PARTS = 31  # points of a chart that a telephone can show
_LAST = 4_102_444_800.0  # the year 2100
_MINUTE_S = 60.0


@dataclass(frozen=True, slots=True)
class View:
    """What to show: responses that began in [``since``, ``until``), seconds since 1970.

    ``only`` has the filters, values by dimension; ``by`` is the dimension to break down by;
    ``range`` is a key of RANGES, or CUSTOM.
    """

    range: str
    since: float
    until: float
    by: str
    only: Mapping[str, str]

    @property
    def findings(self) -> tuple[str, ...]:
        """The filters that are dimensions of findings."""
        return tuple(name for name in self.only if name in FINDINGS)

    def starts(self, most: int = _MAX_PARTS) -> list[float]:
        """Return when the parts of the period begin: at ``since``, then at full minutes to weeks.

        There are at most ``most`` + 1 parts; the first and the last may be shorter.
        """
        whole = self.until - self.since
        step = next((s for s in _STEPS_S if whole / s <= most), whole / most)
        first = math.floor(self.since / step) + 1
        full = (n * step for n in range(first, math.ceil(self.until / step)))
        return [self.since, *(start for start in full if self.since < start < self.until)]

    def query(self, **changed: str | None) -> str:
        """Return the query string of this view with changes; None leaves a value out."""
        values: dict[str, str | None] = {"range": self.range}
        if self.range == CUSTOM:
            values |= {"since": minute(self.since), "until": minute(self.until)}
        values |= {"by": self.by, **self.only, **changed}
        return "?" + urlencode({name: value for name, value in values.items() if value is not None})


def view(query: Mapping[str, str], now: float, others: Iterable[str] = ()) -> View:
    """Return the view of a query; ``others`` are parameters that are not part of it.

    Raises UsageError on an unknown parameter or value.
    """
    span = query.get("range", "24h")
    if span in RANGES:
        since, until = now - RANGES[span][1], now
    elif span == CUSTOM:
        since, until = _time(query, "since"), _time(query, "until")
        if until - since < _MINUTE_S:
            raise UsageError(
                "The period is too short: since must be at least a minute before until."
            )
    else:
        raise UsageError(f"range is one of {', '.join(RANGES)} and {CUSTOM}, not {span[:40]!r}.")
    if any("\0" in name for name in (*query, query.get("by", ""))):
        raise UsageError("The name of a label has no null character.")
    by = dimensions(query.get("by") or "model")
    if len(by) != 1:
        raise UsageError("by takes one name; to combine several use guard rates --by.")
    reserved = {"range", "since", "until", "by", *others}
    only = {name: clean(value) for name, value in query.items() if name not in reserved and value}
    for name in only:
        dimensions(name)
    return View(span, since, until, by[0], only)


def minute(seconds: float) -> str:
    """Return a time as a form field takes it: UTC, to the minute."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M")


def _time(query: Mapping[str, str], name: str) -> float:
    text = query.get(name, "")
    try:
        time = datetime.fromisoformat(text.removesuffix("Z"))
        seconds = time.replace(tzinfo=time.tzinfo or timezone.utc).timestamp()
    except (ValueError, OverflowError):
        raise UsageError(
            f"{name} takes a time in UTC such as 2030-01-31T08:00, got {text[:40]!r}."
        ) from None
    return min(max(seconds, 0.0), _LAST)
