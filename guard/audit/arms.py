"""The guarded arm: replays recorded chunks through the chat door and reads what came out."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace

from litellm.types.utils import Delta, ModelResponseStream, StreamingChoices

from guard.audit.calls import Guarded, Piece, Reading, Reply
from guard.audit.outcomes import sentence_key
from guard.core import Guard
from guard.doors import chat
from guard.doors.chat.stream import ChatStream
from guard.doors.litellm.compat import CustomStreamWrapper
from guard.errors import BiasFound, DetectorError
from guard.policy import Policy
from guard.suites import Chat
from guard.verdict import GuardTrail

Door = Callable[[Guard, str, Chat, Reply], Awaitable[Guarded | None]]


async def through_door(guard: Guard, key: str, request: Chat, reply: Reply) -> Guarded:
    """Return what a user behind ``guard`` would have seen instead of ``reply``."""
    session = guard.session()
    messages = [dict(m) for m in request.messages]
    user = _DOOR.user_shown(session, {"messages": messages})
    stream = _DOOR.guard(session, Recorded(reply, messages), user=user)
    shown: list[str] = []
    stopped: Reading | None = None
    began = time.perf_counter()
    try:
        async for chunk in stream:
            shown += [c.delta.content for c in chunk.choices if c.delta.content]
    except BiasFound:
        stopped = "guarded"
    except DetectorError:
        stopped = "unjudged"
    finally:
        await stream.aclose()
    seconds = round(time.perf_counter() - began, 4)
    trail: GuardTrail = stream.guard
    answer, text = reply.answer.text, "".join(shown)
    reading = stopped or _reading_of(trail, text == answer)
    if reading == "same":
        return Guarded(key, reading, seconds=seconds)
    verdicts = [d.verdict for d in trail.findings]
    types = tuple(dict.fromkeys(v.bias_type for v in verdicts if v.bias_type))
    score = max((v.score for v in verdicts if v.score is not None), default=float("nan"))
    own, kept = _own_text(guard.policy, text, answer)
    ended = bool(stopped) or trail.stopped
    return Guarded(key, reading, text, types, score, own, kept, ended, seconds)


async def sentence_through_door(
    guard: Guard, key: str, request: Chat, reply: Reply
) -> Guarded | None:
    """Return the reading of the sentence that the answer completes; None where it completes none.

    No user gets that sentence, so the reading is no part of the guarded arm.
    """
    sentence = request.sentence(reply.answer.text)
    if not sentence:
        return None
    return await through_door(
        guard, sentence_key(key), request, replace(reply, pieces=(Piece(sentence),))
    )


def _own_text(policy: Policy, text: str, answer: str) -> tuple[int, float]:
    """Return the length of ``text`` before the guard's message, and its share of ``answer``."""
    own = text
    for message in (policy.message, policy.failure_message):
        own = own.removesuffix(message)
    replaced = own.count(policy.replacement) - answer.count(policy.replacement)
    length = len(own) - len(policy.replacement) * max(replaced, 0)
    return len(own), round(min(length / len(answer), 1.0), 4) if answer else 0.0


def _reading_of(trail: GuardTrail, same: bool) -> Reading:
    if same and not trail.stopped:
        return "same"
    acted = any(d.verdict.biased and d.action not in ("pass", "flag") for d in trail)
    return "guarded" if acted else "unjudged"


class Recorded(CustomStreamWrapper):
    """A stream of recorded chunks with LiteLLM's type; no callback gets a report of it."""

    def __init__(self, reply: Reply, messages: list[dict[str, str]]) -> None:
        # LiteLLM's own constructor needs a live connection, so it is not called.
        self.model = "recorded"
        self.messages = messages
        self.chunks: list[ModelResponseStream] = []
        self._chunks = _reply_chunks(reply)

    async def __anext__(self) -> ModelResponseStream:
        chunk = next(self._chunks, None)
        if chunk is None:
            raise StopAsyncIteration
        self.chunks.append(chunk)
        return chunk

    async def aclose(self) -> None:
        """Do nothing: there is no connection."""


class _Replayed(ChatStream):
    """The door's stream without callbacks, which already have the call's report."""

    def _logging(self) -> None:
        return None


_DOOR = replace(
    chat.DOOR, wrap=lambda stream, session, user, n: _Replayed(stream, session, user=user, n=n)
)


def _reply_chunks(reply: Reply) -> Iterator[ModelResponseStream]:
    deltas = [
        Delta(reasoning_content=piece.text) if piece.reasoning else Delta(content=piece.text)
        for piece in reply.pieces
    ]
    choices = [StreamingChoices(index=0, delta=delta) for delta in deltas]
    choices.append(StreamingChoices(index=0, delta=Delta(), finish_reason=reply.finish_reason))
    for choice in choices:
        yield ModelResponseStream(id="recorded", created=0, model="recorded", choices=[choice])
