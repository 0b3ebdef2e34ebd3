"""What the gate of a response knows of each of its choices."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from guard.gate.flow import GroupMemory
from guard.gate.gate import Gate
from guard.gate.job import Job
from guard.gate.second_look import settled
from guard.gate.turns import Turns
from guard.verdict import Verdict


@dataclass(slots=True)
class ChoiceState:
    """A row of the table of a response: the state of one choice.

    A choice is open until its provider or the guard ends it. One that the provider has ended may
    still be judged, so that the guard ends it, too; what the guard has ended changes no more.
    """

    turns: Turns
    threshold: float | None
    """Below which a second score must be."""
    ended_by: Literal["provider", "guard"] | None = None
    speaker: Gate | None = None
    """The gate of the channel whose text came last."""
    takes_turns: bool = False
    """Whether a second channel has spoken."""
    groups: GroupMemory | None = None
    """Whether it has named a group; only followed in hold mode ``association``."""
    behind_call: int = 0
    """Characters that came while one of its tool calls was held."""
    undecided: deque[tuple[Job, Verdict]] = field(default_factory=deque)
    """The verdicts on which nothing is decided yet, in the order of the text.

    Only the first of them can wait for a second look; the others wait behind it.
    """
    asked_again: bool = False
    """Whether the second look at the first of them was asked for."""
    second: Verdict | None = None
    """Its verdict."""

    def add(self, job: Job, verdict: Verdict) -> None:
        """Add a verdict; one of a second look is on the first."""
        if job.second:
            self.second = verdict
        else:
            self.undecided.append((job, verdict))

    def next_verdict(self) -> Verdict | Job | None:
        """Remove and return the verdict that can be decided on, or the job that it needs first.

        None if that is not known yet, or not resolved.
        """
        job, verdict = self.undecided[0]
        look = job.look
        if verdict.biased and look is not None:
            if look.waits:
                return None
            if look.window is not None and not self.asked_again:
                self.asked_again = True
                return job._replace(window=look.window, second=True)
            if self.second is not None:
                verdict = settled(verdict, self.second, self.threshold)
            elif self.asked_again:
                return None
        self.undecided.popleft()
        self.second, self.asked_again = None, False
        return verdict
