"""The live tail: the newest responses as server-sent events."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from guard.errors import UsageError
from guard.watch.dashboard import lists
from guard.watch.dashboard.pages import when
from guard.watch.store import Store

MAX_TAILS = 16
"""Open tails, at most; each reads the store every EVERY_S seconds."""
EVERY_S = 1.0
_COLUMNS = ("id", "door", "model", "outcome", "judged", "found", "mitigated", "unjudged", "types")


class Tail:
    """Streams new and changed responses of ``store`` until ``stopping`` returns True."""

    def __init__(self, store: Store, stopping: Callable[[], bool]) -> None:
        self._store = store
        self._stopping = stopping
        self._open = 0

    async def stream(self, request: Request) -> Response:
        """Stream events until the client disconnects."""
        if self._open >= MAX_TAILS:
            return PlainTextResponse(
                f"{MAX_TAILS} live pages are open, which is the limit; close one and reload.", 503
            )
        self._open += 1
        return _CountedStream(self._events(), self._closed)

    def _closed(self) -> None:
        self._open -= 1

    async def _events(self) -> AsyncIterator[str]:
        sent: dict[str, tuple[object, ...]] = {}
        while not self._stopping():
            try:
                rows = await run_in_threadpool(self._newest)
            except UsageError as error:
                yield _event("trouble", str(error))
            else:
                new = [row for row in rows if sent.get(str(row["id"])) != tuple(row.values())]
                sent = {str(row["id"]): tuple(row.values()) for row in rows}
                yield _event("responses", new)
            await asyncio.sleep(EVERY_S)

    def _newest(self) -> list[dict[str, object]]:
        with self._store.reading() as connection:
            rows = lists.newest(connection, time.time())
        return [
            {"time": when(row["time"], "%H:%M:%S"), **{n: row[n] for n in _COLUMNS}} for row in rows
        ]


class _CountedStream(StreamingResponse):
    """A stream that calls ``on_close`` however it ends, even before its first event."""

    def __init__(self, events: AsyncIterator[str], on_close: Callable[[], None]) -> None:
        super().__init__(events, media_type="text/event-stream")
        self._on_close = on_close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_close()


def _event(kind: str, value: object) -> str:
    return f"event: {kind}\ndata: {json.dumps(value)}\n\n"
