"""What a door needs of the guard for one response."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from guard.detect.serving import Judge
from guard.gate import ResponseGate
from guard.policy import Policy
from guard.verdict import Decision


@dataclass(frozen=True, slots=True)
class Session:
    """The policy, the judge (bound to one index version) and the sinks of one response."""

    policy: Policy
    judge: Judge
    sinks: tuple[Callable[[Decision], None], ...] = ()

    def user(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """Return the text of the last user message of a call, where the policy has a use for it.

        That is to show it to the detector, or to know of which group a pronoun may speak.
        """
        if not self.policy.user_context and self.policy.hold != "association":
            return ""
        messages = kwargs.get("messages", args[1] if len(args) > 1 else None) or ()
        return next((_text(m) for m in reversed(messages) if _role(m) == "user"), "")

    def settle(self, gate: ResponseGate[Any]) -> None:
        """Have judged what ``gate`` waits for."""
        while jobs := gate.pending():
            verdicts = self.judge.judge([job.window for job in jobs])
            for job, verdict in zip(jobs, verdicts, strict=True):
                gate.resolve(job, verdict)

    async def asettle(self, gate: ResponseGate[Any]) -> None:
        """Do the same without blocking the event loop."""
        while jobs := gate.pending():
            verdicts = await self.judge.ajudge([job.window for job in jobs])
            for job, verdict in zip(jobs, verdicts, strict=True):
                gate.resolve(job, verdict)


def _role(message: Any) -> object:
    return message.get("role") if isinstance(message, Mapping) else getattr(message, "role", None)


def _text(message: Any) -> str:
    content = message["content"] if isinstance(message, Mapping) else message.content
    if isinstance(content, str):
        return content
    parts = (p.get("text") for p in content or () if isinstance(p, Mapping))
    return "\n".join(p for p in parts if isinstance(p, str))
