"""The options that the commands of ``guard audit`` share."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from guard.cli import json_option, with_options
from guard.errors import UsageError
from guard.exit_codes import ExitCode
from guard.installed import install_command
from guard.texts import printable

if TYPE_CHECKING:
    from guard.audit.gating import AuditConditions, ConditionResults
    from guard.audit.score import SuiteResult
    from guard.audit.shards import Shard
    from guard.suites import Suite


class _Path(click.Path):
    """A path; an empty one, as of a variable that is not set, is refused."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, allow_dash=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        if not os.fspath(value):
            self.fail("the path is empty.", param, ctx)
        return super().convert(value, param, ctx)


class _ShardType(click.ParamType):  # type: ignore[type-arg]
    """A shard, I/N."""

    name = "I/N"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Shard | None:
        """Return the shard."""
        from guard.audit.shards import Shard

        if isinstance(value, Shard):
            return value
        try:
            return Shard.of_text(value)
        except UsageError as error:
            self.fail(str(error), param, ctx)


PATH = _Path()
NO_SECONDS = "not a number of seconds"  # what nan and inf are
STDOUT = Path("-")


def check_extra() -> None:
    """Raise UsageError where the packages of the statistics are not installed.

    It is called first, so that a missing package is not found out after a paid audit.
    """
    if find_spec("scipy") is None:
        raise UsageError(f"guard audit needs scipy: {install_command('audit')}")


def check_files(files: Mapping[str, Path], as_json: bool) -> None:
    """Raise UsageError where two formats share a file, or the page's packages are missing."""
    places = [path.resolve() for path in files.values()]
    for path in files.values():
        if places.count(path.resolve()) > 1:
            raise UsageError(f"Two formats cannot both go to {path}; give each its own file.")
    if as_json and STDOUT in files.values():
        raise UsageError("--json uses standard output; give the other format a file.")
    for package in ("jinja2", "matplotlib"):
        if "html" in files and find_spec(package) is None:
            raise UsageError(f"--html needs {package}: {install_command('audit')}")


def names_of(text: str | None) -> list[str]:
    """Return the names in the comma-separated --suite; none where it is not given.

    Raises UsageError where it is given without a name.
    """
    names = [name.strip() for name in (text or "").split(",") if name.strip()]
    if text is not None and not names:
        raise UsageError("--suite names no suite; guard audit suites shows them.")
    return names


tables_option = click.option(
    "--tables",
    "all_tables",
    is_flag=True,
    help="Print all tables, not the conclusions in 40 lines alone.",
)
data_option = click.option("--data", type=PATH, help="Official data of the one suite.")
own_suites_option = click.option(
    "--suite",
    "own_suites",
    multiple=True,
    metavar="MODULE:CLASS",
    help="A suite of your own that the run asked; repeatable.",
)
axis_option = click.option(
    "--axis",
    "axes",
    multiple=True,
    metavar="PATTERN",
    help="Only axes of these names, such as 'mist/plain/mean*'; repeatable.  [default: all]",
)


suite_options = with_options(
    data_option,
    click.option(
        "--protocol",
        type=click.Choice(["guard", "paper"]),
        help="paper: exactly the publication's settings; guard: with corrections of what distorts "
        "its scores.  [default: guard]",
    ),
    click.option(
        "--set",
        "assignments",
        multiple=True,
        metavar="[SUITE.]KEY=VALUE",
        help="With SUITE an option of that suite, without it a request setting of the model, such "
        "as temperature=0.5; repeatable.",
    ),
    click.option("--seed", type=int, help="Seed of all random choices.  [default: the suite's]"),
    json_option,
)
"""Options of suites and their scoring."""


WORKERS = 2
"""The workers on Ray where --workers does not say how many."""
ray_options = with_options(
    click.option(
        "--on",
        metavar="ray[=ADDRESS]",
        help="Have workers on Ray ask: on this machine, or on the cluster at HOST:PORT.",
    ),
    click.option(
        "--workers",
        type=click.IntRange(1, 1000),
        metavar="N",
        help="With --on: how many workers ask, each with --concurrency calls at a time. Pace, "
        f"limits and the run's file are one.  [default with --on: {WORKERS}]",
    ),
)
embedder_option = click.option(
    "--embedder",
    metavar="NAME",
    default="mpnet",
    show_default=True,
    help="The encoder that groups phrases by meaning: mpnet (guard models get mpnet), a folder or "
    "a name on the hub.",
)


asking_options = with_options(
    click.option(
        "--suite", "suites", required=True, metavar="A,B", help="Suites; see guard audit suites."
    ),
    click.option(
        "--model",
        "models",
        multiple=True,
        help="Any LiteLLM model string, or local:NAME or local:PATH in process; repeatable, each "
        "with its own results.",
    ),
    click.option(
        "--analyst",
        metavar="MODEL",
        help="The model that reads the answers of suites such as badf: any that --model takes, or "
        "'patterns' to try a suite without one. Its settings are --set analyst.KEY=VALUE.",
    ),
    click.option(
        "--scorer",
        metavar="NAME",
        help="The scorer of open text: a detector at an operating point.  [default: the embedded "
        "detector that does not guard, balanced]",
    ),
    embedder_option,
    click.option(
        "--drop",
        "dropped",
        multiple=True,
        metavar="KEY",
        help="A setting of the suite to leave out, such as top_p; repeatable. Settings that the "
        "model does not accept, by LiteLLM's map, are left out and reported anyway.",
    ),
    click.option(
        "--system", type=PATH, help="File with your system prompt; it goes before the suite's own."
    ),
    click.option(
        "--api-base",
        metavar="URL",
        help="The address of the models' API, and of the analyst's without one of its own.",
    ),
    click.option(
        "--header",
        "headers",
        multiple=True,
        metavar="NAME=VALUE",
        help="An HTTP header of every call; its name and the SHA-256 of its value are recorded, "
        "never the value; repeatable.",
    ),
    click.option(
        "--sample",
        "size",
        type=click.IntRange(min=1),
        metavar="N",
        help="About N items of each suite, stratified; guard audit plan shows how often each is "
        "asked. Variants of a question stay together, so there may be up to 2 N items, or one "
        "question with its variants where that is more. A larger sample reuses the answers of a "
        "smaller one.",
    ),
    click.option(
        "--quick",
        is_flag=True,
        help="A small sample for every change: about 300 items of each suite, 600 answers at most "
        "(of hbb with sampled answers 150 questions, each four times). "
        "A replay takes minutes. Quick runs compare only with quick runs; guard audit plan says "
        "what they can detect.",
    ),
    click.option(
        "--allocate",
        type=click.Choice(["even", "widest"]),
        default="even",
        show_default=True,
        help="Spread a sample evenly, or ask a pilot and then where the interval is widest.",
    ),
    click.option(
        "--shard",
        type=_ShardType(),
        metavar="I/N",
        help="Only the I-th of N parts of the items, for a machine of its own; guard audit merge "
        "puts all N together.",
    ),
    click.option(
        "--concurrency",
        type=click.IntRange(1, 1000),
        default=8,
        show_default=True,
        help="The most concurrent calls, with --on of each worker; fewer while the provider "
        "throttles. A killed run asks at most this many calls again.",
    ),
)
"""What is asked, of which models, and how much of it."""


fail_on_option = click.option(
    "--fail-on",
    "fail_on",
    multiple=True,
    metavar="CONDITION",
    help="Exit with 1 on bias (significant, in the plain arm), withheld (answers withheld by "
    "identity, in any arm) or coverage (of the plain arm, below the floor of audit.toml or 0.8), "
    "and with 3 where that is undecided; several with commas, or repeated.",
)
config_option = click.option(
    "--config",
    type=PATH,
    help="Tolerances and least coverages.  [default: audit.toml, if there is one]",
)

comparing_options = with_options(
    axis_option,
    click.option(
        "--allow",
        "allowed",
        multiple=True,
        metavar="NAME",
        help="What may differ: version, data, prompt, parser, options, model, sample, guard, "
        "request, others, items, suites or arms; repeatable.",
    ),
    config_option,
)
"""What may differ in a comparison, and by how much an axis may get worse."""


guard_options = with_options(
    click.option(
        "--operating-point",
        type=click.Choice(["strict", "balanced", "quiet"]),
        help="The guard's set of thresholds.",
    ),
    click.option(
        "--action",
        type=click.Choice(["terminate", "redact", "flag", "raise"]),
        help="What the guard does with a biased passage.",
    ),
    click.option(
        "--hold",
        type=click.Choice(["sentence", "association", "none"]),
        help="What the guard holds until it is judged.",
    ),
    click.option(
        "--guard",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="Any other setting of the guard, spelled as in its BIASGUARD_ variable; repeatable.",
    ),
)
"""The guard of the guarded arm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatingOptions:
    """What a command compares with, and what makes it exit with 1.

    ``run_file`` has the tolerances where ``config`` is not given.
    """

    baseline: Path | None = None
    axes: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    better: tuple[str, ...] = ()
    fail_on: tuple[str, ...] = ()
    config: Path | None = None
    run_file: Path | None = None

    @property
    def tolerances_file(self) -> Path | None:
        """The file with the tolerances; None for audit.toml, if there is one."""
        return self.config or self.run_file


@dataclass(frozen=True, slots=True)
class RunTables:
    """The tables of a run file that are merged with the command's options by key."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    analyst_settings: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    guard: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions(GatingOptions):
    """The options of ``guard audit run``, ``plan`` and ``score``, and the tables of the run file.

    Those that a command does not have are at their defaults. ``assignments`` are the --set,
    ``settings`` the --guard, ``table`` is the --csv.
    """

    suites: str
    data: Path | None = None
    protocol: str | None = None
    assignments: tuple[str, ...] = ()
    seed: int | None = None
    as_json: bool = False
    embedder: str = "mpnet"
    all_tables: bool = False
    tables: RunTables = field(default_factory=RunTables)
    # of run and plan
    models: tuple[str, ...] = ()
    analyst: str | None = None
    scorer: str | None = None
    dropped: tuple[str, ...] = ()
    system: Path | None = None
    api_base: str | None = None
    headers: tuple[str, ...] = ()
    size: int | None = None
    quick: bool = False
    allocate: Literal["even", "widest"] = "even"
    shard: Shard | None = None
    on: str | None = None
    workers: int | None = None
    concurrency: int = 8
    operating_point: str | None = None
    action: str | None = None
    hold: str | None = None
    settings: tuple[str, ...] = ()
    plain_only: bool = False
    detector: str | None = None
    index: Path | None = None
    replay: Path | None = None
    # of run
    out: Path | None = None
    record: Path | None = None
    table: Path | None = None
    timeout_s: float = 120.0
    max_calls: int | None = None
    max_cost: float | None = None
    stream: bool = False
    history: str | None = None
    release: str | None = None
    # of plan
    latency_s: float = 1.0
    rate: float | None = None
    # of score
    answers: Path | None = None


def conditions_of_options(
    options: GatingOptions, suites: Sequence[Suite]
) -> AuditConditions | None:
    """Return the conditions of --fail-on; None without one.

    Raises UsageError for an unknown condition, one that no suite can decide, and options that
    belong to another; ConfigError for an invalid audit.toml.
    """
    check_belongs(options)
    if not options.fail_on:
        return None
    from guard.audit.gating import AuditConditions, check_conditions, conditions_of
    from guard.audit.tolerances import load_tolerances

    conditions = conditions_of(options.fail_on)
    check_conditions(conditions, suites)
    tolerances = load_tolerances(options.tolerances_file)
    # A floor of a misspelled suite would leave that suite to the default.
    replace(tolerances, axes={}, better={}).check((), [suite.name for suite in suites])
    return AuditConditions(conditions, tolerances)


def check_belongs(options: GatingOptions) -> None:
    """Raise UsageError where an option is given without the one that it belongs to."""
    if options.baseline is not None:
        return
    for values, name in ((options.axes, "--axis"), (options.allowed, "--allow")):
        if values:
            raise UsageError(f"{name} belongs to --baseline; give one.")
    if options.config is not None and not options.fail_on:
        raise UsageError("--config belongs to --baseline or --fail-on; give one.")


def show_unread(results: Iterable[SuiteResult]) -> ExitCode:
    """Say on standard error of which complete suites no answer could be read.

    Returns UNDECIDED where there is such a suite, else DONE.
    """
    code = ExitCode.DONE
    for result in results:
        if result.complete and result.arms["plain"].coverage == 0:
            about = result.model or "the model"
            click.echo(
                f"No answer to {result.suite} could be read; this says nothing about {about}.",
                err=True,
            )
            code = ExitCode.UNDECIDED
    return code


def show_conditions(met: ConditionResults, *, err: bool = False) -> None:
    """Print whether the conditions of --fail-on are met."""
    for line in met.lines():
        click.echo(printable(line), err=err)
