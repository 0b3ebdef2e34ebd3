"""``guard audit``: runs published bias suites against a model, plain and behind this guard."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from guard.cli import (
    Number,
    audit_compare,
    audit_report,
    detector_option,
    print_json,
    results_console,
    stdout_kept,
    takes,
)
from guard.cli.audit_convert import convert
from guard.cli.audit_history import HistoryRecorder, check_release, history, release_option
from guard.cli.audit_merge import merge
from guard.cli.audit_options import (
    NO_SECONDS,
    PATH,
    STDOUT,
    WORKERS,
    AuditOptions,
    RunTables,
    asking_options,
    check_extra,
    comparing_options,
    conditions_of_options,
    config_option,
    embedder_option,
    fail_on_option,
    guard_options,
    names_of,
    ray_options,
    show_conditions,
    show_unread,
    suite_options,
    tables_option,
)
from guard.cli.audit_review import review
from guard.cli.run_file import audit_options, run_file_argument
from guard.cli.suites import list_ as list_suites
from guard.errors import UsageError
from guard.exit_codes import ExitCode, worst_code
from guard.ray_session import read_place

if TYPE_CHECKING:
    from guard.audit.audit import Audit
    from guard.audit.command import Command, RunResult
    from guard.audit.comparison import Comparison
    from guard.audit.gating import AuditConditions, ConditionResults
    from guard.audit.score import SuiteResult
    from guard.audit.sending import Sending
    from guard.core import Guard
    from guard.suites import Suite

ANALYST: Final = "analyst"
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2


@click.group()
def audit() -> None:
    """Run published bias suites against a model, plain and behind this guard."""


audit.add_command(audit_compare.compare)
audit.add_command(audit_compare.baseline)
audit.add_command(audit_report.report)
audit.add_command(convert)
audit.add_command(merge)
audit.add_command(history)
audit.add_command(review)
audit.add_command(list_suites, "suites")


@audit.command()
@run_file_argument
@asking_options
@suite_options
@guard_options
@click.option("--plain-only", is_flag=True, help="Audit without the guarded arm.")
@detector_option
@click.option("--index", type=PATH, help="Folder of a bias index.")
@click.option(
    "--out",
    type=PATH,
    help="Folder of the run's file, run.db; an interrupted run resumes there.",
)
@click.option("--record", type=PATH, help="Write a cassette to this folder.")
@click.option("--replay", type=PATH, help="Answer from this run or cassette, offline.")
@click.option("--csv", "table", type=PATH, metavar="FILE", help="Write the answers as a table.")
@click.option(
    "--timeout",
    "timeout_s",
    type=Number(0.1, wrong=NO_SECONDS),
    default=120.0,
    show_default=True,
    help="Seconds that one call may take.",
)
@click.option(
    "--max-calls",
    type=click.IntRange(min=1),
    metavar="N",
    help="End after N calls of this command, with exit code 4; retries and the analyst's calls "
    "count. The same command goes on.",
)
@click.option(
    "--max-cost",
    type=Number(0.0, min_open=True, wrong="not an amount"),
    metavar="USD",
    help="End before the calls of this command cost more, by LiteLLM's prices, with exit code 4. "
    "The same command goes on.",
)
@ray_options
@click.option("--stream", is_flag=True, help="Ask for streams and record the provider's chunks.")
@click.option(
    "--baseline",
    type=PATH,
    help="Compare with this baseline or run; see guard audit compare.",
)
@comparing_options
@fail_on_option
@click.option("--history", metavar="URL", help="Add the finished run to this store's history.")
@release_option
@tables_option
@takes(audit_options)
def run(options: AuditOptions) -> None:
    """Ask the model once, and report what it says and what its users would see.

    FILE is a run file such as audit.toml: its table [run] has these options, which those of the
    command override.

    Every answer is written to run.db before the next call. Run the same command again to
    resume; no answer is paid for twice. If the process is killed, at most --concurrency calls are
    asked again.

    With --baseline a run that could not be compared with it makes no call.

    Exit codes: 0 done, nothing of --fail-on and no worse than the baseline; 1 a condition of
    --fail-on, or worse than the baseline; 2 a mistake in the command or a file that cannot be read
    or written; 3 no answer of a suite could be read, or --fail-on or the comparison is undecided; 4
    some requests have no answer yet; 5 not comparable with the baseline; 70 guard itself failed;
    130 interrupted.
    """
    check_extra()
    from guard.audit.command import run_all
    from guard.audit.files import check_writable, refuse_precious
    from guard.audit.report.tables import incomplete_reasons

    prepared = _prepared_run(options)
    command, baseline_check = prepared.command, prepared.baseline
    recorder = HistoryRecorder(options.history, options.release) if options.history else None
    to_stdout = options.table == STDOUT
    if to_stdout and options.as_json:
        raise UsageError("--json uses standard output; give the other format a file.")
    if options.table is not None and not to_stdout:
        refuse_precious(options.table)
        check_writable(options.table)
    with _exit_if_not_comparable():
        prepared.begin()
        with stdout_kept():
            ran = run_all(command)
    # A cassette has no more answers, and an error's own sentence says whether the run can resume.
    resumable = options.replay is None and ran.error is None and not ran.stopped
    comparison = baseline_check.compare(command.audits, ran) if baseline_check else None
    met = None
    if prepared.conditions is not None and ran.complete:
        suite_of = {audit_.suite.name: audit_.suite for audit_ in command.audits}
        ran_suites = [(suite_of[result.suite], result) for result in ran.results]
        met = prepared.conditions.decide(ran_suites, ran.skipped)
    with stdout_kept() if to_stdout else nullcontext():
        _show(
            ran.results,
            options.as_json,
            ran.interrupted,
            resumable,
            comparison,
            met,
            all_tables=options.all_tables,
            ran=ran,
        )
    if recorder is not None:
        recorder.record({audit_.suite.name: audit_ for audit_ in command.audits}, ran)
    if ran.error is not None:
        raise ran.error
    if options.table is not None:
        from guard.audit.files import encoded
        from guard.audit.tables import items_text, write_items

        for audit_, result in zip(command.audits, ran.results, strict=False):
            place = Path(result.about["journal"])
            if to_stdout:
                click.echo(encoded(items_text(audit_, place)), nl=False)
            else:
                write_items(audit_, place, options.table)
    for sentence in ran.stopped:
        click.echo(sentence, err=True)
    if not command.budget.exhausted and (text := command.budget.uncounted_text()):
        click.echo(f"{text}.", err=True)
    if ran.interrupted:
        click.echo("Interrupted; run the same command to resume.", err=True)
        raise click.exceptions.Exit(ExitCode.INTERRUPTED)
    for result in ran.results:
        # Repeated behind the tables, because the log of a build is read from its end.
        for sentence in incomplete_reasons(result, resumable):
            click.echo(f"{result.suite}: {sentence}", err=True)
    # That nothing of a few items could be read says little.
    unread = ExitCode.DONE if options.shard else show_unread(ran.results)
    if not ran.complete:
        raise click.exceptions.Exit(ExitCode.INCOMPLETE)
    codes = [verdict.exit_code for verdict in (comparison, met) if verdict is not None]
    raise click.exceptions.Exit(worst_code(codes or [unread]))


class _PreparedRun(NamedTuple):
    """A run before anything of it is asked or written."""

    command: Command
    baseline: audit_compare.BaselineCheck | None
    conditions: AuditConditions | None

    def begin(self) -> None:
        """Raise what keeps the run from being compared with its baseline."""
        if self.baseline is not None:
            self.baseline.begin([audit_.suite.name for audit_ in self.command.audits])


def _prepared_run(options: AuditOptions) -> _PreparedRun:
    """Return the run of a command's options; raises what it refuses in them."""
    from guard.audit.budget import Budget
    from guard.audit.command import Command

    _options_by_suite(options)  # its mistakes come before those of the baseline
    if options.workers is not None and options.on is None:
        raise UsageError("--workers belongs to --on; give --on ray.")
    _refuse_conclusions(options)
    baseline_check = audit_compare.BaselineCheck(options) if options.baseline else None
    check_release(options.history, options.release)
    command = Command(
        audits=_audits_of(options),
        models=options.models,
        guard=None if options.plain_only else _guard_of(options),
        concurrency=options.concurrency,
        timeout_s=options.timeout_s,
        stream=options.stream,
        out=options.out,
        record=options.record,
        replay=options.replay,
        sending=_sending(options),
        budget=Budget(options.max_calls, options.max_cost),
        workers=_worker_count(options),
        address=None if options.on is None else read_place(options.on),
        check=baseline_check.check if baseline_check else None,
    )
    conditions = conditions_of_options(options, [audit_.suite for audit_ in command.audits])
    if options.table is not None and len(command.audits) * max(len(command.models), 1) > 1:
        raise UsageError("--csv writes the items of one suite and model; give one of each.")
    return _PreparedRun(command, baseline_check, conditions)


def _worker_count(options: AuditOptions) -> int:
    """Return how many workers on Ray ask; 0 where this process does."""
    if options.on is None:
        return 0
    return options.workers or WORKERS


def _refuse_conclusions(options: AuditOptions) -> None:
    """Raise UsageError where a shard is to be compared, judged or kept as if it were the run."""
    if options.shard is None:
        return
    for value, name in (
        (options.baseline, "--baseline"),
        (options.fail_on, "--fail-on"),
        (options.history, "--history"),
        (options.table, "--csv"),  # a table has no header that says so
    ):
        if value:
            raise UsageError(
                f"{name} is about a whole run, and this is {options.shard.words}; give it to this "
                "command without --shard, with the folder of guard audit merge as --out."
            )


@contextmanager
def _exit_if_not_comparable() -> Iterator[None]:
    """End the command with its exit code where the run could not be compared."""
    from guard.audit.comparison import NotComparable

    try:
        yield
    except NotComparable as error:
        click.echo(f"Error: {error}", err=True)
        raise click.exceptions.Exit(ExitCode.NOT_COMPARABLE) from None


@audit.command()
@run_file_argument
@click.option("--suite", "suites", required=True, help="The suite that was asked.")
@click.option(
    "--answers",
    required=True,
    type=PATH,
    help="A run.db, or a CSV with the columns id and response and, optionally, sample "
    "(if an item is asked several times) and finish_reason. Rows of one id and sample are the "
    "turns of a conversation.",
)
@suite_options
@embedder_option
@fail_on_option
@config_option
@tables_option
@takes(audit_options)
def score(options: AuditOptions) -> None:
    """Score recorded answers like those of a live audit; makes no call.

    Exit codes: 0 done, nothing of --fail-on; 1 a condition of --fail-on; 2 a mistake in the
    command, or a file that cannot be read or is damaged; 3 no answer could be read, or --fail-on is
    undecided; 4 some requests have no answer yet; 70 guard itself failed.
    """
    check_extra()
    from guard.audit.audit import Audit
    from guard.audit.tables import score_table as score_answers

    if len(names_of(options.suites)) > 1:
        raise UsageError(f"--suite takes one suite here, got {options.suites!r}.")
    scopes = _assignments_of(replace(options, tables=RunTables()))  # the file's are no mistake
    if scopes[""] or scopes[ANALYST]:
        raise UsageError("--set takes only SUITE.KEY=VALUE here, because no model is asked.")
    with stdout_kept():
        (suite,) = _suites_of(options)
        audit_ = Audit.of(suite)
        conditions = conditions_of_options(options, [suite])
        assert options.answers is not None
        result = score_answers(audit_, options.answers, options.embedder)
    met = None
    if conditions is not None and result.complete:
        met = conditions.decide([(suite, result)])
    if options.as_json:
        conditions_json = {} if met is None else {"fail_on": met.to_dict()}
        print_json(result.as_json() | conditions_json)
    else:
        _show([result], False, False, met=met, all_tables=options.all_tables)
    if not result.complete:
        raise click.exceptions.Exit(ExitCode.INCOMPLETE)
    unread = show_unread([result])
    raise click.exceptions.Exit(unread if met is None else met.exit_code)


@audit.command()
@run_file_argument
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
@click.option(
    "--rate",
    type=Number(0.0, min_open=True, wrong="not a number of calls"),
    metavar="N",
    help="The provider's limit, in calls a minute.",
)
@ray_options
@click.option("--replay", type=PATH, help="Plan the replay of this run or cassette.")
@guard_options
@detector_option
@click.option("--index", type=PATH, help="Folder of a bias index.")
@click.option("--plain-only", is_flag=True, help="Plan without the guarded arm.")
@takes(audit_options)
def plan(options: AuditOptions) -> None:
    """Print what an audit would ask, take and cost; makes no call.

    FILE is a run file; see guard audit run. What that command refuses in it is refused here with
    the same sentence. The time of the guard, of the scorer and of local models is measured with a
    few texts. With --on it is that of an audit on Ray, which is not started; with --shard, of that
    shard alone.
    """
    from guard.audit import plan as plans
    from guard.audit.command import cassette_of, check_command
    from guard.audit.files import check_place, refuse_precious

    with stdout_kept(), _exit_if_not_comparable():
        prepared = _prepared_run(options)
        prepared.begin()
        check_command(prepared.command)
        if options.table not in (None, STDOUT):
            refuse_precious(options.table)
            check_place(options.table)
        planned = [
            plans.make_plan(
                audit_,
                model,
                sending=_sending(options),
                concurrency=options.concurrency,
                latency_s=options.latency_s,
                guard=prepared.command.guard,
                replay=None if options.replay is None else cassette_of(options.replay, audit_),
                measure=True,
                workers=prepared.command.workers,
                rate=None if options.replay else options.rate,
            )
            for model in dict.fromkeys(options.models) or [None]
            for audit_ in prepared.command.audits
        ]
    if options.as_json:
        print_json({"suites": [p.as_json() for p in planned]})
        return
    plans.show_plans(results_console(), planned)


def _assignments_of(options: AuditOptions) -> dict[str, dict[str, Any]]:
    """Return the values of --set by suite; those of the analyst and of the model, "", apart.

    Those of the run file come first, as JSON where they are request settings.
    """
    tables = options.tables
    assignments: dict[str, dict[str, Any]] = {
        "": {key: json.dumps(value) for key, value in tables.settings.items()},
        ANALYST: {key: json.dumps(value) for key, value in tables.analyst_settings.items()},
    }
    suites = names_of(options.suites)
    assignments |= {name: dict(values) for name, values in tables.options.items() if name in suites}
    for text in options.assignments:
        name, equals, value = text.partition("=")
        scope, _, key = name.rpartition(".")
        if not equals or not key:
            raise UsageError(f"--set takes SUITE.KEY=VALUE or KEY=VALUE, got {text!r}.")
        assignments.setdefault(scope, {})[key] = value
    return assignments


def _options_by_suite(options: AuditOptions) -> dict[str, dict[str, Any]]:
    return {k: v for k, v in _assignments_of(options).items() if k not in ("", ANALYST)}


def _analyst_sending(options: AuditOptions) -> Sending:
    """Return the analyst's request settings; without its own address it has the models'."""
    from guard.audit.addresses import check_address_kept
    from guard.audit.endpoints import sending_beside
    from guard.audit.models import check_model
    from guard.audit.sending import PATTERNS, Sending, check_address
    from guard.audit.settings import read_setting

    texts = _assignments_of(options)[ANALYST]
    if texts and options.analyst is None:
        raise UsageError("--set analyst.KEY=VALUE belongs to --analyst; give one.")
    base = texts.pop("api_base", None)
    check_address(base, "--set analyst.api_base")
    if options.analyst not in (None, PATTERNS):
        check_address_kept(options.analyst, base, "--set analyst.api_base")
        check_address_kept(
            options.analyst, options.api_base if base is None else None, "--api-base"
        )
    variable = _key_variable(texts, "analyst.")
    settings = {key: read_setting(key, text, ANALYST) for key, text in texts.items()}
    own = Sending(settings, api_base=base, key_variable=variable)
    if options.analyst in (None, PATTERNS):
        return own
    for name in (options.analyst, *options.models):
        check_model(name)
    return sending_beside(options.analyst, own, options.models, _sending(options))


def _key_variable(texts: dict[str, str], scope: str = "") -> str:
    """Take the variable with a model's key out of ``texts``; empty where there is none."""
    from guard.audit.sending import check_key_variable
    from guard.audit.settings import KEY_VARIABLE

    name = texts.pop(KEY_VARIABLE, "")
    check_key_variable(name, f"--set {scope}{KEY_VARIABLE}")
    return name


def _sending(options: AuditOptions) -> Sending:
    """Return the audited model's request settings."""
    from guard.audit.addresses import check_address_kept
    from guard.audit.sending import Sending, check_address
    from guard.audit.settings import read_setting

    texts = _assignments_of(options)[""]
    variable = _key_variable(texts)
    settings = {key: read_setting(key, text) for key, text in texts.items()}
    headers: dict[str, str] = {}
    for number, text in enumerate(options.headers, 1):
        name, equals, value = text.partition("=")
        if not equals or not _HEADER_NAME.fullmatch(name) or not value.isprintable():
            # The text itself may be a secret.
            raise UsageError(f"--header takes NAME=VALUE; number {number} is not of that form.")
        headers[name] = value
    base = options.api_base
    check_address(base, "--api-base")
    for name in options.models:
        check_address_kept(name, base, "--api-base")
    for name in options.dropped:
        if name in settings:
            raise UsageError(f"--set {name} and --drop {name} exclude each other.")
    system = _system_prompt(options.system)
    return Sending(settings, options.dropped, {}, system, base, headers, variable)


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


def _suites_of(options: AuditOptions) -> list[Suite]:
    """Return the suites with their options; raises UsageError where these do not fit them."""
    from guard.suites import registry

    names, options_by_suite = names_of(options.suites), _options_by_suite(options)
    for name in options_by_suite:
        if name not in names:
            raise UsageError(f"--set names the suite {name!r}, which is not in --suite; add it.")
    if options.data is not None and len(names) > 1:
        raise UsageError("--data belongs to one suite; give one, or --set SUITE.data=PATH.")
    if options.quick and (options.size is not None or options.allocate != "even"):
        raise UsageError("--quick is a sample of its own; leave --sample and --allocate out.")
    if options.allocate == "widest" and options.size is None:
        raise UsageError("--allocate widest needs --sample; give both.")
    shared = {"data": options.data, "protocol": options.protocol, "seed": options.seed}
    shared = {key: value for key, value in shared.items() if value is not None}
    return [
        registry.make(name, {**shared, **options_by_suite.get(name, {})})
        for name in dict.fromkeys(names)
    ]


def _audits_of(options: AuditOptions) -> list[Audit]:
    """Return the audits of a run: its suites, and the other models that each asks."""
    from guard.audit.audit import Audit
    from guard.audit.others import default_scorer, other_models
    from guard.audit.sending import check_dropped
    from guard.config import read_settings

    suites = _suites_of(options)
    if options.dropped:
        check_dropped(options.dropped, suites)
    others_by_suite: list[Any] = [{} for _ in suites]
    if options.replay is not None:  # the cassette has their answers
        for role, model in (("analyst", options.analyst), ("scorer", options.scorer)):
            if model is not None:
                raise UsageError(f"A cassette has the {role}'s answers; leave --{role} out.")
    else:
        sending = _analyst_sending(options)
        guards = options.detector or read_settings().get("detector")
        scorer = options.scorer or default_scorer(guards)
        others_by_suite = [
            other_models(
                suite,
                analyst=options.analyst,
                scorer=scorer,
                embedder=options.embedder,
                sending=sending,
            )
            for suite in suites
        ]
    return [
        Audit.of(
            suite,
            options.size,
            options.allocate,
            others=models,
            quick=options.quick,
            shard=options.shard,
        )
        for suite, models in zip(suites, others_by_suite, strict=True)
    ]


def _guard_settings(options: AuditOptions) -> dict[str, Any]:
    from guard.config import merge_settings, parse_setting

    settings: dict[str, Any] = {
        key: getattr(options, key)
        for key in ("operating_point", "action", "hold")
        if getattr(options, key) is not None
    }
    for text in options.settings:
        key, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--guard takes KEY=VALUE, got {text!r}.")
        settings[key] = parse_setting(key, value, f"--guard {key}")
    return merge_settings(options.tables.guard, settings)


def _guard_of(options: AuditOptions) -> Guard:
    from guard.core import Guard

    guard = Guard(
        _guard_settings(options), detector=options.detector, index=options.index, events="none"
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
    met: ConditionResults | None = None,
    *,
    all_tables: bool = False,
    ran: RunResult | None = None,
) -> None:
    unasked = [] if ran is None else ran.unasked
    if as_json:
        output: dict[str, Any] = {
            "suites": [r.as_json() for r in results],
            "interrupted": interrupted,
        }
        if comparison is not None:
            output["comparison"] = comparison.to_dict()
        if met is not None:
            output["fail_on"] = met.to_dict()
        if ran is not None:
            output["complete"] = ran.complete
            output["unasked"] = [{"suite": one.suite, "model": one.model} for one in unasked]
            output["stopped"] = list(ran.stopped)
        print_json(output)
        return
    from guard.audit.report import terminal

    console = results_console()
    for result in results if all_tables else ():
        terminal.show_result(console, result, resumable=resumable)
    if not all_tables and results:
        # A comparison, whose verdict and next steps come last, has half of the lines.
        most = terminal.LINES if comparison is None else terminal.LINES // 2
        terminal.show_short(console, results, resumable=resumable, most=most)
    for suite in unasked:
        console.print(f"{suite.name} has no answer.", markup=False, soft_wrap=True)
    if comparison is not None:
        audit_compare.show(comparison, False, None if all_tables else terminal.LINES // 2)
    if met is not None:
        show_conditions(met)
