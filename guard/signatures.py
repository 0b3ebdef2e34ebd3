"""Signatures of LiteLLM's functions for editors and type checkers; LiteLLM's decorators hide them.

A test compares them with the installed LiteLLM. Each function here declares the parameters of a
guarded call and its return types, whole and streamed. The classes exist for type checkers only:
an answer has LiteLLM's own class, and the trail as its attribute ``guard``.
Why: docs/decisions/signatures-are-written-down.md.
"""
# ruff: noqa: B006, D101, D103

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    overload,
)

from guard.policy import PolicyLike

if TYPE_CHECKING:
    import httpx
    from aiohttp import ClientSession
    from litellm.litellm_core_utils.streaming_handler import CustomStreamWrapper
    from litellm.responses.streaming_iterator import BaseResponsesAPIStreamingIterator
    from litellm.types.llms.anthropic import AnthropicThinkingParam
    from litellm.types.llms.openai import (
        OpenAIWebSearchOptions,
        PromptObject,
        ResponsesAPIResponse,
        ResponsesAPIStreamingResponse,
    )
    from litellm.types.utils import ModelResponse, TextCompletionResponse
    from litellm.utils import TextCompletionStreamWrapper
    from openai.types.chat import ChatCompletionAudioParam, ChatCompletionPredictionContentParam
    from openai.types.chat.chat_completion_modality import ChatCompletionModality
    from openai.types.responses import ResponseIncludable, ResponseInputParam, ToolParam
    from openai.types.responses import ResponseTextConfigParam as ResponseText
    from openai.types.responses.response_create_params import ToolChoice
    from openai.types.shared_params.reasoning import Reasoning
    from pydantic import BaseModel

    from guard.verdict import GuardTrail

    Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max", "default"]

    class GuardedChat(ModelResponse):
        guard: GuardTrail

    class GuardedChatStream(CustomStreamWrapper):
        guard: GuardTrail

    class GuardedText(TextCompletionResponse):
        guard: GuardTrail

    class GuardedTextStream(TextCompletionStreamWrapper):
        guard: GuardTrail

    class GuardedResponse(ResponsesAPIResponse):
        guard: GuardTrail

    class ResponseStream(BaseResponsesAPIStreamingIterator):
        guard: GuardTrail

        def __iter__(self) -> Iterator[ResponsesAPIStreamingResponse]: ...
        def __aiter__(self) -> AsyncIterator[ResponsesAPIStreamingResponse]: ...

    class GuardedMessage(dict[str, Any]):
        guard: GuardTrail

    class MessageStream(Iterator[Any], AsyncIterator[Any]):
        guard: GuardTrail


P = ParamSpec("P")
C = TypeVar("C", bound=Callable[..., Any])
WholeT = TypeVar("WholeT", covariant=True)
StreamT = TypeVar("StreamT", covariant=True)


class Returns(Generic[WholeT, StreamT]):
    """The return types of a call: whole, and with ``stream=True``."""


class SignedCall(Protocol[P, WholeT, StreamT]):
    """A call with LiteLLM's parameters ``P``."""

    @overload
    def __call__(self, *args: Any, stream: Literal[True], **kwargs: Any) -> StreamT: ...
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> WholeT: ...
    @overload
    def __call__(self, *args: Any, stream: bool | None, **kwargs: Any) -> WholeT | StreamT: ...


class Method(Protocol[P, WholeT, StreamT]):
    """A method with the signature of a :class:`Call`."""

    def __get__(self, instance: object, owner: object = None) -> SignedCall[P, WholeT, StreamT]:
        """Bind the method."""
        ...


def litellm_signature(
    litellms: Callable[P, Returns[WholeT, StreamT]],
) -> Callable[[Callable[..., Any]], Method[P, WholeT, StreamT]]:
    """Give a method the signature of a function below, also for :func:`inspect.signature`."""

    def signed(method: Any) -> Any:
        own, theirs = inspect.signature(method), inspect.signature(litellms)
        shown = [
            p.replace(annotation="bool | None") if p.name == "stream" else p
            for p in theirs.parameters.values()
        ]
        method.__signature__ = own.replace(parameters=[own.parameters["self"], *shown])
        return method

    return signed


def async_litellm_signature(
    litellms: Callable[P, Returns[WholeT, StreamT]],
) -> Callable[
    [Callable[..., Any]],
    Method[P, Coroutine[Any, Any, WholeT], Coroutine[Any, Any, StreamT]],
]:
    """Do the same as :func:`litellm_signature` for an async method."""
    signed: Any = litellm_signature
    return signed(litellms)  # type: ignore[no-any-return]


# fmt: off
def completion(
    model: str, messages: list[Any] = [], timeout: float | str | httpx.Timeout | None = None,
    temperature: float | None = None, top_p: float | None = None, n: int | None = None,
    stream: Literal[False] | None = None, stream_options: dict[str, Any] | None = None,
    stop: Any = None, max_completion_tokens: int | None = None, max_tokens: int | None = None,
    modalities: list[ChatCompletionModality] | None = None,
    prediction: ChatCompletionPredictionContentParam | None = None,
    audio: ChatCompletionAudioParam | None = None, presence_penalty: float | None = None,
    frequency_penalty: float | None = None, logit_bias: dict[Any, Any] | None = None,
    user: str | None = None,
    reasoning_effort: Effort | None = None,
    verbosity: Literal["low", "medium", "high"] | None = None,
    response_format: dict[str, Any] | type[BaseModel] | None = None, seed: int | None = None,
    tools: list[Any] | None = None, tool_choice: str | dict[str, Any] | None = None,
    logprobs: bool | None = None, top_logprobs: int | None = None,
    parallel_tool_calls: bool | None = None,
    web_search_options: OpenAIWebSearchOptions | None = None,
    include_server_side_tool_invocations: bool | None = None, deployment_id: Any = None,
    extra_headers: dict[str, Any] | None = None, safety_identifier: str | None = None,
    service_tier: str | None = None, store: bool | None = None, prompt_cache_key: str | None = None,
    functions: list[Any] | None = None, function_call: str | None = None,
    base_url: str | None = None, api_version: str | None = None, api_key: str | None = None,
    model_list: list[Any] | None = None, thinking: AnthropicThinkingParam | None = None,
    shared_session: ClientSession | None = None, enable_json_schema_validation: bool | None = None,
    *, guard: PolicyLike | None = None, **kwargs: Any,
) -> Returns[GuardedChat, GuardedChatStream]: raise NotImplementedError


def acompletion(
    model: str, messages: list[Any] = [], functions: list[Any] | None = None,
    function_call: str | None = None, timeout: float | None = None,
    temperature: float | None = None, top_p: float | None = None, n: int | None = None,
    stream: Literal[False] | None = None, stream_options: dict[str, Any] | None = None,
    stop: Any = None, max_tokens: int | None = None, max_completion_tokens: int | None = None,
    modalities: list[ChatCompletionModality] | None = None,
    prediction: ChatCompletionPredictionContentParam | None = None,
    audio: ChatCompletionAudioParam | None = None, presence_penalty: float | None = None,
    frequency_penalty: float | None = None, logit_bias: dict[Any, Any] | None = None,
    user: str | None = None, response_format: dict[str, Any] | type[BaseModel] | None = None,
    seed: int | None = None, tools: list[Any] | None = None,
    tool_choice: str | dict[str, Any] | None = None, parallel_tool_calls: bool | None = None,
    logprobs: bool | None = None, top_logprobs: int | None = None, deployment_id: Any = None,
    reasoning_effort: Effort | None = None,
    verbosity: Literal["low", "medium", "high"] | None = None, safety_identifier: str | None = None,
    service_tier: str | None = None, store: bool | None = None, prompt_cache_key: str | None = None,
    base_url: str | None = None, api_version: str | None = None, api_key: str | None = None,
    model_list: list[Any] | None = None, extra_headers: dict[str, Any] | None = None,
    thinking: AnthropicThinkingParam | None = None,
    web_search_options: OpenAIWebSearchOptions | None = None,
    include_server_side_tool_invocations: bool | None = None,
    shared_session: ClientSession | None = None, enable_json_schema_validation: bool | None = None,
    *, guard: PolicyLike | None = None, **kwargs: Any,
) -> Returns[GuardedChat, GuardedChatStream]: raise NotImplementedError


def text_completion(
    prompt: str | list[Any], model: str | None = None,
    best_of: int | None = None, echo: bool | None = None, frequency_penalty: float | None = None,
    logit_bias: dict[Any, Any] | None = None, logprobs: int | None = None,
    max_tokens: int | None = None, n: int | None = None, presence_penalty: float | None = None,
    stop: str | list[str] | None = None, stream: Literal[False] | None = None,
    stream_options: dict[str, Any] | None = None, suffix: str | None = None,
    temperature: float | None = None, top_p: float | None = None, user: str | None = None,
    api_base: str | None = None, api_version: str | None = None, api_key: str | None = None,
    model_list: list[Any] | None = None, custom_llm_provider: str | None = None, *args: Any,
    guard: PolicyLike | None = None, **kwargs: Any,
) -> Returns[GuardedText, GuardedTextStream]: raise NotImplementedError


def responses(
    input: str | ResponseInputParam, model: str, include: list[ResponseIncludable] | None = None,
    instructions: str | None = None, max_output_tokens: int | None = None,
    prompt: PromptObject | None = None, metadata: dict[str, Any] | None = None,
    parallel_tool_calls: bool | None = None, previous_response_id: str | None = None,
    reasoning: Reasoning | None = None, store: bool | None = None, background: bool | None = None,
    stream: Literal[False] | None = None, temperature: float | None = None,
    text: ResponseText | None = None, text_format: type[BaseModel] | dict[str, Any] | None = None,
    tool_choice: ToolChoice | None = None, tools: Iterable[ToolParam] | None = None,
    top_p: float | None = None, truncation: Literal["auto", "disabled"] | None = None,
    user: str | None = None, service_tier: str | None = None, safety_identifier: str | None = None,
    extra_headers: dict[str, Any] | None = None, extra_query: dict[str, Any] | None = None,
    extra_body: dict[str, Any] | None = None, timeout: float | httpx.Timeout | None = None,
    allowed_openai_params: list[str] | None = None, custom_llm_provider: str | None = None, *,
    guard: PolicyLike | None = None, **kwargs: Any,
) -> Returns[GuardedResponse, ResponseStream]: raise NotImplementedError


def messages(
    max_tokens: int, messages: list[dict[str, Any]], model: str,
    metadata: dict[str, Any] | None = None, stop_sequences: list[str] | None = None,
    stream: Literal[False] | None = False, system: str | None = None,
    temperature: float | None = None, thinking: dict[str, Any] | None = None,
    tool_choice: dict[str, Any] | None = None, tools: list[dict[str, Any]] | None = None,
    top_k: int | None = None, top_p: float | None = None, container: dict[str, Any] | None = None,
    *, guard: PolicyLike | None = None, **kwargs: Any,
) -> Returns[GuardedMessage, MessageStream]: raise NotImplementedError


def batch_completion(
    model: str, messages: list[Any] = [], functions: list[Any] | None = None,
    function_call: str | None = None, temperature: float | None = None, top_p: float | None = None,
    n: int | None = None, stream: Literal[False] | None = None, stop: Any = None,
    max_tokens: int | None = None, presence_penalty: float | None = None,
    frequency_penalty: float | None = None, logit_bias: dict[Any, Any] | None = None,
    user: str | None = None, deployment_id: Any = None, request_timeout: int | None = None,
    timeout: int | None = 600, max_workers: int | None = 100, *, guard: PolicyLike | None = None,
    **kwargs: Any,
) -> Returns[list[Any], list[Any]]: raise NotImplementedError
# fmt: on
