"""``guard train``: the recipe of `encoder`, from the data to the released files.

This module and ``guard.train`` are not in the wheel: training needs a checkout.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from guard.cli import Number, with_options, without_nan
from guard.cli.train_options import (
    COUNT,
    DATA,
    FILE,
    FUSION,
    GENERATIVE,
    MACHINE,
    ONWARD,
    PATH,
    RUN,
    SEED,
    STATEMENTS,
    WORK,
    check_folder,
)
from guard.errors import UsageError
from guard.installed import install_command
from guard.progress import bar_console
from guard.train.config import (
    BAND_WINDOWS,
    EMBEDDER_EPOCHS,
    HEAD_WINDOWS,
    MOST_DIFFERING,
    ONWARD_QUOTAS,
    QUOTAS,
    TrainConfig,
)

if TYPE_CHECKING:
    from guard.train import loop


class _Version(click.ParamType):  # type: ignore[type-arg]
    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not re.fullmatch(r"[0-9A-Za-z.]{1,20}", value):
            self.fail(f"{value!r} is not a version of letters, digits and dots.", param, ctx)
        return str(value)


# The data from which the card is made.
FIGURES = "figures.json"
CARD = "CARD.md"
# Steps between two lines of progress if the output is not a terminal.
_LINE = 50
EMBEDDER = click.option(
    "--embedder",
    type=FILE,
    help="The embedder.pt of `guard train embedder`, instead of the published all-MiniLM-L6-v2.",
)
VERSION = click.option(
    "--version",
    type=_Version(),
    default="0",
    show_default=True,
    help="Version of the weights, of letters, digits and dots; their name has their hash, too.",
)
_WEIGHTS = click.Path(path_type=Path, exists=True, file_okay=False)
JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as a JSON object.")


@click.group()
def train() -> None:
    """Train an encoder, the head or band of a cascade, or an adapter. Needs the extra `train`."""
    # The base model comes from an installed package; nothing is downloaded.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    # Spinning threads slow each other down if other programs share the processor.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@train.command("all")
@with_options(WORK, DATA, *RUN)
@click.option("--to", type=PATH, help="Folder that receives the weights; by default in --work.")
@click.option("--index", type=PATH, help="Folder of the bias index; by default in --work.")
@VERSION
@JSON
def everything(
    to: Path | None, index: Path | None, version: str, as_json: bool, **options: Any
) -> None:
    """Run all steps: embedder, encoder, references and release.

    Finished steps in --work are skipped, and an interrupted step resumes. --epochs and --max-steps
    are those of the encoder's run and of the references' run alike.
    """
    if options["references"] == "none":
        raise click.UsageError(
            "A run without references cannot be released: leave --references out, or use "
            "`guard train encoder`."
        )
    config = _config_with_data(options)
    work = config.work
    check_folder(work, "--work")
    to, index = to or work / "weights", index or work / "index"
    check_folder(to, "--to")
    if not (index / "statements.jsonl").exists():
        _write(index / "statements.jsonl", config.statements.read_text("utf-8"))
    vectors = _embedder(config.for_embedder(work / "embedder"))
    config = replace(config, work=work / "encoder", embedder=vectors)
    config = config.references_after(_encoder(config), work / "references")
    final = _encoder(config)
    if not _is_released(final, to, version):
        _release(config, to, index, version)
    _print_path("weights", to, as_json)


@train.command()
@with_options(WORK, DATA, SEED, *MACHINE)
@click.option("--epochs", type=COUNT, default=EMBEDDER_EPOCHS, show_default=True)
@JSON
def embedder(epochs: int, as_json: bool, **options: Any) -> None:
    """Fine-tune all-MiniLM-L6-v2 to retrieve what a post implies, for the vectors of `encoder`.

    The run is seeded, and gives the same weights whether or not it was interrupted.
    """
    config = _config_with_data(options)
    check_folder(config.work, "--work")
    _print_path("final", _embedder(config.for_embedder(config.work, epochs)), as_json)


@train.command()
@with_options(WORK, DATA, EMBEDDER, *RUN)
@JSON
def encoder(as_json: bool, **options: Any) -> None:
    """Train the encoder, or resume the run in --work.

    The run is seeded, and gives the same weights whether or not it was interrupted.
    """
    config = _config(options)
    check_folder(config.work, "--work")
    _print_path("final", _encoder(config), as_json)


@train.command()
@with_options(WORK, DATA, EMBEDDER, *FUSION)
@JSON
def references(as_json: bool, **options: Any) -> None:
    """Train the fusion with references, for the network of the run named by --start.

    Its sentence vectors are fitted again. The run is seeded, and resumes after an interruption.
    """
    config = _config(options)
    if config.start is None:
        raise click.UsageError("Name the encoder's run: --start WORK/final.pt.")
    check_folder(config.work, "--work")
    _print_path("final", _encoder(config.references_after(config.start, config.work)), as_json)


@train.command()
@with_options(WORK, DATA, *ONWARD)
@JSON
def onward(as_json: bool, **options: Any) -> None:
    """Go on from the finished run named by --start: half of the rows are of forms.

    The map to sentence vectors and the fusion stay. The run is seeded, and resumes after an
    interruption.
    """
    usual = options["quotas"] is None
    config = _config(options)
    start = config.start
    assert start is not None, "--start is required"
    if usual:
        config = replace(config, quotas=dict(ONWARD_QUOTAS))
    check_folder(config.work, "--work")
    _print_path("final", _encoder(config.onward_from(start, config.work)), as_json)


@train.command()
@with_options(WORK, DATA, STATEMENTS)
@click.option("--to", type=PATH, required=True, help="Folder that receives the weights.")
@click.option("--index", type=PATH, required=True, help="Folder of the bias index to embed again.")
@VERSION
@JSON
def release(to: Path, index: Path, version: str, as_json: bool, **options: Any) -> None:
    """Export the run in --work, embed the index with it, calibrate, measure and write the card."""
    config = _config_with_data(options)
    check_folder(to, "--to")
    figures = _release(config, to, index, version)
    click.echo(figures if as_json else str(to))


@train.command()
@click.option(
    "--from",
    "folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder of released weights; by default the shipped ones.",
)
@click.option("--work", type=PATH, required=True, help="Folder that receives the run.")
@JSON
def restore(folder: Path | None, work: Path, as_json: bool) -> None:
    """Turn released weights back into a finished run, for `encoder --start`."""
    _needs_training()
    check_folder(work, "--work")
    from guard.detect.weights import SHIPPED
    from guard.train.restore import restore_run as run

    _print_path("final", run(folder or SHIPPED, work), as_json)


@train.command()
@with_options(WORK, DATA, STATEMENTS)
@click.option("--to", type=PATH, help="Folder that receives the head; by default the shipped one.")
@click.option("--small", type=_WEIGHTS, help="Weights that judge first; by default the shipped.")
@click.option("--large", type=_WEIGHTS, help="Weights that judge last; by default the shipped.")
@click.option(
    "--differ",
    type=Number(0, 1),
    default=MOST_DIFFERING,
    show_default=True,
    help="The largest share of validation texts that may be decided otherwise than by --large.",
)
@click.option(
    "--windows",
    type=click.IntRange(100, HEAD_WINDOWS),
    default=HEAD_WINDOWS,
    show_default=True,
    help="The most windows that both judge.",
)
@VERSION
@JSON
def cascade(
    to: Path | None,
    small: Path | None,
    large: Path | None,
    differ: float,
    windows: int,
    version: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Train the head of `cascade`, which says when `encoder` must judge after `encoder-small`.

    Both judge texts of the sources; their scores are kept in --work, and an interrupted command
    resumes. The bound is the one by which the fewest windows are judged twice.
    """
    config = _config_with_data(options)
    check_folder(config.work, "--work")
    from guard.detect.weights import shipped_weights
    from guard.places import CASCADE, ENCODERS
    from guard.train.cascade import train_cascade as run

    to = to or shipped_weights(CASCADE)
    check_folder(to, "--to")
    assert config.data is not None
    with _text_counter("windows") as show:
        choice = run(
            config.data, config.statements, config.work, to, version,
            first=small or shipped_weights(ENCODERS[1]),
            last=large or shipped_weights(ENCODERS[0]),
            most=differ, windows=windows, report=show,
        )  # fmt: skip
    if as_json:
        from dataclasses import asdict

        click.echo(json.dumps({"head": str(to), **asdict(choice)}))
        return
    at = ", ".join(f"{share:.2%} at {point}" for point, share in choice.at.items())
    click.echo(
        f"Of {choice.n} validation texts {choice.deferred:.1%} are judged twice; "
        f"{choice.differs:.2%} are decided otherwise than by the large one alone ({at}; at any one "
        f"threshold {choice.any_threshold:.2%}).\n"
        f"Of the endorsing ones that the large one finds, {choice.lost:.2%} pass."
    )
    click.echo(f"{'source':20} {'texts':>6} {'deferred':>9} {'differ':>7}")
    for source, (n, deferred, apart) in choice.sources.items():
        click.echo(f"{source:20} {n:6} {deferred:9.1%} {apart:7.2%}")
    click.echo(str(to))


@train.command()
@with_options(WORK, DATA, *GENERATIVE)
@VERSION
@JSON
def generative(version: str, as_json: bool, **options: Any) -> None:
    """Tune a language model to answer as BiasAlert does, or resume the run in --work.

    Writes one LoRA adapter, calibrated on validation texts, to the folder `adapter` in --work: a
    detector by the name generative:FOLDER. The run is seeded, and gives the same weights whether or
    not it was interrupted; Ctrl-C and SIGTERM end it after the step, which is saved.
    """
    if options["quotas"] is not None and options["preset"] == "paper":
        raise click.UsageError("--quotas needs --preset own: the paper's recipe has one source.")
    switches = {name: options.pop(name) for name in ("references", "steps", "demonstrations")}
    paths = {name: options.pop(name) for name in ("data", "statements", "quotas", "work")}
    checked = _config_with_data({**paths, "device": options["device"]})
    check_folder(checked.work, "--work")
    from guard.detect.instruction import Instruction
    from guard.train.generative import GenerativeConfig, GenerativeRun

    assert checked.data is not None
    config = GenerativeConfig(
        data=checked.data, work=checked.work, statements=checked.statements,
        quotas=checked.quotas, instruction=Instruction(**switches), **options,
    )  # fmt: skip
    with GenerativeRun(config, partial(click.echo, err=True)) as run:
        with _bar("generative", every=10) as show:
            run.train(show)
        folder = run.write(version)
    _print_path("adapter", folder, as_json)


@train.command()
@with_options(WORK, DATA, STATEMENTS)
@click.option("--first", required=True, metavar="NAME", help="The detector that judges all text.")
@click.option("--later", required=True, metavar="NAME", help="The one that judges doubtful text.")
@click.option(
    "--escalate",
    type=Number(0, 1),
    help="The largest share of windows in doubt, on the half that chooses; by default .2.",
)
@click.option(
    "--differ",
    type=Number(0, 1),
    help="Instead: the largest share of windows decided otherwise than by --later alone.",
)
@click.option(
    "--limit-ms",
    type=Number(0, min_open=True),
    help="Milliseconds that --later has for a window; by default 4000.",
)
@click.option(
    "--windows",
    type=click.IntRange(100, HEAD_WINDOWS),
    default=BAND_WINDOWS,
    show_default=True,
    help="The most windows that both judge.",
)
@click.option(
    "--to",
    type=PATH,
    help="File that receives the band; by default the one that cascade:FIRST,NEXT reads.",
)
@JSON
def band(
    first: str,
    later: str,
    escalate: float | None,
    differ: float | None,
    limit_ms: float | None,
    windows: int,
    to: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Choose which scores of --first are in doubt, so that --later judges those windows, too.

    Both judge validation texts of the sources; their scores are kept in --work, and an interrupted
    command resumes. One half of the texts chooses the band, the other half measures it.
    """
    if escalate is not None and differ is not None:
        raise click.UsageError("--escalate and --differ are two budgets; give one.")
    config = _config_with_data(options)
    check_folder(config.work, "--work")
    from guard.detect.band_files import LIMIT_MS, own_place
    from guard.detect.named import detector_named
    from guard.train import band as choosing

    to = to or own_place(first, later)
    if to.is_dir():
        raise click.UsageError(f"--to {to} is a folder; name a file.")
    check_folder(to.parent, "--to")
    share = choosing.ESCALATED if escalate is None else escalate
    budget = choosing.BandBudget("escalated", share)
    if differ is not None:
        budget = choosing.BandBudget("differ", differ)
    assert config.data is not None
    with _text_counter("windows") as show:
        choice = choosing.train_band(
            config.data, config.statements, config.work, to,
            first=detector_named(first), later=detector_named(later),
            budget=budget, limit_ms=limit_ms or LIMIT_MS, windows=windows, report=show,
        )  # fmt: skip
    if as_json:
        from dataclasses import asdict

        click.echo(json.dumps(without_nan({"file": str(to), **asdict(choice)})))
        return
    click.echo(choosing.band_report(choice))
    click.echo(str(to))


@train.command()
@click.option("--old", type=FILE, required=True, help="The final.pt that --new went on from.")
@click.option("--new", type=FILE, required=True, help="The final.pt of `guard train onward`.")
@click.option(
    "--share", type=Number(0, 1), default=0.7, show_default=True, help="Share of the new weights."
)
@click.option("--work", type=PATH, required=True, help="Folder that receives the run.")
@JSON
def mean(old: Path, new: Path, share: float, work: Path, as_json: bool) -> None:
    """Take the mean of the weights of a run and of the one that it went on from."""
    _needs_training()
    check_folder(work, "--work")
    from guard.train.mean import write_mean as run

    _print_path("final", run(old, new, share, work), as_json)


@train.command("sentence-model")
@click.option("--work", type=PATH, required=True, help="Folder of a finished run.")
@click.option("--to", type=PATH, required=True, help="Folder that receives the model; a new one.")
@JSON
def sentence_model(work: Path, to: Path, as_json: bool) -> None:
    """Save a run's encoder as a model that sentence-transformers loads."""
    _needs_training()
    if to.exists():
        raise click.UsageError(f"--to {to} already exists; name a new folder.")
    final = _finished(work)
    from guard.train.encoder import load_final
    from guard.train.export import export_sentence_model

    nets, content = load_final(final)
    export_sentence_model(nets, to, content["settings"]["base"])
    _print_path("model", to, as_json)


@train.command()
@with_options(DATA)
@click.option("--to", type=PATH, required=True, help="Folder of released weights.")
@click.option(
    "--index", type=PATH, help="Folder of their bias index; with --data, figures are measured anew."
)
@JSON
def card(to: Path, index: Path | None, as_json: bool, **options: Any) -> None:
    """Write the card of released weights again, from the figures beside it.

    With --data and --index, the figures that depend on the scores are first measured on this
    processor. Scale and thresholds stay.
    """
    _needs_training()
    from guard.train.card import card_text as text

    file = to / FIGURES
    if not file.is_file():
        raise click.UsageError(f"{file} does not exist; `guard train release` writes it.")
    stored = _object(file) or {}
    try:
        content = text(stored)
    except (LookupError, TypeError, ValueError, AttributeError):
        raise click.UsageError(
            f"{file} was not written by this version's `guard train release`."
        ) from None
    if (options["data"] is None) != (index is None):
        raise click.UsageError("Measuring needs both --data and --index.")
    if index is not None:
        data = _config_with_data({"work": to, **options}).data
        assert data is not None
        from guard.train.release import measured_again

        figures = dumps(measured_again(stored, data, to, index, partial(click.echo, err=True)))
        content = text(json.loads(figures))
        _write(file, figures + "\n")
    _write(to / CARD, content)
    _print_path("card", to / CARD, as_json)


def _finished(work: Path) -> Path:
    final = work / "final.pt"
    if not final.is_file():
        raise click.UsageError(
            f"{final} does not exist; finish the run, or restore a release: guard train restore "
            f"--work {work}."
        )
    return final


def _embedder(config: TrainConfig) -> Path:
    from guard.train.embedder import train_embedder as run

    with _bar("embedder") as show:
        return run(config, show)


def _encoder(config: TrainConfig) -> Path:
    from guard.train.encoder import train_encoder as run

    with _bar("references" if config.method == "references" else "encoder") as show:
        return run(config, show)


def _release(config: TrainConfig, to: Path, index: Path, version: str) -> str:
    """Release the run in ``config.work``; return the figures as JSON."""
    final = _finished(config.work)
    from guard.train.card import card_text as text
    from guard.train.release import release_weights as export

    figures = dumps(export(config, final, to, index, version, partial(click.echo, err=True)))
    # Made from the stored figures, so that `guard train card` gives the same card.
    _write(to / CARD, text(json.loads(figures)))
    _write(to / FIGURES, figures + "\n")
    return figures


def _is_released(final: Path, to: Path, version: str) -> bool:
    """Whether ``to`` has this version of this run's release; the figures are its last file."""
    from guard.train.checkpoint import final_content as read

    figures = (_object(to / FIGURES) if (to / FIGURES).is_file() else None) or {}
    training = figures.get("training")
    if not isinstance(training, list) or not training or figures.get("version") != version:
        return False
    return bool(training[-1] == json.loads(dumps(read(final)["settings"])))


def _write(path: Path, text: str) -> None:
    from guard.train.checkpoint import replacing_file

    with replacing_file(path) as part:
        part.write_text(text, encoding="utf-8")


@contextmanager
def _text_counter(name: str) -> Iterator[Callable[[int, int], None]]:
    """Show how many of all are done: a bar on a terminal, else a line now and then."""
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

    console = bar_console()
    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console)
    with bar if console.is_terminal else nullcontext():
        task = bar.add_task(name, total=None)

        def show(done: int, total: int) -> None:
            bar.update(task, total=total, completed=done)
            if not console.is_terminal:
                click.echo(f"{name}: {done} of {total}", err=True)

        yield show


@contextmanager
def _bar(name: str, every: int = _LINE) -> Iterator[loop.Show]:
    from rich.progress import Progress, TextColumn, TimeRemainingColumn

    console = bar_console()
    columns = (
        *Progress.get_default_columns()[:3],
        TimeRemainingColumn(),
        TextColumn("{task.fields[loss]}"),
    )
    bar = Progress(*columns, console=console)
    # Even a disabled one would print an empty line elsewhere.
    with bar if console.is_terminal else nullcontext():
        task = bar.add_task(name, total=None, loss="")

        def show(step: loop.TrainingProgress) -> None:
            if step.step % every and not console.is_terminal:
                return
            loss = f"loss {float(step.loss):.3f}"
            bar.update(task, total=step.steps, completed=step.step, loss=loss)
            if not console.is_terminal:
                line = f"{name}: step {step.step} of {step.steps}, {step.seconds:.2f} s, {loss}"
                click.echo(line, err=True)

        yield show


def _print_path(name: str, path: Path, as_json: bool) -> None:
    click.echo(json.dumps({name: str(path)}) if as_json else str(path))


def _object(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _config(options: dict[str, Any]) -> TrainConfig:
    from guard.places import shipped

    if options["data"] is not None and not options["data"].is_dir():
        raise click.UsageError(
            f"--data {options['data']} is not a folder; name the folder of the sources."
        )
    if options.get("statements") is None:
        options["statements"] = shipped("index") / "statements.jsonl"
    _needs_training()
    _check_device(options.get("device", "cpu"))
    if (quotas := options.pop("quotas", None)) is not None:
        options["quotas"] = _source_quotas(quotas)
    return TrainConfig(**options)


def _check_device(device: str) -> None:
    import torch

    try:
        torch.zeros(1, device=device).item()  # `meta` has no numbers
    except (RuntimeError, AssertionError, NotImplementedError, ImportError):
        raise click.UsageError(
            f"--device {device} cannot be used here; name one that PyTorch has, such as cpu."
        ) from None


def _config_with_data(options: dict[str, Any]) -> TrainConfig:
    config = _config(options)
    if config.data is None:
        raise click.UsageError("--data is missing: this step needs the sources' texts.")
    return config


def _source_quotas(path: Path) -> dict[str, int]:
    rows = _object(path)
    wrong = [k for k, v in (rows or {}).items() if k not in QUOTAS or type(v) is not int or v < 0]
    if rows is None:
        what = "it is not a JSON object"
    elif wrong:
        what = f"'{wrong[0]}' is wrong"
    elif not any(rows.values()):
        what = "it gives no source a row"
    else:
        return rows
    raise click.UsageError(
        f"--quotas {path}: {what}; it needs whole numbers of rows of {', '.join(QUOTAS)}."
    )


def _needs_training() -> None:
    from importlib.util import find_spec

    # The extra `local` installs the first two, too.
    for name in ("torch", "transformers", "onnx", "peft"):
        if find_spec(name) is None:
            raise UsageError(f"{name} is not installed; training needs: {install_command('train')}")


def dumps(figures: Any) -> str:
    """Return figures as JSON; nan becomes null."""
    return json.dumps(without_nan(figures), indent=1)
