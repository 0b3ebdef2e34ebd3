"""The pages of the dashboard, behind :class:`guard.watch.dashboard.access.Access`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from guard.errors import UsageError
from guard.results.table import Table, json_text
from guard.watch.alerts import alerts
from guard.watch.compare import (
    PERIOD,
    RateSide,
    compare,
    compare_notes,
    label_sides,
    last_two,
    points,
)
from guard.watch.dashboard import lists
from guard.watch.dashboard.access import Access, Rules
from guard.watch.dashboard.charts import REVIEWED, over_time, reviewed, reviewed_by
from guard.watch.dashboard.pages import SCRIPT, SHEET, about, page
from guard.watch.dashboard.review_page import ReviewPage
from guard.watch.dashboard.tail import Tail
from guard.watch.dashboard.view import CUSTOM, DIMENSIONS, RANGES, View, minute, view
from guard.watch.events import clean
from guard.watch.rates import FINDINGS, dimensions, report
from guard.watch.review_rates import Reviewed, ReviewedRate
from guard.watch.store import Store, StoreError
from guard.watch.tables import (
    alert_values,
    alerts_values,
    compare_row_values,
    comparison_values,
    line_values,
    response_values,
    reviewed_values,
)

_MAX_LINES = 100  # of a breakdown
_MAX_ID = 64  # characters of a response's id
_FORM = ("form",)
_KINDS = {"csv": "text/csv", "json": "application/json"}
_WEEKS = ("1", "2", "4", "8", "12")
COMPARED = tuple(name for name in DIMENSIONS if name not in FINDINGS)
"""What two sides may differ by, besides their time."""

StatementOf = Callable[[str], str | None]


class Dashboard:
    """Answers requests from ``store``; ``statement_of`` returns a statement by its id, or None."""

    def __init__(
        self, store: Store, statement_of: StatementOf, stopping: Callable[[], bool]
    ) -> None:
        self.store = store
        self._statement_of = statement_of
        self.tail = Tail(store, stopping)
        self.review_page = ReviewPage(store)

    def routes(self) -> list[Route]:
        """Return the routes of all pages."""
        return [
            Route("/", self.rates),
            Route("/compare", self.compare),
            Route("/alerts", self.alerts),
            Route("/responses", self.responses),
            Route("/responses/{id}", self.response),
            Route("/live", self.live),
            Route("/live/events", self.tail.stream),
            Route("/review", self.review_page.show),
            Route("/review", self.review_page.change, methods=["POST"]),
            Route("/static/dashboard.css", _file(SHEET, "text/css")),
            Route("/static/dashboard.js", _file(SCRIPT, "text/javascript")),
        ]

    def rates(self, request: Request) -> Response:
        """Show rates over time, and broken down."""
        query = request.query_params
        selected, split = view(query, time.time(), ("split", *_FORM)), query.get("split") == "1"
        by = tuple(dict.fromkeys((selected.by, *selected.findings)))
        with self.store.reading() as connection:
            total, charts = over_time(connection, selected, split)
            reviewed_total, review_charts = reviewed(connection, selected)
            by_value = {} if reviewed_total is None else reviewed_by(connection, selected)
            rates_report = report(
                connection, selected.since, selected.until, by, only=selected.only
            )
        lines = sorted(rates_report.lines, key=lambda line: (-line.findings, -line.responses))
        if form := _form(query):
            marked = {value: reviewed_values(rates) for value, rates in by_value.items()}
            return _export(
                form,
                "rates",
                [{**line_values(line), **marked.get(line.by[selected.by], {})} for line in lines],
            )
        return self._page(
            "rates.html",
            selected,
            total=total,
            reviewed_total=[] if reviewed_total is None else _estimates(reviewed_total),
            charts=[chart for chart in (*charts, *review_charts) if chart.has_data],
            reviewed={value: _estimates(rates) for value, rates in by_value.items()},
            report=rates_report,
            lines=lines[:_MAX_LINES],
            further=len(lines[_MAX_LINES:]),
            dimensions=DIMENSIONS,
            split=split,
        )

    def compare(self, request: Request) -> Response:
        """Show the rates of two releases, models, other labels or periods side by side."""
        query, now = request.query_params, time.time()
        selected = view(query, now, ("compare", "base", "new", "each", *_FORM))
        name, each = query.get("compare", "release"), query.get("each", "")
        by = tuple(dict.fromkeys((*(dimensions(each) if each else ()), *selected.findings)))
        values = [clean(query.get(side, "")).strip() for side in ("base", "new")]
        result, trouble = None, ""
        with self.store.reading() as connection:
            if name != PERIOD:
                (name,) = dimensions(name) or ("release",)
                if not any(values) and name not in FINDINGS:
                    values = list(_last_two(connection, name, selected))
            try:
                if name == PERIOD:
                    base, new = _this_and_before(selected)
                elif len(values) == 2 and all(values):
                    base, new = label_sides(
                        name, values[0], values[1], selected.since, selected.until
                    )
                else:
                    raise UsageError(f"Responses of two values of {name} are needed in this time.")
                result = compare(connection, base, new, by, only=selected.only)
            except UsageError as error:
                trouble = str(error).removeprefix("--compare: ")
        if result is not None and (form := _form(query)):
            rows = [compare_row_values(row) for row in result.rows]
            return _export(form, "compare", rows, comparison_values(result))
        return self._page(
            "compare.html",
            selected,
            400 if trouble and query.get("base") else 200,
            result=result,
            trouble=trouble,
            notes=[] if result is None else compare_notes(result),
            compared=name,
            values=[*values, "", ""][:2],
            each=each,
            names=(*COMPARED, PERIOD),
            dimensions=DIMENSIONS,
            points=points,
        )

    def alerts(self, request: Request) -> Response:
        """Show whether a rate has risen this week, or since a new release."""
        query = request.query_params
        view(query, time.time(), ("each", "weeks", *_FORM))
        each, weeks = query.get("each", ""), query.get("weeks", "4")
        if weeks not in _WEEKS:
            raise UsageError(f"weeks is one of {', '.join(_WEEKS)}, not {weeks[:40]!r}.")
        with self.store.reading() as connection:
            result = alerts(connection, time.time(), int(weeks), dimensions(each) if each else ())
        if form := _form(query):
            rows = [alert_values(alert) for alert in result.results]
            return _export(form, "alerts", rows, alerts_values(result))
        shown = [alert for alert in result.results if alert.shown]
        shown.sort(key=lambda alert: not alert.alarm)
        values = {"result": result, "alerts": shown[:_MAX_LINES], "points": points, "each": each}
        choices = [name for name in DIMENSIONS if name != "group"]
        further = {"further": len(shown[_MAX_LINES:])}
        about_weeks = {"weeks": weeks, "all_weeks": _WEEKS, "dimensions": choices}
        return HTMLResponse(
            page("alerts.html", **values, **further, **about_weeks, **about("alerts"))
        )

    def responses(self, request: Request) -> Response:
        """List responses."""
        query = request.query_params
        selected = view(query, time.time(), ("show", "before", "request", *_FORM))
        show, form, wanted = query.get("show", "found"), _form(query), query.get("request", "")
        most = lists.EXPORT if form else lists.PAGE
        with self.store.reading() as connection:
            if wanted:
                listed = lists.looked_up(connection, wanted.strip())
            else:
                listed = lists.listed(connection, selected, show, query.get("before", ""), most)
        if form:
            return _export(form, "responses", [response_values(row) for row in listed.rows])
        return self._page(
            "responses.html", selected, listed=listed, show=show, shown=lists.SHOWN, wanted=wanted,
            more={"request": wanted} if wanted else {"show": show},
        )  # fmt: skip

    def response(self, request: Request) -> Response:
        """Show one response with its decisions."""
        id_, first = request.path_params["id"], request.query_params.get("first", "0")
        if (
            len(id_) > _MAX_ID
            or "\0" in id_
            or not (first.isascii() and first.isdecimal() and len(first) < 9)
        ):
            raise HTTPException(404)
        with self.store.reading() as connection:
            response = lists.response(connection, id_, int(first))
        if response is None:
            raise HTTPException(404)
        values = {"response": response, "first": int(first), "statement_of": self._statement_of}
        return HTMLResponse(page("response.html", **values, **about("responses")))

    def live(self, request: Request) -> Response:
        """Show the newest responses as they are written."""
        return HTMLResponse(page("live.html", most=lists.NEWEST, **about("live")))

    def _page(self, name: str, selected: View, status: int = 200, **values: Any) -> Response:
        common = {"view": selected, "ranges": RANGES, "custom": CUSTOM, "minute": minute}
        return HTMLResponse(
            page(name, **common, **values, **about(name.removesuffix(".html"))), status
        )


def _last_two(connection: Connection, name: str, selected: View) -> tuple[str, ...]:
    """Return the two values of a dimension that a comparison of the view begins with, or none."""
    only = {key: value for key, value in selected.only.items() if key not in FINDINGS}
    return last_two(connection, name, selected.since, selected.until, only=only) or ()


def _this_and_before(selected: View) -> tuple[RateSide, RateSide]:
    """Return the time before the view's, as long, and the view's."""
    long = selected.until - selected.since
    before = RateSide("the time before", selected.since - long, selected.since, {})
    return before, RateSide("this time", selected.since, selected.until, {})


def _form(query: Mapping[str, str]) -> str:
    """Return the form of an export, "" for a page."""
    form = query.get("form", "")
    if form not in ("", *_KINDS):
        raise UsageError(f"form is one of {', '.join(_KINDS)}, not {form[:40]!r}.")
    return form


def _export(
    form: str,
    name: str,
    rows: Sequence[Mapping[str, Any]],
    values: Mapping[str, Any] | None = None,
) -> Response:
    """Return what a page shows as a file; ``values`` is the JSON, a list of the rows by default."""
    if form == "csv":
        text = Table.of_records(name, rows).csv() if rows else ""
    else:
        text = json_text({name: rows} if values is None else values)
    headers = {"content-disposition": f'attachment; filename="guard-{name}.{form}"'}
    return Response(text, media_type=_KINDS[form], headers=headers)


def _estimates(rates: Reviewed) -> list[tuple[str, ReviewedRate]]:
    return [(title, of(rates)) for _, title, _, of in REVIEWED]


def _file(text: str, kind: str) -> Callable[[Request], Response]:
    return lambda request: PlainTextResponse(text, media_type=kind)


def _message(status: int, title: str, text: str) -> Response:
    values = {"title": title, "text": text, **about("")}
    return HTMLResponse(page("message.html", **values), status)


def _bad_request(request: Request, error: Exception) -> Response:
    return _message(400, "This cannot be shown", str(error))


def _unavailable(request: Request, error: Exception) -> Response:
    return _message(503, "The store cannot be read", str(error))


def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text = "There is no such page." if error.status_code == 404 else f"{error.detail}."
    return _message(error.status_code, str(error.detail), text)


def application(
    store: Store,
    rules: Rules,
    statement_of: StatementOf = lambda _: None,
    stopping: Callable[[], bool] = lambda: False,
) -> ASGIApp:
    """Return the ASGI application: the dashboard of ``store`` behind ``rules``.

    Live tails end when ``stopping`` returns True.
    """
    app = Starlette(
        routes=Dashboard(store, statement_of, stopping).routes(),
        exception_handlers={
            UsageError: _bad_request,
            StoreError: _unavailable,
            HTTPException: _http,
        },
    )
    app.router.redirect_slashes = False
    return Access(app, rules)
