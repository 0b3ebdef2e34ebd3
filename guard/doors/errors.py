"""A provider's error mid-stream, rid of text that was not let out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import httpx
from litellm.exceptions import MidStreamFallbackError

WITHHELD = "[withheld]"
# So many characters in a row that were withheld are a quotation; of a shorter text, all of it, but
# for words so short that they stand in every message.
_RUN = 8
_LEAST = 3
# More things than an error leads to in earnest; one that leads to more is taken to quote.
_MOST = 10_000


def cleaned(
    error: Exception, released: str, withheld: Sequence[str], *, began: bool, shown: str = ""
) -> Exception:
    """Return ``error`` as the consumer may see it; its own object wherever that says no more.

    ``withheld`` are texts that the provider sent and the guard did not let out, each as long as it
    is known to go on; ``shown`` is what it did let out of all channels. An error that quotes one
    loses its message and all that quotes; where it quotes but a short text, as LiteLLM does of a
    model that repeats itself, that text alone.

    LiteLLM puts the text so far into the error by which its Router asks another model to go on:
    that one must go on from ``released``, what the consumer has read.
    """
    quotation = _Quotation(withheld, shown)
    stale = isinstance(error, MidStreamFallbackError) and (
        error.generated_content != released or error.is_pre_first_chunk == began
    )
    fallback = isinstance(error, MidStreamFallbackError)
    quoting = bool(quotation) and quotation.within(error, but="generated_content" * fallback)
    if not quoting and not stale:
        return error
    twin = _silent(error, quotation) if quoting else _copied(error)
    if isinstance(twin, MidStreamFallbackError):
        twin.generated_content = released
        twin.is_pre_first_chunk = not began
    return twin


class _Quotation:
    """Finds passages, or runs of them, in whatever an error leads to."""

    def __init__(self, passages: Iterable[str], shown: str) -> None:
        plain, read = {p.strip(): _plain(p).strip() for p in passages}, _plain(shown)
        self._runs = {run for p in plain.values() for run in _runs(p)}.difference(_runs(read))
        self._short = {
            raw: p for raw, p in plain.items() if _LEAST <= len(p) < _RUN and p not in read
        }

    def __bool__(self) -> bool:
        return bool(self._runs or self._short)

    def masked(self, text: str) -> str:
        """Return ``text`` without the short texts; unchanged where that is not enough."""
        masked = text
        for raw in sorted(self._short, key=len, reverse=True):
            masked = masked.replace(raw, WITHHELD)
        runs = not self._runs.isdisjoint(_runs(_plain(text)))
        return text if runs or self._in_text(masked) else masked

    def within(self, value: object, but: str = "") -> bool:
        """Whether ``value``, or anything it leads to but its attribute ``but``, quotes."""
        seen: set[int] = set()
        waiting = [value]
        while waiting:
            one = waiting.pop()
            if isinstance(one, (str, bytes, bytearray)):
                if self._in_text(one):
                    return True
            elif id(one) not in seen and not isinstance(one, type):
                seen.add(id(one))
                waiting += _below(one, but if one is value else "")
            if len(seen) > _MOST:
                return True
        return False

    def _in_text(self, text: str | bytes | bytearray) -> bool:
        said = _plain(text if isinstance(text, str) else bytes(text).decode(errors="replace"))
        return any(p in said for p in self._short.values()) or not self._runs.isdisjoint(
            _runs(said)
        )


def _plain(text: str) -> str:
    """Return ``text`` as it reads however it was quoted: in other case, spaces or escapes."""
    text = re.sub(r"\\u([0-9a-fA-F]{4})", lambda m: chr(int(m[1], 16)), text)
    text = re.sub(r"\\[nrt]", " ", text).replace("\\", "")
    return re.sub(r"\s+", " ", text).casefold()


def _runs(text: str) -> Iterator[str]:
    return (text[i : i + _RUN] for i in range(len(text) - _RUN + 1))


def _below(one: object, but: str) -> Iterator[object]:
    """Return what ``one`` holds or was caused by, where that can hold text."""
    if isinstance(one, httpx.Response):
        yield getattr(one, "_content", None)
        return
    if isinstance(one, BaseException):
        yield _said(one)
        yield from (one.args, one.__cause__, one.__context__)
    if isinstance(one, Mapping):
        yield from (*one.keys(), *one.values())
    elif isinstance(one, (list, tuple, set, frozenset)):
        yield from one
    fields = getattr(one, "__dict__", None)
    if isinstance(fields, dict):
        yield from (value for name, value in fields.items() if name != but)


def _said(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return ""


def _copied(error: Exception) -> Exception:
    """Return a copy of ``error`` that does not lead to those it came from."""
    twin = type(error).__new__(type(error))
    twin.__dict__.update(error.__dict__)
    twin.args = error.args
    return twin


def _silent(error: Exception, quotation: _Quotation) -> Exception:
    """Return an error of the same class with its message, or what it quotes, left out."""
    sentence = (
        f"The provider's stream failed with {type(error).__name__}; the message is left out, as it"
        " quotes text that the guard withheld."
    )

    def silent(value: Any) -> object:
        if not quotation.within(value):
            return value
        if isinstance(value, str):
            masked = quotation.masked(value)
            return sentence if masked == value else masked
        if isinstance(value, Exception):
            return _silent(value, quotation)
        if isinstance(value, httpx.Response):
            return httpx.Response(value.status_code, request=getattr(value, "_request", None))
        return None

    try:
        twin = type(error).__new__(type(error))
        twin.__dict__.update({name: silent(value) for name, value in error.__dict__.items()})
        args = tuple(silent(a) for a in error.args)
        twin.args = (sentence,) if sentence in args else args
        if not quotation.within(twin) and str(twin):
            return twin
    except Exception:  # a class that is made or says what it says in its own way
        pass
    return RuntimeError(sentence)
