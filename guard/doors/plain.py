"""The door for text from anywhere: an iterable of strings in, released strings out."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from functools import partial
from types import AsyncGeneratorType
from typing import Any

from guard.background import EndsWhenDropped
from guard.doors.rewrite import cannot_rewrite
from guard.doors.session import Clock, DoorSession, Outcome
from guard.doors.sync_or_async import SyncOrAsync, call_async, call_sync, run_without_loop
from guard.doors.waits import LATE, Waits
from guard.errors import UsageError
from guard.gate import Codec, Part
from guard.verdict import Channel, GuardTrail

_ONLY = Channel()
_END: Any = object()  # marks the end of the source


class TextCodec(Codec[str]):
    """Chunks are plain strings of one channel."""

    def parts(self, chunk: str) -> list[Part]:
        """Return the chunk as one part; raises UsageError if it is not a string."""
        if not isinstance(chunk, str):
            raise UsageError(f"A chunk must be a string, got {type(chunk).__name__}.")
        return [Part(_ONLY, chunk)] if chunk else []

    def only_text(self, chunk: str, channel: Channel) -> str:
        """Return the chunk if it is a string."""
        return chunk if type(chunk) is str else ""

    def choices(self, chunk: str) -> list[int]:
        """Return the only choice, 0."""
        return [0]

    def finished(self, chunk: str) -> list[int]:
        """Return nothing: plain text ends with its iterable."""
        return []

    def cut(
        self, chunk: str, choice: int, texts: Mapping[Channel, str], *, ends: bool = False
    ) -> str | None:
        """Return the rest of the chunk's text."""
        return texts.get(_ONLY) or None

    def last(self, template: str, choice: int, message: str) -> str:
        """Return the message itself."""
        return message


class _TextStream(EndsWhenDropped):
    """What a stream of plain text does next, sync or async."""

    _close = "close"  # the source's method

    def __init__(self, source: Any, session: DoorSession, read: Callable[..., Any]) -> None:
        if session.policy.rewrites:
            raise cannot_rewrite("plain text")
        self._session = session
        self._gate = session.gate(TextCodec())
        self.guard: GuardTrail = self._gate.trail
        self._source = source
        self._read = partial(read, source, _END)
        self._clock = Clock()
        self._waits = Waits(session.policy)
        self._ended = False  # whether the source has
        self._error: Exception | None = None  # the source's
        self._to_judge = False  # whether text was pushed that is not judged yet
        self._out: deque[str] = deque()  # released
        self._reading = self._is_over = self._is_shut = False

    async def _refill(self, call: SyncOrAsync) -> bool:
        """Have the next released text in ``_out``; return whether there is any before the end."""
        if self._is_over:
            return False
        if self._reading:
            raise RuntimeError("This stream is being read already; read it in one place.")
        self._reading = True
        try:
            while not self._out and (texts := await self._next(call)) is not None:
                self._out.extend(texts)
        except GeneratorExit:  # the reading coroutine is discarded: nothing may be awaited
            self._hand_over()
            raise
        except BaseException as error:
            self._over("failed" if isinstance(error, Exception) else "left")
            await self._shut(call)
            raise
        finally:
            self._reading = False
        if self._out:
            return True
        self._over("completed")
        await self._shut(call)
        return False

    def _has_ended(self) -> bool:
        return self._is_over

    def _over(self, outcome: Outcome) -> None:
        """Have the end recorded, once; nothing more goes out."""
        self._out.clear()
        if not self._is_over:
            self._is_over = True
            self._session.ended(self.guard, outcome)

    async def _next(self, call: SyncOrAsync) -> list[str] | None:
        """Return the next texts to release; None at the end. Raises the error that ends it."""
        gate, session = self._gate, self._session
        if not (self._to_judge or self._ended or gate.ended_by_guard):
            await self._pull(call)
            self._to_judge = True
            if not self._ended and (ahead := self._clock.released(gate.emit(), self.guard)):
                return ahead
        if self._to_judge:
            self._to_judge = False
            await call(session.judge_pending, session.ajudge_pending, gate)
            if gate.ended_by_guard or self._error is not None:  # now: the reader may not come back
                await self._shut(call)
            return self._clock.released(gate.emit(), self.guard)
        if gate.error is not None:
            raise gate.error
        if self._error is None or gate.ended_by_guard:
            return None
        from guard.doors.errors import ajudged_error, judged_error  # loads LiteLLM

        raise await call(judged_error, ajudged_error, self._error, session)

    async def _pull(self, call: SyncOrAsync) -> None:
        """Push texts to the gate until there may be something to judge or to release."""
        moved = False
        while not (moved or self._ended):
            try:
                text = await call(self._waits.next, self._waits.anext, self._read, self._gate)
            except Exception as error:
                text, self._error = _END, error
            if text is LATE:
                self._gate.give_up_second_looks()
                return
            if text is _END:
                self._ended = True
                self._gate.finish()
            else:
                moved = self._gate.push(text)
                self._clock.arrived(self._gate)

    async def _shut(self, call: SyncOrAsync) -> None:
        self._is_shut = True
        close = getattr(self._source, self._close, None)
        if call is not call_sync:
            await self._waits.aleave()
        if callable(close):
            await call(close, close)


class TextStream(_TextStream):
    """Released text of a source of strings; ``guard`` is the trail so far.

    The source is closed as soon as the guard stops it, it fails, or this stream is closed or
    dropped; of a dropped stream by another thread. Its error is raised after the text that may
    still go out, without its message if that is found biased.
    """

    def __init__(self, texts: Iterable[str], session: DoorSession) -> None:
        super().__init__(iter(texts), session, next)
        self._watch_for_drop()

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if not self._out and not run_without_loop(self._refill(call_sync)):
            raise StopIteration
        return self._out.popleft()

    def close(self) -> None:
        """Stop reading and close the source; safe to call again."""
        self._over("left")
        run_without_loop(self._shut(call_sync))

    def _end_dropped(self) -> None:
        self.close()


class AsyncTextStream(_TextStream):
    """A :class:`TextStream` of an async source."""

    _close = "aclose"

    def __init__(self, texts: AsyncIterable[str], session: DoorSession) -> None:
        super().__init__(aiter(texts), session, anext)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watch_for_drop()

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        if not self._out:
            self._loop = asyncio.get_running_loop()
            if not await self._refill(call_async):
                raise StopAsyncIteration
        return self._out.popleft()

    async def aclose(self) -> None:
        """Stop reading and close the source; safe to call again."""
        self._over("left")
        await self._shut(call_async)

    def _hand_over(self) -> None:
        by_python = isinstance(self._source, AsyncGeneratorType) and not self._waits.under_way
        if by_python and self._dropped_to is not None:
            # Python closes it on its loop once nothing refers to it: so it is not handed over.
            self._is_over = True
            self._dropped_to.put(partial(self._session.ended, self.guard, "left"))
        else:
            super()._hand_over()

    def _end_dropped(self) -> None:
        self._over("left")
        # Only the loop that reads the source can close it; without that, Python does what it can.
        loop = None if self._is_shut else self._loop
        if loop is not None and loop.is_running():
            with contextlib.suppress(RuntimeError):  # closed since
                loop.call_soon_threadsafe(self._close_on, loop)

    def _close_on(self, loop: asyncio.AbstractEventLoop) -> None:
        self._closing = loop.create_task(self._shut(call_async))  # a loop holds its tasks weakly
