"""A provider's error mid-stream, rid of text that was not let out."""

from __future__ import annotations

from collections.abc import Sequence

from litellm.exceptions import MidStreamFallbackError

WITHHELD = "[withheld]"
# Shorter text is no quotation: it stands in every message.
_LEAST = 3


def cleaned(error: Exception, released: str, held: Sequence[str], *, began: bool) -> Exception:
    """Return ``error`` as the consumer may see it; its own object wherever that says no more.

    ``held`` are texts that the provider sent and the guard did not let out. LiteLLM quotes the
    last one where a model repeats itself, and puts all text so far into the error by which its
    Router asks another model to go on: that one must go on from what the consumer has read.
    """
    quoted = [t for t in held if len(t.strip()) >= _LEAST]
    quoting = any(t in said for t in quoted for said in _sayings(error))
    stale = isinstance(error, MidStreamFallbackError) and (
        error.generated_content != released or error.is_pre_first_chunk == began
    )
    if not quoting and not stale:
        return error
    twin = _twin(error, quoted)
    if isinstance(twin, MidStreamFallbackError):
        twin.generated_content = released
        twin.is_pre_first_chunk = not began
        if twin.original_exception is not None:
            twin.original_exception = _twin(twin.original_exception, quoted)
    return twin


def _sayings(error: BaseException) -> list[str]:
    """Return what ``error`` and the errors it came from say."""
    said: list[str] = []
    seen: set[int] = set()
    waiting: list[object] = [error]
    while waiting:
        one = waiting.pop()
        if isinstance(one, BaseException) and id(one) not in seen:
            seen.add(id(one))
            said += [str(one), *(a for a in one.args if isinstance(a, str))]
            waiting += [one.__cause__, one.__context__, getattr(one, "original_exception", None)]
    return said


def _twin(error: Exception, quoted: Sequence[str]) -> Exception:
    """Return a copy of ``error`` that quotes nothing and does not lead to those it came from."""

    def clean(value: object) -> object:
        if isinstance(value, str):
            for text in quoted:
                value = value.replace(text, WITHHELD)
        return value

    twin = type(error).__new__(type(error))
    twin.__dict__.update({name: clean(value) for name, value in error.__dict__.items()})
    twin.args = tuple(clean(a) for a in error.args)
    return twin
