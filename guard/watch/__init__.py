"""Records what guards decide: events in a store, metrics and traces; reads rates and alerts.

:func:`recorder` makes the recorder that a :class:`guard.Guard` reports its decisions to.
:mod:`guard.watch.rates` and :mod:`guard.watch.alerts` read the store.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from guard.errors import ConfigError

if TYPE_CHECKING:
    from guard.doors.session import DoorSession, Outcome, Recorder
    from guard.verdict import Decision, GuardTrail
    from guard.watch.events import Events, KeepText
    from guard.watch.metrics import Metrics
    from guard.watch.traces import Traces

__all__ = ["Recorders", "recorder"]

_KEEP_DAYS = 90
_log = logging.getLogger("guard")


class Recorders:
    """Several recorders as one; a recorder that fails is logged and does not stop the others."""

    def __init__(self, recorders: Sequence[Recorder]) -> None:
        self.recorders = tuple(recorders)

    def decided(
        self, session: DoorSession, trail: GuardTrail, decision: Decision, text: str
    ) -> None:
        """Report the last decision of ``trail`` to each recorder."""
        for each in self.recorders:
            _shielded(each, lambda recorder: recorder.decided(session, trail, decision, text))

    def ended(self, session: DoorSession, trail: GuardTrail, outcome: Outcome) -> None:
        """Report the end of a response to each recorder."""
        for each in self.recorders:
            _shielded(each, lambda recorder: recorder.ended(session, trail, outcome))


def _shielded(recorder: Recorder, call: Callable[[Recorder], None]) -> None:
    try:
        call(recorder)
    except Exception as error:
        _log.error("%s failed with %s", type(recorder).__name__, type(error).__name__)


def recorder(
    settings: Mapping[str, Any], call_span: Callable[[DoorSession], Any]
) -> Recorder | None:
    """Return the recorder that ``settings`` ask for, None if they ask for none.

    ``events``, ``keep_text``, ``keep_days`` and ``review_share`` configure the store; guards with
    the same store share one writer. ``metrics`` is True or a Prometheus registry, ``traces`` True
    or an OpenTelemetry tracer provider; ``call_span`` returns LiteLLM's span of a response. Raises
    ConfigError if the store cannot be opened or a package is not installed.
    """
    recorders: list[Recorder] = []
    events = _events(settings) if settings.get("events") is not None else None
    if events is not None:
        recorders.append(events)
    if (registry := settings.get("metrics") or None) is not None:
        metrics = _metrics(registry)
        recorders.append(metrics)
        if events is not None:
            events.report_drops(metrics.dropped)
    if (provider := settings.get("traces") or None) is not None:
        recorders.append(_traces(provider, call_span))
    if recorders == [events]:
        return events  # which logs its own failures
    return Recorders(recorders) if recorders else None


def _events(settings: Mapping[str, Any]) -> Events:
    with _needing("events: a store needs SQLAlchemy"):
        from guard.watch.events import Events
        from guard.watch.writer import writer_of
    keep_text, share = settings.get("keep_text", "never"), settings.get("review_share", 0.0)
    if share and keep_text in ("never", "hash"):
        raise ConfigError(
            f"events: review_share keeps texts for people to read, and keep_text = '{keep_text}' "
            "forbids it; set keep_text = 'redacted', or leave review_share out."
        )
    writer = writer_of(settings["events"], settings.get("keep_days", _KEEP_DAYS))
    return Events(writer, cast("KeepText", keep_text), share)


def _metrics(registry: Any) -> Metrics:
    with _needing("metrics: they need prometheus-client"):
        from prometheus_client import CollectorRegistry

        from guard.watch.metrics import metrics_in
    _check("metrics", registry, CollectorRegistry, "a CollectorRegistry of prometheus-client")
    return metrics_in(None if registry is True else registry)


def _traces(provider: Any, call_span: Callable[[DoorSession], Any]) -> Traces:
    with _needing("traces: they need opentelemetry-api"):
        from opentelemetry.trace import TracerProvider

        from guard.watch.traces import Traces
    _check("traces", provider, TracerProvider, "a TracerProvider of OpenTelemetry")
    return Traces(None if provider is True else provider, call_span)


@contextmanager
def _needing(package: str) -> Iterator[None]:
    try:
        yield
    except ImportError:
        from guard.installed import install_command

        raise ConfigError(f"{package}; run: {install_command('watch')}") from None


def _check(setting: str, value: object, kind: type, kind_name: str) -> None:
    if value is not True and not isinstance(value, kind):
        raise ConfigError(
            f"Guard: {setting} takes true, false or {kind_name}, got a {type(value).__name__}."
        )
