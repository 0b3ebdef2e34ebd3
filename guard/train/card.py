"""Writes the model card from the figures of a release, so that no number is typed by hand."""

from __future__ import annotations

from typing import Any

from guard.train import calibrate
from guard.train.base import BASES
from guard.train.checklist import behaviours
from guard.train.lexical import WEIGHT as LEXICAL_WEIGHT
from guard.train.limits import LIMITS, NOTICES
from guard.train.log import log
from guard.train.near import found
from guard.train.rows import WRITTEN
from guard.train.sources import BOLD_SHARE, LICENCES
from guard.train.stages import stages

# Which of the corpus's row sources come from which published one.
_PARTS = {
    "redditbias": ("redditbias", "redditbias_rest"),
    "emgsd": ("emgsd", "emgsd_whole", "emgsd_first"),
    "stereoset": ("stereoset",),
    "hearts": ("hearts",),
    "implicit_hate": ("implied", "implicit_hate", "explicit_hate", "not_hate"),
    "seegull": ("seegull",),
    "toxigen": ("toxigen",),
    "bold": ("bold",),
    "own": WRITTEN,
}
_NAMES = {
    "redditbias": "RedditBias, training part (Barikeri et al. 2021)",
    "emgsd": "EMGSD, training part (Holistic AI)",
    "stereoset": "StereoSet, intrasentence (Nadeem et al. 2021)",
    "hearts": "HEARTS: SeeGULL-GPT and WinoQueer-GPT (Holistic AI)",
    "implicit_hate": "Latent Hatred / implicit hate corpus (ElSherief et al. 2021)",
    "seegull": "SeeGULL, pairs with two votes or more in a region (Jha et al. 2023)",
    "toxigen": "ToxiGen, demonstrations (Hartvigsen et al. 2022)",
    "bold": f"BOLD, {BOLD_SHARE:.0%} of the Wikipedia sentences (Dhamala et al. 2021)",
    "own": "Statements, harmless sentences, minimal pairs and made-up rows written for guard",
}
_SETS = {
    "redditbias": "RedditBias, held-out comments",
    "emgsd": "EMGSD, evaluation part",
    "toxicbias": "ToxicBias, evaluation part (read only, never trained on)",
    "crows_pairs": "CrowS-Pairs, direction stereo, both sentences (never trained on)",
    "bold": "BOLD Wikipedia sentences outside the training share (all harmless)",
}


def card(kept: dict[str, Any]) -> str:
    """Return the card as Markdown.

    ``kept`` is what :func:`guard.train.release.release` returns, as JSON keeps it (null where
    there is no number), with what :func:`guard.train.studies.run` returns under ``studies`` and,
    where they were measured, what :func:`guard.train.compare.compare` found under ``runs`` and
    :mod:`guard.evaluate.behaviours` under ``behaviours``.
    """
    figures = _numbers(kept)
    parity, studies = figures["parity"], figures["studies"]
    sections = [
        _HEAD,
        "## Data\n\n" + _data(figures["rows"], figures["training"]),
        "## Recipe\n\n" + _recipe(figures["training"]),
        *log(studies, figures.get("runs", {})),
        "## Operating points\n\n" + _points(figures["points"], figures["measured"]),
        "## Figures\n\n" + _figures(figures["measured"]),
        *behaviours(figures.get("behaviours")),
        "## What the references do\n\n" + _ablation(figures["ablation"], figures["flips"]),
        "## What retrieval finds\n\n" + found(figures["retrieval"]),
        "## int8 against float32\n\n" + _parity(parity),
        LIMITS,
        NOTICES,
    ]
    return "\n\n".join(s.strip() for s in sections) + "\n"


def _numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _numbers(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_numbers(v) for v in value]
    return float("nan") if value is None else value


_BASE = BASES["minilm"]
_HEAD = f"""
# Model card: encoder

The embedded detector of guard. It reads one segment (a sentence or clause) with a little context
and says, in one pass of a six-layer network: how likely the segment forces a social group together
with a demeaning or stereotyped attribute; the bias type (nine); where groups and attributes stand;
whether the tie is implied or said outright; and a vector with which references are found in the
bias index. A small fusion head then lets the
references change score and type.

* Base: `{_BASE.title}` (Apache-2.0), float32 weights with sha256 `{_BASE.sha256}`.
* Files: `encoder.onnx` (int8 weights), `fusion.npz`, `lexical.npz` (n-grams), `tokenizer.json`,
  `config.json`, `manifest.json` (hashes, checked at every load).
* Language: English. A segment that is mostly in another script, or clearly in another language of
  Latin script, is given back as unjudged. Of those, segments of two or three words and languages
  of which guard has no words are often judged all the same; nothing is known of how well.
"""


def _data(rows: dict[str, int], runs: list[dict[str, Any]]) -> str:
    lines = ["| source | licence | rows |", "| --- | --- | --- |"]
    for key, parts in _PARTS.items():
        total = sum(rows.get(p, 0) for p in parts)
        lines.append(f"| {_NAMES[key]} | {LICENCES[key]} | {total:,} |")
    return (
        "\n".join(lines)
        + "\n\nRows of the training corpus after the split; an epoch draws from them by quotas, so "
        "that no source drowns another. Of every source 8 % of the texts (by a hash of the text or "
        "of the item) validate and are never trained on. Texts of evaluation files were removed "
        "(same words, whatever case and punctuation); a test asserts it. Sources without a stated "
        "licence were not used." + ("" if all("bags" in run for run in runs) else _EARLIER)
    )


# Of stages whose settings do not name bags yet; they come first.
_EARLIER = (
    " In the first stage, two copies of a comment that an epoch drew into one batch (one in "
    "twenty) counted as one comment."
)


def _recipe(runs: list[dict[str, Any]]) -> str:
    return f"""
Inputs are built as at run time: a comment is cut into segments by the gate's own segmenter, and up
to two segments before each are its context; other rows get foreign context now and then, which the
label does not follow. The label of a comment is learned by its highest segment (a smooth maximum
over all of them), as the guard reads it; the segment with the annotated phrase, and those of
harmless comments, have the label for themselves too, at half weight.{_whole(runs)}

One loss for the verdict with references, one for the text alone, and one each for type, spans,
implied or not, the order of minimal pairs (both halves stand in one batch, the biased one is to
score higher) and distillation: the embedding head starts as the identity and is held to the
sentence vectors of the {"embedder" if runs[-1].get("embedder") else "base"}, so that one pass \
serves verdict and retrieval.{_EMBEDDER if runs[-1].get("embedder") else ""}{_verdict(runs)}\
{_taught(runs)}

References come from a training-time index of own statements and statements of the licensed
sources, thinned anew for each batch (0 to 95 % dropped), absent altogether in 15 % of rows; no
text finds itself or a near-copy. Rows about invented groups teach what a match means: a plain
predicate is biased only while a statement that says the same of the same group stands in the
index; opposed, quoted or unrelated sentences stay harmless beside the same statement.

Beside the network stands a linear model over hashed word and character n-grams, fitted to one
epoch's rows (comments counted three times) with an L2 penalty; its logit is added with the weight
{LEXICAL_WEIGHT:g}. It sees wording where the small network sees gist.

{stages(runs)}
""".strip()


def _taught(runs: list[dict[str, Any]]) -> str:
    if not any("taught_by" in run for run in runs):
        return ""
    return (
        " A stage\nwith teachers held its verdict of the text alone to their mean as well, on the "
        "sources' texts and on\nmixtures of two that say nothing an evaluation or validation text "
        "says."
    )


def _whole(runs: list[dict[str, Any]]) -> str:
    if not any(run.get("whole") for run in runs):
        return ""
    return (
        " A stage\nthat left the cuts out learned comments whole, as they were labelled; one that "
        "left the references\nout, the text alone."
    )


def _verdict(runs: list[dict[str, Any]]) -> str:
    if not any(run.get("learn") == "verdict" for run in runs):
        return ""
    return (
        " In a stage where\nthe pass learns from the verdict, the losses of the other heads end at "
        "the heads themselves: they\nread what the verdict leaves."
    )


_EMBEDDER = (
    " That embedder is the base after `guard train embedder`: posts of the "
    "implicit-hate corpus move to where the base sees the statements that they imply, and these "
    "stay in their place."
)


def _points(points: dict[str, Any], measured: dict[str, Any]) -> str:
    pools, n = points["harmless"], points["n"]
    sizes = ", ".join(f"{name} {count:,}" for name, count in n.items())
    harmless = " and ".join(f"{pools.get(p, 0):,} {_POOLS[p]}" for p in calibrate.HARMLESS)
    alarms = calibrate.ALARMS
    least = points["reliability"]
    return f"""
Temperature and thresholds were chosen on validation texts alone, judged through the path of the
guard: {sizes}.
Left out are texts that share half or more of their word 4-grams with one training text; own
statements were judged without them in the index.

**Probabilities.** Logits are divided by {points["temperature"]:.3f}, the temperature with the least
log loss ({points["log_loss"]:.3f}) where every source weighs the same; a constant beside it would
save {points["gain_of_a_bias"]:.4f}. Of that mixture {_mean(least):.0%} are biased; where yours has
another share, or other texts, a score is no exact probability. Expected calibration error in ten
bins of equal weight, with the 95 % interval of 500 redrawn samples (where texts are few, both lie
a little high):

{_calibration_table(points["calibration"], measured)}

Reliability on the mixture:

{_reliability_table(least)}

**Rule.** A point may call a stated share of harmless texts biased ({alarms["strict"]:.0%} strict,
{alarms["balanced"]:.0%} balanced, {alarms["quiet"]:.2%} quiet), of {harmless}.
Within that, `balanced` is the threshold with the best accuracy on RedditBias and EMGSD, each
counting half, averaged over the thresholds within {calibrate.WIDTH:g}. `quiet` is the lowest one
from there on that halves balanced's alarms on harmless texts of these two. `strict` is the highest
one up to balanced that finds {calibrate.RECALL:.0%} of their biased texts, or as many as its share
of alarms allows. A threshold belongs to the type that the detector names: the same is asked of the
texts of each type, their rates blended with those of all texts as if {calibrate.PRIOR} more texts
had shown these, and a type with fewer than {calibrate.LEAST} texts keeps the common threshold.
Where the nine together give more alarms than stated, all rise alike. Many of the own sentences
were written to look biased, a group beside a loaded word: on plain text alarms are far fewer.

{_rates_table(points["measured"])}

Bounds are Clopper-Pearson's, one-sided, 95 %. On texts that the thresholds were chosen on they are
a little too good; exact is that on the {pools.get("unseen", 0):,} own harmless sentences that
neither a run nor a choice has read, a fifth of them halves of minimal pairs (`unseen`). Accuracy,
recall and alarms on comments are means over RedditBias and EMGSD, on the texts that the thresholds
were chosen on; figures on other texts are below.

{_thresholds_table(points)}

What `balanced` would be if it were allowed another share of the harmless texts, with one threshold
for all types (100%: whatever is most accurate on comments):

{_prices_table(points["prices"])}

Alarms on the harmless texts of each pool, and the bound:

{_pools_table(points["measured"])}
""".strip()


_POOLS = {
    "redditbias": "RedditBias comments",
    "emgsd": "EMGSD texts",
    "stereoset": "StereoSet sentences",
    "hearts": "HEARTS sentences",
    "implicit_hate": "implicit hate posts",
    "negatives": "own harmless sentences",
    "pairs": "harmless halves of own pairs",
    "unseen": "own harmless sentences that no run has read",
    "bold": "BOLD sentences",
}


def _mean(bins: list[dict[str, float]]) -> float:
    return sum(b["weight"] * b["biased"] for b in bins) / sum(b["weight"] for b in bins)


def _calibration_table(validation: dict[str, Any], measured: dict[str, Any]) -> str:
    found = {f"{name}, validation": of for name, of in validation.items()}
    found |= {_SETS[name]: of["calibration"] for name, of in measured.items()}
    lines = ["| texts | n | ECE | 95 % interval |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {name} | {f['n']:,} | {f['ece']:.3f} | [{f['low']:.3f}, {f['high']:.3f}] |"
        for name, f in found.items()
    ]
    return "\n".join(lines)


def _reliability_table(bins: list[dict[str, float]]) -> str:
    lines = [
        "| mean score | " + " | ".join(f"{b['score']:.2f}" for b in bins) + " |",
        "| --- |" + " --- |" * len(bins),
        "| share biased | " + " | ".join(f"{b['biased']:.2f}" for b in bins) + " |",
    ]
    return "\n".join(lines)


def _rates_table(rates: dict[str, Any]) -> str:
    lines = [
        "| point | stated | alarms, harmless texts | bound "
        "| accuracy | recall | alarms, comments |",
        "| --- |" + " --- |" * 6,
    ]
    for name, r in rates.items():
        h = r["harmless"]
        lines.append(
            f"| {name} | {calibrate.ALARMS[name]:.2%} | {_rate(h)} | {h['bound']:.2%} "
            f"| {r['accuracy']:.3f} | {r['recall']:.3f} | {r['alarms']:.3f} |"
        )
    return "\n".join(lines)


def _rate(share: dict[str, float]) -> str:
    return f"{share['hits']} of {share['n']:,} ({share['hits'] / max(1, share['n']):.2%})"


def _thresholds_table(points: dict[str, Any]) -> str:
    names = list(points["thresholds"])
    lines = [
        "| type named | comments | harmless texts | " + " | ".join(names) + " |",
        "| --- |" + " --- |" * (2 + len(names)),
    ]
    for kind, n in points["types"].items():
        cells = " | ".join(f"{points['thresholds'][p][kind]:.3f}" for p in names)
        lines.append(f"| {kind} | {n['comments']} | {n['harmless']} | {cells} |")
    cells = " | ".join(f"{points['common'][p]:.3f}" for p in names)
    lines.append(f"| common | | | {cells} |")
    return "\n".join(lines)


def _prices_table(prices: list[dict[str, float]]) -> str:
    lines = ["| stated | threshold | accuracy | recall |", "| --- |" + " --- |" * 3]
    lines += [
        f"| {p['stated']:.2%} | {p['threshold']:.3f} | {p['accuracy']:.3f} | {p['recall']:.3f} |"
        for p in prices
    ]
    return "\n".join(lines)


def _pools_table(rates: dict[str, Any]) -> str:
    names = list(rates)
    lines = ["| pool | " + " | ".join(names) + " |", "| --- |" + " --- |" * len(names)]
    for pool in rates[names[0]]["pools"]:
        shares = [rates[name]["pools"][pool] for name in names]
        cells = " | ".join(f"{_rate(s)}, {s['bound']:.1%}" for s in shares)
        lines.append(f"| {_POOLS[pool]} | {cells} |")
    return "\n".join(lines)


def _figures(measured: dict[str, Any]) -> str:
    lines = [
        "| set | n | biased | point | accuracy | F1 | AUROC | missed | alarms | accuracy alone "
        "| AUROC alone |",
        "| --- |" + " --- |" * 10,
    ]
    for name, kinds in measured.items():
        for point in ("strict", "balanced", "quiet"):
            f, alone = kinds["references"][point], kinds["alone"][point]
            lines.append(
                f"| {_SETS[name]} | {f['n']:,} | {_share(f['prevalence'])} | {point} "
                f"| {_share(f['accuracy'])} | {_share(f['f1'])} | {_share(f['auroc'])} "
                f"| {_share(f['miss'])} | {_share(f['alarm'])} | {_share(alone['accuracy'])} "
                f"| {_share(alone['auroc'])} |"
            )
    return (
        "Measured with the shipped int8 weights through the path of the guard: the gate's "
        "segments, two segments of context, biased where any segment is. `missed` is the share of "
        "biased texts not found, `alarms` that of harmless texts found, `alone` the same weights "
        "without references. Weights, averages and thresholds were chosen on validation texts. "
        "Measured here as well: earlier weights, weights without a last stage for the references "
        "and with all heads learning in it, smaller stated shares of alarms (1 % for `balanced`, "
        "5 % for `strict`), and later weights that were not chosen.\n\n" + "\n".join(lines)
    )


def _ablation(found: dict[str, dict[str, float]], flips: dict[str, float]) -> str:
    lines = [
        "| validation rows | n | accuracy with references | without |",
        "| --- |" + " --- |" * 3,
    ]
    for source, f in found.items():
        lines.append(f"| {source} | {f['n']} | {_share(f['with'])} | {_share(f['without'])} |")
    return (
        "`invented`: groups that exist nowhere and predicates that training never saw; a plain "
        "predicate is biased while a statement that says the same stands in the index, and "
        "harmless beside a statement about another group or another predicate, or where it is "
        "opposed or reported. Float32 network, logit 0. The columns `alone` of the figures above "
        "make the same comparison on the evaluation sets.\n\n"
        + "\n".join(lines)
        + f"\n\nThe shipped weights and index, balanced point, {flips['n']} such texts: "
        f"{flips['before']:.1%} are not biased before; with one paraphrase added to the index "
        f"{flips['after']:.1%} of those are, and {flips['verbatim']:.1%} of the added statements "
        f"themselves. {flips['neutral']:.1%} of neutral sentences about the same group and "
        f"{flips['opposed']:.1%} of sentences that oppose or report the statement stay not biased. "
        "Names and predicates are new to the weights, the sentences' frames are those of training."
    )


def _share(x: float) -> str:
    return "–" if x != x else f"{x:.3f}"


def _parity(p: dict[str, float]) -> str:
    return (
        f"On {p['n']} validation comments: mean absolute difference of the logit {p['logit']:.3f}, "
        f"sign changed in {p['flips']:.1%}, mean cosine of the embeddings {p['cosine']:.4f}; with "
        f"the base model's embeddings {p['base']:.4f}, of whose five nearest statements "
        f"{p['neighbours']:.0%} are found. Activations are scaled per run, so windows are judged "
        "one at a time: a score does not depend on its batch."
    )
