"""``guard bench``: the cost of the guard itself on this machine."""

from __future__ import annotations

import os
import runpy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from guard.cli import detector_option, json_option, print_json, progress_bar, stdout_kept
from guard.errors import UsageError
from guard.installed import checkout_command
from guard.places import shipped

if TYPE_CHECKING:
    from guard.bench import CostFigure


@click.group()
def bench() -> None:
    """Measure the guard's cost on this machine: of a chunk and of a verdict.

    Each figure is shown with its budget. benchmarks/speed measures the start and many streams.
    """
    # Otherwise LiteLLM fetches its list of prices from the network.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")


@bench.command()
@click.option("--rounds", type=click.IntRange(1), default=15, show_default=True)
@json_option
def door(rounds: int, as_json: bool) -> None:
    """Measure CPU microseconds per chunk of gate and chat door, with nothing to judge."""
    script = shipped("benchmarks") / "speed" / "door.py"
    if not script.exists():
        raise UsageError(
            "guard bench door measures with a script that is not part of the installed package; "
            f"run: {checkout_command('test')}"
        )
    with stdout_kept(), _bar("rounds", rounds) as progress:
        figures = runpy.run_path(str(script))["figures"]
        done = iter(range(1, rounds + 1))
        measured = figures(rounds=rounds, progress=lambda: progress(next(done)))
    show(measured, as_json)


@bench.command()
@click.option(
    "--texts",
    type=click.Path(path_type=Path),
    help="JSON lines with a 'comment' or 'text' to judge; by default the shipped ones.",
)
@detector_option
@click.option(
    "--against",
    metavar="NAME",
    help="Judge by this detector in turn, and show the ratios; in a checkout the texts "
    "are by default those of benchmarks/speed/everyday.jsonl.",
)
@json_option
def verdict(texts: Path | None, detector: str | None, against: str | None, as_json: bool) -> None:
    """Measure how long the detector takes for one verdict, references included."""
    if against is not None and texts is None:
        # Only a checkout has them.
        everyday = shipped("benchmarks") / "speed" / "everyday.jsonl"
        texts = everyday if everyday.exists() else None
    read = texts_of(texts)
    with stdout_kept(), _bar("windows", None) as progress:
        from guard import bench as measuring

        if against is None:
            figures = measuring.figures(read, detector, progress)
        else:
            figures = measuring.compared(read, detector, against, progress)
    show(figures, as_json)


def texts_of(path: Path | None) -> list[str]:
    """Return the texts of a file of JSON lines; raises UsageError if there are none."""
    from guard.datasets.rows import BadRow, FileRow, convert_rows, object_rows, whole_values

    def text(row: FileRow) -> str:
        values = whole_values(row)
        comment = values.get("comment") or values.get("text")
        if not isinstance(comment, str):
            raise BadRow("the line has no string 'comment' or 'text'")
        return comment

    path = shipped("benchmarks") / "detector" / "assistant.jsonl" if path is None else path
    lines = convert_rows(path, object_rows(path), text, None, "Correct the line.")
    texts = [line for line in lines if line.strip()]
    if not texts:
        raise UsageError(f"{path} has no text to judge.")
    return texts


@contextmanager
def _bar(what: str, total: int | None) -> Iterator[Callable[..., None]]:
    """Show a progress bar on standard error if that is a terminal."""
    with progress_bar() as bar:
        if bar is None:
            yield lambda done, total=None: None
            return
        task = bar.add_task(what, total=total)
        yield lambda done, total=total: bar.update(task, completed=done, total=total)


def show(figures: Sequence[CostFigure], as_json: bool) -> None:
    """Print figures, or one JSON object of them."""
    if as_json:
        print_json({"figures": [f._asdict() for f in figures]})
        return
    for figure in figures:
        click.echo(
            f"{figure.name:38} {figure.value:10.2f} {figure.unit:11} {figure.bound}".rstrip()
        )
