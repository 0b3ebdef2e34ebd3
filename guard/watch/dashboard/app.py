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
from guard.watch.dashboard.connections import StoreDown, reading
from guard.watch.dashboard.pages import SCRIPT, SHEET, about, page
from guard.watch.dashboard.review_page import ReviewPage
from guard.watch.dashboard.tail import Tail
from guard.watch.dashboard.view import CUSTOM, DIMENSIONS, RANGES, View, minute, view
from guard.watch.rates import report
from guard.watch.store import Store

_LINES = 100  # of a breakdown
_ID = 64  # characters of a response's id

StatementOf = Callable[[str], str | None]


class Dashboard:
    """Answers requests from ``store``; ``statement_of`` gives a reference's text by its id."""

    def __init__(
        self, store: Store, statement_of: StatementOf, stopping: Callable[[], bool]
    ) -> None:
        self.store = store
        self._statement_of = statement_of
        self.tail = Tail(store, stopping)
        self.review_page = ReviewPage(store)

    def routes(self) -> list[Route]:
        """Return what may be asked for."""
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
        asked = view(request.query_params, time.time())
        by = tuple(dict.fromkeys((asked.by, *asked.findings)))
        with reading(self.store) as connection:
            whole, charts = over_time(connection, asked)
            people, more = reviewed(connection, asked)
            apart = {} if people is None else reviewed_by(connection, asked)
            found = report(connection, asked.since, asked.until, by, only=asked.only)
        lines = sorted(found.lines, key=lambda line: (-line.findings, -line.responses))
        return self._page(
            "rates.html",
            asked,
            whole=whole,
            people=[] if people is None else [(title, of(people)) for _, title, _, of in REVIEWED],
            charts=[(one, Markup(one.svg())) for one in (*charts, *more) if one.drawn],
            reviewed={
                value: [(title, of(one)) for _, title, _, of in REVIEWED]
                for value, one in apart.items()
            },
            report=found,
            lines=lines[:_LINES],
            further=len(lines[_LINES:]),
            dimensions=DIMENSIONS,
        )

    def responses(self, request: Request) -> Response:
        """List responses."""
        given = request.query_params
        asked = view(given, time.time(), ("show", "before"))
        show = given.get("show", "found")
        with reading(self.store) as connection:
            found = lists.listed(connection, asked, show, given.get("before", ""))
        return self._page("responses.html", asked, found=found, show=show, shown=lists.SHOWN)

    def response(self, request: Request) -> Response:
        """Show one response with its decisions."""
        id_, first = request.path_params["id"], request.query_params.get("first", "0")
        if len(id_) > _ID or not (first.isascii() and first.isdecimal() and len(first) < 9):
            raise HTTPException(404)
        with reading(self.store) as connection:
            found = lists.response(connection, id_, int(first))
        if found is None:
            raise HTTPException(404)
        values = {"found": found, "first": int(first), "statement_of": self._statement_of}
        return HTMLResponse(page("response.html", **values, **about("responses")))

    def live(self, request: Request) -> Response:
        """Show what comes."""
        return HTMLResponse(page("live.html", most=lists.NEWEST, **about("live")))

    def _page(self, name: str, asked: View, **values: Any) -> Response:
        told = {"view": asked, "ranges": RANGES, "custom": CUSTOM, "minute": minute}
        here = "rates" if name == "rates.html" else "responses"
        return HTMLResponse(page(name, **told, **values, **about(here)))


def _file(text: str, kind: str) -> Callable[[Request], Response]:
    return lambda request: PlainTextResponse(text, media_type=kind)


def _said(status: int, title: str, text: str) -> Response:
    values = {"title": title, "text": text, **about("")}
    return HTMLResponse(page("message.html", **values), status)


def _asked_wrongly(request: Request, error: Exception) -> Response:
    return _said(400, "This cannot be shown", str(error))


def _down(request: Request, error: Exception) -> Response:
    return _said(503, "The store cannot be read", str(error))


def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text = "There is nothing here." if error.status_code == 404 else f"{error.detail}."
    return _said(error.status_code, str(error.detail), text)


def application(
    store: Store,
    rules: Rules,
    statement_of: StatementOf = lambda _: None,
    stopping: Callable[[], bool] = lambda: False,
) -> ASGIApp:
    """Return the application: the dashboard of ``store`` behind ``rules``.

    Live tails end once ``stopping``.
    """
    made = Starlette(
        routes=Dashboard(store, statement_of, stopping).routes(),
        exception_handlers={UsageError: _asked_wrongly, StoreDown: _down, HTTPException: _http},
    )
    made.router.redirect_slashes = False
    return Access(made, rules)
