"""What a driver of the gate has judged."""

from __future__ import annotations

from typing import NamedTuple

from guard.gate.second_look import SecondLook
from guard.verdict import Channel, Window


class Job(NamedTuple):
    """A window to judge, and the channel it came from.

    ``begin`` is the offset of the window's first character that was in no earlier one, and ``turn``
    the number of the turn of the choice's channels that has it. ``look`` is the second look at the
    window's segment, if it may get one. ``late``: its text came after the provider's finish
    reason. ``second``: it is the second look itself.
    """

    channel: Channel
    window: Window
    begin: int
    look: SecondLook | None = None
    turn: int = 0
    late: bool = False
    second: bool = False
