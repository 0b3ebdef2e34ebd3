"""Answers and streams on LiteLLM's proxy: the door of each, and the state of a request."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field, replace
from types import AsyncGeneratorType
from typing import Any

from litellm.types.llms.openai import (
    HttpxBinaryResponseContent,
    OpenAIFileObject,
    ResponsesAPIResponse,
)
from litellm.types.rerank import RerankResponse
from litellm.types.utils import (
    EmbeddingResponse,
    ImageResponse,
    LiteLLMBatch,
    LiteLLMFineTuningJob,
    ModelResponse,
    TextCompletionResponse,
    TranscriptionResponse,
)

from guard.doors import chat, messages, responses, text
from guard.doors.chat.stream import ChatStream
from guard.doors.door import Arguments, Door, session_of_call, unreadable
from guard.doors.driver import GuardedStream
from guard.doors.litellm import closing
from guard.doors.litellm.compat import (
    PROXY_LINKS,
    BaseResponsesAPIStreamingIterator,
    CustomStreamWrapper,
    TextCompletionStreamWrapper,
    emit_guardrail_metrics,
)
from guard.doors.messages.door import MessagesStream
from guard.doors.plain import AsyncTextStream
from guard.doors.responses.door import ResponsesStream
from guard.doors.session import DoorSession
from guard.doors.text.door import TextCompletionStream
from guard.policy import Policy
from guard.verdict import BIAS_TYPES, FAILURES, Action, Decision

_STREAMS = (TextCompletionStreamWrapper, CustomStreamWrapper, BaseResponsesAPIStreamingIterator)
# Textless answers of routes on which LiteLLM does not set the call type.
_TEXTLESS = (
    *(EmbeddingResponse, RerankResponse, TranscriptionResponse, HttpxBinaryResponseContent),
    *(OpenAIFileObject, LiteLLMBatch, LiteLLMFineTuningJob),
)
_BY_STRENGTH: tuple[Action, ...] = ("pass", "flag", "redact", "rewrite", "terminate", "raise")
# Upper bound of the wrappers around a stream.
_MOST = 256


class Layers:
    """Reads a stream through the wrappers of the proxy's other hooks.

    All other attributes are those of the stream itself.
    """

    def __init__(self, chunks: Any, stream: Any) -> None:
        # Names that guard.doors.litellm.closing follows.
        self._async_generator = chunks
        self.streaming_response = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.streaming_response, name)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        return await self._async_generator.__anext__()


async def guarded_stream(chunks: Any, session: DoorSession, call: Arguments) -> GuardedStream:
    """Return the guarded stream of the chunks that the proxy passes to a hook.

    ``call`` holds the request's arguments. Raises UsageError, and closes ``chunks``, if they are
    not read from a stream that a door can guard.
    """
    try:
        return _guarded_stream(chunks, session_of_call(session, call), call)
    except BaseException:
        await closing.aclose(chunks)
        raise


def _guarded_stream(chunks: Any, session: DoorSession, call: Arguments) -> GuardedStream:
    if _of_messages(call):
        session, user, _ = _read_call(messages.DOOR, session, call)
        return MessagesStream(Layers(chunks, _unwrapped(chunks)), session, user=user)
    stream = beneath(chunks)
    upstream: Any = Layers(chunks, stream)
    if isinstance(stream, TextCompletionStreamWrapper):
        session, user, n = _read_call(text.DOOR, session, call)
        return TextCompletionStream(upstream, session, user=user, n=n)
    if isinstance(stream, CustomStreamWrapper):
        session, user, n = _read_call(chat.DOOR, session, call)
        return ChatStream(upstream, session, user=user, n=n)
    if isinstance(stream, BaseResponsesAPIStreamingIterator):
        session, user, _ = _read_call(responses.DOOR, session, call)
        return ResponsesStream(upstream, session, user=user)
    raise unreadable(chunks, "streamed")


def beneath(chunks: Any) -> Any:
    """Return LiteLLM's stream inside the proxy's wrappers; None if no door can guard it."""
    waiting = [chunks]
    for _ in range(_MOST):
        if not waiting:
            break
        part = waiting.pop(0)
        if isinstance(part, _STREAMS):
            return part
        if isinstance(part, AsyncGeneratorType):
            frame = part.ag_frame
            values = list(frame.f_locals.values()) if frame is not None else []
        else:
            values = [getattr(part, name, None) for name in PROXY_LINKS]
        waiting += [value for value in values if hasattr(type(value), "__anext__")]
    return None


def check_choices(call: Arguments, call_type: str) -> None:
    """Raise UsageError if a request has an invalid ``n``, before a model is called."""
    if call_type.endswith("completion"):
        chat.DOOR.choices(call)


def textless(response: object, call: Arguments, *, expected: bool = False) -> bool:
    """Whether a whole answer is known to hold no text of a model (an embedding, for example).

    ``expected``: the route returns no text, so every answer is textless that no door reads.
    """
    if isinstance(response, list):
        return all(textless(element, call, expected=expected) for element in response)
    if isinstance(response, ImageResponse) or _door(response, call) is not None:
        return False
    return expected or isinstance(response, _TEXTLESS)


def _unwrapped(chunks: Any) -> Any:
    """Return the stream inside the proxy's wrappers, which may be a bare generator."""
    for name in PROXY_LINKS:
        inner = getattr(chunks, name, None)
        if hasattr(type(inner), "__anext__"):
            return _unwrapped(inner)
    return chunks


async def guarded_answer(response: Any, session: DoorSession, call: Arguments) -> Any:
    """Return a whole answer as it may go out; for a list of answers, each of them.

    LiteLLM returns a list if a request names several models. It may hold the errors of models
    that failed; these may quote a model's text, so only their type goes out. Raises BiasFound and
    DetectorError under the action ``raise``; UsageError if no door can read the answer.
    """
    if isinstance(response, list) and not _of_messages(call):
        return [await guarded_answer(element, session, call) for element in response]
    if isinstance(response, Exception):
        kind = type(response).__name__
        return {"error": {"message": "The call to this model failed.", "type": kind}}
    if isinstance(response, ImageResponse):
        return await _guarded_images(response, session)
    if textless(response, call):
        return response
    door = _door(response, call)
    if door is None:
        raise unreadable(response, "whole")
    session, user, n = _read_call(door, session, call)
    answer = await door.aguard(session_of_call(session, call), response, user=user, n=n)
    # The proxy serialises the answer; the trail is for the caller only.
    object.__delattr__(answer, "guard")
    return answer


async def guarded_text(text: str, session: DoorSession) -> str:
    """Return a text as it may go out; raises BiasFound and DetectorError as a stream does."""

    async def once() -> AsyncIterator[str]:
        yield text

    return "".join([released async for released in AsyncTextStream(once(), session)])


async def _guarded_images(response: ImageResponse, session: DoorSession) -> ImageResponse:
    """Judge the prompts that a model has revised; the images themselves are not judged."""
    images = []
    for image in response.data or []:
        prompt = image.revised_prompt
        released = await guarded_text(prompt, session) if prompt else prompt
        if released != prompt:
            image = image.model_copy(update={"revised_prompt": released})
        images.append(image)
    return response.model_copy(update={"data": images}) if response.data else response


def _of_messages(call: Arguments) -> bool:
    """Whether a request uses Anthropic's Messages API; the answer's class does not show it."""
    return getattr(call.get("litellm_logging_obj"), "call_type", None) == "anthropic_messages"


def _door(response: object, call: Arguments) -> Door | None:
    if _of_messages(call):
        return messages.DOOR
    if isinstance(response, ModelResponse):
        return chat.DOOR
    if isinstance(response, TextCompletionResponse):
        return text.DOOR
    return responses.DOOR if isinstance(response, ResponsesAPIResponse) else None


def _read_call(door: Door, session: DoorSession, call: Arguments) -> tuple[DoorSession, str, int]:
    """Return the session at ``door``, the user's message and the number of choices."""
    session = replace(session, door=door.name)
    return session, door.user_shown(session, call), door.choices(call)


@dataclass
class GuardedRequest:
    """One request on the proxy: its session and the guard's decisions, without the text."""

    session: DoorSession
    kind: str = ""  # LiteLLM's call type, if it set one
    over: bool = False  # whether all of it was judged
    entry: dict[str, Any] | None = None  # its entry in LiteLLM's guardrail log
    began: float = field(default_factory=time.time)
    decisions: list[Decision] = field(default_factory=list)

    def __post_init__(self) -> None:
        sinks = (*self.session.sinks, self.decisions.append)
        self.session = replace(self.session, sinks=sinks)

    @property
    def stopped(self) -> bool:
        """Whether the guard ended the output."""
        return any(d.action in ("terminate", "raise") for d in self.decisions)

    @property
    def types(self) -> dict[str, int]:
        """How often each bias type was found."""
        types = (str(d.verdict.bias_type) for d in self.decisions if d.verdict.biased and d.counted)
        return dict(Counter(types))

    @property
    def judging_s(self) -> float:
        """Seconds that the detector took."""
        return sum(d.verdict.elapsed_ms for d in self.decisions) / 1000

    @property
    def status(self) -> str:
        """LiteLLM's name of the outcome."""
        if any(d.verdict.biased and d.action != "flag" for d in self.decisions):
            return "guardrail_intervened"
        failed = any(d.verdict.unjudged in FAILURES for d in self.decisions)
        return "guardrail_failed_to_respond" if failed else "success"

    def facts(self) -> dict[str, Any]:
        """Return the key facts for logs: counts, types and scores."""
        policy = self.session.policy
        judged = [d.verdict for d in self.decisions if not d.verdict.unjudged]
        last = self.decisions[-1].verdict if self.decisions else None
        return {
            "segments": len(self.decisions),
            "findings": sum(self.types.values()),
            "bias_types": self.types,
            "actions": dict(Counter(d.action for d in self.decisions if d.action != "pass")),
            "stopped": self.stopped,
            "unjudged": len(self.decisions) - len(judged),
            "highest_score": max((v.score for v in judged if v.score is not None), default=None),
            **_judged_by(policy),
            "detector": last.detector if last else None,
            "index_version": last.index_version if last else None,
            "judging_ms": round(self.judging_s * 1000, 3),
        }

    def details(self) -> dict[str, Any]:
        """Return what LiteLLM's guardrail log has fields of its own for, beside the facts."""
        scores = [d.verdict.score for d in self.decisions if d.verdict.score is not None]
        biased = bool(self.types)
        return {
            "detection_method": self.decisions[-1].verdict.detector if self.decisions else None,
            "classification": self.types or None,
            "violation_categories": sorted(self.types) if biased else None,
            "guardrail_action": _strongest(d.action for d in self.decisions),
            "risk_score": round(10 * max(scores), 1) if scores else None,
        }

    def measure(self, guardrail_name: str | None, error: Exception | None) -> None:
        """Count a stream in LiteLLM's guardrail metrics; LiteLLM itself counts whole answers."""
        intervened = self.status == "guardrail_intervened" and error is None
        emit_guardrail_metrics(
            guardrail_name=guardrail_name,
            latency_seconds=self.judging_s,
            status="error" if error else "intervened" if intervened else "success",
            error_type=type(error).__name__ if error else None,
            hook_type="post_call",
        )

    def headers(self) -> dict[str, str]:
        """Return the response headers; those of a stream are sent before its findings are known."""
        policy = self.session.policy
        known: dict[str, str] = {
            **{f"x-guard-{k.replace('_', '-')}": _text(v) for k, v in _judged_by(policy).items()},
            "x-guard-action": policy.action,
            **({"x-guard-actions": _text(policy.actions)} if policy.actions else {}),
            "x-guard-hold": policy.hold,
        }
        if not self.over:
            return known
        return known | {
            "x-guard-stopped": str(self.stopped).lower(),
            "x-guard-findings": str(sum(self.types.values())),
            "x-guard-bias-types": ",".join(sorted(self.types)),
        }


def _strongest(actions: Iterable[Action]) -> Action:
    """Return the action that interferes most with an answer."""
    return max(actions, key=_BY_STRENGTH.index, default="pass")


def _judged_by(policy: Policy) -> dict[str, Any]:
    """Return the settings of the thresholds: the operating point only if it still sets one."""
    by: dict[str, Any] = {}
    if set(policy.thresholds) != set(BIAS_TYPES):
        by = {"operating_point": policy.operating_point}
        if policy.threshold is not None:
            by = {"threshold": policy.threshold}
    return by | ({"thresholds": dict(policy.thresholds)} if policy.thresholds else {})


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{key}={value[key]}" for key in sorted(value))
    return str(value)
