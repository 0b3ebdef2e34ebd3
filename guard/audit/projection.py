"""How long an audit takes, with workers on Ray or without, and what limits it.

Work at different places goes on at the same time, so the time is that of the slowest place, not a
sum. What was measured, the formulas, and where they were checked: ``benchmarks/speed/scale.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

REPLAY_S: Final = 0.002
"""CPU seconds an answer of the runner, where a cassette answers (`benchmarks/speed/runner.py`)."""
ALONE_S: Final = 0.004
"""CPU seconds a call of the runner and LiteLLM, where one process asks a server."""
DRIVER_S: Final = 0.0015
"""CPU seconds a call of the driver, which hands it to a worker and records the answer."""
WORKER_S: Final = 0.006
"""CPU seconds a call of a worker, with LiteLLM in it."""
START_S: Final = 12.0
"""Seconds until workers ask, with Ray started for the run."""

Bottleneck = Literal["waiting", "rate", "judging", "driver", "workers"]
ADVICE: Mapping[Bottleneck, str] = {
    "waiting": "waiting for answers; more --workers or a higher --concurrency help",
    "rate": "the provider's rate; only a higher limit helps",
    "judging": "judging, in one process; --shard on several machines helps, no worker",
    "driver": "the process that records; --shard on several machines helps, no worker",
    "workers": "the workers' CPUs; more --workers help, on further CPUs",
}
"""What limits an audit, and what helps."""


@dataclass(frozen=True, slots=True)
class Projection:
    """The seconds that each place needs, if it were the only one, and those until all begin.

    ``waiting_s`` is for answers, ``rate_s`` what the provider's limit of calls allows;
    ``driver_s`` and ``judging_s`` are of the process that owns the run's file, ``workers_s`` of
    each worker.
    """

    waiting_s: float
    rate_s: float = 0.0
    driver_s: float = 0.0
    judging_s: float = 0.0
    workers_s: float = 0.0
    start_s: float = 0.0

    @classmethod
    def on_workers(
        cls,
        workers: int,
        calls: float,
        waiting_s: float,
        *,
        rate_s: float = 0.0,
        judging_s: float = 0.0,
        local_s: float = 0.0,
    ) -> Projection:
        """Return the projection of ``calls`` that ``workers`` on Ray make.

        ``judging_s`` is the time of the guard and of the scorer, ``local_s`` that of models that
        run where they are asked.
        """
        of_worker = (calls * WORKER_S + local_s) / workers
        return cls(waiting_s, rate_s, calls * DRIVER_S, judging_s, of_worker, START_S)

    @property
    def seconds(self) -> float:
        """The time of all: that of the slowest place."""
        return self.start_s + max(self._places.values())

    @property
    def bottleneck(self) -> Bottleneck:
        """The place that the others wait for."""
        places = self._places
        slowest = max(places, key=lambda place: places[place])
        if slowest == "driver" and self.judging_s > self.driver_s:
            return "judging"
        return slowest

    @property
    def _places(self) -> dict[Bottleneck, float]:
        return {
            "waiting": self.waiting_s,
            "rate": self.rate_s,
            "driver": self.driver_s + self.judging_s,
            "workers": self.workers_s,
        }
