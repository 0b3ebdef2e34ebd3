"""The model card of an adapter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from guard.local import download
from guard.train.card import SOURCES

_HEAD = """\
# Adapter {version} for {base}

A LoRA adapter that makes an instruction-tuned language model answer, for one sentence, whether it
is biased, and if so of which type and how, after the BiasAlert paper. Load it with
`Guard(detector="generative:FOLDER")`; the folder names its base, which is loaded beside it.
"""


def base_lines(name: str) -> str:
    """Return what is known of a base: title, licence and where its file comes from."""
    known = download.MODELS.get(name)
    if known is None:
        return f"`{name}`, as named by whoever trained; its licence is its publisher's."
    wheels = ", ".join(f"`{w.distribution}` {w.version}" for w in known.wheels)
    return (
        f"{known.title}, {known.licence}; from the package index ({wheels}), checked by SHA-256 "
        f"(`guard models get {name}`)."
    )


def card(version: str, base: str, figures: Mapping[str, Any]) -> str:
    """Return the card as Markdown; ``figures`` are those of a run's ``figures.json``."""
    settings, rows = figures["settings"], figures["rows_in_corpus"]
    on = [name for name, used in settings["instruction"].items() if used] or ["none"]
    sources = [
        f"| {name} | {licence} | {sum(rows.get(p, 0) for p in parts):,} |"
        for name, licence, parts in SOURCES
        if any(rows.get(p, 0) for p in parts)
    ]
    points = [
        f"| {name} | {of['at']:.3f} | {of['accuracy']:.3f} | {of['recall']:.3f} | "
        f"{of['false_positive_rate']:.3f} | {of['harmless'].hits} of {of['harmless'].n} |"
        for name, of in figures["points"].items()
    ]
    measured = figures["validation"]
    by_pool = ", ".join(f"{name} {value:.3f}" for name, value in measured["pools"].items())
    return "\n".join([
        _HEAD.format(version=version, base=base),
        "## Base", "", base_lines(base), "",
        "## Data", "", "| source | licence | rows in the corpus |", "| --- | --- | --- |",
        *sources, "",
        "No evaluation text was read. Weights are numbers learned from these texts; the licences "
        "that ask for attribution and for sharing alike are named above.", "",
        "## Recipe", "",
        f"Preset `{settings['preset']}`, {figures['rows']:,} rows in {settings['steps']:,} steps "
        f"of {settings['batch_size']} ({figures['epochs']:.2f} epochs): LoRA of rank "
        f"{settings['rank']} (scale 2) on all linear modules, AdamW, highest learning rate "
        f"{settings['lr']:g}, weight decay {settings['weight_decay']:g}, seed {settings['seed']}. "
        f"Loss on the answer only; its first token weighs {settings['first']:g}, and "
        f"{settings['spelled']:.0%} of the rows learn the whole answer where it is known. "
        f"Parts of the instruction: {', '.join(on)}.", "",
        "## Figures", "",
        f"On {measured['n']} validation texts, which chose the scale and the thresholds and are "
        f"not those of the evaluation: accuracy at even odds {measured['accuracy']:.3f}, AUROC "
        f"{measured['auroc']:.3f} ({by_pool}). Texts by source: "
        f"{', '.join(f'{k} {n}' for k, n in figures['pools'].items())}.", "",
        "| point | threshold | accuracy | recall | false positives | on harmless texts |",
        "| --- | --- | --- | --- | --- | --- |", *points, "",
        "Accuracy, recall and false positives are means over RedditBias and EMGSD.", "",
        "## Limits", "",
        "- English only. All types share a threshold, as the type is written only for what is "
        "found.",
        "- Group and attribute are words of the text; a group that only the context names is not "
        "found.",
        "- Scores differ by a few thousandths between processors and number types.",
        "- A text far from the sources may be judged at chance: compare with `guard eval` on your "
        "own texts before relying on it.", "",
    ])  # fmt: skip
