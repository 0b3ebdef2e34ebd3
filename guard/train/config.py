"""Settings of the encoder's training."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

BaseName = Literal["mpnet", "minilm"]

# Rows that a source gives to one epoch of the encoder, and to one of the run that retrains the
# fusion: half of that is about invented groups, of which only the references say anything. A source
# with fewer rows gives all it has. Only these quotas decide how much a source counts.
_ROWS = {
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
# Small, valuable sources, which an epoch may show more than once.
REPEATS: dict[str, int] = {"redditbias": 3, "redditbias_rest": 2, "stereoset": 2, "carried": 2}


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """One run. Every random choice follows from ``seed`` and the step, so a run can be resumed.

    ``data`` holds the licensed sources; without it only texts written for guard are used.
    ``statements`` are those of the bias index. ``work`` receives the checkpoint and the final
    weights, ``cache`` (a file, by default in ``work``) the teacher's vectors of the texts.

    ``base`` is the published model that the run starts from, of which ``layers`` are kept, evenly
    from the first to the last; the embeddings and the lowest ``frozen`` of them are not trained.
    ``start`` are final weights to start from instead. ``embedder`` is the file of ``guard train
    embedder``, the teacher of the sentence vectors, with the weight ``distill`` in the loss
    (without it the published all-MiniLM-L6-v2); the base ``minilm`` starts from it too.
    ``method="lora"`` trains adapters and heads, ``method="references"`` only the fusion, after the
    map to sentence vectors is fitted again. ``rows`` limits the rows of one epoch (the quotas
    shrink in proportion), ``max_steps`` the run. ``bf16`` runs the encoder's pass in bfloat16.

    Switches for ablations: ``references="none"`` shows no statements of the index,
    ``contrast=False`` neither keeps minimal pairs in one batch nor orders their logits,
    ``bags=False`` learns the segments of a text separately, ``context=False`` shows no context.
    ``foreign`` is the share of texts without context that get unrelated sentences as context.
    """

    work: Path
    cache: Path | None = None
    data: Path | None = None
    statements: Path = Path("index/statements.jsonl")
    base: BaseName = "mpnet"
    layers: int | None = None
    frozen: int = 4
    start: Path | None = None
    embedder: Path | None = None
    method: Literal["full", "lora", "references"] = "full"
    references: Literal["fused", "none"] = "fused"
    contrast: bool = True
    bags: bool = True
    context: bool = True
    foreign: float = 0.15
    seed: int = 17
    epochs: float = 1.0
    rows: int | None = None
    max_steps: int | None = None
    batch_size: int = 48
    lr: float = 4e-5
    lora_lr: float = 5e-4
    lora_rank: int = 16
    head_lr: float = 3e-4
    distill: float = 3.0
    weight_decay: float = 0.05
    warmup: float = 0.06
    dropout: float = 0.1
    k: int = 5
    floor: float = 0.4
    max_context_tokens: int = 64
    checkpoint_every: int = 200
    threads: int = 2
    bf16: bool = False
    invented: int = 6000
    quotas: dict[str, int] = field(default_factory=lambda: dict(QUOTAS))

    def vectors(self) -> Path:
        """Return the file of the teacher's vectors, one for each embedder."""
        file = self.cache or self.work / "vectors.npz"
        teacher = _hash(self.embedder)
        return file if teacher is None else file.with_stem(f"{file.stem}-{teacher}")

    def described(self) -> dict[str, Any]:
        """Return the settings that shape the result, for the checkpoint and the model card."""
        found = {k: v for k, v in asdict(self).items() if k not in _PLACES}
        return found | {"start": _hash(self.start), "embedder": _hash(self.embedder)}

    def references_after(self, final: Path, work: Path) -> TrainConfig:
        """Return the next run: the network of ``final`` is frozen, the fusion is trained."""
        return replace(
            self,
            work=work,
            cache=self.cache or self.work / "vectors.npz",
            start=final,
            method="references",
            head_lr=6e-4,
            invented=10500,
            quotas=dict(REFERENCE_QUOTAS),
        )

    def as_described(self, settings: Mapping[str, Any]) -> TrainConfig:
        """Return this run's paths with the settings of another run; unknown ones are ignored."""
        known = {f.name for f in fields(self)} - _PLACES - {"start", "embedder"}
        return replace(self, **{k: v for k, v in settings.items() if k in known})


_PLACES = {"work", "cache", "data", "statements", "checkpoint_every", "threads"}


def _hash(path: Path | None) -> str | None:
    """Return the start of a file's hash."""
    return None if path is None else hashlib.sha256(path.read_bytes()).hexdigest()[:12]
