"""Settings of the encoder's training."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from guard.train.rows import FORMS

BaseName = Literal["mpnet", "minilm"]

# Rows of each source in one epoch: of the encoder's run, and of the run that trains the fusion.
# A third of the second are about invented groups; most of their labels depend on the references. A
# source with fewer rows gives all, or more if REPEATS allows.
_ROWS = {
    **dict.fromkeys(FORMS, (2000, 0)),
    "slurbare": (600, 0),
    "redditbias": (18000, 2500),
    "redditbias_rest": (5400, 0),
    "redditbias_whole": (5400, 0),
    "emgsd": (26000, 2000),
    "emgsd_first": (1500, 0),
    "stereoset": (9200, 800),
    "hearts": (3800, 600),
    "toxigen": (540, 300),
    "bold": (2000, 700),
    "implied": (2500, 700),
    "implicit_hate": (6000, 1500),
    "explicit_hate": (900, 150),
    "not_hate": (6000, 1200),
    "seegull": (1500, 300),
    "own": (3000, 900),
    "negatives": (11000, 2500),
    "pairs": (14000, 3500),
    "framed": (7000, 800),
    "listed": (4000, 400),
    "carried": (1800, 300),
    "invented": (3500, 8500),
    "renamed": (700, 800),
    "bare": (350, 850),
}
QUOTAS = {source: rows for source, (rows, _) in _ROWS.items()}
REFERENCE_QUOTAS = {source: rows for source, (_, rows) in _ROWS.items() if rows}
# Of a run that goes on from a release: half of its rows are of forms, which the release has not
# seen, half of a fifth of the sources.
ONWARD_QUOTAS = {
    source: rows if source in FORMS else rows // 5 for source, rows in QUOTAS.items()
} | {"invented": 1500, "renamed": 300, "bare": 200}
EMBEDDER_EPOCHS = 3
#: The most windows that both detectors of a cascade judge, to train its head.
HEAD_WINDOWS = 12_000
#: The most windows that choose the band of a cascade of two detectors.
BAND_WINDOWS = 4_000
#: The largest share of validation texts that a cascade may decide otherwise than its last detector.
MOST_DIFFERING = 0.025
# Small, valuable sources, which an epoch may show more than once.
REPEATS: dict[str, int] = {
    **{"redditbias": 3, "redditbias_rest": 2, "stereoset": 2, "carried": 2},
    **dict.fromkeys(FORMS, 2),
}


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """One run. Every random choice follows from ``seed`` and the step, so a run can be resumed.

    Attributes:
        work: folder of the checkpoint and the final weights.
        cache: file of the embedder's vectors of the texts; by default in ``work``.
        data: folder of the licensed sources; without it only texts written for guard are used.
        statements: file of the bias index's statements, which make the training-time index.
        base: the published model that the run starts from.
        layers: how many of the base's layers are used, evenly from the first to the last.
        frozen: how many of the lowest layers are not trained, nor the embeddings if it is not 0.
        start: final weights to start from instead of the base.
        teachers: finished runs whose mean logit of a row is learned beside its label, but not of
            the rows of forms.
        embedder: file of ``guard train embedder``, which the sentence vectors learn from, and the
            start of the base ``minilm``; without it the published all-MiniLM-L6-v2.
        method: what is trained. ``full``: all weights; ``lora``: adapters and heads;
            ``references``: the fusion alone, after the map to sentence vectors is fitted again;
            ``onward``: the network of ``start`` without the map to sentence vectors and the
            fusion; its sentence vectors keep close to those of the first teacher.
        references: whether the fusion sees statements of the training-time index.
        context: whether a segment is shown with those before it.
        misspelt: share of the rows that are shown with a spelling mistake.
        foreign: share of the segments without context that get unrelated sentences as context.
        epochs, max_steps: the length of the run; an epoch has the rows of ``quotas``.
        batch_size: rows of a step.
        lr, lora_lr, head_lr: highest learning rates of the base, of adapters and of the heads.
        lora_rank: rank of the adapters.
        distill: weight of the distance to the embedder's vectors in the loss.
        weight_decay: that of AdamW, on matrices only.
        warmup: share of the steps over which the learning rates rise.
        dropout: share of the heads' inputs that is left out.
        k, floor: most references of a text, and the least cosine of one.
        max_context_tokens: the most tokens of context in an input.
        checkpoint_every: steps between checkpoints.
        threads: threads of torch.
        device: what torch trains on, such as ``cpu`` or ``cuda``.
        bf16: whether the base's pass is computed in bfloat16.
        invented: rows about invented groups that are made up.
        quotas: rows that an epoch draws from each source.
    """

    work: Path
    cache: Path | None = None
    data: Path | None = None
    statements: Path = Path("index/statements.jsonl")
    base: BaseName = "mpnet"
    layers: int | None = None
    frozen: int = 0
    start: Path | None = None
    teachers: tuple[Path, ...] = ()
    embedder: Path | None = None
    method: Literal["full", "lora", "references", "onward"] = "full"
    references: Literal["fused", "none"] = "fused"
    context: bool = True
    misspelt: float = 0.1
    foreign: float = 0.15
    seed: int = 17
    epochs: float = 2.0
    max_steps: int | None = None
    batch_size: int = 96
    lr: float = 5e-5
    lora_lr: float = 5e-4
    lora_rank: int = 16
    head_lr: float = 4e-4
    distill: float = 3.0
    weight_decay: float = 0.05
    warmup: float = 0.06
    dropout: float = 0.1
    k: int = 5
    floor: float = 0.4
    max_context_tokens: int = 64
    checkpoint_every: int = 200
    threads: int = 2
    device: str = "cpu"
    bf16: bool = False
    invented: int = 6000
    quotas: dict[str, int] = field(default_factory=lambda: dict(QUOTAS))

    def vectors(self) -> Path:
        """Return the file of the vectors of the texts, one for each network that makes them."""
        name = file_hash(self.teachers[0] if self.method == "onward" else self.embedder)
        return self.cached("" if name is None else f"-{name}")

    def cached(self, name: str) -> Path:
        """Return the vectors' file with ``name`` behind its stem; without a name, that file."""
        file = self.cache or self.work / "vectors.npz"
        return file.with_stem(f"{file.stem}{name}")

    def described(self) -> dict[str, Any]:
        """Return the settings that shape the result, for the checkpoint and the model card."""
        settings = {k: v for k, v in asdict(self).items() if k not in _PLACES}
        files = {"start": file_hash(self.start), "embedder": file_hash(self.embedder)}
        return settings | files | {"teachers": [*map(file_hash, self.teachers)]}

    def for_embedder(self, work: Path, epochs: int = EMBEDDER_EPOCHS) -> TrainConfig:
        """Return the embedder's run, on the same data and machine."""
        return replace(self, work=work, epochs=epochs, batch_size=64, checkpoint_every=100)

    def references_after(self, final: Path, work: Path) -> TrainConfig:
        """Return the next run: the network of ``final`` is frozen, the fusion is trained."""
        return replace(
            self,
            work=work,
            cache=self.cache or self.work / "vectors.npz",
            start=final,
            teachers=(),
            method="references",
            head_lr=6e-4,
            invented=10500,
            quotas=dict(REFERENCE_QUOTAS),
        )

    def onward_from(self, final: Path, work: Path) -> TrainConfig:
        """Return a run that goes on from the finished run ``final``.

        The first teacher, by default ``final``, also gives the goals of the sentence vectors.
        """
        return replace(
            self,
            work=work,
            cache=self.cache or self.work / "vectors.npz",
            start=final,
            teachers=self.teachers or (final,),
            method="onward",
            head_lr=5e-5,
            max_context_tokens=24,
            checkpoint_every=50,
        )

    def as_described(self, settings: Mapping[str, Any]) -> TrainConfig:
        """Return this run's paths with the settings of another run; unknown ones are ignored."""
        known = {f.name for f in fields(self)} - _PLACES - _FILES
        return replace(self, **{k: v for k, v in settings.items() if k in known})


_PLACES = {"work", "cache", "data", "statements", "checkpoint_every", "threads", "device"}
_FILES = {"start", "teachers", "embedder"}


def file_hash(path: Path | None) -> str | None:
    """Return the start of a file's hash."""
    return None if path is None else hashlib.sha256(path.read_bytes()).hexdigest()[:12]
