"""The review queue: one decision at a time, marked by a key or a button."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast
from urllib.parse import parse_qsl, urlencode

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from guard.errors import UsageError
from guard.verdict import BIAS_TYPES
from guard.watch.dashboard.pages import about, page
from guard.watch.events import clean
from guard.watch.review import (
    MARKS,
    Correction,
    Wanted,
    item,
    item_id,
    mark,
    next_item,
    progress,
    undo,
)
from guard.watch.store import Store

WANTED: Mapping[str, str] = {
    "new": "not marked yet",
    "second": "marked by one other",
    "disputed": "disputed",
}
_STATE = ("reviewer", "wanted", "shown")  # fields that follow from page to page
_MAX_SKIPPED = 16  # items that a reviewer passed over, the last ones
_MAX_NAME = 100
_BODY_BYTES = 16_384


class ReviewPage:
    """Shows the items of ``store``'s queue, and writes marks to it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def show(self, request: Request) -> Response:
        """Show the item that the query names, else the next for the reviewer."""
        query = {name: clean(value) for name, value in request.query_params.items()}
        reviewer, wanted = _reviewer(query), query.get("wanted", "new")
        if wanted not in WANTED:
            raise UsageError(f"wanted is one of {', '.join(WANTED)}, not {wanted[:40]!r}.")
        skipped = query.get("skipped", "").split()[-_MAX_SKIPPED:]
        with self._store.reading() as connection:
            state = progress(connection)
            if not reviewer:
                shown_item = None
            elif query.get("item"):
                shown_item = item(connection, query["item"])
            else:
                shown_item = next_item(connection, reviewer, cast(Wanted, wanted), skipped)
        if shown_item is not None:
            skipped = [*skipped, item_id(shown_item.key)][-_MAX_SKIPPED:]
        return HTMLResponse(
            page(
                "review.html",
                reviewer=reviewer,
                wanted=wanted,
                choices=WANTED,
                shown=query.get("shown") == "1",
                item=shown_item,
                skipped=" ".join(skipped),
                progress=state,
                marks=MARKS,
                types=BIAS_TYPES,
                **about("review"),
            )
        )

    async def change(self, request: Request) -> Response:
        """Write a mark or undo the last one; redirect to the next item."""
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > _BODY_BYTES:
                raise HTTPException(413)
        return await run_in_threadpool(self._change, bytes(body))

    def _change(self, body: bytes) -> Response:
        pairs = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)
        form = {name: clean(value) for name, value in pairs}
        state = {name: form[name] for name in _STATE if form.get(name)}
        reviewer = _reviewer(form)
        # A Store serves one thread at a time, and requests run in several.
        with self._store.copy().writing() as connection:
            if form.get("do") == "undo":
                last = undo(connection, reviewer)
                if last is not None:
                    state["item"] = last.id
            else:
                values = (form.get(name, "").strip() or None for name in Correction._fields)
                mark(
                    connection,
                    form.get("item", ""),
                    reviewer,
                    form.get("do", ""),
                    Correction(*values),
                )
        return RedirectResponse(f"/review?{urlencode(state)}", 303)


def _reviewer(form: Mapping[str, str]) -> str:
    reviewer = form.get("reviewer", "").strip()
    if len(reviewer) > _MAX_NAME:
        raise UsageError(f"A reviewer's name has at most {_MAX_NAME} characters.")
    return reviewer
