"""From the final checkpoint to what ships: export, index, calibration, figures, card."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from guard import __version__
from guard.detect.encoder import Encoder
from guard.detect.weights import CONFIG
from guard.errors import UsageError
from guard.retrieve.build import build as build_index
from guard.retrieve.index import BiasIndex
from guard.train import calibrate, evaluate, lexical, pools, retrieval
from guard.train.base import BASES, Embed, teacher
from guard.train.config import TrainConfig
from guard.train.corpus import Corpus, Sampler, build
from guard.train.encoder import Nets, load_final
from guard.train.export import BITS, export, placeholder_points, write_config
from guard.train.flips import flips
from guard.train.rows import fold, share
from guard.train.validate import ablation
from guard.verdict import Scores

WEIGHTS_VERSION = "1.0"
Say = Callable[[str], None]


def release(
    config: TrainConfig, final: Path, folder: Path, index: Path, say: Say = print
) -> dict[str, Any]:
    """Export ``final`` to ``folder``, build the index, calibrate, measure; return the figures.

    ``folder`` and ``index`` are written; the index folder must hold ``statements.jsonl``, which
    may have grown since training read ``config.statements``. The card is made of the figures.
    """
    assert config.data is not None, "calibration needs the validation texts of the sources"
    data = config.data
    nets, content = load_final(final)
    stages = [*content.get("before", []), content["settings"]]
    config = as_run(config, stages)
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
        "base": {"name": BASES[config.base].title, "sha256": BASES[config.base].sha256},
        "training": content["settings"],
    }
    corpus = build(config)
    sampler = Sampler(corpus.train, config)
    drawn = sorted({p.row for batch in sampler.epoch(0) for p in batch})
    words = lexical.fit_rows([corpus.train[i] for i in drawn])
    export(nets, words, folder, settings, base=config.base, scratch=config.work)
    say("exported")
    build_index(index / "statements.jsonl", index, Encoder(folder, use_references=False))
    say("index built")
    figures: dict[str, Any] = {
        "training": stages,
        "rows": corpus.counts(),
    }
    found = retrieval.compared(
        _embedders(config, folder), data, index / "statements.jsonl", config.floor
    )
    say(f"retrieval: {found}")
    figures["retrieval"] = found
    raw = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    write_config(folder, raw | {"floor": found["floor"]})
    figures["parity"] = parity(nets, config, folder)
    figures["ablation"] = ablation(config, nets)
    figures["points"] = set_points(config, folder, index, learned(config, corpus, stages))
    say(f"calibrated: {figures['points']}")
    figures["flips"] = flips(Encoder(folder, index))._asdict()
    figures["measured"] = measure(data, folder, index, say)
    return figures


def _embedders(config: TrainConfig, folder: Path) -> dict[str, Embed]:
    encoder = Encoder(folder, use_references=False)
    found = {"base": teacher()}
    if config.embedder is not None:
        found["embedder"] = teacher(config.embedder)
    return found | {"shipped": encoder.embed}


def as_run(config: TrainConfig, stages: Sequence[dict[str, Any]]) -> TrainConfig:
    """Return ``config`` as the last of ``stages`` read its inputs.

    Raises UsageError for a run that must not ship.
    """
    settings = stages[-1]
    if settings.get("references", "fused") != "fused" or any(s.get("without") for s in stages):
        raise UsageError(
            "This run was a study (references not fused in its last stage, or groups left out); "
            "release one whose last stage fuses references and that saw every group."
        )
    if settings.get("embedder", "") != config.embedded():
        raise UsageError(
            "This run began with another embedder; name its file with --embedder, or leave "
            "--embedder out where there was none."
        )
    return replace(config, **{k: settings[k] for k in _INPUTS if k in settings})


_INPUTS = ("k", "floor", "max_context_tokens", "base", "layers")


def learned(config: TrainConfig, corpus: Corpus, stages: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield each text of ``corpus`` and of the corpora that the stages learned from, once."""
    known = {f.name for f in fields(TrainConfig)} - {"teachers", "without", "start", "embedder"}
    # A mean learned nothing of its own, and some stages read the same corpus.
    corpora = {s.get("corpus", i): s for i, s in enumerate(stages) if "averaged" not in s}
    seen = {r.text for r in corpus.train}
    yield from seen
    for stage in corpora.values():
        read = build(replace(config, **{k: v for k, v in stage.items() if k in known}))
        texts = {r.text for r in read.train} - seen
        seen |= texts
        yield from texts


def set_points(
    config: TrainConfig, folder: Path, index: Path, training: Iterable[str]
) -> dict[str, Any]:
    """Fit the temperature and the operating points; write them to ``folder``.

    Returns what the card says of them. Only validation texts far from every text of ``training``
    are judged, by the weights in ``folder`` with the index.
    """
    assert config.data is not None
    raw = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    found = pools.read(config.data, config.statements)
    texts = judged(folder, index, pools.unseen(found, training))
    weights = calibrate.equal_weights(texts)
    temperature = round(calibrate.fit_temperature(texts.logit, texts.biased, weights), 4)
    logits = texts.logit / temperature
    scores = calibrate.sigmoid(logits)
    points = calibrate.operating_points(texts, scores)
    raw["temperature"] = temperature
    raw["operating_points"] = points
    raw["own_thresholds"] = calibrate.own_thresholds(texts, scores)
    write_config(folder, raw)
    counts = {
        kind: {
            "comments": int((texts.of(calibrate.COMMENTS).kind == kind).sum()),
            "harmless": int((_harmless(texts).kind == kind).sum()),
        }
        for kind in points["balanced"]
    }
    return {
        "temperature": temperature,
        "log_loss": calibrate.log_loss(logits, texts.biased, weights),
        "gain_of_a_bias": calibrate.gain_of_a_bias(logits, texts.biased, weights),
        "n": {name: int(np.isin(texts.pool, of).sum()) for name, of in calibrate.SOURCES.items()},
        "harmless": dict(Counter(texts.pool[~texts.biased].tolist())),
        "calibration": calibration(texts, scores),
        "reliability": [b._asdict() for b in calibrate.reliability(scores, texts.biased, weights)],
        "common": calibrate.common_points(texts, scores),
        "prices": [p._asdict() for p in calibrate.prices(texts, scores, calibrate.OTHER_ALARMS)],
        "thresholds": points,
        "types": counts,
        "measured": {
            name: calibrate.as_plain(calibrate.measured(texts, scores, limits))
            for name, limits in points.items()
        },
    }


def judged(folder: Path, index: Path, texts: Sequence[pools.Text]) -> calibrate.Judged:
    """Judge texts as the guard would; those that it cannot judge are left out.

    Own statements stand in the index, so they are judged without any validating statement in it.
    """
    encoder = Encoder(folder, index)
    full = encoder.index
    assert full is not None
    kept = [
        i for i, s in enumerate(full.statements) if not pools.validates(f"own:{fold(s.statement)}")
    ]
    rest = BiasIndex([full.statements[i] for i in kept], full.vectors[kept], encoder.name)
    temperature = float(json.loads((folder / CONFIG).read_bytes())["temperature"])
    stated = [t for t in texts if t.pool in pools.STATED]
    others = [t for t in texts if t.pool not in pools.STATED]
    scores = evaluate.segments(encoder, [t.text for t in others])
    encoder.use_index(rest)
    scores += evaluate.segments(encoder, [t.text for t in stated])
    both = zip([*others, *stated], map(evaluate.highest, scores), strict=True)
    rows = [(t, s) for t, s in both if not s.unjudged]
    p = np.clip([s.score for _, s in rows], 1e-15, 1 - 1e-15)
    return calibrate.Judged(
        np.array([t.pool for t, _ in rows]),
        np.array([t.biased for t, _ in rows]),
        np.array([s.bias_type for _, s in rows]),
        np.log(p / (1 - p)) * temperature,
    )


def calibration(texts: calibrate.Judged, scores: calibrate.Floats) -> dict[str, Any]:
    """Return the expected calibration error with its interval: of the mixture, of each source."""
    out = {"mixture": _calibration(texts, scores)}
    for name, of in calibrate.SOURCES.items():
        inside = np.isin(texts.pool, of)
        if inside.any():
            out[name] = _calibration(texts.where(inside), scores[inside])
    return out


def _harmless(texts: calibrate.Judged) -> calibrate.Judged:
    return texts.where(np.isin(texts.pool, calibrate.HARMLESS) & ~texts.biased)


def _calibration(texts: calibrate.Judged, scores: calibrate.Floats) -> dict[str, Any]:
    weights = calibrate.equal_weights(texts)
    bins = calibrate.reliability(scores, texts.biased, weights)
    low, high = calibrate.calibration_interval(texts, scores)
    return {"n": len(scores), "ece": calibrate.calibration_error(bins), "low": low, "high": high}


def parity(nets: Nets, config: TrainConfig, folder: Path, count: int = 400) -> dict[str, float]:
    """Compare the int8 network with the float32 one, and retrieval with the base model's.

    ``logit`` is the mean absolute difference, ``flips`` the share of texts whose sign of the
    logit changes, ``cosine`` the mean cosine of embeddings int8 to float32, ``base`` that of int8
    to the base model, ``neighbours`` the share of the base model's five nearest statements that
    the int8 embeddings also find.
    """
    assert config.data is not None
    encoder = Encoder(folder, use_references=False)
    read = pools.read(config.data, config.statements)
    texts = [t.text for t in read if t.pool == "redditbias" and len(t.text) < 300]
    texts = sorted(texts, key=lambda t: share(t, "parity"))[:count]
    statements = [
        json.loads(line)["statement"]
        for line in config.statements.read_text(encoding="utf-8").splitlines()
        if line.strip()
    ]
    differences, flips, cosines = [], [], []
    for text in texts:
        one = encoder.tokens.encode(text)[0]
        ids, types = torch.tensor([one.ids]), torch.tensor([one.types])
        with torch.no_grad():
            exact = nets.net(ids, torch.ones_like(ids), types)
        got = encoder.run(one)
        differences.append(abs(got.logit - float(exact.logit)))
        flips.append((got.logit > 0) != (float(exact.logit) > 0))
        cosines.append(float(got.embedding @ exact.embedding[0].numpy()))
    embed = teacher(config.embedder)
    ours, ours_index = encoder.embed(texts), encoder.embed(statements)
    base, base_index = embed(texts), embed(statements)
    near = np.argsort(-(ours @ ours_index.T), axis=1)[:, :5]
    wanted = np.argsort(-(base @ base_index.T), axis=1)[:, :5]
    both = [len(set(a) & set(b)) / 5 for a, b in zip(near.tolist(), wanted.tolist(), strict=True)]
    return {
        "n": len(texts),
        "logit": float(np.mean(differences)),
        "flips": float(np.mean(flips)),
        "cosine": float(np.mean(cosines)),
        "base": float((ours * base).sum(1).mean()),
        "neighbours": float(np.mean(both)),
    }


def measure(data: Path, folder: Path, index: Path, say: Say = print) -> dict[str, Any]:
    """Return the figures on the evaluation sets, with and without references, per point."""
    sets = {
        "redditbias": evaluate.redditbias_eval(data),
        "emgsd": evaluate.emgsd_eval(data),
        "toxicbias": evaluate.toxicbias_eval(data),
        "crows_pairs": evaluate.crows_eval(data),
        "bold": evaluate.bold_eval(data),
    }
    out: dict[str, Any] = {}
    empty = Encoder(folder, use_references=False)
    full = Encoder(folder, BiasIndex.load(index, empty.name))
    for name, labelled in sets.items():
        out[name] = {}
        for kind, encoder in (("references", full), ("alone", empty)):
            found = evaluate.segments(encoder, labelled.texts)
            # Texts in another language are no misses; `guard eval` counts them as not usable.
            kept = [i for i, of in enumerate(found) if not evaluate.highest(of).unjudged]
            scores, labels = [found[i] for i in kept], [labelled.labels[i] for i in kept]
            if encoder is full:
                out[name]["calibration"] = _of_a_set(
                    name, [evaluate.highest(of) for of in scores], labels
                )
            out[name][kind] = {
                point: evaluate.binary(scores, labels, dict(limits))._asdict()
                for point, limits in encoder.operating_points.items()
            }
        say(f"{name}: {out[name]['references']['balanced']}")
    return out


def _of_a_set(name: str, scores: Sequence[Scores], labels: Sequence[bool]) -> dict[str, Any]:
    found = np.array([s.score for s in scores])
    kinds = np.array([s.bias_type for s in scores])
    texts = calibrate.Judged(np.full(len(found), name), np.array(labels), kinds, found)
    return _calibration(texts, found)
