"""What a door needs from the guard for one response."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from guard.background import ending
from guard.detect.serving import WindowJudge
from guard.forks import Lock
from guard.gate import Codec, ResponseGate
from guard.policy import Policy
from guard.verdict import Decision, GuardTrail

if TYPE_CHECKING:
    from guard.doors.litellm.records import DeferredLogging

C = TypeVar("C")
Outcome = Literal["completed", "stopped", "left", "failed"]
"""How a response ended: the guard stopped it, its reader left, or its provider failed."""


_guarded: Counter[str] = Counter()
_counting = Lock()
if hasattr(os, "register_at_fork"):  # a child has guarded nothing yet
    os.register_at_fork(after_in_child=_guarded.clear)


def counts() -> Counter[str]:
    """Return how many responses were guarded in this process so far, by door.

    The doors are ``chat``, ``text``, ``responses``, ``messages``, ``plain`` (:meth:`Guard.stream`)
    and ``check`` (each text of :meth:`Guard.check` and its like). A response counts once, when the
    guard gets it and before it is judged, also if it is stopped later. A call that failed without
    an answer does not count. The Counter is a copy: subtract an earlier one for what came since.
    """
    with _counting:
        return _guarded.copy()


class Recorder(Protocol):
    """Keeps what is decided on responses; it neither blocks nor raises."""

    def decided(
        self, session: DoorSession, trail: GuardTrail, decision: Decision, text: str
    ) -> None:
        """Take the last decision of ``trail``, on a segment that reads ``text``."""
        ...

    def ended(self, session: DoorSession, trail: GuardTrail, outcome: Outcome) -> None:
        """Take the end of a response, once; ``trail`` has all that was decided on it."""
        ...


class Clock:
    """Times how long the beginning of a stream is held: see ``GuardTrail.first_release_ms``."""

    __slots__ = ("_arrived",)

    def __init__(self) -> None:
        self._arrived: float | None = None

    def arrived(self, gate: ResponseGate[Any]) -> None:
        """Note that a chunk has come."""
        if self._arrived is None and gate.began:
            self._arrived = time.perf_counter()

    def released(self, chunks: list[C], trail: GuardTrail) -> list[C]:
        """Note that ``chunks`` go out; return them."""
        if chunks and self._arrived is not None and trail.first_release_ms is None:
            trail.first_release_ms = (time.perf_counter() - self._arrived) * 1000
        return chunks


@dataclass(frozen=True, slots=True)
class DoorSession:
    """The policy, the judge (bound to one index version) and the sinks of one response."""

    policy: Policy
    judge: WindowJudge
    sinks: tuple[Callable[[Decision], None], ...] = ()
    deferred: DeferredLogging | None = None
    """LiteLLM's records of the call, if the policy defers them."""
    model: str | None = None
    """The model that the caller named."""
    request_id: str | None = None
    """LiteLLM's id of the call."""
    door: str = "plain"
    """Where the response comes from, as events name it."""
    recorder: Recorder | None = None
    fixed: bool = False
    """Whether text put in the place of a JSON string might not fit the caller's schema."""
    parent_span: Any = None
    """OpenTelemetry's span in which the caller has LiteLLM trace the call."""

    def gate(self, codec: Codec[C], **options: Any) -> ResponseGate[C]:
        """Return a gate for the response, and count it; ``options`` are those of ResponseGate."""
        # A rewritten answer goes on with its trail; a judged error is no response.
        if "trail" not in options and self.door != "error":
            with _counting:
                _guarded[self.door] += 1
        options = {"sinks": self.sinks, "stamp": self._stamped, "fixed": self.fixed, **options}
        if self.recorder is not None:
            options["record"] = partial(self.recorder.decided, self)
        return ResponseGate(codec, self.policy, **options)

    def _stamped(self, decision: Decision) -> Decision:
        return replace(
            decision,
            time=datetime.now(timezone.utc),
            model=self.model,
            request_id=self.request_id,
            labels=self.policy.labels,
        )

    def judge_pending(self, gate: ResponseGate[Any]) -> None:
        """Judge the pending windows of ``gate``."""
        while jobs := gate.pending():
            verdicts = self.judge.judge([job.window for job in jobs])
            for job, verdict in zip(jobs, verdicts, strict=True):
                gate.resolve(job, verdict)

    async def ajudge_pending(self, gate: ResponseGate[Any]) -> None:
        """Do the same as :meth:`judge_pending` without blocking the event loop."""
        while jobs := gate.pending():
            verdicts = await self.judge.ajudge([job.window for job in jobs])
            for job, verdict in zip(jobs, verdicts, strict=True):
                gate.resolve(job, verdict)

    def ended(self, trail: GuardTrail, outcome: Outcome) -> None:
        """Have the recorder take the end of a response."""
        if self.recorder is not None:
            self.recorder.ended(self, trail, "stopped" if trail.stopped else outcome)

    @contextmanager
    def recording(self, trail: GuardTrail) -> Iterator[None]:
        """Take the end of the block for that of the response."""
        dropped_to = ending.opened()
        try:
            yield
        except GeneratorExit:  # the coroutine is discarded: see EndsWhenDropped
            dropped_to.put(partial(self.ended, trail, "left"))
            raise
        except BaseException as error:
            self.ended(trail, "failed" if isinstance(error, Exception) else "left")
            raise
        self.ended(trail, "completed")
