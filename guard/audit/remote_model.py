"""A model behind LiteLLM.

By default answers are not streamed: a stream doubles LiteLLM's own time of 2 ms an answer, and the
guard's output does not depend on the chunks. ``stream`` records the provider's chunks.
"""

from __future__ import annotations

import asyncio
import email.utils
import json
import math
import re
import time
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import litellm
from litellm import exceptions
from litellm.llms.custom_httpx.async_client_cleanup import close_litellm_async_clients

from guard.audit.addresses import (
    check_address_kept,
    client_arguments,
    close_client,
    redirect_in,
)
from guard.audit.calls import Piece, Reply, Slot, Usage
from guard.audit.failures import UNREADABLE, cause_of, without_quotes
from guard.audit.models import CallError, check_model
from guard.audit.sending import Sending
from guard.doors.litellm.compat import hidden_params
from guard.errors import UsageError
from guard.model_calls import (
    first_tokens,
    is_token_count,
    price_of_tokens,
    provider_of,
    reason_refused,
    refusal_text,
)
from guard.suites import Capability, Chat, Request

_GRACE_S = 5.0  # beyond LiteLLM's own time limit, which does not cover everything
_LONGEST_PAUSE_S = 300.0

# Errors that every other call would meet, too; the same command resumes once they are fixed.
_FIXABLE = (
    exceptions.AuthenticationError,
    exceptions.PermissionDeniedError,
    exceptions.BudgetExceededError,
)
_FATAL = (*_FIXABLE, exceptions.NotFoundError, exceptions.UnsupportedParamsError)
_THROTTLED = (exceptions.RateLimitError, exceptions.Timeout, exceptions.ServiceUnavailableError)
# Retryable client errors: timeout, conflict, too early, too many requests.
_RETRYABLE = (408, 409, 425, 429)
# LiteLLM reports these with the class and status of a server error.
_NO_KEY = re.compile(r"missing\b.*\b(credentials|api.?key)|api_key.*must be set", re.IGNORECASE)
_NO_MODULE = re.compile(r"No module named|pip install")
_NAMES = re.compile(r"^(litellm\.)?\w+(Error|Exception|Timeout)(: | - )")
_MOST_TEXT = 300  # characters of an error's message


class RemoteModel:
    """Asks a model of LiteLLM's, without LiteLLM's own retries and fallbacks.

    Raises UsageError where LiteLLM knows no provider for the name, or its key is not set.
    """

    max_concurrency: int | None = None

    def __init__(
        self, name: str, *, timeout_s: float, stream: bool = False, sending: Sending | None = None
    ) -> None:
        sending = sending or Sending()
        check_address_kept(name, sending.api_base, "--api-base")
        check_model(name)
        self.name = name
        self._provider = provider_of(name)
        self._timeout_s = timeout_s
        self._stream = stream
        self._sending = sending
        self._key = self._sending.api_key
        # They quote answers. Set here and not on import, because test runners reset filters.
        warnings.filterwarnings("ignore", "Pydantic serializer warnings", UserWarning)

    async def capabilities(self, wanted: frozenset[Capability]) -> frozenset[Capability]:
        """Return which of ``wanted`` the model has; may try log-probabilities with one call."""
        capabilities: set[Capability] = set(wanted & {"chat"})
        if "logprobs" in wanted and await self._gives_logprobs():
            capabilities.add("logprobs")
        return frozenset(capabilities)

    async def _gives_logprobs(self) -> bool:
        if not may_give_logprobs(self.name, self._sending):
            return False
        probe = Chat(({"role": "user", "content": "Say a."},), {"max_tokens": 1}, logprobs=2)
        asked = self._sending.request(probe)
        assert isinstance(asked, Chat)
        try:
            reply = await self.ask(asked, "", Slot("", 0, 0))
        except CallError as error:
            if error.fatal and not isinstance(error.__cause__, exceptions.UnsupportedParamsError):
                raise UsageError(str(error)) from None
            return False
        return bool(reply.first_tokens)

    async def ask(self, request: Request, key: str, slot: Slot) -> Reply:
        """Return the answer to one call."""
        assert isinstance(request, Chat)
        call: dict[str, Any] = {
            "model": self.name,
            "messages": self._sending.messages(request),
            "timeout": self._timeout_s,
            "max_retries": 0,
            **request.settings,
            **client_arguments(self._provider),
        }
        if request.logprobs:
            call |= {"logprobs": True, "top_logprobs": request.logprobs}
        if self._sending.api_base:
            call["api_base"] = self._sending.api_base
        if self._key:
            call["api_key"] = self._key
        if self._sending.headers:
            call["extra_headers"] = dict(self._sending.headers)
        if self._stream:
            call |= {"stream": True, "stream_options": {"include_usage": True}}
        try:
            return await asyncio.wait_for(self._ask(call), self._timeout_s + _GRACE_S)
        except asyncio.TimeoutError:
            text = f"no answer within {self._timeout_s:g} s"
            raise CallError(text, retryable=True, throttled=True, kind="Timeout") from None
        except CallError:
            raise
        except exceptions.ContentPolicyViolationError:
            # The provider's filter withheld the answer, which is an outcome, not a failure.
            return Reply(finish_reason="content_filter")
        except Exception as error:
            raise self._call_error(error, request) from error

    async def _ask(self, call: dict[str, Any]) -> Reply:
        response: Any = await litellm.acompletion(**call)
        if self._stream:
            return await self._streamed(response)
        choice: Any = next(iter(getattr(response, "choices", None) or ()), None)
        message = getattr(choice, "message", None)
        if message is None or not isinstance(message.content, str | None):
            raise CallError("the provider's response has no answer (malformed)", retryable=True)
        reasoning = getattr(message, "reasoning_content", None)
        pieces = [Piece(reasoning, reasoning=True)] if reasoning else []
        if text := message.content or refusal_text(message):
            pieces.append(Piece(text))
        return Reply(
            tuple(pieces),
            choice.finish_reason or "stop",
            first_tokens(getattr(choice, "logprobs", None)),
            usage=self._usage(
                getattr(response, "usage", None), hidden_params(response).get("response_cost")
            ),
        )

    async def _streamed(self, stream: Any) -> Reply:
        pieces: list[Piece] = []
        finish, usage = "", None
        first: Mapping[str, float] = {}
        async for chunk in stream:
            usage = getattr(chunk, "usage", None) or usage
            for choice in chunk.choices[:1]:
                reasoning = getattr(choice.delta, "reasoning_content", None)
                pieces += [Piece(reasoning, reasoning=True)] if reasoning else []
                if choice.delta.content:
                    pieces.append(Piece(choice.delta.content))
                first = first or first_tokens(getattr(choice, "logprobs", None))
                finish = choice.finish_reason or finish
        if not finish:
            raise CallError("the provider's stream ended early", retryable=True)
        return Reply(tuple(pieces), finish, first, usage=self._usage(usage))

    def _usage(self, usage: Any, cost: float | None = None) -> Usage:
        """Return the tokens and their price; ``cost`` is LiteLLM's own figure, if it has one."""
        prompt = getattr(usage, "prompt_tokens", None) or 0
        completion = getattr(usage, "completion_tokens", None) or 0
        if not is_token_count(prompt) or not is_token_count(completion):
            return Usage()  # LiteLLM's figure would be of the same counts
        if cost is None or not 0 < cost < math.inf:
            cost = price_of_tokens(self.name, prompt, completion)
        return Usage(prompt, completion, cost)

    def _call_error(self, error: Exception, request: Chat) -> CallError:
        if redirect := redirect_in(error):
            mend = "Give the address of the host that answers."
            text = f"{self.name} cannot be asked: {redirect}. {mend}"
            return CallError(text, fatal=True, fixable=True)
        status = None if _in_success(error) else getattr(error, "status_code", None)
        text = _message_text(error)
        for secret in self._sending.secrets():
            text = text.replace(secret, "…")
        setup = bool(_NO_KEY.search(text) or _NO_MODULE.search(text))
        text, cause = self._printed_and_recorded(error, text, request)
        if isinstance(error, _FATAL) or setup:
            fixable = setup or isinstance(error, _FIXABLE)
            text = f"{self.name} cannot be asked: {text or cause or type(error).__name__}"
            return CallError(text, fatal=True, fixable=fixable)
        client_error = isinstance(status, int) and 400 <= status < 500
        retryable = not client_error or status in _RETRYABLE
        long = isinstance(error, exceptions.ContextWindowExceededError)
        kind = type(error).__name__
        head = kind + (f" ({status})" if status else "")
        return CallError(
            f"{head}: {text}" if text else head,
            retryable=retryable,
            throttled=isinstance(error, _THROTTLED),
            refused=not retryable and not long,
            retry_after_s=retry_after(error),
            kind=kind,
            status=status if isinstance(status, int) else None,
            cause=cause,
        )

    def _printed_and_recorded(self, error: Exception, text: str, request: Chat) -> tuple[str, str]:
        """Return what may be printed of the message ``text``, and the cause that is recorded."""
        if _in_success(error):  # the body may be an answer
            return UNREADABLE, UNREADABLE
        asked = [str(message["content"]) for message in self._sending.messages(request)]
        cause = cause_of(_without_prompts(_without_traceback(error), asked))
        if isinstance(error, exceptions.UnsupportedParamsError):  # LiteLLM's own words
            return text, cause
        return without_quotes(text, asked), cause

    async def aclose(self) -> None:
        """Close LiteLLM's connections of this event loop."""
        await close_client()
        await close_litellm_async_clients()  # type: ignore[no-untyped-call]
        # LiteLLM caches closed clients, and the next suite in this loop would get them.
        litellm.in_memory_llm_clients_cache.flush_cache()  # type: ignore[no-untyped-call]


def _in_success(error: BaseException | None) -> bool:
    """Return whether the error was the body of a successful response; its status is LiteLLM's.

    The root cause is then a plain ``Exception``, and otherwise an error of the HTTP client.
    """
    while error is not None:
        if type(error) is Exception and hasattr(error, "status_code"):
            return True
        error = error.__cause__ or error.__context__
    return False


def _without_prompts(message: str, asked: Iterable[str]) -> str:
    """Return ``message`` without what was asked: its words are no cause."""
    for text in asked:
        for form in (text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]):
            message = message.replace(form, " ") if form else message
    return message


def _without_traceback(error: Exception) -> str:
    """Return LiteLLM's message without the traceback that some have: its code is no cause."""
    return str(error).partition("Traceback (most recent call last)")[0].strip()


def _message_text(error: Exception) -> str:
    """Return the first line of LiteLLM's message, without the names of exception classes."""
    text = next(iter(_without_traceback(error).splitlines()), "")
    while match := _NAMES.match(text):
        text = text[match.end() :]
    text = text.strip(" .")
    if len(text) <= _MOST_TEXT:
        return text
    return f"{text[:_MOST_TEXT].rpartition(' ')[0] or text[:_MOST_TEXT]} …"


def may_give_logprobs(model: str, sending: Sending) -> bool:
    """Return whether LiteLLM would ask ``model`` for log-probabilities."""
    if "logprobs" in sending.dropped:
        return False
    offered = litellm.get_supported_openai_params(model) or []
    asked = {**sending.given, "logprobs": True, "top_logprobs": 2}
    return "logprobs" in offered and not reason_refused(model, asked)


def retry_after(error: Exception) -> float:
    """Return the seconds of the provider's ``Retry-After``, at most five minutes; 0 without one.

    The header holds seconds or an HTTP date (RFC 9110, 10.2.3).
    """
    headers = getattr(getattr(error, "response", None), "headers", None)
    if not headers:
        headers = getattr(error, "litellm_response_headers", None) or {}
    value = headers.get("retry-after")
    if value is None:
        return 0.0
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except ValueError:
            return 0.0
    return min(max(seconds, 0.0), _LONGEST_PAUSE_S) if math.isfinite(seconds) else 0.0
