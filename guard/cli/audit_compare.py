"""``guard audit compare`` and ``guard audit baseline``: verdicts for a build."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from guard.cli import json_option, print_json, stdout_kept, takes
from guard.cli.audit_options import (
    PATH,
    AuditOptions,
    GatingOptions,
    check_extra,
    comparing_options,
    data_option,
    names_of,
    tables_option,
)
from guard.errors import UsageError
from guard.exit_codes import ExitCode
from guard.texts import printable

if TYPE_CHECKING:
    from guard.audit.audit import Audit
    from guard.audit.command import RunResult
    from guard.audit.compare import ComparisonSettings
    from guard.audit.comparison import Comparison
    from guard.audit.header import Header
    from guard.suites import Suite


@dataclass(frozen=True, slots=True, kw_only=True)
class _CompareOptions(GatingOptions):
    base: Path
    new: Path | None
    suites: str | None
    data: Path | None
    all_tables: bool
    as_json: bool


@click.command()
@click.argument("base", type=PATH)
@click.argument("new", type=PATH, required=False)
@click.option(
    "--suite",
    "suites",
    metavar="A,B",
    help="Only these suites; one of your own by MODULE:CLASS.  [default: all]",
)
@comparing_options
@click.option(
    "--better",
    multiple=True,
    metavar="[PATTERN=]higher|lower|NUMBER",
    help="The better direction of axes of another harness, or the value of a fair model; "
    "repeatable.",
)
@data_option
@tables_option
@json_option
@takes(_CompareOptions)
def compare(options: _CompareOptions) -> None:
    """Compare NEW with BASE: the folders of two runs, baselines, or logs of inspect or lm-eval.

    Without NEW the guarded arm of BASE is compared with its plain arm.

    Exit codes: 0 pass, 1 regression, 2 a mistake in the command or a file that cannot be used, 3
    inconclusive, 4 a run that is not complete, 5 not comparable, 70 guard itself failed.
    """
    check_extra()
    with stdout_kept():
        from guard.audit import sides
        from guard.audit.baseline import read_side
        from guard.audit.compare import compare as compared
        from guard.audit.report.terminal import LINES

        suite_names = names_of(options.suites)
        places = [place for place in (options.base, options.new) if place is not None]
        runs = [read_side(place, suite_names, options.data) for place in places]
        before, after = runs if len(runs) == 2 else sides.split_arms(runs[0])
        comparison = compared(before, after, settings(options, suite_names))
    show(comparison, options.as_json, None if options.all_tables else LINES)
    if comparison.exit_code:
        raise click.exceptions.Exit(comparison.exit_code)


@click.command()
@click.argument("run", type=PATH)
@click.option("--out", type=PATH, required=True, help="File to write.")
@click.option("--replace", is_flag=True, help="Replace an existing baseline.")
@click.option("--suite", "suites", metavar="MODULE:CLASS", help="A suite of your own.")
@data_option
@json_option
def baseline(
    run: Path, out: Path, replace: bool, suites: str | None, data: Path | None, as_json: bool
) -> None:
    """Write the results of RUN, a folder of a run or a log, as a small file to commit.

    It has the outcome of each item and none of the model's text. Exit codes: 0 written, 2 a mistake
    in the command or a file that cannot be used, 4 the run is not complete.
    """
    check_extra()
    with stdout_kept():
        from guard.audit.baseline import read_side, write

        side = read_side(run, names_of(suites), data, baselines=False)
    if side.missing:
        click.echo(
            f"{run} cannot be a baseline yet: {side.missing:,} samples have no outcome. Run its "
            "command again to resume it.",
            err=True,
        )
        raise click.exceptions.Exit(ExitCode.INCOMPLETE)
    write(side, out, replace=replace)
    written = {"baseline": str(out), "suites": list(side.suites), "bytes": out.stat().st_size}
    if as_json:
        print_json(written)
        return
    click.echo(f"{out}: {written['bytes']:,} bytes of {', '.join(side.suites)}.")


class BaselineCheck:
    """The baseline of a run: checked before the first call, and compared with the results."""

    def __init__(self, options: AuditOptions) -> None:
        """Read the baseline; raises UsageError where it or the options cannot be used."""
        from guard.audit.baseline import read_side

        if len(set(options.models)) > 1:
            raise UsageError("--baseline takes a run of one model; give one --model.")
        out, baseline_ = options.out, options.baseline
        assert baseline_ is not None
        if out is not None and out.resolve() in (baseline_.resolve(), *baseline_.resolve().parents):
            raise UsageError(
                f"The baseline {baseline_} is in --out {out}, so the run would be compared with "
                "itself; give another --out."
            )
        suite_names = names_of(options.suites)
        self._settings = settings(options)
        self._base = read_side(baseline_, suite_names, options.data)

    def begin(self, suites: Sequence[str]) -> None:
        """Check that a run of ``suites`` can be compared.

        Raises NotComparable where the baseline has other suites, ConfigError where a selector or a
        tolerance matches none of its axes.
        """
        from guard.audit.comparison import NotComparable
        from guard.audit.tolerances import matching

        absent = [name for name in self._base.suites if name not in suites]
        if absent and "suites" not in self._settings.allowed:
            raise NotComparable(
                f"{self._base.name} also has {', '.join(absent)}, so no call was made. Run these "
                "suites as well, or add --allow suites."
            )
        axes = [a for n, suite in self._base.suites.items() if n in suites for a in suite.axes]
        matching(self._settings.axes, axes)
        self._settings.tolerances.check(axes, suites)

    def check(self, suite: Suite, header: Header) -> None:
        """Raise NotComparable where a run with ``header`` would not be comparable.

        Options and request settings that a suite adapts to the model are only known after the run,
        and are compared then.
        """
        from guard.audit.comparison import NotComparable
        from guard.suites import AdaptsRequests
        from guard.suites.optional import part_of

        base_suite = self._base.suites.get(suite.name)
        if base_suite is None:
            if "suites" in self._settings.allowed:
                return
            raise NotComparable(
                f"{self._base.name} has no suite {suite.name!r}, so no call was made; leave it "
                "out, or add --allow suites."
            )
        differing = base_suite.header.differences(header)
        uses = part_of(suite, AdaptsRequests).uses
        adapted = {"options", "request"} if uses else set()
        for name in differing.keys() - self._settings.allowed - adapted:
            was, now = differing[name]
            raise NotComparable(
                f"{suite.name} could not be compared with {self._base.name}, so no call was made. "
                f"It has another {name}: {was}; now {now}. If that is intended, add --allow {name}."
            )

    def compare(self, audits: Sequence[Audit], ran: RunResult) -> Comparison | None:
        """Return the comparison of a run's results; None where the run did not finish."""
        from guard.audit import sides
        from guard.audit.compare import compare as compared

        if ran.interrupted or ran.stopped or ran.error is not None or not ran.results:
            return None
        with stdout_kept():
            new = sides.from_results({audit.suite.name: audit for audit in audits}, ran.results)
            return compared(self._base, new, self._settings)


def settings(options: GatingOptions, suites: Sequence[str] = ()) -> ComparisonSettings:
    """Return the settings of a comparison from a command's options.

    Raises UsageError for an unknown name of --allow, ConfigError for an invalid audit.toml.
    """
    from guard.audit.compare import ALLOWED, ComparisonSettings
    from guard.audit.harnesses import SUITES
    from guard.audit.tolerances import directions, load_tolerances
    from guard.suites import registry

    for name in options.allowed:
        if name not in ALLOWED:
            raise UsageError(f"--allow takes one of {', '.join(ALLOWED)}, got {name!r}.")
    own = [name for name in suites if ":" in name and not name.startswith(SUITES)]
    names = [registry.find(name).name if name in own else name for name in suites]
    return ComparisonSettings(
        frozenset(options.allowed),
        options.axes,
        names,
        load_tolerances(options.tolerances_file),
        directions(options.better),
    )


def show(comparison: Comparison, as_json: bool, most: int | None) -> None:
    """Print a comparison in at most ``most`` lines, verdict and next steps last, or all of it."""
    if as_json:
        print_json(comparison.to_dict())
        return

    for line in comparison.lines(most):
        click.echo(printable(line))
