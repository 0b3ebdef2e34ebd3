"""Rates over time, as charts and tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from sqlalchemy import Connection

from guard.results.chart import MOST_SERIES, Chart, ChartSeries
from guard.results.estimate import Estimate
from guard.watch.dashboard.view import View
from guard.watch.rates import RateLine, Sums, line_of, rate_text, sums
from guard.watch.review_rates import Reviewed, ReviewedRate, estimates

_REVIEWED_PARTS = 7  # samples are small


_BARS = "Bars are 95 % intervals; a missing one means too few responses."
_Part = tuple[float, Estimate, int]
"""When a part of the time begins, its rate, and of how many elements."""


def _chart(
    view: View, name: str, title: str, text: str, parts: Mapping[str, Sequence[_Part]], unit: str
) -> Chart:
    """Return a chart over the time of ``view``; a single series has the name ""."""
    series = [_series(key, each, unit) for key, each in parts.items()]
    text = f"{text} {_BARS}" if unit == "%" else text
    span = (view.since, view.until)
    return Chart(name, title, text, "time", (), series, unit, span=span, series_are=view.by)


def _series(name: str, parts: Sequence[_Part], unit: str) -> ChartSeries:
    scale = 100 if unit == "%" else 1
    rates = [rate for _, rate, _ in parts]
    return ChartSeries(
        name,
        [scale * rate.value for rate in rates],
        [scale * rate.low for rate in rates],
        [scale * rate.high for rate in rates],
        texts=[rate_text(rate) if unit == "%" else f"{rate.value:.1f} {unit}" for rate in rates],
        times=[time for time, _, _ in parts],
        n=[n for _, _, n in parts],
    )


_RATES: tuple[tuple[str, str, str, Callable[[RateLine], tuple[Estimate, int]], str], ...] = (
    (
        "prevalence",
        "Prevalence before the guard",
        "Share of the judged segments that were biased.",
        lambda line: (line.prevalence, line.segments),
        "%",
    ),
    (
        "mitigation",
        "Mitigation",
        "Share of the findings that did not reach the user.",
        lambda line: (line.mitigation, line.findings),
        "%",
    ),
    (
        "unjudged",
        "Unjudged",
        "Share of all segments that were not judged; prevalence and mitigation leave them out.",
        lambda line: (line.unjudged, line.segments + line.unjudged_segments),
        "%",
    ),
    (
        "verdict-time",
        "Time of a verdict",
        "Mean time that judging a segment took.",
        lambda line: (
            Estimate(line.verdict_ms),
            line.segments + line.unjudged_segments,
        ),
        "ms",
    ),
)


REVIEWED: tuple[tuple[str, str, str, Callable[[Reviewed], ReviewedRate]], ...] = (
    (
        "over-blocking",
        "Over-blocking, as reviewed",
        "Share of the findings kept from the user that were harmless.",
        lambda found: found.over_blocking,
    ),
    (
        "missed",
        "Missed, as reviewed",
        "Share of the biased segments in which guard found nothing.",
        lambda found: found.missed,
    ),
)


def over_time(
    connection: Connection, view: View, split: bool = False
) -> tuple[RateLine | None, list[Chart]]:
    """Return the rates of the view's responses, None if there are none, and their charts.

    With ``split`` a chart has a line for each value that the view breaks down by: the four with the
    most responses, or findings.
    """
    starts = view.starts()
    of_view = partial(sums, connection, view.since, view.until, starts=starts, only=view.only)
    parts = of_view(view.findings)
    series = {"": parts}
    if split:
        by_value: dict[str, list[Sums]] = defaultdict(list)
        for part in of_view(tuple(dict.fromkeys((view.by, *view.findings)))):
            by_value[part.by[view.by]].append(part)
        totals = {name: _added(of) for name, of in by_value.items()}
        # Every type of finding has all of the responses.
        most = sorted(totals, key=lambda name: (-totals[name].responses, -totals[name].f))
        series = {name: by_value[name] for name in sorted(most[:MOST_SERIES])}
    lines = {
        name: [(starts[s.part], line_of(s)) for s in sorted(of, key=lambda s: s.part)]
        for name, of in series.items()
    }
    charts = [
        _chart(
            view,
            name,
            title,
            text,
            {key: [(start, *of(line)) for start, line in each] for key, each in lines.items()},
            unit,
        )
        for name, title, text, of, unit in _RATES
    ]
    return (line_of(_added(parts)) if parts else None), charts


def reviewed(connection: Connection, view: View) -> tuple[Reviewed | None, list[Chart]]:
    """Return the estimates from marks for the view, None without marks, and their charts."""
    total = _estimates(connection, view, view.since, view.until)
    if total is None:
        return None, []
    ends = [*(starts := view.starts(_REVIEWED_PARTS)), view.until][1:]
    parts = [(s, _estimates(connection, view, s, e)) for s, e in zip(starts, ends, strict=True)]
    charts = [
        _chart(
            view,
            name,
            title,
            text,
            {
                "": [
                    (start, of(rates), int(of(rates).n))
                    for start, rates in parts
                    if rates is not None
                ]
            },
            "%",
        )
        for name, title, text, of in REVIEWED
    ]
    return total, charts


def reviewed_by(connection: Connection, view: View) -> dict[str, Reviewed]:
    """Return the estimates from marks for each value that the view breaks down by."""
    names = tuple(dict.fromkeys((view.by, *view.only)))
    by_key = estimates(connection, view.since, view.until, names)
    lines = ((dict(zip(names, key, strict=True)), rates) for key, rates in by_key.items())
    return {of[view.by]: rates for of, rates in lines if view.only.items() <= of.items()}


def _estimates(connection: Connection, view: View, since: float, until: float) -> Reviewed | None:
    names = tuple(view.only)
    rates = estimates(connection, since, until, names).get(tuple(view.only.values()))
    return rates if rates is not None and any(estimate.n for estimate in rates) else None


def _added(parts: Sequence[Sums]) -> Sums:
    """Return the sums over all parts."""
    first = parts[0]
    rest = (sum(values) for values in zip(*(part[2:] for part in parts), strict=True))
    return Sums(first.by, 0, *rest)
