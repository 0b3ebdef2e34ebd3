"""LiteLLM's internals: each name that guard reads, calls or replaces and LiteLLM does not document.

The rest of guard reaches for them through this module alone (``tests/test_architecture.py``), and
``guard doctor`` looks each of them up in the LiteLLM that is installed.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from importlib import import_module, metadata
from types import CodeType
from typing import Any, NamedTuple

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from guard.errors import ConfigError

__all__ = [
    "AsyncCompletions",
    "BaseResponsesAPIStreamingIterator",
    "Chat",
    "Completions",
    "CustomStreamWrapper",
    "Logging",
    "OpenAIResponsesAPIConfig",
    "Rules",
    "TextCompletionStreamWrapper",
    "calculate_total_usage",
    "executor",
    "function_setup",
    "get_or_create_metadata_bucket",
]

TESTED = ">=1.106.2,<1.110"
"""The versions of LiteLLM that the tests stand for. An older one is refused, a newer one warns."""
CHECKED = ("1.106.2", "1.109.1")
"""The versions on which each of these names was looked up."""

try:
    from litellm.litellm_core_utils.core_helpers import get_or_create_metadata_bucket
    from litellm.litellm_core_utils.litellm_logging import Logging
    from litellm.litellm_core_utils.rules import Rules
    from litellm.litellm_core_utils.streaming_handler import (
        CustomStreamWrapper,
        calculate_total_usage,
    )
    from litellm.litellm_core_utils.thread_pool_executor import executor
    from litellm.llms.openai.responses.transformation import OpenAIResponsesAPIConfig
    from litellm.main import AsyncCompletions, Chat, Completions, TextCompletionStreamWrapper
    from litellm.responses.streaming_iterator import BaseResponsesAPIStreamingIterator
    from litellm.utils import function_setup
except ImportError as error:
    if error.name == "litellm":
        raise
    raise ConfigError(
        f"guard does not find {error.name} in LiteLLM {metadata.version('litellm')} ({error}); "
        f"install one of {TESTED}."
    ) from None


class Internal(NamedTuple):
    """Names of LiteLLM's in one place, and what guard does with them.

    ``homes`` are where that place was so far, ``module`` or ``module:Class``; the names are looked
    up in the first that can be imported: as its attributes, or else in the code of its functions.
    """

    homes: tuple[str, ...]
    names: tuple[str, ...]
    use: str
    checked: tuple[str, ...] = CHECKED
    optional: bool = False
    """Whether guard does as well where they are absent."""


def _internal(homes: str, names: str, use: str, **more: Any) -> Internal:
    return Internal(tuple(homes.split()), tuple(names.split()), use, **more)


_CORE = "litellm.litellm_core_utils"
_MESSAGES = "litellm.llms.anthropic.messages litellm.llms.anthropic.pass_through".split()
INTERNALS: tuple[Internal, ...] = (
    _internal(
        f"{_CORE}.streaming_handler",
        "CustomStreamWrapper calculate_total_usage _deferred_stream_complete_args "
        "_on_deferred_stream_complete",
        "chat streams, the usage of their chunks, and reporting them behind the proxy's guardrails",
    ),
    _internal(
        f"{_CORE}.streaming_handler:CustomStreamWrapper",
        "completion_stream logging_obj chunks _hidden_params _response_headers send_stream_usage "
        "model_response_creator set_logging_event_loop",
        "fields of a chat stream that a guarded one passes on or reports by",
    ),
    _internal("litellm.main", "TextCompletionStreamWrapper", "text streams"),
    _internal(
        "litellm.main", "Chat Completions AsyncCompletions", "chat.completions of a wrapped Router"
    ),
    _internal(
        "litellm.responses.streaming_iterator",
        "BaseResponsesAPIStreamingIterator partial_response_on_disconnect logging_obj",
        "streams of the Responses API, and what a stopped one has used",
    ),
    _internal(
        "litellm.responses.litellm_completion_transformation.streaming_iterator",
        "litellm_custom_stream_wrapper litellm_logging_obj",
        "the same, made of a chat",
    ),
    _internal(
        "litellm.llms.openai.responses.transformation",
        "OpenAIResponsesAPIConfig get_event_model_class",
        "classes of the events that a stopped response ends with",
    ),
    _internal("litellm.utils", "function_setup", "the logging object of a call with held records"),
    _internal(f"{_CORE}.rules", "Rules", "the same"),
    _internal(f"{_CORE}.thread_pool_executor", "executor", "LiteLLM's threads for callbacks"),
    _internal(
        f"{_CORE}.litellm_logging:Logging",
        "success_handler async_success_handler dispatch_success_handlers failure_handler "
        "async_failure_handler post_call update_environment_variables llm_caching_handler "
        "model_call_details response_cost_calculator _response_cost_calculator "
        "response_cost_failure_debug_information record_assembled_response_for_failure",
        "replaced on the logging object of a call with held records; reporting a stopped stream",
    ),
    _internal(
        f"{_CORE}.litellm_logging:Logging", "litellm_call_id", "the id of a call, for decisions"
    ),
    _internal(
        "litellm.caching.caching_handler:LLMCachingHandler",
        "sync_set_cache async_set_cache should_store_result_in_cache "
        "_should_store_result_in_cache dual_cache",
        "replaced on the cache's handler of such a call",
    ),
    _internal(
        "litellm.types.utils:ModelResponse",
        "_hidden_params",
        "what LiteLLM notes beside an answer: text is taken out of it after a cut",
    ),
    _internal(
        "litellm.llms.base_llm.base_model_iterator",
        "streaming_response response_iterator async_response_iterator http_response",
        "the way from a stream down to its connection",
    ),
    _internal(
        " ".join(f"{home}.adapters.streaming_iterator" for home in _MESSAGES),
        "_anthropic_wrapper _byte_stream _stream",
        "the same, for messages made of a chat",
    ),
    _internal(
        " ".join(f"{home}.responses_adapters.streaming_iterator" for home in _MESSAGES),
        "_wrapper _frames responses_stream",
        "the same, for messages made of the Responses API",
    ),
    _internal(
        "litellm.llms.anthropic.messages.native.streaming_iterator "
        "litellm.llms.anthropic.pass_through.messages.streaming_iterator",
        "pump_task litellm_logging_obj has_buffered_provider_output",
        "ending and reporting a provider's own stream of messages",
    ),
    _internal(
        "litellm.proxy.pass_through_endpoints.streaming_handler",
        "raw_bytes",
        "the same, where the proxy passes it through",
    ),
    _internal(
        "litellm.router_python_core litellm.router",
        "_async_generator _source_iterator",
        "a Router's streams that fall back",
    ),
    _internal(
        "litellm.router:Router",
        "_core_class",
        "the class behind a Router, whose methods are intercepted",
        checked=("1.109.1",),
        optional=True,
    ),
    _internal(
        f"{_CORE}.add_retry_fallback_headers litellm.router_utils.add_retry_fallback_headers",
        "inner",
        "what a Router puts around a stream",
    ),
    _internal(
        f"{_CORE}.core_helpers",
        "get_or_create_metadata_bucket",
        "LiteLLM's log of guardrails",
    ),
    _internal(
        "litellm.proxy.utils",
        "ProxyLogging _emit_guardrail_metrics _source",
        "the proxy's metrics, and what it puts around a stream",
    ),
    _internal(
        "litellm.proxy.common_utils.callback_utils",
        "add_guardrail_to_applied_guardrails_header",
        "naming the guardrail in an answer's headers",
    ),
    _internal(
        "litellm.proxy.common_utils.http_parsing_utils",
        "_read_request_body",
        "what a request asks for, on routes that are refused",
    ),
    _internal(
        "litellm.proxy.litellm_pre_call_utils",
        "move_guardrails_to_metadata",
        "which guardrails its key, team and policies ask for",
    ),
)

STREAM_LINKS = tuple(
    "completion_stream streaming_response response_iterator litellm_custom_stream_wrapper "
    "_async_generator _anthropic_wrapper _byte_stream _source_iterator _frames _wrapper _stream "
    "responses_stream".split()
)
"""Attributes by which LiteLLM's streams, and those of the OpenAI SDK, hold what they read from."""
LINKS = (*STREAM_LINKS, "async_response_iterator", "http_response", "response", "_response")
"""The same, with those that lead to an HTTP response."""
PROXY_LINKS = ("_source", "inner")
"""The same, of what LiteLLM's proxy and its Router put around a stream."""
HIDDEN = "_hidden_params"
CHAT_FIELDS = frozenset(
    "model messages custom_llm_provider logging_obj logging_loop stream_options send_stream_usage "
    "created _hidden_params _response_headers".split()
)
"""What a guarded chat stream passes on of LiteLLM's: how the call was made, and no text."""
RESPONSES_FIELDS = frozenset(
    "model logging_obj litellm_logging_obj custom_llm_provider litellm_metadata request_data "
    "call_type start_time _hidden_params".split()
)
MESSAGES_FIELDS = frozenset("model messages _hidden_params has_buffered_provider_output".split())


class Function(NamedTuple):
    """A function of LiteLLM's that interception changes, and parameters that it has to have."""

    name: str
    home: str  # the module beside litellm itself that also has it
    takes: tuple[str, ...]


_CHAT = ("model", "messages")
FUNCTIONS = (
    Function("completion", "litellm.main", _CHAT),
    Function("acompletion", "litellm.main", _CHAT),
    Function("completion_with_retries", "litellm.main", ()),
    Function("acompletion_with_retries", "litellm.main", ()),
    Function("batch_completion", "", _CHAT),
    Function("text_completion", "litellm.main", ("prompt", "model")),
    Function("atext_completion", "litellm.main", ()),
    Function("responses", "litellm.responses.main", ("input", "model")),
    Function("aresponses", "litellm.responses.main", ("input", "model")),
    Function("anthropic_messages", "", (*_CHAT, "max_tokens")),
    Function("anthropic_messages_handler", "", (*_CHAT, "max_tokens")),
    Function("generate_content", "litellm.google_genai.main", ()),
    Function("agenerate_content", "litellm.google_genai.main", ()),
    Function("generate_content_stream", "litellm.google_genai.main", ()),
    Function("agenerate_content_stream", "litellm.google_genai.main", ()),
)
METHODS: Mapping[str, tuple[Function, ...]] = {
    "litellm.Router": (
        Function("completion", "", _CHAT),
        Function("acompletion", "", _CHAT),
        Function("text_completion", "", ("prompt", "model")),
        Function("atext_completion", "", ("prompt", "model")),
    ),
    "litellm.main.Completions": (Function("create", "", _CHAT),),
    "litellm.main.AsyncCompletions": (Function("create", "", _CHAT),),
}
"""The same for methods, by their class."""
MADE = ("responses", "aresponses", "anthropic_messages", "aanthropic_messages")
"""Methods that a Router makes for each instance."""


def version() -> str:
    """Return the version of LiteLLM that is installed."""
    return metadata.version("litellm")


def is_tested() -> bool:
    """Whether that version is one that the tests stand for."""
    return SpecifierSet(TESTED).contains(version(), prereleases=True)


def check() -> None:
    """Raise ConfigError where LiteLLM is older than what guard knows, or newer and lacks a name."""
    if is_tested():
        return
    if Version(version()) < Version(CHECKED[0]):
        raise ConfigError(
            f"guard knows LiteLLM {TESTED} and found {version()}; install one of that range, or "
            "call the functions of guard itself."
        )
    if lacks := [name for internal in INTERNALS for name in missing(internal)]:
        raise ConfigError(
            f"guard was tested with LiteLLM {TESTED} and does not find {', '.join(lacks)} in "
            f"{version()}; install one of that range."
        )


def missing(internal: Internal) -> list[str]:
    """Return the names that are not where they were, in the LiteLLM that is installed."""
    home = _home(internal)
    if internal.optional or (home is None and internal.homes[0].startswith("litellm.proxy.")):
        return []
    return [
        name
        for name in internal.names
        if home is None or not (hasattr(home, name) or name in _mentioned(home))
    ]


def _home(internal: Internal) -> Any:
    for path in internal.homes:
        module, _, name = path.partition(":")
        try:
            home = import_module(module)
            return getattr(home, name) if name else home
        except (ImportError, AttributeError):
            continue
    return None


@cache
def _mentioned(home: Any) -> frozenset[str]:
    """Return the names in the code of a class or of a module's functions and classes."""
    found: set[str] = set()

    def read(code: CodeType) -> None:
        found.update(code.co_names, code.co_varnames, code.co_cellvars, code.co_freevars)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                read(constant)
            elif isinstance(constant, str):
                found.add(constant)

    def walk(owner: Any) -> None:
        for value in list(vars(owner).values()):
            value = inspect.unwrap(getattr(value, "__func__", getattr(value, "fget", value)))
            if code := getattr(value, "__code__", None):
                read(code)
            elif inspect.isclass(value) and value.__module__ == owner.__name__:
                walk(value)

    for owner in home.__mro__ if inspect.isclass(home) else (home,):
        walk(owner)
        found.update(getattr(owner, "__private_attributes__", ()))
        found.update(getattr(owner, "__annotations__", ()))
    return frozenset(found)


def router_class(router: Any) -> Any:
    """Return the class that has a Router's methods: from LiteLLM 1.109 on, one behind it."""
    return getattr(router, "_core_class", router)


def hidden_params(answer: Any) -> Any:
    """Return what LiteLLM notes beside an answer, chunk or stream; None where it notes nothing."""
    return getattr(answer, "_hidden_params", None)


def set_hidden_params(answer: Any, noted: Any) -> None:
    """Have LiteLLM read ``noted`` beside an answer, chunk or stream."""
    answer._hidden_params = noted


def reports_late(logging: Any) -> bool:
    """Whether LiteLLM's proxy reports a stream behind its guardrails."""
    return getattr(logging, "_on_deferred_stream_complete", None) is not None


def report_late(logging: Any, report: Callable[[object, object], Awaitable[None]]) -> None:
    """Have LiteLLM's proxy do so by ``report``, which takes an answer and whether it was cached."""
    logging._on_deferred_stream_complete = report


def leave_report(logging: Any, answer: object) -> None:
    """Leave the answer with the proxy that is to report it."""
    logging._deferred_stream_complete_args = (answer, False)


def decide_storing(handler: Any, decide: Callable[..., bool]) -> None:
    """Have ``decide`` say whether a caching handler stores the answer of a stream."""
    handler._should_store_result_in_cache = decide


def emit_guardrail_metrics(**facts: Any) -> None:
    """Count in LiteLLM's metrics of guardrails; LiteLLM has no public way."""
    from litellm.proxy.utils import ProxyLogging

    if (emit := getattr(ProxyLogging, "_emit_guardrail_metrics", None)) is not None:
        emit(**facts)


async def request_body(connection: Any) -> dict[str, Any]:
    """Return what a request to the proxy asks for."""
    from litellm.proxy.common_utils.http_parsing_utils import _read_request_body

    return dict(await _read_request_body(connection) or {})


async def name_guardrails(body: dict[str, Any], key: Any) -> None:
    """Put the guardrails that a key, its team and policies ask for into a request's metadata."""
    from litellm.proxy.litellm_pre_call_utils import move_guardrails_to_metadata

    await move_guardrails_to_metadata(body, "metadata", key)


def name_in_headers(request: dict[str, Any], guardrail: str | None) -> None:
    """Have LiteLLM's proxy name a guardrail in the headers of an answer."""
    from litellm.proxy.common_utils import callback_utils

    callback_utils.add_guardrail_to_applied_guardrails_header(request, guardrail)


class Untraced:
    """A logging object of LiteLLM's that tells no trace of why there is no price.

    LiteLLM takes it while it handles the provider's error, which may quote what was withheld, and
    keeps it for later calls.
    """

    model_call_details: dict[str, Any]

    def response_cost_calculator(self, *args: Any, **kwargs: Any) -> Any:
        """Return LiteLLM's price of an answer."""
        cost = super().response_cost_calculator(*args, **kwargs)  # type: ignore[misc]
        name = "response_cost_failure_debug_information"
        if info := self.model_call_details.get(name):
            self.model_call_details[name] = {**info, "traceback_str": ""}
        return cost

    _response_cost_calculator = response_cost_calculator


@cache
def untraced(kind: Any) -> Any:
    """Return ``kind``, a class of LiteLLM's logging objects, without these traces."""
    if issubclass(kind, Untraced):
        return kind
    return type(kind.__name__, (Untraced, kind), {"__doc__": kind.__doc__})


def warn_of_newer() -> None:
    """Warn where LiteLLM is newer than what the tests stand for."""
    if not is_tested() and Version(version()) > Version(CHECKED[-1]):
        warnings.warn(
            f"guard was tested with LiteLLM {TESTED} and runs with {version()}; guard doctor says "
            "whether it finds there what it needs.",
            stacklevel=2,
        )


warn_of_newer()
