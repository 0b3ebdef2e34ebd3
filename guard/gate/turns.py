"""Interleaved channels of one choice: which open segments must be judged before they end.

A segment belongs to its channel; no other channel ends it. But the chunks of a choice leave in
order, so an open segment holds back the other channels. After ``limit`` characters of theirs it
is judged while incomplete; it is judged at once if it already is a complete sentence. The whole
segment is judged again when it ends.

White space is not counted and holds nothing back. Everything is counted in characters, so the
chunking makes no difference.
"""

from __future__ import annotations

import re
from collections import deque
from operator import itemgetter
from typing import NamedTuple

from guard.gate.gate import Gate

_PRINTED = re.compile(r"\S")


class _Turn(NamedTuple):
    """Where a channel's text began after another channel's."""

    number: int  # among the turns of the choice
    offset: int  # in the channel's own text
    others: int  # characters of other channels before it


class Turns:
    """The channels of one choice and the order of their turns."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0
        self._total = 0  # characters of all channels; not counted while there is only one
        self._own: dict[Gate, int] = {}
        self._turns: dict[Gate, deque[_Turn]] = {}
        self._current: Gate | None = None
        self._open: dict[Gate, None] = {}  # all whose segment is open, and the current gate

    @property
    def gates(self) -> list[Gate]:
        """The gates of all channels; that with the oldest open segment first."""
        return sorted(self._own, key=lambda gate: self._turn(gate).number)

    def waits(self, current: Gate, before: int | None = None) -> bool:
        """Whether a segment of a channel other than ``current`` is open.

        With ``before``, only segments count that began before the turn of this number.
        """
        return any(
            before is None or self._turn(gate).number < before
            for gate in self._holding()
            if gate is not current
        )

    def open(self, current: Gate) -> list[Gate]:
        """Return ``current`` and the gates of all open segments; that with the oldest first."""
        gates = dict.fromkeys([*self._holding(), current])
        return sorted(gates, key=lambda gate: self._turn(gate).number)

    def _holding(self) -> list[Gate]:
        # Only fed text opens a segment: a gate without one is left out until its next text.
        holding = [gate for gate in self._open if gate.holds]
        self._open = dict.fromkeys(holding)
        if self._current is not None:  # it may be about to be fed
            self._open[self._current] = None
        return holding

    def number(self, gate: Gate, offset: int) -> int:
        """Return the number of the turn that contains a channel's character at ``offset``."""
        turns = self._turns[gate]
        return next((t.number for t in reversed(turns) if t.offset <= offset), turns[0].number)

    def add_text(self, current: Gate, text: str) -> list[tuple[int, Gate]]:
        """Count text that is about to be fed to ``current``.

        Returns the gates whose open segments must be judged early. Each comes with the position
        in ``text`` before which to do so; they are in order of these positions.
        """
        own = self._own.setdefault(current, 0)
        self._turns.setdefault(current, deque())
        if self._current is not current:
            self._current = current
            self._open[current] = None
            self._begin(current)
        late = []
        if len(self._own) > 1:
            printed = [match.start() for match in _PRINTED.finditer(text)]
            holding = self._holding()
            if printed:
                for gate in self._own.keys() - holding:
                    if gate is not current:
                        gate.end_looks()  # nothing of it is open that could be looked at, too
            for gate in holding:
                if gate is not current:
                    # Less than none where it was judged and half an escape of it waits.
                    left = max(self._limit - self._others(gate), 0)
                    left = 0 if gate.ends_sentence else left
                    if left < len(printed):
                        late.append((printed[left], gate))
            self._total += len(printed)
            self._own[current] = own + len(printed)
        return sorted(late, key=itemgetter(0))

    def finish(self, gate: Gate) -> None:
        """Note that a channel is about to end.

        An escape that went out incomplete is read only then, after the text of other channels.
        """
        if not gate.holds:
            self._begin(gate)

    def _begin(self, gate: Gate) -> None:
        """Begin a turn of a channel."""
        self._count += 1
        turn = _Turn(self._count, gate.fed, self._total - self._own[gate])
        self._turns[gate].append(turn)
        self._turn(gate)

    def _others(self, gate: Gate) -> int:
        """Characters of other channels since the gate's oldest open one."""
        return self._total - self._own[gate] - self._turn(gate).others

    def _turn(self, gate: Gate) -> _Turn:
        turns, start = self._turns[gate], gate.held_from
        while len(turns) > 1 and turns[1].offset <= start:
            turns.popleft()
        return turns[0]
