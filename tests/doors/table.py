"""The doors that the matrix of promises runs over: a further door joins by one line of TABLE."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import httpx
import litellm
from litellm.types.utils import Usage

from guard.core import Guard
from guard.policy import Policy
from guard.verdict import Channel, GuardTrail
from tests.doors import replay as r
from tests.doors.log import Log
from tests.doors.replay import Outcome, Replay, Said
from tests.doors.texts import chunks, saids
from tests.doors.versions import ALL_DOORS
from tests.provider import Provider, Script
from tests.scripted import Scripted

Runs = Sequence[Sequence[tuple[str, int, str]]]
Chunking = tuple[Sequence[int], int]


class World(NamedTuple):
    """The two ways to have LiteLLM hear what a test says: in process, and over a socket."""

    replay: Replay
    provider: Provider
    loop: asyncio.AbstractEventLoop  # of those that LiteLLM has no synchronous call for


class Door(NamedTuple):
    """A pair of LiteLLM's functions, and how what they return is read."""

    function: str  # of LiteLLM and of Guard; "a" before it makes it async
    asked: dict[str, Any]
    note: Callable[[Outcome, Any], None]  # one chunk of a stream
    read: Callable[[Outcome, Any], None]  # a whole answer
    kinds: tuple[str, ...]
    plain: str = ""  # what LiteLLM calls the function, where that is another name
    done: Callable[[Outcome], None] = lambda outcome: None  # all of it has come


class Source(NamedTuple):
    """Where the answer comes from."""

    call: Callable[[World], dict[str, Any]]
    play: Callable[[World, Runs, Chunking], None]
    wire: bool  # over a socket


class Row(NamedTuple):
    """One door as it is reached through one source."""

    name: str
    door: Door
    source: Source

    @property
    def wire(self) -> bool:
        return self.source.wire

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(k for k in self.door.kinds if self.wire or k != "refusal")

    @property
    def most(self) -> int:
        """How many choices an answer may have at most."""
        # An older LiteLLM cannot join what several choices said, and raises at the end.
        return 3 if self.door is CHAT and not self.wire and ALL_DOORS else 1

    def play(self, world: World, choices: Runs, chunking: Chunking) -> None:
        self.source.play(world, choices, chunking)

    def call(self, world: World) -> dict[str, Any]:
        return {**self.source.call(world), **self.door.asked}

    def stream(self, world: World, guard: Guard, **more: Any) -> Any:
        return getattr(guard, self.door.function)(**self.call(world), stream=True, **more)

    async def astream(self, world: World, guard: Guard, **more: Any) -> Any:
        call = getattr(guard, "a" + self.door.function)
        return await call(**self.call(world), stream=True, **more)

    def whole(self, world: World, guard: Guard) -> Any:
        return getattr(guard, self.door.function)(**self.call(world))

    async def awhole(self, world: World, guard: Guard) -> Any:
        return await getattr(guard, "a" + self.door.function)(**self.call(world))

    def plain(self, world: World) -> list[Any]:
        function = getattr(litellm, self.door.plain or self.door.function)
        return list(function(**self.call(world), stream=True))

    def drained(self, stream: Any) -> Outcome:
        outcome = Outcome()
        try:
            for chunk in stream:
                self.noted(outcome, chunk)
        except Exception as error:
            outcome.error = error
        self.door.done(outcome)
        return _trailed(outcome, stream.guard)

    async def adrained(self, stream: Any) -> Outcome:
        outcome = Outcome()
        try:
            async for chunk in stream:
                self.noted(outcome, chunk)
        except Exception as error:
            outcome.error = error
        self.door.done(outcome)
        return _trailed(outcome, stream.guard)

    def answered(self, response: Any) -> Outcome:
        outcome = Outcome(chunks=[response])
        self.door.read(outcome, response)
        self.door.done(outcome)
        return _trailed(outcome, response.guard)

    def read_through(
        self,
        world: World,
        guard: Guard,
        asynchronous: bool,
        begun: Callable[[Any], None] = lambda stream: None,
    ) -> Outcome:
        """What a consumer sees of a stream; ``begun`` gets the stream before it is read."""

        async def run() -> Outcome:
            stream = await self.astream(world, guard)
            begun(stream)
            return await self.adrained(stream)

        if asynchronous:
            return arun(run())
        stream = self.stream(world, guard)
        begun(stream)
        return self.drained(stream)

    def settle(self, world: World, log: Log) -> None:
        """Let LiteLLM report what it has behind a call."""

    def ways(self, world: World, guard: Guard) -> list[Outcome]:
        """What a consumer sees of the same answer, whole and streamed, sync and async."""

        async def astreamed() -> Outcome:
            return await self.adrained(await self.astream(world, guard))

        async def awhole() -> Outcome:
            return self.answered(await self.awhole(world, guard))

        return [
            self.drained(self.stream(world, guard)),
            arun(astreamed()),
            self.answered(self.whole(world, guard)),
            arun(awhole()),
        ]

    def noted(self, outcome: Outcome, chunk: Any) -> None:
        outcome.chunks.append(chunk)
        self.door.note(outcome, chunk)


class AsyncRow(Row):
    """A row that LiteLLM has no synchronous call for: tests that make one get it on a loop."""

    def stream(self, world: World, guard: Guard, **more: Any) -> Any:
        called = self.astream(world, guard, **more)
        return Synced(world.loop.run_until_complete(called), world.loop)

    def whole(self, world: World, guard: Guard) -> Any:
        async def whole() -> Any:
            try:
                return await self.awhole(world, guard)
            finally:
                await r.forget_clients()

        return world.loop.run_until_complete(whole())

    def plain(self, world: World) -> list[Any]:
        called = litellm.anthropic_messages(**self.call(world), stream=True)
        return list(Synced(world.loop.run_until_complete(called), world.loop))

    def settle(self, world: World, log: Log) -> None:
        world.loop.run_until_complete(log.told())


class Synced:
    """An async stream as a synchronous test reads it, to its end."""

    def __init__(self, stream: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.stream = stream
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def __iter__(self) -> Synced:
        return self

    def __next__(self) -> Any:
        try:
            return self._loop.run_until_complete(self.stream.__anext__())
        except BaseException as error:
            self._loop.run_until_complete(r.forget_clients())
            if isinstance(error, StopAsyncIteration):
                raise StopIteration from None
            raise


async def end_tasks() -> None:
    """End what still runs in this loop, as ``asyncio.run`` does."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def guard_of(policy: Policy, detector: Scripted, sinks: Sequence[Any] = ()) -> Guard:
    return Guard(policy, detector=detector, sinks=sinks)


def arun(run: Any) -> Any:
    """Run a coroutine with clients of its own, and close them."""

    async def main() -> Any:
        # The text API's client is LiteLLM's own and never closed, unless one is given.
        async with httpx.AsyncClient() as client:
            litellm.aclient_session = client
            try:
                return await run
            finally:
                litellm.aclient_session = None
                await r.forget_clients()

    return asyncio.run(main())


def _trailed(outcome: Outcome, trail: GuardTrail) -> Outcome:
    outcome.trail = trail
    outcome.decisions = [
        (d.channel, d.action, d.span, d.verdict.score, d.verdict.unjudged, d.counted) for d in trail
    ]
    return outcome


# What the provider says.


def _replayed(world: World, choices: Runs, chunking: Chunking) -> None:
    world.replay.source = lambda: iter(chunks(choices, chunking))
    world.replay.choices = len(choices)
    world.replay.answer = r.answer_of([s for line in saids(choices, ([10**6], 0)) for s in line])


def _wired(world: World, choices: Runs, chunking: Chunking) -> None:
    lines = saids(choices, chunking)
    world.provider.script = Script([[_delta(s) for s in line] for line in lines])


def _messages_wired(world: World, choices: Runs, chunking: Chunking) -> None:
    lines = saids(_as_json(choices), chunking)
    world.provider.script = Script([[_block(s) for s in line] for line in lines])


def _block(said: Said) -> Any:
    if said.kind == "tool":
        return {"partial_json": said.text, "call": said.tool}
    return {"thinking": said.text} if said.kind == "reasoning" else said.text


def _as_json(choices: Runs) -> Runs:
    """What is said, with the input of tools as JSON: a whole message has it as an object."""

    def run(kind: str, tool: int, text: str) -> tuple[str, int, str]:
        said = json.dumps({"v": text}, ensure_ascii=False) if kind == "tool" else text
        return kind, tool, said

    return [[run(*one) for one in runs] for runs in choices]


def _messages_from_chat(world: World, choices: Runs, chunking: Chunking) -> None:
    _replayed(world, _as_json(choices), chunking)
    world.replay.answer.usage = Usage(7, 1, 8)  # LiteLLM wants one to make a message of an answer


def _messages_from_responses(world: World, choices: Runs, chunking: Chunking) -> None:
    _wired(world, _as_json(choices), chunking)


def _delta(said: Said) -> Any:
    if said.kind == "tool":
        return {"arguments": said.text, "call": said.tool}
    return said.text if said.kind == "content" else {said.kind: said.text}


# What a consumer reads.


def _note_text(outcome: Outcome, chunk: Any) -> None:
    for choice in chunk.choices:
        thought = getattr(choice, "reasoning_content", None)
        outcome.add(Channel(choice.index, "reasoning"), thought or "")
        delta = getattr(choice, "delta", None)  # LiteLLM replays its cache as a chat
        outcome.add(Channel(choice.index), (delta.content if delta else choice.text) or "")
        if choice.finish_reason:
            outcome.finish[choice.index] = choice.finish_reason


def _note_chat(outcome: Outcome, chunk: Any) -> None:
    outcome.chunks.pop()
    r.note(outcome, chunk)


_KINDS = {
    "output_text": "content",
    "refusal": "refusal",
    "reasoning_summary_text": "reasoning",
    "function_call_arguments": "tool",
}


def _note_event(outcome: Outcome, event: Any) -> None:
    name = str(getattr(event.type, "value", event.type)).removeprefix("response.")
    stem, _, verb = name.rpartition(".")
    if verb == "delta":
        number = event.output_index if stem == "function_call_arguments" else 0
        outcome.add(Channel(0, _KINDS[stem], number), event.delta)
    if verb == "incomplete":
        outcome.finish[0] = event.response.incomplete_details.reason
    if name in ("completed", "incomplete"):
        # What a client gathered of the deltas is what the whole response says.
        gathered, outcome.texts = outcome.texts, {}
        _read_response(outcome, event.response)
        assert _unnumbered(gathered) == outcome.texts


def _read_response(outcome: Outcome, response: Any) -> None:
    texts: dict[Channel, str] = {}
    for number, item in enumerate(response.model_dump(warnings=False)["output"]):
        for part in [*(item.get("summary") or ()), *(item.get("content") or ())]:
            kind = "reasoning" if item["type"] == "reasoning" else "content"
            if part.get("refusal"):
                kind = "refusal"
            channel = Channel(0, kind)  # type: ignore[arg-type]
            texts[channel] = texts.get(channel, "") + (part.get("text") or part.get("refusal", ""))
        if "arguments" in item:
            texts[Channel(0, "tool", number)] = item["arguments"]
    outcome.texts |= _unnumbered(texts)
    if response.incomplete_details:
        outcome.finish[0] = response.incomplete_details.reason


def _note_bytes(outcome: Outcome, chunk: Any) -> None:
    for event in r.plain(chunk):
        _note_message(outcome, event)


def _note_message(outcome: Outcome, event: dict[str, Any]) -> None:
    blocks: dict[int, Channel] = outcome.__dict__.setdefault("blocks", {})
    kind, index = event["type"], event.get("index")
    if kind == "content_block_start":
        block = event["content_block"]
        tools = sum(channel.kind == "tool" for channel in blocks.values())
        blocks[index] = {
            "text": Channel(),
            "thinking": Channel(0, "reasoning"),
            "tool_use": Channel(0, "tool", tools),
        }[block["type"]]
        assert not any(map(block.get, ("text", "thinking", "input")))
    elif kind == "content_block_delta":
        delta = event["delta"]
        said = delta.get("text") or delta.get("thinking") or delta.get("partial_json") or ""
        outcome.add(blocks[index], said)
    elif kind == "message_delta":
        _note_reason(outcome, event["delta"]["stop_reason"])
    elif kind == "error":  # as LiteLLM tells of a provider that fails; Anthropic's client raises it
        outcome.error = RuntimeError(event["error"]["message"])


def _note_reason(outcome: Outcome, reason: str) -> None:
    outcome.finish[0] = "content_filter" if reason == "refusal" else reason


def _read_message(outcome: Outcome, message: Any) -> None:
    if not isinstance(message, dict):  # as LiteLLM's callbacks hear of it
        r.read_answer(outcome, message)
        return
    _note_reason(outcome, message["stop_reason"])
    tools = 0
    for block in message["content"]:
        said = block if isinstance(block, dict) else block.model_dump()
        if said["type"] == "tool_use":
            outcome.add(Channel(0, "tool", tools), json.dumps(said["input"], ensure_ascii=False))
            tools += 1
        else:
            kind = "reasoning" if said["type"] == "thinking" else "content"
            outcome.add(Channel(0, kind), said.get("thinking") or said.get("text") or "")  # type: ignore[arg-type]


def _runnable(outcome: Outcome) -> None:
    """Keep of a stopped message's calls those that a client could run."""
    for channel in [c for c in outcome.texts if c.kind == "tool"]:
        said = outcome.texts.pop(channel)
        with contextlib.suppress(ValueError):
            outcome.texts[channel] = json.loads(said)["v"]
        assert channel in outcome.texts or outcome.ends or outcome.error


def _unnumbered(texts: dict[Channel, str]) -> dict[Channel, str]:
    """The texts with tool calls numbered from 0, in their order, and no empty ones."""
    calls = sorted(c for c in texts if c.kind == "tool" and texts[c])
    others = {c: t for c, t in texts.items() if c.kind != "tool" and t}
    return others | {Channel(0, "tool", n): texts[c] for n, c in enumerate(calls)}


def _openai(model: str) -> Callable[[World], dict[str, Any]]:
    def call(world: World) -> dict[str, Any]:
        base = {"api_base": world.provider.openai, "api_key": "k", "max_retries": 0}
        return {"model": f"openai/{model}", **base}

    return call


def _local(world: World) -> dict[str, Any]:
    several = {"n": world.replay.choices} if world.replay.choices > 1 else {}
    return {"model": "replay/x", **several}


_ALL = ("content", "reasoning", "tool")
CHAT = Door("completion", {"messages": r.MESSAGES}, _note_chat, r.read_answer, _ALL)
TEXT = Door("text_completion", {"prompt": "Tell me."}, _note_text, _note_text, _ALL[:1])
EVENTS = (*_ALL, "refusal")
RESPONSES = Door("responses", {"input": "Tell me."}, _note_event, _read_response, EVENTS)

MESSAGES = Door(
    "messages",
    {"messages": r.MESSAGES, "max_tokens": 1000},
    _note_bytes,
    _read_message,
    _ALL,
    "anthropic_messages_handler",
    _runnable,
)


def _anthropic(world: World) -> dict[str, Any]:
    base = {"api_base": world.provider.anthropic, "api_key": "k"}
    return {"model": "anthropic/claude-sonnet-4-5", **base}


IN_PROCESS = Source(_local, _replayed, wire=False)
# LiteLLM knows that the one model streams responses, and replays whole ones of the other.
KNOWN = Source(_openai("gpt-4o"), _wired, wire=True)
UNKNOWN = Source(_openai("x"), _wired, wire=True)

ANTHROPIC = Source(_anthropic, _messages_wired, wire=True)

TABLE = [
    row
    for row in [
        Row("chat", CHAT, IN_PROCESS),
        Row("text", TEXT, UNKNOWN),
        Row("text from chat", TEXT, IN_PROCESS),
        Row("responses", RESPONSES, KNOWN),
        Row("responses from chat", RESPONSES, IN_PROCESS),
        Row("responses replayed", RESPONSES, UNKNOWN),
        AsyncRow("messages", MESSAGES, ANTHROPIC),
        AsyncRow(
            "messages from responses", MESSAGES, KNOWN._replace(play=_messages_from_responses)
        ),
        Row("messages from chat", MESSAGES, IN_PROCESS._replace(play=_messages_from_chat)),
    ]
    if ALL_DOORS or row.door in (CHAT, TEXT)
]
