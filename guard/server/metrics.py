"""What a server counts, for Prometheus; no label has a text, a token or an address."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class ServerMetrics:
    """Counters of one application, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        requests = Counter(
            "guard_served_requests",
            "Requests for scores, by the status of the answer.",
            ["status"],
            registry=self._registry,
        )
        windows = Counter(
            "guard_served_windows",
            "Windows by what became of them: scored, unjudged, failed, late, refused.",
            ["outcome"],
            registry=self._registry,
        )
        self._requests, self._windows = requests, windows
        # A label is looked up under a lock; those of every request are looked up once.
        self._answered = requests.labels("200")
        self._scored, self._unjudged = windows.labels("scored"), windows.labels("unjudged")
        self._score_seconds = Histogram(
            "guard_served_score_seconds",
            "Time that the detector took for a call.",
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._request_seconds = Histogram(
            "guard_served_request_seconds",
            "Time from a request for scores to its answer.",
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._waiting = Gauge(
            "guard_served_waiting_windows",
            "Windows that are accepted and not answered yet.",
            registry=self._registry,
        )

    def watch_waiting(self, count: Callable[[], float]) -> None:
        """Show what ``count`` returns as the number of windows that wait."""
        self._waiting.set_function(count)

    def count_request(self, status: int, seconds: float) -> None:
        """Count the answer to a request for scores."""
        (self._answered if status == 200 else self._requests.labels(str(status))).inc()
        self._request_seconds.observe(seconds)

    def count_scored(self, seconds: float, *, unjudged: bool) -> None:
        """Count a window that the detector read in so many seconds."""
        (self._unjudged if unjudged else self._scored).inc()
        self._score_seconds.observe(seconds)

    def count_windows(self, outcome: str, count: int = 1) -> None:
        """Count windows without scores."""
        self._windows.labels(outcome).inc(count)

    def exposition(self) -> bytes:
        """Return all counters in the text format of Prometheus."""
        return generate_latest(self._registry)
