"""Remove withheld or biased text from errors of providers and of LiteLLM."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from html import unescape
from itertools import chain, islice
from types import MemberDescriptorType
from typing import Any

import httpx
from litellm.exceptions import MidStreamFallbackError
from pydantic import BaseModel, ValidationError

from guard.doors.plain import TextCodec
from guard.doors.session import DoorSession
from guard.doors.strings import is_name
from guard.doors.sync_or_async import SyncOrAsync, call_async, call_sync, run_without_loop
from guard.errors import GuardError
from guard.gate import ResponseGate
from guard.gate.escapes import Escapes

WITHHELD = "[withheld]"
# This many consecutive withheld characters are a quotation. A shorter text counts if it occurs
# whole, unless it has fewer than `_LEAST` characters: such words occur in every message.
_RUN = 8
_LEAST = 3
# An error that references more objects than this is assumed to quote.
_MOST = 10_000
# An error with a longer text, or with more to judge once it is split (five ways, about four times
# the text), is not judged: it loses its message.
_MOST_TEXT, _MOST_SPLIT = 20_000, 80_000
_DEPTH = 3  # levels of nested errors that are kept without their quotations
# Separators between an error's own words and an answer that it quotes: quotes at the edge of a
# word, brackets, line ends, punctuation. Those that are common in prose are split at separately,
# because the answer may contain them.
_QUOTES = r"(?<!\w)['\"`]+|['\"`]+(?!\w)|[{}\[\]<>]+"
_LINES, _SIGNS = r"|[\n\r]+", r"|[:=|*;]+|\s-+\s|\.{3,}|\u2026"
_PROSE = r"[()\u201c\u201d\u201e\u00ab\u00bb]+|(?<!\w)[\u2018\u2019]+|[\u2018\u2019]+(?!\w)"
_SEPARATORS = [re.compile(_QUOTES + more) for more in (_LINES, "", _SIGNS, _LINES + _SIGNS)]
_SEPARATORS.append(re.compile(_PROSE))
# Levels of nested escapes and entities that are decoded: JSON in JSON in a repr.
_LAYERS = 4
_BYTE = re.compile(r"\\+x([0-9a-fA-F]{2})")


def redacted(
    error: Exception, released: str, withheld: Sequence[str], *, began: bool, shown: str = ""
) -> Exception:
    """Return ``error`` without quotations of withheld text; the same object if it quotes none.

    ``withheld`` are the texts that the provider sent and the guard did not release; ``shown`` is
    the released text of all channels. An error that quotes withheld text loses its message and
    every attribute that quotes. If it quotes short texts only (LiteLLM's error for a model that
    repeats itself), only these are masked.

    LiteLLM's Router asks another model to continue from the text in MidStreamFallbackError. That
    text is replaced by ``released``, which the consumer has read; ``began``: whether it has read
    any chunk.
    """
    quotation = _Quotation(withheld, shown)
    stale, replaced = False, ""
    if isinstance(error, MidStreamFallbackError):
        stale = error.generated_content != released or error.is_pre_first_chunk == began
        replaced = "generated_content"
    quoting = bool(quotation) and quotation.within(error, skipped=replaced)
    if not quoting and not stale:
        return error
    twin = _error_without_message(error, quotation) if quoting else _copied_error(error)
    if isinstance(twin, MidStreamFallbackError):
        twin.generated_content = released
        twin.is_pre_first_chunk = not began
    return twin


def judged_error(error: Exception, session: DoorSession) -> Exception:
    """Judge the text of ``error``, which may quote an answer, and return what may be raised.

    That is the same object if nothing is found, else one of its class with names and numbers
    only. The decisions go to the session's sinks.
    """
    return run_without_loop(_judged(call_sync, error, session))


async def ajudged_error(error: Exception, session: DoorSession) -> Exception:
    """Do the same as :func:`judged_error` without blocking the event loop."""
    return await _judged(call_async, error, session)


async def _judged(call: SyncOrAsync, error: Exception, session: DoorSession) -> Exception:
    session = replace(session, door="error")
    gate = _gate(error, session)
    if gate is not None:
        await call(session.judge_pending, session.ajudge_pending, gate)
        session.ended(gate.trail, "completed")
    if gate is None:
        return _error_without_message(error, why="it is too long, or cannot be read, to be judged")
    if any(decision.action not in ("pass", "flag") for decision in gate.trail):
        return _error_without_message(error)
    return error


def _gate(error: Exception, session: DoorSession) -> ResponseGate[str] | None:
    """Return a gate fed with all text of an error; None if that cannot be judged.

    The guard's own errors quote no answer and are not judged.
    """
    lines: dict[str, None] = {}
    length = 0
    try:
        for text in () if isinstance(error, GuardError) else _error_texts(error):
            if len(text) > _MOST_TEXT:
                return None
            whole = _decoded_body(text)
            # Each split is judged, and the whole: the quoted answer may itself have separators.
            pieces = chain.from_iterable(separator.split(whole) for separator in _SEPARATORS)
            for part in (whole, *pieces):
                part = " ".join(part.split()).strip(" ,:;")
                if part and part not in lines and not is_name(part):
                    lines[part] = None
                    length += len(part)
            if length > _MOST_SPLIT:
                return None
    except Exception:  # an unreadable error cannot be judged
        return None
    # The lines are no context for each other, and none takes back what another says.
    policy = session.policy.model_copy(update={"context_segments": 0, "second_look": False})
    gate = replace(session, policy=policy).gate(TextCodec())
    for line in lines:
        gate.push(f"{line}\n\n")
    gate.finish()
    return gate


class _Quotation:
    """Finds passages, or runs of their characters, in an object and all that it references."""

    def __init__(self, passages: Iterable[str], shown: str) -> None:
        plain, read = {p.strip(): _plain(p).strip() for p in passages}, _plain(shown)
        self._runs = {run for p in plain.values() for run in _runs(p)}.difference(_runs(read))
        self._short = {
            raw: p for raw, p in plain.items() if _LEAST <= len(p) < _RUN and p not in read
        }

    def __bool__(self) -> bool:
        return bool(self._runs or self._short)

    def masked(self, text: str) -> str:
        """Return ``text`` with the short texts masked; unchanged if it quotes more than these."""
        masked = text
        for raw in sorted(self._short, key=len, reverse=True):
            masked = masked.replace(raw, WITHHELD)
        runs = not self._runs.isdisjoint(_runs(_plain(text)))
        return text if runs or self._in_text(masked) else masked

    def within(self, value: object, skipped: str = "") -> bool:
        """Whether ``value`` or an object that it references quotes; not its field ``skipped``."""
        try:
            return any(map(self._in_text, _error_texts(value, skipped)))
        except Exception:  # an unreadable object may quote
            return True

    def _in_text(self, text: str | bytes) -> bool:
        plain = _plain(text)
        return any(p in plain for p in self._short.values()) or not self._runs.isdisjoint(
            _runs(plain)
        )


def _decoded_body(text: str | bytes) -> str:
    """Return ``text`` with the escapes of JSON, ``repr`` and HTML decoded."""
    if isinstance(text, bytes):
        text = text.decode(errors="replace")
    for _ in range(_LAYERS):
        escapes, before = Escapes(), text
        text = _BYTE.sub(lambda escape: chr(int(escape[1], 16)), text)
        text = unescape(escapes.feed(text) + escapes.finish())
        if text == before:
            break
    return text


def _plain(text: str | bytes) -> str:
    """Return ``text`` in a normal form: escapes decoded, spaces and case folded."""
    return re.sub(r"\s+", " ", _decoded_body(text).replace("\\", "")).casefold()


def _runs(text: str) -> Iterator[str]:
    return (text[i : i + _RUN] for i in range(len(text) - _RUN + 1))


class _TooMuch(Exception):
    """A value references too many objects, or an iterator."""


def _error_texts(value: object, skipped: str = "") -> Iterator[str | bytes]:
    """Yield every text reachable from ``value``, except through its own field ``skipped``.

    The request to the provider is left out. Raises _TooMuch if too many objects are reachable,
    or one that can be iterated only once.
    """
    seen: set[int] = set()
    alive: list[object] = []  # keeps temporary objects alive, so that no id is used twice
    waiting = [value]
    count = 0
    while waiting:
        count += 1
        if count > _MOST:
            raise _TooMuch
        element = waiting.pop()
        if isinstance(element, (str, bytes)):
            yield element
        elif isinstance(element, (bytearray, memoryview)):
            yield bytes(element)
        elif id(element) not in seen and not isinstance(element, (type, httpx.Request)):
            seen.add(id(element))
            alive.append(element)
            waiting += islice(_objects_held_by(element, skipped if element is value else ""), _MOST)


def _objects_held_by(element: object, skipped: str) -> Iterator[object]:
    """Yield the members and causes of ``element`` that can hold text."""
    if isinstance(element, httpx.Response):
        yield getattr(element, "_content", None)
        return
    if isinstance(element, BaseException):
        yield _message_of(element)
        yield from (element.args, element.__cause__, element.__context__)
    if isinstance(element, ValidationError):
        yield element.errors(include_url=False)  # its message shortens its input
    if isinstance(element, Mapping):
        yield from (*element.keys(), *element.values())
    elif isinstance(element, Collection):
        yield from element
    elif isinstance(element, Iterable) and not isinstance(element, BaseModel):
        raise _TooMuch
    fields = getattr(element, "__dict__", None)
    if isinstance(fields, dict):
        yield from (value for name, value in fields.items() if name != skipped)
    # Slots; pydantic holds a model's extra fields in one.
    for owner in type(element).__mro__:
        if "__slots__" in vars(owner):
            slots = [v for v in vars(owner).values() if isinstance(v, MemberDescriptorType)]
            yield from (_slot_value(slot, element) for slot in slots)


def _slot_value(slot: Any, owner: object) -> object:
    try:
        return slot.__get__(owner)
    except AttributeError:  # not set
        return None


def _message_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return ""


def _copied_error(error: Exception) -> Exception:
    """Return a copy of ``error`` without its cause and context."""
    twin = type(error).__new__(type(error))
    twin.__dict__.update(error.__dict__)
    twin.args = error.args
    return twin


def _error_without_message(
    error: Exception,
    quotation: _Quotation | None = None,
    depth: int = _DEPTH,
    why: str = "it quotes text that the guard withheld",
) -> Exception:
    """Return an error of the same class without its message, or without its quotations.

    Without a ``quotation`` every text may quote: only names and numbers are left.
    """
    failed = "The call" if quotation is None else "The provider's stream"
    sentence = f"{failed} failed with {type(error).__name__}; the message is left out, as {why}."

    def silent(value: Any) -> object:
        if not _quotes(value, quotation):
            return value
        if isinstance(value, str):
            masked = value if quotation is None else quotation.masked(value)
            return sentence if masked == value else masked
        if isinstance(value, Exception) and depth:
            return _error_without_message(value, quotation, depth - 1, why)
        if isinstance(value, httpx.Response):
            return httpx.Response(value.status_code, request=getattr(value, "_request", None))
        return None

    try:
        twin = type(error).__new__(type(error))
        twin.__dict__.update({name: silent(value) for name, value in error.__dict__.items()})
        args = tuple(silent(a) for a in error.args)
        twin.args = (sentence,) if quotation is None or sentence in args else args
        if str(twin) and not (quotation and quotation.within(twin)):
            return twin
    except Exception:  # a class with its own constructor or `__str__`
        pass
    return RuntimeError(sentence)


def _quotes(value: object, quotation: _Quotation | None) -> bool:
    if quotation is not None:
        return quotation.within(value)
    if isinstance(value, str):
        return not is_name(value)
    return not (value is None or isinstance(value, (bool, int, float, httpx.Request)))
