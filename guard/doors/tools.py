"""A tool call goes out whole or not at all: clients repair a cut one to another call, and run it.

So a call is held until its last argument is judged. That comes with the end of its choice, or
earlier where something else begins and the arguments are complete.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from guard.verdict import Channel


def is_complete(arguments: str) -> bool:
    """Whether ``arguments`` are a whole JSON text."""
    try:
        json.loads(arguments)
    except (ValueError, RecursionError):
        return False
    return True


class CallEnds:
    """Finds the calls of a stream that are complete when something else of their choice begins.

    That is so where their arguments are whole JSON: nothing but white space can follow. Of free
    text nobody knows before the end of the choice: providers may send calls by turns.
    """

    def __init__(self) -> None:
        self._open: dict[int, dict[Channel, list[str]]] = {}  # by choice

    def before(
        self, choice: int, calls: Mapping[Channel, str | None], *, more: bool = False
    ) -> list[Channel]:
        """Return the calls that a chunk shows complete.

        ``calls`` are the chunk's pieces of calls (None: free text); ``more``: whether it has other
        text.
        """
        pieces = self._open.get(choice)
        if pieces is None:
            if not calls:
                return []
            pieces = self._open[choice] = {}
        ended = [c for c in pieces if (more or any(o != c for o in calls)) and c not in calls]
        complete = [call for call in ended if is_complete("".join(pieces[call]))]
        for call in complete:
            del pieces[call]
        for call, text in calls.items():
            if text is not None:
                pieces.setdefault(call, []).append(text)
        return complete
