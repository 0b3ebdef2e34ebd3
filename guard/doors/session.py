"""What a door needs from the guard for one response."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, TypeVar

from guard.detect.serving import Judge
from guard.gate import Codec, ResponseGate
from guard.policy import Policy
from guard.verdict import Decision

if TYPE_CHECKING:
    from guard.doors.litellm.records import DeferredLogging

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class DoorSession:
    """The policy, the judge (bound to one index version) and the sinks of one response."""

    policy: Policy
    judge: Judge
    sinks: tuple[Callable[[Decision], None], ...] = ()
    deferred: DeferredLogging | None = None
    """LiteLLM's records of the call, if the policy defers them."""
    model: str | None = None
    """The model that the caller named."""
    request_id: str | None = None
    """LiteLLM's id of the call."""

    def gate(self, codec: Codec[C], **options: Any) -> ResponseGate[C]:
        """Return a gate for the response; ``options`` are those of ResponseGate."""
        return ResponseGate(codec, self.policy, sinks=self.sinks, stamp=self._stamped, **options)

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
