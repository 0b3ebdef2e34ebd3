"""Trains the encoder: one run, seeded, resumable at any step.

Why: docs/decisions/one-network-taught-by-two.md.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from guard.detect.tokens import WindowTokens
from guard.errors import UsageError
from guard.train import checkpoint
from guard.train.base import (
    BASES,
    Embed,
    base_autocast,
    base_model,
    base_tokens,
    in_passes,
    text_embedder,
)
from guard.train.batches import Batch, Prepared, make_batch
from guard.train.config import TrainConfig, file_hash
from guard.train.corpus import Sampler, build_corpus
from guard.train.loop import Show, TrainingPlan, run_training
from guard.train.model import DIM, BiasNet, Fusion, Outputs, Targets, loss_parts, total_loss
from guard.train.references import TrainIndex, cached_vectors
from guard.train.rows import FORMS, TrainingRow

NAME = "final.pt"
# Processes that make batches for a GPU, which else would wait for each.
_WORKERS = 2
# Texts that the map to sentence vectors is fitted on.
_PROJECTION_TEXTS = 6000


class Nets(nn.Module):
    """Both trained parts in one module, for one optimiser and one checkpoint."""

    def __init__(self, encoder: Any, dropout: float = 0.0) -> None:
        super().__init__()
        self.net = BiasNet(encoder, dropout)
        self.fusion = Fusion()

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Run the shared pass, with a plain tuple as output, as tracing wants it."""
        return tuple(self.net(*inputs))


def prepare_training(config: TrainConfig) -> Prepared:
    """Build the corpus, embed it (cached) and plan the batches.

    Raises UsageError if the quotas leave no row, or a teacher gives no number.
    """
    tokens = base_tokens(config.base, config.max_context_tokens)
    corpus = build_corpus(config)
    rows = corpus.train
    if not rows:
        raise UsageError(
            "There is no row to learn from: --quotas names no source that has texts, or --data is "
            "missing."
        )
    index = TrainIndex(corpus, _training_embed(config), config)
    # Leave out invented rows that are biased by their reference alone if retrieval cannot find it.
    lost = frozenset(
        i for i, r in enumerate(rows)
        if r.biased and r.source == "invented" and not index.reachable(i)
    )  # fmt: skip
    return Prepared(
        corpus, tokens, index, Sampler(rows, config, lost), _taught_scores(rows, config)
    )


def _training_embed(config: TrainConfig) -> Embed:
    """Return what makes the vectors that the sentence vectors learn from."""
    if config.method != "onward":
        return text_embedder(config.embedder, config.bf16, config.device)
    nets, content = load_final(config.teachers[0])
    tokens = base_tokens(content["settings"]["base"])

    def embed(texts: Sequence[str]) -> NDArray[np.float32]:
        encoded = [tokens.encode(text)[0] for text in texts]
        net = nets.net.to(config.device)
        return in_passes(
            encoded, tokens.pad, config.device, config.bf16, lambda *inputs: net(*inputs).embedding
        ).numpy()

    return embed


def _taught_scores(rows: Sequence[TrainingRow], config: TrainConfig) -> Tensor:
    """Return the sigmoid of the teachers' mean logit of each row; (0,) without teachers.

    They read what training reads: of an overlong row its first part. Their logits are cached. Rows
    of forms have -1: forms are what the teachers do not know. Raises UsageError if one gives no
    number.
    """
    if not config.teachers:
        return torch.zeros(0)
    taught = [i for i, row in enumerate(rows) if row.source not in FORMS]
    mean_logit = torch.zeros(len(taught))
    for path in config.teachers:
        teacher_logit = _cached_logits(path, [rows[i] for i in taught], config)
        if not teacher_logit.isfinite().all():
            raise UsageError(f"{path} gives no number for some text; name another teacher.")
        mean_logit += teacher_logit / len(config.teachers)
    soft = torch.full((len(rows),), -1.0)
    soft[taught] = mean_logit.sigmoid()
    return soft


def _cached_logits(path: Path, rows: Sequence[TrainingRow], config: TrainConfig) -> Tensor:
    """Return the logits of a finished run: (rows,)."""
    nets, content = load_final(path)
    tokens = base_tokens(content["settings"]["base"], config.max_context_tokens)

    def logits(keys: Sequence[str]) -> NDArray[np.float32]:
        windows = [json.loads(key) for key in keys]
        return logits_of(nets.net, tokens, windows, config.device, config.bf16).numpy()[:, None]

    file = config.cached(f"-logits-{config.max_context_tokens}-{file_hash(path)}")
    keys = [json.dumps([row.text, row.context]) for row in rows]
    return torch.from_numpy(cached_vectors(file, keys, logits, width=1)[:, 0])


def logits_of(
    net: BiasNet,
    tokens: WindowTokens,
    windows: Sequence[tuple[str, Sequence[str]]],
    device: str,
    bf16: bool = False,
) -> Tensor:
    """Return the logit of "biased" of each window, a segment and its context: (n,), on the CPU."""
    encoded = [tokens.encode(text, context)[0] for text, context in windows]
    net.to(device)
    return in_passes(encoded, tokens.pad, device, bf16, lambda *inputs: net(*inputs).logit)


class _Batches(Dataset[Batch]):
    """The batch of each step, made from the seed and the step alone."""

    def __init__(self, ready: Prepared, config: TrainConfig) -> None:
        self._ready, self._config = ready, config
        self._epoch = lru_cache(maxsize=1)(ready.sampler.epoch)

    def __getitem__(self, step: int) -> Batch:
        epoch, place = divmod(step, self._ready.sampler.epoch_steps)
        rng = random.Random(f"{self._config.seed}:step:{step}")
        return make_batch(self._ready, self._epoch(epoch)[place], rng, self._config)


def _batch_on(device: str, batch: Batch) -> Batch:
    """Return the batch with its tensors on a device."""
    inputs, references = (tuple(t.to(device) for t in part) for part in batch[:2])
    return Batch(inputs, references, Targets(*(t.to(device) for t in batch.targets)))


def build_nets(config: TrainConfig, start: Mapping[str, Any] | None = None) -> Nets:
    """Return the network before training, with the weights of ``start``, if given.

    ``start`` is the content of the file ``config.start``. With ``method="lora"`` the encoder
    carries adapters. Raises UsageError if the weights do not fit.
    """
    torch.manual_seed(config.seed)
    own = config.embedder if config.base == "minilm" else None
    encoder = base_model(config.base, config.layers, own)
    nets = Nets(encoder, config.dropout)
    if start is not None:
        assert config.start is not None
        _fill_nets(nets, start, config.start, config.described())
    if config.frozen > (layers := len(encoder.encoder.layer)):
        raise UsageError(f"--frozen {config.frozen} is not possible: the network has {layers}.")
    if config.frozen:
        encoder.embeddings.requires_grad_(False)
        encoder.encoder.layer[: config.frozen].requires_grad_(False)
        if hasattr(encoder.encoder, "relative_attention_bias"):  # all layers share MPNet's
            encoder.encoder.relative_attention_bias.requires_grad_(False)
    if config.method == "lora":
        from peft import LoraConfig, get_peft_model

        adapters = LoraConfig(
            r=config.lora_rank,
            lora_alpha=2 * config.lora_rank,
            lora_dropout=0.05,
            target_modules=["query", "key", "value", "q", "k", "v", "o", "dense"],
        )
        nets.net.encoder = get_peft_model(encoder, adapters).base_model
    if config.method == "references":
        nets.net.requires_grad_(False)
    if config.method == "onward":  # so that they still fit the references of the start
        nets.net.embed.requires_grad_(False)
        nets.fusion.requires_grad_(False)
    return nets


def fit_embedding(nets: Nets, ready: Prepared, config: TrainConfig) -> None:
    """Set the embedding head to the least-squares map from the states to the embedder's vectors.

    It is needed where the base's width is not that of the vectors, and after training, which moves
    the states.
    """
    texts = [r.text for r in ready.corpus.train]
    chosen = random.Random(config.seed).sample(
        range(len(texts)), min(_PROJECTION_TEXTS, len(texts))
    )
    nets.eval()
    means = in_passes(
        [ready.tokens.encode(texts[i])[0] for i in chosen],
        ready.tokens.pad,
        config.device,
        False,
        lambda *inputs: nets.net.states(*inputs)[1],
    )
    with torch.no_grad():
        states = torch.cat([means, torch.ones(len(chosen), 1)], dim=1)
        goals = torch.from_numpy(ready.index.vectors[chosen])
        ridge = 1e-3 * len(chosen) * states.var() * torch.eye(states.shape[1])
        solved = torch.linalg.solve(states.T @ states + ridge, states.T @ goals)
        nets.net.embed.weight.copy_(solved[:-1].T)
        nets.net.embed.bias.copy_(solved[-1])


def _make_optimiser(nets: Nets, config: TrainConfig) -> torch.optim.Optimizer:
    """Decay weight matrices only; heads learn faster than the pretrained part."""
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in nets.named_parameters():
        if not parameter.requires_grad:
            continue
        lr = config.head_lr
        if name.startswith("net.encoder."):
            lr = config.lora_lr if config.method == "lora" else config.lr
        elif name.startswith("net.embed."):  # already fitted
            lr = config.lr
        decay = config.weight_decay if parameter.dim() > 1 else 0.0
        groups.setdefault((lr, decay), []).append(parameter)
    return torch.optim.AdamW(
        [{"params": p, "lr": lr, "weight_decay": decay} for (lr, decay), p in groups.items()],
        fused=True,
    )


def train_encoder(config: TrainConfig, progress: Show | None = None) -> Path:
    """Train, or resume from the work folder's checkpoint; return the path of the final weights.

    A finished run is not repeated. The file holds the state dict (LoRA adapters folded in), the
    settings, and those of the runs before it (``before``).

    Raises UsageError if the start, a teacher, the embedder, a checkpoint or finished run in the
    work folder cannot be used, WeightsError as :func:`guard.train.base.base_folder`.
    """
    final = config.work / NAME
    if checkpoint.load_run(final, config.described(), checkpoint.FINAL) is not None:
        return final
    torch.set_num_threads(config.threads)
    # Before the corpus is embedded, which takes an hour.
    start = None if config.start is None else checkpoint.final_content(config.start)
    nets = build_nets(config, start).to(config.device)
    before = [] if start is None else [*start.get("before", []), start["settings"]]
    for teacher_run in config.teachers:
        load_final(teacher_run)  # a damaged one is refused now, and not after that hour
    with checkpoint.alone_at(final):
        return _trained_path(config, nets, before, progress)


def _trained_path(
    config: TrainConfig, nets: Nets, before: list[dict[str, Any]], progress: Show | None
) -> Path:
    ready = prepare_training(config)
    steps = max(1, round(config.epochs * ready.sampler.epoch_steps))
    steps = min(steps, config.max_steps or steps)
    # The plan's length belongs to the schedule: resuming under another would bend it.
    settings = config.described() | {
        "steps": steps,
        "rows_in_corpus": len(ready.corpus.train),
        "corpus": ready.corpus.digest(),
    }
    file = config.work / checkpoint.NAME
    other_width = config.start is None and nets.net.embed.in_features != DIM
    if (other_width or config.method == "references") and not file.exists():
        fit_embedding(nets, ready, config)

    batches: Iterator[Batch] | None = None

    def step_loss(step: int) -> Tensor:
        nonlocal batches
        if batches is None:  # from the step at which the run begins or resumes
            batches = iter(DataLoader(
                _Batches(ready, config),
                batch_size=None,
                sampler=range(step, steps),
                num_workers=0 if config.device == "cpu" else _WORKERS,
                generator=torch.Generator(),  # or a resumed step would draw other dropout masks
            ))  # fmt: skip
        batch = _batch_on(config.device, next(batches))
        with base_autocast(config.device, config.bf16):
            out = nets.net(*batch.inputs)
        out = Outputs(*(part.float() for part in out))
        change, type_change = nets.fusion(out, *batch.references)
        return total_loss(loss_parts(out, change, type_change, batch.targets), config.distill)

    plan = TrainingPlan(steps, config.warmup, config.seed, config.checkpoint_every)
    run_training(nets, _make_optimiser(nets, config), plan, step_loss, file, settings, progress)
    state = nets.state_dict()
    if config.method == "lora":  # under the names of a network without adapters
        plain = nets.net.encoder.merge_and_unload().state_dict()
        state = {k: v for k, v in state.items() if not k.startswith("net.encoder.")}
        state |= {f"net.encoder.{k}": v for k, v in plain.items()}
    content = {
        "nets": {k: v.cpu() for k, v in state.items()},
        "settings": settings,
        "before": before,
    }
    final = config.work / NAME
    checkpoint.save_content(final, content)
    file.unlink(missing_ok=True)
    return final


def untrained_nets(settings: Mapping[str, Any]) -> Nets:
    """Return a network of the shape that a run of these settings trains.

    Raises KeyError or TypeError if the settings name no known base or no number of layers.
    """
    base, layers = settings["base"], settings.get("layers")
    if base not in BASES:
        raise KeyError(base)
    return Nets(base_model(base, layers))


def load_final(path: Path) -> tuple[Nets, dict[str, Any]]:
    """Return the trained network in evaluation mode, and the content of its file.

    Raises UsageError if ``path`` is no finished run, or its weights do not fit its settings.
    """
    content = checkpoint.final_content(path)
    try:
        nets = untrained_nets(content["settings"])
    except (KeyError, TypeError):
        raise checkpoint.not_finished(path) from None
    _fill_nets(nets, content, path, content["settings"])
    return nets.eval(), content


def _fill_nets(
    nets: Nets, content: Mapping[str, Any], path: Path, settings: Mapping[str, Any]
) -> None:
    """Load the weights of a finished run into the network of a run with ``settings``."""
    shape, wanted = _shape_of(content["settings"]), _shape_of(settings)
    if shape != wanted:
        raise UsageError(
            f"{path} was trained with {shape}, this run has {wanted}; use the same --base and "
            "--layers."
        )
    try:
        nets.load_state_dict(content["nets"])
    except (RuntimeError, TypeError, AttributeError):
        raise checkpoint.not_finished(path) from None


def _shape_of(settings: Mapping[str, Any]) -> str:
    layers = settings.get("layers")
    return f"--base {settings.get('base')}" + ("" if layers is None else f" --layers {layers}")
