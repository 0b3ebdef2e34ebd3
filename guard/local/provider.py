"""LiteLLM's custom provider ``guard-local``: models that answer in this process.

After :func:`register_provider`, ``litellm.completion(model="guard-local/smollm2", …)`` works,
streamed or whole, sync or async; ``guard-local/<path>`` names a GGUF file or a transformers folder.
Options are those of :mod:`guard.local.options`. Errors are raised as LiteLLM's own exceptions with
guard's message.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import litellm
from litellm import exceptions
from litellm.llms.custom_llm import CustomLLM
from litellm.types.utils import Choices, GenericStreamingChunk, Message, ModelResponse, Usage

from guard.errors import GuardError, UsageError
from guard.local import messages as chat
from guard.local import options
from guard.local.generation import Generation
from guard.local.model import NotInstalled
from guard.local.model import load_model as load_model

PROVIDER = "guard-local"
SMOLLM2 = f"{PROVIDER}/smollm2"


def register_provider() -> None:
    """Register ``guard-local/…`` with LiteLLM, beside other custom providers."""
    if all(item["provider"] != PROVIDER for item in litellm.custom_provider_map):
        litellm.custom_provider_map.append({"provider": PROVIDER, "custom_handler": LocalLLM()})
    # A call does this, too, but a Router looks up the provider before the first call.
    litellm.utils.custom_llm_setup()  # type: ignore[no-untyped-call]


class LocalLLM(CustomLLM):
    """The four methods that LiteLLM calls, with keyword arguments."""

    def completion(self, *args: Any, **call: Any) -> ModelResponse:
        """Return one whole answer."""
        stream = self.streaming(*args, **call)
        return _whole_answer(list(stream), call)

    def streaming(self, *args: Any, **call: Any) -> SyncStream:
        """Return an answer's chunks; the model is loaded before this returns."""
        with _as_litellm(call["model"]):
            return SyncStream(_prepared_call(call)(), call["model"])

    async def acompletion(self, *args: Any, **call: Any) -> ModelResponse:
        """Return one whole answer; a cancellation stops generating."""
        stream = self.astreaming(*args, **call)
        try:
            return _whole_answer([chunk async for chunk in stream], call)
        finally:
            await stream.aclose()

    # LiteLLM declares a coroutine, but iterates over the result without awaiting it.
    def astreaming(  # type: ignore[override]
        self, *args: Any, **call: Any
    ) -> AsyncStream:
        """Return an answer's chunks; the model is loaded when the first one is read."""
        with _as_litellm(call["model"]):
            begin = _prepared_call(call)
        return AsyncStream(begin, call["model"])


class SyncStream(Iterator[GenericStreamingChunk]):
    """Chunks in LiteLLM's form: the pieces of text, then one that ends the answer.

    ``close`` may be called from any thread; no further token is computed.
    """

    def __init__(self, generation: Generation, model: str) -> None:
        self._generation = generation
        self._model = model
        self._over = False

    def __next__(self) -> GenericStreamingChunk:
        with _as_litellm(self._model):
            piece = next(self._generation, None)
        if piece is not None:
            return _text_chunk(piece)
        if self._over or self._generation.finish is None:
            raise StopIteration
        self._over = True
        return _last_chunk(self._generation)

    def close(self) -> None:
        """Stop generating."""
        self._over = True
        self._generation.close()


class AsyncStream(AsyncIterator[GenericStreamingChunk]):
    """The same chunks; loading and generating run in this stream's own thread."""

    def __init__(self, begin: Callable[[], Generation], model: str) -> None:
        self._begin = begin
        self._model = model
        self._stream: SyncStream | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=PROVIDER)
        self._step: asyncio.Future[GenericStreamingChunk | None] | None = None
        self._closed = False

    async def __anext__(self) -> GenericStreamingChunk:
        if self._closed:
            raise StopAsyncIteration
        self._step = asyncio.get_running_loop().run_in_executor(self._thread, self._pull_chunk)
        try:
            # A thread cannot be cancelled: this step is completed, but no further one begins.
            chunk = await asyncio.shield(self._step)
        except BaseException:
            self.close()
            raise
        if chunk is None:
            self.close()
            raise StopAsyncIteration
        return chunk

    def _pull_chunk(self) -> GenericStreamingChunk | None:
        if self._closed:
            return None
        if self._stream is None:
            with _as_litellm(self._model):
                self._stream = SyncStream(self._begin(), self._model)
            if self._closed:  # while the model was being loaded
                return None
        return next(self._stream, None)

    def close(self) -> None:
        """Stop generating, from any thread; the stream's thread ends after its present token."""
        self._closed = True
        if self._stream is not None:
            self._stream.close()
        self._thread.shutdown(wait=False)

    async def aclose(self) -> None:
        """Stop generating, and return when the thread has ended."""
        self.close()
        if self._step is not None and not self._step.done():
            await asyncio.wait([self._step])
        if self._step is not None and not self._step.cancelled():
            self._step.exception()  # retrieved, so that asyncio does not log it
        self._thread.shutdown(wait=True)


def _prepared_call(call: dict[str, Any]) -> Callable[[], Generation]:
    """Check a call's arguments; return the function that loads the model and begins the answer."""
    messages = chat.plain_messages(call["messages"])
    settings = options.read_options(call["optional_params"])
    settings = settings._replace(timeout_s=_timeout_seconds(call.get("timeout")))

    def begin() -> Generation:
        model = load_model(call["model"])
        prompt = model.prompt(messages)
        if model.context is not None and len(prompt) >= model.context:
            raise _TooLong(
                f"The prompt has {len(prompt)} tokens; prompt and answer together may have "
                f"{model.context}."
            )
        return Generation(model, prompt, settings)

    return begin


class _TooLong(UsageError):
    """The prompt leaves no room for an answer."""


def _timeout_seconds(timeout: float | httpx.Timeout | None) -> float | None:
    return timeout.read if isinstance(timeout, httpx.Timeout) else timeout


# Guard's errors and the LiteLLM exceptions raised instead, subclasses first. LiteLLM does not retry
# or wrap these, except that it retries the last.
_RAISED: tuple[tuple[type[Exception], Any], ...] = (
    (_TooLong, exceptions.ContextWindowExceededError),
    (options.NotOffered, exceptions.UnsupportedParamsError),
    # The request is valid: another deployment of a Router may answer it.
    (NotInstalled, exceptions.NotFoundError),
    (UsageError, exceptions.BadRequestError),
    (GuardError, exceptions.NotFoundError),
    (TimeoutError, exceptions.Timeout),
)


@contextmanager
def _as_litellm(model: str) -> Iterator[None]:
    try:
        yield
    except (GuardError, TimeoutError) as error:
        raised = next(to for kind, to in _RAISED if isinstance(error, kind))
        raise raised(message=str(error), model=model, llm_provider=PROVIDER) from error


def _text_chunk(text: str) -> GenericStreamingChunk:
    return {
        "text": text,
        "tool_use": None,
        "is_finished": False,
        "finish_reason": "",
        "usage": None,
        "index": 0,
    }


def _last_chunk(generation: Generation) -> GenericStreamingChunk:
    inputs, outputs = generation.prompt_tokens, generation.completion_tokens
    return {
        **_text_chunk(""),
        "is_finished": True,
        "finish_reason": generation.finish or "stop",
        "usage": {
            "prompt_tokens": inputs,
            "completion_tokens": outputs,
            "total_tokens": inputs + outputs,
        },
    }


def _whole_answer(chunks: Sequence[GenericStreamingChunk], call: dict[str, Any]) -> ModelResponse:
    response: ModelResponse = call["model_response"]
    text = "".join(chunk["text"] for chunk in chunks)
    last = chunks[-1]
    assert last["usage"] is not None
    response.model = call["model"]
    response.choices = [
        Choices(
            index=0,
            finish_reason=last["finish_reason"],
            message=Message(role="assistant", content=text),
        )
    ]
    response.usage = Usage(**last["usage"])  # type: ignore[attr-defined]
    return response
