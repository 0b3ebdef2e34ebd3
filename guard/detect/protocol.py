"""What every detector offers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from guard.verdict import BiasType, Scores


@dataclass(frozen=True, slots=True)
class Window:
    """What a detector reads: the segment to judge, and text before it that is only context.

    ``context`` holds earlier segments of the channel, oldest first; ``user`` is the last user
    message where the policy shows it. A score never depends on other windows.
    """

    text: str
    context: tuple[str, ...] = ()
    user: str = ""


@runtime_checkable
class Detector(Protocol):
    """Scores windows. Thread-safe; ``score`` may be called from several threads at once."""

    @property
    def name(self) -> str:
        """Name and version, as verdicts carry it."""
        ...

    @property
    def operating_points(self) -> Mapping[str, Mapping[BiasType, float]]:
        """Threshold per bias type for each named operating point."""
        ...

    def snapshot(self) -> Session:
        """Return a session bound to the index version of this moment."""
        ...


class Session(Protocol):
    """A detector bound to one index version, as a running stream keeps it."""

    @property
    def index_version(self) -> str:
        """Content hash of the bias index in use, empty where there is none."""
        ...

    def score(self, windows: Sequence[Window]) -> list[Scores]:
        """Return one :class:`Scores` a window, in order."""
        ...
