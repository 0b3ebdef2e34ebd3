"""What all doors do around a LiteLLM call, whole or streamed, sync or async."""

from __future__ import annotations

import inspect
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import litellm

from guard.background import ending
from guard.doors.context import guarded, inside
from guard.doors.driver import GuardedStream
from guard.doors.errors import ajudged_error, judged_error
from guard.doors.litellm import closing
from guard.doors.litellm.compat import (
    HIDDEN,
    check_door,
    hidden_params,
    set_hidden_params,
)
from guard.doors.litellm.records import Delivery, defer_logging
from guard.doors.rewrite import Asker, Continuation, cannot_rewrite
from guard.doors.schemas import fixes_strings
from guard.doors.session import DoorSession
from guard.doors.strings import member
from guard.doors.sync_or_async import SyncOrAsync, call_async, call_sync, run_without_loop
from guard.errors import UsageError
from guard.gate import ResponseGate

Arguments = Mapping[str, Any]
MOST_CHOICES = 1024
"""Upper bound of ``n``, above any provider's: guard allocates state for every choice."""


class Whole:
    """A whole (not streamed) answer and its gate."""

    gate: ResponseGate[Any]

    def delivered(self) -> Any:
        """Return the answer as released so far; the provider's object if nothing was cut."""
        raise NotImplementedError

    def released(self) -> Any:
        """Return the answer as it may go out, once all is judged, with the trail as its ``guard``.

        Raises the gate's error under the action ``raise``.
        """
        delivered = self.delivered()
        if self.gate.error is not None:
            raise self.gate.error
        # Not by pydantic, which would make it a field of the response.
        object.__setattr__(delivered, "guard", self.gate.trail)
        return delivered


@dataclass(frozen=True, slots=True)
class Door:
    """A pair of LiteLLM functions, sync and async, and how to guard them.

    ``name`` is what events call the door.
    ``wrap`` takes a response, the session, the user's message and the number of choices
    requested. It returns a guarded stream or a :class:`Whole`; it raises UsageError on anything
    else. ``user`` and ``choices`` read the user's last message and the number of choices from a
    call's arguments.
    """

    name: str
    function: str
    async_function: str
    wrap: Callable[[Any, DoorSession, str, int], Any]
    user: Callable[[Arguments], str]
    choices: Callable[[Arguments], int] = lambda _: 1
    continuation: Continuation | None = None
    """Makes the call that continues an answer (action ``rewrite``); None if not supported."""
    records: bool = True
    """Whether LiteLLM's records of a call can be deferred (``litellm_records``)."""
    newer: bool = False
    """Whether the door is refused with a LiteLLM older than ``compat.ALL_DOORS``."""

    def call(
        self, session: DoorSession, args: Sequence[Any], kwargs: Arguments, owner: Any = litellm
    ) -> Any:
        """Call the function of ``owner``, LiteLLM or a Router, and guard its answer.

        Raises LiteLLM's errors (without their message if it is found biased); BiasFound and
        DetectorError under the action ``raise``; UsageError if the answer is not text, if ``n``
        is not a whole number, or if the policy asks for rewriting or deferred records and this
        door does not support it; ConfigError if LiteLLM is too old for this door.
        """
        function = getattr(owner, self.function)
        if guarded():
            return function(*args, **kwargs)
        self._check()
        with frames_cleared():
            return run_without_loop(
                self._call(call_sync, self.function, function, session, args, kwargs)
            )

    async def acall(
        self, session: DoorSession, args: Sequence[Any], kwargs: Arguments, owner: Any = litellm
    ) -> Any:
        """Call the async function; otherwise as :meth:`call`."""
        function = getattr(owner, self.async_function)
        if guarded():
            return await function(*args, **kwargs)
        self._check()
        name = self.async_function
        with frames_cleared():
            return await self._call(call_async, name, function, session, args, kwargs)

    def _check(self) -> None:
        if self.newer:
            check_door(f"calls of {self.name}")

    async def _call(
        self,
        call: SyncOrAsync,
        name: str,
        function: Callable[..., Any],
        session: DoorSession,
        args: Sequence[Any],
        kwargs: Arguments,
    ) -> Any:
        arguments = self.arguments(function, args, kwargs)
        session = session_of_call(session, arguments)
        if session.request_id is None:
            # LiteLLM would make an id, too, but not all of its answers carry it.
            session = replace(session, request_id=str(uuid.uuid4()))
            kwargs = {**kwargs, "litellm_call_id": session.request_id}
        user, n = self.user_shown(session, arguments), self.choices(arguments)
        asker = self.asker(session, function, arguments)
        session, kwargs = self._recorded(session, name, args, kwargs)
        failed: Exception | None = None
        try:
            with inside():
                response = await call(function, function, *args, **kwargs)
        except Exception as error:
            failed = error
        if failed is not None:  # raised outside `except`, so that it does not chain the original
            raise await call(judged_error, ajudged_error, failed, session)
        return await self._guard(call, session, response, user, n, asker)

    def guard(self, session: DoorSession, response: object, *, user: str = "", n: int = 1) -> Any:
        """Guard a response of LiteLLM, whole or streamed; a stream is judged as it is read.

        ``n`` is the number of choices requested. A stream that cannot be guarded is closed. The
        action ``rewrite`` becomes ``terminate``.
        """
        body = self._guard(call_sync, session, response, user, n)
        del response  # or the traceback of an error would lead to it
        with frames_cleared():
            return run_without_loop(body)

    async def aguard(
        self, session: DoorSession, response: object, *, user: str = "", n: int = 1
    ) -> Any:
        """Guard as :meth:`guard` does, without blocking the event loop."""
        body = self._guard(call_async, session, response, user, n)
        del response
        with frames_cleared():
            return await body

    async def _guard(
        self,
        call: SyncOrAsync,
        session: DoorSession,
        response: object,
        user: str,
        n: int,
        asker: Asker | None = None,
    ) -> Any:
        stream = _unwrapped(response)
        session = replace(_session_of_answer(session, stream), door=self.name)
        try:
            wrapped = self.wrap(stream, session, user, n)
        except BaseException as error:
            await call(closing.close, closing.aclose, stream)
            if (deferred := session.deferred) is not None:
                await call(deferred.fail, deferred.afail, error)
            raise
        if asker is not None:
            wrapped.may_ask(asker)
        if isinstance(wrapped, GuardedStream):
            if response is not stream:  # it was in a wrapper that adds headers
                set_hidden_params(wrapped, hidden_params(response))
            return wrapped
        with session.recording(wrapped.gate.trail):
            with _recording(session, wrapped, stream):
                await call(session.judge_pending, session.ajudge_pending, wrapped.gate)
            while wrapped.gate.needs_rewrite and asker is not None:
                released, trail = wrapped.delivered_text(), wrapped.gate.trail
                wrapped.resume(await call(asker.ask, asker.aask, released, trail), asker)
                await call(session.judge_pending, session.ajudge_pending, wrapped.gate)
            return wrapped.released()

    def asker(
        self, session: DoorSession, function: Callable[..., Any], call: Arguments
    ) -> Asker | None:
        """Return the Asker for the action ``rewrite``; None if the policy does not use it.

        Raises UsageError if this door does not support the action.
        """
        if not session.policy.rewrites:
            return None
        if self.continuation is None:
            raise cannot_rewrite(self.function)
        return Asker(function, call, self.continuation, session.policy)

    def _recorded(
        self, session: DoorSession, function: str, args: Sequence[Any], kwargs: Arguments
    ) -> tuple[DoorSession, Arguments]:
        """Return session and arguments of a call, with deferred records if the policy says so.

        Raises UsageError if this door does not support that.
        """
        if session.policy.litellm_records == "raw":
            return session, kwargs
        if not self.records:
            raise UsageError(
                f"litellm_records='guarded' does not work for {function}; leave it 'raw' for this "
                'call: guard={"litellm_records": "raw"}.'
            )
        deferred, kwargs = defer_logging(function, args, kwargs)
        return replace(session, deferred=deferred), kwargs

    def arguments(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Arguments
    ) -> Arguments:
        """Return a call's arguments by name."""
        if not args:
            return kwargs
        names = _names(function) or _names(getattr(litellm, self.function))
        return {**dict(zip(names, args, strict=False)), **kwargs}

    def user_shown(self, session: DoorSession, call: Arguments) -> str:
        """Return the user's last message if the policy uses it, else "".

        It is context for the detector, or names the group that a pronoun may refer to.
        """
        policy = session.policy
        return self.user(call) if policy.user_context or policy.hold == "association" else ""


@contextmanager
def frames_cleared() -> Iterator[None]:
    """Clear the local variables of the calls that an error of this block passed through.

    An error reporter logs them, and among them is the answer that the guard withheld.
    """
    try:
        yield
    except Exception as error:
        traceback.clear_frames(error.__traceback__)
        raise


def session_of_call(session: DoorSession, call: Arguments) -> DoorSession:
    """Return the session of a call: its decisions carry the call's model and request id."""
    model, request_id = (
        value if isinstance(value := call.get(name), str) else None
        for name in ("model", "litellm_call_id")
    )
    fixed = session.policy.redacts and fixes_strings(call, session.policy.replacement)
    span = _parent_span(call)
    return replace(session, model=model, request_id=request_id, parent_span=span, fixed=fixed)


def _parent_span(call: Arguments) -> Any:
    """Return the span that a call's metadata name, as LiteLLM documents it and its proxy does."""
    for name in ("metadata", "litellm_metadata"):
        metadata = call.get(name)
        if isinstance(metadata, Mapping):
            span = metadata.get("litellm_parent_otel_span")
            if hasattr(span, "add_event"):
                return span
    return None


def _session_of_answer(session: DoorSession, response: Any) -> DoorSession:
    """Return the session with the request id of an answer, if its call is unknown (a batch)."""
    if session.request_id is None:
        hidden = member(member(response, HIDDEN), "litellm_call_id")
        logging = getattr(response, "logging_obj", None)
        request_id = hidden or getattr(logging, "litellm_call_id", None)
        session = replace(session, request_id=request_id)
    return session


@contextmanager
def _recording(session: DoorSession, whole: Whole, response: object) -> Iterator[None]:
    """Have LiteLLM report and store a whole answer, also if judging it fails."""
    dropped_to = ending.opened()
    try:
        yield
    except GeneratorExit:  # the coroutine is discarded: see EndsWhenDropped
        dropped_to.put(partial(_record, session, whole, response, judged=False))
        raise
    except BaseException:
        _record(session, whole, response, judged=False)
        raise
    _record(session, whole, response, judged=True)


def _record(session: DoorSession, whole: Whole, response: object, *, judged: bool) -> None:
    if session.deferred is not None:
        delivered = whole.delivered()
        stopped = not judged or whole.gate.trail.stopped
        changed = delivered is not response
        session.deferred.close(Delivery(delivered, changed=changed, stopped=stopped))


def _unwrapped(response: Any) -> Any:
    """Return the stream inside the wrapper that LiteLLM's Router uses to add headers."""
    inner = getattr(response, "inner", None)
    return inner if hasattr(inner, "__anext__") else response


def unreadable(response: object, kind: str) -> UsageError:
    """Return the error for a response that a door cannot read."""
    return UsageError(
        f"LiteLLM answered a {kind} call with {type(response).__name__}, which guard cannot read;"
        " call it without guard, or use the matching function of guard."
    )


def number_of_choices(call: Arguments) -> int:
    """Return the ``n`` of a call; raises UsageError unless it is an integer in range."""
    n = call.get("n")
    if n is None:
        return 1
    if not isinstance(n, int):
        raise UsageError(f"n must be a whole number, got {n!r}.")
    if n > MOST_CHOICES:
        raise UsageError(
            f"n must be at most {MOST_CHOICES}, got {n}; guard holds state for each choice."
        )
    return max(n, 1)


def last_message(messages: object) -> str:
    """Return the text of the user's last message; a string is one message."""
    if isinstance(messages, str):
        return messages
    if not isinstance(messages, Sequence):
        return ""
    return next((_text(m) for m in reversed(messages) if member(m, "role") == "user"), "")


def _names(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the positional parameters."""
    parameters = inspect.signature(function).parameters.values()
    return tuple(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD)


def _text(message: Any) -> str:
    content = member(message, "content")
    if isinstance(content, str):
        return content
    parts = (member(p, "text") for p in (content if isinstance(content, Sequence) else ()))
    return "\n".join(part for part in parts if isinstance(part, str))
