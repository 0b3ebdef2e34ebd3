"""From the final checkpoint to what ships: export, index, calibration, figures, card."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from guard import __version__
from guard.detect.encoder import Encoder
from guard.detect.weights import CONFIG
from guard.retrieve.build import build as build_index
from guard.retrieve.index import BiasIndex
from guard.train import calibrate, evaluate, lexical
from guard.train.base import BASE_NAME, BASE_SHA256, teacher
from guard.train.config import TrainConfig
from guard.train.corpus import Sampler, build
from guard.train.encoder import Nets, load_final
from guard.train.export import export, placeholder_points, write_config
from guard.train.flips import flips
from guard.train.rows import share
from guard.train.validate import ablation
from guard.verdict import BIAS_TYPES

WEIGHTS_VERSION = "1.0"
Say = Callable[[str], None]


def release(
    config: TrainConfig, final: Path, folder: Path, index: Path, say: Say = print
) -> dict[str, Any]:
    """Export ``final`` to ``folder``, build the index, calibrate, measure; return the figures.

    ``folder`` and ``index`` are written; the index folder must hold ``statements.jsonl``. The
    figures are also kept in ``config.work / "figures.json"``, from which the card is written.
    """
    assert config.data is not None, "calibration needs the validation texts of the sources"
    nets, content = load_final(final)
    settings = {
        "version": WEIGHTS_VERSION,
        "guard": __version__,
        "k": config.k,
        "floor": config.floor,
        "max_context_tokens": config.max_context_tokens,
        "lexical_weight": lexical.WEIGHT,
        "temperature": 1.0,
        "operating_points": placeholder_points(),
        "base": {"name": BASE_NAME, "sha256": BASE_SHA256},
        "training": content["settings"] | {"rows": content["rows"]},
    }
    corpus = build(config)
    sampler = Sampler(corpus.train, config)
    drawn = sorted({p.row for batch in sampler.epoch(0) for p in batch})
    words = lexical.fit_rows([corpus.train[i] for i in drawn])
    export(nets, words, folder, settings, scratch=config.work)
    say("exported")
    build_index(config.statements, index, Encoder(folder, use_references=False))
    say("index built")
    figures: dict[str, Any] = {"training": content["settings"], "rows": content["rows"]}
    figures["parity"] = parity(nets, config, folder)
    figures["ablation"] = ablation(config, nets)
    figures["points"] = set_points(config, folder, index)
    say(f"calibrated: {figures['points']}")
    figures["flips"] = flips(Encoder(folder, index))._asdict()
    figures["measured"] = measure(config.data, folder, index, say)
    (config.work / "figures.json").write_text(json.dumps(figures, indent=2), encoding="utf-8")
    return figures


def set_points(config: TrainConfig, folder: Path, index: Path) -> dict[str, Any]:
    """Fit the temperature and the operating points; write them to ``folder``."""
    assert config.data is not None
    raw = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    encoder = Encoder(folder, index)
    before = float(raw["temperature"])
    comments = calibrate.redditbias_validation(config.data)
    own = calibrate.own_validation(config.statements)
    wiki = calibrate.bold_validation(config.data)
    comment_logits = calibrate.logits(encoder, comments.texts, before)
    own_logits = calibrate.logits(encoder, own.texts, before)
    wiki_logits = calibrate.logits(encoder, wiki.texts, before)
    labels = np.array(comments.labels, float)
    own_labels = np.array(own.labels, float)
    temperature = calibrate.fit_temperature(
        np.concatenate([comment_logits, own_logits]), np.concatenate([labels, own_labels])
    )
    harmless = np.concatenate([own_logits[own_labels == 0], wiki_logits])
    points = calibrate.operating_points(
        _sigmoid(comment_logits / temperature), labels, _sigmoid(harmless / temperature)
    )
    raw["temperature"] = round(temperature, 4)
    raw["operating_points"] = {
        name: dict.fromkeys(BIAS_TYPES, point.threshold) for name, point in points.items()
    }
    write_config(folder, raw)
    sizes = {"redditbias": len(labels), "own": len(own.texts), "bold": len(wiki.texts)}
    return {
        "temperature": temperature,
        "n": sizes,
        "points": {name: point._asdict() for name, point in points.items()},
    }


def _sigmoid(x: calibrate.Array) -> calibrate.Array:
    y: calibrate.Array = 1 / (1 + np.exp(-x))
    return y


def parity(nets: Nets, config: TrainConfig, folder: Path, count: int = 400) -> dict[str, float]:
    """Compare the int8 network with the float32 one, and retrieval with the base model's.

    ``logit`` is the mean absolute difference, ``flips`` the share of texts whose sign of the
    logit changes, ``cosine`` the mean cosine of embeddings int8 to float32, ``base`` that of int8
    to the base model, ``neighbours`` the share of the base model's five nearest statements that
    the int8 embeddings also find.
    """
    assert config.data is not None
    encoder = Encoder(folder, use_references=False)
    texts = [t for t in calibrate.redditbias_validation(config.data).texts if len(t) < 300]
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
    embed = teacher(encoder.tokens)
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
            scores = evaluate.highest(encoder, labelled.texts)
            out[name][kind] = {
                point: evaluate.binary(scores, labelled.labels, dict(limits))._asdict()
                for point, limits in encoder.operating_points.items()
            }
        say(f"{name}: {out[name]['references']['balanced']}")
    return out
