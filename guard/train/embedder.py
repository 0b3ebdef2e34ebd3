"""Fine-tunes the base model as an embedder, so that a post is near the statement that it implies.

The base finds statements that share a text's words; implicit bias shares few of them. Posts of
the implicit-hate corpus come with the statement they imply, which teaches the rest. The loop is the
encoder's, not that of sentence-transformers: its losses move both sides, and here the published
vectors stay in place.
"""

from __future__ import annotations

import random
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from guard.errors import UsageError
from guard.train import checkpoint
from guard.train.base import (
    base_autocast,
    base_model,
    base_tokens,
    padded_inputs,
    pooled_vectors,
    text_embedder,
)
from guard.train.config import TrainConfig
from guard.train.loop import Show, TrainingPlan, run_training
from guard.train.retrieval import implied_pairs
from guard.train.rows import fold

_LR, _WARMUP = 5e-5, 0.1
# Divides the cosines of the contrast.
_TEMPERATURE = 0.05
# The weight of the loss that keeps statements near their vectors in the base model, which retrieves
# plain statements well already.
_ANCHOR = 10.0


# The settings that shape the result.
_SHAPING = ("seed", "epochs", "batch_size", "bf16")


def contrast_loss(posts: Tensor, statements: Tensor, same: Tensor, temperature: float) -> Tensor:
    """Return the symmetric InfoNCE loss of n pairs (van den Oord et al. 2018, equation 4).

    ``posts`` and ``statements`` (n, d) have norm 1; ``same`` (n, n) is true where two statements
    are one, so that none is pushed away from its own copy.
    """
    logits = posts @ statements.T / temperature
    own = torch.eye(len(logits), dtype=torch.bool, device=logits.device)
    logits = logits.masked_fill(same & ~own, -1e4)
    goal = torch.arange(len(logits), device=logits.device)
    return (F.cross_entropy(logits, goal) + F.cross_entropy(logits.T, goal)) / 2


def train_embedder(config: TrainConfig, progress: Show | None = None) -> Path:
    """Train, or resume from the work folder's checkpoint; return the path of the weights.

    A finished run is not repeated. ``config`` is that of :meth:`TrainConfig.for_embedder`.
    """
    final = config.work / "embedder.pt"
    described = {name: getattr(config, name) for name in _SHAPING}
    if checkpoint.load_run(final, described, {"model"}) is not None:
        return final
    torch.set_num_threads(config.threads)
    assert config.data is not None
    learned = implied_pairs(config.data, validating=False)
    if len(learned) < config.batch_size:
        raise UsageError(
            f"{config.data} holds {len(learned)} posts to learn from, fewer than a batch of "
            f"{config.batch_size}."
        )
    tokens = base_tokens("minilm")
    texts = sorted({t for p in learned for t in (p.post, p.statement)})
    anchors = dict(
        zip(
            texts,
            torch.from_numpy(text_embedder(device=config.device)(texts)).to(config.device),
            strict=True,
        )
    )
    torch.manual_seed(config.seed)
    model = base_model("minilm").to(config.device)
    optimiser = torch.optim.AdamW(model.parameters(), _LR, weight_decay=0.01)
    per_epoch = len(learned) // config.batch_size
    settings = described | {"pairs": len(learned)}

    def step_loss(step: int) -> Tensor:
        order = random.Random(f"{config.seed}:{step // per_epoch}").sample(
            range(len(learned)), len(learned)
        )
        begin = step % per_epoch * config.batch_size
        batch = [learned[i] for i in order[begin : begin + config.batch_size]]
        sides = [[p.post for p in batch], [p.statement for p in batch]]
        # Apart, since a statement padded to a post's length costs as much as a post.
        inputs = [padded_inputs([tokens.encode(t)[0] for t in some], tokens.pad) for some in sides]
        with base_autocast(config.device, config.bf16):
            posts, statements = (
                pooled_vectors(model, *(part.to(config.device) for part in one)).float()
                for one in inputs
            )
        names = [fold(p.statement) for p in batch]
        same = torch.tensor([[a == b for b in names] for a in names]).to(config.device)
        goals = torch.stack([anchors[t] for t in sides[1]])
        held = 1 - (statements * goals).sum(1).mean()
        # Posts move to the base's vectors of their statements. These hardly move, or plain
        # statements would retrieve each other worse.
        return contrast_loss(posts, goals, same, _TEMPERATURE) + _ANCHOR * held

    plan = TrainingPlan(
        round(per_epoch * config.epochs), _WARMUP, config.seed, config.checkpoint_every
    )
    file = config.work / checkpoint.NAME
    with checkpoint.alone_at(final):
        run_training(model, optimiser, plan, step_loss, file, settings, progress)
        checkpoint.save_content(final, {"model": model.state_dict(), "settings": settings})
        file.unlink(missing_ok=True)
    return final
