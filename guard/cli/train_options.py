"""The options that the commands of ``guard train`` share."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import MISSING, fields
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import click

from guard.errors import UsageError
from guard.train.config import TrainConfig

PATH = click.Path(path_type=Path)
FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
COUNT = click.IntRange(min=1)
_POSITIVE = click.FloatRange(0, min_open=True)
_DEFAULTS = {f.name: f.default for f in fields(TrainConfig) if f.default is not MISSING}


def setting(*names: str, **attributes: Any) -> Callable[[Any], Any]:
    """Return the option of a field of TrainConfig, with the field's default."""
    field = names[0].split("/")[0].lstrip("-").replace("-", "_")
    return click.option(*names, default=_DEFAULTS[field], show_default=True, **attributes)


WORK = click.option("--work", type=PATH, required=True, help="Folder of the run's checkpoints.")
DATA = click.option(
    "--data",
    type=PATH,
    help="Folder of the licensed sources, as benchmarks/detector/README.md lays it out; without "
    "it, texts written for guard alone.",
)
STATEMENTS = click.option(
    "--statements",
    type=FILE,
    help="Statements of the training-time index; by default the shipped ones.",
)
THREADS = setting("--threads", type=COUNT)
SEED = setting("--seed", type=int)
BF16 = setting(
    "--bf16", is_flag=True, help="Compute in bfloat16: twice as fast where the processor has it."
)
# What shapes the encoder's run.
RUN = (
    STATEMENTS,
    setting(
        "--base",
        type=click.Choice(["mpnet", "minilm"]),
        help="The published model to begin with: all-mpnet-base-v2 (`guard models get mpnet`) or "
        "all-MiniLM-L6-v2.",
    ),
    setting("--layers", type=COUNT, help="Keep so many of the base's layers, evenly; else all."),
    setting(
        "--frozen",
        type=click.IntRange(min=0),
        help="Leave the embeddings and so many of the lowest layers as they are; 0 trains all.",
    ),
    setting("--start", type=FILE, help="A final.pt to begin with in place of the base model."),
    setting(
        "--method",
        type=click.Choice(["full", "lora"]),
        help="What learns: every weight, or low-rank adapters and the heads.",
    ),
    setting(
        "--references",
        type=click.Choice(["fused", "none"]),
        help="Whether the network sees statements of the index; only `fused` can be released.",
    ),
    setting("--contrast/--no-contrast", help="Order the halves of minimal pairs within a batch."),
    setting("--bags/--no-bags", help="Let the highest segment of a text bear its label."),
    setting("--context/--no-context", help="Show a segment with those before it."),
    setting("--epochs", type=_POSITIVE),
    setting("--rows", type=COUNT, help="Rows an epoch sees at most."),
    setting("--max-steps", type=COUNT, help="Steps of the whole run at most."),
    click.option(
        "--quotas",
        type=FILE,
        help="JSON object: rows that an epoch draws from each source.",
    ),
    setting("--lr", type=_POSITIVE),
    setting("--head-lr", type=_POSITIVE),
    setting("--cache", type=PATH, help="File of the teacher's vectors, to share between runs."),
    SEED,
    THREADS,
    BF16,
)


def check_folder(folder: Path, option: str) -> None:
    """Raise UsageError where nothing can be written to a folder, before the work; leaves none."""
    made = []
    try:
        made = [place for place in (folder, *folder.parents) if not place.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(
            f"{option} {folder} cannot be written: {error.strerror}; name another folder."
        ) from None
    finally:
        for place in made:
            with suppress(OSError):
                place.rmdir()
