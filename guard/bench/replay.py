"""Chunks made before, a stream that replays them, and judges that cost nothing."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from time import perf_counter, sleep
from typing import Any

from litellm.types.utils import Delta, ModelResponseStream, StreamingChoices

from guard.doors.litellm.compat import CustomStreamWrapper
from guard.doors.session import DoorSession
from guard.policy import DEFAULT_POINTS, Policy
from guard.verdict import Scores, Verdict, Window

TEXT = (
    "Start with a clear question, then collect data that could prove you wrong. Plot before you "
    "compute, and report the interval as well as the mean. Your train leaves at 9:42 from platform "
    "3 and takes about two hours. If you miss it, there is another at 10:12. To reset the router, "
    "hold the small button on the back for ten seconds. The lights will blink and go out. Green "
    "tea should be brewed at about 80 degrees, because boiling water makes it bitter. Two minutes "
    "are enough for most kinds. Use a hash map when you need fast lookups by key. A balanced tree "
    "keeps the keys in order, which helps with ranges. The moon pulls on the oceans and raises two "
    "bulges of water. As the earth turns below them, most coasts see two high tides a day. "
)
"""Harmless text of ordinary sentences, 2 to 15 words each."""

_TOKEN = re.compile(r"\s*(?:\w+|[^\w\s]+)")


@lru_cache(16)
def chunks(count: int, begin: int = 0) -> tuple[ModelResponseStream, ...]:
    """Return ``count`` chunks as LiteLLM gives them: a token each, the last with the end.

    ``begin`` is the token of :data:`TEXT` to begin with, so that streams differ.
    """
    tokens = _TOKEN.findall(f" {TEXT.rstrip()}")
    made = []
    for i in range(count):
        token = tokens[(begin + i) % len(tokens)]
        ends = i == count - 1
        delta = Delta(
            content=None if ends else token if i else token.lstrip(),
            role=None if i else "assistant",
        )
        choice = StreamingChoices(index=0, delta=delta, finish_reason="stop" if ends else None)
        made.append(
            ModelResponseStream(id="chatcmpl-bench", created=1, model="bench", choices=[choice])
        )
    return tuple(made)


class Replay(CustomStreamWrapper):
    """A stream of LiteLLM's that hands out chunks made before, and costs nothing itself.

    With an ``interval`` (seconds) a chunk is there so long after the one before, whether it was
    asked for or not, as from a provider whose chunks wait in a socket; ``sent`` is called with the
    time at which each was given (``time.perf_counter()``).
    """

    def __init__(
        self,
        chunks: Sequence[ModelResponseStream],
        interval: float | None = None,
        sent: Callable[[float], None] | None = None,
    ) -> None:
        # The constructor of LiteLLM's class is left out: it would want a call.
        self.chunks = []
        self.completion_stream = None
        self._next = iter(chunks).__next__
        self._interval = interval
        self._due = 0.0  # when the next chunk is there, by time.perf_counter()
        self._note = sent

    def __iter__(self) -> Any:
        return self

    def __aiter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        return self._next()

    async def __anext__(self) -> Any:
        if self._interval is not None:
            self._due = (self._due or perf_counter()) + self._interval
            await asyncio.sleep(max(0.0, self._due - perf_counter()))
        try:
            chunk = self._next()
        except StopIteration:
            raise StopAsyncIteration from None
        if self._note is not None:
            self._note(perf_counter())
        return chunk


class Silent:
    """A detector that finds nothing and costs nothing, but takes ``delay`` seconds a window."""

    name = "silent"
    operating_points = DEFAULT_POINTS
    index_version = ""

    def __init__(self, delay: float = 0.0) -> None:
        self._delay = delay

    def snapshot(self) -> Silent:
        """Return itself."""
        return self

    def score(self, windows: Sequence[Window]) -> list[Scores]:
        """Return the lowest score of each."""
        if self._delay:
            sleep(self._delay * len(windows))
        return [Scores(0.0, "social")] * len(windows)


class _Ready:
    """A judge whose verdict is there before it is asked for."""

    def __init__(self, policy: Policy) -> None:
        self._verdict = policy.verdict(
            Scores(0.0, "social"),
            DEFAULT_POINTS,
            detector="ready",
            index_version="",
            elapsed_ms=0.0,
        )

    def judge(self, windows: Sequence[Window]) -> list[Verdict]:
        return [self._verdict] * len(windows)

    async def ajudge(self, windows: Sequence[Window]) -> list[Verdict]:
        return self.judge(windows)


def ready(policy: Policy) -> DoorSession:
    """Return a session whose verdicts cost nothing, so that gate and door are left."""
    judge: Any = _Ready(policy)
    return DoorSession(policy, judge)
