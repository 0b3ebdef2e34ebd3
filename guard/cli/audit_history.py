"""``guard audit history``: the results of finished runs over time."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from guard.cli import (
    in_pipe,
    json_option,
    print_json,
    results_console,
    stdout_kept,
    takes,
    with_options,
)
from guard.cli.audit_options import (
    PATH,
    axis_option,
    check_extra,
    check_files,
    data_option,
    names_of,
    own_suites_option,
)
from guard.cli.audit_report import target, write
from guard.cli.rates import open_store
from guard.errors import UsageError
from guard.exit_codes import ExitCode

if TYPE_CHECKING:
    from guard.audit.audit import Audit
    from guard.audit.command import RunResult
    from guard.audit.history import Added
    from guard.audit.trends import Series
    from guard.watch.store import Store

_MOST = 200  # characters of a release

store_option = click.option(
    "--store", metavar="URL", help="File or URL of the store.  [default: the setting events]"
)
release_option = click.option(
    "--release", metavar="TEXT", help="The run's name in the history, such as v1.4."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _HistoryOptions:
    store: str | None
    suites: str | None
    models: tuple[str, ...]
    arm: str | None
    axes: tuple[str, ...]
    since: str | None
    allowed: tuple[str, ...]
    every_point: bool
    html: Path | None
    csv: Path | None
    as_json: bool


@click.group(invoke_without_command=True)
@store_option
@click.option("--suite", "suites", metavar="A,B", help="Only these suites.")
@click.option("--model", "models", multiple=True, help="Only this model; repeatable.")
@click.option("--arm", type=click.Choice(["plain", "guarded"]), help="Only this arm.")
@axis_option
@click.option("--since", metavar="TIME", help="How far back, such as 90d or 12w.  [default: all]")
@click.option(
    "--allow",
    "allowed",
    multiple=True,
    metavar="NAME",
    help="What may differ within a series: version, data, prompt, parser, options, model, sample, "
    "guard, request or others; repeatable.",
)
@click.option("--points", "every_point", is_flag=True, help="Print every audit of every series.")
@with_options(
    target("html", "Write a page that needs no network: a chart of every axis."),
    target("csv", "Write a table: a row for each axis of each audit."),
)
@json_option
@takes(_HistoryOptions)
def history(options: _HistoryOptions) -> None:
    """Show each axis over time.

    A series joins audits with equal comparability keys, except for what --allow names. FILE is -
    for standard output.
    """
    context = click.get_current_context()
    if context.invoked_subcommand is not None:
        sources = (context.get_parameter_source(name) for name in context.params)
        if any(source is ParameterSource.COMMANDLINE for source in sources):
            raise UsageError(
                f"Give options after {context.invoked_subcommand}: guard audit history "
                f"{context.invoked_subcommand} RUN --store URL."
            )
        return
    check_extra()
    formats = {"html": options.html, "csv": options.csv}
    files = {name: place for name, place in formats.items() if place is not None}
    check_files(files, options.as_json)
    store = open_store(options.store, "--store")
    since = _since_time(options.since)
    from guard.audit.header import PARTS
    from guard.audit.report import history as report
    from guard.audit.trends import Query, read_series

    for name in options.allowed:
        if name not in PARTS:
            raise UsageError(f"--allow takes one of {', '.join(PARTS)}, got {name!r}.")
    suites, allowed = names_of(options.suites), frozenset(options.allowed)
    query = Query(since, suites, options.models, options.arm, options.axes, allowed)
    with store.reading() as connection:
        series = read_series(connection, query, store.name)
    texts = {
        place: report.history_page(series, store.name, since)
        if name == "html"
        else report.history_csv(series)
        for name, place in files.items()
    }
    write(texts)
    if options.as_json:
        print_json(report.as_json(series, store.name, since))
    elif not files:
        _show(series, options.every_point)


@history.command()
@click.argument("runs", nargs=-1, required=True, type=PATH, metavar="RUN...")
@store_option
@release_option
@click.option(
    "--at",
    metavar="TIME",
    help="The time of the one RUN, as 2026-11-24 or 2026-11-24T14:30+01:00 (UTC where no zone "
    "is given).  [default: when its file was last written]",
)
@own_suites_option
@data_option
@json_option
def add(
    runs: tuple[Path, ...],
    store: str | None,
    release: str | None,
    at: str | None,
    own_suites: tuple[str, ...],
    data: Path | None,
    as_json: bool,
) -> None:
    """Add finished runs to the history: folders of runs, their files, or baselines.

    All of them are added, or none. A run that the history already has is not added again.

    Exit codes: 0 added, or already in the history; 2 a mistake in the command, or a file or store
    that cannot be used; 4 a run is not complete.
    """
    check_extra()
    opened = open_store(store, "--store")
    _check_release(release)
    if at is not None and len(runs) > 1:
        raise UsageError("--at is the time of one RUN; add each run with its own command.")
    when = None if at is None else _parsed_time(at)
    from guard.audit.baseline import read_side
    from guard.audit.files import last_written
    from guard.audit.history import Unfinished, add_runs

    with stdout_kept():
        sides = [
            (read_side(run, own_suites, data), last_written(run) if when is None else when)
            for run in runs
        ]
    try:
        results = add_runs(opened, sides, release)
    except Unfinished as error:
        click.echo(f"Error: {error}", err=True)
        raise click.exceptions.Exit(ExitCode.INCOMPLETE) from None
    if as_json:
        audits = [{n: getattr(one, n) for n in one.__slots__} for one in results]
        print_json({"store": opened.name, "audits": audits})
        return
    for added_run in results:
        click.echo(_added_text(added_run, opened))


class HistoryRecorder:
    """Adds a run to the history once it has ended; the store is opened before the first call."""

    def __init__(self, url: str, release: str | None) -> None:
        """Prepare the store; raises UsageError where it cannot be used."""
        _check_release(release)
        self._store, self._release = open_store(url, "--history"), release
        self._store.prepare()

    def record(self, audits: Mapping[str, Audit], ran: RunResult) -> None:
        """Add the results of a run, and print that, or why they were not added."""
        from guard.audit import history, sides

        ended = not (ran.interrupted or ran.stopped or ran.error)
        if not (ended and all(result.complete for result in ran.results)):
            click.echo("The run is not complete, so it was not added to the history.", err=True)
            return
        folders: dict[str, list[Any]] = {}  # each model has one
        for result in ran.results:
            folder = str(Path(result.about["journal"]).parent)
            folders.setdefault(folder, []).append(result)
        now = time.time()
        with stdout_kept():
            runs = [
                (replace(sides.from_results(audits, results), name=folder), now)
                for folder, results in folders.items()
            ]
            try:
                added = history.add_runs(self._store, runs, self._release)
            except UsageError as error:
                raise UsageError(
                    f"{error} The run itself is complete: add it with guard audit history add."
                ) from None
        for added_run in added:
            click.echo(_added_text(added_run, self._store), err=True)


def _added_text(run: Added, store: Store) -> str:
    named = f"{run.suite} of {run.model or 'no model'} ({run.id[:12]})"
    if run.new:
        return f"Added {named} to {store.name}."
    return f"{named} is in {store.name} already, so nothing was added."


def check_release(url: str | None, release: str | None) -> None:
    """Raise UsageError where a run's --history or --release cannot be used; opens nothing."""
    if release is not None and url is None:
        raise UsageError("--release names the run in a history; give --history.")
    if url is not None:
        _check_release(release)
        open_store(url, "--history")


def _check_release(release: str | None) -> None:
    if release is not None and not (release.strip() and len(release) <= _MOST):
        raise UsageError(f"--release takes 1 to {_MOST} characters, got {len(release):,}.")


def _since_time(text: str | None) -> float:
    if text is None:
        return -math.inf
    from guard.watch.rates import span_s

    return time.time() - span_s(text, "--since")


def _parsed_time(text: str) -> float:
    from datetime import timezone

    try:
        time_ = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
        when = (time_ if time_.tzinfo else time_.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError):
        raise UsageError(
            f"--at takes a time such as 2026-11-24 or 2026-11-24T14:30+01:00, got {text[:40]!r}."
        ) from None
    if not 0 <= when <= time.time():
        raise UsageError(
            f"--at {text.strip()} is not between 1970 and now; give the time of the run."
        )
    return when


def _show(series: list[Series], every_point: bool) -> None:
    from rich.text import Text

    from guard.audit.report import history as report

    shown = report.leading_series(series)
    tables = (
        [report.points_table(one) for one in series]
        if every_point
        else [report.summary_table(shown)]
    )
    tables = [table for table in tables if table.rows]
    sentences = [report.history_headline(series)]
    if len(shown) < len(series) and not every_point:
        more = len(series) - len(shown)
        sentences.append(
            f"{more:,} further series are of narrower axes: --points and --json have them all."
        )
    if in_pipe():
        for table in tables:
            if every_point:
                click.echo(table.title)
            for line in table.lines():
                click.echo(line)
        click.echo("\n".join(sentences), err=True)
        return
    console = results_console()
    for sentence in sentences:
        console.print(Text(sentence))
    for table in tables:
        console.print(table.rich())
