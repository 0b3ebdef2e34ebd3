"""When the channels of one choice take turns: which open segments may not wait any longer.

A segment belongs to its channel alone, and no other channel ends it. But the chunks of a choice
leave in order, so an open segment holds back the other channels. After ``limit`` of their
characters its beginning is judged and may leave; so it is at once where it could end as it stands.
The whole segment is judged again when it ends.

White space counts for nothing here: it neither waits nor makes others wait. All is counted in
characters, so how the text was chunked makes no difference.
"""

from __future__ import annotations

import re
from collections import deque
from typing import NamedTuple

from guard.gate.gate import Gate

_PRINTED = re.compile(r"\S")


class _Turn(NamedTuple):
    """Where a channel began to speak after another one."""

    number: int  # among the turns of the choice
    offset: int  # in the channel's own text
    others: int  # characters that other channels had said


class Turns:
    """The channels of one choice, and who spoke when."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0
        self._said = 0  # characters of all channels; not counted while there is only one
        self._own: dict[Gate, int] = {}
        self._turns: dict[Gate, deque[_Turn]] = {}
        self._speaker: Gate | None = None
        self._open: dict[Gate, None] = {}  # all whose segment is open, and the speaker's

    @property
    def gates(self) -> list[Gate]:
        """The gates of all channels that have spoken; that with the oldest open segment first."""
        return sorted(self._own, key=lambda gate: self._turn(gate).number)

    def waits(self, speaker: Gate, before: int | None = None) -> bool:
        """Whether a segment of a channel other than ``speaker`` is open.

        With ``before``, whether one is that began before the turn of this number.
        """
        if len(self._own) == 1 and speaker in self._own:
            return False
        return any(
            before is None or self._turn(gate).number < before
            for gate in self._holding()
            if gate is not speaker
        )

    def open(self, speaker: Gate) -> list[Gate]:
        """Return ``speaker`` and the gates of all open segments; that with the oldest first."""
        gates = dict.fromkeys([*self._holding(), speaker])
        return sorted(gates, key=lambda gate: self._turn(gate).number)

    def _holding(self) -> list[Gate]:
        # Only text that is fed opens a segment: a gate without one is left out until it speaks.
        holding = [gate for gate in self._open if gate.holds]
        self._open = dict.fromkeys(holding)
        if self._speaker is not None:  # it may be about to be fed
            self._open[self._speaker] = None
        return holding

    def number(self, gate: Gate, offset: int) -> int:
        """Return the number of the turn in which a channel said its character at ``offset``."""
        turns = self._turns[gate]
        if len(turns) == 1:
            return turns[0].number
        return next((t.number for t in reversed(turns) if t.offset <= offset), turns[0].number)

    def say(self, speaker: Gate, text: str) -> list[tuple[int, Gate]]:
        """Take text that is about to be fed to ``speaker``.

        Returns the gates whose open segments are to be judged, each with the position in ``text``
        before which that is to happen, in order.
        """
        own = self._own.setdefault(speaker, 0)
        turns = self._turns.setdefault(speaker, deque())
        if self._speaker is not speaker:
            self._speaker = speaker
            self._open[speaker] = None
            self._count += 1
            turns.append(_Turn(self._count, speaker.fed, self._said - own))
            self._turn(speaker)
        late = []
        if len(self._own) > 1:
            printed = [match.start() for match in _PRINTED.finditer(text)]
            for gate in self._holding():
                if gate is not speaker:
                    left = 0 if gate.ends_sentence else self._limit - self._others(gate)
                    if left < len(printed):
                        late.append((printed[max(left, 0)], gate))
            self._said += len(printed)
            self._own[speaker] = own + len(printed)
        return sorted(late, key=lambda one: one[0])

    def _others(self, gate: Gate) -> int:
        """Characters that other channels have said since the gate's oldest open one."""
        return self._said - self._own[gate] - self._turn(gate).others

    def _turn(self, gate: Gate) -> _Turn:
        turns, start = self._turns[gate], gate.held_from
        while len(turns) > 1 and turns[1].offset <= start:
            turns.popleft()
        return turns[0]
