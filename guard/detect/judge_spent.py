"""What a judge was asked, what came back, and what that cost."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from guard.forks import Lock

_KEPT = 20_000  # latencies, the latest


class SpentRow(NamedTuple):
    """A figure of a judge's cost."""

    name: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class JudgeSpent:
    """The figures of a judge since it was made.

    ``windows`` were judged with ``calls`` calls; ``shared`` windows got the reply of an equal one,
    ``replayed`` that of a recording. ``outcomes`` counts windows: ``biased``, ``not biased``, the
    reasons of unusable replies, the types of errors of failed calls. ``unlocated`` counts pairs of
    which the text does not name the group or the attribute. ``cost`` is in US dollars, nan where
    LiteLLM has no price; ``uncounted`` calls came without usable numbers of tokens, and with a
    budget each counts at the most that it may cost. Times are those of calls, in milliseconds.
    ``stopped`` is the sentence of a spent budget.
    """

    windows: int
    calls: int
    shared: int
    replayed: int
    outcomes: Mapping[str, int]
    unlocated: int
    prompt_tokens: int
    answer_tokens: int
    cost: float
    uncounted: int
    median_ms: float
    p99_ms: float
    total_ms: float
    stopped: str = ""

    def rows(self, texts: int) -> list[SpentRow]:
        """Return the figures for a thousand of ``texts`` texts, the outcomes as they were."""
        per = 1000 / texts if texts else math.nan
        return [
            SpentRow("judge, windows", self.windows * per, "per 1,000 texts"),
            SpentRow("judge, calls", self.calls * per, "per 1,000 texts"),
            SpentRow("judge, tokens asked", self.prompt_tokens * per, "per 1,000 texts"),
            SpentRow("judge, tokens answered", self.answer_tokens * per, "per 1,000 texts"),
            SpentRow("judge, cost", self.cost * per, "USD per 1,000 texts"),
            SpentRow("judge, time of all calls", self.total_ms / 1000 * per, "s per 1,000 texts"),
            SpentRow("judge, latency, median", self.median_ms, "ms a call"),
            SpentRow("judge, latency, 99th percentile", self.p99_ms, "ms a call"),
            *(
                SpentRow(f"judge, {name}", float(count), "windows")
                for name, count in sorted(self.outcomes.items())
            ),
            *(
                [SpentRow("judge, pairs not in the text", self.unlocated, "pairs")]
                * bool(self.unlocated)
            ),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return asdict(self)


@dataclass
class JudgeCounts:
    """Counts for :class:`JudgeSpent`; thread-safe."""

    shared: int = 0
    replayed: int = 0
    uncounted: int = 0
    unlocated: int = 0
    windows: int = 0
    tokens: tuple[int, int] = (0, 0)
    total_ms: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    latest: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))
    lock: Lock = field(default_factory=Lock)

    def add(self, **counts: int) -> None:
        """Add to the counts of these names."""
        with self.lock:
            for name, count in counts.items():
                setattr(self, name, getattr(self, name) + count)

    def ended(self, milliseconds: float, tokens: tuple[int, int] | None) -> None:
        """Record a call that was made."""
        with self.lock:
            self.latest.append(milliseconds)
            self.total_ms += milliseconds
            if tokens is not None:
                self.tokens = self.tokens[0] + tokens[0], self.tokens[1] + tokens[1]

    def judged(self, outcome: str, unlocated: int = 0) -> None:
        """Record the outcome of a window."""
        with self.lock:
            self.windows += 1
            self.outcomes[outcome] += 1
            self.unlocated += unlocated

    def spent(self, calls: int, cost: float, stopped: str) -> JudgeSpent:
        """Return the figures."""
        with self.lock:
            times = sorted(self.latest)
            return JudgeSpent(
                windows=self.windows,
                calls=calls,
                shared=self.shared,
                replayed=self.replayed,
                outcomes=dict(self.outcomes),
                unlocated=self.unlocated,
                prompt_tokens=self.tokens[0],
                answer_tokens=self.tokens[1],
                cost=cost,
                uncounted=self.uncounted,
                median_ms=_quantile(times, 0.5),
                p99_ms=_quantile(times, 0.99),
                total_ms=self.total_ms,
                stopped=stopped,
            )


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which ``share`` of the ascending values lie; nan of none."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else math.nan
