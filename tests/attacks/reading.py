"""What a person reads of what a door lets out, and the bytes that it is made of."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from tests.attacks.case import Answer, Case, Wire
from tests.attacks.wire_formats import places

Key = tuple[int, str, Any]  # choice, kind of channel, and what tells it from others of its kind
PARTED = "\0"  # where a call's block ends: it may go on in another, but no escape does
# Yields what each channel says in a chunk or an answer, in reading order.
Reader = Callable[[Any], Iterable[tuple[Key, str]]]


class ProxyAnswered(Exception):
    """The proxy answered with an error: its status and all that it said."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status, self.text = status, text


@dataclass
class Emitted:
    """What came out of one call."""

    objects: list[Any] = field(default_factory=list)
    error: BaseException | None = None
    findings: int | None = None  # biased segments by the trail; None where there is no trail
    held: int | None = None  # the most characters of a choice that were held, where measured
    data: list[Any] = field(default_factory=list)  # objects as JSON has them, filled by `settle`
    blobs: list[str] = field(default_factory=list)  # the bytes of each object

    def settle(self, *, deep: bool) -> Emitted:
        """Serialise what came; ``deep`` also as it prints and with what pydantic does not dump."""
        for number, each in enumerate(self.objects):
            if isinstance(each, BaseModel):
                said = each.model_dump_json(warnings=False)
                self.data.append(json.loads(said))
                if deep:
                    said += repr(getattr(each, "_hidden_params", ""))
                    said += repr(each.__pydantic_private__)
                    # Printing takes longer than all else here.
                    said += repr(each) if number % 4 == 3 or each is self.objects[-1] else ""
            elif isinstance(each, (bytes, bytearray, str)):
                said = each if isinstance(each, str) else bytes(each).decode(errors="replace")
            else:
                said = json.dumps(each, ensure_ascii=False, default=str)
                self.data.append(json.loads(said))
            self.blobs.append(said)
        raw = [e for e in self.objects if isinstance(e, (bytes, bytearray))]
        if raw:
            self.data += parsed(b"".join(raw))
        error = self.error
        while error is not None:
            # A finding on the trail names what was found, on purpose.
            more = {name: value for name, value in vars(error).items() if name != "trail"}
            self.blobs.append(f"{error!r} {error} {more if deep else ''}")
            error = error.__cause__
        return self

    def texts(self, read: Reader) -> dict[Key, str]:
        """Return the texts by channel, as written; none that are empty."""
        out: dict[Key, list[str]] = {}
        for key, text in self.pieces(read):
            out.setdefault(key, []).append(text)
        said = {key: "".join(pieces).replace(PARTED, "") for key, pieces in out.items()}
        return {key: text for key, text in said.items() if text}

    def pieces(self, read: Reader) -> Iterator[tuple[Key, str]]:
        """Yield what each channel says, in order."""
        for each in self.data:
            yield from read(each)


def parsed(data: bytes) -> list[Any]:
    """Return the data of server-sent events; of a torn end, nothing."""
    out = []
    for line in data.decode(errors="replace").splitlines():
        if line.startswith("data:") and line[5:].strip() != "[DONE]":
            try:
                out.append(json.loads(line[5:]))
            except ValueError:
                out.append({"torn": line})
    return out


def _of(owner: Any, name: str) -> Any:
    return owner.get(name) if isinstance(owner, Mapping) else None


def _chat(said: Any) -> Iterable[tuple[Key, str]]:
    for choice in _of(said, "choices") or ():
        index = choice.get("index") or 0
        one = choice.get("delta") or choice.get("message") or {}
        yield (index, "reasoning", 0), one.get("reasoning_content") or ""
        yield (index, "content", 0), one.get("content") or ""
        refusal = one.get("refusal") or (one.get("provider_specific_fields") or {}).get("refusal")
        yield (index, "refusal", 0), refusal or ""
        for place, call in enumerate(one.get("tool_calls") or ()):
            number = call.get("index")
            arguments = (call.get("function") or {}).get("arguments") or ""
            yield (index, "tool", place if number is None else number), arguments


def _text(said: Any) -> Iterable[tuple[Key, str]]:
    for choice in _of(said, "choices") or ():
        yield (choice.get("index") or 0, "content", 0), choice.get("text") or ""


_STEMS = {
    "output_text": "content",
    "refusal": "refusal",
    "reasoning_summary_text": "reasoning",
    "reasoning_text": "reasoning",
    "function_call_arguments": "tool",
}


def _responses(said: Any) -> Iterable[tuple[Key, str]]:
    name = str(_of(said, "type") or "").removeprefix("response.")
    stem, _, verb = name.rpartition(".")
    if verb == "delta" and stem in _STEMS:
        part = said.get("summary_index", said.get("content_index")) or 0
        yield (0, _STEMS[stem], (said.get("output_index"), part)), said.get("delta") or ""
    for number, item in enumerate(_of(said, "output") or ()):
        if "arguments" in item:
            yield (0, "tool", (number, 0)), item["arguments"] or ""
        parts = [("reasoning", p) for p in item.get("summary") or ()]
        parts += [("", p) for p in item.get("content") or ()]
        for place, (kind, part) in enumerate(parts):
            kind = kind or ("refusal" if part.get("refusal") else "content")
            if item.get("type") == "reasoning":
                kind = "reasoning"
            yield (0, kind, (number, place)), part.get("text") or part.get("refusal") or ""


def _messages(said: Any) -> Iterable[tuple[Key, str]]:
    if _of(said, "type") == "content_block_delta":
        delta, index = said["delta"], said["index"]
        yield (0, "content", index), delta.get("text") or ""
        yield (0, "reasoning", index), delta.get("thinking") or ""
        yield (0, "tool", index), delta.get("partial_json") or ""
    for index, block in enumerate(_of(said, "content") or ()):
        yield (0, "content", index), block.get("text") or ""
        yield (0, "reasoning", index), block.get("thinking") or ""
        if block.get("type") == "tool_use":
            yield (0, "tool", index), json.dumps(block["input"], ensure_ascii=False)


_READERS = {"chat": _chat, "text": _text, "responses": _responses, "messages": _messages}


def by_door(door: Wire) -> Reader:
    """Return what reads each channel of a door's format; nothing empty."""
    return lambda said: ((key, text) for key, text in _READERS[door](said) if text)


class Joined:
    """Reads chunks so that a message's blocks which a reader joins are one channel.

    Blocks of a kind that follow each other are one: what is put in the place of a passage stands in
    the first that it touches. A block that begins while another one of its kind is open is a
    channel of its own. A call goes on in blocks without a name, each of which ends with ``PARTED``.
    """

    def __init__(self, door: Wire) -> None:
        self._read = by_door(door)
        self._joins = door == "messages"
        self._open: set[int] = set()
        self._keys: dict[tuple[str, int], Key] = {}  # of blocks
        self._latest: dict[str, Key] = {}

    def __call__(self, said: Any) -> Iterator[tuple[Key, str]]:
        if not self._joins:
            yield from self._read(said)
            return
        index = _of(said, "index")
        block = _of(said, "content_block")
        if _of(block, "type") == "tool_use":
            if block["name"] or "tool" not in self._latest:
                self._latest["tool"] = (0, "tool", index)
            self._keys["tool", index] = self._latest["tool"]
        for key, text in self._read(said):
            yield self._key(key), text
        if _of(said, "type") == "content_block_stop":
            self._open.discard(index)
            if ("tool", index) in self._keys:
                yield self._keys["tool", index], PARTED

    def as_read(self, said: Any) -> Iterator[tuple[Key, str]]:
        """Read what came out of the same blocks, some of which may say nothing any more."""
        return ((self._keys.get(key[1:], key), text) for key, text in self._read(said))

    def _key(self, key: Key) -> Key:
        _, kind, block = key
        if kind == "tool":
            return self._keys.get((kind, block), key)
        if block not in self._open:
            self._open.add(block)
            latest = self._latest.get(kind, key)
            speaking = (k for (_, b), k in self._keys.items() if b in self._open)
            self._latest[kind] = self._keys[kind, block] = key if latest in speaking else latest
        return self._keys[kind, block]


def sent(case: Case) -> dict[Key, str]:
    """Return what the provider wrote, keyed as a door of its own format reads it."""
    answer: Answer = case.answer
    out: dict[Key, str] = {}
    spots = places(answer)
    blocks: dict[int, int] = {}
    for step in answer.steps:
        for piece in step:
            blocks.setdefault(piece.voice, len(blocks))
    for c, voices in enumerate(answer.choices):
        tools = 0
        for v, voice in enumerate(voices):
            number: Any = 0
            if case.route.wire == "responses":
                number = spots[v]
            elif case.route.wire == "messages":
                number = blocks.get(v, -1) if case.streamed else v
            elif voice.kind == "tool":
                number, tools = tools, tools + 1
            text = answer.said(c, v) if case.streamed else voice.written
            if case.route.wire == "messages" and voice.kind == "tool" and not case.streamed:
                text = json.dumps(json.loads(text), ensure_ascii=False)
            if text:
                out[c, voice.kind, number] = text
    return out


def unplaced(texts: dict[Key, str]) -> list[tuple[int, str, str]]:
    """Return the texts by choice and kind alone: other formats number them otherwise."""
    return sorted((choice, kind, text) for (choice, kind, _), text in texts.items())


_ESCAPE = re.compile(r"\\+u([0-9a-fA-F]{4})")


def decoded(text: str) -> str:
    """Return a text with its escapes read, however often they were escaped again."""
    said = _ESCAPE.sub(lambda found: chr(int(found.group(1), 16)), text).replace(PARTED, "")
    if said == text:
        return text
    return said.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # joins pairs
