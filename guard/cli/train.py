"""``guard train``: the recipe of the shipped weights, from the data to the files that ship."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from guard.cli import given
from guard.cli.train_options import BF16, COUNT, FILE, PATH, RUN, SEED, SHARED, check_folder
from guard.errors import UsageError
from guard.installed import install_command

if TYPE_CHECKING:
    from guard.train.config import TrainConfig

# What the card is made of, beside it.
FIGURES = "figures.json"


@click.group()
def train() -> None:
    """Train the embedded detector anew. Needs the extra `train`."""
    # The base model comes from an installed package; nothing may be fetched in its place.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    # Threads that wait by spinning starve each other where other programs share the processor.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@train.command()
@given(*SHARED, *RUN)
@click.option("--json", "as_json", is_flag=True, help="Print the weights' path as a JSON object.")
def encoder(as_json: bool, **options: Any) -> None:
    """Train the encoder, or go on where the run in --work stopped.

    The run is seeded, and gives the same weights whether or not it was interrupted.
    """
    from rich.progress import Progress, TextColumn, TimeRemainingColumn

    config = _config(options)
    check_folder(config.work, "--work")
    from guard.train.encoder import Progress as Step
    from guard.train.encoder import train as run

    columns = (
        *Progress.get_default_columns()[:3],
        TimeRemainingColumn(),
        TextColumn("{task.fields[loss]}"),
    )
    with Progress(*columns) as bar:
        task = bar.add_task("training", total=None, loss="")

        def show(step: Step) -> None:
            bar.update(task, total=step.steps, completed=step.step, loss=f"loss {step.loss:.3f}")

        final = run(config, show)
    _tell("final", final, as_json)


@train.command()
@click.option("--work", type=PATH, required=True, help="Folder of the run's checkpoints.")
@click.option(
    "--data",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    required=True,
    help="Folder of the licensed sources, as benchmarks/detector/README.md lays it out.",
)
@click.option("--epochs", type=COUNT, default=3, show_default=True)
@click.option("--threads", type=COUNT, default=2, show_default=True)
@given(SEED, BF16)
@click.option("--json", "as_json", is_flag=True, help="Print the weights' path as a JSON object.")
def embedder(as_json: bool, **options: Any) -> None:
    """Teach the base model to find what a post implies; give the result to `encoder`.

    The run is seeded, and gives the same weights whether or not it was interrupted.
    """
    _needs_training()
    from rich.progress import Progress

    from guard.train.embedder import EmbedderConfig
    from guard.train.embedder import train as run

    config = EmbedderConfig(**options)
    check_folder(config.work, "--work")
    with Progress() as bar:
        task = bar.add_task("training", total=None)
        final = run(config, lambda step, steps, _: bar.update(task, total=steps, completed=step))
    _tell("final", final, as_json)


@train.command()
@click.argument("runs", nargs=-1, required=True, type=PATH)
@click.option("--work", type=PATH, required=True, help="Folder that receives the mean.")
@click.option("--json", "as_json", is_flag=True, help="Print the weights' path as a JSON object.")
def average(runs: tuple[Path, ...], work: Path, as_json: bool) -> None:
    """Take the mean of the weights of finished RUNS, the work folders of `encoder`."""
    _needs_training()
    finals = [_final(run) for run in runs]
    check_folder(work, "--work")
    from guard.train.average import average as mean

    final = mean(finals, work)
    _tell("final", final, as_json)


@train.command()
@click.option(
    "--from",
    "folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder of released weights; by default the shipped ones.",
)
@click.option("--work", type=PATH, required=True, help="Folder that receives the run.")
@click.option("--json", "as_json", is_flag=True, help="Print the weights' path as a JSON object.")
def restore(folder: Path | None, work: Path, as_json: bool) -> None:
    """Turn released weights back into a finished run, for `encoder --start` and `--teachers`."""
    _needs_training()
    check_folder(work, "--work")
    from guard.detect.weights import SHIPPED
    from guard.train.restore import restore as back

    final = back(folder or SHIPPED, work)
    _tell("final", final, as_json)


@train.command()
@given(*SHARED, SEED, BF16)
@click.option(
    "--rows",
    type=click.IntRange(1, 10_000),
    default=6000,
    show_default=True,
    help="Rows an epoch sees: studies are short runs.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures.")
def studies(as_json: bool, **options: Any) -> None:
    """Make the short runs whose figures the card keeps, one idea each.

    Studies that are finished in --work are not made again.
    """
    config = _config_with_data(options, "studies are measured on texts of the sources")
    check_folder(config.work, "--work")
    from guard.train.studies import run

    figures = run(config, lambda line: click.echo(line, err=True))
    click.echo(dumps(figures) if as_json else str(config.work / "studies.json"))


@train.command()
@click.argument("runs", nargs=-1, required=True, metavar="NAME=RUN...")
@given(*SHARED)
@click.option("--json", "as_json", is_flag=True, help="Print the figures.")
def compare(runs: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Measure finished runs, work folders of `encoder` or `average`, on validating texts.

    The figures are kept in --work as compare.json, for the card.
    """
    config = _config_with_data(options, "runs are compared on texts of the sources")
    finals: dict[str, Path] = {}
    for given_run in runs:
        name, equals, folder = given_run.partition("=")
        if not (name and equals and folder) or name in finals:
            raise click.UsageError(f"'{given_run}' names no run; give each as NAME=FOLDER, once.")
        finals[name] = _final(Path(folder))
    check_folder(config.work, "--work")
    from guard.train.compare import compare as measured

    figures = measured(config, finals, lambda line: click.echo(line, err=True))
    file = config.work / "compare.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(dumps(figures) + "\n", encoding="utf-8")
    click.echo(dumps(figures) if as_json else str(file))


@train.command()
@given(*SHARED)
@click.option("--to", type=PATH, required=True, help="Folder that receives the weights.")
@click.option("--index", type=PATH, required=True, help="Folder of the bias index to embed anew.")
@click.option(
    "--studies",
    type=FILE,
    help="The studies.json of `guard train studies`, to be shown in the card.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the measured figures.")
def release(to: Path, index: Path, studies: Path | None, as_json: bool, **options: Any) -> None:
    """Export a finished run, embed the index with it, calibrate, measure and write the card."""
    config = _config_with_data(options, "calibration needs texts of the sources")
    final = _final(config.work)
    shown = {} if studies is None else _studies(studies)
    check_folder(to, "--to")
    from guard.train.release import release as export

    figures = export(config, final, to, index, lambda line: click.echo(line, err=True))
    figures["studies"] = shown
    _write_card(to, figures)
    click.echo(dumps(figures) if as_json else str(to))


@train.command()
@click.option("--to", type=PATH, required=True, help="Folder of released weights.")
@click.option(
    "--studies",
    type=FILE,
    help="The studies.json of `guard train studies`, in place of those the card shows.",
)
@click.option(
    "--runs",
    type=FILE,
    help="The compare.json of `guard train compare`, in place of what the card shows.",
)
@click.option(
    "--behaviours",
    type=FILE,
    help="What `guard eval --behaviours --json` printed, in place of what the card shows.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the card's path as a JSON object.")
def card(
    to: Path, studies: Path | None, runs: Path | None, behaviours: Path | None, as_json: bool
) -> None:
    """Write the card of released weights anew from the figures that lie beside it."""
    _needs_training()
    file = to / FIGURES
    if not file.is_file():
        raise click.UsageError(f"{file} is not there; `guard train release` writes it.")
    figures = _object(file)
    if figures is None:
        raise click.UsageError(f"{file} is not what `guard train release` writes.")
    if studies is not None:
        figures["studies"] = _studies(studies)
    if runs is not None:
        figures["runs"] = _runs(runs)
    if behaviours is not None:
        figures["behaviours"] = _behaviours(behaviours)
    _write_card(to, figures)
    _tell("card", to / "CARD.md", as_json)


def _tell(name: str, path: Path, as_json: bool) -> None:
    click.echo(json.dumps({name: str(path)}) if as_json else str(path))


def _write_card(folder: Path, figures: dict[str, Any]) -> None:
    from guard.train.card import card as text

    kept = dumps(figures)
    # Written from what is kept, so that the card can always be written anew.
    (folder / "CARD.md").write_text(text(json.loads(kept)), encoding="utf-8")
    (folder / FIGURES).write_text(kept + "\n", encoding="utf-8")


def _behaviours(path: Path) -> dict[str, Any]:
    found: Any = (_object(path) or {}).get("behaviours")
    kept = ("detector", "index_version", "cases", "mean", "behaviours")
    whole = _has(found, kept) and isinstance(found["behaviours"], list)
    if not whole or not all(_has(one, ("name", "value")) for one in found["behaviours"]):
        raise click.UsageError(
            f"--behaviours {path} is not what `guard eval --behaviours --json` prints."
        )
    return {k: found[k] for k in kept}


def _studies(path: Path) -> dict[str, Any]:
    found = _object(path) or {}
    kept = ("rows", "epochs", "redditbias", "validation")
    if not found or not all(_has(one, kept) for one in found.values()):
        raise click.UsageError(f"--studies {path} is not what `guard train studies` writes.")
    return found


def _runs(path: Path) -> dict[str, Any]:
    found = _object(path) or {}
    kept = ("stages", "left_out", "drawn", "redditbias", "validation")
    if not found or not all(_has(one, kept) for one in found.values()):
        raise click.UsageError(f"--runs {path} is not what `guard train compare` writes.")
    return found


def _has(found: Any, keys: Iterable[str]) -> bool:
    return isinstance(found, dict) and found.keys() >= set(keys)


def _object(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _config(options: dict[str, Any]) -> TrainConfig:
    from guard.places import shipped

    if options["data"] is not None and not options["data"].is_dir():
        raise click.UsageError(f"--data {options['data']} is no folder; name the sources' folder.")
    if options["statements"] is None:
        options["statements"] = shipped("index") / "statements.jsonl"
    _needs_training()
    from guard.train.config import TrainConfig

    if options.get("without") and options["data"] is None:
        raise click.UsageError("--without needs --data: the sources' word lists name the groups.")
    if options.get("method") == "fusion" and options["references"] != "fused":
        raise click.UsageError(
            "--method fusion trains what fused references change, and this run fuses none; leave "
            "--references out."
        )
    if options.get("learn") == "verdict" and options["references"] == "fused":
        raise click.UsageError(
            "--learn verdict lets nothing but the verdict shape the pass; fused references would, "
            "by their types: add --references none."
        )
    options["teachers"] = tuple(options.get("teachers", ()))
    _check_teachers(options)
    options["without"] = tuple(options.get("without", ()))
    if (quotas := options.pop("quotas", None)) is not None:
        options["quotas"] = _quotas(quotas)
    return TrainConfig(**options)


def _check_teachers(options: dict[str, Any]) -> None:
    """Raise UsageError where teachers could teach nothing, or what the run must not know."""
    if not options["teachers"]:
        source = click.get_current_context().get_parameter_source
        for name in ("teach", "mixtures"):
            if source(name) is click.core.ParameterSource.COMMANDLINE:
                raise click.UsageError(f"--{name} says nothing without --teachers; name some.")
        return
    if options["data"] is None:
        raise click.UsageError("--teachers needs --data: they teach on the sources' texts alone.")
    if options["method"] == "fusion":
        raise click.UsageError(
            "--method fusion trains no verdict of the text alone, which is what teachers teach; "
            "leave --teachers out."
        )
    if options["without"]:
        raise click.UsageError(
            "--without leaves groups out that the teachers may know; leave --teachers out."
        )


def _config_with_data(options: dict[str, Any], why: str) -> TrainConfig:
    config = _config(options)
    if config.data is None:
        raise click.UsageError(f"--data is missing: {why}.")
    return config


def _final(work: Path) -> Path:
    final = work / "final.pt"
    if not final.is_file():
        raise click.UsageError(f"{final} is not there; finish the run: guard train encoder.")
    return final


def _quotas(path: Path) -> dict[str, int]:
    from guard.train.config import QUOTAS

    found = _object(path) or {}
    wrong = [k for k, v in found.items() if k not in QUOTAS or type(v) is not int or v < 0]
    if wrong or not found:
        what = f"'{wrong[0]}' is wrong" if wrong else "it holds none"
        raise click.UsageError(
            f"--quotas {path}: {what}; give whole numbers of rows of {', '.join(QUOTAS)}."
        )
    return found


def _needs_training() -> None:
    from importlib.util import find_spec

    # The extra `local` brings the first two as well.
    for name in ("torch", "transformers", "onnx", "sklearn"):
        if find_spec(name) is None:
            raise UsageError(f"{name} is not installed; training needs: {install_command('train')}")


def dumps(figures: Any) -> str:
    """Return figures as JSON; what is not a number is null there."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: plain(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [plain(v) for v in value]
        return None if isinstance(value, float) and value != value else value

    return json.dumps(plain(figures), indent=1)
