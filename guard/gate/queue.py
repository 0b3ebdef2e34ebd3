"""The chunk queue: holds a response's chunks until all of their text is settled."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

from guard.gate.codec import Codec, Part
from guard.gate.gate import Settled
from guard.verdict import Channel

C = TypeVar("C")


@dataclass(slots=True)
class _Piece:
    """One channel's text in a held chunk, and what has become of it so far."""

    channel: Channel
    text: str
    settled: int = 0
    out: list[str] | None = None  # None while nothing of it was changed

    def take(self, length: int, text: str | None) -> int:
        """Settle up to ``length`` characters, unchanged or as ``text``; return how many it took."""
        length = min(length, len(self.text) - self.settled)
        if text is not None and self.out is None:
            self.out = [self.text[: self.settled]]
        if self.out is not None:
            kept = self.text[self.settled : self.settled + length]
            self.out.append(kept if text is None else text)
        self.settled += length
        return length

    @property
    def result(self) -> str:
        """The text that may go out of what is settled."""
        return self.text[: self.settled] if self.out is None else "".join(self.out)


class _Run(Generic[C]):
    """Chunks in a row that each say one text of one channel and nothing else.

    Most chunks are of this kind. Held together they cost two appends each; where something is cut
    they are taken apart.
    """

    __slots__ = ("channel", "chunks", "number", "open", "settled", "texts")

    def __init__(self, number: int, channel: Channel) -> None:
        self.number = number  # of the first chunk; the others follow it without a gap
        self.channel = channel
        self.chunks: deque[C] = deque()
        self.texts: deque[str] = deque()
        self.settled = 0  # characters that are settled, of the chunks that still wait
        self.open = 0  # characters that are not

    def take(self, length: int) -> int:
        """Settle up to ``length`` characters unchanged; return how many it took."""
        length = min(length, self.open)
        self.open -= length
        self.settled += length
        return length

    def leave(self) -> list[C]:
        """Return the chunks that are settled, and hold them no longer."""
        texts, chunks, left = self.texts, self.chunks, self.settled
        out = []
        while texts and len(texts[0]) <= left:
            left -= len(texts.popleft())
            out.append(chunks.popleft())
        self.settled = left
        self.number += len(out)
        return out

    def apart(self) -> list[_Held[C]]:
        """Return the chunks held one by one."""
        held = []
        for i, (chunk, text) in enumerate(zip(self.chunks, self.texts, strict=True)):
            piece = _Piece(self.channel, text)
            self.settled -= piece.take(self.settled, None)
            pieces = {self.channel.choice: [piece]}
            held.append(_Held(self.number + i, chunk, pieces, whole=True))
        return held


@dataclass(slots=True)
class _Held(Generic[C]):
    """A chunk that waits, and its pieces by choice."""

    number: int
    chunk: C
    pieces: dict[int, list[_Piece]]
    whole: bool  # whether the chunk itself may still go out, not only copies of its choices

    def texts(self, choice: int) -> dict[Channel, str]:
        texts: dict[Channel, str] = {}
        for piece in self.pieces[choice]:
            texts[piece.channel] = texts.get(piece.channel, "") + piece.result
        return texts


class ChunkQueue(Generic[C]):
    """First in, first out within a choice; choices do not wait for each other.

    A chunk leaves as the provider's own object when all of its choices are settled at once and
    unchanged; otherwise each choice leaves as a copy, as soon as it can.
    """

    def __init__(self, codec: Codec[C]) -> None:
        self._codec = codec
        self._count = 0
        self._lines: dict[int, deque[_Held[C] | _Run[C]]] = {}
        self._bare: deque[tuple[int, C]] = deque()  # chunks without a choice
        # What is not wholly settled of each channel.
        self._open: dict[Channel, deque[_Piece | _Run[C]]] = {}
        self._run: _Run[C] | None = None  # what the next chunk may join: it was pushed last
        self._ended: set[int] = set()
        #: Whether anything can have become ready since it was last asked.
        self.moved = False

    def push(self, chunk: C, choices: list[int], parts: list[Part]) -> None:
        """Hold ``chunk``; what belongs to a choice already ended is dropped."""
        self._count += 1
        self._run = None
        if not choices:
            self.moved = True
            self._bare.append((self._count, chunk))
            return
        pieces: dict[int, list[_Piece]] = {c: [] for c in choices if c not in self._ended}
        for channel, text in parts:
            if channel.choice in pieces:
                piece = _Piece(channel, text)
                pieces[channel.choice].append(piece)
                self._open.setdefault(channel, deque()).append(piece)
        held = _Held(self._count, chunk, pieces, whole=len(pieces) == len(choices))
        for choice, own in pieces.items():
            self.moved = self.moved or not own
            self._lines.setdefault(choice, deque()).append(held)

    def join(self, chunk: C, channel: Channel, text: str) -> None:
        """Hold a chunk that says ``text`` alone, of a choice that has not ended."""
        self._count += 1
        run = self._run
        if run is None or run.channel is not channel:
            run = self._run = _Run(self._count, channel)
            self._lines.setdefault(channel.choice, deque()).append(run)
            self._open.setdefault(channel, deque()).append(run)
        run.chunks.append(chunk)
        run.texts.append(text)
        run.open += len(text)

    def settle(self, channel: Channel, fates: list[Settled]) -> None:
        """Apply the fates of the next characters of ``channel``."""
        self.moved = True
        waiting = self._open[channel]
        for left, text in fates:
            while left:
                first = waiting[0]
                if isinstance(first, _Run):
                    if text is not None:
                        self._part(first)
                        continue
                    left -= first.take(left)
                    if first.open:
                        break
                    self._close(first)
                else:
                    left -= first.take(left, text)
                    if first.settled < len(first.text):
                        break
                    if text:
                        text = ""  # a replacement stands once, where its passage began
                waiting.popleft()

    def end(self, choice: int) -> list[C]:
        """End ``choice`` now: return what of it may still go out, drop the rest."""
        out = self.ready()
        self.moved = True
        self._run = None
        self._ended.add(choice)
        for channel in [c for c in self._open if c.choice == choice]:
            del self._open[channel]
        whole = True
        for waits in self._lines.pop(choice, ()):
            for held in waits.apart() if isinstance(waits, _Run) else (waits,):
                held.whole = False
                texts: dict[Channel, str] = {}
                for piece in held.pieces.pop(choice):
                    if whole:  # nothing goes out behind the first passage that does not
                        texts[piece.channel] = texts.get(piece.channel, "") + piece.result
                        whole = piece.settled == len(piece.text)
                if any(texts.values()):
                    cut = self._codec.cut(held.chunk, choice, texts, ends=True)
                    if cut is not None:
                        out.append(cut)
        return out

    def ready(self) -> list[C]:
        """Return the chunks, or copies of them, that may go out now, in order."""
        if not self.moved:
            return []
        self.moved = False
        out: list[tuple[int, C]] = []
        free: dict[int, tuple[_Held[C], list[int]]] = {}
        for choice, line in self._lines.items():
            while line:
                first = line[0]
                if isinstance(first, _Run):
                    number = first.number
                    out += enumerate(first.leave(), number)
                    if first.chunks:
                        break
                    self._close(first)
                elif all(p.settled == len(p.text) for p in first.pieces[choice]):
                    free.setdefault(first.number, (first, []))[1].append(choice)
                else:
                    break
                line.popleft()
        for number, (held, choices) in free.items():
            out += [(number, chunk) for chunk in self._release(held, choices)]
        if self._bare:
            oldest = min((line[0].number for line in self._lines.values() if line), default=None)
            while self._bare and (oldest is None or self._bare[0][0] < oldest):
                out.append(self._bare.popleft())
        if len(out) > 1:
            out.sort(key=_number)
        return [chunk for _, chunk in out]

    def _part(self, run: _Run[C]) -> None:
        """Hold the chunks of ``run``, the first that is open in its channel, one by one."""
        self._close(run)
        held = run.apart()
        line, waiting = self._lines[run.channel.choice], self._open[run.channel]
        at = line.index(run)
        del line[at]
        for one in reversed(held):
            line.insert(at, one)
        waiting.popleft()
        pieces = (piece for one in held for piece in one.pieces[run.channel.choice])
        waiting.extendleft(reversed([p for p in pieces if p.settled < len(p.text)]))

    def _close(self, run: _Run[C]) -> None:
        if self._run is run:
            self._run = None

    def _release(self, held: _Held[C], choices: list[int]) -> list[C]:
        unchanged = all(p.out is None for c in choices for p in held.pieces[c])
        if held.whole and unchanged and len(choices) == len(held.pieces):
            return [held.chunk]
        held.whole = False
        cuts = [self._codec.cut(held.chunk, c, held.texts(c)) for c in choices]
        for choice in choices:
            del held.pieces[choice]
        return [cut for cut in cuts if cut is not None]


def _number(numbered: tuple[int, object]) -> int:
    return numbered[0]
