"""Settings of a training run."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

# Rows a source gives to one epoch; one with fewer gives all it has, one without a quota nothing.
# What a source weighs is decided here and nowhere else.
QUOTAS: dict[str, int] = {
    "redditbias": 7400,
    "redditbias_rest": 700,
    "emgsd": 6000,
    "emgsd_first": 500,
    "stereoset": 2500,
    "hearts": 2000,
    "toxigen": 580,
    "bold": 2600,
    "implied": 2000,
    "implicit_hate": 2000,
    "explicit_hate": 400,
    "not_hate": 2500,
    "seegull": 800,
    "own": 1700,
    "negatives": 1500,
    "pairs": 1000,
    "invented": 3600,
    "renamed": 600,
    "bare": 500,
}
# Sources small and dear enough to be seen more than once an epoch.
REPEATS: dict[str, int] = {"own": 2, "negatives": 3, "pairs": 3}


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """One run. Every random choice follows from ``seed`` and the step, so a run can be resumed.

    ``rows`` limits the rows seen in one epoch (the quotas shrink in proportion), ``max_steps``
    the run. ``data`` holds the licensed sources; without it only texts written for guard are
    used, as the tests do. ``bf16`` runs the encoder's pass in bfloat16, twice as fast on processors
    that have it; weights, losses and the optimiser stay in float32. ``work`` receives the
    checkpoint and the final weights, ``cache`` (a file, by default in ``work``) the base model's
    vectors of the texts.
    """

    work: Path
    cache: Path | None = None
    data: Path | None = Path("../shared/data")
    statements: Path = Path("index/statements.jsonl")
    method: Literal["full", "lora"] = "full"
    seed: int = 17
    epochs: float = 4.0
    rows: int | None = None
    max_steps: int | None = None
    batch_size: int = 32
    lr: float = 1e-4
    lora_lr: float = 5e-4
    lora_rank: int = 16
    head_lr: float = 3e-4
    weight_decay: float = 0.05
    warmup: float = 0.06
    dropout: float = 0.1
    k: int = 5
    floor: float = 0.4
    max_context_tokens: int = 64
    checkpoint_every: int = 200
    threads: int = 2
    bf16: bool = True
    invented: int = 14000
    quotas: dict[str, int] = field(default_factory=lambda: dict(QUOTAS))

    def described(self) -> dict[str, Any]:
        """Return the settings that shape the result, for the checkpoint and the model card."""
        left_out = {"work", "cache", "data", "statements", "checkpoint_every", "threads"}
        return {k: v for k, v in asdict(self).items() if k not in left_out}
