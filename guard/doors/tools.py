"""A tool call goes out whole or not at all: clients repair a cut one to another call, and run it.

So a call is held until its last argument is judged. That comes with the end of its choice, or
earlier where another call begins and the arguments are complete.
"""

from __future__ import annotations

import json

from guard.verdict import Channel


def is_complete(arguments: str) -> bool:
    """Whether ``arguments`` are a whole JSON text."""
    try:
        json.loads(arguments)
    except (ValueError, RecursionError):
        return False
    return True


class CallEnds:
    """Finds the calls of a stream that are complete when the next one of their choice begins.

    Providers send calls one after the other. Where one goes on after another has begun, its
    arguments were no whole JSON by then; free text always ends there.
    """

    def __init__(self) -> None:
        self._open: dict[int, Channel] = {}  # the call that came last, by choice
        self._arguments: dict[Channel, list[str] | None] = {}

    def before(self, call: Channel, arguments: str | None) -> list[Channel]:
        """Take a piece of ``call`` (None: of free text); return the call that it shows complete."""
        before = self._open.get(call.choice)
        self._open[call.choice] = call
        if arguments is None:
            self._arguments[call] = None
        else:
            pieces = self._arguments.setdefault(call, [])
            if pieces is not None:
                pieces.append(arguments)
        if before is None or before == call:
            return []
        pieces = self._arguments[before]
        return [before] if pieces is None or is_complete("".join(pieces)) else []
