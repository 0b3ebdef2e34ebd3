"""What the gate of a response knows of each of its choices."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
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
    undecided: Undecided
    ended_by: Literal["provider", "guard"] | None = None
    speaker: Gate | None = None
    """The gate of the channel whose text came last."""
    takes_turns: bool = False
    """Whether a second channel has spoken."""
    groups: GroupMemory | None = None
    """Whether it has named a group; only followed in hold mode ``association``."""
    behind_call: int = 0
    """Characters that came while one of its tool calls was held."""


class Undecided:
    """The verdicts of one choice on which nothing is decided yet, in the order of the text.

    Only the first of them can wait for a second look; the others wait behind it.
    """

    def __init__(self, threshold: float | None) -> None:
        self._threshold = threshold  # below which a second score must be
        self._verdicts: deque[tuple[Job, Verdict]] = deque()
        self._second: Verdict | None = None
        self._asked = False

    def __bool__(self) -> bool:
        return bool(self._verdicts)

    @property
    def asked(self) -> bool:
        """Whether the second look at the first was asked for."""
        return self._asked

    @property
    def first(self) -> Job:
        """The job whose verdict comes next."""
        return self._verdicts[0][0]

    def add(self, job: Job, verdict: Verdict) -> None:
        """Add a verdict; one of a second look is on the first."""
        if job.second:
            self._second = verdict
        else:
            self._verdicts.append((job, verdict))

    def next(self) -> Verdict | Job | None:
        """Remove and return the verdict that can be decided on, or the job that it needs first.

        None if that is not known yet, or not resolved.
        """
        job, verdict = self._verdicts[0]
        look = job.look
        if verdict.biased and look is not None:
            if look.waits:
                return None
            if look.window is not None and not self._asked:
                self._asked = True
                return job._replace(window=look.window, second=True)
            if self._second is not None:
                verdict = settled(verdict, self._second, self._threshold)
            elif self._asked:
                return None
        self._verdicts.popleft()
        self._second, self._asked = None, False
        return verdict
