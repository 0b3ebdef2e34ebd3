"""Trains an instruction-tuned language model to answer as BiasAlert does: one LoRA adapter.

The paper's recipe is the preset ``paper``: RedditBias as instructions, LoRA of rank 16 on all
linear modules, AdamW at 5e-5, weight decay .05, batches of 16, 10 epochs, the loss on the answer
only. ``own`` adds the texts written for guard and the other licensed sources, by the quotas of the
encoder's recipe.
"""

from __future__ import annotations

import hashlib
import json
import random
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from scipy.stats import rankdata  # type: ignore[import-untyped]
from torch import Tensor

from guard.detect.encoder import Encoder
from guard.detect.instruction import Instruction
from guard.errors import UsageError
from guard.local.adapter import AdapterSettings, Base, base_hash, write_adapter
from guard.local.model import LocalModel, load
from guard.train import calibrate, checkpoint, pools
from guard.train.answers import Found, Prompts, corpus_rows, redditbias_rows
from guard.train.config import QUOTAS, TrainConfig
from guard.train.corpus import Corpus, Sampler
from guard.train.generative_card import card
from guard.train.lora import Adapters, Losses, adapted, decisions, step_loss
from guard.train.loop import Plan, Progress, Show, run
from guard.train.rows import TrainingRow, share
from guard.verdict import BIAS_TYPES

Preset = Literal["paper", "own"]
NAME = "final.pt"
VALIDATION = "validation.jsonl"
# Of a preset: the peak learning rate, the epochs, the weight of an answer's first token, and the
# share of rows that learn the whole answer.
PRESETS: Mapping[Preset, Mapping[str, float]] = {
    "paper": {"lr": 5e-5, "epochs": 10, "first": 1, "spelled": 1},
    "own": {"lr": 2e-4, "epochs": 2, "first": 10, "spelled": 0.5},
}
_ANSWER_WARMUP = 0.03


@dataclass(frozen=True, slots=True)
class GenerativeConfig:
    """One run. Every random choice follows from ``seed`` and the step, so a run can be resumed.

    Attributes:
        base: a model as :func:`guard.local.model.load` takes it.
        data: folder of the licensed sources.
        work: folder of the checkpoint, the validation's figures and the adapter.
        preset: ``paper`` or ``own``, which set what is None below.
        quotas: rows that an epoch draws from each source; for ``own`` only.
        statements: file of the bias index's statements.
        instruction: the switches of the instruction that is learned.
        lr: highest learning rate.
        epochs, max_steps: the length of the run.
        first: weight of the answer's first token in the loss; that of the others is 1.
        spelled: share of the rows that learn the whole answer, where it is known; the others learn
            its first token, which decides.
        batch_size: rows of a step.
        rank: rank of the adapters.
        weight_decay: that of AdamW.
        bf16: whether the base is in bfloat16; the adapters are float32.
        checkpointing: as :class:`guard.train.lora.Losses`.
        tokens: the most tokens of one pass.
        validation: the most validation texts of each source.
        checkpoint_every: steps between checkpoints.
        device, threads: what torch computes on.

    """

    base: str
    data: Path
    work: Path
    preset: Preset = "paper"
    quotas: Mapping[str, int] = field(default_factory=lambda: dict(QUOTAS))
    statements: Path = Path("index/statements.jsonl")
    instruction: Instruction = field(default_factory=Instruction)
    lr: float | None = None
    epochs: float | None = None
    max_steps: int | None = None
    first: float | None = None
    spelled: float | None = None
    batch_size: int = 16
    rank: int = 16
    weight_decay: float = 0.05
    seed: int = 17
    bf16: bool = False
    checkpointing: bool = False
    tokens: int = 2048
    validation: int = 200
    checkpoint_every: int = 25
    device: str = "cpu"
    threads: int = 2

    def setting(self, name: str) -> float:
        """Return a setting of the preset, or what was given in its place."""
        given = getattr(self, name)
        return float(PRESETS[self.preset][name] if given is None else given)

    def described(self) -> dict[str, Any]:
        """Return the settings that shape the result, for the checkpoint and the card."""
        found = {k: v for k, v in asdict(self).items() if k not in _PLACES}
        return found | {name: self.setting(name) for name in PRESETS[self.preset]}


_PLACES = {"data", "work", "statements", "checkpoint_every", "threads", "device", "validation"}


class _Ready(NamedTuple):
    """What a run reads."""

    model: LocalModel
    tuned: Any
    prompts: Prompts
    rows: list[TrainingRow]
    every_text: frozenset[str]
    sampler: Sampler
    digest: str


def train(
    config: GenerativeConfig, version: str, progress: Show | None = None,
    report: Callable[[str], None] = print,
) -> Path:  # fmt: skip
    """Train, or resume from the work folder's checkpoint; return the adapter's folder.

    A finished run is not trained again, only calibrated and written. Raises UsageError if the data,
    the base, a checkpoint or the settings cannot be used, WeightsError as
    :func:`guard.local.model.load`, KeyboardInterrupt after Ctrl-C or SIGTERM, when the step is
    done and saved.
    """
    torch.set_num_threads(config.threads)
    with checkpoint.alone(config.work / NAME):
        ready = _prepared(config)
        steps = max(1, round(config.setting("epochs") * ready.sampler.epoch_steps))
        steps = min(steps, config.max_steps or steps)
        settings = config.described() | {
            "base_hash": base_hash(ready.model.network),
            "corpus": ready.digest,
            "steps": steps,
        }
        texts = _validation(config, ready)
        adapters = Adapters(ready.tuned)
        final = config.work / NAME
        done = checkpoint.load(final, settings, {"net"})
        if done is None:
            _train(config, ready, adapters, settings, texts, progress, report)
            checkpoint.save(final, {"net": adapters.state_dict(), "settings": settings})
            (config.work / checkpoint.NAME).unlink(missing_ok=True)
        else:
            adapters.load_state_dict(done["net"])
        return _written(config, ready, settings, texts, version, report)


def _prepared(config: GenerativeConfig) -> _Ready:
    model = load(config.base, "bfloat16" if config.bf16 else "float32")
    found = None
    if config.instruction.references:
        encoder = Encoder()
        assert encoder.index is not None, "the shipped index is opened"
        found = Found(encoder, encoder.index)
    prompts = Prompts(model, config.instruction, found, config.setting("spelled"))
    sampling = TrainConfig(
        work=config.work, data=config.data, statements=config.statements, seed=config.seed,
        batch_size=config.batch_size, epochs=config.setting("epochs"), quotas=dict(config.quotas),
    )  # fmt: skip
    if config.preset == "paper":
        rows = redditbias_rows(config.data)
        sampling = replace(sampling, context=False, quotas={"redditbias": len(rows)})
        corpus = Corpus(rows, [], frozenset(row.text for row in rows))
    else:
        corpus = corpus_rows(sampling, references=found is not None)
    if not corpus.train:
        raise UsageError("There is no row to learn from: --quotas names no source that has texts.")
    sampler = Sampler(corpus.train, sampling)
    tuned = adapted(model.network, config.rank, config.seed, config.device)
    return _Ready(
        model, tuned, prompts, corpus.train, corpus.every_text, sampler, corpus.digest()
    )


def _train(
    config: GenerativeConfig, ready: _Ready, adapters: Adapters, settings: Mapping[str, Any],
    texts: Sequence[pools.Text], progress: Show | None, report: Callable[[str], None],
) -> None:  # fmt: skip
    how = _how(config)
    epoch_of = lru_cache(maxsize=1)(ready.sampler.epoch)
    per_epoch = ready.sampler.epoch_steps

    def loss_of(step: int) -> Tensor:
        number, place = divmod(step, per_epoch)
        rng = random.Random(f"{config.seed}:answers:{step}")
        picks = epoch_of(number)[place]
        asked = [ready.prompts.asked(ready.rows[pick.row], pick, rng) for pick in picks]
        return step_loss(ready.tuned, asked, how)

    def show(done: Progress) -> None:
        if progress is not None:
            progress(done)
        if done.step % per_epoch == 0 and done.step < done.steps:
            epoch = {"step": done.step, "epoch": done.step / per_epoch}
            _note(config.work, epoch | _measured(texts, _logits(config, ready, texts)), report)

    optimiser = torch.optim.AdamW(
        adapters.parameters(), config.setting("lr"), weight_decay=config.weight_decay
    )
    plan = Plan(settings["steps"], _ANSWER_WARMUP, config.seed, config.checkpoint_every)
    with _signals() as stopping:
        file = config.work / checkpoint.NAME
        run(adapters, optimiser, plan, loss_of, file, settings, show, stopping)


def _note(work: Path, figures: Mapping[str, Any], report: Callable[[str], None]) -> None:
    """Add figures of the validation to the run's file, and show them."""
    line = json.dumps(figures)
    with (work / VALIDATION).open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")
    report(f"validation: {line}")


def _how(config: GenerativeConfig) -> Losses:
    return Losses(config.setting("first"), config.tokens, config.checkpointing)


@contextmanager
def _signals() -> Iterator[Callable[[], bool]]:
    """Yield what says whether Ctrl-C or SIGTERM came; the second one ends the process at once."""
    came = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield came.is_set
        return
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}

    def handler(*_: Any) -> None:
        came.set()
        for one, usual in before.items():
            signal.signal(one, usual)

    for one in before:
        signal.signal(one, handler)
    try:
        yield came.is_set
    finally:
        for one, usual in before.items():
            signal.signal(one, usual)


def _validation(config: GenerativeConfig, ready: _Ready) -> list[pools.Text]:
    """Return the validation texts, at most so many of each pool, far from what is learned."""
    texts = pools.read(config.data, config.statements)
    chosen: dict[str, list[pools.Text]] = {}
    for text in sorted(texts, key=lambda text: share(text.text, "generative")):
        of = chosen.setdefault(text.pool, [])
        if len(of) < config.validation:
            of.append(text)
    return pools.far_from_training([t for of in chosen.values() for t in of], ready.every_text)


def _logits(
    config: GenerativeConfig, ready: _Ready, texts: Sequence[pools.Text]
) -> calibrate.Floats:
    """Return each text's logit of "biased", the highest of its windows: (n,)."""
    prompts = [(i, p) for i, text in enumerate(texts) for p in ready.prompts.of_text(text.text)]
    yes, no = ready.prompts.yes, ready.prompts.no
    each = decisions(ready.tuned, [p for _, p in prompts], yes, no, _how(config))
    found = np.full(len(texts), -np.inf)
    for (i, _), logit in zip(prompts, each.tolist(), strict=True):
        found[i] = max(found[i], logit)
    return found


def _measured(texts: Sequence[pools.Text], logits: calibrate.Floats) -> dict[str, Any]:
    """Return loss of the decision, accuracy at the logit 0 and AUROC; AUROC by pool, too."""
    biased = np.array([text.biased for text in texts])
    pool = np.array([text.pool for text in texts])

    def of(inside: calibrate.Bools) -> float:
        # Mann and Whitney's U over the number of pairs; a tie counts half.
        yes = biased[inside]
        ranks, n = rankdata(logits[inside]), int(yes.sum())
        pairs = n * (len(yes) - n)
        return round(float((ranks[yes].sum() - n * (n + 1) / 2) / pairs), 4) if pairs else 0.5

    mixed = [
        name for name in dict.fromkeys(pool)
        if biased[pool == name].any() and not biased[pool == name].all()
    ]  # fmt: skip
    return {
        "n": len(texts),
        "loss": round(float(np.logaddexp(0, np.where(biased, -logits, logits)).mean()), 4),
        "accuracy": round(float(((logits > 0) == biased).mean()), 4),
        "auroc": of(np.ones(len(texts), bool)),
        "pools": {str(name): of(pool == name) for name in mixed},
    }


def _written(
    config: GenerativeConfig, ready: _Ready, settings: Mapping[str, Any],
    texts: Sequence[pools.Text], version: str, report: Callable[[str], None],
) -> Path:  # fmt: skip
    """Calibrate on the validation texts and write the adapter's folder; return it."""
    logits = _logits(config, ready, texts)
    # The type is not known without decoding an answer: all types share a threshold.
    judged = calibrate.Judged(
        np.array([text.pool for text in texts]),
        np.array([text.biased for text in texts]),
        np.array([BIAS_TYPES[0]] * len(texts)),
        logits,
    )
    scale = calibrate.fit_scale(logits, judged.biased, calibrate.equal_weights(judged))
    scores = scale.scores(logits)
    points = {
        name: dict.fromkeys(BIAS_TYPES, limits[BIAS_TYPES[0]])
        for name, limits in calibrate.operating_points(judged, scores).items()
    }
    counts: dict[str, int] = {}
    for row in ready.rows:
        counts[row.source] = counts.get(row.source, 0) + 1
    figures = {
        "settings": dict(settings),
        "rows_in_corpus": counts,
        "rows": settings["steps"] * config.batch_size,
        "epochs": settings["steps"] / ready.sampler.epoch_steps,
        "validation": _measured(texts, logits),
        "pools": {name: int((judged.pool == name).sum()) for name in np.unique(judged.pool)},
        "scale": scale._asdict(),
        "points": {
            name: calibrate.measured(judged, scores, limits)._asdict() | {"at": limits["gender"]}
            for name, limits in points.items()
        },
    }
    epoch = {"step": settings["steps"], "epoch": figures["epochs"]}
    _note(config.work, epoch | figures["validation"], report)
    folder = config.work / "adapter"
    write_adapter(
        folder, ready.tuned,
        AdapterSettings(
            version, Base(config.base, settings["base_hash"]), asdict(config.instruction),
            scale.temperature, scale.offset, points,
        ),
        card(version, config.base, figures), "float16",
    )  # fmt: skip
    (config.work / "figures.json").write_text(json.dumps(figures, indent=1, default=list) + "\n")
    return folder
