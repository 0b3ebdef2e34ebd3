"""Metrics of what guards decide, for Prometheus.

Labels hold names that guard or its owner chose, never text or ids. Callers may invent any number of
model names, so only the first :data:`MOST_MODELS` have series of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

from guard.background import call_soon
from guard.verdict import Decision, GuardTrail
from guard.watch.events import bounded, summary_of, verdict_label

if TYPE_CHECKING:
    from guard.doors.session import DoorSession, Outcome

MOST_MODELS = 50
OTHER = "other"
"""The model label once :data:`MOST_MODELS` names have been seen."""
NONE = "none"
"""The model label of a response without a model name, and the bias type of an unbiased segment."""
_VERDICT_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.6, 1.25, 2.5, 5, 30)
_RELEASE_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_CHARACTERS = (0, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000)


class Metrics:
    """The recorder that counts; a registry has one."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, documentation: str, *labels: str) -> Counter:
            return Counter(name, documentation, labels, registry=registry)

        def histogram(
            name: str, documentation: str, buckets: tuple[float, ...], *labels: str
        ) -> Histogram:
            return Histogram(name, documentation, labels, buckets=buckets, registry=registry)

        self._responses = counter(
            "guard_responses", "Responses that were guarded.", "door", "model", "outcome"
        )
        self._segments = counter(
            "guard_segments",
            "Segments by verdict: biased, unbiased or unjudged.",
            *("door", "model", "verdict"),
        )
        self._decisions = counter(
            "guard_decisions",
            "Decisions on segments, each finding once.",
            *("door", "model", "action", "bias_type"),
        )
        self._unjudged = counter(
            "guard_unjudged_segments",
            "Segments that were not judged: language, failure, overload or unusable.",
            *("door", "model", "reason"),
        )
        self._dropped = counter(
            "guard_events_dropped", "Events that this process could not write to its store."
        )
        self._verdict = histogram(
            "guard_verdict_seconds", "Time that the verdict on a segment took.", _VERDICT_S
        )
        self._release = histogram(
            "guard_first_release_seconds",
            "Time from the first text of a stream until guard released the first.",
            *(_RELEASE_S, "door"),
        )
        self._withheld = histogram(
            "guard_withheld_characters",
            "Characters of a response that guard kept from its user.",
            *(_CHARACTERS, "door"),
        )
        self._models: set[str] = set()

    def decided(
        self, session: DoorSession, trail: GuardTrail, decision: Decision, text: str
    ) -> None:
        """Count a decision."""
        door, model = session.door, session.model
        call_soon(lambda: self._decided(door, model, decision))

    def ended(self, session: DoorSession, trail: GuardTrail, outcome: Outcome) -> None:
        """Count a response on which anything was decided."""
        if trail.decisions:
            door, model = session.door, session.model
            call_soon(lambda: self._ended(door, model, trail, outcome))

    def dropped(self, count: int) -> None:
        """Count events that were not written to the store."""
        call_soon(lambda: self._dropped.inc(count))

    def _decided(self, door: str, model_name: str | None, decision: Decision) -> None:
        verdict, model = decision.verdict, self._model_label(model_name)
        if verdict.unjudged is not None:
            self._unjudged.labels(door, model, verdict.unjudged).inc()
        self._segments.labels(door, model, verdict_label(verdict)).inc()
        if decision.counted:
            bias_type = verdict.bias_type or NONE
            self._decisions.labels(door, model, decision.action, bias_type).inc()
        self._verdict.observe(verdict.elapsed_ms / 1000)

    def _ended(
        self, door: str, model_name: str | None, trail: GuardTrail, outcome: Outcome
    ) -> None:
        self._responses.labels(door, self._model_label(model_name), outcome).inc()
        self._withheld.labels(door).observe(summary_of(trail)["characters_withheld"])
        if trail.first_release_ms is not None:
            self._release.labels(door).observe(trail.first_release_ms / 1000)

    def _model_label(self, model_name: str | None) -> str:
        if model_name is None:
            return NONE
        name = bounded(model_name) or NONE
        if name not in self._models:
            if len(self._models) >= MOST_MODELS:
                return OTHER
            self._models.add(name)
        return name


_by_registry: WeakKeyDictionary[CollectorRegistry, Metrics] = WeakKeyDictionary()


def metrics_in(registry: CollectorRegistry | None = None) -> Metrics:
    """Return the metrics in ``registry``, by default the client's, which LiteLLM uses too."""
    registry = REGISTRY if registry is None else registry
    if registry not in _by_registry:
        _by_registry[registry] = Metrics(registry)
    return _by_registry[registry]
