"""``guard audit``: runs published bias suites against a model, plain and behind this guard."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from guard.cli import (
    Number,
    audit_compare,
    audit_report,
    detector_option,
    results_console,
    stdout_kept,
)
from guard.cli.audit_history import HistoryRecorder, history, release_option
from guard.cli.audit_options import (
    NO_SECONDS,
    PATH,
    asking_options,
    check_extra,
    comparing_options,
    embedder_option,
    guard_options,
    names_of,
    suite_options,
    tables_option,
)
from guard.cli.audit_review import review
from guard.errors import UsageError

if TYPE_CHECKING:
    from guard.audit.audit import Audit
    from guard.audit.comparison import Comparison
    from guard.audit.score import SuiteResult
    from guard.audit.sending import Sending
    from guard.core import Guard

UNREAD = 3
ANALYST: Final = "analyst"
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2


@click.group()
def audit() -> None:
    """Run published bias suites against a model, plain and behind this guard."""


audit.add_command(audit_compare.compare)
audit.add_command(audit_compare.baseline)
audit.add_command(audit_report.report)
audit.add_command(history)
audit.add_command(review)


@audit.command()
@asking_options
@suite_options
@guard_options
@click.option("--plain-only", is_flag=True, help="Audit without the guarded arm.")
@detector_option
@click.option("--index", type=PATH, help="Folder of a bias index.")
@click.option(
    "--out",
    type=PATH,
    help="Folder of the journals; an interrupted run resumes there.",
)
@click.option("--record", type=PATH, help="Write a cassette to this folder.")
@click.option("--replay", type=PATH, help="Answer from the cassette in this folder, offline.")
@click.option("--csv", "table", type=PATH, help="Write the answers as CSV.")
@click.option(
    "--timeout",
    "timeout_s",
    type=Number(0.1, wrong=NO_SECONDS),
    default=120.0,
    show_default=True,
    help="Seconds that one call may take.",
)
@click.option("--stream", is_flag=True, help="Ask for streams and record the provider's chunks.")
@click.option(
    "--baseline",
    type=PATH,
    help="Compare with this baseline or run; see guard audit compare.",
)
@comparing_options
@click.option("--history", metavar="URL", help="Add the finished run to this store's history.")
@release_option
@tables_option
def run(**given: Any) -> None:
    """Ask the model once, and report what it says and what its users would see.

    Every answer is written to a journal before the next call. Run the same command again to
    resume; no answer is paid for twice. If the process is killed, at most --concurrency calls are
    asked again.

    With --baseline a run that could not be compared with it makes no call.

    Exit codes: 0 done, and no worse than the baseline; 1 worse than the baseline; 2 a mistake in
    the command or a file that cannot be read or written; 3 no answer of a suite could be read, or
    the comparison is inconclusive; 4 some requests have no answer yet; 5 not comparable with the
    baseline; 70 guard itself failed; 130 interrupted.
    """
    check_extra()
    from guard.audit.command import Command, run_all
    from guard.audit.comparison import EXIT_CODES, NotComparable
    from guard.audit.files import refuse_precious
    from guard.audit.grids import incomplete
    from guard.audit.journal import check_writable

    options_by_suite = _options_by_suite(given)
    baseline_check = audit_compare.BaselineCheck(given) if given["baseline"] is not None else None
    if baseline_check is None and (given["axes"] or given["allowed"] or given["config"]):
        raise UsageError("--axis, --allow and --config belong to --baseline; give one.")
    if given["release"] is not None and given["history"] is None:
        raise UsageError("--release names the run in a history; give --history.")
    recorder = HistoryRecorder(given["history"], given["release"]) if given["history"] else None
    command = Command(
        audits=_audits(given, options_by_suite),
        models=given["models"],
        guard=None if given["plain_only"] else _guard(given),
        concurrency=given["concurrency"],
        timeout_s=given["timeout_s"],
        stream=given["stream"],
        out=given["out"],
        record=given["record"],
        replay=given["replay"],
        sending=_sending(given),
        check=baseline_check.check if baseline_check else None,
    )
    if given["table"] is not None and len(command.audits) * max(len(command.models), 1) > 1:
        raise UsageError("--csv writes the items of one suite and model; give one of each.")
    if given["table"] is not None:
        refuse_precious(given["table"])
        check_writable(given["table"])
    try:
        if baseline_check is not None:
            baseline_check.begin([audit_.suite.name for audit_ in command.audits])
        with stdout_kept():
            ran = run_all(command)
    except NotComparable as error:
        click.echo(f"Error: {error}", err=True)
        raise click.exceptions.Exit(EXIT_CODES["not comparable"]) from None
    # A cassette has no more answers, and an error's own sentence says whether the run can resume.
    resumable = given["replay"] is None and ran.error is None and not ran.stopped
    comparison = baseline_check.compare(command.audits, ran) if baseline_check else None
    _show(
        ran.results,
        given["as_json"],
        ran.interrupted,
        resumable,
        comparison,
        tables=given["all_tables"],
    )
    if recorder is not None:
        recorder.record({audit_.suite.name: audit_ for audit_ in command.audits}, ran)
    if ran.error is not None:
        raise ran.error
    if given["table"] is not None:
        from guard.audit.tables import write_items

        for audit_, result in zip(command.audits, ran.results, strict=False):
            write_items(audit_, Path(result.about["journal"]), given["table"])
    for sentence in ran.stopped:
        click.echo(sentence, err=True)
    if ran.interrupted:
        click.echo("Interrupted; run the same command to resume.", err=True)
        raise click.exceptions.Exit(130)
    for result in ran.results:
        # Repeated behind the tables, because the log of a build is read from its end.
        for sentence in incomplete(result, resumable):
            click.echo(f"{result.suite}: {sentence}", err=True)
    unread = [r for r in ran.results if r.complete and r.arms["plain"].coverage == 0]
    for result in unread:
        click.echo(
            f"No answer to {result.suite} could be read; this says nothing about {result.model}.",
            err=True,
        )
    if ran.stopped or any(not result.complete for result in ran.results):
        raise click.exceptions.Exit(EXIT_CODES["incomplete"])
    if comparison is not None:
        raise click.exceptions.Exit(comparison.exit_code)
    if unread:
        raise click.exceptions.Exit(UNREAD)


@audit.command()
@click.option("--suite", required=True, help="The suite that was asked.")
@click.option(
    "--answers",
    required=True,
    type=PATH,
    help="A journal (.jsonl.gz), or a CSV with the columns id and response and, optionally, sample "
    "(if an item is asked several times) and finish_reason. Rows of one id and sample are the "
    "turns of a conversation.",
)
@suite_options
@embedder_option
@tables_option
def score(suite: str, answers: Path, **given: Any) -> None:
    """Score recorded answers like those of a live audit; makes no call."""
    check_extra()
    from guard.audit.tables import score as score_answers

    if len(names_of(suite)) > 1:
        raise UsageError(f"--suite takes one suite here, got {suite!r}.")
    scopes = _assignments(given)
    if scopes[""] or scopes[ANALYST]:
        raise UsageError("--set takes only SUITE.KEY=VALUE here, because no model is asked.")
    with stdout_kept():
        (audit_,) = _audits({**given, "suites": suite, "size": None}, _options_by_suite(given))
        result = score_answers(audit_, answers, given["embedder"])
    if result.about.get("damaged_lines"):
        from guard.audit.command import damage_text

        click.echo(damage_text(answers, result.about["damaged_lines"]), err=True)
    if given["as_json"]:
        click.echo(json.dumps(result.as_json(), ensure_ascii=False))
    else:
        _show([result], False, False, tables=given["all_tables"])


@audit.command()
@asking_options
@suite_options
@click.option(
    "--latency",
    "latency_s",
    type=Number(0.001, wrong=NO_SECONDS),
    default=1.0,
    show_default=True,
    help="Seconds that one call is assumed to take.",
)
def plan(**given: Any) -> None:
    """Print what an audit would ask, take and cost; makes no call."""
    from guard.audit import plan as plans

    with stdout_kept():
        audits = _audits(given, _options_by_suite(given))
        options = {name: given[name] for name in ("concurrency", "latency_s")}
        found = [
            plans.plan(audit_, model, sending=_sending(given), **options)
            for model in (dict.fromkeys(given["models"]) or [None])
            for audit_ in audits
        ]
    if given["as_json"]:
        click.echo(json.dumps({"suites": [p.as_json() for p in found]}, ensure_ascii=False))
        return
    plans.show(results_console(), found)


def _assignments(given: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Return the values of --set by suite; those of the analyst and of the model, "", apart."""
    found: dict[str, dict[str, str]] = {"": {}, ANALYST: {}}
    for text in given["assignments"]:
        name, equals, value = text.partition("=")
        scope, _, key = name.rpartition(".")
        if not equals or not key:
            raise UsageError(f"--set takes SUITE.KEY=VALUE or KEY=VALUE, got {text!r}.")
        found.setdefault(scope, {})[key] = value
    return found


def _options_by_suite(given: dict[str, Any]) -> dict[str, dict[str, str]]:
    return {k: v for k, v in _assignments(given).items() if k not in ("", ANALYST)}


def _analyst_sending(given: dict[str, Any]) -> Sending:
    """Return the analyst's request settings."""
    from guard.audit.sending import Sending, check_address, read_setting

    texts = _assignments(given)[ANALYST]
    if texts and given["analyst"] is None:
        raise UsageError("--set analyst.KEY=VALUE belongs to --analyst; give one.")
    base = texts.pop("api_base", None)
    check_address(base, "--set analyst.api_base")
    settings = {key: read_setting(key, text, ANALYST) for key, text in texts.items()}
    return Sending(settings, api_base=base)


def _sending(given: dict[str, Any]) -> Sending:
    """Return the audited model's request settings."""
    from guard.audit.sending import Sending, check_address, read_setting

    settings = {key: read_setting(key, text) for key, text in _assignments(given)[""].items()}
    headers: dict[str, str] = {}
    for number, text in enumerate(given["headers"], 1):
        name, equals, value = text.partition("=")
        if not equals or not _HEADER_NAME.fullmatch(name) or not value.isprintable():
            # The text itself may be a secret.
            raise UsageError(f"--header takes NAME=VALUE; number {number} is not of that form.")
        headers[name] = value
    base = given["api_base"]
    check_address(base, "--api-base")
    for name in given["dropped"]:
        if name in settings:
            raise UsageError(f"--set {name} and --drop {name} exclude each other.")
    return Sending(settings, given["dropped"], {}, _system_prompt(given["system"]), base, headers)


def _system_prompt(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        text = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--system {path} cannot be read as UTF-8 text ({error}).") from None
    if not text:
        raise UsageError(f"--system {path} is empty.")
    return text


def _audits(given: dict[str, Any], options_by_suite: dict[str, dict[str, str]]) -> list[Audit]:
    from guard.audit.audit import Audit
    from guard.suites import registry

    names = names_of(given["suites"])
    for name in options_by_suite:
        if name not in names:
            raise UsageError(f"--set names the suite {name!r}, which is not in --suite; add it.")
    if given["data"] is not None and len(names) > 1:
        raise UsageError("--data belongs to one suite; give one, or --set SUITE.data=PATH.")
    allocate = given.get("allocate", "even")
    quick = given.get("quick", False)
    if quick and (given["size"] is not None or allocate != "even"):
        raise UsageError("--quick is a sample of its own; leave --sample and --allocate out.")
    if allocate == "widest" and given["size"] is None:
        raise UsageError("--allocate widest needs --sample; give both.")
    shared = {key: given[key] for key in ("data", "protocol", "seed") if given.get(key) is not None}
    suites = [
        registry.make(n, {**shared, **options_by_suite.get(n, {})}) for n in dict.fromkeys(names)
    ]
    if given.get("dropped"):
        from guard.audit.sending import check_dropped

        check_dropped(given["dropped"], suites)
    for role in ("analyst", "scorer") if given.get("replay") is not None else ():
        if given[role] is not None:
            raise UsageError(f"A cassette has the {role}'s answers; leave --{role} out.")
    if given.get("replay") is not None or "scorer" not in given:
        asked: list[Any] = [{} for _ in suites]  # the recording has the other roles
    else:
        from guard.audit.others import default_scorer, others
        from guard.config import settings

        sending = _analyst_sending(given)
        named = {key: given[key] for key in ("analyst", "scorer", "embedder")}
        guards = given.get("detector") or settings().get("detector")
        named["scorer"] = named["scorer"] or default_scorer(guards)
        asked = [others(suite, **named, sending=sending) for suite in suites]
    return [
        Audit.of(suite, given["size"], allocate, others=other, quick=quick)
        for suite, other in zip(suites, asked, strict=True)
    ]


def _guard_settings(given: dict[str, Any]) -> dict[str, Any]:
    from guard.config import spelled

    settings = {
        key: given[key] for key in ("operating_point", "action", "hold") if given[key] is not None
    }
    for text in given["settings"]:
        key, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--guard takes KEY=VALUE, got {text!r}.")
        settings[key] = spelled(key, value, f"--guard {key}")
    return settings


def _guard(given: dict[str, Any]) -> Guard:
    from guard.core import Guard

    guard = Guard(
        _guard_settings(given), detector=given["detector"], index=given["index"], events="none"
    )
    if guard.policy.rewrites:
        # Recorded answers cannot be rewritten, so the guarded arm would differ from real use.
        raise UsageError(
            "The action 'rewrite' asks the model again, which an audit of recorded answers cannot; "
            "give another --action, or --plain-only."
        )
    return guard


def _show(
    results: list[SuiteResult],
    as_json: bool,
    interrupted: bool,
    resumable: bool = False,
    comparison: Comparison | None = None,
    *,
    tables: bool = False,
) -> None:
    if as_json:
        output: dict[str, Any] = {
            "suites": [r.as_json() for r in results],
            "interrupted": interrupted,
        }
        if comparison is not None:
            output["comparison"] = comparison.to_dict()
        click.echo(json.dumps(output, ensure_ascii=False))
        return
    from guard.audit import report

    console = results_console()
    for result in results if tables else ():
        report.show(console, result, resumable=resumable)
    if not tables and results:
        # A comparison, whose verdict comes last, has half of the lines.
        most = report.LINES if comparison is None else report.LINES // 2
        report.show_short(console, results, resumable=resumable, most=most)
    if comparison is not None:
        audit_compare.show(comparison, False, None if tables else report.LINES // 2)
