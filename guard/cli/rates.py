"""``guard rates``: how often responses were biased, and how often guard mitigated it."""

from __future__ import annotations

import functools
import io
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from guard.cli import in_pipe, json_option, print_json, results_console, with_options
from guard.cli.audit_options import PATH, STDOUT
from guard.errors import UsageError
from guard.exit_codes import ExitCode
from guard.texts import printable

if TYPE_CHECKING:
    from guard.results.estimate import Estimate
    from guard.watch.alerts import Alerts
    from guard.watch.compare import RateComparison
    from guard.watch.rates import Report
    from guard.watch.review_rates import Reviewed, ReviewedRate
    from guard.watch.store import Store

store_argument = click.argument("store", required=False)

_WEEK_S = 604_800.0
_SHOWN_REVIEWED = ("over_blocking", "harmless_stopped", "missed")


since_option = click.option(
    "--since", default="7d", show_default=True, metavar="TIME", help="How far back."
)


def output_forms(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command --json, --csv FILE and --html FILE; it gets their name and prints that form.

    What it prints goes to the file. Raises UsageError where two are given or it cannot be written.
    """

    @functools.wraps(command)
    def written(
        *, as_json: bool, csv_file: Path | None, html_file: Path | None, **rest: Any
    ) -> None:
        from guard.cli.audit_report import write

        places = {"json": STDOUT if as_json else None, "csv": csv_file, "html": html_file}
        asked = {name: place for name, place in places.items() if place is not None}
        if len(asked) > 1:
            raise UsageError(f"--{' and --'.join(asked)} exclude each other; give one.")
        form, place = next(iter(asked.items()), (None, STDOUT))
        if place == STDOUT:
            command(form=form, **rest)
            return
        code: int | str | None = None
        text = io.StringIO()
        try:
            with redirect_stdout(text):
                command(form=form, **rest)
        except SystemExit as ended:  # the verdict, after the form was printed
            code = ended.code
        write({place: text.getvalue()})
        sys.exit(code)

    return with_options(
        json_option,
        click.option("--csv", "csv_file", type=PATH, metavar="FILE", help="Write a table as CSV."),
        click.option("--html", "html_file", type=PATH, metavar="FILE", help="Write a page."),
    )(written)


@click.command()
@store_argument
@since_option
@click.option(
    "--by",
    default="",
    metavar="NAMES",
    help="Break down by model, bias_type, group, door, release, tenant, label.NAME, ...",
)
@click.option(
    "--alert",
    is_flag=True,
    help=f"Compare this week with those before; exit {ExitCode.FOUND:d} on an alarm, "
    f"{ExitCode.UNDECIDED:d} if nothing could be tested.",
)
@click.option(
    "--baseline",
    default="4w",
    show_default=True,
    metavar="WEEKS",
    help="With --alert: how many weeks before this one.",
)
@click.option(
    "--compare",
    "compared",
    metavar="NAME=BASE,NEW",
    help="Compare two releases, models, other labels or periods, such as release=7,8 or "
    f"period=14d..7d,7d..now; exit {ExitCode.FOUND:d} if NEW is shown to be worse, "
    f"{ExitCode.UNDECIDED:d} if there are "
    "too few responses.",
)
@output_forms
def rates(
    store: str | None,
    since: str,
    by: str,
    alert: bool,
    baseline: str,
    compared: str | None,
    form: str | None,
) -> None:
    """Report from STORE how often models were biased and how often guard kept it from users.

    STORE is a file or a URL; without one, the setting ``events``. FILE is - for standard output.
    """
    if alert and compared is not None:
        raise UsageError("--alert and --compare are two questions; give one of them.")
    opened = open_store(store)
    from guard.watch.rates import dimensions, report, span_s

    names, now = dimensions(by), time.time()
    if compared is not None:
        from guard.watch.compare import compare, sides

        base, new = sides(compared, now - span_s(since, "--since"), now)
        with opened.reading() as connection:
            comparison = compare(connection, base, new, names)
        _print_comparison(comparison, form)
        _exit(comparison.worse, comparison.comparable)
    if not alert:
        from guard.watch.review_rates import estimates, unreviewable

        begin = now - span_s(since, "--since")
        with opened.reading() as connection:
            rates_report = report(connection, begin, now, names)
            reviewed = estimates(connection, begin, now, names)
            unread = unreviewable(connection, begin, now)
        _print_report(rates_report, reviewed, unread, form)
        return
    weeks = span_s(baseline, "--baseline") / _WEEK_S
    if weeks != int(weeks):
        raise UsageError(f"--baseline takes whole weeks, such as 4w or 28d, got {baseline!r}.")
    from guard.watch.alerts import alerts

    with opened.reading() as connection:
        results = alerts(connection, now, int(weeks), names)
    _print_alerts(results, form)
    _exit(results.alarm, results.tested)


def _exit(worse: object, tested: object) -> NoReturn:
    """End with whether a rate is shown to be worse, or could not be tested."""
    sys.exit(ExitCode.FOUND if worse else ExitCode.DONE if tested else ExitCode.UNDECIDED)


def open_store(url: str | None, where: str = "STORE") -> Store:
    """Return the store at ``url``, or that of the settings.

    Raises UsageError if there is none or a package is missing; errors of the store name ``where``.
    """
    from guard.config import read_settings

    url = url or read_settings().get("events")
    if url is None:
        raise UsageError(
            "There is no store to read: give its file or URL, or set events in guard.toml or "
            "BIASGUARD_EVENTS."
        )
    try:
        import scipy  # type: ignore[import-untyped]  # noqa: F401
        import sqlalchemy  # noqa: F401
    except ImportError as error:
        from guard.installed import install_command

        raise UsageError(
            f"Reading a store needs {error.name}; run: {install_command('watch')}"
        ) from None
    from guard.watch.store import Store

    return Store(url, where)


def on_store(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command STORE, which it receives opened, and --json."""

    @functools.wraps(command)
    def opened(*, store: str | None, **options: Any) -> None:
        command(open_store(store), **options)

    return with_options(store_argument, json_option)(opened)


def utc(seconds: float) -> str:
    """Return a time, seconds since 1970, as text."""
    from guard.watch.rates import utc as text_of

    return text_of(seconds)


def _print_report(
    report: Report,
    reviewed: Mapping[tuple[str, ...], Reviewed],
    unread: int,
    form: str | None,
) -> None:
    from guard.watch.review_rates import nothing_reviewed
    from guard.watch.tables import line_values, reviewed_values

    none = nothing_reviewed()
    rates = [reviewed.get(tuple(line.by.values()), none) for line in report.lines]
    lines = [
        {**line_values(line), **reviewed_values(rate)}
        for line, rate in zip(report.lines, rates, strict=True)
    ]
    values = {
        "since": utc(report.since),
        "until": utc(report.until),
        "lines": lines,
        "running": report.running,
        "future": report.future,
        "dropped": report.dropped,
        "unreviewable": unread,
    }
    if _print_values(form, values, "rates", lines):
        return
    header = [
        *report.by,
        *("responses", "segments", "findings", "prevalence", "mitigation", "unjudged"),
        *(name.replace("_", " ") for name in _SHOWN_REVIEWED),
    ]
    rows = [
        [
            *line.by.values(),
            *(f"{count:,}" for count in (line.responses, line.segments, line.findings)),
            _of(line.prevalence, line.segments),
            _of(line.mitigation, line.findings),
            _of(line.unjudged, line.segments + line.unjudged_segments),
            *(_reviewed_text(getattr(estimates, name)) for name in _SHOWN_REVIEWED),
        ]
        for line, estimates in zip(report.lines, rates, strict=True)
    ]
    notes = _rates_notes(report, rates, reviewed)
    if unread:
        notes.append(f"Marks do not represent {unread:,} segments whose texts are not kept.")
    _print_table(f"{utc(report.since)} to {utc(report.until)}", header, rows, notes, form)


def _of(rate: Estimate, n: int) -> str:
    from guard.watch.rates import rate_text

    return f"{rate_text(rate)} of {n:,}"


def _reviewed_text(rate: ReviewedRate) -> str:
    from guard.watch.rates import rate_text

    return "n/a" if math.isnan(rate.value) else rate_text(rate)


def _rates_notes(
    report: Report, rates: Sequence[Reviewed], reviewed: Mapping[tuple[str, ...], Reviewed]
) -> list[str]:
    notes = [
        "segments: those that were judged; prevalence: share of them that were biased; mitigation: "
        "share of the biased ones kept from the user; unjudged: share of all segments, judged or "
        "not. Brackets are 95 % intervals."
    ]
    if not report.lines:
        notes = ["No response has ended in this time."]
    for count, text in (
        (report.running, "responses have not ended"),
        (report.future, "responses have a time in the future"),
        (report.dropped, "events of this time were dropped"),
    ):
        if count:
            notes.append(f"{count:,} {text}, and are not counted.")
    if not report.lines:
        return notes
    notes.append(
        "over blocking: share of the stopped segments that were harmless; harmless stopped: share "
        "of the harmless segments that were stopped; missed: share of the biased segments without "
        "a finding. They are estimated from people's marks: guard review."
    )
    reasons = dict.fromkeys(
        getattr(rate, name).reason for rate in rates for name in _SHOWN_REVIEWED
    )
    notes += [f"n/a: {reason}." for reason in reasons if reason]
    lines = {tuple(line.by.values()) for line in report.lines}
    return notes + [
        f"Reviewed, with no finding: {', '.join(key)}." for key in reviewed if key not in lines
    ]


def _print_alerts(week: Alerts, form: str | None) -> None:
    from guard.watch.compare import points
    from guard.watch.tables import alerts_values

    values = alerts_values(week)
    if _print_values(form, values, "alerts", values["alerts"]):
        return
    cells = [
        [
            *alert.by.values(),
            alert.share,
            alert.state,
            _share_text(alert.count, alert.responses),
            _share_text(alert.baseline_count, alert.baseline_responses)
            + (f" of release {alert.against}" if alert.against else ""),
            points(alert.difference),
            f"{alert.evidence:.3g} of {alert.needed:.3g}",
            "-" if math.isnan(alert.sees_double_after) else f"{alert.sees_double_after:,.0f}",
        ]
        for alert in week.results
        if alert.shown
    ]
    names = list(week.results[0].by) if week.results else []
    columns = [*names, "share", "state", "this week", "baseline"]
    columns += ["difference", "evidence", "sees double after"]
    notes = [
        "If no rate has risen and responses are independent, the probability of an alarm is at "
        "most 5 % a week, over all runs. "
        "“Not shown to differ” is no proof that a rate is the same: the difference may be anything "
        "in the brackets, each end of which holds with 95 %, over all runs and rows."
    ]
    notes = [*notes, *week.notes] if week.results else week.notes
    title = f"week of {utc(week.since)}, baseline since {utc(week.baseline_since)}"
    _print_table(title, columns, cells, notes, form)


def _print_comparison(comparison: RateComparison, form: str | None) -> None:
    from guard.watch.compare import compare_notes, points
    from guard.watch.tables import comparison_values

    values = comparison_values(comparison)
    if _print_values(form, values, "rates", values["rows"]):
        return
    cells = [
        [
            *row.by.values(),
            row.rate,
            _of(row.base, row.base_of),
            _of(row.new, row.new_of),
            points(row.difference),
            row.q_text,
            row.state,
        ]
        for row in comparison.rows
    ]
    base, new = comparison.base, comparison.new
    header = [*comparison.by, "rate", base.name, new.name, "difference", "q", "result"]
    title = f"{new.name} against {base.name}"
    _print_table(title, header, cells, [*compare_notes(comparison), comparison.conclusion], form)


def _share_text(count: int, n: int) -> str:
    return f"{count:,} of {n:,} ({100 * count / n:.2f} %)" if n else "0 of 0"


def estimate_text(estimate: ReviewedRate) -> str:
    """Return an estimate in one line of text."""
    if estimate.reason:
        return f"n/a: {estimate.reason}"
    unclear = f", {estimate.unclear:,} unclear" if estimate.unclear else ""
    return f"{_reviewed_text(estimate)} of {estimate.n:,} marked{unclear}"


def _print_values(
    form: str | None, values: dict[str, Any], title: str, records: Sequence[dict[str, Any]]
) -> bool:
    """Print ``values`` as JSON or ``records`` as CSV; return whether ``form`` is one of the two."""
    if form == "json":
        print_json(values)
    elif form == "csv":
        from guard.results.table import Table

        click.echo(Table.of_records(title, records).csv(), nl=False)
    return form in ("json", "csv")


def _print_table(
    title: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    notes: Sequence[str],
    form: str | None,
) -> None:
    from guard.results.table import Column, Table

    columns = [Column(printable(name)) for name in header]
    cells = [list(map(printable, row)) for row in rows]
    table = Table(title, columns, cells, list(map(printable, notes)))
    if form == "html":
        from guard.results.pages import table_page

        click.echo(table_page("guard rates", table), nl=False)
        return
    from rich.text import Text

    if in_pipe():
        click.echo("\n".join(table.lines()))
        for note in table.notes:
            click.echo(note, err=True)
        return
    console = results_console()
    console.print(table.rich("open"))
    for note in table.notes:
        console.print(Text(note, "dim"))
