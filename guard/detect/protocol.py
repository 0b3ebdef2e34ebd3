"""What every detector offers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from guard.verdict import BiasType, Scores, Window

__all__ = ["Detector", "DetectorSession", "Window"]


@runtime_checkable
class Detector(Protocol):
    """Scores windows. Thread-safe; ``score`` may be called from several threads at once.

    One that judges many windows in less time than one by one may have an attribute ``batch``, the
    most windows of one call: windows of concurrent responses then share calls. Without it every
    call has one window.
    """

    @property
    def name(self) -> str:
        """Name and version, as verdicts carry it."""
        ...

    @property
    def operating_points(self) -> Mapping[str, Mapping[BiasType, float]]:
        """Threshold per bias type for each named operating point."""
        ...

    def snapshot(self) -> DetectorSession:
        """Return a session bound to the index version of this moment."""
        ...


class DetectorSession(Protocol):
    """A detector bound to one index version, as a running stream keeps it."""

    @property
    def index_version(self) -> str | None:
        """Content hash of the bias index in use, None where there is none."""
        ...

    def score(self, windows: Sequence[Window]) -> list[Scores]:
        """Return one :class:`Scores` a window, in order; none depends on the other windows."""
        ...
