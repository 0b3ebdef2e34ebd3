"""Trains an instruction-tuned language model to answer as BiasAlert does: one LoRA adapter.

The paper's recipe is the preset ``paper``: RedditBias as instructions, LoRA of rank 16 on all
linear modules, AdamW at 5e-5, weight decay .05, batches of 16, 10 epochs, the loss on the answer
only. ``own`` adds the texts written for guard and the other licensed sources, by the quotas of the
encoder's recipe.
"""

from __future__ import annotations

import json
import math
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from guard.detect.encoder import Encoder
from guard.detect.instruction import Instruction
from guard.errors import UsageError
from guard.local.adapter import AdapterBase, AdapterSettings, base_hash, write_adapter
from guard.local.model import load_model
from guard.train import calibrate, checkpoint, pools
from guard.train.answers import Prompts, RowReferences, corpus_rows, redditbias_rows
from guard.train.card import adapter_card
from guard.train.config import QUOTAS, TrainConfig
from guard.train.corpus import Corpus, Sampler
from guard.train.loop import Show, TrainingPlan, TrainingProgress, run_training
from guard.train.lora import Adapters, Losses, adapted_copy, decision_logits, step_loss
from guard.train.rows import share
from guard.train.sources import WholeText
from guard.verdict import BIAS_TYPES

Preset = Literal["paper", "own"]
NAME = "final.pt"
VALIDATION, FIGURES = "validation.jsonl", "figures.json"
# Of a preset: the peak learning rate, the epochs, the weight of an answer's first token, and the
# share of rows that learn the whole answer.
PRESETS: Mapping[Preset, Mapping[str, float]] = {
    "paper": {"lr": 5e-5, "epochs": 10, "first": 1, "spelled": 1},
    "own": {"lr": 2e-4, "epochs": 2, "first": 10, "spelled": 0.5},
}


@dataclass(frozen=True, slots=True)
class GenerativeConfig:
    """One run. Every random choice follows from ``seed`` and the step, so a run can be resumed.

    Attributes:
        base: a model as :func:`guard.local.model.load_model` takes it.
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
        warmup: share of the steps over which the learning rate rises.
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
    warmup: float = 0.1
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
        value = getattr(self, name)
        return float(PRESETS[self.preset][name] if value is None else value)

    def described(self) -> dict[str, Any]:
        """Return the settings that shape the result, for the checkpoint and the card."""
        settings = {k: v for k, v in asdict(self).items() if k not in _PLACES}
        return settings | {name: self.setting(name) for name in PRESETS[self.preset]}


_PLACES = {"data", "work", "statements", "checkpoint_every", "threads", "device", "validation"}


class GenerativeRun:
    """A run and what it reads. It holds the work folder: use it as a context manager.

    Raises UsageError if the data, the base or the settings cannot be used, or another process works
    in the folder, WeightsError as :func:`guard.local.model.load_model`.
    """

    def __init__(self, config: GenerativeConfig, report: Callable[[str], None] = print) -> None:
        self.config, self._report = config, report
        torch.set_num_threads(config.threads)
        self._alone = checkpoint.alone_at(config.work / NAME)

    def __enter__(self) -> GenerativeRun:
        self._alone.__enter__()
        try:
            self._prepare_rows()
        except BaseException:
            self._alone.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._alone.__exit__(None, None, None)

    def _prepare_rows(self) -> None:
        config = self.config
        model = load_model(config.base, "bfloat16" if config.bf16 else "float32")
        self._tuned = adapted_copy(model.network, config.rank, config.seed, config.device)
        self._adapters = Adapters(self._tuned)
        references = None
        if config.instruction.references:
            encoder = Encoder()
            assert encoder.index is not None, "the shipped index is opened"
            references = RowReferences(encoder, encoder.index)
        self._prompts = Prompts(model, config.instruction, references, config.setting("spelled"))
        corpus, sampling = self._build_corpus(references=references is not None)
        if not corpus.train:
            raise UsageError(
                "There is no row to learn from: --quotas names no source that has texts."
            )
        self._rows, self._every_text = corpus.train, corpus.every_text
        self._sampler = Sampler(corpus.train, sampling)
        steps = max(1, round(config.setting("epochs") * self._sampler.epoch_steps))
        #: What the checkpoint and the card record of the run.
        self.settings: dict[str, Any] = config.described() | {
            "base_hash": base_hash(model.network),
            "corpus": corpus.digest(),
            "steps": min(steps, config.max_steps or steps),
        }

    def _build_corpus(self, *, references: bool) -> tuple[Corpus, TrainConfig]:
        config = self.config
        sampling = TrainConfig(
            work=config.work, data=config.data, statements=config.statements, seed=config.seed,
            batch_size=config.batch_size, epochs=config.setting("epochs"),
            quotas=dict(config.quotas),
        )  # fmt: skip
        if config.preset == "own":
            return corpus_rows(sampling, references=references), sampling
        rows = redditbias_rows(config.data)
        sampling = replace(sampling, context=False, quotas={"redditbias": len(rows)})
        return Corpus(rows, [], frozenset(row.text for row in rows)), sampling

    @cached_property
    def texts(self) -> list[WholeText]:
        """The validation texts, at most so many of each pool, far from what is learned."""
        read = pools.validation_texts(self.config.data, self.config.statements)
        chosen: dict[str, list[WholeText]] = {}
        for text in sorted(read, key=lambda text: share(text.text, "generative")):
            texts = chosen.setdefault(text.pool, [])
            if len(texts) < self.config.validation:
                texts.append(text)
        return pools.far_from_training(
            [t for texts in chosen.values() for t in texts], self._every_text
        )

    def train(self, progress: Show | None = None) -> Path:
        """Train, or resume from the checkpoint; return the file of the trained adapters.

        A finished run is not repeated. Raises UsageError if the checkpoint is of a run with other
        settings, or the loss is no number any more; KeyboardInterrupt after Ctrl-C or SIGTERM, when
        the step is done and saved.
        """
        final = self.config.work / NAME
        done = checkpoint.load_run(final, self.settings, {"net"})
        if done is not None:
            self._adapters.load_state_dict(done["net"])
            return final
        config, how = self.config, self._losses
        epoch_of = lru_cache(maxsize=1)(self._sampler.epoch)
        per_epoch = self._sampler.epoch_steps

        def loss_of(step: int) -> Tensor:
            number, place = divmod(step, per_epoch)
            rng = random.Random(f"{config.seed}:answers:{step}")
            picks = epoch_of(number)[place]
            asked = [self._prompts.asked(self._rows[pick.row], pick, rng) for pick in picks]
            return step_loss(self._tuned, asked, how)

        def show(done: TrainingProgress) -> None:
            if progress is not None:
                progress(done)
            if done.step % per_epoch == 0 and done.step < done.steps:
                self._note_figures(done.step, self._measured_figures(self.logits()))

        optimiser = torch.optim.AdamW(
            self._adapters.parameters(), config.setting("lr"), weight_decay=config.weight_decay
        )
        plan = TrainingPlan(
            self.settings["steps"], config.warmup, config.seed, config.checkpoint_every
        )
        unfinished = config.work / checkpoint.NAME
        with _stop_signals() as stopping:
            run_training(
                self._adapters, optimiser, plan, loss_of, unfinished, self.settings, show, stopping
            )
        checkpoint.save_content(
            final, {"net": self._adapters.state_dict(), "settings": self.settings}
        )
        unfinished.unlink(missing_ok=True)
        return final

    @property
    def _losses(self) -> Losses:
        config = self.config
        return Losses(config.setting("first"), config.tokens, config.checkpointing)

    def _note_figures(self, step: int, figures: Mapping[str, Any]) -> None:
        """Add figures of the validation to the run's file, and show them."""
        epoch = step / self._sampler.epoch_steps
        line = json.dumps({"step": step, "epoch": round(epoch, 3), **figures})
        with (self.config.work / VALIDATION).open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
        self._report(f"validation: {line}")

    def logits(self) -> calibrate.Floats:
        """Return the logit of "biased" of each of :attr:`texts`, the highest of its windows: (n,).

        Raises UsageError if one is no number.
        """
        prompts = [(i, p) for i, t in enumerate(self.texts) for p in self._prompts.of_text(t.text)]
        yes, no = self._prompts.yes, self._prompts.no
        each = decision_logits(self._tuned, [p for _, p in prompts], yes, no, self._losses)
        highest = np.full(len(self.texts), -np.inf)
        for (i, _), logit in zip(prompts, each.tolist(), strict=True):
            highest[i] = max(highest[i], logit)
        return highest

    def _measured_figures(self, logits: calibrate.Floats) -> dict[str, Any]:
        """Return loss of the decision, accuracy at the logit 0 and AUROC; AUROC by pool, too."""
        biased = np.array([text.biased for text in self.texts])
        pool = np.array([text.pool for text in self.texts])
        by_pool = {
            str(name): _rounded_auroc(biased[pool == name], logits[pool == name])
            for name in np.unique(pool)
        }
        return {
            "n": len(biased),
            "loss": round(float(np.logaddexp(0, np.where(biased, -logits, logits)).mean()), 4),
            "accuracy": round(float(((logits > 0) == biased).mean()), 4),
            "auroc": _rounded_auroc(biased, logits),
            "pools": {name: value for name, value in by_pool.items() if value is not None},
        }

    def write(self, version: str) -> Path:
        """Calibrate the trained adapters on the validation texts; return the adapter's folder.

        Raises UsageError as :func:`guard.train.calibrate.fit_scale` and
        :func:`guard.train.calibrate.operating_points`.
        """
        config, settings, logits = self.config, self.settings, self.logits()
        # The type is not known before an answer is written: all types share a threshold.
        judged = calibrate.JudgedTexts(
            np.array([text.pool for text in self.texts]),
            np.array([text.biased for text in self.texts]),
            np.array([BIAS_TYPES[0]] * len(self.texts)),
            logits,
        )
        scale = calibrate.fit_scale(logits, judged.biased, calibrate.equal_weights(judged))
        scores = scale.scores(logits)
        points: dict[str, calibrate.Thresholds] = {
            name: dict.fromkeys(BIAS_TYPES, limits[BIAS_TYPES[0]])
            for name, limits in calibrate.operating_points(judged, scores).items()
        }
        measured = self._measured_figures(logits)
        self._note_figures(settings["steps"], measured)
        figures = {
            "version": version,
            "settings": settings,
            "rows_in_corpus": dict(Counter(row.source for row in self._rows)),
            "epoch_steps": self._sampler.epoch_steps,
            "validation": measured,
            "texts": dict(Counter(text.pool for text in self.texts)),
            **scale._asdict(),
            "points": {
                name: {"threshold": limits[BIAS_TYPES[0]]} | _pool_rates(judged, scores, limits)
                for name, limits in points.items()
            },
        }
        folder = config.work / "adapter"
        write_adapter(
            folder, self._tuned,
            AdapterSettings(
                version, AdapterBase(config.base, settings["base_hash"]),
                asdict(config.instruction),
                scale.temperature, scale.offset,
                {name: {str(k): v for k, v in limits.items()} for name, limits in points.items()},
            ),
            adapter_card(figures), "float16",
        )  # fmt: skip
        with checkpoint.replacing_file(config.work / FIGURES) as part:
            part.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        return folder


def _rounded_auroc(biased: calibrate.Bools, logits: calibrate.Floats) -> float | None:
    """Return the AUROC with four digits; None, which JSON has, without one."""
    auroc = calibrate.auroc(logits, biased)
    return None if math.isnan(auroc) else round(auroc, 4)


def _pool_rates(
    judged: calibrate.JudgedTexts, scores: calibrate.Floats, limits: calibrate.Thresholds
) -> dict[str, float]:
    rates = calibrate.measured_rates(judged, scores, limits)
    return {
        "accuracy": rates.accuracy,
        "recall": rates.recall,
        "false_positive_rate": rates.false_positive_rate,
        "harmless": rates.harmless.n,
        "harmless_found": rates.harmless.hits,
    }


@contextmanager
def _stop_signals() -> Iterator[Callable[[], bool]]:
    """Yield what says whether Ctrl-C or SIGTERM came; the second one ends the process at once."""
    came = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield came.is_set
        return
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for signum, usual in before.items():
            signal.signal(signum, usual)

    def handler(*_: Any) -> None:
        came.set()
        restore()

    for signum in before:
        signal.signal(signum, handler)
    try:
        yield came.is_set
    finally:
        restore()
