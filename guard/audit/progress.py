"""Live progress on a terminal: rate, time left, tokens and cost, outcomes of both arms."""

from __future__ import annotations

import math
import sys
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
)
from rich.progress import TimeElapsedColumn as Elapsed
from rich.progress import TimeRemainingColumn as Left
from rich.text import Text

from guard.audit.calls import Call


class Tally:
    """A watcher of a run: counts what was called and read, and moves a bar if there is one."""

    def __init__(self, bar: Progress | None = None, task: TaskID | None = None) -> None:
        self.before = self.calls = self.failed = self.tokens = 0
        self.cost = 0.0
        self.outcomes: dict[str, Counter[str]] = {"plain": Counter(), "guarded": Counter()}
        self._bar, self._task = bar, task

    def resumed(self, answers: int) -> None:
        """Take how many answers were there before the first call."""
        self.before = answers

    def called(self, call: Call) -> None:
        """Take a call that has just been recorded."""
        self.calls += 1
        if call.reply is None:
            self.failed += 1
            return
        usage = call.reply.usage
        self.tokens += usage.prompt_tokens + usage.completion_tokens
        self.cost += 0.0 if math.isnan(usage.cost) else usage.cost

    def failing(self, error: str) -> None:
        """Say what the first failed attempt met: the attempts that follow may take a while."""
        told = f"No answer yet: {error}"
        if self._bar is not None:
            self._bar.console.print(told, markup=False)
        else:
            print(told, file=sys.stderr, flush=True)

    def read(self, plain: str, guarded: str) -> None:
        """Take the outcomes of a sample."""
        self.outcomes["plain"][plain] += 1
        if guarded:
            self.outcomes["guarded"][guarded] += 1
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, advance=1, told=self.told())

    def told(self) -> str:
        """Return the counts in a line."""
        parts = [f"{self.before:,} answers from before"] if self.before else []
        parts += [f"{self.calls:,} calls", f"{self.tokens:,} tokens"]
        parts += [f"${self.cost:.4f}"] if self.cost else []
        for arm, found in self.outcomes.items():
            if found:
                parts.append(f"{arm}: " + " ".join(f"{n} {c}" for n, c in found.most_common(5)))
        return " · ".join(parts)


@contextmanager
def watching(name: str, samples: int, console: Console | None = None) -> Iterator[Tally]:
    """Give a tally whose bar is drawn on standard error, or ``console``, if it is a terminal."""
    console = console or Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield Tally()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        _Rate(),
        Elapsed(),
        Left(),
        TextColumn("{task.fields[told]}"),
    )
    with Progress(*columns, console=console) as bar:
        yield Tally(bar, bar.add_task(name, total=samples, told=""))


class _Rate(ProgressColumn):
    """Samples a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:.1f}/s" if speed else "–/s")
