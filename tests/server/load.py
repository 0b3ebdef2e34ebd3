"""Guarded streams at once, while their served detector comes and goes."""

from __future__ import annotations

import threading
import time
from collections import Counter
from types import TracebackType

from guard import Guard
from guard.policy import Policy

_SENTENCES = ["The first is well. ", "The second is, too. ", "The third says BIAS. ", "Never read."]
CLIENTS = 8


class Load:
    """Threads that read streams until the block ends; ``ends`` counts how they ended.

    ``let_through`` has every stream with text that no verdict had released, or after a failure.
    """

    def __init__(self, detector: str, timeout_ms: float = 1000.0, **served: object) -> None:
        policy = Policy(timeout_ms=timeout_ms, failure="closed", breaker_failures=None)
        self.guard = Guard(policy, detector=detector, served=served or None)
        self.ends: Counter[str] = Counter()
        self.let_through: list[str] = []
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._read) for _ in range(CLIENTS)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.finish()

    def finish(self) -> None:
        """Have the streams end; needed before the servers end."""
        self._over.set()
        for thread in self._threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in self._threads)

    def wait_for(self, end: str, more: int = 20, seconds: float = 60) -> None:
        """Wait until so many more streams ended so."""
        until, wanted = time.monotonic() + seconds, self.ends[end] + more
        while self.ends[end] < wanted:
            assert time.monotonic() < until, f"no stream was {end}: {self.ends}"
            time.sleep(0.01)

    def _read(self) -> None:
        policy = self.guard.policy
        while not self._over.is_set():
            stream = self.guard.stream(_SENTENCES)
            text = "".join(stream)
            judged = [d for d in stream.guard if d.verdict.unjudged is None]
            passed = sum(d.action == "pass" for d in judged)
            released = "".join(_SENTENCES[:passed])
            if text == "".join(_SENTENCES[:2]) + policy.message:
                self.ends["judged"] += 1
            elif text == released + policy.failure_message and "BIAS" not in text:
                self.ends["stopped"] += 1
            else:
                self.let_through.append(text)
