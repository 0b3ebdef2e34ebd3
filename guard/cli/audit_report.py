"""``guard audit report``: a run as a page, a comment, and files for build servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from guard.cli import json_option, results_console, stdout_kept, takes, with_options
from guard.cli.audit_options import (
    PATH,
    STDOUT,
    GatingOptions,
    check_belongs,
    check_extra,
    check_files,
    comparing_options,
    conditions_of_options,
    data_option,
    fail_on_option,
    own_suites_option,
    show_conditions,
    show_unread,
    tables_option,
)
from guard.cli.run_file import run_file_of_report, run_or_file_argument
from guard.errors import UsageError
from guard.exit_codes import ExitCode, worst_code

if TYPE_CHECKING:
    from guard.audit.report.content import Content

_FORMATS = ("html", "markdown", "junit", "sarif", "csv", "models")


def target(name: str, what: str) -> Callable[[Any], Any]:
    """Return the option of a format; ``-`` is standard output."""
    return click.option(f"--{name}", type=PATH, metavar="FILE", help=what)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReportOptions(GatingOptions):
    run: Path
    others: tuple[Path, ...]
    html: Path | None
    markdown: Path | None
    junit: Path | None
    sarif: Path | None
    csv: Path | None
    models: Path | None
    data: Path | None
    own_suites: tuple[str, ...]
    all_tables: bool
    as_json: bool

    @property
    def files(self) -> dict[str, Path]:
        """The file of each format that is asked for."""
        places = {name: getattr(self, name) for name in _FORMATS}
        return {name: place for name, place in places.items() if place is not None}


def _report_options(**values: Any) -> _ReportOptions:
    return _ReportOptions(**values, run_file=run_file_of_report())


@click.command()
@run_or_file_argument
@click.argument("others", metavar="[RUN]...", nargs=-1, type=PATH)
@with_options(
    target("html", "Write a page that needs no network: figures, tables, every item."),
    target("markdown", "Write a short report, as a comment on a pull request."),
    target("junit", "Write JUnit XML: a test case for each figure that was tested or compared."),
    target("sarif", "Write SARIF 2.1.0: a result for each check that did not pass."),
    target("csv", "Write a table: a row for each item and arm, with its text."),
    target("models", "Write a table: a row for each suite's figure of each model, worst first."),
)
@click.option(
    "--baseline",
    type=PATH,
    metavar="FILE",
    help="Report the differences from this baseline or run.",
)
@comparing_options
@fail_on_option
@data_option
@own_suites_option
@tables_option
@json_option
@takes(_report_options)
def report(options: _ReportOptions) -> None:
    """Report on RUN, a run.db or the --out folder of guard audit run; makes no call.

    RUN may also be the run file of guard audit run, if it has an out; its conditions and baseline
    hold for the report, too. Runs of several models, in one folder or in several RUNs, are reported
    side by side.

    Without a format it prints the conclusions, with --tables all tables. The report of an
    unfinished run says so. FILE is - for standard output.

    Exit codes: 0 written; 2 a mistake in the command or a file that cannot be used, and nothing was
    written. After everything was written: 3 no answer of a suite could be read, 4 some requests
    have no answer yet; with --fail-on also 1 a condition is met or an axis regressed, 3 undecided,
    5 not comparable. 70 guard itself failed.
    """
    check_extra()
    asked = options.files
    check_files(asked, options.as_json)
    with stdout_kept():
        content = _content(options)
        # A suite that the run skipped may have the test that a condition needs.
        asked_suites = () if content.skipped else [scored.suite for scored in content.suites]
        conditions = conditions_of_options(options, asked_suites)
        if conditions is not None and not content.state():
            results = [(scored.suite, scored.result) for scored in content.suites]
            content = replace(content, conditions=conditions.decide(results, content.skipped))
        # A code host shows what is about the run beside these.
        beside = (options.run_file, options.config, options.baseline)
        files = [path for path in beside if path is not None]
        texts = {name: _text(name, content, options.run, files) for name in asked}
    write({asked[name]: text for name, text in texts.items()})
    for sentence in content.state():
        click.echo(sentence, err=True)
    for left_out in content.skipped:
        click.echo(f"{left_out.name} was SKIPPED: {left_out.skipped}.", err=True)
    if options.as_json:
        from guard.audit.report.plain import json_text

        click.echo(json_text(content), nl=False)
    elif not asked:
        _show(content, options.all_tables)
    for path in asked.values():
        if path != STDOUT:
            click.echo(f"report: {path}", err=True)
    if content.conditions is not None:
        show_conditions(content.conditions, err=bool(asked) or options.as_json)
    unread = show_unread(one.result for one in content.suites)
    if content.state():
        raise click.exceptions.Exit(ExitCode.INCOMPLETE)
    raise click.exceptions.Exit(unread if conditions is None else _exit_code(content))


def _exit_code(content: Content) -> int:
    """Return the exit code of --fail-on and, with a baseline, of the comparison."""
    assert content.conditions is not None
    comparison = content.comparison
    codes: list[int] = [content.conditions.exit_code]
    return worst_code(codes if comparison is None else [*codes, comparison.exit_code])


def _content(options: _ReportOptions) -> Content:
    from guard.audit.report.content import load_content

    check_belongs(options)
    if options.baseline is None:
        return load_content(options.run, options.data, options.own_suites, others=options.others)
    from guard.audit.baseline import read_side
    from guard.cli.audit_compare import settings

    base = read_side(options.baseline, options.own_suites, options.data)
    compared = settings(options)
    return load_content(
        options.run, options.data, options.own_suites, base, compared, options.others
    )


def _text(name: str, content: Content, run: Path, files: Sequence[Path]) -> str:
    """Return a report in the format ``name``; ``files`` are the run file and the baseline."""
    from guard.audit.report import junit, markdown, models, page, plain, sarif
    from guard.audit.report.repository import RepositoryFiles, root_of

    if name == "html":
        return page.report_page(content)
    if name == "junit":
        return junit.junit_xml(content, junit.written_at(run))
    if name == "sarif":
        return sarif.sarif_log(content, RepositoryFiles(root_of(Path.cwd()), files))
    writers: dict[str, Callable[[Content], str]] = {
        "markdown": markdown.markdown_comment,
        "csv": plain.samples_csv,
        "models": models.models_csv,
    }
    return writers[name](content)


def write(texts: Mapping[Path, str]) -> None:
    """Write each text to its file, or to standard output: all files, or none.

    Raises UsageError where one cannot be written.
    """
    from guard.audit.files import encoded, refuse_precious, write_all

    files = {path: text for path, text in texts.items() if path != STDOUT}
    for path in files:
        refuse_precious(path)
    try:
        write_all(files)
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be written: {error.strerror}.") from None
    if STDOUT in texts:
        click.echo(encoded(texts[STDOUT]), nl=False)


def _show(content: Content, tables: bool) -> None:
    from guard.audit.report import models, terminal
    from guard.audit.report.checks import content_checks, counts_text
    from guard.cli import audit_compare

    console, left = results_console(), terminal.LINES - 1
    compared, results = content.comparison, [one.result for one in content.suites]
    for result in results if tables else ():
        terminal.show_result(console, result)
    table = models.models_table(content, models.LEAD if tables else 1)
    height = len(table.rows) + terminal.FRAME
    several = models.has_several(content) and (tables or height <= terminal.LINES // 2)
    if not tables:
        left -= terminal.LINES // 2 if compared is not None else height if several else 0
        terminal.show_short(console, results, most=left)
    if several:
        console.print(table.rich())
    if compared is not None:
        audit_compare.show(compared, False, None if tables else terminal.LINES // 2)
    click.echo(counts_text(content_checks(content)))
