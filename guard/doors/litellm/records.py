"""LiteLLM's reports and cache writes of one call, held back until the guard knows what went out.

LiteLLM reports an answer to its callbacks, and writes it to its cache, before the guard has judged
it. Under ``litellm_records="guarded"`` a call is given a logging object of ours (LiteLLM's own,
made by its ``function_setup`` as its proxy does, with :class:`DeferringLogging` as its
class), which notes what LiteLLM does with it. Once the guard knows what went out, that is done as
LiteLLM would have: with LiteLLM's own answer where all of it went out, else with what did.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import inspect
import threading
import traceback
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context, copy_context
from datetime import datetime
from typing import Any, NamedTuple

import litellm
from litellm.types.llms.openai import ResponsesAPIResponse
from litellm.types.utils import ModelResponseStream
from pydantic import BaseModel

from guard.doors.litellm.compat import (
    Logging,
    Rules,
    Untraced,
    decide_storing,
    executor,
    function_setup,
    untraced,
)

Do = Callable[[Any], Any]

_tasks: set[asyncio.Task[Any]] = set()  # a loop holds its tasks weakly


class _Entry(NamedTuple):
    """One thing that LiteLLM did: ``do`` does it with the answer that it is given."""

    kind: str  # "received", "report", "failure" or "store"
    do: Do
    result: Any  # LiteLLM's own answer, or the error of a failure
    context: Context
    asynchronous: bool = False


class _Outcome(NamedTuple):
    """How a call ended: what of it went out, and what is to be done with that."""

    answer: Any  # None where nothing that LiteLLM can be told went out
    changed: bool = False
    stopped: bool = False  # then it is no answer that a cache could give again
    reported: bool = False  # the guard has told the callbacks
    clean: Callable[[Exception], Exception] | None = None  # returns an error as it may be told


class DeferredLogging:
    """What LiteLLM reports and stores of one call, deferred until :meth:`close`.

    ``logging`` is LiteLLM's logging object of the call. What LiteLLM does after that, from a thread
    or a task of its own, is done at once.
    """

    def __init__(self, logging: Any) -> None:
        self.streaming = False  # whether the consumer has a stream: what fails then may quote it
        self._held = logging
        self._kind: Any = Logging if isinstance(logging, DeferringLogging) else type(logging)
        self._immediate: Any = None
        self._lock = threading.Lock()
        self._reporting = threading.Lock()  # nested calls report twice: LiteLLM drops the second
        self._entries: list[_Entry] = []
        self._outcome: _Outcome | None = None

    def __deepcopy__(self, memo: object) -> DeferredLogging:
        return self  # LiteLLM copies the arguments of a call that it makes again

    @property
    def immediate(self) -> Any:
        """LiteLLM's logging object as it was made: what it is told, it tells."""
        if self._immediate is None:
            self._immediate = copy.copy(self._held)
            self._immediate.__class__ = untraced(self._kind)
        return self._immediate

    @property
    def closed(self) -> bool:
        """Whether what went out is known."""
        return self._outcome is not None

    def record(self, kind: str, do: Do, result: Any) -> None:
        """Take what LiteLLM does; do it now if what went out is known."""
        entry = _Entry(kind, do, result, copy_context())
        with self._lock:
            if self._outcome is None:
                self._entries.append(entry)
                return
        self._run(entry)

    async def arecord(self, kind: str, do: Do, result: Any) -> None:
        """Do the same for what LiteLLM awaits."""
        entry = _Entry(kind, do, result, copy_context(), asynchronous=True)
        with self._lock:
            if self._outcome is None:
                self._entries.append(entry)
                return
        await self._arun(entry)

    def close(
        self,
        answer: Any,
        *,
        changed: bool = False,
        stopped: bool = False,
        reported: bool = False,
        clean: Callable[[Exception], Exception] | None = None,
    ) -> None:
        """Have done what LiteLLM did; a second call changes nothing.

        ``answer`` is what went out of the answer, ``changed`` whether that is not all of it,
        ``stopped`` whether the guard ended it, ``reported`` whether the guard tells the callbacks
        itself. ``clean`` returns a provider's error as it may be told.
        """
        with self._lock:
            if self._outcome is not None:
                return
            if changed and isinstance(answer, BaseModel):
                answer = answer.model_copy(deep=True)
            self._outcome = _Outcome(answer, changed, stopped, reported, clean)
            entries, self._entries = self._entries, []
        if changed:
            self._held.model_call_details["original_response"] = _text(answer)
        for entry in sorted(entries, key=lambda e: e.kind != "received"):
            if entry.asynchronous:
                _spawn(self._arun(entry))
            elif entry.kind in ("report", "failure"):
                executor.submit(self._run, entry)
            else:
                self._run(entry)

    def fail(self, error: BaseException) -> None:
        """Report that the call failed on the guard's side: its answer can be told to nobody."""
        self.close(None, changed=True, stopped=True, reported=True)
        self.immediate.failure_handler(error, "")

    async def afail(self, error: BaseException) -> None:
        """Do the same from a coroutine."""
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
        if not self._wanted(entry):
            return
        with self._reporting if entry.kind == "report" else contextlib.nullcontext():
            entry.context.copy().run(entry.do, self._replacement(entry))

    async def _arun(self, entry: _Entry) -> None:
        if not self._wanted(entry):
            return
        if entry.kind == "failure":  # it is judged first
            await entry.do(await asyncio.to_thread(self._replacement, entry))
        else:
            await entry.do(self._replacement(entry))

    def _wanted(self, entry: _Entry) -> bool:
        end = self._outcome
        assert end is not None
        if entry.kind == "report":
            return not end.reported and (not end.changed or end.answer is not None)
        if entry.kind == "failure":
            return not end.reported
        if entry.kind == "received":
            return not end.changed
        # Of an answer in another shape than the one that went out there is no guarded one.
        shape = ResponsesAPIResponse if entry.result is None else type(entry.result)
        return not end.stopped and (not end.changed or type(_response(end.answer)) is shape)

    def _replacement(self, entry: _Entry) -> Any:
        """Return what LiteLLM is to be told in place of what it said itself."""
        end = self._outcome
        assert end is not None
        if entry.kind == "failure":
            return entry.result if end.clean is None else end.clean(entry.result)
        if entry.kind == "store":
            own = not end.changed and entry.result is not None
            return entry.result if own else _response(end.answer)
        if not end.changed:
            return entry.result
        # LiteLLM counts in the object that it is told, and may be told twice.
        return end.answer.model_copy(deep=True)


class DeferringLogging(Untraced, Logging):
    """LiteLLM's logging object of a call whose records are held back."""

    guard_deferred: DeferredLogging

    @property
    def llm_caching_handler(self) -> Any:
        """LiteLLM's handler of the call's cache; its writes wait."""
        return self.__dict__.get("llm_caching_handler")

    @llm_caching_handler.setter
    def llm_caching_handler(self, handler: Any) -> None:
        if handler is not None:
            _defer_writes(handler, self.guard_deferred)
        self.__dict__["llm_caching_handler"] = handler

    def post_call(self, original_response: Any, *args: Any, **kwargs: Any) -> None:
        """Note the answer as it came from the provider."""
        deferred = self.guard_deferred
        deferred.record(
            "received",
            lambda r: deferred.immediate.post_call(r, *args, **kwargs),
            original_response,
        )

    def success_handler(self, result: Any = None, *args: Any, **kwargs: Any) -> None:
        """Note a report to the callbacks; of single chunks the guard reports those that go out."""
        deferred = self.guard_deferred
        if not isinstance(result, ModelResponseStream):
            deferred.record(
                "report", lambda r: deferred.immediate.success_handler(r, *args, **kwargs), result
            )

    async def async_success_handler(self, result: Any = None, *args: Any, **kwargs: Any) -> None:
        """Note a report to the async callbacks."""
        deferred = self.guard_deferred
        if not isinstance(result, ModelResponseStream):
            await deferred.arecord(
                "report",
                lambda r: deferred.immediate.async_success_handler(r, *args, **kwargs),
                result,
            )

    async def dispatch_success_handlers(
        self, result: Any = None, *args: Any, **kwargs: Any
    ) -> None:
        """Note a report to all callbacks."""
        deferred = self.guard_deferred
        if not isinstance(result, ModelResponseStream):
            await deferred.arecord(
                "report",
                lambda r: deferred.immediate.dispatch_success_handlers(r, *args, **kwargs),
                result,
            )

    def failure_handler(
        self, exception: Any, traceback_exception: Any, *args: Any, **kwargs: Any
    ) -> None:
        """Report a failure; note it where the answer had begun, as it may quote that."""
        deferred = self.guard_deferred

        def do(error: Any) -> None:
            trace = _trace(error, exception, traceback_exception)
            deferred.immediate.failure_handler(error, trace, *args, **kwargs)

        if deferred.streaming:
            deferred.record("failure", do, exception)
        else:
            super().failure_handler(exception, traceback_exception, *args, **kwargs)

    async def async_failure_handler(
        self, exception: Any, traceback_exception: Any, *args: Any, **kwargs: Any
    ) -> None:
        """Do the same for the async callbacks."""
        deferred = self.guard_deferred

        async def do(error: Any) -> None:
            trace = _trace(error, exception, traceback_exception)
            await deferred.immediate.async_failure_handler(error, trace, *args, **kwargs)

        if deferred.streaming:
            await deferred.arecord("failure", do, exception)
        else:
            await super().async_failure_handler(exception, traceback_exception, *args, **kwargs)

    def update_environment_variables(self, *args: Any, **kwargs: Any) -> None:
        """Begin an attempt: each that fails is reported, as where each has an object of its own."""
        for event in ("sync_failure", "async_failure"):
            self.model_call_details.pop(f"has_logged_{event}", None)
        if "original_response" in kwargs:  # an answer from the cache
            details = self.model_call_details

            def do(original: Any) -> None:
                details["original_response"] = original

            self.guard_deferred.record("received", do, kwargs.pop("original_response"))
        super().update_environment_variables(*args, **kwargs)


def defer_logging(
    function: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[DeferredLogging, dict[str, Any]]:
    """Return the deferred logging of a call of ``function``, and the arguments that defer it.

    A logging object that is given with the call (LiteLLM's proxy does) is held as it is. Raises
    what LiteLLM raises on arguments that it cannot use.
    """
    made = {"litellm_call_id": str(uuid.uuid4()), **kwargs}
    logging: Any = made.get("litellm_logging_obj")
    if logging is None:
        logging, made = function_setup(
            function,
            Rules(),
            datetime.now(),
            *args,
            is_async_call=inspect.iscoroutinefunction(getattr(litellm, function)),
            **made,
        )
    deferred = DeferredLogging(logging)
    logging.__class__ = DeferringLogging
    logging.guard_deferred = deferred
    return deferred, {**made, "litellm_logging_obj": logging}


def _defer_writes(handler: Any, deferred: DeferredLogging) -> None:
    """Defer what a caching handler of LiteLLM's writes."""
    store, astore = handler.sync_set_cache, handler.async_set_cache
    stores = handler.should_store_result_in_cache

    def sync_set_cache(result: Any, *args: Any, **kwargs: Any) -> None:
        deferred.record("store", lambda r: store(r, *args, **kwargs), result)

    async def async_set_cache(result: Any, *args: Any, **kwargs: Any) -> None:
        await deferred.arecord("store", lambda r: astore(r, *args, **kwargs), result)

    def streamed(original_function: Any, kwargs: Any) -> bool:
        # LiteLLM's streams of responses ask this, and write to the cache themselves.
        if stores(original_function=original_function, kwargs=kwargs):
            arguments = {**kwargs, "dynamic_cache_object": handler.dual_cache}
            deferred.record("store", lambda r: _store_response(r, arguments), None)
        return False

    handler.sync_set_cache, handler.async_set_cache = sync_set_cache, async_set_cache
    decide_storing(handler, streamed)


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
    """Return the response in the event that ended a stream; anything else as it is."""
    return getattr(answer, "response", answer)


def _text(answer: Any) -> str:
    return answer.model_dump_json(warnings=False) if isinstance(answer, BaseModel) else ""


def _trace(error: Exception, own: Exception, trace: str) -> str:
    """Return the trace of a failure; it quotes the provider's error, not one that was cleaned."""
    return trace if error is own else "".join(traceback.format_exception_only(error))


def _spawn(awaitable: Any) -> None:
    """Run what LiteLLM would await: on the running loop, else on one of LiteLLM's threads."""

    async def run() -> None:
        with contextlib.suppress(Exception):  # a callback's or a cache's own affair
            await awaitable

    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        executor.submit(lambda: asyncio.run(run()))
        return
    task = loop.create_task(run())
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
