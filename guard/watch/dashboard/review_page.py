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
from guard.watch.dashboard.connections import reading, writing
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
_KEPT = ("reviewer", "wanted", "shown")
_SKIPPED = 16  # items that one may pass over
_NAME = 100
_BODY_BYTES = 16_384


class ReviewPage:
    """Shows the items of ``store``'s queue, and writes marks to it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def show(self, request: Request) -> Response:
        """Show an item: the one that is named, else the next for the reviewer."""
        asked = {name: clean(value) for name, value in request.query_params.items()}
        reviewer, wanted = _who(asked), asked.get("wanted", "new")
        if wanted not in WANTED:
            raise UsageError(f"wanted knows {', '.join(WANTED)}, not {wanted[:40]!r}.")
        skipped = asked.get("skipped", "").split()[-_SKIPPED:]
        with reading(self._store) as connection:
            state = progress(connection)
            if not reviewer:
                found = None
            elif asked.get("item"):
                found = item(connection, asked["item"])
            else:
                found = next_item(connection, reviewer, cast(Wanted, wanted), skipped)
        if found is not None:
            skipped = [*skipped, item_id(found.key)][-_SKIPPED:]
        return HTMLResponse(
            page(
                "review.html",
                reviewer=reviewer,
                wanted=wanted,
                choices=WANTED,
                shown=asked.get("shown") == "1",
                item=found,
                skipped=" ".join(skipped),
                progress=state,
                marks=MARKS,
                types=BIAS_TYPES,
                **about("review"),
            )
        )

    async def change(self, request: Request) -> Response:
        """Write a mark, or take the last one back; show what is next."""
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > _BODY_BYTES:
                raise HTTPException(413)
        return await run_in_threadpool(self._change, bytes(body))

    def _change(self, body: bytes) -> Response:
        pairs = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)
        asked = {name: clean(value) for name, value in pairs}
        told = {name: asked[name] for name in _KEPT if asked.get(name)}
        reviewer = _who(asked)
        with writing(self._store) as connection:
            if asked.get("do") == "undo":
                last = undo(connection, reviewer)
                if last is not None:
                    told["item"] = last.id
            else:
                said = (asked.get(name, "").strip() or None for name in Correction._fields)
                mark(
                    connection,
                    asked.get("item", ""),
                    reviewer,
                    asked.get("do", ""),
                    Correction(*said),
                )
        return RedirectResponse(f"/review?{urlencode(told)}", 303)


def _who(asked: Mapping[str, str]) -> str:
    reviewer = asked.get("reviewer", "").strip()
    if len(reviewer) > _NAME:
        raise UsageError(f"A reviewer's name has at most {_NAME} characters.")
    return reviewer
