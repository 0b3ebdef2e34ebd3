"""Compare networks on validation texts: ``python networks.py --data DATA A/final.pt B/final.pt``.

For each finished run it prints the AUROC by source and their mean, before quantisation and without
references, and the difference of the mean to the first run's, with a 95 % interval from redrawing
the families of texts. One run of each: the interval does not hold other seeds.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from guard.gate.context import in_context
from guard.results.intervals import percentile
from guard.train import pools
from guard.train.base import base_tokens
from guard.train.calibrate import SOURCES, auroc
from guard.train.config import TrainConfig
from guard.train.corpus import build_corpus
from guard.train.encoder import load_final, logits_of
from guard.train.sources import WholeText, text_pieces

# BOLD has harmless texts only; the held-out texts are no source of calibration.
_OF_TEXTS = {name: of for name, of in SOURCES.items() if name != "BOLD"} | {"held out": ("unseen",)}
Floats = NDArray[np.float64]


class Texts(NamedTuple):
    """n texts: ``pool`` and ``family`` by name, ``biased`` by label."""

    pool: NDArray[np.str_]
    family: NDArray[np.str_]
    biased: NDArray[np.bool_]

    def sources(self) -> dict[str, NDArray[np.int64]]:
        """Return the places of the texts of each source that has both labels."""
        places = {name: np.flatnonzero(np.isin(self.pool, of)) for name, of in _OF_TEXTS.items()}
        return {
            name: of for name, of in places.items() if len(of) and 0 < self.biased[of].mean() < 1
        }


def differences(
    scores: Sequence[Floats], texts: Texts, draws: int = 400, seed: int = 0
) -> list[tuple[float, float, float]]:
    """Return the mean AUROC of each network less the first one's, with its 95 % interval.

    Families are redrawn within each source, the same ones for all networks.
    """
    rng = np.random.default_rng(seed)
    families = {}
    for name, places in texts.sources().items():
        _, number = np.unique(texts.family[places], return_inverse=True)
        order = np.argsort(number, kind="stable")
        families[name] = np.split(places[order], np.cumsum(np.bincount(number))[:-1])

    def means(chosen: Mapping[str, NDArray[np.int64]]) -> Floats:
        return np.array([
            np.nanmean([auroc(of[ids], texts.biased[ids]) for ids in chosen.values()])
            for of in scores
        ])  # fmt: skip

    drawn = np.array([
        means({
            name: np.concatenate([of[i] for i in rng.integers(0, len(of), len(of))])
            for name, of in families.items()
        })
        for _ in range(draws)
    ])  # fmt: skip
    value = means(texts.sources())
    return [
        (float(value[i] - value[0]), *percentile(drawn[:, i] - drawn[:, 0]))
        for i in range(len(scores))
    ]


def logits(path: Path, texts: Sequence[WholeText], device: str) -> Floats:
    """Return the highest logit of each text's segments by the network of a finished run."""
    nets, content = load_final(path)
    settings = content["settings"]
    tokens = base_tokens(settings["base"], settings["max_context_tokens"])
    windows = [
        (i, window) for i, t in enumerate(texts) for window in in_context(text_pieces(t.text))
    ]
    of_windows = logits_of(nets.net, tokens, [window for _, window in windows], device).numpy()
    found = np.full(len(texts), -np.inf)
    np.maximum.at(found, [i for i, _ in windows], of_windows)
    return found


def main() -> None:
    """Score, compare and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, help="final.pt of finished runs")
    parser.add_argument("--data", type=Path, required=True, help="folder of the licensed sources")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    config = TrainConfig(work=Path(), data=options.data)
    read = pools.validation_texts(options.data, config.statements)
    texts = pools.far_from_training(read, build_corpus(config).every_text)
    columns = zip(*((t.pool, t.family, t.biased) for t in texts), strict=True)
    of = Texts(*map(np.array, columns))
    scores = [logits(path, texts, options.device) for path in options.runs]
    for path, score, (change, low, high) in zip(
        options.runs, scores, differences(scores, of), strict=True
    ):
        by_source = {name: auroc(score[i], of.biased[i]) for name, i in of.sources().items()}
        print(f"{path}: {np.mean(list(by_source.values())):.4f} {change:+.4f} ", end="")
        print(f"[{low:+.4f}, {high:+.4f}] of {len(texts)} texts;", end=" ")
        print(", ".join(f"{name} {value:.4f}" for name, value in by_source.items()))


if __name__ == "__main__":
    main()
