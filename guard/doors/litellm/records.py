"""LiteLLM's reports and cache writes of one call, deferred until the released text is known.

LiteLLM reports an answer to its callbacks, and writes it to its cache, before the guard has judged
it. Under ``litellm_records="guarded"`` a call gets a logging object of ours: LiteLLM's own, made by
its ``function_setup`` as its proxy does, with its class changed to :class:`DeferringLogging`. It
records the calls that LiteLLM makes on it. Once the released text is known, these calls are
replayed: with LiteLLM's own answer if all of it was released, else with the released answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import threading
import traceback
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context, copy_context
from typing import Any, NamedTuple

import litellm
from litellm.types.llms.openai import ResponsesAPIResponse
from litellm.types.utils import ModelResponseStream
from pydantic import BaseModel

from guard.doors.litellm.closing import keep_task
from guard.doors.litellm.compat import (
    HANDLERS,
    Logging,
    Untraced,
    defer_writes,
    executor,
    logging_of_call,
    stores,
    undeferred,
    untraced,
)

Replay = Callable[[Any], Any]


class _Entry(NamedTuple):
    """One recorded call of LiteLLM; ``replay`` takes the answer to report."""

    kind: str  # "received", "report", "failure" or "store"
    replay: Replay
    result: Any  # LiteLLM's own answer, or the error of a failure
    context: Context
    asynchronous: bool = False


class Delivery(NamedTuple):
    """The released answer of a call, and how to report it."""

    answer: Any  # None if nothing was released that LiteLLM can report
    changed: bool = False  # it differs from the provider's
    stopped: bool = False  # the guard ended it; it is not cached
    reported: bool = False  # the guard reports to the callbacks itself
    clean: Callable[[Exception], Exception] | None = None  # returns a reportable error


class DeferredLogging:
    """LiteLLM's reports and cache writes of one call, deferred until :meth:`close`.

    ``logging`` is LiteLLM's logging object of the call. Records that LiteLLM makes after ``close``,
    from a thread or task of its own, are made at once.
    """

    def __init__(self, logging: Any) -> None:
        self.streaming = False  # whether a stream was returned; later errors may quote its text
        self._held = logging
        self._kind: Any = Logging if isinstance(logging, DeferringLogging) else type(logging)
        self._immediate: Any = None
        self._lock = threading.Lock()
        self._reporting = threading.Lock()  # nested calls report twice; LiteLLM drops the second
        self._entries: list[_Entry] = []
        self._delivery: Delivery | None = None

    def __deepcopy__(self, memo: object) -> DeferredLogging:
        return self  # LiteLLM copies a call's arguments when it retries

    @property
    def immediate(self) -> Any:
        """A copy of LiteLLM's logging object that reports at once."""
        if self._immediate is None:
            self._immediate = copy.copy(self._held)
            self._immediate.__class__ = untraced(self._kind)
        return self._immediate

    @property
    def closed(self) -> bool:
        """Whether the released answer is known."""
        return self._delivery is not None

    def record(self, kind: str, replay: Replay, result: Any) -> None:
        """Record a call of LiteLLM; make it now if the released answer is known."""
        entry = _Entry(kind, replay, result, copy_context())
        if not self._append(entry):
            self._run(entry)

    async def arecord(self, kind: str, replay: Replay, result: Any) -> None:
        """Do the same as :meth:`record` for a call that LiteLLM awaits."""
        entry = _Entry(kind, replay, result, copy_context(), asynchronous=True)
        if not self._append(entry):
            await self._arun(entry)

    def _append(self, entry: _Entry) -> bool:
        with self._lock:
            if self._delivery is None:
                self._entries.append(entry)
            return self._delivery is None

    def close(self, end: Delivery) -> None:
        """Replay the recorded calls; a second ``close`` does nothing."""
        with self._lock:
            if self._delivery is not None:
                return
            if end.changed and isinstance(end.answer, BaseModel):
                end = end._replace(answer=end.answer.model_copy(deep=True))
            self._delivery = end
            entries, self._entries = self._entries, []
        if end.changed:
            self._held.model_call_details["original_response"] = _text(end.answer)
        for entry in sorted(entries, key=lambda e: e.kind != "received"):
            if entry.asynchronous:
                _spawn(self._arun(entry))
            elif entry.kind in ("report", "failure"):
                executor.submit(self._run, entry)
            else:
                self._run(entry)

    def fail(self, error: BaseException) -> None:
        """Report that the guard failed the call; its answer is not reported."""
        self.close(Delivery(None, changed=True, stopped=True, reported=True))
        self.immediate.failure_handler(error, "")

    async def afail(self, error: BaseException) -> None:
        """Do the same as :meth:`fail` from a coroutine."""
        self.fail(error)
        await self.immediate.async_failure_handler(error, "")

    def chunk(self, chunk: object) -> None:
        """Report a chunk that went out of a stream read by synchronous code, as LiteLLM does."""
        if isinstance(chunk, ModelResponseStream) and not litellm.disable_streaming_logging:
            executor.submit(self._chunk, chunk)

    def _chunk(self, chunk: ModelResponseStream) -> None:
        asyncio.run(self.immediate.async_success_handler(chunk, None, None, False))
        self.immediate.success_handler(chunk, None, None, False)

    def _run(self, entry: _Entry) -> None:
        if self._is_due(entry):
            with self._reporting if entry.kind == "report" else contextlib.nullcontext():
                entry.context.copy().run(entry.replay, self._replacement(entry))

    async def _arun(self, entry: _Entry) -> None:
        if not self._is_due(entry):
            return
        if entry.kind == "failure":  # it is judged first
            await entry.replay(await asyncio.to_thread(self._replacement, entry))
        else:
            await entry.replay(self._replacement(entry))

    def _is_due(self, entry: _Entry) -> bool:
        end = self._delivery
        assert end is not None
        if entry.kind == "report":
            return not end.reported and (not end.changed or end.answer is not None)
        if entry.kind == "failure":
            return not end.reported
        if entry.kind == "received":
            return not end.changed
        # LiteLLM may store another form of the answer (a chat for a response): only the released
        # form exists guarded.
        shape = ResponsesAPIResponse if entry.result is None else type(entry.result)
        return not end.stopped and (not end.changed or type(_response(end.answer)) is shape)

    def _replacement(self, entry: _Entry) -> Any:
        """Return the answer or error to report instead of LiteLLM's own."""
        end = self._delivery
        assert end is not None
        if entry.kind == "failure":
            return entry.result if end.clean is None else end.clean(entry.result)
        if entry.kind == "store":
            own = not end.changed and entry.result is not None
            return entry.result if own else _response(end.answer)
        if not end.changed:
            return entry.result
        # A copy: LiteLLM writes to the answer that it reports, and may report twice.
        return end.answer.model_copy(deep=True)


class DeferringLogging(Untraced, Logging):
    """LiteLLM's logging object of a call whose records are deferred."""

    guard_deferred: DeferredLogging

    @property
    def llm_caching_handler(self) -> Any:
        """LiteLLM's cache handler of the call; its writes are deferred."""
        return self.__dict__.get("llm_caching_handler")

    @llm_caching_handler.setter
    def llm_caching_handler(self, handler: Any) -> None:
        if handler is not None:
            _defer_writes(handler, self.guard_deferred)
        for name in HANDLERS:
            self.__dict__[name] = handler

    _llm_caching_handler = llm_caching_handler  # its only name until LiteLLM 1.105

    def post_call(self, original_response: Any, *args: Any, **kwargs: Any) -> None:
        """Record the provider's answer."""
        replay = self._replay("post_call", args, kwargs)
        self.guard_deferred.record("received", replay, original_response)

    def success_handler(self, result: Any = None, *args: Any, **kwargs: Any) -> None:
        """Record a report to the callbacks; the guard itself reports the released chunks."""
        if not isinstance(result, ModelResponseStream):
            replay = self._replay("success_handler", args, kwargs)
            self.guard_deferred.record("report", replay, result)

    async def async_success_handler(self, result: Any = None, *args: Any, **kwargs: Any) -> None:
        """Record a report to the async callbacks."""
        if not isinstance(result, ModelResponseStream):
            replay = self._replay("async_success_handler", args, kwargs)
            await self.guard_deferred.arecord("report", replay, result)

    async def dispatch_success_handlers(
        self, result: Any = None, *args: Any, **kwargs: Any
    ) -> None:
        """Record a report to all callbacks."""
        if not isinstance(result, ModelResponseStream):
            replay = self._replay("dispatch_success_handlers", args, kwargs)
            await self.guard_deferred.arecord("report", replay, result)

    def _replay(self, method: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Replay:
        """Return what reports at once by ``method``, with the answer that it takes."""
        deferred = self.guard_deferred
        return lambda result: getattr(deferred.immediate, method)(result, *args, **kwargs)

    def failure_handler(
        self, exception: Any, traceback_exception: Any, *args: Any, **kwargs: Any
    ) -> None:
        """Report a failure; only record it if a stream was returned, whose text it may quote."""
        if self.guard_deferred.streaming:
            own = exception, traceback_exception
            replay = self._replay_failure("failure_handler", own, args, kwargs)
            self.guard_deferred.record("failure", replay, exception)
        else:
            super().failure_handler(exception, traceback_exception, *args, **kwargs)

    async def async_failure_handler(
        self, exception: Any, traceback_exception: Any, *args: Any, **kwargs: Any
    ) -> None:
        """Do the same as :meth:`failure_handler` for the async callbacks."""
        if self.guard_deferred.streaming:
            own = exception, traceback_exception
            replay = self._replay_failure("async_failure_handler", own, args, kwargs)
            await self.guard_deferred.arecord("failure", replay, exception)
        else:
            await super().async_failure_handler(exception, traceback_exception, *args, **kwargs)

    def _replay_failure(
        self, method: str, own: tuple[Any, str], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Replay:
        """Return the same for a failure; ``own`` is LiteLLM's error with its traceback."""
        deferred = self.guard_deferred

        def replay(error: Any) -> Any:
            # A cleaned error gets a short traceback without quotations.
            short = "".join(traceback.format_exception_only(error))
            trace = own[1] if error is own[0] else short
            return getattr(deferred.immediate, method)(error, trace, *args, **kwargs)

        return replay

    def update_environment_variables(self, *args: Any, **kwargs: Any) -> None:
        """Begin an attempt; each failed attempt is reported, as with one logging object each."""
        for event in ("sync_failure", "async_failure"):
            self.model_call_details.pop(f"has_logged_{event}", None)
        if "original_response" in kwargs:  # an answer from the cache
            details = self.model_call_details

            def replay(original: Any) -> None:
                details["original_response"] = original

            self.guard_deferred.record("received", replay, kwargs.pop("original_response"))
        super().update_environment_variables(*args, **kwargs)


def defer_logging(
    function: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[DeferredLogging, dict[str, Any]]:
    """Return the deferred logging of a call of ``function``, and the arguments that defer it.

    A logging object passed with the call (as LiteLLM's proxy does) is used. Raises LiteLLM's
    errors on invalid arguments.
    """
    arguments = {"litellm_call_id": str(uuid.uuid4()), **kwargs}
    logging: Any = arguments.get("litellm_logging_obj")
    if logging is None:
        logging, arguments = logging_of_call(function, args, arguments)
    deferred = DeferredLogging(logging)
    logging.__class__ = DeferringLogging
    logging.guard_deferred = deferred
    return deferred, {**arguments, "litellm_logging_obj": logging}


def _defer_writes(handler: Any, deferred: DeferredLogging) -> None:
    """Defer the cache writes of a LiteLLM caching handler."""

    def sync_set_cache(result: Any, *args: Any, **kwargs: Any) -> None:
        store = undeferred(handler).sync_set_cache
        deferred.record("store", lambda r: store(r, *args, **kwargs), result)

    async def async_set_cache(result: Any, *args: Any, **kwargs: Any) -> None:
        store = undeferred(handler).async_set_cache
        await deferred.arecord("store", lambda r: store(r, *args, **kwargs), result)

    def streamed(original_function: Any, kwargs: Any) -> bool:
        # LiteLLM's Responses streams call this and then write to the cache themselves.
        if stores(handler, original_function=original_function, kwargs=kwargs):
            arguments = {**kwargs, "dynamic_cache_object": handler.dual_cache}
            deferred.record("store", lambda r: _store_response(r, arguments), None)
        return False

    defer_writes(handler, sync_set_cache, async_set_cache, streamed)


def _store_response(response: ResponsesAPIResponse, arguments: Mapping[str, Any]) -> None:
    cache: Any = litellm.cache
    if cache is None or not response.output:
        return
    text = response.model_dump_json(warnings=False)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        cache.add_cache(text, **arguments)
    else:
        _spawn(cache.async_add_cache(text, **arguments))


def _response(answer: Any) -> Any:
    """Return the response in the last event of a stream; anything else unchanged."""
    return getattr(answer, "response", answer)


def _text(answer: Any) -> str:
    return answer.model_dump_json(warnings=False) if isinstance(answer, BaseModel) else ""


def _spawn(awaitable: Any) -> None:
    """Run an awaitable on the running loop, else on one of LiteLLM's threads."""

    async def run() -> None:
        with contextlib.suppress(Exception):  # errors of callbacks and caches are not the guard's
            await awaitable

    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        executor.submit(lambda: asyncio.run(run()))
    else:
        keep_task(loop, run())
