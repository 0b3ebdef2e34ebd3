"""The options that the commands of ``guard train`` share."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import MISSING, fields
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import click

from guard.cli import Number
from guard.errors import UsageError
from guard.train.config import TrainConfig

PATH = click.Path(path_type=Path)
FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
COUNT = click.IntRange(min=1)
_POSITIVE = Number(0, 1e6, min_open=True)
_DEFAULTS = {f.name: f.default for f in fields(TrainConfig) if f.default is not MISSING}


def setting(*names: str, **attributes: Any) -> Callable[[Any], Any]:
    """Return the option of a field of TrainConfig, with the field's default."""
    field = names[0].split("/")[0].lstrip("-").replace("-", "_")
    return click.option(*names, default=_DEFAULTS[field], show_default=True, **attributes)


def _taught_by(text: str) -> Callable[[Any], Any]:
    return click.option("--taught-by", "teachers", type=FILE, multiple=True, default=(), help=text)


WORK = click.option("--work", type=PATH, required=True, help="Folder of the run's checkpoints.")
DATA = click.option(
    "--data",
    type=PATH,
    help="Folder of the licensed sources, in the layout of benchmarks/detector/README.md; without "
    "it, only texts written for guard are used.",
)
STATEMENTS = click.option(
    "--statements",
    type=FILE,
    help="Statements of the training-time index; by default the shipped ones.",
)
SEED = setting("--seed", type=int, help="All random choices follow from it.")
# How a run computes.
MACHINE = (
    setting("--threads", type=click.IntRange(1, 1024), help="Threads of the processor."),
    setting("--device", help="What to train on, by PyTorch's name: cpu, cuda, cuda:1."),
    setting(
        "--bf16", is_flag=True, help="Compute in bfloat16: twice as fast if the processor has it."
    ),
)
BASE = setting(
    "--base",
    type=click.Choice(["mpnet", "minilm"]),
    help="The base model: all-mpnet-base-v2 (`guard models get mpnet`) or all-MiniLM-L6-v2.",
)
LAYERS = setting("--layers", type=COUNT, help="Number of the base's layers to use, evenly spaced.")
EPOCHS = "Passes over the rows of the quotas."
BATCH_SIZE = setting("--batch-size", type=COUNT, help="Rows of a step.")
MAX_STEPS = setting("--max-steps", type=COUNT, help="Maximum steps of a run.")
CACHE = setting("--cache", type=PATH, help="File of the embedder's vectors, to share between runs.")
QUOTAS = click.option(
    "--quotas",
    type=FILE,
    help="JSON object: the number of rows that an epoch draws from each source.",
)
FROZEN = "Freeze the embeddings and this many of the lowest layers; 0 trains all."
LR = "Highest learning rate of the base."
# The options of the run that trains the fusion with references.
FUSION = (
    STATEMENTS,
    BASE,
    LAYERS,
    setting("--start", type=FILE, help="A final.pt to start from instead of the base model."),
    setting("--context/--no-context", help="Train segments with those before them as context."),
    setting("--epochs", type=_POSITIVE, help=EPOCHS),
    BATCH_SIZE,
    MAX_STEPS,
    CACHE,
    SEED,
    *MACHINE,
)
# The options of the encoder's run.
RUN = (
    *FUSION,
    setting("--frozen", type=click.IntRange(min=0), help=FROZEN),
    setting(
        "--method",
        type=click.Choice(["full", "lora"]),
        help="What to train: all weights, or low-rank adapters and the heads.",
    ),
    setting(
        "--references",
        type=click.Choice(["fused", "none"]),
        help="Whether the fusion sees statements of the index; only `fused` can be released.",
    ),
    QUOTAS,
    _taught_by("A final.pt whose logits are learned beside the labels; if several, their mean."),
    setting("--lr", type=_POSITIVE, help=LR),
    setting("--head-lr", type=_POSITIVE, help="Highest learning rate of the heads."),
)
# The options of a run that goes on from a finished one.
ONWARD = (
    STATEMENTS,
    click.option("--start", type=FILE, required=True, help="The final.pt to go on from."),
    BASE,
    LAYERS,
    click.option("--epochs", type=_POSITIVE, default=1.0, show_default=True, help=EPOCHS),
    BATCH_SIZE,
    MAX_STEPS,
    CACHE,
    click.option("--frozen", type=click.IntRange(min=0), default=4, show_default=True, help=FROZEN),
    QUOTAS,
    _taught_by("A final.pt that is the teacher in place of --start, for a run after another."),
    click.option("--lr", type=_POSITIVE, default=2.5e-5, show_default=True, help=LR),
    SEED,
    *MACHINE,
)
_OF_PRESET = "by default the preset's"
# The options of the adapter's run; None: what the preset sets.
GENERATIVE = (
    click.option(
        "--base",
        required=True,
        help="The model to tune: a name of `guard models list`, a folder, a GGUF file, or a "
        "Hugging Face id in the local cache.",
    ),
    click.option(
        "--preset",
        type=click.Choice(["paper", "own"]),
        default="paper",
        show_default=True,
        help="The BiasAlert paper's recipe, or one that adds guard's own texts and the other "
        "licensed sources.",
    ),
    STATEMENTS,
    QUOTAS,
    click.option("--lr", type=_POSITIVE, help=f"Highest learning rate; {_OF_PRESET}."),
    click.option("--epochs", type=_POSITIVE, help=f"Passes over the rows; {_OF_PRESET}."),
    click.option(
        "--first", type=_POSITIVE,
        help=f"Weight of an answer's first token, Yes or No, in the loss; {_OF_PRESET}.",
    ),
    click.option(
        "--spelled", type=Number(0, 1),
        help=f"Share of the rows that learn the whole answer; {_OF_PRESET}.",
    ),
    MAX_STEPS,
    click.option("--batch-size", type=COUNT, default=16, show_default=True, help="Rows of a step."),
    click.option("--rank", type=COUNT, default=16, show_default=True, help="Rank of the adapters."),
    click.option("--weight-decay", type=Number(0, 10), default=0.05, show_default=True),
    click.option(
        "--warmup", type=Number(0, 1), default=0.1, show_default=True,
        help="Share of the steps over which the learning rate rises.",
    ),
    click.option(
        "--references/--no-references", default=True, help="Show retrieved statements."
    ),
    click.option("--steps/--no-steps", default=True, help="Tell the model how to decide."),
    click.option("--demonstrations/--no-demonstrations", default=True, help="Show examples."),
    click.option(
        "--validation", type=COUNT, default=200, show_default=True,
        help="Most validation texts of each source, for each epoch's figures and the thresholds.",
    ),
    click.option(
        "--tokens", type=COUNT, default=2048, show_default=True,
        help="Most tokens of one pass; fewer take less memory, and change no result.",
    ),
    click.option(
        "--checkpointing", is_flag=True,
        help="Compute states again in the backward pass instead of keeping them: much less memory.",
    ),
    SEED,
    MACHINE[0],
    MACHINE[1],
    click.option(
        "--bf16", is_flag=True,
        help="Keep the base in bfloat16: half the memory, and faster on most GPUs.",
    ),
)  # fmt: skip


def check_folder(folder: Path, option: str) -> None:
    """Raise UsageError if a folder cannot be written; creates no folder."""
    missing = []
    try:
        missing = [place for place in (folder, *folder.parents) if not place.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(
            f"{option} {folder} cannot be written: {error.strerror}; name another folder."
        ) from None
    finally:
        for place in missing:
            with suppress(OSError):
                place.rmdir()
