"""``guard eval``: measures the detector on labelled text, with published figures to compare."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from guard.cli import detector_option, json_option, print_json, progress_bar, results_console
from guard.cli.audit_report import write
from guard.errors import UsageError
from guard.exit_codes import ExitCode
from guard.installed import install_command

if TYPE_CHECKING:
    from guard.core import Guard
    from guard.detect.band import Escalations
    from guard.detect.judge_spent import JudgeSpent
    from guard.evaluate.behaviours import Behaviours
    from guard.evaluate.example import Types
    from guard.evaluate.result import Result


@click.command("eval")
@click.option(
    "--data", "names", multiple=True, metavar="NAME|FILE", help="A known set or a CSV; repeatable."
)
@click.option(
    "--behaviours",
    "folder",
    is_flag=False,
    flag_value="",
    metavar="[FOLDER]",
    help="Run behavioural tests, by default guard's own.",
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help="Folder of the published sets, in the layout of benchmarks/detector/README.md.",
)
@click.option("--list", "listing", is_flag=True, help="List the known sets and exit.")
@click.option(
    "--operating-point",
    type=click.Choice(["strict", "balanced", "quiet"]),
    help="Set of thresholds to judge by; the others are shown, too.",
)
@detector_option
@click.option(
    "--without",
    multiple=True,
    type=click.Choice(["references", "steps", "demonstrations"]),
    help="Leave this part out of a language model's instruction; repeatable.",
)
@click.option(
    "--limit", type=click.IntRange(min=1), help="Judge a random sample of this many texts."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of all random samples.")
@click.option(
    "--bootstrap",
    "draws",
    type=click.IntRange(min=0),
    default=1000,
    show_default=True,
    help="Bootstrap samples for the 95 % intervals; 0 for none.",
)
@click.option(
    "--types",
    type=click.Choice(["own", "paper"]),
    default="own",
    show_default=True,
    help="Count our nine bias types, or the BiasAlert paper's seven.",
)
@json_option
@click.option("--markdown", metavar="FILE|-", help="Write the tables as Markdown.")
@click.option("--reliability", metavar="FILE.svg", help="Draw the reliability diagrams.")
@click.option(
    "--show-errors",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Show the texts of N false positives and N false negatives of each set and behaviour.",
)
@click.option("--skip-bad", is_flag=True, help="Leave out and count rows that cannot be read.")
def eval(
    names: tuple[str, ...],
    folder: str | None,
    data_dir: Path | None,
    listing: bool,
    operating_point: str | None,
    detector: str | None,
    without: tuple[str, ...],
    limit: int | None,
    seed: int,
    draws: int,
    types: Types,
    as_json: bool,
    markdown: str | None,
    reliability: str | None,
    show_errors: int,
    skip_bad: bool,
) -> None:
    """Measure the detector on labelled text.

    Prints accuracy, both error rates, AUROC and calibration, with intervals, beside simple
    baselines and published figures. A custom CSV file needs the columns text and label (1 or 0);
    bias_type, group and attribute are optional. The published sets are not part of guard:
    benchmarks/detector/README.md lists the files and fields that --data-dir must have.

    A detector that asks a language model (generative:FOLDER, judge:MODEL) is printed beside encoder
    on the same texts. Usable is the share of texts with an answer that can be read, overall the
    share with everything right; --without makes the ablation.

    With --behaviours, prints the share of cases passed for each named behaviour (negation,
    quotation, misspelling and so on). A custom folder has files <behaviour>.jsonl with text and
    expect (biased, harmless or unjudged); context, user and bias_type are optional.
    """
    if listing:
        _list(data_dir, as_json)
        return
    if not names and folder is None:
        raise UsageError(
            "There is nothing to measure on: use --data NAME or FILE, or --behaviours; --list "
            "names the sets."
        )
    if as_json and markdown == "-":
        raise UsageError("--json and --markdown - both write to standard output; use only one.")
    if reliability is not None and Path(reliability).suffix.casefold() != ".svg":
        raise UsageError(f"--reliability writes an SVG; use a name such as {_svg(reliability)}.")
    if reliability is not None and not names:
        raise UsageError("--reliability needs labelled sets; add --data.")
    from guard.audit.files import check_writable

    for target in (markdown, reliability):
        if target in (None, "-"):
            continue
        if Path(target).is_dir():
            raise UsageError(f"{target} is a folder; name a file in it.")
        check_writable(Path(target))
    _check_extra()

    from guard.core import Guard
    from guard.detect.band import escalations_in_words
    from guard.evaluate import behaviours, diagram
    from guard.evaluate.baselines import terms_for
    from guard.evaluate.run import evaluate
    from guard.evaluate.sources import load

    # Read all files first, so that every error in them is found before a text is judged.
    sets = [
        load(name, data_dir, limit=limit, seed=seed, skip_bad=skip_bad)
        for name in dict.fromkeys(names)
    ]
    cases = None
    if folder is not None:
        place = behaviours.place(folder)
        cases = behaviours.read(place, limit=limit, seed=seed, skip_bad=skip_bad)
    point = {"operating_point": operating_point} if operating_point else {}
    guard, beside = _guards(Guard(point, detector=detector, events="none"), without)
    terms = terms_for(data_dir)
    results: list[Result] = []
    checked: Behaviours | None = None
    interrupted = False
    escalations: Callable[[], Escalations] | None = getattr(guard.detector, "escalations", None)
    before = escalations() if escalations else None
    total = sum(len(s.examples) for s in sets) + (len(cases.cases) if cases else 0)
    with _progress(total) as advance:
        try:
            for dataset in sets:
                result = evaluate(
                    dataset,
                    guard,
                    terms=terms,
                    draws=draws,
                    seed=seed,
                    limit=limit,
                    types=types,
                    beside=beside,
                    show_errors=show_errors,
                    progress=advance(dataset.name),
                )
                results.append(result)
            if cases is not None:
                checked = behaviours.measure(
                    cases,
                    guard,
                    draws=draws,
                    seed=seed,
                    limit=limit,
                    show_errors=show_errors,
                    progress=advance("behaviours"),
                )
        except KeyboardInterrupt:
            interrupted = True
    # Of a detector that asks a judge.
    spent = guard.detector.spent() if hasattr(guard.detector, "spent") else None
    # Of a cascade of two.
    twice = escalations().since(before) if escalations and before else None
    if as_json:
        output: dict[str, Any] = {"sets": [r.as_json() for r in results]}
        if twice is not None:
            output["cascade"] = {**twice._asdict(), "share": twice.share}
        if checked is not None:
            output["behaviours"] = checked.as_json()
        if spent is not None:
            output["judge"] = spent.to_dict()
        print_json({**output, "interrupted": interrupted})
    elif markdown != "-":
        _show(results, checked)
        if twice is not None:
            click.echo(f"\n{escalations_in_words(twice)}")
        if spent is not None:
            _show_spent(spent, total)
    if markdown is not None:
        write({Path(markdown): _markdown(results, checked) + "\n"})
    if reliability is not None and results:
        write({Path(reliability): diagram.svg(results) + "\n"})
    if interrupted:
        left = [s.name for s in sets[len(results) :]] + ["behaviours"] * (cases is not None)
        click.echo(f"Interrupted; not measured: {', '.join(left)}.", err=True)
        raise click.exceptions.Exit(ExitCode.INTERRUPTED)


def _guards(guard: Guard, without: tuple[str, ...]) -> tuple[Guard, Guard | None]:
    """Return the guard to measure, and one beside it, or None.

    That is ``encoder`` beside a language model, and the first detector beside a cascade of two.
    ``without`` are the parts that the model's instruction lacks.
    """
    from dataclasses import replace

    from guard.core import Guard
    from guard.detect.band import BandCascade
    from guard.detect.instruction import Instructed

    detector = guard.detector
    if not isinstance(detector, Instructed):
        if without:
            raise UsageError(
                f"--without leaves out a part of the instruction of a language model, which the "
                f"detector {detector.name} does not ask; use --detector generative:FOLDER or "
                "judge:MODEL."
            )
        if not isinstance(detector, BandCascade):
            return guard, None
        # The first alone may not read what the second is to judge.
        alone = guard.policy.model_copy(update={"language": "pass"})
        return guard, Guard(alone, detector=detector.first, events="none")
    beside = Guard(guard.policy, detector=detector.embedder, events="none")
    if without:
        told = replace(detector.instruction, **dict.fromkeys(without, False))
        guard = Guard(guard.policy, detector=detector.instructed(told), events="none")
    return guard, beside


def _check_extra() -> None:
    from importlib.util import find_spec

    if find_spec("scipy") is None:
        raise UsageError(f"guard eval needs scipy: {install_command('eval')}")


def _list(data_dir: Path | None, as_json: bool) -> None:
    from guard.evaluate.sources import SOURCES, place, present

    here = present(data_dir)
    if as_json:
        rows = [
            {"name": s.name, "title": s.title, "file": s.file, "present": here[s.name]}
            for s in SOURCES.values()
        ]
        print_json({"data_dir": data_dir and str(data_dir), "sets": rows})
        return
    for source in SOURCES.values():
        where = "" if data_dir or source.shipped else " in the folder of --data-dir"
        state = "here" if here[source.name] else f"missing: {place(source, data_dir)}{where}"
        click.echo(f"{source.name:17} {source.title:36} {state}")


def _svg(name: str) -> str:
    return str(Path(name or "reliability").with_suffix(".svg"))


def _show(results: list[Result], checked: Behaviours | None) -> None:
    from guard.evaluate import behaviour_tables, report

    console = results_console()
    for result in results:
        report.show(console, result)
    if checked is not None:
        behaviour_tables.show(console, checked)


def _show_spent(spent: JudgeSpent, texts: int) -> None:
    """Print what a judge was asked and cost; ``texts`` is how many texts were to be judged."""
    click.echo("")
    for name, value, unit in spent.rows(texts):
        click.echo(f"{name:38} {value:12.4g} {unit}")
    if spent.stopped:
        click.echo(spent.stopped)


def _markdown(results: list[Result], checked: Behaviours | None) -> str:
    from guard.evaluate import behaviour_tables, report

    text = report.markdown(results)
    return text if checked is None else f"{text}\n{behaviour_tables.markdown(checked)}"


@contextmanager
def _progress(total: int) -> Iterator[Callable[[str], Callable[[int], None]]]:
    """Show a progress bar on standard error if that is a terminal."""
    with progress_bar() as bar:
        if bar is None:
            yield lambda name: lambda count: None
            return
        task = bar.add_task("judging", total=total)

        def advance(name: str) -> Callable[[int], None]:
            before = bar.tasks[0].completed

            def done(count: int) -> None:
                bar.update(task, description=name, completed=before + count)

            return done

        yield advance
