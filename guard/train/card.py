"""Fills the template of the model card with the figures of a release."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from guard.datasets.split import BOLD_SHARE
from guard.detect.weights import TABLE
from guard.train import calibrate
from guard.train.base import BASES
from guard.train.rows import WRITTEN

_TEMPLATE = Path(__file__).with_name("card.md")
# What is true of one version only, if it has such a file; it ends with an empty line.
_OF_ONE = "card-{detector}-{version}.md"
_TABLE = f"`{TABLE}` (token embeddings, apart because of a limit of 100 MiB for a file), "
# Each published source with its licence, and which of the corpus's row sources come from it.
SOURCES = (
    ("RedditBias, training part (Barikeri et al. 2021)", "MIT",
     ("redditbias", "redditbias_rest", "redditbias_whole")),
    ("EMGSD, training part (Holistic AI)", "MIT", ("emgsd", "emgsd_first")),
    ("StereoSet, intrasentence (Nadeem et al. 2021)", "CC BY-SA 4.0", ("stereoset",)),
    ("HEARTS: SeeGULL-GPT and WinoQueer-GPT (Holistic AI)", "MIT", ("hearts",)),
    ("Latent Hatred / implicit hate corpus (ElSherief et al. 2021)", "CC BY 4.0",
     ("implied", "implicit_hate", "explicit_hate", "not_hate")),
    ("SeeGULL, pairs with two votes or more in a region (Jha et al. 2023)", "CC BY 4.0",
     ("seegull",)),
    ("ToxiGen, demonstrations (Hartvigsen et al. 2022)", "MIT", ("toxigen",)),
    (f"BOLD, {BOLD_SHARE:.0%} of the Wikipedia sentences (Dhamala et al. 2021)", "CC BY-SA 4.0",
     ("bold",)),
    ("Texts written for guard", "Apache-2.0", WRITTEN),
)  # fmt: skip
_TRAINS = {"full": "the network", "lora": "adapters", "references": "the fusion",
           "onward": "the network, further"}  # fmt: skip


def card(stored: dict[str, Any]) -> str:
    """Return the card as Markdown.

    ``stored`` is the result of :func:`guard.train.release.release` as JSON (null for nan). Raises
    LookupError, TypeError, ValueError or AttributeError if it is not.
    """
    figures = _numbers(stored)
    base = BASES[figures["training"][-1]["base"]]
    network, points, rows = figures["network"], figures["points"], figures["rows"]
    special = _TEMPLATE.with_name(
        _OF_ONE.format(detector=base.detector, version=figures["version"])
    )
    return _TEMPLATE.read_text(encoding="utf-8").format(
        base=base,
        network=network,
        parameters=network["parameters"] / 1e6,
        megabytes=network["bytes"] / 1e6,
        table=_TABLE if network["table"] else "",
        measured="\n".join(_measured(of) for of in figures["measured"].values()),
        points=points,
        texts=sum(points["n"].values()),
        operating_points="\n".join(_point(*point) for point in points["measured"].items()),
        ece=points["calibration"],
        reliability=_reliability(points["reliability"]),
        added=figures["added_statement"],
        retrieval=figures["retrieval"],
        sources="\n".join(
            _line([name, licence, f"{sum(rows.get(p, 0) for p in parts):,}"])
            for name, licence, parts in SOURCES
        ),
        pools=", ".join(f"{name} {n:,}" for name, n in points["n"].items()),
        runs="\n".join(_run(n, of) for n, of in enumerate(figures["training"], start=1)),
        of_this_version=special.read_text(encoding="utf-8") if special.exists() else "",
    )


def _run(number: int, of: dict[str, Any]) -> str:
    """Return the line of a training run; the run of the fusion trains no layer of the network."""
    fusion = of["method"] == "references"
    kept = f", {of['averaged']:.0%} of the change kept" if "averaged" in of else ""
    return _line([
        str(number),
        _TRAINS[of["method"]] + kept,
        f"{of['steps']:,}",
        str(of["batch_size"]),
        "–" if fusion else f"{of['lr']:g}",
        f"{of['head_lr']:g}",
        "all" if fusion else str(of.get("frozen") or 0),
        str(len(of.get("teachers", ()))),
        str(of["seed"]),
    ])  # fmt: skip


def _numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _numbers(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_numbers(v) for v in value]
    return float("nan") if value is None else value


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _share(x: float) -> str:
    return "–" if x != x else f"{x:.3f}"


def _measured(of: dict[str, Any]) -> str:
    found, alone = of["references"]["balanced"], of["alone"]["balanced"]
    accuracy, low, high = found["accuracy"]
    names = ("f1", "auroc", "false_negative_rate", "false_positive_rate", "cs", "as", "ece")
    return _line([
        of["title"],
        f"{of['references']['n']:,}",
        _share(found["prevalence"][0]),
        f"{accuracy:.3f} [{low:.3f}, {high:.3f}]",
        *(_share(found[name][0]) for name in names),
        f"{_share(alone['accuracy'][0])}, {_share(alone['auroc'][0])}",
    ])  # fmt: skip


def _point(name: str, of: dict[str, Any]) -> str:
    harmless, unseen = of["harmless"], of["pools"].get("unseen", {"hits": 0, "n": 0, "bound": 1.0})
    return _line([
        name,
        f"{calibrate.MAX_FALSE_POSITIVE_RATE[name]:.2%}",
        f"{harmless['hits']} of {harmless['n']:,}",
        f"{harmless['bound']:.2%}",
        f"{unseen['hits']} of {unseen['n']:,}, {unseen['bound']:.2%}",
        f"{of['accuracy']:.3f}",
        f"{of['recall']:.3f}",
    ])  # fmt: skip


def _reliability(bins: list[dict[str, float]]) -> str:
    return "\n".join((
        _line(["mean score", *(f"{b['score']:.2f}" for b in bins)]),
        _line(["---"] * (len(bins) + 1)),
        _line(["share biased", *(f"{b['biased']:.2f}" for b in bins)]),
    ))  # fmt: skip
