"""Settings of a training run."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from guard.train.base import BaseName

# Rows a source gives to one epoch; one with fewer gives all it has, one without a quota nothing.
# What a source weighs is decided here and nowhere else.
QUOTAS: dict[str, int] = {
    "redditbias": 14600,
    "redditbias_rest": 3500,
    "emgsd": 13000,
    "emgsd_first": 700,
    "stereoset": 6900,
    "hearts": 2300,
    "toxigen": 540,
    "bold": 1200,
    "implied": 1500,
    "implicit_hate": 4500,
    "explicit_hate": 700,
    "not_hate": 4500,
    "seegull": 1000,
    "own": 2500,
    "negatives": 8000,
    "pairs": 10500,
    "framed": 4500,
    "listed": 2500,
    "carried": 1800,
    "invented": 3000,
    "renamed": 600,
    "bare": 300,
}
# Sources small and dear enough to be seen more than once an epoch.
REPEATS: dict[str, int] = {"redditbias": 2, "redditbias_rest": 2, "stereoset": 2, "carried": 2}


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """One run. Every random choice follows from ``seed`` and the step, so a run can be resumed.

    ``rows`` limits the rows seen in one epoch (the quotas shrink in proportion), ``max_steps``
    the run. ``data`` holds the licensed sources; without it only texts written for guard are
    used, as the tests do. ``bf16`` runs the encoder's pass in bfloat16, twice as fast on processors
    that have it; weights, losses and the optimiser stay in float32. ``work`` receives the
    checkpoint and the final weights, ``cache`` (a file, by default in ``work``) the base model's
    vectors of the texts.

    ``base`` is the published model that the run begins with, of which ``layers`` are kept, evenly
    from the first to the last; the embeddings and the lowest ``frozen`` of them stay as they are.

    ``embedder`` is the file of ``guard train embedder``: all-MiniLM-L6-v2 as it finds more of what
    is implied, to hold sentence vectors to, and to begin with unless ``begin="base"`` or another
    ``base`` is named. ``start`` are final weights to begin with in place of either; ``distill``
    weighs how closely sentence vectors are held to those of all-MiniLM-L6-v2.

    ``method="frozen"`` leaves the base as it is and trains the heads, ``"fusion"`` trains what the
    references change and nothing of the network. ``references="text"`` writes the references'
    words into the input, ``"none"`` leaves them out; what ships is ``"fused"``.
    ``learn="verdict"`` lets the verdict alone shape the shared pass, and the other heads read what
    it leaves. ``without`` names RedditBias dimensions whose group no training text or statement
    may name. ``contrast`` keeps minimal pairs in one batch and orders their logits; ``bags`` keeps
    the segments of a text in one batch, whose highest bears its label; ``whole`` shows comments
    uncut, as they were labelled, so that there are no such segments, and EMGSD's pairs of
    sentences in one piece too; ``foreign`` is the share of texts without a predecessor that are
    shown behind sentences they have nothing to do with; ``context=False`` shows no text any;
    ``teachers`` are final weights to whose mean verdict a run's own is held, with weight ``teach``,
    on the sources' texts and on mixtures of two, ``mixtures`` for each row of a batch.
    """

    work: Path
    cache: Path | None = None
    data: Path | None = Path("../shared/data")
    statements: Path = Path("index/statements.jsonl")
    method: Literal["full", "lora", "frozen", "fusion"] = "full"
    references: Literal["fused", "text", "none"] = "fused"
    without: tuple[str, ...] = ()
    base: BaseName = "mpnet"
    layers: int | None = None
    frozen: int = 4
    seed: int = 17
    epochs: float = 1.0
    rows: int | None = None
    max_steps: int | None = None
    batch_size: int = 48
    lr: float = 3e-5
    lora_lr: float = 5e-4
    lora_rank: int = 16
    head_lr: float = 3e-4
    distill: float = 3.0
    start: Path | None = None
    embedder: Path | None = None
    begin: Literal["embedder", "base"] = "embedder"
    weight_decay: float = 0.05
    warmup: float = 0.06
    dropout: float = 0.1
    k: int = 5
    floor: float = 0.4
    max_context_tokens: int = 64
    checkpoint_every: int = 200
    threads: int = 2
    bf16: bool = False
    learn: Literal["all", "verdict"] = "all"
    contrast: bool = True
    bags: bool = True
    whole: bool = False
    context: bool = True
    foreign: float = 0.15
    teachers: tuple[Path, ...] = ()
    teach: float = 2.0
    mixtures: float = 0.5
    invented: int = 6000
    quotas: dict[str, int] = field(default_factory=lambda: dict(QUOTAS))

    def vectors(self) -> Path:
        """Return the file of the base model's vectors, one for each embedder."""
        file = self.cache or self.work / "vectors.npz"
        return file if self.embedder is None else file.with_stem(f"{file.stem}-{self.embedded()}")

    def embedded(self) -> str:
        """Return the start of the embedder's hash, empty for the published base."""
        if self.embedder is None:
            return ""
        return _hashed(self.embedder)

    def begun(self) -> Path | None:
        """Return the file of the embedder that the run begins with, None for a published base."""
        return self.embedder if self.begin == "embedder" and self.base == "minilm" else None

    def described(self) -> dict[str, Any]:
        """Return the settings that shape the result, for the checkpoint and the model card."""
        left_out = {"work", "cache", "data", "statements", "checkpoint_every", "threads"}
        found = {k: v for k, v in asdict(self).items() if k not in left_out}
        return found | {
            "teachers": [_hashed(p) for p in self.teachers],
            "start": self.start and self.start.parent.name,
            "embedder": self.embedded(),
            "without": list(self.without),
        }


def _hashed(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]
