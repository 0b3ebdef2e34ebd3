"""A provider's or LiteLLM's error, rid of text that was not let out or may not go out."""

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
from guard.errors import GuardError
from guard.gate import ResponseGate
from guard.gate.escapes import Escapes

WITHHELD = "[withheld]"
# So many characters in a row that were withheld are a quotation; of a shorter text, all of it, but
# for words so short that they stand in every message.
_RUN = 8
_LEAST = 3
# More things than an error leads to in earnest; one that leads to more is taken to quote.
_MOST = 10_000
# The most characters of an error that are judged; a longer error loses its message.
_MOST_TEXT = 20_000
_DEPTH = 3  # errors in errors that are told without what they quote; deeper ones are left out
# What may part an answer from the words of the error that quotes it: quotes in front of or behind a
# word, brackets, ends of lines, and signs that come before or behind it. Those that prose uses part
# it apart from the others, as an answer may have them inside.
_QUOTES = r"(?<!\w)['\"`]+|['\"`]+(?!\w)|[{}\[\]<>]+"
_LINES, _SIGNS = r"|[\n\r]+", r"|[:=|*;]+|\s-+\s|\.{3,}|\u2026"
_PROSE = r"[()\u201c\u201d\u201e\u00ab\u00bb]+|(?<!\w)[\u2018\u2019]+|[\u2018\u2019]+(?!\w)"
_PARTS = [re.compile(_QUOTES + more) for more in (_LINES, "", _SIGNS, _LINES + _SIGNS)]
_PARTS.append(re.compile(_PROSE))
# Escapes within escapes and entities that are read: JSON in JSON in a repr.
_LAYERS = 4
_BYTE = re.compile(r"\\+x([0-9a-fA-F]{2})")


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
    stale, replaced = False, ""
    if isinstance(error, MidStreamFallbackError):
        stale = error.generated_content != released or error.is_pre_first_chunk == began
        replaced = "generated_content"
    quoting = bool(quotation) and quotation.within(error, skipped=replaced)
    if not quoting and not stale:
        return error
    twin = _silent(error, quotation) if quoting else _copied(error)
    if isinstance(twin, MidStreamFallbackError):
        twin.generated_content = released
        twin.is_pre_first_chunk = not began
    return twin


def judged(error: Exception, session: DoorSession) -> Exception:
    """Return ``error`` as its reader may see it: what it says may be an answer that it quotes.

    It is its own object where nothing is found in it, else one of its class with names and numbers
    alone. The decisions go to the session's sinks.
    """
    session = replace(session, door="error")
    gate = _gate(error, session)
    if gate is not None:
        session.judge_pending(gate)
        session.ended(gate.trail, "completed")
    return _outcome(error, gate)


async def ajudged(error: Exception, session: DoorSession) -> Exception:
    """Do the same without blocking the event loop."""
    session = replace(session, door="error")
    gate = _gate(error, session)
    if gate is not None:
        await session.ajudge_pending(gate)
        session.ended(gate.trail, "completed")
    return _outcome(error, gate)


def _gate(error: Exception, session: DoorSession) -> ResponseGate[str] | None:
    """Return a gate with all that an error says; None where that cannot be judged.

    The guard's own errors say nothing of an answer.
    """
    lines: dict[str, None] = {}
    length = 0
    try:
        for text in () if isinstance(error, GuardError) else _texts(error):
            if len(text) > _MOST_TEXT:
                return None
            said = _read(text)
            # An answer, or a string of one, is a line, however it was quoted; it may have been
            # parted at what is its own.
            for part in (said, *chain.from_iterable(parts.split(said) for parts in _PARTS)):
                part = " ".join(part.split()).strip(" ,:;")
                if part and part not in lines and not is_name(part):
                    lines[part] = None
                    length += len(part)
            if length > _MOST_TEXT:
                return None
    except Exception:  # what cannot be read cannot be judged
        return None
    # None of the lines is the context of another.
    policy = session.policy.model_copy(update={"context_segments": 0})
    gate = replace(session, policy=policy).gate(TextCodec())
    for line in lines:
        gate.push(f"{line}\n\n")
    gate.finish()
    return gate


def _outcome(error: Exception, gate: ResponseGate[str] | None) -> Exception:
    if gate is None or any(decision.action not in ("pass", "flag") for decision in gate.trail):
        return _silent(error)
    return error


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

    def within(self, value: object, skipped: str = "") -> bool:
        """Whether ``value``, or anything it leads to but its attribute ``skipped``, quotes."""
        try:
            return any(map(self._in_text, _texts(value, skipped)))
        except Exception:  # what cannot be read may quote
            return True

    def _in_text(self, text: str | bytes) -> bool:
        said = _plain(text)
        return any(p in said for p in self._short.values()) or not self._runs.isdisjoint(
            _runs(said)
        )


def _read(text: str | bytes) -> str:
    """Return ``text`` with the escapes of JSON, ``repr`` and HTML as what they stand for."""
    if isinstance(text, bytes):
        text = text.decode(errors="replace")
    for _ in range(_LAYERS):
        escapes, before = Escapes(), text
        text = _BYTE.sub(lambda found: chr(int(found[1], 16)), text)
        text = unescape(escapes.feed(text) + escapes.finish())
        if text == before:
            break
    return text


def _plain(text: str | bytes) -> str:
    """Return ``text`` as it reads however it was quoted: in other case, spaces or escapes."""
    return re.sub(r"\s+", " ", _read(text).replace("\\", "")).casefold()


def _runs(text: str) -> Iterator[str]:
    return (text[i : i + _RUN] for i in range(len(text) - _RUN + 1))


class _TooMuch(Exception):
    """A value leads to more than can be looked at."""


def _texts(value: object, skipped: str = "") -> Iterator[str | bytes]:
    """Yield every text that ``value`` leads to, but through its own attribute ``skipped``.

    What it asked of the provider is none of that. Raises _TooMuch where it leads to too many
    things, or to some that can be read but once.
    """
    seen: set[int] = set()
    kept: list[object] = []  # what was made on the way lives on: no other gets its id
    waiting = [value]
    count = 0
    while waiting:
        count += 1
        if count > _MOST:
            raise _TooMuch
        one = waiting.pop()
        if isinstance(one, (str, bytes)):
            yield one
        elif isinstance(one, (bytearray, memoryview)):
            yield bytes(one)
        elif id(one) not in seen and not isinstance(one, (type, httpx.Request)):
            seen.add(id(one))
            kept.append(one)
            waiting += islice(_below(one, skipped if one is value else ""), _MOST)


def _below(one: object, skipped: str) -> Iterator[object]:
    """Yield what ``one`` holds or was caused by, where that can hold text."""
    if isinstance(one, httpx.Response):
        yield getattr(one, "_content", None)
        return
    if isinstance(one, BaseException):
        yield _message_of(one)
        yield from (one.args, one.__cause__, one.__context__)
    if isinstance(one, ValidationError):
        yield one.errors(include_url=False)  # its message shortens what it was given
    if isinstance(one, Mapping):
        yield from (*one.keys(), *one.values())
    elif isinstance(one, Collection):
        yield from one
    elif isinstance(one, Iterable) and not isinstance(one, BaseModel):
        raise _TooMuch
    fields = getattr(one, "__dict__", None)
    if isinstance(fields, dict):
        yield from (value for name, value in fields.items() if name != skipped)
    # Slots; pydantic keeps what a model was given beside its fields in one.
    for owner in type(one).__mro__:
        if "__slots__" in vars(owner):
            slots = [v for v in vars(owner).values() if isinstance(v, MemberDescriptorType)]
            yield from (_slot_value(slot, one) for slot in slots)


def _slot_value(slot: Any, owner: object) -> object:
    try:
        return slot.__get__(owner)
    except AttributeError:  # nothing was put in
        return None


def _message_of(error: BaseException) -> str:
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


def _silent(
    error: Exception, quotation: _Quotation | None = None, depth: int = _DEPTH
) -> Exception:
    """Return an error of the same class with its message, or what it quotes, left out.

    Without a ``quotation`` anything may quote: names and numbers alone are left.
    """
    failed = "The call" if quotation is None else "The provider's stream"
    sentence = (
        f"{failed} failed with {type(error).__name__}; the message is left out, as it quotes text"
        " that the guard withheld."
    )

    def silent(value: Any) -> object:
        if not _quotes(value, quotation):
            return value
        if isinstance(value, str):
            masked = value if quotation is None else quotation.masked(value)
            return sentence if masked == value else masked
        if isinstance(value, Exception) and depth:
            return _silent(value, quotation, depth - 1)
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
    except Exception:  # a class that is made or says what it says in its own way
        pass
    return RuntimeError(sentence)


def _quotes(value: object, quotation: _Quotation | None) -> bool:
    if quotation is not None:
        return quotation.within(value)
    if isinstance(value, str):
        return not is_name(value)
    return not (value is None or isinstance(value, (bool, int, float, httpx.Request)))
