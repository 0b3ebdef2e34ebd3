"""LiteLLM's internals: every undocumented name that guard reads, calls or replaces.

The rest of guard uses them through this module only (``tests/test_architecture.py``). They are
listed in ``internals.toml``; ``guard doctor`` looks each up in the installed LiteLLM.
"""

from __future__ import annotations

import copy
import inspect
import sys
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple
from weakref import ref

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from guard.doors.context import LOGGING
from guard.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

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
]

TESTED = ">=1.81.10,<1.111"
"""The tested versions of LiteLLM. An older one is refused; with a newer one, guard warns."""
OLDEST, NEWEST = "1.81.10", "1.110.2"
"""The oldest and the newest version on which the tests ran."""
ALL_DOORS = "1.106.2"
"""The oldest version with every door. An older one makes and reports streams of the Responses and
Messages API otherwise: with it chats and text completions are guarded, and the rest is refused."""

try:
    from litellm.litellm_core_utils.litellm_logging import Logging
    from litellm.litellm_core_utils.rules import Rules
    from litellm.litellm_core_utils.streaming_handler import (
        CustomStreamWrapper,
        calculate_total_usage,
    )
    from litellm.litellm_core_utils.thread_pool_executor import executor
    from litellm.llms.openai.responses.transformation import OpenAIResponsesAPIConfig
    from litellm.main import AsyncCompletions, Chat, Completions
    from litellm.responses.streaming_iterator import BaseResponsesAPIStreamingIterator
    from litellm.utils import TextCompletionStreamWrapper, function_setup
except ImportError as error:
    if error.name == "litellm":
        raise
    raise ConfigError(
        f"guard does not find {error.name} in LiteLLM {metadata.version('litellm')} ({error}); "
        f"install litellm{TESTED}."
    ) from None


class Internal(NamedTuple):
    """A row of ``internals.toml``, which describes the fields."""

    homes: tuple[str, ...]
    names: tuple[str, ...]
    use: str
    checked: tuple[str, ...]
    optional: bool = False
    since: str = "0"


@cache
def internals() -> tuple[Internal, ...]:
    """Return the table of LiteLLM's internals."""
    table = tomllib.loads(Path(__file__).with_name("internals.toml").read_text(encoding="utf-8"))
    return tuple(
        Internal(
            tuple(row["homes"]),
            tuple(row["names"].split()),
            row["use"],
            tuple(row.get("checked", table["checked"])),
            row.get("optional", False),
            row.get("since", "0"),
        )
        for row in table["internals"]
    )


STREAM_LINKS = tuple(
    "completion_stream streaming_response response_iterator litellm_custom_stream_wrapper "
    "_async_generator _anthropic_wrapper _byte_stream _source_iterator _frames _wrapper _stream "
    "responses_stream".split()
)
"""Attributes in which streams of LiteLLM and the OpenAI SDK hold the stream they read from."""
LINKS = (*STREAM_LINKS, "async_response_iterator", "http_response", "response", "_response")
"""The same, with attributes that hold an HTTP response."""
PROXY_LINKS = ("_source", "inner")
"""The same, of the wrappers that LiteLLM's proxy and its Router put around a stream."""
HIDDEN = "_hidden_params"
HANDLERS = ("llm_caching_handler", "_llm_caching_handler")
"""Names under which a logging object keeps the handler of the cache; until 1.105 the second."""
CHAT_FIELDS = frozenset(
    "model messages custom_llm_provider logging_obj logging_loop stream_options send_stream_usage "
    "created _hidden_params _response_headers".split()
)
"""LiteLLM's attributes that a guarded chat stream passes on: they describe the call, not text."""
RESPONSES_FIELDS = frozenset(
    "model logging_obj litellm_logging_obj custom_llm_provider litellm_metadata request_data "
    "call_type start_time _hidden_params".split()
)
MESSAGES_FIELDS = frozenset("model messages _hidden_params has_buffered_provider_output".split())


class Function(NamedTuple):
    """A LiteLLM function that interception patches, and the parameters that it must have."""

    name: str
    home: str  # a module, other than litellm itself, that also has it
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
"""The same for methods, by class."""
ENDPOINTS = ("responses", "aresponses", "anthropic_messages", "aanthropic_messages")
"""A Router's other methods with a door. It creates them for each instance; since LiteLLM 1.110 they
are methods of its class or are looked up by name."""


def version() -> str:
    """Return the installed version of LiteLLM."""
    return metadata.version("litellm")


def is_tested() -> bool:
    """Whether the installed version is in the tested range."""
    return SpecifierSet(TESTED).contains(version(), prereleases=True)


def check() -> None:
    """Raise ConfigError if LiteLLM is older than the tested range, or newer with names missing."""
    if is_tested():
        return
    if Version(version()) < Version(OLDEST):
        raise ConfigError(
            f"guard supports LiteLLM {TESTED} and found {version()}; install a version in that "
            "range, or call the functions of guard itself."
        )
    if absent := [name for internal in internals() for name in missing(internal)]:
        raise ConfigError(
            f"guard was tested with LiteLLM {TESTED} and does not find {', '.join(absent)} in "
            f"{version()}; install a version in that range."
        )


def refused(what: str) -> str:
    """Return why guard refuses a door with the installed LiteLLM; empty if it has all doors."""
    if Version(version()) >= Version(ALL_DOORS):
        return ""
    return (
        f"guard judges {what} with LiteLLM {ALL_DOORS} or newer and found {version()}, with which "
        "it judges chats and text completions; install a newer LiteLLM."
    )


def check_door(what: str) -> None:
    """Raise ConfigError if guard refuses a door with the installed LiteLLM."""
    if reason := refused(what):
        raise ConfigError(reason)


def missing(internal: Internal) -> list[str]:
    """Return the names of ``internal`` that the installed LiteLLM does not have.

    None before the version since which guard uses them, and none of a module that LiteLLM cannot
    import itself, because a package that it does not require is not installed, such as the proxy's.
    """
    home = _home_module(internal)
    unused = internal.optional or Version(version()) < Version(internal.since)
    if unused or (home is None and _needs_other_package(internal)):
        return []
    return [
        name
        for name in internal.names
        if home is None or not (hasattr(home, name) or name in _mentioned_names(home))
    ]


def _needs_other_package(internal: Internal) -> bool:
    if internal.homes[0].startswith("litellm.proxy."):
        return True
    try:
        import_module(internal.homes[0].partition(":")[0])
    except ModuleNotFoundError as error:
        return not internal.homes[0].startswith(error.name or "litellm")
    except ImportError:
        pass
    return False


def _home_module(internal: Internal) -> Any:
    for path in internal.homes:
        module, _, name = path.partition(":")
        try:
            home = import_module(module)
            return getattr(home, name) if name else home
        except (ImportError, AttributeError):
            continue
    return None


@cache
def _mentioned_names(home: Any) -> frozenset[str]:
    """Return the names in the code of a class or of a module's functions and classes."""
    names: set[str] = set()

    def read(code: CodeType) -> None:
        names.update(code.co_names, code.co_varnames, code.co_cellvars, code.co_freevars)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                read(constant)
            elif isinstance(constant, str):
                names.add(constant)

    def walk(owner: Any) -> None:
        for value in list(vars(owner).values()):
            if isinstance(value, property):
                value = value.fget
            elif isinstance(value, (staticmethod, classmethod)):
                value = value.__func__
            if isinstance(value, FunctionType):
                code = getattr(inspect.unwrap(value), "__code__", None)
                read(value.__code__ if code is None else code)
            elif inspect.isclass(value) and value.__module__ == owner.__name__:
                walk(value)

    for owner in home.__mro__ if inspect.isclass(home) else (home,):
        walk(owner)
        names.update(getattr(owner, "__private_attributes__", ()))
        names.update(getattr(owner, "__annotations__", ()))
    return frozenset(names)


def router_class(router: Any) -> Any:
    """Return the class that defines a Router's methods: since LiteLLM 1.109, its core class.

    1.109 has it as an attribute of Router, 1.110 as a function of Router's module.
    """
    if (core := getattr(router, "_core_class", None)) is not None:
        return core
    core_class = getattr(import_module(router.__module__), "_core_class", None)
    return router if core_class is None else core_class()


def hidden_params(answer: Any) -> Any:
    """Return LiteLLM's hidden parameters of an answer, chunk or stream; None if it has none."""
    return getattr(answer, "_hidden_params", None)


def set_hidden_params(answer: Any, noted: Any) -> None:
    """Set LiteLLM's hidden parameters of an answer, chunk or stream."""
    answer._hidden_params = noted


def under_response(response: Any) -> list[Any]:
    """Return the stream over aiohttp that closing an HTTP response does not close.

    Until 1.82 LiteLLM gives it to the response as content, which httpx reads and never closes.
    """
    content = getattr(getattr(response.stream, "_stream", None), "_stream", None)
    return [content] if hasattr(content, "aclose") else []


def end_finaliser(stream: CustomStreamWrapper) -> None:
    """Have the finaliser of a chat stream do nothing: it sets context variables.

    It calls a method, which it tells apart from other callers by ``guarded``.
    """
    restore = getattr(type(stream), "_restore_consumer_correlation_context", None)
    if restore is None or "_restore_consumer_correlation_context" in stream.__dict__:
        return
    reference = ref(stream)  # a cycle would keep the stream until the next garbage collection

    def restored(*, guarded: bool = False) -> None:
        if not guarded and (alive := reference()) is not None:
            restore(alive)

    stream.__dict__["_restore_consumer_correlation_context"] = restored


def usage_chunk(stream: CustomStreamWrapper) -> Any:
    """Return the chunk in which this version of LiteLLM gives a stream's usage, without it.

    Since 1.110 it has no choice; before that, an empty one.
    """
    make = getattr(stream, "_new_usage_chunk", stream.model_response_creator)
    return make()


async def report_success(logging: Any, answer: object, **facts: Any) -> None:
    """Report an answer to all callbacks of ``logging`` from an event loop."""
    if (dispatch := getattr(logging, "dispatch_success_handlers", None)) is not None:
        await dispatch(answer, **facts, prefer_async_handlers=True)
        return
    # Until 1.83 its streams do this themselves.
    facts = {"start_time": None, "end_time": None, **facts}
    await logging.async_success_handler(answer, **facts)
    executor.submit(logging.success_handler, answer, **facts)


def reports_late(logging: Any) -> bool:
    """Whether LiteLLM's proxy reports a stream after its guardrails have run."""
    return getattr(logging, "_on_deferred_stream_complete", None) is not None


def report_late(logging: Any, report: Callable[[object, object], Awaitable[None]]) -> None:
    """Have LiteLLM's proxy call ``report`` then, with the answer and whether it was cached."""
    logging._on_deferred_stream_complete = report


def leave_report(logging: Any, answer: object) -> None:
    """Store the answer that the proxy will report."""
    logging._deferred_stream_complete_args = (answer, False)


def defer_writes(handler: Any, write: Any, awrite: Any, streamed: Callable[..., bool]) -> None:
    """Have a caching handler store whole answers by ``write`` and ``awrite``.

    ``streamed`` says whether LiteLLM stores the answer of a stream of the Responses API itself.
    """
    handler.sync_set_cache, handler.async_set_cache = write, awrite
    handler._should_store_result_in_cache = streamed


def undeferred(handler: Any) -> Any:
    """Return a copy of a caching handler that decides and stores as LiteLLM does."""
    own = copy.copy(handler)
    for name in ("sync_set_cache", "async_set_cache", "_should_store_result_in_cache"):
        own.__dict__.pop(name, None)
    return own


def stores(handler: Any, **call: Any) -> bool:
    """Whether LiteLLM stores the answer of a call."""
    return bool(undeferred(handler)._should_store_result_in_cache(**call))


def emit_guardrail_metrics(**facts: Any) -> None:
    """Add to LiteLLM's guardrail metrics, for which LiteLLM has no public function."""
    from litellm.proxy.utils import ProxyLogging

    if (emit := getattr(ProxyLogging, "_emit_guardrail_metrics", None)) is not None:
        emit(**facts)


def call_span(call_id: str) -> Any:
    """Return the open span of a call in LiteLLM's OpenTelemetry callback; None if it has none."""
    import litellm

    for callback in litellm.input_callback:
        opened = getattr(callback, "_open_llm_calls", {}).get(call_id)
        if opened is not None and opened.span is not None:
            return opened.span
    return None


def guardrail_log(request: dict[str, Any]) -> list[Any]:
    """Return the list of results of guardrails in a request to the proxy."""
    from litellm.litellm_core_utils.core_helpers import get_or_create_metadata_bucket

    log: list[Any] = get_or_create_metadata_bucket(request)[1][
        "standard_logging_guardrail_information"
    ]
    return log


async def request_body(connection: Any) -> dict[str, Any]:
    """Return the body of a request to the proxy."""
    from litellm.proxy.common_utils.http_parsing_utils import _read_request_body

    return dict(await _read_request_body(connection) or {})


async def name_guardrails(body: dict[str, Any], key: Any) -> None:
    """Put the guardrails of a key, its team and its policies into a request's metadata."""
    from litellm.proxy.litellm_pre_call_utils import move_guardrails_to_metadata

    await move_guardrails_to_metadata(body, "metadata", key)


def name_in_headers(request: dict[str, Any], guardrail: str | None) -> None:
    """Have LiteLLM's proxy name a guardrail in the headers of an answer."""
    from litellm.proxy.common_utils import callback_utils

    callback_utils.add_guardrail_to_applied_guardrails_header(request, guardrail)


class Untraced:
    """A LiteLLM logging object that stores no traceback when it cannot compute a price.

    LiteLLM takes that traceback while it handles the provider's error, which may quote withheld
    text, and keeps it for later calls.
    """

    model_call_details: dict[str, Any]

    def response_cost_calculator(self, *args: Any, **kwargs: Any) -> Any:
        """Return LiteLLM's price of an answer."""
        return self._untraced("response_cost_calculator", args, kwargs)

    def _response_cost_calculator(self, *args: Any, **kwargs: Any) -> Any:
        # An alias of the one above; until 1.105 the only one.
        return self._untraced("_response_cost_calculator", args, kwargs)

    def _untraced(self, calculator: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        cost = getattr(super(), calculator)(*args, **kwargs)
        name = "response_cost_failure_debug_information"
        if info := self.model_call_details.get(name):
            self.model_call_details[name] = {**info, "traceback_str": ""}
        return cost


def logging_of_call(
    function: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """Return a logging object for a call of ``function``, and the call's arguments with it."""
    import litellm

    # Since 1.100; an older one takes it for an argument of the call.
    if "is_async_call" in inspect.signature(function_setup).parameters:
        asynchronous = inspect.iscoroutinefunction(getattr(litellm, function))
        kwargs = {**kwargs, "is_async_call": asynchronous}
    logging, arguments = function_setup(function, Rules(), datetime.now(), *args, **kwargs)
    return logging, arguments


@cache
def untraced(kind: Any) -> Any:
    """Return ``kind``, a class of LiteLLM's logging objects, without these tracebacks."""
    if issubclass(kind, Untraced):
        return kind
    return type(kind.__name__, (Untraced, kind), {"__doc__": kind.__doc__})


def name_threads() -> None:
    """Name LiteLLM's logging threads as a newer LiteLLM does, by which guard knows them."""
    if not str(executor._thread_name_prefix).startswith(LOGGING):
        executor._thread_name_prefix = LOGGING
        for thread in executor._threads:
            thread.name = f"{LOGGING}_{thread.name}"


def warn_of_newer() -> None:
    """Warn if LiteLLM is newer than the tested range."""
    if not is_tested() and Version(version()) > Version(NEWEST):
        warnings.warn(
            f"guard was tested with LiteLLM {TESTED} and runs with {version()}; run guard doctor "
            "to check that it has the internals that guard needs.",
            stacklevel=2,
        )


name_threads()
warn_of_newer()
