"""Callbacks of LiteLLM's that record its reports."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from litellm.integrations.custom_logger import CustomLogger
from litellm.litellm_core_utils.logging_worker import GLOBAL_LOGGING_WORKER
from litellm.litellm_core_utils.thread_pool_executor import executor
from litellm.types.llms.openai import ResponsesAPIResponse
from litellm.types.utils import ModelResponse, TextCompletionResponse

WHOLE = (ModelResponse, TextCompletionResponse, ResponsesAPIResponse)


_PENDING: set[Future[Any]] = set()


def _watched(submit: Callable[..., Future[Any]]) -> Callable[..., Future[Any]]:
    def submit_watched(*args: Any, **kwargs: Any) -> Future[Any]:
        future = submit(*args, **kwargs)
        _PENDING.add(future)
        future.add_done_callback(_PENDING.discard)
        return future

    return submit_watched


executor.submit = _watched(executor.submit)  # type: ignore[method-assign]


def quiet(count: Callable[[], int], seconds: float = 20.0, still: float = 0.03) -> None:
    """Wait until LiteLLM's threads have reported something, and for a moment have no more to do."""
    end = time.monotonic() + seconds
    seen, since = count(), time.monotonic()
    while time.monotonic() < end:
        time.sleep(0.01)
        if (now := count()) != seen or _PENDING:
            seen, since = now, time.monotonic()
        if seen and time.monotonic() - since >= still:
            return


async def told(count: Callable[[], int], seconds: float = 20.0) -> None:
    """Wait until LiteLLM's tasks of this loop have reported something, and all that they have."""
    end = time.monotonic() + seconds
    while not count() and time.monotonic() < end:
        await asyncio.sleep(0.01)
    await tasks_end()


async def tasks_end(seconds: float = 0.3) -> None:
    """Let the tasks of this loop end, such as LiteLLM's that report and cache."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await asyncio.sleep(0.01)
        await GLOBAL_LOGGING_WORKER.flush()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        names = (getattr(task.get_coro(), "__qualname__", "") for task in others)
        if all("LoggingWorker" in name for name in names):
            return


class Callback(CustomLogger):
    """Calls ``note`` with each report on a call."""

    def note(self, kind: str, kwargs: Any, response: Any) -> None:
        raise NotImplementedError

    def log_success_event(
        self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        self.note("success", kwargs, response_obj)

    def log_failure_event(
        self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        self.note("failure", kwargs, response_obj)

    async def async_log_success_event(
        self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        self.note("async success", kwargs, response_obj)

    async def async_log_failure_event(
        self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        self.note("async failure", kwargs, response_obj)


class Log(Callback):
    """Counts the reports on whole responses; those on single chunks are LiteLLM's own."""

    def __init__(self) -> None:
        super().__init__()
        self.reports: list[tuple[str, Any, Any]] = []

    def note(self, kind: str, kwargs: Any, response: Any) -> None:
        if kind.endswith("failure") or isinstance(response, WHOLE):
            # What LiteLLM passes on is changed later: keep what it is now.
            self.reports.append((kind, kwargs.get("standard_logging_object"), response))

    def settle(self) -> list[tuple[str, Any, Any]]:
        """Wait until nothing more comes."""
        quiet(lambda: len(self.reports))
        return self.reports

    async def told(self) -> None:
        """Wait in a loop that is about to end for what its tasks report."""
        await told(lambda: len(self.reports))
