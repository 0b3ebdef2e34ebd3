"""Drives a gate over a LiteLLM stream, sync or async; base class of every door's stream."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from guard.background import EndsWhenDropped
from guard.doors.context import inside
from guard.doors.errors import ajudged_error, judged_error, redacted
from guard.doors.litellm import accounting, closing
from guard.doors.litellm.records import DeferredLogging, Delivery
from guard.doors.rewrite import Asker
from guard.doors.session import Clock, DoorSession, Outcome
from guard.doors.states import ASKING, GONE, READER, READING, UNREAD, UPSTREAM, StreamEvent
from guard.doors.stream_text import StreamText
from guard.doors.sync_or_async import SyncOrAsync, call_async, call_sync, run_without_loop
from guard.doors.waits import LATE, Waits
from guard.gate import Codec, ResponseGate
from guard.verdict import GuardTrail


@lru_cache
def guarded_class(stream: type[GuardedStream], kind: type[Any]) -> Any:
    """Return the subclass of ``stream`` and of ``kind``, a class of LiteLLM's streams."""
    return type(f"Guarded{kind.__name__}", (stream, kind), {"__doc__": kind.__doc__})


class GuardedStream(EndsWhenDropped):
    """A LiteLLM stream with a gate in front of it; mixed into the class of that stream.

    It ends with StopIteration once the provider has ended or the guard has stopped it; the
    provider is never pulled from after that. It raises the provider's error after the text that
    may still go out; :class:`~guard.errors.BiasFound` and DetectorError under the action
    ``raise``; UsageError on output that is not text. However reading ends (also by ``close``, by
    an exception or a cancellation, or because the stream is dropped), the provider's connection is
    closed; that of a dropped stream by another thread.
    ``guard`` is the trail.

    Under the action ``rewrite`` the provider is closed and reported as at any stop. Once the
    released text has been read, the model is asked to continue, and so does the stream.

    A door implements: ``_read`` (provider's chunk -> gate's chunk), ``_sealed`` (gate's chunk ->
    emitted chunks), ``_stream_text`` (the text that went out) and ``_logging`` and ``_answer``
    (the report of a stopped stream).
    """

    completed_response: Any = None
    _passed_on: frozenset[str] = frozenset()
    """Attributes of LiteLLM's stream that the guarded one has, too."""

    def __init__(
        self,
        upstream: Any,
        session: DoorSession,
        codec: Codec[Any],
        *,
        user: str = "",
        n: int = 1,
    ) -> None:
        # The constructor of LiteLLM's class is not called: the upstream holds all of its state.
        self._upstream = upstream
        self._session = session
        self._new_gate = partial(session.gate, codec, n=n, user=user)
        self._gate: ResponseGate[Any] = self._new_gate()
        self._out: deque[Any] = deque()
        self._state = UNREAD  # of the upstream
        self._lock = threading.RLock()
        self._reader = READING
        self._asker: Asker | None = None
        self._end_recorded = False  # that the response has ended
        self._clock = Clock()
        self._waits = Waits(session.policy, threads=True)
        if session.deferred is not None:
            session.deferred.streaming = True
        self._error: Exception | None = None
        # Some upstreams connect at the first pull (see `_begin`). Found early, because an
        # interrupted upstream may hold no reference to its connection any more.
        self._connections = closing.take_over(upstream)
        self._loop: asyncio.AbstractEventLoop | None = None
        with contextlib.suppress(RuntimeError):
            self._loop = asyncio.get_running_loop()
        self._watch_for_drop()

    def __getattr__(self, name: str) -> Any:
        if name not in self._passed_on:
            raise AttributeError(name)
        return getattr(self._upstream, name)

    # Implemented by the doors.

    def _begin(self) -> None:
        """Note the first chunk; some upstreams have no connection before it."""
        self._on(StreamEvent.FIRST_CHUNK)
        self._connections = closing.take_over(self._upstream)

    def _read(self, chunk: Any) -> Any:
        """Return the gate's chunk for a chunk of the provider."""
        return chunk

    def _sealed(self, chunk: Any) -> Iterable[Any]:
        """Return the chunks to emit for one that the gate released, and note them."""
        raise NotImplementedError

    def _sealed_all(self, chunks: list[Any]) -> Iterable[Any]:
        return [sealed for chunk in chunks for sealed in self._sealed(chunk)]

    def _stream_text(self) -> StreamText:
        raise NotImplementedError

    def _count(self) -> None:
        """Count the tokens of a stopped stream, if its last chunk carries the usage.

        Runs off the event loop, as does :meth:`_answer`.
        """

    def _logging(self) -> Any:
        """Return LiteLLM's logging object of this stream; None if it has none."""
        raise NotImplementedError

    def _answer(self) -> Any:
        """Return the released text as an answer to report to LiteLLM; None if impossible."""
        raise NotImplementedError

    def _report(self) -> None:
        accounting.report(self._reporter(self._logging()), self._answer)

    async def _areport(self) -> None:
        await accounting.areport(self._reporter(self._logging()), self._answer)

    def _next_upstream(self, answer: Any) -> Any:
        """Return the stream of the model's continued answer; None if it is not a stream."""
        return None

    def may_ask(self, asker: Asker) -> None:
        """Allow the action ``rewrite``: ``asker`` asks the model to continue."""
        self._asker = asker
        self._gate.rewrites = asker.left > 0

    # The consumer's interface.

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
            while not self._out and (self._reader.has_work or not self._state.over):
                if not self._reader.has_work:
                    with inside():
                        self._pull()
                    if self._release_ahead():
                        break
                run_without_loop(self._advance(call_sync))
        except BaseException:
            self.close()
            raise
        return self._next_or(StopIteration)

    async def __anext__(self) -> Any:
        if self._out:
            return self._out.popleft()
        try:
            while not self._out and (self._reader.has_work or not self._state.over):
                if not self._reader.has_work:
                    with inside():
                        await self._apull()
                    if self._release_ahead():
                        break
                await self._advance(call_async)
        except GeneratorExit:  # the reading coroutine is discarded: nothing may be awaited
            self._hand_over()
            raise
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

    def _has_ended(self) -> bool:
        deferred = self._session.deferred
        return self._state.closed and self._end_recorded and (deferred is None or deferred.closed)

    def _end_dropped(self) -> None:
        self.close()

    # Shared by the sync and the async driver.

    async def _advance(self, call: SyncOrAsync) -> None:
        """Judge pending windows and release text; or ask the model to continue."""
        if self._reader is ASKING and self._asker is not None:
            asker, released = self._asker, self._stream_text().released
            self._resume(await call(asker.ask, asker.aask, released, self.guard))
            return
        self._on_reader(StreamEvent.JUDGING)
        if self._gate.waiting:
            await call(self._session.judge_pending, self._session.ajudge_pending, self._gate)
        if self._error is not None and not self._gate.ended_by_guard:
            self._error = await call(judged_error, ajudged_error, self._error, self._session)
        if self._gate.ended_by_guard:
            self._on(StreamEvent.STOPPED)
            await call(self._shut, self._ashut)  # first: the steps below may be slow
            await call(self._count, partial(asyncio.to_thread, self._count))
        if self._release():
            await call(self._shut, self._ashut)
            if not self._state.reported:
                await call(self._report, self._areport)

    def _on(self, event: StreamEvent) -> None:
        """Apply an event of the provider's stream; may be called from any thread."""
        with self._lock:
            self._state = UPSTREAM[self._state][event]

    def _on_reader(self, event: StreamEvent) -> None:
        """Apply an event of the reader's side."""
        self._reader = READER[self._reader][event]

    def _resume(self, answer: Any) -> None:
        """Continue with the model's new answer; end if there is none."""
        self._on_reader(StreamEvent.ASKED)
        stream = None if self._reader is GONE else self._next_upstream(answer)
        if stream is None:
            closing.close(answer, self._loop)
            if self._reader is not GONE:
                self._gate.give_up()
                self._release()
            return
        self._gate = self._new_gate(trail=self.guard, released=self._stream_text().released)
        if self._asker is not None:
            self.may_ask(self._asker)
        self._upstream = stream
        self._connections = closing.take_over(stream)
        self._on(StreamEvent.RESUMED)

    def _pull(self) -> None:
        """Pull until there may be something to judge or to release, or the provider has ended."""
        first = self._state is UNREAD
        read = partial(next, self._upstream)
        if self._waits.needed(self._gate):
            read = partial(self._waits.next, read, self._gate)
        while not self._state.over:
            try:
                chunk = read()
            except StopIteration:
                return self._end()
            except Exception as error:
                return self._end(error)
            if chunk is LATE:
                return self._gate.give_up_second_looks()
            if first:
                first = False
                self._begin()
            if self._take(chunk):
                return None
        return None

    async def _apull(self) -> None:
        first = self._state is UNREAD
        read = self._upstream.__anext__
        if self._waits.needed(self._gate):
            read = partial(self._waits.anext, read, self._gate)
        while not self._state.over:
            try:
                chunk = await read()
            except StopAsyncIteration:
                return self._end()
            except Exception as error:
                return self._end(error)
            if chunk is LATE:
                return self._gate.give_up_second_looks()
            if first:
                first = False
                self._begin()
            if self._take(chunk):
                return None
        return None

    def _take(self, chunk: Any) -> bool:
        """Push a chunk to the gate; return whether there may be something to judge or release."""
        moved = self._gate.push(self._read(chunk))
        self._clock.arrived(self._gate)
        return moved

    def _end(self, error: Exception | None = None) -> None:
        if self._state.over:
            return  # another thread closed it: the read failed because of that
        self._on(StreamEvent.COMPLETED if error is None else StreamEvent.FAILED)
        self._error = error
        self._gate.finish()

    def _release_ahead(self) -> bool:
        """Queue text that may go out before its verdict; return whether there is any.

        Not at the end of the choices: their reader may not come back for the verdicts.
        """
        if self._state.over or self._gate.all_choices_ended:
            return False
        self._release()
        if self._out and self._gate.waiting:
            self._on_reader(StreamEvent.AHEAD)
        return bool(self._out)

    def _release(self) -> bool:
        """Queue released chunks; return whether the provider's connection must be closed."""
        if chunks := self._clock.released(self._gate.emit(), self.guard):
            self._out.extend(self._sealed_all(chunks))
        if self._gate.ended_by_guard:
            # The guard's end of the stream replaces the provider's, also the provider's error.
            if self._gate.needs_rewrite:
                self._on_reader(StreamEvent.ASK)
            self._error = self._gate.error
        elif self._error is not None:
            self._error = self._redacted(self._error)
        if self._state.over and self._session.deferred is not None:
            self._record(self._session.deferred)
        if self._state.over and self._reader is not ASKING:
            self._record_end("completed" if self._error is None else "failed")
        return self._gate.ended_by_guard or self._error is not None

    def _redacted(self, error: Exception) -> Exception:
        text = self._stream_text()
        return redacted(error, text.released, text.withheld, began=text.began, shown=text.shown)

    def _reportable(self, error: Exception) -> Exception:
        """Return a provider's error as LiteLLM's callbacks may see it.

        It need not be the error of this stream: LiteLLM wraps errors, and a Router reports those
        that it recovers from.
        """
        return self._redacted(judged_error(error, replace(self._session, sinks=(), recorder=None)))

    def _next_or(self, end: type[StopIteration] | type[StopAsyncIteration]) -> Any:
        if self._out:
            return self._out.popleft()
        error, self._error = self._error, None
        raise end if error is None else error

    def _reporter(self, logging: Any) -> Any:
        """Return the logging object that reports at once, also where records are deferred."""
        deferred = self._session.deferred
        return logging if deferred is None or logging is None else deferred.immediate

    def _record(self, deferred: DeferredLogging, *, dropped: bool = False) -> None:
        """Complete LiteLLM's deferred records of the call: the released text is known."""
        changed = dropped or any(d.action not in ("pass", "flag") for d in self.guard)
        delivery = Delivery(
            self._answer() if changed else self.completed_response,
            changed=changed,
            stopped=dropped or self.guard.stopped,
            reported=self._gate.ended_by_guard and not self._state.reported,
            clean=self._reportable,
        )
        deferred.close(delivery)

    def _record_end(self, outcome: Outcome) -> None:
        """Have the end of the response recorded, once."""
        with self._lock:
            known, self._end_recorded = self._end_recorded, True
        if not known:
            self._session.ended(self.guard, outcome)

    def _drop(self) -> None:
        read = self._gate.all_choices_ended and not self._gate.waiting
        self._record_end("completed" if read else "left")
        if self._session.deferred is not None and not self._session.deferred.closed:
            self._record(self._session.deferred, dropped=True)
        self._on(StreamEvent.STOPPED)
        self._on_reader(StreamEvent.LEFT)
        self._out.clear()
        self._error = None

    def _shut(self) -> None:
        if not self._state.closed:
            close = partial(closing.close, self._upstream, self._loop, self._connections)
            self._waits.leave(close)
            close()
            self._on(StreamEvent.CLOSED)

    async def _ashut(self) -> None:
        if not self._state.closed:
            await self._waits.aleave()
            await closing.aclose(self._upstream, self._connections)
            self._on(StreamEvent.CLOSED)
