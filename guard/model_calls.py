"""Calls to models through LiteLLM: their provider, price, and what an answer holds beside its text.

LiteLLM is imported by the functions that need it: it takes seconds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from guard.errors import UsageError

_MOST_TOKENS = 1_000_000_000  # of a call; a greater number is no count
_ROUNDING = 0.02  # by which the sum of probabilities in half precision may exceed 1

_unpriced: set[str] = set()


def provider_of(model: str) -> str:
    """Return the provider of ``model``; UsageError where LiteLLM knows none.

    The prefix is read before LiteLLM is asked, because for some providers it then goes online.
    """
    import litellm

    prefix, slash, _ = model.partition("/")
    if slash and prefix in {str(getattr(name, "value", name)) for name in litellm.provider_list}:
        return prefix
    try:
        return str(litellm.get_llm_provider(model)[1])
    except litellm.exceptions.BadRequestError:
        raise UsageError(
            f"LiteLLM knows no provider for {model!r}; give provider/model, such as "
            "openai/gpt-4o-mini, or local:smollm2."
        ) from None


def reason_refused(model: str, settings: Mapping[str, Any]) -> str:
    """Return LiteLLM's reason why ``model`` does not accept ``settings``; empty if it does.

    For a model that LiteLLM does not know it is empty: the provider decides.
    """
    import litellm
    from litellm.exceptions import UnsupportedParamsError
    from litellm.utils import get_optional_params

    if model.startswith("local:"):
        return ""
    litellm.suppress_debug_info = True
    try:
        name, provider, _, _ = litellm.get_llm_provider(model)
        get_optional_params(model=name, custom_llm_provider=provider, **settings)
    except UnsupportedParamsError as error:
        text = str(error).removeprefix("litellm.UnsupportedParamsError: ").splitlines()[0]
        return re.split(r"[.,;]? To drop", text)[0].rstrip(". ")
    except Exception:  # any other error of LiteLLM's mapping shows at the call itself
        return ""
    return ""


def price_of_tokens(model: str, prompt_tokens: float, completion_tokens: float) -> float:
    """Return the price of tokens in US dollars; nan where LiteLLM has none for ``model``."""
    import litellm

    # A Router writes each of its models into LiteLLM's map, and one without a price is free there.
    facts = litellm.model_cost.get(model)
    unknown = facts is not None and not any(
        value is not None and ("cost" in key or "pric" in key) for key, value in facts.items()
    )
    if model in _unpriced or unknown:
        return math.nan
    try:
        parts = litellm.cost_per_token(
            model=model,
            prompt_tokens=round(prompt_tokens),
            completion_tokens=round(completion_tokens),
        )
    except Exception:  # LiteLLM has no error class for a model without a price
        _unpriced.add(model)
        return math.nan
    return float(sum(parts))


def cost_of(model: str | None, prompt_tokens: float, completion_tokens: float) -> float:
    """Return the price of many ordinary calls, at the rates of short prompts; nan if unknown."""
    if model is None or math.isnan(prompt_tokens) or math.isnan(completion_tokens):
        return math.nan
    rates = price_of_tokens(model, 1000, 0), price_of_tokens(model, 0, 1000)
    return prompt_tokens * rates[0] / 1000 + completion_tokens * rates[1] / 1000


def turned_away(error: BaseException) -> bool:
    """Whether a failed call is surely not billed: refused by its status, or never sent.

    A call that was late, cut off or answered with something unreadable may be billed.
    """
    import httpx
    import openai

    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        if isinstance(cause, httpx.ConnectError | httpx.ConnectTimeout):
            return True
        # LiteLLM's own errors have a status that it made up where the connection broke.
        stated = not type(cause).__module__.startswith("litellm")
        if stated and isinstance(cause, httpx.HTTPStatusError | openai.APIStatusError):
            status = cause.response.status_code
            # A gateway's 408 and 504 say that an answer was late.
            if status >= 400 and status not in (408, 504):
                return True
        cause = cause.__cause__ or cause.__context__
    return False


def first_tokens(logprobs: Any) -> Mapping[str, float]:
    """Return the likeliest first tokens in LiteLLM's ``logprobs``, empty where there are none.

    Values that cannot be probabilities, because they are not numbers or sum to more than 1, are
    ignored.
    """
    content = _member_value(logprobs, "content")
    if not content:
        return {}
    top = _member_value(content[0], "top_logprobs") or [content[0]]
    tokens = [(_member_value(t, "token"), _member_value(t, "logprob")) for t in top]
    # nan fails the comparison, too.
    if not all(isinstance(n, str) and isinstance(p, int | float) and p < 1 for n, p in tokens):
        return {}
    if math.fsum(math.exp(p) for _, p in tokens) > 1 + _ROUNDING:
        return {}
    return {name: float(p) for name, p in tokens}


def is_token_count(value: Any) -> bool:
    """Return whether a provider's number of tokens can be one."""
    return type(value) is int and 0 <= value <= _MOST_TOKENS


def refusal_text(message: Any) -> str:
    """Return the text of an answer that the provider marks as a refusal."""
    fields = _member_value(message, "provider_specific_fields") or {}
    text = _member_value(message, "refusal") or fields.get("refusal")
    return text if isinstance(text, str) else ""


def _member_value(owner: Any, name: str) -> Any:
    """Return a value of one of LiteLLM's objects, some of which are mappings; None if absent."""
    return owner.get(name) if isinstance(owner, Mapping) else getattr(owner, name, None)
