"""The options that the commands of ``guard train`` share."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile

import click

from guard.errors import UsageError
from guard.evaluate.terms import DIMENSIONS

PATH = click.Path(path_type=Path)
FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
COUNT = click.IntRange(min=1)
SHARED = (
    click.option("--work", type=PATH, required=True, help="Folder of the run's checkpoints."),
    click.option(
        "--data",
        type=PATH,
        help="Folder of the licensed sources, as benchmarks/detector/README.md lays it out; "
        "without it, texts written for guard alone.",
    ),
    click.option(
        "--statements",
        type=FILE,
        help="Statements of the training-time index; by default the shipped ones.",
    ),
    click.option("--cache", type=PATH, help="File of the base model's vectors."),
    click.option(
        "--embedder",
        type=FILE,
        help="The embedder.pt of `guard train embedder`, in place of the published base.",
    ),
    click.option("--threads", type=COUNT, default=2, show_default=True),
)
SEED = click.option("--seed", type=int, default=17, show_default=True)
BF16 = click.option(
    "--bf16", is_flag=True, help="Compute in bfloat16: twice as fast where the processor has it."
)
RUN = (
    SEED,
    click.option(
        "--base",
        type=click.Choice(["minilm", "mpnet"]),
        default="minilm",
        show_default=True,
        help="The published model to begin with: all-MiniLM-L6-v2, or all-mpnet-base-v2 "
        "(`guard models get mpnet`).",
    ),
    click.option(
        "--layers", type=COUNT, help="Keep so many of the base's layers, evenly; by default all."
    ),
    click.option(
        "--frozen",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help="Leave the embeddings and so many of the lowest layers as they are.",
    ),
    click.option(
        "--method",
        type=click.Choice(["full", "lora", "frozen", "fusion"]),
        default="full",
        show_default=True,
        help="What learns: every weight; adapters and heads; the heads; what references change.",
    ),
    click.option(
        "--references",
        type=click.Choice(["fused", "text", "none"]),
        default="fused",
        show_default=True,
        help="How references reach the network; only `fused` can be released.",
    ),
    click.option(
        "--learn",
        type=click.Choice(["all", "verdict"]),
        default="all",
        show_default=True,
        help="What shapes the shared pass: every head, or the verdict's alone (--references none).",
    ),
    click.option(
        "--contrast/--no-contrast",
        default=True,
        show_default=True,
        help="Order the halves of minimal pairs within a batch.",
    ),
    click.option(
        "--bags/--no-bags",
        default=True,
        show_default=True,
        help="Let the highest segment of a text bear its label.",
    ),
    click.option("--whole", is_flag=True, help="Learn comments uncut, not segment by segment."),
    click.option(
        "--foreign",
        type=click.FloatRange(0, 1),
        default=0.25,
        show_default=True,
        help="Share of lone texts shown behind sentences they have nothing to do with.",
    ),
    click.option(
        "--without",
        multiple=True,
        type=click.Choice(DIMENSIONS),
        help="Leave out every text that names this RedditBias dimension's group; repeatable.",
    ),
    click.option(
        "--epochs", type=click.FloatRange(0, min_open=True), default=2.0, show_default=True
    ),
    click.option(
        "--start",
        type=FILE,
        help="A final.pt to begin with in place of the base model.",
    ),
    click.option(
        "--begin",
        type=click.Choice(["embedder", "base"]),
        default="embedder",
        show_default=True,
        help="Begin with the --embedder, or with the published base and hold only the sentence "
        "vectors to it.",
    ),
    click.option(
        "--distill",
        type=click.FloatRange(0),
        default=6.0,
        show_default=True,
        help="How closely sentence vectors are held to the base model's.",
    ),
    click.option(
        "--teachers",
        multiple=True,
        type=FILE,
        help="A final.pt to whose verdict, or the mean of several, the run is held; repeatable.",
    ),
    click.option(
        "--teach",
        type=click.FloatRange(0, min_open=True),
        default=2.0,
        show_default=True,
        help="How much the teachers' verdict counts, beside 1.5 of the labels.",
    ),
    click.option(
        "--mixtures",
        type=click.FloatRange(0, 4),
        default=0.5,
        show_default=True,
        help="Mixtures of two texts that the teachers judge, for each row of a batch.",
    ),
    click.option("--rows", type=COUNT, help="Rows an epoch sees at most."),
    BF16,
    click.option(
        "--quotas",
        type=FILE,
        help="JSON object: rows that an epoch draws from each source, as a card's figures.json "
        "keeps those of every stage.",
    ),
    click.option("--max-steps", type=COUNT, help="Steps of the whole run at most."),
    click.option(
        "--lr", type=click.FloatRange(0, min_open=True), default=1.4e-4, show_default=True
    ),
    click.option(
        "--head-lr", type=click.FloatRange(0, min_open=True), default=3e-4, show_default=True
    ),
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
