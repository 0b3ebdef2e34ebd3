"""What a door needs to guard one response."""

from __future__ import annotations

from dataclasses import dataclass

from guard.detect.serving import Judge
from guard.gate.response import Sink
from guard.policy import Policy


@dataclass(frozen=True, slots=True)
class DoorSession:
    """One response's policy, its judge (bound to one index version) and where decisions go."""

    policy: Policy
    judge: Judge
    sinks: tuple[Sink, ...] = ()
