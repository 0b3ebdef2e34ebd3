"""The pages of the dashboard, behind :class:`guard.watch.dashboard.access.Access`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from markupsafe import Markup
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from guard.errors import UsageError
from guard.watch.dashboard import lists
from guard.watch.dashboard.access import Access, Rules
from guard.watch.dashboard.charts import REVIEWED, over_time, reviewed, reviewed_by
from guard.watch.dashboard.pages import SCRIPT, SHEET, about, page
from guard.watch.dashboard.review_page import ReviewPage
from guard.watch.dashboard.tail import Tail
from guard.watch.dashboard.view import CUSTOM, DIMENSIONS, RANGES, View, minute, view
from guard.watch.rates import report
from guard.watch.review_rates import Estimate, Reviewed
from guard.watch.store import Store, StoreError

_MAX_LINES = 100  # of a breakdown
_MAX_ID = 64  # characters of a response's id

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
        selected = view(request.query_params, time.time())
        by = tuple(dict.fromkeys((selected.by, *selected.findings)))
        with self.store.reading() as connection:
            total, charts = over_time(connection, selected)
            reviewed_total, review_charts = reviewed(connection, selected)
            by_value = {} if reviewed_total is None else reviewed_by(connection, selected)
            rates_report = report(
                connection, selected.since, selected.until, by, only=selected.only
            )
        lines = sorted(rates_report.lines, key=lambda line: (-line.findings, -line.responses))
        return self._page(
            "rates.html",
            selected,
            total=total,
            reviewed_total=[] if reviewed_total is None else _estimates(reviewed_total),
            charts=[(c, Markup(c.svg())) for c in (*charts, *review_charts) if not c.empty],
            reviewed={value: _estimates(rates) for value, rates in by_value.items()},
            report=rates_report,
            lines=lines[:_MAX_LINES],
            further=len(lines[_MAX_LINES:]),
            dimensions=DIMENSIONS,
        )

    def responses(self, request: Request) -> Response:
        """List responses."""
        query = request.query_params
        selected = view(query, time.time(), ("show", "before"))
        show = query.get("show", "found")
        with self.store.reading() as connection:
            listed = lists.listed(connection, selected, show, query.get("before", ""))
        return self._page("responses.html", selected, listed=listed, show=show, shown=lists.SHOWN)

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

    def _page(self, name: str, selected: View, **values: Any) -> Response:
        common = {"view": selected, "ranges": RANGES, "custom": CUSTOM, "minute": minute}
        current = "rates" if name == "rates.html" else "responses"
        return HTMLResponse(page(name, **common, **values, **about(current)))


def _estimates(rates: Reviewed) -> list[tuple[str, Estimate]]:
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
