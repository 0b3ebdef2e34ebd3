"""A model behind LiteLLM.

By default an answer is asked for whole: of LiteLLM's time for one, 2 ms, a stream takes the double,
and what the guard lets out does not depend on how an answer is cut into chunks. ``stream`` records
the provider's own chunks.
"""

from __future__ import annotations

import asyncio
import email.utils
import math
import re
import time
from collections.abc import Mapping
from typing import Any

import litellm
from litellm import exceptions
from litellm.llms.custom_httpx.async_client_cleanup import close_litellm_async_clients

from guard.audit.calls import Piece, Reply, Slot, Usage
from guard.audit.models import CallError, check_model
from guard.audit.sending import Sending, refused
from guard.doors.litellm.compat import hidden_params
from guard.errors import UsageError
from guard.suites import Capability, Chat, Request

# Beyond the time limit that LiteLLM itself is given, for what it does not bound.
_GRACE_S = 5.0
_LONGEST_PAUSE_S = 300.0

# What no other call of the audit would escape; the command that met them is as good as before.
_MENDABLE = (
    exceptions.AuthenticationError,
    exceptions.PermissionDeniedError,
    exceptions.BudgetExceededError,
)
_FATAL = (*_MENDABLE, exceptions.NotFoundError, exceptions.UnsupportedParamsError)
_SLOWER = (exceptions.RateLimitError, exceptions.Timeout, exceptions.ServiceUnavailableError)
# Of refusals (4xx) those that may pass: time out, conflict, too early, too many.
_PASSING = (408, 409, 425, 429)
# LiteLLM gives these the class and the status of a server's error.
_NO_KEY = re.compile(r"missing\b.*\b(credentials|api.?key)|api_key.*must be set", re.IGNORECASE)
_NO_MODULE = re.compile(r"No module named|pip install")
_NAMES = re.compile(r"^(litellm\.)?\w+(Error|Exception|Timeout)(: | - )")


class RemoteModel:
    """Asks any model string of LiteLLM's; LiteLLM's own retries and fallbacks are off.

    Raises UsageError where LiteLLM knows no provider for the name.
    """

    most: int | None = None

    def __init__(
        self, name: str, *, timeout_s: float, stream: bool = False, sending: Sending | None = None
    ) -> None:
        check_model(name)
        self.name = name
        self._timeout_s = timeout_s
        self._stream = stream
        self._sending = sending or Sending()

    async def capabilities(self, wanted: frozenset[Capability]) -> frozenset[Capability]:
        """Return which of ``wanted`` the model has: of log-probabilities one call may tell."""
        found: set[Capability] = set(wanted & {"chat"})
        if "logprobs" in wanted and await self._gives_logprobs():
            found.add("logprobs")
        return frozenset(found)

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
        }
        if request.logprobs:
            call |= {"logprobs": True, "top_logprobs": request.logprobs}
        if self._sending.api_base:
            call["api_base"] = self._sending.api_base
        if self._sending.headers:
            call["extra_headers"] = dict(self._sending.headers)
        if self._stream:
            call |= {"stream": True, "stream_options": {"include_usage": True}}
        try:
            return await asyncio.wait_for(self._ask(call), self._timeout_s + _GRACE_S)
        except asyncio.TimeoutError:
            raise CallError(
                f"no answer within {self._timeout_s:g} s", again=True, slower=True
            ) from None
        except CallError:
            raise
        except exceptions.ContentPolicyViolationError:
            # The provider declined to answer: an outcome, and the same one at any attempt.
            return Reply(finish_reason="content_filter")
        except Exception as error:
            raise self._call_error(error) from error

    async def _ask(self, call: dict[str, Any]) -> Reply:
        response: Any = await litellm.acompletion(**call)
        if self._stream:
            return await self._streamed(response)
        choice: Any = next(iter(getattr(response, "choices", None) or ()), None)
        message = getattr(choice, "message", None)
        if message is None or not isinstance(message.content, str | None):
            raise CallError("the provider's answer holds none (malformed)", again=True)
        thought = getattr(message, "reasoning_content", None)
        pieces = [Piece(thought, reasoning=True)] if thought else []
        said = message.content or _refusal(message)
        if said:
            pieces.append(Piece(said))
        return Reply(
            tuple(pieces),
            choice.finish_reason or "stop",
            _first_tokens(getattr(choice, "logprobs", None)),
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
                thought = getattr(choice.delta, "reasoning_content", None)
                pieces += [Piece(thought, reasoning=True)] if thought else []
                if choice.delta.content:
                    pieces.append(Piece(choice.delta.content))
                first = first or _first_tokens(getattr(choice, "logprobs", None))
                finish = choice.finish_reason or finish
        if not finish:
            raise CallError("the provider's stream broke off before its end", again=True)
        return Reply(tuple(pieces), finish, first, usage=self._usage(usage))

    def _usage(self, usage: Any, cost: float | None = None) -> Usage:
        """Return the tokens and their price; ``cost`` is what LiteLLM has worked out already."""
        asked = getattr(usage, "prompt_tokens", None) or 0
        said = getattr(usage, "completion_tokens", None) or 0
        return Usage(asked, said, cost or price(self.name, asked, said))

    def _call_error(self, error: Exception) -> CallError:
        status = getattr(error, "status_code", None)
        told = _words(error)
        for secret in self._sending.headers.values():
            told = told.replace(secret, "…") if secret else told
        if _in_success(error):
            status = None
        no_key, no_module = _NO_KEY.search(told), _NO_MODULE.search(told)
        if isinstance(error, _FATAL) or no_key or no_module:
            mendable = isinstance(error, _MENDABLE) or bool(no_key or no_module)
            return CallError(f"{self.name} cannot be asked: {told}", fatal=True, mendable=mendable)
        again = not (isinstance(status, int) and 400 <= status < 500 and status not in _PASSING)
        long = isinstance(error, exceptions.ContextWindowExceededError)
        kind = type(error).__name__ + (f" ({status})" if status else "")
        return CallError(
            f"{kind}: {told}" if told else kind,
            again=again,
            slower=isinstance(error, _SLOWER),
            refused=not again and not long,
            pause_s=retry_after(error),
        )

    async def aclose(self) -> None:
        """Close LiteLLM's connections of this event loop."""
        await close_litellm_async_clients()  # type: ignore[no-untyped-call]
        # LiteLLM keeps what it closed, and the next suite of this loop would be given it.
        litellm.in_memory_llm_clients_cache.flush_cache()  # type: ignore[no-untyped-call]


# Of probabilities in half precision: what their sum may be above 1.
_ROUNDING = 0.02

# Characters that are told of an error.
_WORDS = 300

_unpriced: set[str] = set()


def price(model: str, asked: float, said: float) -> float:
    """Return what so many tokens cost in US dollars by LiteLLM's prices; nan where it has none."""
    if model in _unpriced:
        return math.nan
    try:
        parts = litellm.cost_per_token(
            model=model, prompt_tokens=round(asked), completion_tokens=round(said)
        )
    except Exception:  # what LiteLLM raises for a model without a price is of no class of its own
        _unpriced.add(model)
        return math.nan
    return float(sum(parts))


def cost_of(model: str | None, asked: float, said: float) -> float:
    """Return the price of many ordinary calls: none has a long prompt's price; nan if unknown."""
    if model is None or math.isnan(asked) or math.isnan(said):
        return math.nan
    return asked * price(model, 1000, 0) / 1000 + said * price(model, 0, 1000) / 1000


def _first_tokens(logprobs: Any) -> Mapping[str, float]:
    """Return the likeliest first tokens in LiteLLM's ``logprobs``, empty where there are none.

    What cannot be probabilities is none: missing or no numbers, or summing to more than 1.
    """
    content = _member(logprobs, "content")
    if not content:
        return {}
    top = _member(content[0], "top_logprobs") or [content[0]]
    told = [(_member(t, "token"), _member(t, "logprob")) for t in top]
    if not all(isinstance(n, str) and isinstance(p, int | float) and p < 1 for n, p in told):
        return {}  # a comparison with nan is false too
    if math.fsum(math.exp(p) for _, p in told) > 1 + _ROUNDING:
        return {}
    return {name: float(p) for name, p in told}


def _member(owner: Any, name: str) -> Any:
    return owner.get(name) if isinstance(owner, Mapping) else getattr(owner, name, None)


def _refusal(message: Any) -> str:
    """Return the words of an answer that the provider marks as a refusal."""
    fields = _member(message, "provider_specific_fields") or {}
    told = _member(message, "refusal") or fields.get("refusal")
    return told if isinstance(told, str) else ""


def _in_success(error: BaseException | None) -> bool:
    """Return whether an error was the body of a success: LiteLLM makes a status of its own for it.

    It then begins with an exception of no class, where a refusal begins with that of the client.
    """
    while error is not None:
        if type(error) is Exception and hasattr(error, "status_code"):
            return True
        error = error.__cause__ or error.__context__
    return False


def _words(error: Exception) -> str:
    """Return what LiteLLM says of an error: its first line, without the names of its classes."""
    told = next(iter(str(error).strip().splitlines()), "")
    while match := _NAMES.match(told):
        told = told[match.end() :]
    told = told.strip()
    return told if len(told) <= _WORDS else f"{told[:_WORDS].rpartition(' ')[0] or told[:_WORDS]} …"


def may_give_logprobs(model: str, sending: Sending) -> bool:
    """Return whether LiteLLM would ask ``model`` for log-probabilities; a call tells the rest."""
    if "logprobs" in sending.dropped:
        return False
    offered = litellm.get_supported_openai_params(model) or []
    asked = {**sending.given, "logprobs": True, "top_logprobs": 2}
    return "logprobs" in offered and not refused(model, asked)


def retry_after(error: Exception) -> float:
    """Return the seconds that a provider asks to wait, 0 where it does not; at most five minutes.

    ``Retry-After`` holds seconds or an HTTP date (RFC 9110, 10.2.3).
    """
    headers = getattr(getattr(error, "response", None), "headers", None)
    if not headers:
        headers = getattr(error, "litellm_response_headers", None) or {}
    told = headers.get("retry-after")
    if told is None:
        return 0.0
    try:
        seconds = float(told)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(told).timestamp() - time.time()
        except ValueError:
            return 0.0
    return min(max(seconds, 0.0), _LONGEST_PAUSE_S) if math.isfinite(seconds) else 0.0
