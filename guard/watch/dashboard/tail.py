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

MOST = 16
"""Tails at once; each looks at the store once in EVERY_S."""
EVERY_S = 1.0
_COLUMNS = ("id", "door", "model", "outcome", "judged", "found", "mitigated", "unjudged", "types")


class Tail:
    """Tells what is new in ``store`` to those who listen, until ``stopping``."""

    def __init__(self, store: Store, stopping: Callable[[], bool]) -> None:
        self._store = store
        self._stopping = stopping
        self._open = 0

    async def stream(self, request: Request) -> Response:
        """Answer with events until the reader leaves."""
        if self._open >= MOST:
            return PlainTextResponse(f"There are {MOST} live pages open already.", 503)
        self._open += 1
        return _Counted(self._events(), self._left)

    def _left(self) -> None:
        self._open -= 1

    async def _events(self) -> AsyncIterator[str]:
        told: dict[str, tuple[object, ...]] = {}
        while not self._stopping():
            try:
                rows = await run_in_threadpool(self._newest)
            except UsageError as error:
                yield _event("trouble", str(error))
            else:
                new = [row for row in rows if told.get(str(row["id"])) != tuple(row.values())]
                told = {str(row["id"]): tuple(row.values()) for row in rows}
                yield _event("responses", new)
            await asyncio.sleep(EVERY_S)

    def _newest(self) -> list[dict[str, object]]:
        with self._store.reading() as connection:
            rows = lists.newest(connection, time.time())
        return [
            {"time": when(row["time"], "%H:%M:%S"), **{n: row[n] for n in _COLUMNS}} for row in rows
        ]


class _Counted(StreamingResponse):
    """A tail; ``left`` hears that its reader has left, before the first event too."""

    def __init__(self, events: AsyncIterator[str], left: Callable[[], None]) -> None:
        super().__init__(events, media_type="text/event-stream")
        self._left = left

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._left()


def _event(kind: str, value: object) -> str:
    return f"event: {kind}\ndata: {json.dumps(value)}\n\n"
