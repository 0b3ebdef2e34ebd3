"""Fine-tunes the encoder: one command, seeded, resumable at any step."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from guard.detect.tokens import WindowTokens
from guard.train import checkpoint
from guard.train.average import as_shipped, placed
from guard.train.base import BaseName, base_model, base_tokens, teacher
from guard.train.batches import Batch, collate, padded
from guard.train.config import TrainConfig
from guard.train.corpus import Corpus, Pick, Sampler, build
from guard.train.model import DIM, BiasNet, Fusion, Outputs, losses
from guard.train.references import TrainIndex
from guard.train.taught import Lesson, Teachers, held_out

_TEXT_TOKENS = 96


class Progress(NamedTuple):
    """One training step as it is reported: steps count from 1."""

    step: int
    steps: int
    loss: float
    parts: dict[str, float]
    seconds: float


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a run reads: the corpus, its index and the batches of each epoch."""

    corpus: Corpus
    tokens: WindowTokens
    index: TrainIndex
    sampler: Sampler
    left_out: frozenset[int]


class Nets(nn.Module):
    """The two trained parts under one roof, for one optimiser and one checkpoint."""

    def __init__(self, net: BiasNet, fusion: Fusion) -> None:
        super().__init__()
        self.net = net
        self.fusion = fusion


def window_tokens(config: TrainConfig) -> WindowTokens:
    """Return the run's way from window to input; references as text get room beside the context."""
    room = config.max_context_tokens + (_TEXT_TOKENS if config.references == "text" else 0)
    return base_tokens(config.base, room)


def prepare(config: TrainConfig) -> Prepared:
    """Build the corpus, embed it with the untouched base (cached) and plan the batches."""
    corpus = build(config)
    tokens = window_tokens(config)
    embed = teacher(config.embedder)
    rows = corpus.train
    index = TrainIndex(
        rows,
        corpus.statements,
        embed,
        config.vectors(),
        config.k,
        config.floor,
    )
    # A made-up row that is biased by its reference alone is no example where the reference is
    # too far away to be found.
    lost = frozenset(
        i for i, r in enumerate(rows)
        if r.biased and r.source == "invented" and not index.reachable(i)
    )  # fmt: skip
    return Prepared(corpus, tokens, index, Sampler(rows, config, lost), lost)


def prepare_from(base: Prepared, config: TrainConfig) -> Prepared:
    """Return ``base`` for settings that change how its corpus is shown, not what is in it."""
    sampler = Sampler(base.corpus.train, config, base.left_out)
    return replace(base, tokens=window_tokens(config), sampler=sampler)


def build_nets(config: TrainConfig) -> Nets:
    """Return the untrained network; with ``method="lora"`` the encoder carries adapters."""
    torch.manual_seed(config.seed)
    encoder = base_model(config.begun(), config.base, config.layers)
    if config.frozen:
        encoder.embeddings.requires_grad_(False)
        encoder.encoder.layer[: config.frozen].requires_grad_(False)
    if config.method == "frozen":
        encoder.requires_grad_(False)
    if config.method == "lora":
        from peft import LoraConfig, get_peft_model

        wrapped = get_peft_model(
            encoder,
            LoraConfig(
                r=config.lora_rank,
                lora_alpha=2 * config.lora_rank,
                lora_dropout=0.05,
                target_modules=["query", "key", "value", "q", "k", "v", "o", "dense"],
            ),
        )
        encoder = wrapped.base_model
    nets = Nets(BiasNet(encoder, dropout=config.dropout), Fusion())
    nets.net.verdict_alone = config.learn == "verdict"
    if config.method == "fusion":
        nets.net.requires_grad_(False)
    return nets


# Texts that the first map to sentence vectors is fitted on.
_FITTED = 2000


def fit_embedding(nets: Nets, ready: Prepared, config: TrainConfig) -> None:
    """Set the embedding head to the least-squares map from the base's states to the vectors.

    A base of another width than the vectors' has no identity to begin with.
    """
    texts = [r.text for r in ready.corpus.train]
    chosen = random.Random(config.seed).sample(range(len(texts)), min(_FITTED, len(texts)))
    chosen.sort(key=lambda i: len(texts[i]))
    means: list[Tensor] = []
    nets.eval()
    with torch.no_grad():
        for start in range(0, len(chosen), config.batch_size):
            some = chosen[start : start + config.batch_size]
            ids, mask, kinds = padded(
                [ready.tokens.encode(texts[i])[0] for i in some], ready.tokens.pad
            )
            means.append(nets.net.mean_state(ids, mask, kinds))
        states = torch.cat([torch.cat(means), torch.ones(len(chosen), 1)], dim=1)
        goals = torch.from_numpy(ready.index.vectors[chosen])
        ridge = 1e-3 * len(chosen) * states.var() * torch.eye(states.shape[1])
        solved = torch.linalg.solve(states.T @ states + ridge, states.T @ goals)
        nets.net.embed.weight.copy_(solved[:-1].T)
        nets.net.embed.bias.copy_(solved[-1])


def _optimiser(nets: Nets, config: TrainConfig) -> torch.optim.Optimizer:
    """Decay weight matrices only; heads learn faster than the pretrained part."""
    body_lr = config.lora_lr if config.method == "lora" else config.lr
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in nets.named_parameters():
        if not parameter.requires_grad:
            continue
        # The embedding head starts where it should end, so it moves at the body's pace.
        body = name.startswith(("net.encoder.", "net.embed."))
        lr = body_lr if body else config.head_lr
        if name.startswith("net.embed."):
            lr = config.lr
        decay = config.weight_decay if parameter.dim() > 1 else 0.0
        groups.setdefault((lr, decay), []).append(parameter)
    return torch.optim.AdamW(
        [{"params": p, "lr": lr, "weight_decay": decay} for (lr, decay), p in groups.items()],
        fused=True,
    )


def make_batch(
    ready: Prepared, picks: list[Pick], rng: random.Random, config: TrainConfig
) -> Batch:
    """Return the tensors of one batch of training rows, with a freshly thinned index."""
    ids = [p.row for p in picks]
    hits = ready.index.hits(ids, rng, use="none" if config.references == "none" else "random")
    # Two copies of a family in one batch are two families: neither completes the other.
    rows = [
        replace(row, family=f"{row.family}#{pick.copy}")
        for pick in picks
        for row in (ready.corpus.train[pick.row],)
    ]
    batch = collate(
        rows, [p.context for p in picks], ready.tokens, hits, ready.index.vectors[ids],
        as_text=config.references == "text",
    )  # fmt: skip
    targets = batch.targets
    if not config.contrast:
        targets = targets._replace(twins=targets.twins[:0])
    if not config.bags:
        targets = targets._replace(bags=torch.full_like(targets.bags, -1))
    return batch._replace(targets=targets)


def train(
    config: TrainConfig,
    progress: Callable[[Progress], None] | None = None,
    ready: Prepared | None = None,
) -> Path:
    """Train, or go on where the work folder's checkpoint stopped; return the final weights' path.

    The file holds the merged state dict (LoRA adapters folded in) and the settings. ``progress``
    is called after every step. ``ready`` is what :func:`prepare` gave for settings that differ
    from these in nothing it reads.
    """
    torch.set_num_threads(config.threads)
    if ready is None:
        ready = prepare(config)
    learned = [load_final(path) for path in config.teachers]
    teachers = None
    if learned:
        teachers = Teachers(
            [one.net for one, _ in learned], ready.corpus.train, ready.sampler.shown(),
            held_out(config, ready.corpus.validation), ready.tokens, config.mixtures, config.bf16,
        )  # fmt: skip
    nets = build_nets(config)
    before: list[dict[str, Any]] = []
    starts = [] if config.start is None else [checkpoint.final(config.start)]
    for begun in starts:
        nets.load_state_dict(begun["nets"])
    # What the teachers learned from, the run learns from too.
    used = [*starts, *(content for _, content in learned)]
    numbers = [placed(content, before) for content in used]
    behind: dict[str, Any] = {"begins": numbers[0] if starts else 0} | as_shipped(used, numbers)
    if learned:
        behind["taught_by"] = numbers[len(starts) :]
    optimiser = _optimiser(nets, config)
    steps = max(1, round(config.epochs * ready.sampler.epoch_steps))
    if config.max_steps is not None:
        steps = min(steps, config.max_steps)
    warmup = max(1, round(config.warmup * steps))
    # The plan's length belongs to the schedule: resuming under another would bend it.
    settings = config.described() | {
        "steps": steps,
        "rows_in_corpus": len(ready.corpus.train),
        "corpus": ready.corpus.digest(),
    }
    file = config.work / checkpoint.NAME
    done = 0
    saved = checkpoint.load(file, settings)
    if saved is None and config.start is None and nets.net.embed.in_features != DIM:
        fit_embedding(nets, ready, config)
    if saved is not None:
        nets.load_state_dict(saved["nets"])
        optimiser.load_state_dict(saved["optimiser"])
        done = saved["step"]
    base_lrs = [g["lr"] for g in optimiser.param_groups]
    if saved is not None:
        base_lrs = saved["base_lrs"]
    nets.train()
    plan: list[list[Pick]] = []
    epoch = -1
    for step in range(done, steps):
        if step // ready.sampler.epoch_steps != epoch:
            epoch = step // ready.sampler.epoch_steps
            plan = ready.sampler.epoch(epoch)
        started = time.perf_counter()
        # Every random choice of a step hangs on the step alone: a resumed run repeats it.
        torch.manual_seed(config.seed * 1_000_003 + step)
        rng = random.Random(f"{config.seed}:step:{step}")
        picks = plan[step % ready.sampler.epoch_steps]
        batch = make_batch(ready, picks, rng, config)
        lesson = teachers.lesson(batch, [p.row for p in picks], rng) if teachers else None
        factor = min((step + 1) / warmup, (steps - step) / max(1, steps - warmup))
        for group, lr in zip(optimiser.param_groups, base_lrs, strict=True):
            group["lr"] = lr * factor
        loss, parts = _step(nets, optimiser, batch, lesson, config)
        if progress is not None:
            seconds = time.perf_counter() - started
            progress(Progress(step + 1, steps, loss, parts, seconds))
        if (step + 1) % config.checkpoint_every == 0 and step + 1 < steps:
            content = {
                "nets": nets.state_dict(),
                "optimiser": optimiser.state_dict(),
                "step": step + 1,
                "settings": settings,
                "base_lrs": base_lrs,
            }
            checkpoint.save(file, content)
    final = config.work / "final.pt"
    checkpoint.save(
        final,
        {
            "nets": merged_state(nets, config),
            "settings": settings | behind,
            "before": before,
            "rows": ready.corpus.counts(),
            "quotas": ready.sampler.quotas,
        },
    )
    return final


def _step(
    nets: Nets, optimiser: torch.optim.Optimizer, batch: Batch, lesson: Lesson | None,
    config: TrainConfig,
) -> tuple[float, dict[str, float]]:  # fmt: skip
    with torch.autocast("cpu", torch.bfloat16, enabled=config.bf16):
        out = nets.net(batch.input_ids, batch.attention_mask, batch.token_type_ids)
    out = Outputs(*(part.float() for part in out))
    change, type_change = nets.fusion(out, batch.vectors, batch.types, batch.mask)
    parts = losses(out, change, type_change, batch.targets)
    total = parts.total(config.distill)
    told = {name: part.item() for name, part in parts._asdict().items()}
    if lesson is not None:
        taught = _taught(nets, out, lesson, config)
        total = total + config.teach * taught
        told["taught"] = taught.item()
    optimiser.zero_grad(set_to_none=True)
    total.backward()  # type: ignore[no-untyped-call]
    nn.utils.clip_grad_norm_(nets.parameters(), 1.0)
    optimiser.step()
    return total.item(), told


def _taught(nets: Nets, out: Outputs, lesson: Lesson, config: TrainConfig) -> Tensor:
    mixed = lesson.said_of_mixed
    if len(mixed):
        with torch.autocast("cpu", torch.bfloat16, enabled=config.bf16):
            mixed = nets.net(*lesson.mixed).logit
    return lesson.loss(out.logit, mixed.float())


def merged_state(nets: Nets, config: TrainConfig) -> dict[str, Any]:
    """Return the state dict under the names of an adapter-free network."""
    if config.method != "lora":
        return dict(nets.state_dict())
    encoder = nets.net.encoder
    plain = encoder.merge_and_unload()
    state = {k: v for k, v in nets.state_dict().items() if not k.startswith("net.encoder.")}
    return state | {f"net.encoder.{k}": v for k, v in plain.state_dict().items()}


def untrained(settings: Mapping[str, Any]) -> Nets:
    """Return a network of the shape that a run of these settings trains."""
    base: BaseName = settings.get("base", "minilm")
    encoder = base_model(base=base, layers=settings.get("layers"))
    return Nets(BiasNet(encoder, dropout=0.0), Fusion())


def load_final(path: Path) -> tuple[Nets, dict[str, Any]]:
    """Return the trained network in evaluation mode, and what its file says of the run."""
    content = checkpoint.final(path)
    nets = untrained(content["settings"])
    state = content["nets"]
    nets.load_state_dict(state)
    nets.eval()
    return nets, content
