"""``guard audit``: published bias suites against a model, plain and behind this guard."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from guard.errors import UsageError

if TYPE_CHECKING:
    from guard.audit.audit import Audit
    from guard.audit.score import SuiteResult
    from guard.core import Guard
    from guard.policy import Policy

INCOMPLETE = 3
_PIPED_WIDTH = 200
_F = TypeVar("_F", bound=Callable[..., Any])


def _suite_options(command: _F) -> _F:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
        click.option(
            "--bootstrap",
            "draws",
            type=click.IntRange(min=0),
            default=2000,
            show_default=True,
            help="Draws for the intervals; 0 for none.",
        ),
        click.option("--seed", type=int, help="Of every random choice.  [default: the suite's]"),
        click.option(
            "--set",
            "own",
            multiple=True,
            metavar="SUITE.KEY=VALUE",
            help="An option of one suite; repeatable.",
        ),
        click.option(
            "--protocol",
            type=click.Choice(["guard", "paper"]),
            help="Follow the publication to the letter, or mend what distorts.  [default: guard]",
        ),
        click.option(
            "--data", type=click.Path(path_type=Path), help="Official data of the one suite given."
        ),
    ):
        command = option(command)
    return command


def _asking_options(command: _F) -> _F:
    for option in (
        click.option(
            "--concurrency",
            type=click.IntRange(1, 1000),
            default=8,
            show_default=True,
            help="Calls at a time at most; fewer while the provider has enough.",
        ),
        click.option(
            "--allocate",
            type=click.Choice(["even", "widest"]),
            default="even",
            show_default=True,
            help="Spread a sample evenly, or ask a pilot and then where the interval is widest.",
        ),
        click.option(
            "--sample", "size", type=click.IntRange(min=1), help="So many items of each suite."
        ),
        click.option(
            "--model", help="Any LiteLLM model string, or local:NAME or local:PATH in process."
        ),
        click.option(
            "--suite", "suites", required=True, metavar="A,B", help="Suites; see guard suites list."
        ),
    ):
        command = option(command)
    return command


def _guard_options(command: _F) -> _F:
    for option in (
        click.option(
            "--guard",
            "settings",
            multiple=True,
            metavar="KEY=VALUE",
            help="Any other setting of the guard, as its GUARD_ variable has it; repeatable.",
        ),
        click.option(
            "--hold",
            type=click.Choice(["sentence", "association", "none"]),
            help="What the guard holds until it is judged.",
        ),
        click.option(
            "--action",
            type=click.Choice(["terminate", "redact", "flag", "raise"]),
            help="What the guard does with a biased passage.",
        ),
        click.option(
            "--operating-point",
            type=click.Choice(["strict", "balanced", "quiet"]),
            help="The guard's set of thresholds.",
        ),
    ):
        command = option(command)
    return command


@click.group()
def audit() -> None:
    """Run published bias suites against a model, plain and behind this guard."""


@audit.command()
@_asking_options
@_suite_options
@_guard_options
@click.option("--plain-only", is_flag=True, help="Leave the guarded arm out.")
@click.option("--index", type=click.Path(path_type=Path), help="Folder of a bias index.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder of the journals; a run that was interrupted goes on there.",
)
@click.option("--record", type=click.Path(path_type=Path), help="Keep a cassette in this folder.")
@click.option("--replay", type=click.Path(path_type=Path), help="Answer from a cassette, offline.")
@click.option("--csv", "table", type=click.Path(path_type=Path), help="Write the items as a table.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1),
    default=120.0,
    show_default=True,
    help="Seconds that one call may take.",
)
@click.option("--stream", is_flag=True, help="Ask for streams and record the provider's chunks.")
def run(**given: Any) -> None:
    """Ask the model once, and report what it says and what its users would see.

    Every answer is on disk before the next call; run the same command again to go on, and no
    answer is paid for twice. The journal holds what the model said.

    Exit codes: 0 done, 2 a mistake in the command, 3 some requests have no answer yet, 130
    interrupted.
    """
    _check_extra()
    from guard.audit.command import Command, run_all

    own = _own(given)
    command = Command(
        audits=_audits(given, own),
        model=given["model"],
        guard=None if given["plain_only"] else _guard(given),
        concurrency=given["concurrency"],
        timeout_s=given["timeout_s"],
        stream=given["stream"],
        out=given["out"],
        record=given["record"],
        replay=given["replay"],
    )
    if given["table"] is not None and len(command.audits) > 1:
        raise UsageError("--csv writes the items of one suite; give one --suite.")
    results, interrupted, stopped = run_all(command)
    _show(results, given["as_json"], interrupted)
    if given["table"] is not None:
        from guard.audit.tables import write_items

        for audit_, result in zip(command.audits, results, strict=False):
            write_items(audit_, Path(result.about["journal"]), given["table"])
    if interrupted:
        click.echo("Interrupted; the same command goes on where it stopped.", err=True)
        raise click.exceptions.Exit(130)
    if stopped:
        click.echo(f"{stopped} The same command goes on where it stopped.", err=True)
        raise click.exceptions.Exit(INCOMPLETE)
    if any(not result.complete for result in results):
        raise click.exceptions.Exit(INCOMPLETE)


@audit.command()
@click.option("--suite", required=True, help="The suite that was asked.")
@click.option(
    "--answers",
    required=True,
    type=click.Path(path_type=Path),
    help="A journal (.jsonl.gz), or a CSV of answers.",
)
@_suite_options
def score(suite: str, answers: Path, **given: Any) -> None:
    """Score recorded answers as a live audit would, without a call."""
    _check_extra()
    from guard.audit.tables import score as scored

    (audit_,) = _audits({**given, "suites": suite, "size": None}, _own(given))
    result = scored(audit_, answers)
    if given["as_json"]:
        click.echo(json.dumps(result.as_json(), ensure_ascii=False))
    else:
        _show([result], False, False)


@audit.command()
@_asking_options
@_suite_options
@_guard_options
@click.option(
    "--latency",
    "latency_s",
    type=click.FloatRange(min=0.001),
    default=1.0,
    show_default=True,
    help="Seconds that one call is assumed to take.",
)
def plan(**given: Any) -> None:
    """Say what an audit would ask, take and cost, and what it could detect; asks nothing."""
    from guard.audit import plan as plans

    found = [
        plans.plan(
            audit_,
            given["model"],
            concurrency=given["concurrency"],
            latency_s=given["latency_s"],
            policy=_policy(_settings(given)),
        )
        for audit_ in _audits(given, _own(given))
    ]
    if given["as_json"]:
        click.echo(json.dumps({"suites": [p.as_json() for p in found]}, ensure_ascii=False))
        return
    plans.show(_console(), found)


def _check_extra() -> None:
    # Before the first call: what is missing must not come to light behind a paid audit.
    from importlib.util import find_spec

    if find_spec("statsmodels") is None:
        raise UsageError("guard audit needs statsmodels: pip install 'biasguard[audit]'.")


def _own(given: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Return the options of single suites, by suite."""
    found: dict[str, dict[str, str]] = {}
    for text in given["own"]:
        name, equals, value = text.partition("=")
        suite, dot, key = name.rpartition(".")
        if not equals or not dot:
            raise UsageError(f"--set takes SUITE.KEY=VALUE, got {text!r}.")
        found.setdefault(suite, {})[key] = value
    return found


def _audits(given: dict[str, Any], own: dict[str, dict[str, str]]) -> list[Audit]:
    from guard.audit.audit import Audit
    from guard.suites import registry

    names = [name.strip() for name in given["suites"].split(",") if name.strip()]
    for name in own:
        if name not in names:
            raise UsageError(f"--set names the suite {name!r}, which is not asked for.")
    if given["data"] is not None and len(names) > 1:
        raise UsageError("--data belongs to one suite; give one, or --set SUITE.data=PATH.")
    allocate = given.get("allocate", "even")
    if allocate == "widest" and given["size"] is None:
        raise UsageError("--allocate widest spreads a sample; give --sample too.")
    shared = {key: given[key] for key in ("data", "protocol", "seed") if given.get(key) is not None}
    return [
        Audit.of(
            registry.make(name, {**shared, **own.get(name, {})}),
            given["size"],
            given["draws"],
            allocate,
        )
        for name in dict.fromkeys(names)
    ]


def _settings(given: dict[str, Any]) -> dict[str, Any]:
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

    guard = Guard(_settings(given), index=given["index"])
    if guard.policy.rewrites:
        # What is recorded cannot be gone on from; the guarded arm would show something else.
        raise UsageError(
            "guard audit run reads recorded answers, and the action 'rewrite' asks the model "
            "again; give another --action, or --plain-only."
        )
    return guard


def _policy(given: dict[str, Any]) -> Policy:
    """Return the policy that a guard would have, without loading its detector."""
    from guard.config import policy_from, settings
    from guard.policy import Policy

    found = {k: v for k, v in settings().items() if k in Policy.model_fields}
    return policy_from(given, base=policy_from(found), where="guard audit plan")


def _console() -> Any:
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PIPED_WIDTH)


def _show(results: list[SuiteResult], as_json: bool, interrupted: bool) -> None:
    if as_json:
        found = {"suites": [r.as_json() for r in results], "interrupted": interrupted}
        click.echo(json.dumps(found, ensure_ascii=False))
        return
    from guard.audit import report

    for result in results:
        report.show(_console(), result)
