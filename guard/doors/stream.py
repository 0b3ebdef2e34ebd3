"""A guarded chat stream, sync or async."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Container, Iterable
from typing import Any

from litellm.litellm_core_utils.streaming_handler import CustomStreamWrapper
from litellm.types.utils import ModelResponseStream

from guard.doors import accounting, closing
from guard.doors.codec import ChatCodec
from guard.doors.context import inside
from guard.doors.errors import cleaned
from guard.doors.session import Session
from guard.gate import ResponseGate
from guard.verdict import Channel, GuardTrail


class GuardedStream(CustomStreamWrapper):
    """LiteLLM's stream with a gate in front of it.

    What is not found here is read from the stream underneath, so it looks like LiteLLM's own;
    ``chunks`` and ``response_uptil_now`` hold released text only. ``guard`` is the trail.

    The stream ends with StopIteration once the provider has ended or the guard has stopped it,
    and is then never pulled from again. It raises what the provider raised, after the text that
    may still go out; :class:`~guard.errors.BiasFound` and DetectorError under the action
    ``raise``; UsageError on output that is not text. However reading ends (also by ``close``,
    a break and collection, an exception or a cancellation), the provider's connection is closed.
    """

    def __init__(
        self, upstream: CustomStreamWrapper, session: Session, *, user: str = "", n: int = 1
    ) -> None:
        # LiteLLM's own constructor is left out: all of its state is the upstream's.
        self.chunks: list[ModelResponseStream] = []
        self._upstream = upstream
        self._session = session
        self._codec = ChatCodec(n)
        self._gate = ResponseGate(self._codec, session.policy, n=n, user=user, sinks=session.sinks)
        self._out: deque[ModelResponseStream] = deque()
        self._over = False  # nothing more is pulled
        self._ended = False  # the provider came to its end, well or not, and LiteLLM reported it
        self._closed = False
        self._unjudged = False  # text went out ahead of verdicts that are still to be taken
        self._error: Exception | None = None
        # Some upstreams connect at the first pull; an interrupted one may not lead here any more.
        self._connections = closing.connections(upstream)
        self._began = False
        self._loop: asyncio.AbstractEventLoop | None = None
        with contextlib.suppress(RuntimeError):
            self._loop = asyncio.get_running_loop()

    @property
    def guard(self) -> GuardTrail:
        """The decisions taken so far."""
        return self._gate.trail

    @property
    def response_uptil_now(self) -> str:  # type: ignore[override]
        """The released text so far, as LiteLLM keeps it: of each chunk's first choice."""
        first = (c.choices[0].delta.content for c in self.chunks if c.choices)
        return "".join(text for text in first if text)

    def __getattr__(self, name: str) -> Any:
        if name == "_upstream":  # not there yet: the constructor failed
            raise AttributeError(name)
        return getattr(self._upstream, name)

    def set_logging_event_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set the loop that LiteLLM reports a sync stream's chunks on."""
        self._upstream.set_logging_event_loop(loop)  # type: ignore[no-untyped-call]

    def __iter__(self) -> GuardedStream:
        return self

    def __aiter__(self) -> GuardedStream:
        return self

    def __next__(self) -> ModelResponseStream:
        try:
            while not self._out and (self._unjudged or not self._over):
                if not self._unjudged:
                    with inside():
                        self._pull()
                    if self._ahead():
                        break
                self._unjudged = False
                self._session.settle(self._gate)
                if self._release():
                    self._shut()
                    if not self._ended:
                        accounting.report(self._upstream, self.chunks)
        except BaseException:
            self.close()
            raise
        return self._handed(StopIteration)

    async def __anext__(self) -> ModelResponseStream:
        try:
            while not self._out and (self._unjudged or not self._over):
                if not self._unjudged:
                    with inside():
                        await self._apull()
                    if self._ahead():
                        break
                self._unjudged = False
                await self._session.asettle(self._gate)
                if self._release():
                    await self._ashut()
                    if not self._ended:
                        accounting.report_async(self._upstream, self.chunks)
        except BaseException:
            await self.aclose()
            raise
        return self._handed(StopAsyncIteration)

    def close(self) -> None:
        """End the stream and close the provider's connection; safe to call again."""
        self._drop()
        self._shut()

    async def aclose(self) -> None:
        """End the stream and close the provider's connection; safe to call again."""
        self._drop()
        await self._ashut()

    def __enter__(self) -> GuardedStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> GuardedStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        if "_loop" in self.__dict__:  # the constructor came to its end
            with contextlib.suppress(Exception):
                self.close()

    # What both drivers share.

    def _pull(self) -> None:
        try:
            chunk = next(self._upstream)
        except StopIteration:
            self._end()
        except Exception as error:
            self._end(error)
        else:
            self._take(chunk)

    async def _apull(self) -> None:
        try:
            chunk = await self._upstream.__anext__()
        except StopAsyncIteration:
            self._end()
        except Exception as error:
            self._end(error)
        else:
            self._take(chunk)

    def _take(self, chunk: ModelResponseStream) -> None:
        if not self._began:
            self._began = True
            self._connections = closing.connections(self._upstream)
        self._gate.push(chunk)

    def _end(self, error: Exception | None = None) -> None:
        if self._over:
            return  # closed by another thread meanwhile: what the read failed with is our doing
        self._over = self._ended = True
        self._closed = error is None
        self._error = error
        self._gate.finish()

    def _ahead(self) -> bool:
        """Queue what may go out before its verdict; return whether there is any.

        With the choices' end everything is judged first: its reader may not come back.
        """
        if self._session.policy.hold == "sentence" or self._over or self._gate.over:
            return False
        self._release()
        self._unjudged = bool(self._out)
        return self._unjudged

    def _release(self) -> bool:
        """Queue what may go out; return whether the provider's connection is to be closed."""
        for chunk in self._gate.emit():
            sealed = self._codec.seal(chunk, self.chunks)
            self.chunks.append(sealed)
            self._out.append(sealed)
        if self._gate.stopped:
            # The guard's end of the stream stands in place of the provider's, good or bad.
            self._over = True
            self._error = self._gate.error
        elif self._error is not None:
            self._error = cleaned(
                self._error,
                self.response_uptil_now,
                self._withheld(),
                began=bool(self.chunks),
                shown="\n".join(_joined(self.chunks)),
            )
        return self._gate.stopped or self._error is not None

    def _withheld(self) -> list[str]:
        """Return the texts of the provider's chunks that did not go out as they were.

        Joined as they were said, and one by one: LiteLLM quotes single chunks.
        """
        out = {id(chunk) for chunk in self.chunks}
        chunks = getattr(self._upstream, "chunks", ())
        held = (c for c in chunks if id(c) not in out)
        single = {text for c in held for _, text in ChatCodec().parts(c)}
        return [*_joined(chunks, without=out), *single]

    def _handed(self, end: type[StopIteration] | type[StopAsyncIteration]) -> ModelResponseStream:
        if self._out:
            return self._out.popleft()
        error, self._error = self._error, None
        raise end if error is None else error

    def _drop(self) -> None:
        self._over = True
        self._unjudged = False
        self._out.clear()
        self._error = None

    def _shut(self) -> None:
        if not self._closed:
            closing.close(self._upstream, self._loop, self._connections)
            self._closed = True

    async def _ashut(self) -> None:
        if not self._closed:
            await closing.aclose(self._upstream, self._connections)
            self._closed = True


def _joined(
    chunks: Iterable[ModelResponseStream], without: Container[int] = frozenset()
) -> list[str]:
    """Return the text of ``chunks``, each channel's joined; one in ``without`` (ids) parts it."""
    codec = ChatCodec()
    runs: dict[Channel, list[list[str]]] = {}
    for chunk in chunks:
        for channel, text in codec.parts(chunk):
            own = runs.setdefault(channel, [[]])
            if id(chunk) not in without:
                own[-1].append(text)
            elif own[-1]:
                own.append([])
    return [text for own in runs.values() for run in own if (text := "".join(run))]
