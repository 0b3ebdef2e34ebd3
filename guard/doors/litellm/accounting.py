"""Report a stream that the guard stopped to LiteLLM's callbacks: once, and as a success.

LiteLLM reports a stream when it has been read to its end; one that is closed early would be
counted as free. The report is built from the released chunks. Its token counts are those of
everything the provider sent, because the provider charges for them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import litellm
from litellm.types.utils import ModelResponse, TextCompletionResponse

from guard.doors.litellm.closing import keep_task
from guard.doors.litellm.compat import (
    CustomStreamWrapper,
    calculate_total_usage,
    executor,
    leave_report,
    report_late,
    report_success,
    reports_late,
)


def report(logging: Any, answer: Callable[[], object]) -> None:
    """Report what ``answer`` returns to the callbacks of ``logging``, on LiteLLM's executor."""
    if logging is not None and not litellm.disable_streaming_logging:
        executor.submit(logging.success_handler, answer(), None, None, False)


async def areport(logging: Any, answer: Callable[[], object]) -> None:
    """Report what ``answer`` returns to the callbacks of ``logging``, in a separate task.

    Waits until the tokens are counted (in a thread); a cancellation after that does not stop the
    task. LiteLLM's proxy reports a stream after all guardrails have run, because they add to it;
    in that case the answer is only stored in ``logging``.
    """
    if logging is None or litellm.disable_streaming_logging:
        return
    counted = asyncio.Event()

    async def run() -> None:
        try:
            response = await asyncio.to_thread(answer)
        finally:
            counted.set()
        if reports_late(logging):
            leave_report(logging, response)
            return
        await report_success(logging, response, cache_hit=False)

    keep_task(asyncio.get_running_loop(), run())
    await counted.wait()


def defer(logging: Any) -> None:
    """Have LiteLLM's proxy report a stream after its guardrails, also on routes that report before.

    The proxy asks for the report once its hooks have read the stream to the end.
    """
    if logging is None or reports_late(logging):
        return

    async def behind(response: object, cache_hit: object) -> None:
        await report_success(logging, response, cache_hit=cache_hit, start_time=None, end_time=None)

    report_late(logging, behind)


def charge(logging: Any, response: object) -> None:
    """Have LiteLLM's proxy charge for a whole answer that it reports as a failure.

    The provider charges for it, too. LiteLLM supports this for chats only.
    """
    record = getattr(logging, "record_assembled_response_for_failure", None)
    if record is not None and isinstance(response, ModelResponse):
        record(response)


def answer(upstream: CustomStreamWrapper, released: Sequence[Any]) -> Any:
    """Return the answer to report: the ``released`` chunks, with the usage of all chunks sent."""
    response: Any = _built_response(upstream, released) or ModelResponse(
        model=upstream.model, usage=calculate_total_usage(upstream.chunks)
    )
    everything = _built_response(upstream, upstream.chunks)
    if everything is not None:
        response.usage = everything.usage
    return response


def _built_response(upstream: CustomStreamWrapper, chunks: Sequence[Any]) -> Any:
    response: object = None
    with contextlib.suppress(Exception):
        response = litellm.stream_chunk_builder(
            chunks=list(chunks),
            messages=upstream.messages,
            logging_obj=upstream.logging_obj,
        )
    return response if isinstance(response, (ModelResponse, TextCompletionResponse)) else None
