"""``guard bench``: what the guard itself costs, on this machine."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from guard.cli import detector_option, stdout_kept
from guard.errors import UsageError

if TYPE_CHECKING:
    from guard.bench.figures import Figure
    from guard.bench.stream import Result

_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def _milliseconds(name: str, help: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    time = click.FloatRange(0)
    return click.option(name, type=time, default=0.0, show_default=True, metavar="MS", help=help)


@click.group()
def bench() -> None:
    """Measure what the guard costs: streams at once, chunks, verdicts, its start.

    Figures of one machine mean little alone, so each stands beside its bound, or beside what the
    same run without the guard gave.
    """
    # LiteLLM would fetch its list of prices from the network.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")


@bench.command()
@click.option("--streams", type=click.IntRange(1), default=500, show_default=True)
@click.option(
    "--chunks", type=click.IntRange(2), default=200, show_default=True, help="Of each stream."
)
@click.option(
    "--detector",
    metavar="NAME",
    help="encoder, encoder-small, or silent, which finds nothing at no cost, so that gate and "
    "door are left.",
)
@_milliseconds("--interval", "Time between the chunks of a stream; 0 for as fast as they are read.")
@_milliseconds(
    "--delay",
    "Time that the silent detector takes for a verdict: what a slow one adds to a stream.",
)
@_json
def stream(
    streams: int, chunks: int, detector: str | None, interval: float, delay: float, as_json: bool
) -> None:
    """Read many streams at once through the async chat door, unguarded and guarded."""
    if delay and detector != "silent":
        raise UsageError("--delay is the silent detector's; give --detector silent as well.")
    with stdout_kept(), _bar("streams", 2 * streams) as progress:
        from guard.bench import stream as measuring

        result = measuring.measure(
            streams,
            chunks,
            detector=detector,
            interval=interval / 1000,
            delay=delay / 1000,
            progress=progress,
        )
    if as_json:
        click.echo(json.dumps(result.as_dict()))
    else:
        _show_streams(result)


@bench.command()
@click.option("--rounds", type=click.IntRange(1), default=15, show_default=True)
@_json
def door(rounds: int, as_json: bool) -> None:
    """Measure CPU microseconds a chunk of gate and chat door, with nothing to judge."""
    with stdout_kept(), _bar("rounds", rounds) as progress:
        from guard.bench import door as measuring

        done = iter(range(1, rounds + 1))
        figures = measuring.figures(rounds=rounds, progress=lambda: progress(next(done)))
    _show(figures, as_json)


@bench.command()
@click.option(
    "--texts",
    type=click.Path(path_type=Path),
    help="JSON lines with a 'comment' or 'text' to judge; by default what training holds harmless.",
)
@detector_option
@_json
def verdict(texts: Path | None, detector: str | None, as_json: bool) -> None:
    """Measure how long the embedded detector takes for one verdict, references included."""
    read = texts_of(texts)
    with stdout_kept(), _bar("windows", None) as progress:
        from guard.bench import verdict as measuring

        figures = measuring.figures(read, detector, progress)
    _show(figures, as_json)


@bench.command()
@_json
def start(as_json: bool) -> None:
    """Measure how long the guard takes to start, and the memory it adds to LiteLLM."""
    with stdout_kept():
        from guard.bench import start as measuring

        figures = measuring.figures()
    _show(figures, as_json)


def texts_of(path: Path | None) -> list[str]:
    """Return the texts of a file of JSON lines; raises UsageError where there are none."""
    import guard

    path = Path(guard.__file__).parent / "train" / "negatives.jsonl" if path is None else path
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text; convert it first.") from None
    found = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            text = row.get("comment") or row["text"]
        except (ValueError, KeyError, AttributeError, TypeError):
            text = None
        if not isinstance(text, str):
            raise UsageError(
                f"{path}, line {number}: give a JSON object with 'comment' or 'text', a string."
            )
        if text.strip():
            found.append(text)
    if not found:
        raise UsageError(f"{path} holds no text to judge.")
    return found


@contextmanager
def _bar(what: str, total: int | None) -> Iterator[Callable[..., None]]:
    """Show a bar on standard error; nothing where that is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Left

    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield lambda done, total=None: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Left())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done, total=total: bar.update(task, completed=done, total=total)


def _show(figures: Sequence[Figure], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"figures": [f._asdict() for f in figures]}))
        return
    for figure in figures:
        click.echo(
            f"{figure.name:38} {figure.value:10.2f} {figure.unit:11} {figure.bound}".rstrip()
        )


def _show_streams(result: Result) -> None:
    plain, guarded, added = result.plain, result.guarded, result.added

    def row(name: str, one: object, other: object, more: object = "") -> None:
        cells = [f"{c:,.2f}" if isinstance(c, float) else str(c) for c in (one, other, more)]
        click.echo(f"{name:34} {cells[0]:>12} {cells[1]:>12} {cells[2]:>12}".rstrip())

    click.echo(
        f"{result.streams} streams of {result.chunks} chunks at once, detector {result.detector}"
    )
    row("", "plain", "guarded", "added")
    row(
        "latency of a text, median, ms",
        plain.latency_p50,
        guarded.latency_p50,
        added["latency_p50"],
    )
    row("  99th percentile", plain.latency_p99, guarded.latency_p99, added["latency_p99"])
    row("seconds in all", plain.seconds, guarded.seconds, guarded.seconds - plain.seconds)
    for name, value in plain.rates(result.streams, result.chunks).items():
        row(name, value, guarded.rates(result.streams, result.chunks)[name])
    mine, its = (a.cpu_seconds / result.streams / result.chunks * 1e6 for a in (plain, guarded))
    row("CPU a chunk, us", mine, its, added["cpu_us_per_chunk"])
    if plain.memory is not None and guarded.memory is not None:
        row("memory beyond that before, MB", plain.memory, guarded.memory)
    row("longest turn of the loop, ms", plain.pause, guarded.pause)
    row("  99.9th percentile", plain.pause_p999, guarded.pause_p999)
