"""From a finished run to a release: export, index, calibration, figures."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from guard import __version__
from guard.core import Guard, highest
from guard.detect.encoder import Encoder, Pass
from guard.detect.tokens import Encoded, WindowTokens
from guard.detect.weights import CONFIG, ONNX
from guard.errors import UsageError
from guard.evaluate import run
from guard.evaluate.baselines import terms_for
from guard.evaluate.example import Example
from guard.evaluate.result import Result
from guard.evaluate.sources import UNSEEN, Dataset, load
from guard.policy import Policy
from guard.retrieve.build import build as build_index
from guard.retrieve.index import BiasIndex
from guard.train import calibrate, lexical, pools, retrieval
from guard.train.base import BASES, base_tokens
from guard.train.config import TrainConfig
from guard.train.corpus import Sampler, build
from guard.train.encoder import Nets, load_final
from guard.train.export import BITS, export, placeholder_points, write_config
from guard.train.flips import flips
from guard.train.rows import fold, share, validates

WEIGHTS_VERSION = "2.0"
#: The evaluation sets of the card, by the names of ``guard eval``.
SETS = ("redditbias", "emgsd", "toxicbias", "crows_pairs", "bold", "assistant")
_MEASURES = (
    "accuracy",
    "f1",
    "auroc",
    "false_positive_rate",
    "false_negative_rate",
    "cs",
    "as",
    "ece",
    "prevalence",
)
_BOLD = 4000
_DRAWS = 500
# Where other programs share the cores, a window may wait long.
_PATIENT = Policy(timeout_ms=None, queue_ms=None)
Report = Callable[[str], None]
Passes = dict[tuple[tuple[int, ...], tuple[int, ...]], Pass]


class CachedEncoder(Encoder):
    """The encoder, which runs the network once for each input; ``passes`` may be shared."""

    def __init__(self, passes: Passes, folder: Path, index: BiasIndex | None = None) -> None:
        self._passes = passes
        super().__init__(folder, index, use_references=index is not None)

    def run(self, encoded: Encoded) -> Pass:
        """Return the network's output for one input."""
        key = (tuple(encoded.ids), tuple(encoded.types))
        if key not in self._passes:
            self._passes[key] = super().run(encoded)
        return self._passes[key]


def release(
    config: TrainConfig, final: Path, folder: Path, index: Path, report: Report = print
) -> dict[str, Any]:
    """Export ``final`` to ``folder``, build the index, calibrate, measure; return the figures.

    ``folder`` and ``index`` are written; the index folder must hold ``statements.jsonl``, which
    may have grown since training read ``config.statements``. Only the paths of
    ``config`` are used; the settings are those of the run. The card is made of the figures.

    Raises UsageError for a run that never saw references.
    """
    assert config.data is not None, "calibration needs the validation texts of the sources"
    data = config.data
    nets, content = load_final(final)
    last = content["settings"]
    if last["references"] != "fused":
        raise UsageError(
            "This run saw no references and must not ship; release one with --references fused."
        )
    stages = [*content.get("before", []), last]
    # The n-grams are fitted to the network's rows, not to those of the references' run.
    read = [stage for stage in stages if stage["method"] != "references"]
    config = config.as_described(read[-1])
    corpus = build(config)
    drawn = sorted({p.row for batch in Sampler(corpus.train, config).epoch(0) for p in batch})
    words = lexical.fit_rows([corpus.train[i] for i in drawn])
    base = BASES[config.base]
    settings = {
        "version": WEIGHTS_VERSION,
        "guard": __version__,
        "k": config.k,
        "floor": config.floor,
        "max_context_tokens": config.max_context_tokens,
        "lexical_weight": lexical.WEIGHT,
        "temperature": 1.0,
        "operating_points": placeholder_points(),
        "bits": BITS,
        "base": {"name": base.title, "sha256": base.sha256},
        "training": last,
    }
    export(
        nets, words, folder, settings, base=config.base, scratch=config.work,
        texts=[corpus.train[i].text for i in drawn],
    )  # fmt: skip
    report("exported")
    passes: Passes = {}
    plain = CachedEncoder(passes, folder)
    built = build_index(index / "statements.jsonl", index, plain)
    report("index built")
    found = retrieval.measure(plain.embed, data, index / "statements.jsonl", config.floor)
    report(f"retrieval: {found}")
    _change(folder, floor=found["floor"])
    texts = pools.read(data, config.statements)
    figures: dict[str, Any] = {
        "training": stages,
        "rows": corpus.counts(),
        "retrieval": found,
        "network": network(
            nets,
            base_tokens(config.base),
            folder,
            [t.text for t in texts if t.pool == "redditbias"],
        ),
        "points": set_points(folder, built, pools.unseen(texts, corpus.every_text), passes),
    }
    report(f"calibrated: {figures['points']['measured']}")
    figures["flips"] = flips(CachedEncoder(passes, folder, built))._asdict()
    figures["measured"] = measure(data, folder, built, passes, report)
    return figures


def _change(folder: Path, **changes: Any) -> None:
    raw = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    write_config(folder, raw | changes)


def set_points(
    folder: Path, index: BiasIndex, unseen: Sequence[pools.Text], passes: Passes
) -> dict[str, Any]:
    """Fit the temperature and the operating points; write them to ``folder``.

    Returns their figures for the card. The texts are judged by the weights in ``folder`` with the
    index.
    """
    texts = judged(folder, index, unseen, passes)
    weights = calibrate.equal_weights(texts)
    temperature = round(calibrate.fit_temperature(texts.logit, texts.biased, weights), 4)
    logits = texts.logit / temperature
    scores = calibrate.sigmoid(logits)
    points = calibrate.operating_points(texts, scores)
    _change(
        folder,
        temperature=temperature,
        operating_points=points,
        own_thresholds=calibrate.own_thresholds(texts, scores),
    )
    bins = calibrate.reliability(scores, texts.biased, weights)
    low, high = calibrate.calibration_interval(texts, scores)
    return {
        "temperature": temperature,
        "log_loss": calibrate.log_loss(logits, texts.biased, weights),
        "n": {name: int(np.isin(texts.pool, of).sum()) for name, of in calibrate.SOURCES.items()},
        "calibration": {"ece": calibrate.calibration_error(bins), "low": low, "high": high},
        "reliability": [b._asdict() for b in bins],
        "thresholds": points,
        "measured": {
            name: calibrate.as_plain(calibrate.measured(texts, scores, limits))
            for name, limits in points.items()
        },
    }


def judged(
    folder: Path, index: BiasIndex, texts: Sequence[pools.Text], passes: Passes
) -> calibrate.Judged:
    """Judge texts as the guard would; those that it cannot judge are left out.

    Own statements are in the index, so they are judged without any validation statement in it.
    """
    encoder = CachedEncoder(passes, folder, index)
    remaining = [
        i for i, s in enumerate(index.statements) if not validates(f"own:{fold(s.statement)}")
    ]
    rest = BiasIndex(
        [index.statements[i] for i in remaining], index.vectors[remaining], encoder.name
    )
    temperature = float(json.loads((folder / CONFIG).read_bytes())["temperature"])
    rows: list[tuple[pools.Text, float, str]] = []
    for of, used in ((False, index), (True, rest)):
        encoder.use_index(used)
        some = [t for t in texts if (t.pool in pools.STATED) == of]
        rows += _scored(encoder, some)
    p = np.clip([score for _, score, _ in rows], 1e-15, 1 - 1e-15)
    return calibrate.Judged(
        np.array([t.pool for t, _, _ in rows]),
        np.array([t.biased for t, _, _ in rows]),
        np.array([kind for _, _, kind in rows]),
        np.log(p / (1 - p)) * temperature,
    )


def _scored(
    encoder: Encoder, texts: Sequence[pools.Text]
) -> Iterable[tuple[pools.Text, float, str]]:
    """Yield each text with the score and the type of its highest segment."""
    guard = Guard(_PATIENT, detector=encoder, threshold=0.0)
    trails = run.judged([Example(t.text, t.biased, t.family) for t in texts], guard)
    found = [highest(trail, guard.policy) for batch in trails for trail in batch]
    for text, verdict in zip(texts, found, strict=True):
        if verdict.score is not None:
            assert verdict.bias_type is not None, "at the threshold 0 everything has a type"
            yield text, verdict.score, verdict.bias_type


def network(
    nets: Nets, tokens: WindowTokens, folder: Path, comments: Sequence[str], count: int = 400
) -> dict[str, float]:
    """Return the network's size and speed, and how the int8 one differs from the float32 one.

    ``tokens`` are those of the float32 one; the int8 one numbers its own.
    Over ``count`` of the comments: ``ms`` is the median time of one pass on one thread,
    ``logit`` the mean absolute difference, ``flips`` the share whose sign of the logit changes.
    """
    encoder = Encoder(folder, use_references=False)
    short = [text for text in comments if len(text) < 300]
    texts = sorted(short, key=lambda t: share(t, "parity"))[:count]
    seconds, differences, changed = [], [], []
    for text in texts:
        one, whole = encoder.tokens.encode(text)[0], tokens.encode(text)[0]
        ids, types = torch.tensor([whole.ids]), torch.tensor([whole.types])
        with torch.no_grad():
            exact = nets.net(ids, torch.ones_like(ids), types)
        started = time.perf_counter()
        got = encoder.run(one)
        seconds.append(time.perf_counter() - started)
        differences.append(abs(got.logit - float(exact.logit)))
        changed.append((got.logit > 0) != (float(exact.logit) > 0))
    return {
        "parameters": sum(p.numel() for p in nets.parameters()),
        "layers": nets.net.encoder.config.num_hidden_layers,
        "bytes": (folder / ONNX).stat().st_size,
        "ms": 1000 * statistics.median(seconds),
        "n": len(texts),
        "logit": float(np.mean(differences)),
        "flips": float(np.mean(changed)),
    }


def measure(
    data: Path, folder: Path, index: BiasIndex, passes: Passes, report: Report = print
) -> dict[str, Any]:
    """Return the figures of ``guard eval`` on the evaluation sets, with and without references."""
    found: dict[str, Any] = {}
    terms = terms_for(data)
    with_index = Guard(_PATIENT, detector=CachedEncoder(passes, folder, index))
    alone = Guard(_PATIENT, detector=CachedEncoder(passes, folder))
    for name in SETS:
        dataset = _evaluation_set(name, data)
        found[name] = {
            "title": dataset.title,
            "references": _lean(run.evaluate(dataset, with_index, terms=terms, draws=_DRAWS)),
            "alone": _lean(run.evaluate(dataset, alone, terms=terms, draws=0)),
        }
        report(f"{name}: {found[name]['references']['balanced']}")
    return found


def _evaluation_set(name: str, data: Path) -> Dataset:
    dataset = load(name, data, limit=_BOLD if name == "bold" else None)
    if name == "bold":
        unseen = [e for e in dataset.examples if UNSEEN in e.parts]
        return replace(dataset, title=f"{dataset.title}, {UNSEEN}", examples=unseen)
    return dataset


def _lean(result: Result) -> dict[str, Any]:
    """Return the figures at each operating point: [value, low, high] of each measure."""
    return {"n": result.whole.n} | {
        point: {m: list(figures[m][:3]) for m in _MEASURES}
        for point, figures in result.points.items()
    }
