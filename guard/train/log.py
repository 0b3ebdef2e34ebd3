"""The card's log of what was tried: short runs, the paper's ablation, groups held out."""

from __future__ import annotations

from typing import Any

from guard.train.studies import ABLATION, BASE, HELD_OUT, STUDIES

# Validation rows whose AUROC the log shows, those whose share of right answers it shows, and those
# whose types and spans are known: their means are shown.
_RANKED = ("redditbias", "emgsd", "stereoset", "pairs", "invented")
_CALM = ("negatives", "not_hate", "bold")
_ATTRIBUTED = ("redditbias", "stereoset", "pairs")
_ROWS = {
    ("frozen", "none"): "not fine-tuned (heads alone), no retrieval",
    ("frozen", "fused"): "not fine-tuned (heads alone), retrieval",
    ("full", "none"): "fine-tuned, no retrieval",
    ("full", "fused"): "fine-tuned, retrieval",
}


def log(studies: dict[str, dict[str, Any]], runs: dict[str, dict[str, Any]]) -> list[str]:
    """Return the card's sections on what was tried, each only where its runs were made.

    ``studies`` are short runs, ``runs`` whole ones as :func:`guard.train.compare.compare` gives
    them.
    """
    found = []
    tried = [_tried(studies)] if BASE in studies and len(studies) > 1 else []
    tried += [_whole(runs)] if runs else []
    if tried:
        found.append("## What was tried\n\n" + "\n\n".join(tried))
    if all(name in studies for name in ABLATION.values()):
        found.append("## Ablation\n\n" + _ablation(studies))
    if "groups held out" in studies and BASE in studies:
        found.append("## Groups never seen\n\n" + _held_out(studies))
    return found


def _tried(studies: dict[str, dict[str, Any]]) -> str:
    lines = _header("run | epochs")
    for name in (n for n in STUDIES if n in studies):
        lines.append(f"| {name} | {studies[name]['epochs']:g} | {_cells(studies[name])} |")
    rows = studies[BASE]["rows"]
    return (
        f"Short runs of `guard train studies`: {rows:,} rows an epoch, one seed, each changed in "
        "what its name says against the first, which is the shipped recipe in one stage and "
        "without teachers, on the texts that were there when it was made. All columns are "
        "validating texts: RedditBias "
        "comments at the threshold that is most accurate on them; then rows, AUROC of the first "
        f"{len(_RANKED)} sources and share left alone of the {len(_CALM)} behind them (float32, "
        f"logit 0, no n-grams), and over {', '.join(_ATTRIBUTED)} the mean share of right types "
        "and of tokens rightly in or out of a span. With so few rows, differences of one or two "
        "points are noise.\n\n" + "\n".join(lines)
    )


def _whole(runs: dict[str, dict[str, Any]]) -> str:
    lines = _header("run | stages | left out by the last | rows an epoch")
    for name, one in runs.items():
        said = f"{one['stages']} | {one['left_out']} | {one['drawn']:,}"
        lines.append(f"| {name} | {said} | {_cells(one)} |")
    return (
        "Whole runs, measured in the same way (`guard train compare`); a run without references is "
        "judged without any.\n\n" + "\n".join(lines)
    )


def _header(first: str) -> list[str]:
    columns = [*first.split(" | "), "RedditBias Acc / F1 / AUROC", *_RANKED, *_CALM]
    columns += ["types", "spans"]
    return ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]


def _cells(one: dict[str, Any]) -> str:
    of = one["redditbias"]
    cells = [f"{of['accuracy']:.3f} / {of['f1']:.3f} / {of['auroc']:.3f}"]
    cells += [_cell(one["validation"], s, "auroc") for s in _RANKED]
    cells += [_cell(one["validation"], s, "accuracy") for s in _CALM]
    cells += [_mean(one["validation"], key) for key in ("types", "spans")]
    return " | ".join(cells)


def _mean(figures: dict[str, Any], key: str) -> str:
    found = [figures.get(source, {}).get(key) for source in _ATTRIBUTED]
    known = [value for value in found if value is not None and value == value]
    return f"{sum(known) / len(known):.3f}" if len(known) == len(found) else "–"


def _cell(figures: dict[str, Any], source: str, key: str) -> str:
    value = figures.get(source, {}).get(key, float("nan"))
    return "–" if value != value else f"{value:.3f}"


def _ablation(studies: dict[str, dict[str, Any]]) -> str:
    lines = ["| RedditBias eval | Acc | F1 | AUROC |", "| --- | --- | --- | --- |"]
    for key, name in ABLATION.items():
        f = studies[name]["redditbias_eval"]
        lines.append(f"| {_ROWS[key]} | {f['accuracy']:.3f} | {f['f1']:.3f} | {f['auroc']:.3f} |")
    return (
        "The rows of the BiasAlert paper's Table 2 that a detector without prompts has, from the "
        "short runs above, on the held-out comments. There, fine-tuning took a prompted model's "
        "accuracy from .51 to .74, and retrieval beside it to .83.\n\n" + "\n".join(lines)
    )


def _held_out(studies: dict[str, dict[str, Any]]) -> str:
    without, whole = studies["groups held out"]["attributions"], studies[BASE]["attributions"]
    names = " and ".join(HELD_OUT)
    return (
        f"AS on RedditBias eval comments of the dimensions {names}, found biased. One short run "
        "saw no text and no statement that names these groups, the other saw them: "
        f"**{without['right']:.3f}** [{without['low']:.3f}, {without['high']:.3f}] of "
        f"{without['n']} without, {whole['right']:.3f} [{whole['low']:.3f}, {whole['high']:.3f}] "
        f"of {whole['n']} with (exact binomial intervals)."
    )
