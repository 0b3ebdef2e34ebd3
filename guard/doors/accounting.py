"""Report a stream that the guard stopped to LiteLLM's callbacks: once, and as a success.

LiteLLM reports a stream when it has been read to its end, so one that is closed early would cost
nothing in its books. What is reported is built from the chunks that were let out; the tokens are
those of everything the provider sent, as it charges for them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import litellm
from litellm.litellm_core_utils.streaming_handler import CustomStreamWrapper, calculate_total_usage
from litellm.litellm_core_utils.thread_pool_executor import executor
from litellm.types.utils import ModelResponse, ModelResponseStream

_reporting: set[asyncio.Task[Any]] = set()  # a loop holds its tasks weakly


def report(upstream: CustomStreamWrapper, released: Sequence[ModelResponseStream]) -> None:
    """Report from synchronous code, as LiteLLM does at a stream's end: on its executor."""
    if not litellm.disable_streaming_logging:
        response = _response(upstream, released)
        executor.submit(upstream.logging_obj.success_handler, response, None, None, False)


def report_async(upstream: CustomStreamWrapper, released: Sequence[ModelResponseStream]) -> None:
    """Report from a coroutine, as LiteLLM does at a stream's end: in a task of its own."""
    if not litellm.disable_streaming_logging:
        response = _response(upstream, released)
        task = asyncio.get_running_loop().create_task(
            upstream.logging_obj.dispatch_success_handlers(
                response, cache_hit=False, prefer_async_handlers=True
            )
        )
        _reporting.add(task)
        task.add_done_callback(_reporting.discard)


def _response(
    upstream: CustomStreamWrapper, released: Sequence[ModelResponseStream]
) -> ModelResponse:
    response: Any = _built(upstream, released) or ModelResponse(
        model=upstream.model, usage=calculate_total_usage(upstream.chunks)
    )
    everything: Any = _built(upstream, upstream.chunks)
    if everything is not None:
        response.usage = everything.usage
    return response  # type: ignore[no-any-return]


def _built(
    upstream: CustomStreamWrapper, chunks: Sequence[ModelResponseStream]
) -> ModelResponse | None:
    response: object = None
    with contextlib.suppress(Exception):
        response = litellm.stream_chunk_builder(
            chunks=list(chunks),
            messages=upstream.messages,
            logging_obj=upstream.logging_obj,
        )
    return response if isinstance(response, ModelResponse) else None
