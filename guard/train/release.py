"""From a finished run to a release: export, index, calibration, figures."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.special import expit, logit  # type: ignore[import-untyped]

from guard.core import Guard, highest_verdict
from guard.detect.encoder import Encoder
from guard.detect.network import Pass
from guard.detect.tokens import Encoded, WindowTokens
from guard.detect.weights import CONFIG, ONNX, TABLE
from guard.errors import UsageError
from guard.evaluate import run
from guard.evaluate.baselines import terms_for
from guard.evaluate.example import Example
from guard.evaluate.sources import UNSEEN, load
from guard.policy import Policy
from guard.retrieve.build import build_index as build_index
from guard.retrieve.index import BiasIndex
from guard.train import added_statement, calibrate, pools, retrieval
from guard.train.base import base_tokens, padded_inputs
from guard.train.config import TrainConfig
from guard.train.corpus import build_corpus
from guard.train.encoder import Nets, load_final
from guard.train.export import export_detector, write_config
from guard.train.own import STATED
from guard.train.rows import fold, in_validation, share
from guard.train.sources import WholeText

#: The evaluation sets of the card, by the names of ``guard eval``.
SETS = ("redditbias", "emgsd", "toxicbias", "crows_pairs", "bold", "assistant")
_MEASURES = (
    "accuracy f1 auroc false_positive_rate false_negative_rate cs as ece prevalence"
).split()
_BOLD = 4000
_DRAWS = 1000
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


def release_weights(
    config: TrainConfig,
    final: Path,
    folder: Path,
    index: Path,
    version: str,
    report: Report = print,
) -> dict[str, Any]:
    """Export ``final`` to ``folder``, build the index, calibrate, measure; return the figures.

    Writes ``folder`` and ``index``. ``index`` must hold ``statements.jsonl``, which may have more
    statements than training read. Only the paths of ``config`` are used; settings come from the
    run.

    Raises UsageError for an index without statements, a run that never saw references, and what
    :mod:`guard.train.calibrate` refuses.
    """
    assert config.data is not None, "calibration needs the validation texts of the sources"
    data = config.data
    nets, content = load_final(final)
    last = content["settings"]
    if last["references"] != "fused":
        raise UsageError(
            "This run saw no references and must not ship; release one with --references fused."
        )
    if not (index / "statements.jsonl").is_file():
        raise UsageError(
            f"{index} has no statements.jsonl; copy that of the index that the weights should have."
        )
    stages = [*content.get("before", []), last]
    # The texts are those of the network's run, not of the references'.
    read = _of_network(stages)
    config = config.as_described(read)
    corpus = build_corpus(config)
    if read.get("corpus") != corpus.digest():
        report("the sources or texts have changed since the run: the card counts today's")
    settings: dict[str, Any] = {
        "version": version,
        "k": config.k,
        "floor": config.floor,
        "max_context_tokens": config.max_context_tokens,
    }
    export_detector(
        nets, folder, settings, base=config.base, scratch=config.work,
        texts=[row.text for row in corpus.train],
    )  # fmt: skip
    report("exported")
    passes: Passes = {}
    plain = CachedEncoder(passes, folder)
    built = build_index(index / "statements.jsonl", index, plain)
    report("index built")
    retrieval_figures = retrieval.measure_retrieval(
        plain.embed, data, index / "statements.jsonl", config.floor
    )
    report(f"retrieval: {retrieval_figures}")
    _changed_folder(folder, floor=retrieval_figures["floor"])
    texts = pools.validation_texts(data, config.statements)
    comments = [t.text for t in texts if t.pool == "redditbias"]
    figures: dict[str, Any] = {
        "version": version,
        "training": stages,
        "rows": corpus.counts(),
        "retrieval": retrieval_figures,
        "network": network_figures(nets, base_tokens(config.base), folder, comments),
        "points": set_points(
            folder, built, pools.far_from_training(texts, corpus.every_text), passes
        ),
    }
    report(f"calibrated: {figures['points']['measured']}")
    figures["added_statement"] = added_statement.statement_effects(
        CachedEncoder(passes, folder, built)
    )
    figures["measured"] = measure_release(data, folder, built, passes, report)
    return figures


def _of_network(stages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the last run that trained the network."""
    return [stage for stage in stages if stage["method"] != "references"][-1]


def _changed_folder(folder: Path, **changes: Any) -> None:
    raw = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    write_config(folder, raw | changes)


def set_points(
    folder: Path, index: BiasIndex, unseen: Sequence[WholeText], passes: Passes
) -> dict[str, Any]:
    """Fit the scale of the scores and the operating points; write them to ``folder``.

    Returns their figures for the card. The texts are judged by the weights in ``folder`` with the
    index.
    """
    texts = judged_texts(folder, index, unseen, passes)
    weights = calibrate.equal_weights(texts)
    scale = calibrate.fit_scale(texts.logit, texts.biased, weights)
    scores = scale.scores(texts.logit)
    points = calibrate.operating_points(texts, scores)
    _changed_folder(
        folder,
        **scale._asdict(),
        operating_points=points,
        own_thresholds=calibrate.own_thresholds(texts, scores),
    )
    return scale._asdict() | described_points(texts, scores, points)


def described_points(
    texts: calibrate.JudgedTexts, scores: calibrate.Floats, points: dict[str, calibrate.Thresholds]
) -> dict[str, Any]:
    """Return what calibration measures at operating points, for the card."""
    bins = calibrate.reliability_bins(scores, texts.biased, calibrate.equal_weights(texts))
    low, high = calibrate.calibration_interval(texts, scores)
    measured = {}
    for name, limits in points.items():
        rates = calibrate.measured_rates(texts, scores, limits)
        by_pool = {pool: share._asdict() for pool, share in rates.pools.items()}
        measured[name] = rates._asdict() | {"harmless": rates.harmless._asdict(), "pools": by_pool}
    return {
        "n": {
            name: int(np.isin(texts.pool, pools).sum()) for name, pools in calibrate.SOURCES.items()
        },
        "calibration": {"ece": calibrate.calibration_error(bins), "low": low, "high": high},
        "reliability": [b._asdict() for b in bins],
        "thresholds": points,
        "measured": measured,
    }


def judged_texts(
    folder: Path, index: BiasIndex, texts: Sequence[WholeText], passes: Passes
) -> calibrate.JudgedTexts:
    """Judge texts as the guard would, with an unscaled logit; what it cannot judge is left out.

    Own statements are in the index, so they are judged without any validation statement in it.
    """
    encoder = CachedEncoder(passes, folder, index)
    remaining = [
        i for i, s in enumerate(index.statements) if not in_validation(f"own:{fold(s.statement)}")
    ]
    rest = BiasIndex(
        [index.statements[i] for i in remaining], index.vectors[remaining], encoder.name
    )
    rows: list[tuple[str, bool, str, float]] = []
    for stated, used in ((False, index), (True, rest)):
        encoder.use_index(used)
        guard = Guard(_PATIENT, detector=encoder, threshold=0.0)
        some = [t for t in texts if (t.pool in STATED) == stated]
        batches = run.judged([Example(t.text, t.biased, t.family) for t in some], guard)
        for text, trail in zip(some, chain.from_iterable(batches), strict=True):
            verdict = highest_verdict(trail, guard.policy)
            if verdict.score is not None:
                assert verdict.bias_type is not None, "at the threshold 0 everything has a type"
                rows.append((text.pool, text.biased, verdict.bias_type, verdict.score))
    pool, biased, kind, score = map(np.array, zip(*rows, strict=True))
    return calibrate.JudgedTexts(pool, biased, kind, logit(np.clip(score, 1e-15, 1 - 1e-15)))


def measured_again(
    stored: dict[str, Any], data: Path, folder: Path, index: Path, report: Report = print
) -> dict[str, Any]:
    """Return a release's figures with those of the scores measured on this processor.

    ``stored`` are the figures of the release in ``folder``. Nothing is chosen anew, and the size
    and speed of the network, the retrieval and the effect of an added statement stay as they are.
    """
    statements = index / "statements.jsonl"
    config = TrainConfig(work=folder, data=data, statements=statements)
    config = config.as_described(_of_network(stored["training"]))
    unseen = pools.far_from_training(
        pools.validation_texts(data, statements), build_corpus(config).every_text
    )
    passes: Passes = {}
    encoder = CachedEncoder(passes, folder)
    built = BiasIndex.load(index, encoder.name)
    texts = judged_texts(folder, built, unseen, passes)
    points = stored["points"]
    again = described_points(texts, expit(texts.logit), points["thresholds"])
    report(f"operating points: {again['measured']}")
    measured = measure_release(data, folder, built, passes, report)
    return stored | {"points": points | again, "measured": measured}


def network_figures(
    nets: Nets, tokens: WindowTokens, folder: Path, comments: Sequence[str]
) -> dict[str, float]:
    """Return the network's size and speed, and how the int8 one differs from the float32 one.

    ``tokens`` are those of the float32 one; the int8 one numbers its own. Over 400 of the
    comments: ``ms`` is the median time of one pass on one thread, ``logit`` the mean absolute
    difference, ``signs_changed`` the share of other signs. ``table`` is whether the token
    embeddings have a file of their own.
    """
    encoder = Encoder(folder, use_references=False)
    short = [text for text in comments if len(text) < 300]
    texts = sorted(short, key=lambda t: share(t, "parity"))[:400]
    seconds, logits = [], []
    for text in texts:
        cut, whole = encoder.tokens.encode(text)[0], tokens.encode(text)[:1]
        with torch.no_grad():
            exact = nets.net(*padded_inputs(whole, tokens.pad)).logit
        started = time.perf_counter()
        output = encoder.run(cut)
        seconds.append(time.perf_counter() - started)
        logits.append((output.logit, float(exact)))
    stored, exact = np.array(logits).T
    return {
        "parameters": sum(p.numel() for p in nets.parameters()),
        "layers": nets.net.encoder.config.num_hidden_layers,
        "table": (folder / TABLE).exists(),
        "bytes": sum(f.stat().st_size for f in (folder / ONNX, folder / TABLE) if f.exists()),
        "ms": 1000 * statistics.median(seconds),
        "n": len(texts),
        "logit": float(np.abs(stored - exact).mean()),
        "signs_changed": float(((stored > 0) != (exact > 0)).mean()),
    }


def measure_release(
    data: Path, folder: Path, index: BiasIndex, passes: Passes, report: Report = print
) -> dict[str, Any]:
    """Return the figures of ``guard eval`` on the evaluation sets, with and without references.

    Of each set, ``references`` and ``alone`` hold [value, low, high] of each measure at each
    operating point.
    """
    by_set: dict[str, Any] = {}
    terms = terms_for(data)
    with_index = Guard(_PATIENT, detector=CachedEncoder(passes, folder, index))
    alone = Guard(_PATIENT, detector=CachedEncoder(passes, folder))
    for name in SETS:
        dataset = load(name, data, limit=_BOLD if name == "bold" else None)
        if name == "bold":
            unseen = [e for e in dataset.examples if UNSEEN in e.parts]
            dataset = replace(dataset, title=f"{dataset.title}, {UNSEEN}", examples=unseen)
        by_set[name] = {"title": dataset.title}
        for key, guard, draws in (("references", with_index, _DRAWS), ("alone", alone, 0)):
            result = run.evaluate(dataset, guard, terms=terms, draws=draws)
            by_set[name][key] = {"n": result.whole.n} | {
                point: {
                    m: list(figures[m].parts("value", "low", "high").values()) for m in _MEASURES
                }
                for point, figures in result.points.items()
            }
        report(f"{name}: {by_set[name]['references']['balanced']}")
    return by_set
