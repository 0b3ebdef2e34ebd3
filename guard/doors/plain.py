"""The door for text from anywhere: an iterable of strings in, released strings out."""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)

from guard.doors.rewrite import cannot_rewrite
from guard.doors.session import Clock, DoorSession
from guard.errors import UsageError
from guard.gate import Codec, Part, ResponseGate
from guard.verdict import Channel, GuardTrail

_ONLY = Channel()


class TextCodec(Codec[str]):
    """Chunks are plain strings of one channel."""

    def parts(self, chunk: str) -> list[Part]:
        """Return the chunk as one part; raises UsageError if it is not a string."""
        if not isinstance(chunk, str):
            raise UsageError(f"A chunk must be a string, got {type(chunk).__name__}.")
        return [Part(_ONLY, chunk)] if chunk else []

    def alone(self, chunk: str, channel: Channel) -> str:
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


class TextStream:
    """Released text of a source of strings; ``guard`` is the trail so far.

    The source is closed as soon as the guard stops it, it fails, or this stream is closed. Its
    error is raised after the text that may still go out, without its message if that is found
    biased.
    """

    def __init__(self, texts: Iterable[str], session: DoorSession) -> None:
        if session.policy.rewrites:
            raise cannot_rewrite("plain text")
        gate = session.gate(TextCodec())
        self.guard: GuardTrail = gate.trail
        self._source = iter(texts)
        self._released = self._run(session, gate)

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        return next(self._released)

    def close(self) -> None:
        """Stop reading and close the source; safe to call again."""
        self._released.close()
        self._shut()

    def _shut(self) -> None:
        if callable(close := getattr(self._source, "close", None)):
            close()

    def _run(self, session: DoorSession, gate: ResponseGate[str]) -> Generator[str, None, None]:
        over, chunk, clock = False, "", Clock()
        failed: Exception | None = None
        with session.recording(gate.trail):
            try:
                while not gate.stopped and not over:
                    try:
                        chunk = next(self._source)
                    except StopIteration:
                        over = True
                    except Exception as error:
                        over, failed = True, error
                    if over:
                        gate.finish()
                    else:
                        gate.push(chunk)
                        clock.heard(gate)
                        yield from clock.let_out(
                            gate.emit(), self.guard
                        )  # text that needs no verdict
                    session.judge_pending(gate)
                    if gate.stopped or failed is not None:  # now: the reader may not come back
                        self._shut()
                    yield from clock.let_out(gate.emit(), self.guard)
                if gate.error is not None:
                    raise gate.error
                if failed is not None and not gate.stopped:
                    from guard.doors.errors import judged_error  # loads LiteLLM

                    raise judged_error(failed, session)
            finally:
                self._shut()


class AsyncTextStream:
    """A :class:`TextStream` of an async source."""

    def __init__(self, texts: AsyncIterable[str], session: DoorSession) -> None:
        if session.policy.rewrites:
            raise cannot_rewrite("plain text")
        gate = session.gate(TextCodec())
        self.guard: GuardTrail = gate.trail
        self._source = aiter(texts)
        self._released = self._run(session, gate)

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        return await self._released.__anext__()

    async def aclose(self) -> None:
        """Stop reading and close the source; safe to call again."""
        await self._released.aclose()
        await self._shut()

    async def _shut(self) -> None:
        if callable(close := getattr(self._source, "aclose", None)):
            await close()

    async def _run(
        self, session: DoorSession, gate: ResponseGate[str]
    ) -> AsyncGenerator[str, None]:
        over, chunk, clock = False, "", Clock()
        failed: Exception | None = None
        with session.recording(gate.trail):
            try:
                while not gate.stopped and not over:
                    try:
                        chunk = await anext(self._source)
                    except StopAsyncIteration:
                        over = True
                    except Exception as error:
                        over, failed = True, error
                    if over:
                        gate.finish()
                    else:
                        gate.push(chunk)
                        clock.heard(gate)
                        for text in clock.let_out(
                            gate.emit(), self.guard
                        ):  # text that needs no verdict
                            yield text
                    await session.ajudge_pending(gate)
                    if gate.stopped or failed is not None:  # now: the reader may not come back
                        await self._shut()
                    for text in clock.let_out(gate.emit(), self.guard):
                        yield text
                if gate.error is not None:
                    raise gate.error
                if failed is not None and not gate.stopped:
                    from guard.doors.errors import ajudged_error  # loads LiteLLM

                    raise await ajudged_error(failed, session)
            finally:
                await self._shut()
