"""``guard check INPUT... --to OUT``: every row of files judged, on all cores or on Ray."""

from __future__ import annotations

import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import click

from guard import progress
from guard.bulk.job import BulkJob, BulkSummary, partial_folder, run_job
from guard.bulk.judging import JudgeSpec
from guard.bulk.sources import FormatName, InputFile, input_file, is_url
from guard.cli import print_json, progress_bar
from guard.cli.input_paths import files_within, matching_paths
from guard.errors import UsageError
from guard.exit_codes import ExitCode, verdict_code
from guard.ray_session import read_place

_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


class BulkOptions(NamedTuple):
    """The options of ``guard check --to``."""

    to: Path
    column: str | None
    prefix: str | None
    form: FormatName | None
    on: str | None
    workers: int | None
    operating_point: str | None
    detector: str | None
    strict: bool
    as_json: bool


def check_files(arguments: Sequence[str], options: BulkOptions) -> None:
    """Judge every row of files, and write the rows with their verdicts."""
    job = _job_of(arguments, options)
    done: int | None = None
    with _progress() as advance, _ended_as_interrupted():

        def report(rows: int, total: int) -> None:
            nonlocal done
            done = rows
            advance(rows, total)

        try:
            summary = run_job(job, report)
        except KeyboardInterrupt:
            left = "where it was"
            if done is not None:
                left = f"with the rows that have no verdict; {done:,} have one"
            click.echo(f"Interrupted: the same command goes on {left}.", err=True)
            raise click.exceptions.Exit(ExitCode.INTERRUPTED) from None
    _show(job, summary, options.as_json)
    if options.strict:
        code = verdict_code(biased=summary.biased > 0, unjudged=bool(summary.unjudged))
        raise click.exceptions.Exit(code)


def _job_of(arguments: Sequence[str], options: BulkOptions) -> BulkJob:
    if str(options.to) == "-":
        raise UsageError("--to names a file or folder: OUT appears when all rows are judged.")
    if is_url(str(options.to)) or ":/" in str(options.to):
        raise UsageError(
            "--to names a file or folder of this machine; copy what is written there afterwards."
        )
    prefix = "guard_" if options.prefix is None else options.prefix
    if not _PREFIX.fullmatch(prefix):
        raise UsageError("--prefix begins with a letter and has letters, digits and _ alone.")
    if options.column == "":
        raise UsageError("--column is empty; name the column of the text.")
    out = Path(options.to).absolute()
    if out.is_dir() and not partial_folder(out).exists():
        raise UsageError(f"{out} is a folder that is there already; name another by --to.")
    inputs = [
        file
        for name in arguments
        for file in _input_files(name, options.form)
        if not _lies_in(file, out)
    ]
    if not inputs:
        raise UsageError("There is nothing to judge; name files, folders or globs.")
    if options.column is not None and any(file.format == "text" for file in inputs):
        raise UsageError("A text file has no columns, so leave --column out: each line is a text.")
    return BulkJob(
        inputs,
        out,
        options.column or "text",
        prefix,
        JudgeSpec.read(options.operating_point, options.detector),
        options.workers,
        options.on is not None,
        None if options.on is None else read_place(options.on),
    )


def _input_files(name: str, form: FormatName | None) -> Iterator[InputFile]:
    """Yield the files of a name, a folder or a glob; raises UsageError if there are none."""
    if not name.strip():
        raise UsageError("The name of an input is empty.")
    if name == "-":
        raise UsageError("Standard input cannot be read twice; write it to a file first.")
    if is_url(name):
        yield input_file(name, form)
        return
    path = Path(name)
    if path.is_dir():
        paths = files_within(path)
    elif path.exists():
        if not path.is_file():
            raise UsageError(f"{name} is a pipe or a device; write it to a file first.")
        paths = [path]
    else:
        paths = [p for p in matching_paths(name) if p.is_file()]
    if not paths:
        raise UsageError(f"There is no file {name}.")
    for each in paths:
        yield input_file(str(each), form)


def _lies_in(file: InputFile, out: Path) -> bool:
    """Whether a file is within the folder that is written, which an input folder may hold."""
    parents = Path(file.path).parents
    return out in parents or partial_folder(out) in parents


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """Show a bar with the rate on standard error; without a terminal, a line every LINE_S seconds.

    A thread would write the lines even while nothing is judged, but processes are forked here.
    """
    with progress_bar() as bar:
        task = None if bar is None else bar.add_task("judging", total=None)
        began: tuple[float, int] | None = None
        told = time.monotonic()

        def advance(done: int, total: int) -> None:
            nonlocal began, told
            now = time.monotonic()
            since, before = began = began or (now, done)
            rate = (done - before) / max(now - since, 0.001)
            if bar is not None and task is not None:
                bar.update(task, completed=done, total=total, description=f"{rate:,.0f} rows/s")
            elif now >= told + progress.LINE_S:
                told = now
                line = f"{done:,} of {total:,} rows · {rate:,.1f} rows/s"
                if rate:
                    line += f" · about {progress.duration_text((total - done) / rate)} left"
                progress.write_line(line, sys.stderr)

        yield advance


@contextmanager
def _ended_as_interrupted() -> Iterator[None]:
    """Take the signal by which systems end a process for an interrupt."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _show(job: BulkJob, summary: BulkSummary, as_json: bool) -> None:
    rate = summary.judged / max(summary.seconds, 0.001)
    if as_json:
        print_json(
            {
                "out": str(job.out),
                "rows": summary.rows,
                "biased": summary.biased,
                "unjudged": summary.unjudged,
                "not_biased": summary.not_biased,
                "judged_before": summary.before,
                "seconds": round(summary.seconds, 3),
                "rows_per_second": round(rate, 2),
            }
        )
        return
    unjudged = sum(summary.unjudged.values())
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in summary.unjudged.items())
    click.echo(
        f"{summary.rows:,} rows: {summary.biased:,} biased, {summary.not_biased:,} not biased, "
        f"{unjudged:,} not judged{f' ({reasons})' if reasons else ''}"
    )
    before = f", {summary.before:,} judged before" if summary.before else ""
    click.echo(f"{summary.seconds:,.1f} s, {rate:,.1f} rows/s{before}: {job.out}")
