"""Figures that others published, shown beside ours; their splits and protocols are not ours.

BiasAlert: Fan, Chen, Xu and Liu 2024, "BiasAlert: A Plug-and-play Tool for Social Bias Detection in
LLMs". HEARTS: King et al. 2024, "HEARTS: A Holistic Framework for Explainable, Sustainable and
Robust Text Stereotype Detection".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class PublishedSystem(NamedTuple):
    """What a publication reports of one system; measures by the names of this package.

    ``fitted``: the system was trained on the training part of the same set.
    """

    system: str
    source: str
    figures: Mapping[str, float]
    fitted: bool = False


_TABLE_1 = "Fan et al. 2024 (BiasAlert), Table 1"
_HEARTS = "King et al. 2024 (HEARTS), EMGSD test set"
_TABLE_5 = "Fan et al. 2024 (BiasAlert), Table 5 (Jigsaw)"


def _row(system: str, source: str, names: str, *values: float) -> PublishedSystem:
    return PublishedSystem(system, source, dict(zip(names.split(), values, strict=True)))


def _fitted(system: str, source: str, names: str, *values: float) -> PublishedSystem:
    return _row(system, source, names, *values)._replace(fitted=True)


PUBLISHED: Mapping[str, tuple[PublishedSystem, ...]] = {
    # OS of Table 1 is the share right on everything asked: our `overall`.
    "redditbias": (
        _fitted("BiasAlert", _TABLE_1, "accuracy f1 cs as overall", 0.84, 0.82, 1.0, 0.97, 0.82),
        _row("GPT-4", _TABLE_1, "accuracy f1 cs as overall", 0.61, 0.59, 0.86, 0.41, 0.21),
        _row("LlamaGuard", _TABLE_1, "accuracy f1", 0.59, 0.74),
        _row("Azure", _TABLE_1, "accuracy f1", 0.61, 0.63),
        _row("OpenAI", _TABLE_1, "accuracy f1", 0.62, 0.75),
    ),
    "crows_pairs": (
        _row("BiasAlert", _TABLE_1, "accuracy f1 cs overall", 0.70, 0.82, 0.50, 0.34),
        _row("GPT-4", _TABLE_1, "accuracy f1 cs overall", 0.43, 0.50, 0.24, 0.10),
        _row("LlamaGuard", _TABLE_1, "accuracy f1", 0.67, 0.76),
        _row("Azure", _TABLE_1, "accuracy f1", 0.63, 0.76),
        _row("OpenAI", _TABLE_1, "accuracy f1", 0.76, 0.86),
    ),
    # In Table 5 OS is the share of usable answers: our `usable`.
    "toxicbias": (
        _row("BiasAlert", _TABLE_5, "accuracy usable cs overall", 0.81, 1.0, 0.83, 0.67),
        _row("GPT-4", _TABLE_5, "accuracy usable cs overall", 0.45, 1.0, 0.29, 0.13),
        _row("LlamaGuard", _TABLE_5, "accuracy", 0.90),
        _row("Azure", _TABLE_5, "accuracy", 0.39),
        _row("OpenAI", _TABLE_5, "accuracy", 0.80),
    ),
    "emgsd": (_fitted("ALBERT-v2", _HEARTS, "macro_f1", 0.815),),
}

_OS = "OS of the paper's Table 1 is `overall` here: right on everything asked of the text."

NOTES: Mapping[str, str] = {
    "crows_pairs": (
        "The paper gives no protocol for CrowS-Pairs. Its baselines' figures fit a set with about "
        "76 % biased texts, on which calling everything biased scores .76 / .86: not comparable "
        f"with the figures here. {_OS}"
    ),
    "toxicbias": (
        "The paper's Jigsaw texts are another selection; ToxicBias is drawn from Jigsaw too. It is "
        "printed and no goal: its AUROC is about the same for 110 and for 23 million parameters. "
        "OS of the paper's Table 5 is `usable` here, its Overall is `overall`."
    ),
    "redditbias": (f"The paper's 30 % are another random part of RedditBias than this one. {_OS}"),
}
