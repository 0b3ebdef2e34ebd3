"""What a driver of the gate has judged."""

from __future__ import annotations

from typing import NamedTuple

from guard.gate.second_look import SecondLook
from guard.verdict import Channel, Window


class Job(NamedTuple):
    """A window to judge, and the channel it came from.

    ``turn`` numbers the turns of the choice's channels: it is the turn in which the window's new
    text begins. ``late``: that text came after the provider's finish reason. ``second``: it is
    the second look at a segment. ``look`` is what that reads, if the segment may get one.
    """

    channel: Channel
    window: Window
    turn: int = 0
    late: bool = False
    second: bool = False
    look: SecondLook | None = None
