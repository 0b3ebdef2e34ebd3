"""A model behind LiteLLM.

By default an answer is asked for whole: of LiteLLM's time for one, 2 ms, a stream takes the double,
and what the guard lets out does not depend on how an answer is cut into chunks. ``stream`` records
the provider's own chunks.
"""

from __future__ import annotations

import asyncio
import email.utils
import math
import time
from collections.abc import Mapping
from typing import Any

import litellm
from litellm import exceptions
from litellm.llms.custom_httpx.async_client_cleanup import close_litellm_async_clients
from litellm.types.utils import ModelResponse

from guard.audit.calls import Piece, Reply, Slot, Usage
from guard.audit.models import CallError
from guard.errors import UsageError
from guard.suites import Capability, Chat, Request

# Beyond the time limit that LiteLLM itself is given, for what it does not bound.
_GRACE_S = 5.0
_LONGEST_PAUSE_S = 300.0

_FATAL = (
    exceptions.AuthenticationError,
    exceptions.PermissionDeniedError,
    exceptions.NotFoundError,
    exceptions.UnsupportedParamsError,
    exceptions.BudgetExceededError,
)
_SLOWER = (exceptions.RateLimitError, exceptions.Timeout, exceptions.ServiceUnavailableError)
_AGAIN = (
    *_SLOWER,
    exceptions.APIConnectionError,
    exceptions.InternalServerError,
    exceptions.BadGatewayError,
)


class RemoteModel:
    """Asks any model string of LiteLLM's; LiteLLM's own retries and fallbacks are off.

    Raises UsageError where LiteLLM knows no provider for the name.
    """

    most: int | None = None

    def __init__(self, name: str, *, timeout_s: float, stream: bool = False) -> None:
        litellm.suppress_debug_info = True
        try:
            litellm.get_llm_provider(name)
        except exceptions.BadRequestError:
            raise UsageError(
                f"LiteLLM knows no provider for {name!r}; give provider/model, such as "
                "openai/gpt-4o-mini, or local:smollm2."
            ) from None
        self.name = name
        self._timeout_s = timeout_s
        self._stream = stream

    async def capabilities(self, wanted: frozenset[Capability]) -> frozenset[Capability]:
        """Return which of ``wanted`` the model has: of log-probabilities one call may tell."""
        found: set[Capability] = set(wanted & {"chat"})
        if "logprobs" in wanted and await self._gives_logprobs():
            found.add("logprobs")
        return frozenset(found)

    async def _gives_logprobs(self) -> bool:
        offered = litellm.get_supported_openai_params(self.name) or []
        if "logprobs" not in offered:
            return False
        probe = Chat(({"role": "user", "content": "Say a."},), {"max_tokens": 1}, logprobs=2)
        try:
            reply = await self.ask(probe, "", Slot("", 0, 0))
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
            "messages": [dict(m) for m in request.messages],
            "timeout": self._timeout_s,
            "max_retries": 0,
            **request.settings,
        }
        if request.logprobs:
            call |= {"logprobs": True, "top_logprobs": request.logprobs}
        if self._stream:
            call |= {"stream": True, "stream_options": {"include_usage": True}}
        try:
            return await asyncio.wait_for(self._ask(call), self._timeout_s + _GRACE_S)
        except asyncio.TimeoutError:
            raise CallError(
                f"no answer within {self._timeout_s:g} s", again=True, slower=True
            ) from None
        except exceptions.ContentPolicyViolationError:
            # The provider declined to answer: an outcome, and the same one at any attempt.
            return Reply(finish_reason="content_filter")
        except Exception as error:
            raise _call_error(error, self.name) from error

    async def _ask(self, call: dict[str, Any]) -> Reply:
        response: Any = await litellm.acompletion(**call)
        if self._stream:
            return await self._streamed(response)
        assert isinstance(response, ModelResponse)
        choice: Any = response.choices[0]
        message = choice.message
        thought = getattr(message, "reasoning_content", None)
        pieces = [Piece(thought, reasoning=True)] if thought else []
        if message.content:
            pieces.append(Piece(message.content))
        return Reply(
            tuple(pieces),
            choice.finish_reason or "stop",
            _first_tokens(getattr(choice, "logprobs", None)),
            usage=self._usage(
                getattr(response, "usage", None), response._hidden_params.get("response_cost")
            ),
        )

    async def _streamed(self, stream: Any) -> Reply:
        pieces: list[Piece] = []
        finish, usage = "stop", None
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
        return Reply(tuple(pieces), finish, first, usage=self._usage(usage))

    def _usage(self, usage: Any, cost: float | None = None) -> Usage:
        """Return the tokens and their price; ``cost`` is what LiteLLM has worked out already."""
        asked = getattr(usage, "prompt_tokens", None) or 0
        said = getattr(usage, "completion_tokens", None) or 0
        return Usage(asked, said, cost or price(self.name, asked, said))

    async def aclose(self) -> None:
        """Close LiteLLM's connections of this event loop."""
        await close_litellm_async_clients()  # type: ignore[no-untyped-call]
        # LiteLLM keeps what it closed, and the next suite of this loop would be given it.
        litellm.in_memory_llm_clients_cache.flush_cache()  # type: ignore[no-untyped-call]


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


def _first_tokens(logprobs: Any) -> Mapping[str, float]:
    """Return the likeliest first tokens in LiteLLM's ``logprobs``, empty where there are none."""
    content = _member(logprobs, "content")
    if not content:
        return {}
    top = _member(content[0], "top_logprobs") or [content[0]]
    return {_member(t, "token"): float(_member(t, "logprob")) for t in top}


def _member(owner: Any, name: str) -> Any:
    return owner.get(name) if isinstance(owner, Mapping) else getattr(owner, name, None)


def _call_error(error: Exception, model: str) -> CallError:
    status = getattr(error, "status_code", None)
    if isinstance(error, _FATAL):
        # LiteLLM's texts begin with names of its classes; the last sentence is the provider's.
        told = str(error).strip().splitlines()[0][:300]
        return CallError(f"{model} cannot be asked: {told}", fatal=True)
    kind = type(error).__name__ + (f" ({status})" if status else "")
    return CallError(
        kind,
        again=isinstance(error, _AGAIN),
        slower=isinstance(error, _SLOWER),
        pause_s=retry_after(error),
    )


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
