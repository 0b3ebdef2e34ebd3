"""Fine-tunes the base model as an embedder: a post near what it implies.

The base finds statements that share a text's words; implicit bias shares few of them. Posts of
the implicit-hate corpus come with the statement they imply, which teaches the rest.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from guard.detect.tokens import WindowTokens
from guard.train import checkpoint
from guard.train.base import Embed, base_folder, base_model, pooled, teacher
from guard.train.corpus import VALIDATION_SHARE, eval_folds
from guard.train.groups import group_type
from guard.train.rows import fold, share
from guard.train.sources import read_jsonl
from guard.verdict import BiasType

NAME = "embedder.pt"
_MANY = 5


class Implied(NamedTuple):
    """A post with the statement it implies, and of whom."""

    post: str
    statement: str
    group: str
    bias_type: BiasType


@dataclass(frozen=True, slots=True)
class EmbedderConfig:
    """One run; every random choice follows from ``seed`` and the step.

    ``anchor`` weighs how closely vectors are held to the base model's, so that what it finds
    already is not lost; ``temperature`` divides the cosines of the contrast.
    """

    work: Path
    data: Path = Path("../shared/data")
    seed: int = 17
    epochs: int = 3
    batch_size: int = 64
    lr: float = 5e-5
    warmup: float = 0.1
    temperature: float = 0.05
    anchor: float = 1.0
    threads: int = 2
    bf16: bool = False
    checkpoint_every: int = 100


def pairs(data: Path, *, validating: bool) -> list[Implied]:
    """Return the posts of one side of the split that imply something of a group of known type.

    The split is that of the corpus; texts of evaluation files are left out.
    """
    forbidden = eval_folds(data)
    found = []
    for item in read_jsonl(data / "implicit_hate" / "implied.jsonl"):
        post, statement = item["post"].strip(), item["implied_statement"].strip()
        kind = group_type(item["target"])
        side = share(f"implicit_hate:{fold(post)}", "validation") < VALIDATION_SHARE
        if kind is None or side != validating or len(statement) <= 8:
            continue
        if fold(post) not in forbidden and fold(statement) not in forbidden:
            found.append(Implied(post, statement, fold(item["target"]), kind))
    return found


def contrast(posts: Tensor, statements: Tensor, same: Tensor, temperature: float) -> Tensor:
    """Return the symmetric InfoNCE loss of n pairs (van den Oord et al. 2018, equation 4).

    ``posts`` and ``statements`` (n, d) have norm 1; ``same`` (n, n) is true where two statements
    are one, so that none is pushed away from its own copy.
    """
    logits = posts @ statements.T / temperature
    own = torch.eye(len(logits), dtype=torch.bool)
    logits = logits.masked_fill(same & ~own, -1e4)
    goal = torch.arange(len(logits))
    return (F.cross_entropy(logits, goal) + F.cross_entropy(logits.T, goal)) / 2


def train(
    config: EmbedderConfig, progress: Callable[[int, int, float], None] | None = None
) -> Path:
    """Train, or go on where the work folder's checkpoint stopped; return the weights' path.

    ``progress`` is called after every step with the step (from 1), their number and the loss.
    """
    torch.set_num_threads(config.threads)
    learned = pairs(config.data, validating=False)
    tokens = WindowTokens(base_folder() / "tokenizer.json", 0)
    texts = sorted({t for p in learned for t in (p.post, p.statement)})
    anchors = dict(zip(texts, torch.from_numpy(teacher(tokens)(texts)), strict=True))
    torch.manual_seed(config.seed)
    model = base_model()
    optimiser = torch.optim.AdamW(model.parameters(), config.lr, weight_decay=0.01)
    per_epoch = len(learned) // config.batch_size
    steps = per_epoch * config.epochs
    warmup = max(1, round(config.warmup * steps))
    left_out = ("work", "data", "threads", "checkpoint_every")
    settings = {k: getattr(config, k) for k in config.__slots__ if k not in left_out}
    settings |= {"pairs": len(learned)}
    file = config.work / checkpoint.NAME
    saved = checkpoint.load(file, settings)
    done = 0
    if saved is not None:
        model.load_state_dict(saved["model"])
        optimiser.load_state_dict(saved["optimiser"])
        done = saved["step"]
    model.train()
    for step in range(done, steps):
        torch.manual_seed(config.seed * 1_000_003 + step)
        order = random.Random(f"{config.seed}:{step // per_epoch}").sample(
            range(len(learned)), len(learned)
        )
        begin = step % per_epoch * config.batch_size
        batch = [learned[i] for i in order[begin : begin + config.batch_size]]
        said = [[p.post for p in batch], [p.statement for p in batch]]
        factor = min((step + 1) / warmup, (steps - step) / max(1, steps - warmup))
        for group in optimiser.param_groups:
            group["lr"] = config.lr * factor
        with torch.autocast("cpu", torch.bfloat16, enabled=config.bf16):
            # Apart, since a statement padded to a post's length costs as much as a post.
            posts, statements = (
                pooled(model, [tokens.encode(t)[0].ids for t in some]).float() for some in said
            )
        names = [fold(p.statement) for p in batch]
        same = torch.tensor([[a == b for b in names] for a in names])
        goals = torch.stack([anchors[t] for some in said for t in some])
        held = 1 - (torch.cat([posts, statements]) * goals).sum(1).mean()
        loss = contrast(posts, statements, same, config.temperature) + config.anchor * held
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if progress is not None:
            progress(step + 1, steps, loss.item())
        if (step + 1) % config.checkpoint_every == 0 and step + 1 < steps:
            checkpoint.save(
                file,
                {
                    "model": model.state_dict(),
                    "optimiser": optimiser.state_dict(),
                    "step": step + 1,
                    "settings": settings,
                },
            )
    final = config.work / NAME
    checkpoint.save(final, {"model": model.state_dict(), "settings": settings})
    return final


class Found(NamedTuple):
    """How well n queries find: shares over their five nearest statements.

    ``own`` is the share of queries whose own implied statement is among them (nan where the
    query is that statement); ``group`` and ``both`` the share of the nearest, own statement left
    out, that name the query's group, and its group and type; ``bias_type`` its type.
    """

    n: int
    own: float
    bias_type: float
    group: float
    both: float


def quality(
    embed: Embed, validating: Sequence[Implied], known: Sequence[Implied]
) -> dict[str, Any]:
    """Measure retrieval: implicit (a post asks) and explicit (its implied statement asks).

    ``known`` are statements that stand in the index beside the validating ones; copies of a
    statement count once.
    """
    index = list({fold(p.statement): p for p in (*known, *validating)}.values())
    folds = [fold(p.statement) for p in index]
    vectors = embed([p.statement for p in index])
    out = {}
    for name, texts in (
        ("implicit", [p.post for p in validating]),
        ("explicit", [p.statement for p in validating]),
    ):
        near = embed(texts) @ vectors.T
        rows = [_found(p, values, index, folds) for p, values in zip(validating, near, strict=True)]
        means = np.mean(rows, axis=0)
        own = float(means[0]) if name == "implicit" else float("nan")
        out[name] = Found(len(rows), own, *map(float, means[1:]))._asdict()
    return out


def compared(data: Path, embedder: Path) -> dict[str, Any]:
    """Return :func:`quality` of the published base and of ``embedder``, on posts that validate."""
    known, validating = (pairs(data, validating=side) for side in (False, True))
    tokens = WindowTokens(base_folder() / "tokenizer.json", 0)
    return {
        "base": quality(teacher(tokens), validating, known),
        "tuned": quality(teacher(tokens, embedder), validating, known),
    }


def _found(
    asked: Implied, values: NDArray[np.float32], index: Sequence[Implied], folds: Sequence[str]
) -> tuple[float, float, float, float]:
    order = np.argsort(-values)[: _MANY + 1].tolist()
    mine = fold(asked.statement)
    own = any(folds[i] == mine for i in order[:_MANY])
    others = [index[i] for i in order if folds[i] != mine][:_MANY]
    kind = [p.bias_type == asked.bias_type for p in others]
    group = [p.group == asked.group for p in others]
    both = [k and g for k, g in zip(kind, group, strict=True)]
    return float(own), *(float(np.mean(v)) for v in (kind, group, both))  # type: ignore[return-value]
