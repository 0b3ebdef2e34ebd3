"""Class Guard: the one place where policy, detector and sinks are joined."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from guard.config import OWN_KEYS, policy_from, settings
from guard.detect.protocol import Detector
from guard.detect.serving import Judge
from guard.errors import ConfigError, UsageError
from guard.gate import Job, ResponseGate
from guard.gate.response import Sink
from guard.policy import Policy
from guard.verdict import GuardTrail, Verdict

if TYPE_CHECKING:
    from guard.doors.session import Session
    from guard.doors.text import AsyncTextStream, TextStream

__all__ = ["Guard", "acompletion", "completion"]

# Windows judged at a time when many texts are checked.
_LOT = 64


class Guard:
    """Judges text and guards LiteLLM calls by one policy and one detector.

    ``policy`` is a :class:`Policy`, a mapping of its settings or the name of an operating point;
    further keyword arguments are single settings. What is not given comes from ``guard.toml`` or
    ``[tool.guard]`` of the working directory and from ``GUARD_*`` variables, unless ``policy`` is a
    whole :class:`Policy`. ``detector`` is ``"encoder"`` or any object of the Detector protocol;
    ``index`` the folder of a bias index for the encoder; ``sinks`` are called with every decision.

    Raises ConfigError for a setting that is unknown or out of range, WeightsError where the
    detector's weights are missing or not the recorded ones.
    """

    def __init__(
        self,
        policy: Policy | Mapping[str, Any] | str | None = None,
        *,
        detector: str | Detector | None = None,
        index: str | Path | None = None,
        weights: str | Path | None = None,
        sinks: Iterable[Sink] = (),
        **overrides: Any,
    ) -> None:
        given = settings()
        own = {key: given.pop(key) for key in OWN_KEYS if key in given}
        base = policy if isinstance(policy, Policy) else policy_from(given)
        if isinstance(policy, str):
            overrides = {"operating_point": policy, **overrides}
        elif policy is not None and not isinstance(policy, Policy):
            overrides = {**policy, **overrides}
        self.policy = policy_from(overrides, base=base, where="Guard")
        self.sinks = tuple(sinks)
        self.detector = _detector(
            detector if detector is not None else own.get("detector", "encoder"),
            index if index is not None else own.get("index"),
            weights if weights is not None else own.get("weights"),
        )

    def check(self, text: str) -> Verdict:
        """Return the verdict on the highest-scoring segment of ``text``.

        Spans point into the whole text. Raises UsageError for empty text.
        """
        return self.check_many([text])[0]

    def check_many(self, texts: Iterable[str]) -> list[Verdict]:
        """Return one verdict a text, in order, each as ``check`` gives it."""
        return [highest(trail) for trail in self._trails(list(texts))]

    def trail(self, text: str) -> GuardTrail:
        """Return the decisions on every segment of ``text``; none of them stops the others."""
        return self._trails([text])[0]

    def stream(self, texts: Iterable[str], *, guard: Mapping[str, Any] | None = None) -> TextStream:
        """Return an iterator of what may be shown of ``texts``, guarded as they come."""
        from guard.doors.text import TextCodec, TextStream

        session = self.session(guard)
        gate = ResponseGate(TextCodec(), session.policy, sinks=session.sinks)
        return TextStream(texts, session.judge, gate)

    def astream(
        self, texts: AsyncIterable[str], *, guard: Mapping[str, Any] | None = None
    ) -> AsyncTextStream:
        """Return the same for text that is awaited."""
        from guard.doors.text import AsyncTextStream, TextCodec

        session = self.session(guard)
        gate = ResponseGate(TextCodec(), session.policy, sinks=session.sinks)
        return AsyncTextStream(texts, session.judge, gate)

    def completion(self, *args: Any, guard: Mapping[str, Any] | None = None, **kwargs: Any) -> Any:
        """Call ``litellm.completion`` with the same arguments and guard what it returns.

        ``guard`` holds settings of the policy for this call alone. A stream is a
        ``CustomStreamWrapper``, a whole response a ``ModelResponse``; both carry ``.guard``, the
        :class:`GuardTrail`. Raises what LiteLLM raises, and BiasFound under the action ``raise``.
        """
        from guard.doors import chat

        return chat.completion(self.session(guard), args, kwargs)

    async def acompletion(
        self, *args: Any, guard: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> Any:
        """Do the same for ``litellm.acompletion``."""
        from guard.doors import chat

        return await chat.acompletion(self.session(guard), args, kwargs)

    def session(self, call: Mapping[str, Any] | None = None) -> Session:
        """Return what a door needs for one response; ``call`` holds that call's own settings.

        The session keeps the index version of this moment.
        """
        from guard.doors.session import Session

        policy = self.policy
        if call:
            policy = policy_from(call, base=policy, where="guard= of this call")
        return Session(policy=policy, judge=Judge(self.detector, policy), sinks=self.sinks)

    def _trails(self, texts: Sequence[str]) -> list[GuardTrail]:
        from guard.doors.text import TextCodec

        # Every segment is to be judged, whatever the ones before it gave.
        policy = policy_from(
            {"action": "flag", "failure": "open", "language": "pass"}, base=self.policy
        )
        judge = Judge(self.detector, policy)
        waiting: list[tuple[ResponseGate[str], Job]] = []
        gates = []
        for number, text in enumerate(texts):
            _check_text(text, number, len(texts))
            gate = ResponseGate(TextCodec(), policy, sinks=self.sinks)
            gate.push(text)
            gate.finish()
            while jobs := gate.pending():
                waiting += [(gate, job) for job in jobs]
            gates.append(gate)
        for begin in range(0, len(waiting), _LOT):
            lot = waiting[begin : begin + _LOT]
            verdicts = judge.judge([job.window for _, job in lot])
            for (gate, job), verdict in zip(lot, verdicts, strict=True):
                gate.resolve(job, verdict)
        return [gate.trail for gate in gates]


def completion(*args: Any, **kwargs: Any) -> Any:
    """Call ``litellm.completion`` and guard what it returns, by the default guard.

    The default guard takes its settings from ``guard.toml``, ``[tool.guard]`` and ``GUARD_*``.
    """
    return _default().completion(*args, **kwargs)


async def acompletion(*args: Any, **kwargs: Any) -> Any:
    """Call ``litellm.acompletion`` and guard what it returns, by the default guard."""
    return await _default().acompletion(*args, **kwargs)


@cache
def _default() -> Guard:
    return Guard()


def _detector(
    detector: str | Detector, index: str | Path | None, weights: str | Path | None
) -> Detector:
    if isinstance(detector, Detector):
        if index is not None or weights is not None:
            raise ConfigError(
                "Guard: index and weights belong to the detector 'encoder'; give them to your own "
                "detector instead."
            )
        return detector
    if detector != "encoder":
        raise ConfigError(
            f"Guard: unknown detector {detector!r}; give 'encoder' or an object with name, "
            "operating_points and snapshot()."
        )
    return _encoder(
        None if weights is None else Path(weights), None if index is None else Path(index)
    )


@cache
def _encoder(weights: Path | None, index: Path | None) -> Detector:
    # Loaded once a process: guards that differ in policy alone share it.
    from guard.detect.encoder import Encoder

    return Encoder(weights, index)


def _check_text(text: object, number: int, total: int) -> None:
    which = "The text" if total == 1 else f"Text {number + 1} of {total}"
    if not isinstance(text, str):
        raise UsageError(f"{which} must be a string, got {type(text).__name__}.")
    if not text.strip():
        raise UsageError(f"{which} is empty; give text to judge.")


def highest(trail: GuardTrail) -> Verdict:
    """Return the verdict on the highest-scoring segment, its spans moved into the whole text."""
    decision = max(trail, key=lambda d: (d.verdict.biased, not d.verdict.unjudged, d.verdict.score))
    return decision.verdict.shifted(decision.span.start)
