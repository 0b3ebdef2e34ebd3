"""The protocol of detectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from guard.verdict import BiasType, Scores, Window

__all__ = ["Detector", "DetectorSession", "Window"]


@runtime_checkable
class Detector(Protocol):
    """Scores windows. Thread-safe; ``score`` may be called from several threads at once.

    A detector that scores several windows faster together than one by one may have an attribute
    ``batch``, the most windows of one call: then windows of concurrent responses share calls.
    Without it every call has one window. One that waits for others may have an attribute
    ``concurrency``, the most calls at a time, in place of one per core. A detector whose scores
    hold only at some thresholds may have an attribute ``thresholds``, the lowest and the highest:
    others are refused, except 0.

    A detector that leaves text of other languages unjudged may list its own in an attribute
    ``languages`` (ISO 639-1 codes), and have an attribute ``every_language``, a detector that
    judges such text, too: the policy's ``language="judge"`` uses that one, and is refused for a
    detector with ``languages`` alone.
    """

    @property
    def name(self) -> str:
        """Name and version, for verdicts."""
        ...

    @property
    def operating_points(self) -> Mapping[str, Mapping[BiasType, float]]:
        """Threshold per bias type for each named operating point."""
        ...

    def snapshot(self) -> DetectorSession:
        """Return a session bound to the present version of the index."""
        ...


class DetectorSession(Protocol):
    """A detector bound to one version of the index; a running stream keeps its session."""

    @property
    def index_version(self) -> str | None:
        """Content hash of the bias index in use; None if there is none."""
        ...

    def score(self, windows: Sequence[Window]) -> list[Scores]:
        """Return one :class:`Scores` for each window, in order; none depends on other windows."""
        ...
