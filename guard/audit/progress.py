"""Progress: a bar on a terminal; elsewhere, as in the log of a build, a line every 30 seconds."""

from __future__ import annotations

import math
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from guard.audit.calls import Call
from guard.audit.runner import Watcher
from guard.progress import bar_console, duration_text, telling_lines, write_line

_FEW = 20  # samples from which a remaining time is told


class Tally(Watcher):
    """Counts a run's calls and outcomes, and moves its progress bar if there is one."""

    def __init__(self, bar: Progress | None = None, task: TaskID | None = None) -> None:
        self.before = self.calls = self.failed = self.tokens = 0
        self.cost = 0.0
        self.outcomes: dict[str, Counter[str]] = {"plain": Counter(), "guarded": Counter()}
        self._bar, self._task = bar, task
        self._began = time.monotonic()

    def resumed(self, answers: int) -> None:
        """Record the number of answers from earlier runs."""
        self.before = answers

    def called(self, call: Call) -> None:
        """Count a call that has just been recorded."""
        self.calls += 1
        if call.reply is None:
            self.failed += 1
            return
        usage = call.reply.usage
        self.tokens += usage.prompt_tokens + usage.completion_tokens
        self.cost += 0.0 if math.isnan(usage.cost) else usage.cost

    def failing(self, error: str) -> None:
        """Print the error of the first failed attempt, because further attempts may take long."""
        message = f"No answer yet: {error}"
        if self._bar is not None:
            self._bar.console.print(message, markup=False)
        else:
            write_line(message, sys.stderr)

    def read(self, plain: str, guarded: str) -> None:
        """Count the outcomes of a sample."""
        self.outcomes["plain"][plain] += 1
        if guarded:
            self.outcomes["guarded"][guarded] += 1
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, advance=1, counts=self._counts())

    def line(self, name: str, samples: int) -> str:
        """Return the state of a run of ``samples`` in one line, without control characters."""
        seconds, done = time.monotonic() - self._began, self.outcomes["plain"].total()
        parts = [f"{name}: {done:,} of {samples:,} samples", f"{duration_text(seconds)} so far"]
        if _FEW <= done < samples:
            parts.append(f"about {duration_text(seconds / done * (samples - done))} left")
        if done >= samples:
            parts.append("computing the result")
        parts += [f"{self.failed:,} failed calls"] if self.failed else []
        return " · ".join([*parts, self._counts()])

    def _counts(self) -> str:
        parts = [f"{self.before:,} earlier answers"] if self.before else []
        parts += [f"{self.calls:,} calls", f"{self.tokens:,} tokens"]
        parts += [f"${self.cost:.4f}"] if self.cost else []
        for arm, counts in self.outcomes.items():
            if counts:
                parts.append(f"{arm}: " + " ".join(f"{n} {c}" for n, c in counts.most_common(5)))
        return " · ".join(parts)


@contextmanager
def watching_run(name: str, samples: int, console: Console | None = None) -> Iterator[Tally]:
    """Yield a tally; it is shown on standard error, or on ``console``."""
    console = console or bar_console()
    if not console.is_terminal:
        tally = Tally()
        with telling_lines(lambda: tally.line(name, samples), console.file):
            yield tally
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        _Rate(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[counts]}"),
    )
    with Progress(*columns, console=console) as bar:
        yield Tally(bar, bar.add_task(name, total=samples, counts=""))


class _Rate(ProgressColumn):
    """Samples a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:.1f}/s" if speed else "–/s")
