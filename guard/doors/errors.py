"""A provider's error mid-stream, rid of text that was not let out."""

from __future__ import annotations

import copy

from litellm.exceptions import MidStreamFallbackError


def cleaned(error: Exception, released: str, *, began: bool) -> Exception:
    """Return ``error`` as the consumer may see it; its own object wherever that says no more.

    LiteLLM puts the text so far into the error by which its Router falls back to another model,
    and asks that model to go on from there: it must go on from what the consumer has read.
    """
    if not isinstance(error, MidStreamFallbackError):
        return error
    if error.generated_content == released and error.is_pre_first_chunk != began:
        return error
    twin: MidStreamFallbackError = _twin(error)
    twin.generated_content = released
    twin.is_pre_first_chunk = not began
    return twin


def _twin(error: MidStreamFallbackError) -> MidStreamFallbackError:
    twin = MidStreamFallbackError.__new__(type(error))
    twin.__dict__.update(copy.copy(error.__dict__))
    twin.args = error.args
    twin.__cause__ = error.__cause__
    return twin.with_traceback(error.__traceback__)
