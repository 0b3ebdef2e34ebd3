"""A provider inside LiteLLM that replays chunks, and ways to run a guarded call through it."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import litellm
from aiohttp import ClientSession
from litellm import CustomLLM
from litellm.litellm_core_utils import streaming_handler
from litellm.litellm_core_utils.streaming_handler import CustomStreamWrapper
from litellm.types.utils import Choices, Delta, Message, ModelResponse, ModelResponseStream
from litellm.types.utils import StreamingChoices as StreamChoice

from guard.detect.protocol import Detector
from guard.detect.serving import WindowJudge
from guard.doors import chat
from guard.doors.session import DoorSession
from guard.policy import Policy
from guard.verdict import Channel, GuardTrail

T = TypeVar("T")


def _passed_on(create: Callable[..., Any]) -> Callable[..., Any]:
    """Have chunks of a custom provider pass as they are, as LiteLLM from 1.91 on does."""

    def chunk_creator(stream: Any, chunk: Any) -> Any:
        if not (stream.custom_llm_provider == "replay" and isinstance(chunk, ModelResponseStream)):
            return create(stream, chunk)
        says = chunk.choices and chunk.choices[0].delta
        says = bool(says and (says.content or says.tool_calls))
        if stream.received_finish_reason is not None and not says:
            raise StopIteration
        if chunk.choices and (reason := chunk.choices[0].finish_reason):
            stream.received_finish_reason = reason
            if not says:
                return None
            chunk.choices[0].finish_reason = None
        return chunk

    return chunk_creator


if not hasattr(streaming_handler, "_ProviderChunkEarlyReturn"):
    _create = CustomStreamWrapper.chunk_creator
    CustomStreamWrapper.chunk_creator = _passed_on(_create)  # type: ignore[method-assign]


def arun(run: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine, and close the clients that LiteLLM keeps for its loop."""

    async def main() -> T:
        try:
            return await run
        finally:
            await close_clients()

    return asyncio.run(main())


async def close_clients() -> None:
    """Close all clients that LiteLLM keeps for this loop."""
    await _close_shared_session()
    await forget_clients()


async def _close_shared_session() -> None:
    """Close the connections of the client that LiteLLM shares; it opens them anew when asked."""
    transport = litellm.module_level_aclient.client._transport
    session = getattr(transport, "client", None)
    # One of an earlier loop went with it.
    if isinstance(session, ClientSession) and session._loop is asyncio.get_running_loop():
        await session.close()


async def forget_clients() -> None:
    """Close LiteLLM's clients, sync and async, and have it make new ones."""
    cache = litellm.in_memory_llm_clients_cache
    keep = (litellm.module_level_client, litellm.module_level_aclient)
    for client in [c for c in cache.cache_dict.values() if c not in keep]:
        closed = client.close()
        if inspect.isawaitable(closed):
            await closed
    cache.flush_cache()


def forget_callback(callback: object) -> None:
    """Take a callback out of the lists that LiteLLM copies it to."""
    for name in (
        "success_callback",
        "failure_callback",
        "_async_success_callback",
        "_async_failure_callback",
    ):
        callbacks = getattr(litellm, name)
        while callback in callbacks:
            callbacks.remove(callback)


MESSAGES = [{"role": "user", "content": "Tell me."}]


class Said(NamedTuple):
    """One chunk: a choice says a text in a channel."""

    choice: int
    kind: str
    text: str
    tool: int = 0
    header: bool = False  # a tool call's first chunk


def delta_of(said: Said) -> Delta:
    if said.kind == "content":
        return Delta(content=said.text)
    if said.kind == "reasoning":
        return Delta(reasoning_content=said.text)
    call: dict[str, Any] = {"index": said.tool, "function": {"arguments": said.text}}
    if said.header:
        call |= {"id": f"call_{said.tool}", "type": "function"}
        call["function"] |= {"name": "f"}
    return Delta(tool_calls=[call])


def chunk_of(*saids: Said, finish: str | None = None) -> ModelResponseStream:
    choices = [StreamChoice(index=s.choice, delta=delta_of(s)) for s in saids]
    if finish is not None:
        choices = [StreamChoice(index=0, delta=Delta(), finish_reason=finish)]
    return ModelResponseStream(id="chatcmpl-1", created=1, model="x", choices=choices)


def answer_of(saids: Sequence[Said]) -> ModelResponse:
    """The whole answer that the same chunks amount to."""
    choices = []
    for index in sorted({s.choice for s in saids}):
        mine = [s for s in saids if s.choice == index]
        text = "".join(s.text for s in mine if s.kind == "content")
        thought = "".join(s.text for s in mine if s.kind == "reasoning")
        calls = [
            {
                "id": f"call_{n}",
                "type": "function",
                "function": {
                    "name": "f",
                    "arguments": "".join(s.text for s in mine if s.kind == "tool" and s.tool == n),
                },
            }
            for n in sorted({s.tool for s in mine if s.kind == "tool"})
        ]
        message = Message(
            content=text or None, reasoning_content=thought or None, tool_calls=calls or None
        )
        choices.append(Choices(finish_reason="stop", index=index, message=message))
    return ModelResponse(id="chatcmpl-1", created=1, model="x", choices=choices)


class Replay(CustomLLM):
    """Registered as the provider ``replay``; replays ``source``, or gives ``answer`` whole."""

    def __init__(self) -> None:
        super().__init__()
        self.source: Callable[[], Iterator[ModelResponseStream]] = lambda: iter(())
        self.answer = ModelResponse()
        self.choices = 1  # of the answer
        self.pulled = 0
        self.closed = False

    def play(self) -> Iterator[ModelResponseStream]:
        self.pulled, self.closed = 0, False
        try:
            for chunk in self.source():
                self.pulled += 1
                yield chunk
        finally:
            self.closed = True

    def streaming(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        return self.play()

    async def astreaming(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        self.pulled, self.closed = 0, False
        try:
            for chunk in self.source():
                self.pulled += 1
                yield chunk
                await asyncio.sleep(0)
        finally:
            self.closed = True

    def completion(self, *args: Any, **kwargs: Any) -> ModelResponse:
        return self.answer

    async def acompletion(self, *args: Any, **kwargs: Any) -> ModelResponse:
        return self.answer


def session(policy: Policy, detector: Detector, sinks: Sequence[Any] = ()) -> DoorSession:
    return DoorSession(policy, WindowJudge(detector, policy), tuple(sinks))


@dataclass
class Outcome:
    """What a consumer saw of one response."""

    texts: dict[Channel, str] = field(default_factory=dict)
    finish: dict[int, str] = field(default_factory=dict)
    decisions: list[tuple[Any, ...]] = field(default_factory=list)
    error: Exception | None = None
    chunks: list[ModelResponseStream] = field(default_factory=list)
    trail: GuardTrail = field(default_factory=GuardTrail)

    def add(self, channel: Channel, text: str) -> None:
        if text:
            self.texts[channel] = self.texts.get(channel, "") + text

    def of_choice(self, choice: int) -> list[tuple[Any, ...]]:
        return [d for d in self.decisions if d[0].choice == choice]

    @property
    def comparable(self) -> tuple[Any, ...]:
        """All that may not depend on chunking, order between choices or the door."""
        choices = sorted({d[0].choice for d in self.decisions})
        error = None if self.error is None else (type(self.error), str(self.error))
        return (self._calls_cut_alike(), self.ends, [self.of_choice(c) for c in choices], error)

    def _calls_cut_alike(self) -> dict[Channel, str]:
        """The texts, without what breaks a cut tool call: a call cut to nothing may be left out."""
        texts = dict(self.texts)
        for channel in [c for c in texts if c.kind == "tool" and c.choice in self.ends]:
            texts[channel] = texts[channel].removesuffix("{")
            if not texts[channel].strip():
                del texts[channel]
        return texts

    @property
    def ends(self) -> dict[int, str]:
        """The choices that the guard ended; LiteLLM itself loses finish reasons when n > 1."""
        return {c: r for c, r in self.finish.items() if r == "content_filter"}


def _trail(outcome: Outcome, trail: GuardTrail) -> Outcome:
    outcome.trail = trail
    outcome.decisions = [
        (d.channel, d.action, d.span, d.verdict.score, d.verdict.unjudged, d.counted) for d in trail
    ]
    return outcome


def note(outcome: Outcome, chunk: ModelResponseStream) -> None:
    outcome.chunks.append(chunk)
    for choice in chunk.choices:
        delta, index = choice.delta, choice.index
        outcome.add(Channel(index, "reasoning"), getattr(delta, "reasoning_content", None) or "")
        outcome.add(Channel(index), delta.content or "")
        for call in delta.tool_calls or ():
            outcome.add(Channel(index, "tool", call.index), call.function.arguments or "")
        if choice.finish_reason:
            outcome.finish[index] = choice.finish_reason


def drain(stream: Any) -> Outcome:
    outcome = Outcome()
    try:
        for chunk in stream:
            note(outcome, chunk)
    except Exception as error:
        outcome.error = error
    return _trail(outcome, stream.guard)


async def adrain(stream: Any) -> Outcome:
    outcome = Outcome()
    try:
        async for chunk in stream:
            note(outcome, chunk)
    except Exception as error:
        outcome.error = error
    return _trail(outcome, stream.guard)


CALL = {"model": "replay/x", "messages": MESSAGES}


def choices_in(chunks: Sequence[ModelResponseStream]) -> int:
    return max((c.index for chunk in chunks for c in chunk.choices), default=0) + 1


def stream(replay: Replay, chunks: Sequence[ModelResponseStream], s: DoorSession) -> Any:
    """A guarded sync stream over ``chunks``."""
    replay.source = lambda: iter([c.model_copy(deep=True) for c in chunks])
    return chat.completion(s, (), {**CALL, "stream": True, "n": choices_in(chunks)})


async def astream(replay: Replay, chunks: Sequence[ModelResponseStream], s: DoorSession) -> Any:
    replay.source = lambda: iter([c.model_copy(deep=True) for c in chunks])
    return await chat.acompletion(s, (), {**CALL, "stream": True, "n": choices_in(chunks)})


def streamed(replay: Replay, chunks: Sequence[ModelResponseStream], s: DoorSession) -> Outcome:
    return drain(stream(replay, chunks, s))


def astreamed(replay: Replay, chunks: Sequence[ModelResponseStream], s: DoorSession) -> Outcome:
    async def run() -> Outcome:
        return await adrain(await astream(replay, chunks, s))

    return arun(run())


def whole(replay: Replay, saids: Sequence[Said], s: DoorSession) -> Outcome:
    replay.answer = answer_of(saids)
    try:
        response = chat.completion(s, (), CALL)
    except Exception as error:
        return _trail(Outcome(error=error), getattr(error, "trail", GuardTrail()))
    return of_answer(response)


def awhole(replay: Replay, saids: Sequence[Said], s: DoorSession) -> Outcome:
    async def run() -> Outcome:
        replay.answer = answer_of(saids)
        try:
            return of_answer(await chat.acompletion(s, (), CALL))
        except Exception as error:
            return _trail(Outcome(error=error), getattr(error, "trail", GuardTrail()))

    return arun(run())


def of_answer(response: Any) -> Outcome:
    outcome = Outcome()
    read_answer(outcome, response)
    return _trail(outcome, response.guard)


def read_answer(outcome: Outcome, response: Any) -> None:
    for choice in response.choices:
        message, index = choice.message, choice.index
        outcome.add(Channel(index, "reasoning"), getattr(message, "reasoning_content", None) or "")
        outcome.add(Channel(index), message.content or "")
        for number, call in enumerate(message.tool_calls or ()):
            outcome.add(Channel(index, "tool", number), call.function.arguments or "")
        outcome.finish[index] = choice.finish_reason


def unguarded(replay: Replay, chunks: Sequence[ModelResponseStream]) -> list[Any]:
    replay.source = lambda: iter([c.model_copy(deep=True) for c in chunks])
    return list(litellm.completion(**CALL, stream=True))


def serialised(*things: Any) -> str:
    """The bytes of chunks and answers as a client could get them, and as they read."""
    return "\n".join(
        json.dumps(plain(t), ensure_ascii=False, default=str) + repr(t) for t in things
    )


def plain(thing: Any) -> Any:
    """A chunk or an answer as JSON has it; of server-sent events, their data."""
    if isinstance(thing, bytes):
        lines = [line for line in thing.decode().splitlines() if line.startswith("data:")]
        return [json.loads(line[5:]) for line in lines]
    return thing if isinstance(thing, dict) else thing.model_dump(warnings=False)
