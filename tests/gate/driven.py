"""A channel's gate, driven as the gate of a response does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from guard.gate import ResponseGate
from guard.gate.edits import TextEdit
from guard.gate.gate import Gate, GateOutput
from guard.policy import Policy
from guard.verdict import Channel, Decision, Verdict, Window


def judge_all(gate: ResponseGate[Any], judge: Callable[[str], Verdict]) -> None:
    """Have all windows judged that a response's gate asks about."""
    while jobs := gate.pending():
        for job in jobs:
            gate.resolve(job, judge(job.window.text))


class DrivenGate:
    """Feeds a gate, judges its windows with ``judge`` at once, and keeps what goes out."""

    def __init__(
        self,
        judge: Callable[[Window], Verdict],
        policy: Policy | None = None,
        channel: Channel | None = None,
    ) -> None:
        self.gate = Gate(policy or Policy(), channel or Channel())
        self.windows: list[Window] = []
        self.decisions: list[Decision] = []
        self.shown = ""
        self.out: set[int] = set()
        """The offsets of the characters that went out unchanged."""
        self.taken = 0
        """Characters that something was decided on."""
        self.early = 0
        """Characters out before the verdict on their segment."""
        self._judge = judge
        self._text = ""
        self._judged = 0

    def play(self, pieces: Iterable[str], *, look_every: int = 0) -> DrivenGate:
        """Feed all of a text; with ``look_every`` its open text is judged after so many pieces."""
        for number, piece in enumerate(pieces, 1):
            self.feed(piece)
            if look_every and number % look_every == 0:
                self.settle(self.gate.judge_open())
        self.settle(self.gate.finish())
        return self

    def feed(self, piece: str) -> None:
        self._text += piece
        self.settle(self.gate.feed(piece))

    def settle(self, output: GateOutput) -> None:
        self._apply(output.edits)
        self._apply(self.gate.flow())
        for job in output.windows:
            if self.gate.stopped:
                break
            self.windows.append(job.window)
            decision, edits = self.gate.resolve(self._judge(job.window))
            self.decisions.append(decision)
            self._judged = max(self._judged, decision.span.end)
            self._apply(edits)
            self._apply(self.gate.flow())

    def _apply(self, edits: Iterable[TextEdit]) -> None:
        for length, text in edits:
            end = self.taken + length
            if text is None:
                self.out.update(range(self.taken, end))
                self.early += max(0, end - max(self.taken, self._judged))
            self.shown += self._text[self.taken : end] if text is None else text
            self.taken = end
