"""Drives a gate over a stream of LiteLLM's, sync or async; each door's stream is one of these."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from guard.doors.context import inside
from guard.doors.either import Either, asynchronous, run, sync
from guard.doors.errors import ajudged, cleaned, judged
from guard.doors.litellm import accounting, closing
from guard.doors.litellm.records import DeferredLogging
from guard.doors.rewrite import Asker
from guard.doors.session import DoorSession, Outcome
from guard.doors.states import ASKING, GONE, READER, READING, UNREAD, UPSTREAM, Event
from guard.doors.stream_text import StreamText
from guard.gate import Codec, ResponseGate
from guard.verdict import GuardTrail


class GuardedStream:
    """A stream of LiteLLM's with a gate in front of it; mixed into a class of the stream's own.

    It ends with StopIteration once the provider has ended or the guard has stopped it, and is then
    never pulled from again. It raises what the provider raised, after the text that may still go
    out; :class:`~guard.errors.BiasFound` and DetectorError under the action ``raise``; UsageError
    on output that is not text. However reading ends (also by ``close``, a break and collection, an
    exception or a cancellation), the provider's connection is closed. ``guard`` is the trail.

    Under the action ``rewrite`` the provider is closed and reported as at any stop; once what may
    go out of its answer has been read, the model is asked to go on, and the stream with it.

    A door says what it reads (``_read``), what leaves (``_sealed``), what of it went out
    (``_stream_text``) and how a stopped stream is reported (``_logging``, ``_answer``).
    """

    completed_response: Any = None

    def __init__(
        self,
        upstream: Any,
        session: DoorSession,
        codec: Codec[Any],
        *,
        user: str = "",
        n: int = 1,
    ) -> None:
        # The constructor of LiteLLM's class is left out: all of its state is the upstream's.
        self._upstream = upstream
        self._session = session
        self._made_gate = partial(session.gate, codec, n=n, user=user)
        self._gate: ResponseGate[Any] = self._made_gate()
        self._out: deque[Any] = deque()
        self._state = UNREAD  # of the upstream
        self._lock = threading.RLock()
        self._reader = READING
        self._asker: Asker | None = None
        self._told = False  # that the response has ended
        if session.deferred is not None:
            session.deferred.streaming = True
        self._error: Exception | None = None
        # Some upstreams connect at the first pull; an interrupted one may not lead here any more.
        self._connections = closing.connections(upstream)
        self._loop: asyncio.AbstractEventLoop | None = None
        with contextlib.suppress(RuntimeError):
            self._loop = asyncio.get_running_loop()

    # What a door fills in.

    def _begin(self) -> None:
        """Note what the upstream stands on, once it has given its first chunk."""
        self._connections = closing.connections(self._upstream)

    def _read(self, chunk: Any) -> Any:
        """Return what the gate is given for one of the provider's chunks."""
        return chunk

    def _sealed(self, chunk: Any) -> Iterable[Any]:
        """Return what leaves for one chunk that the gate let out, and note it."""
        raise NotImplementedError

    def _sealed_all(self, chunks: list[Any]) -> Iterable[Any]:
        return [sealed for chunk in chunks for sealed in self._sealed(chunk)]

    def _stream_text(self) -> StreamText:
        raise NotImplementedError

    def _count(self) -> None:
        """Count what a stopped provider sent, where the end of the stream tells it.

        Off the event loop, as is what :meth:`_answer` does.
        """

    def _logging(self) -> Any:
        """Return the object by which LiteLLM reports this stream; None where there is none."""
        raise NotImplementedError

    def _answer(self) -> Any:
        """Return what went out, as an answer that LiteLLM can be told; None where it cannot."""
        raise NotImplementedError

    def _report(self) -> None:
        accounting.report(self._reporter(self._logging()), self._answer)

    async def _areport(self) -> None:
        await accounting.areport(self._reporter(self._logging()), self._answer)

    def _following(self, answer: Any) -> Any:
        """Return the stream in the answer by which the model goes on; None where it is none."""
        return None

    def may_ask(self, asker: Asker) -> None:
        """Have the model asked to go on under the action ``rewrite``."""
        self._asker = asker
        self._gate.rewrites = asker.left > 0

    # What a consumer sees.

    @property
    def guard(self) -> GuardTrail:
        """The decisions taken so far."""
        return self._gate.trail

    def __iter__(self) -> Any:
        return self

    def __aiter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        if self._out:
            return self._out.popleft()
        try:
            while not self._out and (self._reader.owes or not self._state.over):
                if not self._reader.owes:
                    with inside():
                        self._pull()
                    if self._ahead():
                        break
                run(self._settle(sync))
        except BaseException:
            self.close()
            raise
        return self._next_or(StopIteration)

    async def __anext__(self) -> Any:
        if self._out:
            return self._out.popleft()
        try:
            while not self._out and (self._reader.owes or not self._state.over):
                if not self._reader.owes:
                    with inside():
                        await self._apull()
                    if self._ahead():
                        break
                await self._settle(asynchronous)
        except BaseException:
            await self.aclose()
            raise
        return self._next_or(StopAsyncIteration)

    def close(self) -> None:
        """End the stream and close the provider's connection; safe to call again."""
        self._drop()
        self._shut()

    async def aclose(self) -> None:
        """End the stream and close the provider's connection; safe to call again."""
        self._drop()
        await self._ashut()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        if "_loop" in self.__dict__:  # the constructor came to its end
            with contextlib.suppress(Exception):
                self.close()

    # What both drivers share.

    async def _settle(self, either: Either) -> None:
        """Have judged what waits and let out what may go out; or ask the model to go on."""
        if self._reader is ASKING and self._asker is not None:
            asker, said = self._asker, self._stream_text().released
            self._go_on(await either(asker.ask, asker.aask, said, self.guard))
            return
        self._read_on(Event.JUDGING)
        if self._gate.waiting:
            await either(self._session.judge_pending, self._session.ajudge_pending, self._gate)
        if self._error is not None and not self._gate.stopped:
            self._error = await either(judged, ajudged, self._error, self._session)
        if self._gate.stopped:
            self._on(Event.STOPPED)
            await either(self._shut, self._ashut)  # first of all: what follows takes its time
            await either(self._count, partial(asyncio.to_thread, self._count))
        if self._release():
            await either(self._shut, self._ashut)
            if not self._state.reported:
                await either(self._report, self._areport)

    def _on(self, event: Event) -> None:
        """Take what happened to the provider's stream, maybe in another thread."""
        with self._lock:
            self._state = UPSTREAM[self._state][event]

    def _read_on(self, event: Event) -> None:
        """Take what happened on the reader's side."""
        self._reader = READER[self._reader][event]

    def _go_on(self, answer: Any) -> None:
        """Read on from the model's new answer; end where there is none."""
        self._read_on(Event.ASKED)
        stream = None if self._reader is GONE else self._following(answer)
        if stream is None:
            closing.close(answer, self._loop)
            if self._reader is not GONE:
                self._gate.give_up()
                self._release()
            return
        self._gate = self._made_gate(trail=self.guard, said=self._stream_text().released)
        if self._asker is not None:
            self.may_ask(self._asker)
        self._upstream = stream
        self._connections = closing.connections(stream)
        self._on(Event.RESUMED)

    def _pull(self) -> None:
        """Pull until there may be something to judge or to let out, or the provider has ended."""
        first = self._state is UNREAD
        while not self._state.over:
            try:
                chunk = next(self._upstream)
            except StopIteration:
                return self._end()
            except Exception as error:
                return self._end(error)
            if first:
                first = self._begun()
            if self._take(chunk):
                return None
        return None

    async def _apull(self) -> None:
        first = self._state is UNREAD
        while not self._state.over:
            try:
                chunk = await self._upstream.__anext__()
            except StopAsyncIteration:
                return self._end()
            except Exception as error:
                return self._end(error)
            if first:
                first = self._begun()
            if self._take(chunk):
                return None
        return None

    def _begun(self) -> bool:
        """Note that the first chunk came; return whether the next one is still the first."""
        self._on(Event.FIRST_CHUNK)
        self._begin()
        return False

    def _take(self, chunk: Any) -> bool:
        """Give the gate a chunk; return whether there may be something to judge or to let out."""
        return self._gate.push(self._read(chunk))

    def _end(self, error: Exception | None = None) -> None:
        if self._state.over:
            return  # closed by another thread meanwhile: what the read failed with is our doing
        self._on(Event.COMPLETED if error is None else Event.FAILED)
        self._error = error
        self._gate.finish()

    def _ahead(self) -> bool:
        """Queue what may go out before its verdict; return whether there is any.

        With the choices' end everything is judged first: its reader may not come back.
        """
        if self._state.over or self._gate.over:
            return False
        self._release()
        if self._out and self._gate.waiting:
            self._read_on(Event.AHEAD)
        return bool(self._out)

    def _release(self) -> bool:
        """Queue what may go out; return whether the provider's connection is to be closed."""
        if chunks := self._gate.emit():
            self._out.extend(self._sealed_all(chunks))
        if self._gate.stopped:
            # The guard's end of the stream stands in place of the provider's, good or bad.
            if self._gate.again:
                self._read_on(Event.ASK)
            self._error = self._gate.error
        elif self._error is not None:
            self._error = self._cleaned(self._error)
        if self._state.over and self._session.deferred is not None:
            self._record(self._session.deferred)
        if self._state.over and self._reader is not ASKING:
            self._tell("completed" if self._error is None else "failed")
        return self._gate.stopped or self._error is not None

    def _cleaned(self, error: Exception) -> Exception:
        said = self._stream_text()
        return cleaned(error, said.released, said.withheld, began=said.began, shown=said.shown)

    def _reportable(self, error: Exception) -> Exception:
        """Return a provider's error as LiteLLM's callbacks may hear of it.

        LiteLLM tells them one of its own making, or one that a Router did not end the stream for.
        """
        return self._cleaned(judged(error, replace(self._session, sinks=(), recorder=None)))

    def _next_or(self, end: type[StopIteration] | type[StopAsyncIteration]) -> Any:
        if self._out:
            return self._out.popleft()
        error, self._error = self._error, None
        raise end if error is None else error

    def _reporter(self, logging: Any) -> Any:
        """Return LiteLLM's logging object as it reports; it may be held back."""
        deferred = self._session.deferred
        return logging if deferred is None or logging is None else deferred.immediate

    def _record(self, deferred: DeferredLogging, *, dropped: bool = False) -> None:
        """Close LiteLLM's records of the call: what goes out of it is known."""
        changed = dropped or any(d.action not in ("pass", "flag") for d in self.guard)
        deferred.close(
            self._answer() if changed else self.completed_response,
            changed=changed,
            stopped=dropped or self.guard.stopped,
            reported=self._gate.stopped and not self._state.reported,
            clean=self._reportable,
        )

    def _tell(self, outcome: Outcome) -> None:
        """Have the end of the response recorded, once."""
        with self._lock:
            told, self._told = self._told, True
        if not told:
            self._session.ended(self.guard, outcome)

    def _drop(self) -> None:
        read = self._gate.over and not self._gate.waiting
        self._tell("completed" if read else "left")
        if self._session.deferred is not None and not self._session.deferred.closed:
            self._record(self._session.deferred, dropped=True)
        self._on(Event.STOPPED)
        self._read_on(Event.LEFT)
        self._out.clear()
        self._error = None

    def _shut(self) -> None:
        if not self._state.closed:
            closing.close(self._upstream, self._loop, self._connections)
            self._on(Event.CLOSED)

    async def _ashut(self) -> None:
        if not self._state.closed:
            await closing.aclose(self._upstream, self._connections)
            self._on(Event.CLOSED)
