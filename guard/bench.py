"""What a verdict costs on the machine at hand: its time, verdicts per second, and a ratio.

What gate and door cost, the start and many streams at once are measured by ``benchmarks/speed``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from guard.core import Guard
from guard.errors import UsageError
from guard.gate import split
from guard.gate.context import CONTEXT_SEGMENTS, in_context
from guard.verdict import Window

# What a verdict may take, in the median and at the 99th percentile, and what a second is to hold.
_BOUNDS = {
    "cascade": ("<= 10", "<= 30", ""),
    "encoder": ("<= 18", "<= 40", ""),
    "encoder-small": ("<= 6", "<= 15", ">= 500"),
}
#: Windows of one call where the throughput is measured.
BATCH = 32
#: How often each window is judged where two detectors are compared.
ROUNDS = 3
#: Windows that a generative detector judges: each takes seconds on a processor.
FEW = 24
#: Seconds that a cascade has to read the statements of a user's index.
READY = 600.0


class CostFigure(NamedTuple):
    """A measured value; ``bound`` is its budget in words, or the purpose of the value."""

    name: str
    value: float
    unit: str
    bound: str = ""


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which ``share`` of the ascending values lie; nan of none."""
    if not ordered:
        return float("nan")
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def windows_of(texts: Iterable[str]) -> list[Window]:
    """Return the windows of ``texts`` as a stream asks for them, with their context."""
    return [
        Window(segment, before)
        for text in texts
        for segment, before in in_context(
            (s.text for s in split(text) if not s.text.isspace()), CONTEXT_SEGMENTS
        )
    ]


def compared(
    texts: Iterable[str],
    detector: str | None,
    against: str,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[CostFigure]:
    """Time verdicts of two detectors in turn, in one thread, and return the ratios of the first's.

    So what else runs on the machine slows both. CPU time is that of the process: a cascade's second
    detector has threads of its own. Each window is judged ``ROUNDS`` times by each.
    ``detector``, by default that of the settings, and ``against`` are names; of a cascade
    the share of windows that its last detector judged is returned as well.

    Raises:
        UsageError: one of them asks a judge, which answers from memory the second time.

    """
    judges = [Guard(detector=name, events="none").detector for name in (detector, against)]
    for judge in judges:
        if hasattr(judge, "spent"):
            raise UsageError(
                f"{judge.name} asks a model once for a window and then answers from memory, so it "
                "cannot be timed in turn; leave --against out."
            )
        if wait := getattr(judge, "ready", None):  # of a cascade
            wait(READY)
    sessions = [judge.snapshot() for judge in judges]
    texts = list(texts)
    windows = windows_of(texts)
    for session in sessions:
        session.score(windows[:20])
    wall: tuple[list[float], list[float]] = ([], [])
    busy = [0.0, 0.0]
    for done, window in enumerate(windows):
        for turn in range(2 * ROUNDS):
            # The first goes first every other time: the second finds the caches warm.
            which = (turn + turn // 2) % 2
            begin, cpu = time.perf_counter(), time.process_time()
            sessions[which].score([window])
            wall[which].append(time.perf_counter() - begin)
            busy[which] += time.process_time() - cpu
        progress(done, len(windows))
    measured = [
        CostFigure("CPU a text", busy[0] / ROUNDS / len(texts) * 1000, "ms", judges[0].name),
        CostFigure("CPU a text", busy[1] / ROUNDS / len(texts) * 1000, "ms", judges[1].name),
        CostFigure("CPU a text, ratio", busy[0] / busy[1], "", f"of {len(texts)} texts"),
    ]
    for name, share in (("median", 0.5), ("99th percentile", 0.99)):
        first, second = (percentile(sorted(times), share) for times in wall)
        measured.append(
            CostFigure(f"verdict, {name}, ratio", first / second, "", f"{len(windows)} windows")
        )
    for judge, session in zip(judges, sessions, strict=True):
        if judged := getattr(session, "judged", None):
            count = sum(judged(window).deferred for window in windows)
            measured.append(CostFigure("deferred", 100 * count / len(windows), "%", judge.name))
    return measured


def figures(
    texts: Iterable[str],
    detector: str | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[CostFigure]:
    """Time single verdicts on ``texts``, references included, one after the other in one thread.

    ``detector`` names it, by default that of the settings; of a cascade the share of windows that
    its last detector judged is returned as well. A detector that asks a judge is asked
    once for each window, and what it spent is returned as well, for 1,000 texts. ``progress`` is
    called with the number of windows judged, and of all.
    """
    judge = Guard(detector=detector, events="none").detector
    texts = list(texts)
    median, longest, least = _BOUNDS.get(judge.name.rpartition("-")[0], ("", "", ""))
    session = judge.snapshot()
    windows = windows_of(texts)
    if unshared := getattr(judge, "unshared", None):  # of a generative one
        several = [session, unshared().snapshot()]
        return _instructed(judge.name, several, windows[:FEW], progress)
    # A second call with a window would be an answer from memory, and a first one costs money.
    spent = getattr(judge, "spent", None)
    if spent is None:
        session.score(windows[:20])
    judged = getattr(session, "judged", None)  # of a cascade
    deferred = 0
    times: list[float] = []
    busy: list[float] = []
    for done, window in enumerate(windows):
        begin, cpu = time.perf_counter(), time.process_time()
        if judged is None:
            session.score([window])
        else:
            deferred += judged(window).deferred
        times.append((time.perf_counter() - begin) * 1000)
        busy.append((time.process_time() - cpu) * 1000)
        if done % BATCH == 0:
            progress(done, len(windows))
    times.sort()
    busy.sort()
    measured = [
        CostFigure(f"verdict, median of {len(times)}", percentile(times, 0.5), "ms", median),
        CostFigure("verdict, 99th percentile", percentile(times, 0.99), "ms", longest),
        CostFigure(
            "  of it CPU time, median", percentile(busy, 0.5), "ms", "where others are at work"
        ),
        CostFigure("  of it CPU time, 99th percentile", percentile(busy, 0.99), "ms"),
    ]
    if judged is not None:
        measured.append(CostFigure("deferred", 100 * deferred / len(windows), "%", judge.name))
    if spent is not None:
        return [*measured, *(CostFigure(*row) for row in spent().rows(len(texts)))]
    begin = time.perf_counter()
    lots = [windows[i : i + BATCH] for i in range(0, min(len(windows), 20 * BATCH), BATCH)]
    for lot in lots:
        session.score(lot)
    rate = sum(map(len, lots)) / (time.perf_counter() - begin)
    return [*measured, CostFigure(f"lots of {BATCH}, all cores", rate, "segments/s", least)]


def _instructed(
    name: str,
    sessions: Sequence[Any],
    windows: Sequence[Window],
    progress: Callable[[int, int], None],
) -> list[CostFigure]:
    """Time verdicts with the instruction read once, and with all of it read for each, in turn."""
    for session in sessions:
        session.score(windows[:1])
    times: tuple[list[float], list[float]] = ([], [])
    for done, window in enumerate(windows):
        for turn in range(2):
            which = (turn + done) % 2
            begin = time.perf_counter()
            sessions[which].score([window])
            times[which].append((time.perf_counter() - begin) * 1000)
        progress(done, len(windows))
    once, each = (percentile(sorted(taken), 0.5) for taken in times)
    return [
        CostFigure(f"verdict, median of {len(windows)}", once, "ms", name),
        CostFigure("verdict, 99th percentile", percentile(sorted(times[0]), 0.99), "ms"),
        CostFigure("  instruction read each time, median", each, "ms"),
        CostFigure("  ratio of the sums", sum(times[0]) / sum(times[1]), "", "<= 0.4"),
    ]
