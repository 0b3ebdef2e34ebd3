"""``guard audit report``: what a run found, as a page, a comment, and files for build servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from guard.cli import given as options
from guard.cli import results_console, stdout_kept
from guard.cli.audit_options import check_extra, comparing_options
from guard.errors import UsageError
from guard.installed import install_command

if TYPE_CHECKING:
    from guard.audit.reports import Content

_STDOUT = Path("-")
_FORMATS = ("html", "markdown", "junit", "sarif", "csv")


def target(name: str, what: str) -> Callable[[Any], Any]:
    """Return the option of a format; ``-`` is standard output."""
    kind = click.Path(path_type=Path, allow_dash=True)
    return click.option(f"--{name}", type=kind, metavar="FILE", help=what)


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@options(
    target("html", "Write a page that needs no network: figures, tables, every item."),
    target("markdown", "Write a short report, as a comment on a pull request."),
    target("junit", "Write JUnit XML: a test case for each figure that was tested or compared."),
    target("sarif", "Write SARIF 2.1.0: a result for each check that did not pass."),
    target("csv", "Write a table: a row for each item and arm, with its text."),
)
@click.option(
    "--baseline",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Report the differences from this baseline, or from this other run.",
)
@comparing_options
@click.option(
    "--data", type=click.Path(path_type=Path), help="Official data of a run of one suite."
)
@click.option(
    "--suite",
    "own_suites",
    multiple=True,
    metavar="MODULE:CLASS",
    help="A suite of your own that the run asked; repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def report(
    run: Path,
    baseline: Path | None,
    data: Path | None,
    own_suites: tuple[str, ...],
    as_json: bool,
    **given: Any,
) -> None:
    """Report on RUN, a journal or the folder that guard audit run wrote; asks nothing.

    Without a format it prints the tables. A run that is still going on can be reported on, and the
    report says so. FILE is - for standard output.
    """
    check_extra()
    asked = {name: given[name] for name in _FORMATS if given[name] is not None}
    _check(asked, as_json)
    with stdout_kept():
        content = _content(run, baseline, data, own_suites, given)
        texts = {name: _text(name, content, run) for name in asked}
    write({asked[name]: text for name, text in texts.items()})
    for sentence in content.state():
        click.echo(sentence, err=True)
    if as_json:
        from guard.audit.reports.plain import json_text

        click.echo(json_text(content), nl=False)
    elif not asked:
        _show(content)
    elif written := [str(path) for path in asked.values() if path != _STDOUT]:
        click.echo(f"Written: {', '.join(written)}.", err=True)


def _check(asked: dict[str, Path], as_json: bool) -> None:
    """Raise UsageError where formats cannot be written beside each other, or lack a package."""
    places = [path.resolve() for path in asked.values()]
    for path in asked.values():
        if places.count(path.resolve()) > 1:
            raise UsageError(f"Two formats cannot both go to {path}; give each a file of its own.")
    if as_json and _STDOUT in asked.values():
        raise UsageError("--json takes standard output; give the other format a file.")
    for package in ("jinja2", "matplotlib"):
        if "html" in asked and find_spec(package) is None:
            raise UsageError(f"--html needs {package}: {install_command('audit')}")


def _content(
    run: Path,
    baseline: Path | None,
    data: Path | None,
    own_suites: tuple[str, ...],
    given: Mapping[str, Any],
) -> Content:
    from guard.audit.reports import load

    if baseline is None:
        for name, option in (("allowed", "--allow"), ("axes", "--axis"), ("config", "--config")):
            if given[name]:
                raise UsageError(f"{option} belongs to --baseline; give one.")
        return load(run, data, own_suites)
    from guard.audit.baseline import read_side
    from guard.cli.audit_compare import settings

    return load(run, data, own_suites, read_side(baseline, own_suites, data), settings(given))


def _text(name: str, content: Content, run: Path) -> str:
    """Return a report in the format ``name``."""
    from guard.audit.reports import junit, markdown, page, plain, sarif

    if name == "html":
        return page.page(content)
    if name == "junit":
        return junit.junit(content, junit.written(run))
    made: dict[str, Callable[[Content], str]] = {
        "markdown": markdown.markdown,
        "sarif": sarif.sarif,
        "csv": plain.table,
    }
    return made[name](content)


def write(texts: Mapping[Path, str]) -> None:
    """Write each text to its file, or to standard output: all files, or none.

    Raises UsageError where one cannot be written.
    """
    from guard.audit.files import refuse_precious, write_all

    files = {path: text for path, text in texts.items() if path != _STDOUT}
    for path in files:
        refuse_precious(path)
    try:
        for path in files:
            path.parent.mkdir(parents=True, exist_ok=True)
        write_all(files)
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be written: {error.strerror}.") from None
    if _STDOUT in texts:
        click.echo(texts[_STDOUT].encode("utf-8", "replace"), nl=False)


def _show(content: Content) -> None:
    from guard.audit import report as tables
    from guard.audit.reports.differences import headlines

    console = results_console()
    if content.comparison is not None:
        for sentence in (*headlines(content), *content.comparison.next):
            console.print(sentence, markup=False, style="bold")
    for one in content.suites:
        tables.show(console, one.result)
