"""How long a call's prompt and answer can be, as a plan and a budget count them.

Bounds hold always: prompts count by their bytes, answers by the limit that is sent or the model's
longest answer. Estimates are called so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from guard.audit.sending import model_reasons
from guard.suites import Chat, LogLikelihood, Request

# Assumed tokens of an answer, and of the reasoning before it, where no limit is sent.
ASSUMED_ANSWER = 256
_ASSUMED_REASONING = 1024
_FRAME = 16  # tokens of a message's frame; a text has at most as many tokens as bytes


def assumed_answer(model: str, own_settings: Mapping[str, Any]) -> int:
    """Return the tokens that an answer without a limit is assumed to have, with its reasoning."""
    return ASSUMED_ANSWER + (_ASSUMED_REASONING if model_reasons(model, own_settings) else 0)


def longest_answer(model: str | None) -> float:
    """Return the most tokens of an answer by LiteLLM's map; nan where it does not say."""
    import litellm

    try:
        most = litellm.get_model_info(model)["max_output_tokens"] if model else None
    except Exception:  # a model that is not in the map
        most = None
    return float(most) if most else math.nan


def answer_limit(request: Request) -> float:
    """Return the limit on the answer's tokens that is sent; nan without one."""
    if not isinstance(request, Chat):
        return 0.0  # it has no answer
    limit = request.settings.get("max_completion_tokens", request.settings.get("max_tokens"))
    return math.nan if limit is None else float(limit)


def prompt_bytes(request: Chat | LogLikelihood) -> int:
    """Return the bytes of a request's messages and their frames: at least its tokens."""
    before = sum(len(m["content"].encode()) + _FRAME for m in request.messages) + _FRAME
    if isinstance(request, Chat):
        return before
    if not request.messages:
        before = len(request.context.encode())
    return sum(before + len(text.encode()) for text in request.continuations)
