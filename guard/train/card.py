"""Writes the model card from the figures of a release, so that no number is typed by hand."""

from __future__ import annotations

from typing import Any

from guard.train import calibrate
from guard.train.base import BASES, Base
from guard.train.lexical import WEIGHT as LEXICAL_WEIGHT
from guard.train.rows import WRITTEN
from guard.train.sources import BOLD_SHARE

# Each published source with its licence, and which of the corpus's row sources come from it.
_SOURCES = (
    ("RedditBias, training part (Barikeri et al. 2021)", "MIT",
     ("redditbias", "redditbias_rest", "redditbias_whole")),
    ("EMGSD, training part (Holistic AI)", "MIT", ("emgsd", "emgsd_first")),
    ("StereoSet, intrasentence (Nadeem et al. 2021)", "CC BY-SA 4.0", ("stereoset",)),
    ("HEARTS: SeeGULL-GPT and WinoQueer-GPT (Holistic AI)", "MIT", ("hearts",)),
    (
        "Latent Hatred / implicit hate corpus (ElSherief et al. 2021)",
        "CC BY 4.0",
        ("implied", "implicit_hate", "explicit_hate", "not_hate"),
    ),
    ("SeeGULL, pairs with two votes or more in a region (Jha et al. 2023)", "CC BY 4.0",
     ("seegull",)),
    ("ToxiGen, demonstrations (Hartvigsen et al. 2022)", "MIT", ("toxigen",)),
    (f"BOLD, {BOLD_SHARE:.0%} of the Wikipedia sentences (Dhamala et al. 2021)", "CC BY-SA 4.0",
     ("bold",)),
    ("Texts written for guard", "Apache-2.0", WRITTEN),
)  # fmt: skip


def card(stored: dict[str, Any]) -> str:
    """Return the card as Markdown.

    ``stored`` is the result of :func:`guard.train.release.release` as JSON (null for nan). Raises
    LookupError, TypeError, ValueError or AttributeError if it is not.
    """
    figures = _numbers(stored)
    run = figures["training"][-1]
    sections = [
        _head(BASES[run["base"]], figures["network"]),
        "## Figures\n\n" + _figures(figures["measured"]),
        "## Scores and thresholds\n\n" + _points(figures["points"]),
        "## What the references do\n\n" + _references(figures["retrieval"], figures["flips"]),
        "## Data\n\n" + _data(figures["rows"]),
        "## Training\n\n" + _training(figures["training"]),
        _LIMITS,
        _ATTRIBUTION,
    ]
    return "\n\n".join(s.strip() for s in sections) + "\n"


def _numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _numbers(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_numbers(v) for v in value]
    return float("nan") if value is None else value


def _head(base: Base, network: dict[str, float]) -> str:
    return f"""
---
license: apache-2.0
language: en
pipeline_tag: text-classification
base_model: {base.title}
tags: [bias, fairness, guardrail, onnx]
---

# Model card: encoder

The embedded detector of guard. It reads one segment (a sentence or clause) with up to two before it
and says in one pass: how likely the segment ties a social group to a demeaning or stereotyped
attribute; the bias type (nine); the spans of group and attribute; whether the association is
implied or stated; and a vector that finds similar statements in the bias index. These
references then adjust score and type.

| | |
| --- | --- |
| base | `{base.title}` (Apache-2.0), sha256 `{base.sha256}` |
| size | {network["parameters"] / 1e6:.0f} million parameters, {network["layers"]} layers; \
{network["bytes"] / 1e6:.0f} MB as 8-bit integers |
| speed | {network["ms"]:.0f} ms a segment (median, one thread, the machine of the release) |
| int8 against float32 | mean difference of the logit {network["logit"]:.2f}, sign changed in \
{network["flips"]:.1%} of {network["n"]:.0f} comments |
| language | English; other languages are returned as unjudged |
| files | `encoder.onnx`, `fusion.npz` (references), `lexical.npz` (n-grams), `tokenizer.json`, \
`config.json`, `manifest.json` (hashes, checked at every load) |
"""


def _figures(measured: dict[str, Any]) -> str:
    lines = [
        "| set | n | biased | accuracy [95 %] | F1 | AUROC | false negative rate "
        "| false positive rate | type (CS) | group and attribute (AS) | ECE "
        "| accuracy, AUROC without references |",
        "| --- |" + " --- |" * 11,
    ]
    for of in measured.values():
        f, alone = of["references"]["balanced"], of["alone"]["balanced"]
        accuracy, low, high = f["accuracy"]
        names = ("f1", "auroc", "false_negative_rate", "false_positive_rate", "cs", "as", "ece")
        cells = " | ".join(_share(f[name][0]) for name in names)
        lines.append(
            f"| {of['title']} | {of['references']['n']:,} | {_share(f['prevalence'][0])} "
            f"| {accuracy:.3f} [{low:.3f}, {high:.3f}] | {cells} "
            f"| {_share(alone['accuracy'][0])}, {_share(alone['auroc'][0])} |"
        )
    return (
        "What `guard eval` prints at `balanced` (protocol: `benchmarks/detector/README.md`). None "
        "of these texts was trained on, and thresholds were chosen without them. A text is biased "
        "if one of its segments is.\n\n" + "\n".join(lines)
    )


def _points(points: dict[str, Any]) -> str:
    lines = [
        "| point | may stop, of harmless texts | stops | 95 % bound | on unseen harmless texts "
        "| accuracy | recall |",
        "| --- |" + " --- |" * 6,
    ]
    for name, of in points["measured"].items():
        harmless, unseen = of["harmless"], of["pools"].get("unseen", {"hits": 0, "n": 0})
        stated, bound = calibrate.MAX_FALSE_POSITIVE_RATE[name], harmless["bound"]
        lines.append(
            f"| {name} | {stated:.2%} | {_rate(harmless)} | {bound:.2%} "
            f"| {_rate(unseen)} | {of['accuracy']:.3f} | {of['recall']:.3f} |"
        )
    ece = points["calibration"]
    bins = points["reliability"]
    scores = " | ".join(f"{b['score']:.2f}" for b in bins)
    biased = " | ".join(f"{b['biased']:.2f}" for b in bins)
    return f"""
Temperature ({points["temperature"]:.2f}) and thresholds, one a bias type, were chosen on
{sum(points["n"].values()):,} validation texts that share less than half of their word 4-grams with
any training text. Accuracy and recall are those on RedditBias and EMGSD, each counting half.
Harmless are sentences written for guard and BOLD's; the unseen ones no run and no choice has read.
The rule: `guard/train/calibrate.py`.

{chr(10).join(lines)}

A score is a probability on a mixture in which every source weighs the same: expected calibration
error {ece["ece"]:.3f} [{ece["low"]:.3f}, {ece["high"]:.3f}].

| mean score | {scores} |
| --- |{" --- |" * len(bins)}
| share biased | {biased} |
""".strip()


def _references(retrieval: dict[str, float], flips: dict[str, float]) -> str:
    return f"""
The index can grow without training. Of {flips["n"]} plain sentences about groups that exist nowhere
{flips["before"]:.0%} are not found biased; with one paraphrase in the index {flips["after"]:.0%} of
these are. Beside that statement {flips["neutral"]:.0%} of neutral sentences about the same group
and {flips["opposed"]:.0%} of sentences that oppose or report it stay harmless.

Of {retrieval["n"]} unseen posts that imply a stereotype {retrieval["own"]:.0%} have the statement
they imply among the five nearest, and {retrieval["bias_type"]:.0%} of the others found name the
right type. References below a similarity of {retrieval["floor"]:g} are not used.
""".strip()


def _data(rows: dict[str, int]) -> str:
    lines = ["| source | licence | rows |", "| --- | --- | --- |"]
    for name, licence, parts in _SOURCES:
        lines.append(f"| {name} | {licence} | {sum(rows.get(p, 0) for p in parts):,} |")
    return (
        "\n".join(lines)
        + "\n\n8 % of the texts of each source are for validation only. Texts of the "
        "evaluation files were removed, whole and by sentence; a test asserts it. Sources without "
        "a stated licence were not used."
    )


def _training(runs: list[dict[str, Any]]) -> str:
    *before, run = [r for r in runs if r["method"] != "references"]
    last = [r for r in runs if r["method"] == "references"][-1:]
    frozen = f", with the lowest {run['frozen']} layers frozen" if run["frozen"] else ""
    begins = " It began with the weights of an earlier run." if before else ""
    references = "".join(
        f"""
Then a run of {r["steps"]:,} steps with the network frozen: its map to sentence vectors is fitted
again, and the fusion with references is retrained, half of it on invented groups."""
        for r in last
    )
    return f"""
`guard train all` makes them (`guard/train/README.md`). First all-MiniLM-L6-v2 learns to find the
statement that a post implies; its sentence vectors are the target of the encoder's. Then one run
of the encoder: {run["steps"]:,} steps of {run["batch_size"]} rows, {run["epochs"]:g} \
pass{"es" if run["epochs"] != 1 else ""} over the sources by quota, AdamW, learning
rate {run["lr"]:g} ({run["head_lr"]:g} for the heads), seed {run["seed"]}{frozen}.{begins}
All heads are trained together: bias with references and without, type, spans, implied or not, the
sentence vector, the order of minimal pairs. A comment's label is that of its highest segment.
References are drawn from an index that is subsampled for each batch, and rows about invented groups
teach what a matching reference means.{references}
Last, weights are quantised to 8-bit integers, a few large inputs of each feed-forward layer apart
in 32 bits, and a linear model over n-grams is fitted, whose logit is added with the weight
{LEXICAL_WEIGHT:g}.
""".strip()


def _share(x: float) -> str:
    return "–" if x != x else f"{x:.3f}"


def _rate(share: dict[str, float]) -> str:
    return f"{share['hits']} of {share['n']:,}"


_LIMITS = """
## Limits

* Labels of the sources disagree on what bias is; RedditBias labels in particular are noisy, and a
  stereotype that is praised, joked about or merely well known is labelled differently by each.
* It judges single sentences. Bias that only shows over a paragraph or in a comparison of answers is
  missed; so is much that needs knowledge of the world.
* Only texts written for guard mention groups of age and appearance, which are judged worse.
* There is no attribution if no group or attribute is found in the segment. A group named only in
  the sentence before is given by its pronoun.
* Short sentences that merely give a group a property ("Muslims pray.") are found at `strict`.
* A statement added to the index catches sentences that say the same of the same group. It does not
  teach a new kind of bias.
* Figures on single-sentence sets say little about long answers of a chat model; use
  `guard eval --data yours.csv` on your own texts, and `guard eval --behaviours` for what it misses.
"""

_ATTRIBUTION = """
## Attribution

* Latent Hatred: Mai ElSherief, Caleb Ziems, David Muchlinski, Vaishnavi Anupindi, Jordyn Seybolt,
  Munmun De Choudhury, Diyi Yang. CC BY 4.0. Posts were cut into sentences.
* SeeGULL: Akshita Jha, Aida Mostafazadeh Davani, Chandan K. Reddy, Shachi Dave, Vinodkumar
  Prabhakaran, Sunipa Dev. CC BY 4.0. Pairs were put into sentences.
* StereoSet: Moin Nadeem, Anna Bethke, Siva Reddy. CC BY-SA 4.0. Used as training examples.
* BOLD: Jwala Dhamala, Tony Sun, Varun Kumar, Satyapriya Krishna, Yada Pruksachatkun, Kai-Wei
  Chang, Rahul Gupta. CC BY-SA 4.0. Used as training examples.
* RedditBias, EMGSD, HEARTS and ToxiGen are under the MIT licence.

No text of these sources is part of the files in this folder.
"""
