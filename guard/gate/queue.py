"""The chunk queue: holds a response's chunks until all of their text is resolved."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from operator import itemgetter, or_
from typing import Generic, TypeVar

from guard.gate.codec import Codec, Part, by_channel
from guard.gate.edits import TextEdit
from guard.verdict import Channel

C = TypeVar("C")


@dataclass(slots=True)
class _Piece:
    """One channel's text in a held chunk, and the edits applied to it so far."""

    channel: Channel
    text: str
    resolved: int = 0
    out: list[str] | None = None  # None while the text is unchanged

    def take(self, length: int, text: str | None) -> int:
        """Keep up to ``length`` characters, or replace them by ``text``; return how many."""
        length = min(length, len(self.text) - self.resolved)
        if text is not None and self.out is None:
            self.out = [self.text[: self.resolved]]
        if self.out is not None:
            unchanged = self.text[self.resolved : self.resolved + length]
            self.out.append(unchanged if text is None else text)
        self.resolved += length
        return length

    @property
    def result(self) -> str:
        """The resolved part of the text, with its replacements."""
        return self.text[: self.resolved] if self.out is None else "".join(self.out)


class _Run(Generic[C]):
    """Consecutive chunks that each carry text of one channel and nothing else.

    Most chunks are of this kind. Held together they cost two appends each; a cut splits the run
    into chunks held one by one.
    """

    __slots__ = ("channel", "chunks", "number", "open", "resolved", "texts")

    def __init__(self, number: int, channel: Channel) -> None:
        self.number = number  # of the first chunk; the others follow it without a gap
        self.channel = channel
        self.chunks: deque[C] = deque()
        self.texts: deque[str] = deque()
        self.resolved = 0  # resolved characters of the chunks that still wait
        self.open = 0  # their other characters

    def take(self, length: int) -> int:
        """Keep up to ``length`` characters unchanged; return how many."""
        length = min(length, self.open)
        self.open -= length
        self.resolved += length
        return length

    def leave(self) -> list[tuple[int, C]]:
        """Remove and return the chunks that are wholly resolved, with their numbers."""
        texts, chunks, left = self.texts, self.chunks, self.resolved
        out = []
        while texts and len(texts[0]) <= left:
            left -= len(texts.popleft())
            out.append(chunks.popleft())
        self.resolved = left
        begin, self.number = self.number, self.number + len(out)
        return list(enumerate(out, begin))

    def split(self) -> list[_Held[C]]:
        """Return the chunks as single entries of the queue."""
        held = []
        for i, (chunk, text) in enumerate(zip(self.chunks, self.texts, strict=True)):
            piece = _Piece(self.channel, text)
            self.resolved -= piece.take(self.resolved, None)
            pieces = {self.channel.choice: [piece]}
            held.append(_Held(self.number + i, chunk, pieces, whole=True))
        return held


@dataclass(slots=True)
class _Held(Generic[C]):
    """A waiting chunk and its pieces by choice."""

    number: int
    chunk: C
    pieces: dict[int, list[_Piece]]
    whole: bool  # whether the chunk itself may still go out, not only copies of its choices
    calls: tuple[Channel, ...] = ()  # the tool calls of which it carries anything
    ends: tuple[int, ...] = ()  # the choices whose finish reason it carries


class ChunkQueue(Generic[C]):
    """First in, first out within a choice; choices do not wait for each other.

    A chunk leaves as the provider's own object if all of its choices are resolved at once and
    unchanged. Otherwise each choice leaves as a copy, as soon as it can. A chunk with a part of a
    tool call waits until ``complete`` is called for it.
    """

    def __init__(self, codec: Codec[C]) -> None:
        self._codec = codec
        self._count = 0
        self._lines: dict[int, deque[_Held[C] | _Run[C]]] = {}
        self._bare: deque[tuple[int, C]] = deque()  # chunks without a choice
        # The entries of each channel that are not wholly resolved.
        self._open: dict[Channel, deque[_Piece | _Run[C]]] = {}
        self._run: _Run[C] | None = None  # the last entry, if the next chunk may join it
        self._ended: set[int] = set()
        self._incomplete: set[Channel] = set()  # tool calls
        self._carry: Counter[Channel] = Counter()  # held chunks that carry anything of a call
        self._waits_for: dict[int, _Held[C]] = {}  # by choice: what was not ready last
        #: Choices whose finish reason, the provider's own, has left.
        self.finished: set[int] = set()
        #: Whether anything may have become ready since the last ``ready``.
        self.moved = False

    def push(
        self,
        chunk: C,
        choices: list[int],
        parts: list[Part],
        calls: Iterable[Channel] = (),
        ends: Iterable[int] = (),
    ) -> None:
        """Hold ``chunk``; drop its text for choices that have ended.

        ``calls`` are the tool calls of which it carries anything, ``ends`` the choices whose finish
        reason it carries.
        """
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
        open_calls = tuple({call: None for call in calls if call.choice in pieces})
        self._incomplete.update(open_calls)
        self._carry.update(open_calls)
        whole = len(pieces) == len(choices)
        held = _Held(self._count, chunk, pieces, whole, open_calls, tuple(ends))
        for choice, own in pieces.items():
            self.moved = self.moved or not any(piece.text for piece in own)
            self._lines.setdefault(choice, deque()).append(held)

    def join(self, chunk: C, channel: Channel, text: str) -> None:
        """Hold a chunk that carries ``text`` only, for a choice that has not ended."""
        self._count += 1
        run = self._run
        if run is None or run.channel is not channel:
            run = self._run = _Run(self._count, channel)
            self._lines.setdefault(channel.choice, deque()).append(run)
            self._open.setdefault(channel, deque()).append(run)
        run.chunks.append(chunk)
        run.texts.append(text)
        run.open += len(text)

    def complete(self, call: Channel) -> None:
        """Let a tool call go out once all of its chunks can: nothing of it is missing."""
        self.moved = True
        self._incomplete.discard(call)

    def apply(self, channel: Channel, edits: Sequence[TextEdit]) -> None:
        """Apply edits to the next characters of ``channel``."""
        self.moved = True
        waiting = self._open[channel]
        for left, text in edits:
            while left:
                first = waiting[0]
                if isinstance(first, _Run):
                    if text is not None:
                        self._split(first)
                        continue
                    left -= first.take(left)
                    if first.open:
                        break
                    self._close(first)
                else:
                    left -= first.take(left, text)
                    if first.resolved < len(first.text):
                        break
                    if text:
                        text = ""  # the replacement appears once, where its passage began
                waiting.popleft()

    def end(self, choice: int, *, finished: bool = False) -> list[C]:
        """End ``choice`` now: return the chunks that may still go out, drop the rest.

        Unless it is ``finished``, so is the provider's finish reason, though it may be ready.
        """
        line = self._lines.get(choice, deque())
        ends = [isinstance(entry, _Held) and choice in entry.ends for entry in line]
        at = ends.index(True) if True in ends and not finished else len(line)
        behind = [line.pop() for _ in range(len(line) - at)]
        out = self.ready()
        out += self._whole_calls(choice, line, behind[-1] if behind else None)
        self.moved = True
        self._run = None
        self._ended.add(choice)
        for channel in [c for c in self._open if c.choice == choice]:
            del self._open[channel]
        whole = True
        self._lines.pop(choice, None)
        for waits in (*line, *reversed(behind)):
            for held in waits.split() if isinstance(waits, _Run) else (waits,):
                held.whole = False
                # A call with other chunks is not among them: they would have left together.
                mine = [call for call in held.calls if call.choice == choice]
                withheld = {c for c in mine if c in self._incomplete or self._carry[c] > 1}
                pieces = held.pieces.pop(choice)
                # Other texts of calls, such as names: which call one is of is not known here.
                fields = {p.channel for p in pieces if p.channel.kind == "tool"}.difference(mine)
                if any(p.channel in fields and p.resolved < len(p.text) for p in pieces):
                    withheld = set(mine)
                without_text = set(mine).difference(withheld, (p.channel for p in pieces))
                texts = dict.fromkeys(without_text, "")
                for piece in pieces:
                    # Nothing goes out after the first unresolved passage or withheld call.
                    if not whole:
                        break
                    if piece.channel in withheld or (withheld and piece.channel in fields):
                        texts.setdefault(piece.channel, "")
                        break
                    texts[piece.channel] = texts.get(piece.channel, "") + piece.result
                    whole = piece.resolved == len(piece.text)
                whole = whole and not withheld
                if any(texts.values()):
                    cut = self._codec.cut(held.chunk, choice, texts, ends=True)
                    if cut is not None:
                        out.append(cut)
        return out

    def _whole_calls(
        self, choice: int, line: deque[_Held[C] | _Run[C]], following: _Held[C] | _Run[C] | None
    ) -> list[C]:
        """Remove and return the chunks of calls whose last chunk also has the text that ends it.

        Such calls are complete, but ``ready`` holds them, because their last chunk is not ready.
        """
        entries = [*line] if following is None else [*line, following]
        calls = [set(e.calls) if isinstance(e, _Held) else set() for e in entries]
        waits = (n for n, entry in enumerate(line) if not self._is_ready(entry, choice))
        at = next(waits, len(line))
        last = entries[at] if at < len(entries) else None
        ends: set[Channel] = set()  # calls that the chunk with the open text ends before that text
        if isinstance(last, _Held) and self._codec.bundles:
            unresolved = (p.resolved < len(p.text) for p in last.pieces[choice])
            behind = {
                p.channel
                for p, open_ in zip(last.pieces[choice], accumulate(unresolved, or_), strict=True)
                if open_
            }
            # Which call a text of a tool belongs to that is no call of the chunk is not known.
            if not any(c.kind == "tool" for c in behind - calls[at]):
                ends = calls[at] - behind
        while at:
            begun = Counter(chain.from_iterable(calls[:at]))
            torn = {call for call in begun if begun[call] + (call in ends) < self._carry[call]}
            if not torn:
                break
            at, ends = next(n for n, own in enumerate(calls) if own & torn), set()
        out: list[C] = []
        for _ in range(at):
            entry = line.popleft()
            if isinstance(entry, _Run):
                out += [chunk for _, chunk in entry.leave()]
            else:
                out += self._release(entry, [choice])
                self._carry.subtract(c for c in entry.calls if c.choice == choice)
        return out

    def ready(self) -> list[C]:
        """Remove and return the chunks, or copies of them, that may go out now, in order."""
        if not self.moved:
            return []
        self.moved = False
        out: list[tuple[int, C]] = []
        free: dict[int, tuple[_Held[C], list[int]]] = {}
        for choice, line in self._lines.items():
            while line:
                first = line[0]
                if isinstance(first, _Run) and first.open:
                    out += first.leave()
                group = self._first_whole(choice, line)
                for entry in group:
                    line.popleft()
                    if isinstance(entry, _Run):
                        self._close(entry)
                        out += entry.leave()
                        continue
                    if choice in entry.ends:
                        self.finished.add(choice)
                    free.setdefault(entry.number, (entry, []))[1].append(choice)
                    self._carry.subtract(c for c in entry.calls if c.choice == choice)
                if not group:
                    break
        for number, (held, choices) in free.items():
            out += [(number, chunk) for chunk in self._release(held, choices)]
        if self._bare:
            oldest = min((line[0].number for line in self._lines.values() if line), default=None)
            while self._bare and (oldest is None or self._bare[0][0] < oldest):
                out.append(self._bare.popleft())
        if len(out) > 1:
            out.sort(key=itemgetter(0))
        return [chunk for _, chunk in out]

    def _is_ready(self, entry: _Held[C] | _Run[C], choice: int) -> bool:
        if isinstance(entry, _Run):
            return not entry.open
        if any(p.resolved < len(p.text) for p in entry.pieces[choice]):
            return False
        return not any(c.choice == choice and c in self._incomplete for c in entry.calls)

    def _first_whole(
        self, choice: int, line: deque[_Held[C] | _Run[C]]
    ) -> list[_Held[C] | _Run[C]]:
        """Return the first entries of a choice that may leave; none if they must wait.

        That is one entry, unless it carries a call: then all up to the end of its calls.
        """
        waits_for = self._waits_for.get(choice)
        if waits_for is not None and not self._is_ready(waits_for, choice):
            return []  # so that a long line is not gone through for each chunk
        group: list[_Held[C] | _Run[C]] = []
        begun: Counter[Channel] = Counter()
        for entry in line:
            if not self._is_ready(entry, choice):
                if isinstance(entry, _Held):  # a run may yet be split
                    self._waits_for[choice] = entry
                return []
            if isinstance(entry, _Held):
                begun.update(c for c in entry.calls if c.choice == choice)
            group.append(entry)
            if all(begun[call] == self._carry[call] for call in begun):
                self._waits_for.pop(choice, None)
                return group
        return []

    def _split(self, run: _Run[C]) -> None:
        """Replace ``run``, the first open entry of its channel, by its single chunks."""
        self._close(run)
        held = run.split()
        line, waiting = self._lines[run.channel.choice], self._open[run.channel]
        at = line.index(run)
        del line[at]
        for entry in reversed(held):
            line.insert(at, entry)
        waiting.popleft()
        pieces = (piece for entry in held for piece in entry.pieces[run.channel.choice])
        waiting.extendleft(reversed([p for p in pieces if p.resolved < len(p.text)]))

    def _close(self, run: _Run[C]) -> None:
        if self._run is run:
            self._run = None

    def _release(self, held: _Held[C], choices: list[int]) -> list[C]:
        unchanged = all(p.out is None for c in choices for p in held.pieces[c])
        if held.whole and unchanged and len(choices) == len(held.pieces):
            return [held.chunk]
        held.whole = False
        cuts = []
        for choice in choices:
            texts = by_channel((piece.channel, piece.result) for piece in held.pieces.pop(choice))
            cuts.append(self._codec.cut(held.chunk, choice, texts))
        return [cut for cut in cuts if cut is not None]
