"""The guarded arm: recorded chunks replayed through the chat door, and what came out of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from litellm.types.utils import Delta, ModelResponseStream, StreamingChoices

from guard.audit.calls import Guarded, Piece, Reading, Reply
from guard.core import Guard
from guard.doors import chat
from guard.doors.chat.stream import ChatStream
from guard.doors.litellm.compat import CustomStreamWrapper
from guard.errors import BiasFound, DetectorError
from guard.policy import Policy
from guard.suites import Chat
from guard.verdict import GuardTrail


async def through_door(guard: Guard, key: str, request: Chat, reply: Reply) -> Guarded:
    """Return what a user behind ``guard`` would have seen in the place of ``reply``.

    An answer that shows no group by itself is judged with what it answers, as the request says.
    """
    if request.shown is not None and reply.answer.text:
        thought = [piece for piece in reply.pieces if piece.reasoning]
        told = Piece(request.shown(reply.answer.text))
        reply = replace(reply, pieces=(*thought, told))
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
    took = round(time.perf_counter() - began, 4)
    trail: GuardTrail = stream.guard
    said, text = reply.answer.text, "".join(shown)
    reading = stopped or _reading(trail, text == said)
    if reading == "same":
        return Guarded(key, reading, seconds=took)
    found = [d.verdict for d in trail.findings]
    own, kept = _own(guard.policy, text, said)
    return Guarded(
        key,
        reading,
        text,
        tuple(dict.fromkeys(v.bias_type for v in found if v.bias_type)),
        max((v.score for v in found if v.score is not None), default=float("nan")),
        own,
        kept,
        bool(stopped) or trail.stopped,
        took,
    )


def _own(policy: Policy, text: str, said: str) -> tuple[int, float]:
    """Return how much of ``text`` stands before the guard's message, and the share of ``said``."""
    own = text
    for message in (policy.message, policy.failure_message):
        own = own.removesuffix(message)
    put = own.count(policy.replacement) - said.count(policy.replacement)
    kept = len(own) - len(policy.replacement) * max(put, 0)
    return len(own), round(min(kept / len(said), 1.0), 4) if said else 0.0


def _reading(trail: GuardTrail, same: bool) -> Reading:
    if same and not trail.stopped:
        return "same"
    acted = any(d.verdict.biased and d.action not in ("pass", "flag") for d in trail)
    return "guarded" if acted else "unjudged"


class Recorded(CustomStreamWrapper):
    """A stream of recorded chunks that passes for LiteLLM's; nothing of it reaches callbacks."""

    def __init__(self, reply: Reply, messages: list[dict[str, str]]) -> None:
        # The constructor of LiteLLM's class is left out: it is about a live connection.
        self.model = "recorded"
        self.messages = messages
        self.chunks: list[ModelResponseStream] = []
        self._chunks = _chunks(reply)

    async def __anext__(self) -> ModelResponseStream:
        chunk = next(self._chunks, None)
        if chunk is None:
            raise StopAsyncIteration
        self.chunks.append(chunk)
        return chunk

    async def aclose(self) -> None:
        """Do nothing: there is no connection."""


class _Replayed(ChatStream):
    """The door's stream; callbacks hear nothing of it, for they heard of the call itself."""

    def _logging(self) -> None:
        return None


_DOOR = replace(
    chat.DOOR, wrap=lambda stream, session, user, n: _Replayed(stream, session, user=user, n=n)
)


def _chunks(reply: Reply) -> Iterator[ModelResponseStream]:
    for piece in reply.pieces:
        delta = (
            Delta(reasoning_content=piece.text) if piece.reasoning else Delta(content=piece.text)
        )
        yield _chunk(StreamingChoices(index=0, delta=delta))
    yield _chunk(StreamingChoices(index=0, delta=Delta(), finish_reason=reply.finish_reason))


def _chunk(choice: StreamingChoices) -> ModelResponseStream:
    return ModelResponseStream(id="recorded", created=0, model="recorded", choices=[choice])
