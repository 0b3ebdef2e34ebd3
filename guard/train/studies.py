"""Short runs that weigh one idea each against the same run without it, and what they show.

Every study trains on the same few thousand rows with one seed, so a small difference is noise.
Their figures are kept for the card; none of them ships.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from guard.detect.spans import attributions as pairs_in
from guard.detect.tokens import WindowTokens
from guard.errors import UsageError
from guard.evaluate.matching import pair_right
from guard.evaluate.metrics import exact
from guard.evaluate.terms import TermList, redditbias_terms
from guard.gate.context import in_context
from guard.train.base import Embed, teacher
from guard.train.config import TrainConfig
from guard.train.corpus import Corpus
from guard.train.encoder import (
    Nets,
    Prepared,
    load_final,
    prepare,
    prepare_from,
    train,
    window_tokens,
)
from guard.train.evaluate import rates
from guard.train.own import own_statements
from guard.train.pools import validates
from guard.train.references import TrainIndex
from guard.train.rows import Row, Statement, fold, share
from guard.train.sources import pieces, read_jsonl
from guard.train.spans import TermLists
from guard.train.validate import by_source, judge
from guard.verdict import Attribution

Floats = NDArray[np.float64]
Say = Callable[[str], None]

EPOCHS = 2.0
HELD_OUT = ("religion1_jews", "orientation_lgbtq")
BASE = "as shipped"
PUBLISHED = "published base"
# What each study changes. Teachers are named by study.
STUDIES: dict[str, dict[str, Any]] = {
    BASE: {},
    "no references": {"references": "none"},
    "base frozen": {"method": "frozen"},
    "base frozen, no references": {"method": "frozen", "references": "none"},
    "groups held out": {"without": HELD_OUT},
    "little distillation": {"distill": 1.0},
    "LoRA": {"method": "lora"},
    "pairs not contrasted": {"contrast": False},
    "segments by themselves": {"bags": False},
    "references as text": {"references": "text"},
    "no context": {"context": False},
    "taught by two": {"teachers": (BASE, "pairs not contrasted")},
    "twice as long": {"epochs": 2 * EPOCHS},
    PUBLISHED: {"embedder": None},
}
# The rows of the paper's Table 2 that this detector has, by study. These alone, and the groups held
# out, are measured on the evaluation file: ideas are weighed on validating texts.
ABLATION = {
    ("frozen", "none"): "base frozen, no references",
    ("frozen", "fused"): "base frozen",
    ("full", "none"): "no references",
    ("full", "fused"): BASE,
}


class Comments(NamedTuple):
    """RedditBias comments with their windows as rows; ``owner[i]`` is the comment of row i."""

    items: list[dict[str, Any]]
    rows: list[Row]
    owner: NDArray[np.int64]
    biased: NDArray[np.bool_]


def run(config: TrainConfig, say: Say = print) -> dict[str, Any]:
    """Train what is not trained yet, measure every study, and keep the figures.

    They are written to ``config.work / "studies.json"`` after each study; one that is there
    already is not measured again. ``config.rows`` limits an epoch's rows. Raises UsageError where
    ``config.work`` holds studies of another corpus, seed or number of rows.
    """
    assert config.data is not None, "the studies are measured on the sources' texts"
    vectors = config.cache or config.work / "vectors.npz"
    config = replace(config, epochs=EPOCHS, cache=vectors)
    file = config.work / "studies.json"
    kept: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.exists() else {}
    base = prepare(config)
    same = {"rows": config.rows, "seed": config.seed, "corpus": base.corpus.digest()}
    if any({k: one[k] for k in same} != same for one in kept.values()):
        raise UsageError(
            f"{file} holds studies of another corpus, seed or number of rows; give another --work."
        )
    for name, changes in STUDIES.items():
        if name in kept or (name == PUBLISHED and config.embedder is None):
            continue
        final = _trained(config, base, name, changes)
        told = name in ABLATION.values() or bool(changes.get("without"))
        one = replace(config, embedder=changes.get("embedder", config.embedder))
        kept[name] = {**same, **measure(one, base.corpus, final, evaluate=told)}
        config.work.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_suffix(".part")
        unfinished.write_text(json.dumps(kept, indent=1), encoding="utf-8")
        unfinished.replace(file)
        say(f"{name}: {kept[name]['redditbias']}")
    return kept


def folder(config: TrainConfig, name: str) -> Path:
    """Return where a study's run lies."""
    return config.work / name.replace(" ", "-").replace(",", "")


def _trained(config: TrainConfig, base: Prepared, name: str, changes: dict[str, Any]) -> Path:
    named = tuple(folder(config, t) / "final.pt" for t in changes.get("teachers", ()))
    changed = {**changes, "teachers": named} if named else changes
    one = replace(config, work=folder(config, name), **changed)
    final = one.work / "final.pt"
    if final.exists():
        return final
    same = one.without == config.without and one.embedder == config.embedder
    return train(one, ready=prepare_from(base, one) if same else prepare(one))


def measure(config: TrainConfig, corpus: Corpus, final: Path, *, evaluate: bool) -> dict[str, Any]:
    """Return a run's figures: validation rows by source, RedditBias comments, attributions.

    ``redditbias`` holds Acc, F1 and AUROC of validating comments, at the threshold most accurate on
    them. With ``evaluate`` also ``redditbias_eval``, of held-out comments at that threshold, and
    ``attributions``, the AS there of the dimensions that one study holds out.
    """
    assert config.data is not None
    nets, content = load_final(final)
    settings = content["settings"]
    run_config = replace(config, references=settings["references"], context=settings["context"])
    tokens = window_tokens(run_config)
    statements = own_statements(config.statements)
    if settings["without"]:
        named = TermLists(config.data / "redditbias" / "terms").naming(settings["without"])
        statements = [s for s in statements if not named(s.text)]
    known = comments(config.data, "train")
    scores = _scores(run_config, nets, tokens, statements, known)
    threshold = best_threshold(scores, known.biased)
    found = {
        "epochs": settings["epochs"],
        "validation": _validated(run_config, corpus, nets, tokens, statements),
        "redditbias": rates(scores, scores >= threshold, known.biased)._asdict(),
    }
    if evaluate:
        unknown = comments(config.data, "eval")
        scores = _scores(run_config, nets, tokens, statements, unknown)
        said = scores >= threshold
        found["redditbias_eval"] = rates(scores, said, unknown.biased)._asdict()
        found["attributions"] = attributed(run_config, nets, tokens, unknown, said)
    return found


def comments(data: Path, part: str) -> Comments:
    """Read the labelled comments of a part; of the training part those that validate."""
    items = [
        r
        for r in read_jsonl(data / "redditbias" / f"{part}.jsonl")
        if r["bias_sent"] is not None
        and (part == "eval" or validates(f"redditbias:{fold(r['comment'])}"))
    ]
    rows, owner = [], []
    for i, item in enumerate(items):
        biased = item["bias_sent"] == 1
        for text, before in in_context(pieces(item["comment"])):
            rows.append(Row(text, biased, "redditbias", f"{part}:{i}", before))
            owner.append(i)
    labels = np.array([item["bias_sent"] == 1 for item in items])
    return Comments(items, rows, np.array(owner), labels)


def best_threshold(scores: Floats, biased: NDArray[np.bool_]) -> float:
    """Return the logit between two scores that is most accurate; the lowest of equals."""
    values = np.unique(scores)
    between = np.concatenate([values[:1] - 1, (values[1:] + values[:-1]) / 2, values[-1:] + 1])
    right = [((scores >= t) == biased).mean() for t in between]
    return float(between[int(np.argmax(right))])


def attributed(
    config: TrainConfig, nets: Nets, tokens: WindowTokens, of: Comments, said: NDArray[np.bool_]
) -> dict[str, Any]:
    """Return AS over found comments of the dimensions that one study holds out.

    By the rule of ``guard eval``; any window of the comment may hold the pair that is right.
    ``low`` and ``high`` are the exact binomial interval.
    """
    assert config.data is not None
    lists = redditbias_terms(config.data / "redditbias" / "terms")
    right: list[bool] = []
    for i in np.flatnonzero(said & of.biased):
        item = of.items[i]
        terms: TermList = lists[item["dimension"]]
        groups = terms.groups_in(item["comment"])
        attributes = terms.attributes_in(item["comment"])
        if item["dimension"] not in HELD_OUT or not groups or not attributes:
            continue
        found: list[Attribution] = []
        for j in np.flatnonzero(of.owner == i):
            found += said_of(config, nets, tokens, of.rows[j])
        right.append(pair_right(found, groups, attributes))
    low, high = exact(sum(right), len(right))
    rate = sum(right) / len(right) if right else float("nan")
    return {"n": len(right), "right": rate, "low": low, "high": high}


def said_of(
    config: TrainConfig, nets: Nets, tokens: WindowTokens, row: Row
) -> tuple[Attribution, ...]:
    """Return what the float32 network finds in one window."""
    encoded = tokens.encode(row.text, row.context if config.context else ())[0]
    ids, types = torch.tensor([encoded.ids]), torch.tensor([encoded.types])
    with torch.no_grad():
        out = nets.net(ids, torch.ones_like(ids), types)
    return pairs_in(row.text, encoded, out.spans[0].numpy())


def _scores(
    config: TrainConfig,
    nets: Nets,
    tokens: WindowTokens,
    statements: Sequence[Statement],
    of: Comments,
) -> Floats:
    """Return the logit of each comment's highest window."""
    logits = _judged(config, nets, tokens, statements, of.rows).final
    highest = np.full(len(of.items), -np.inf)
    np.maximum.at(highest, of.owner, logits)
    return highest


def _validated(
    config: TrainConfig,
    corpus: Corpus,
    nets: Nets,
    tokens: WindowTokens,
    statements: Sequence[Statement],
    most: int = 400,
) -> dict[str, Any]:
    rows: list[Row] = []
    for source in sorted({r.source for r in corpus.validation}):
        pool = [r for r in corpus.validation if r.source == source]
        # By a hash: files are in the order of their groups.
        rows += sorted(pool, key=lambda r: share(r.text, "study"))[:most]
    figures = by_source(rows, _judged(config, nets, tokens, statements, rows))
    return {source: f._asdict() for source, f in figures.items()}


@cache
def _embedder(embedder: Path | None) -> Embed:
    # Every judging of every study asks for it; it says the same of a text under any settings.
    return teacher(embedder)


def _judged(
    config: TrainConfig,
    nets: Nets,
    tokens: WindowTokens,
    statements: Sequence[Statement],
    rows: Sequence[Row],
) -> Any:
    shown = rows if config.context else [replace(r, context=()) for r in rows]
    embed = _embedder(config.embedder)
    index = TrainIndex(shown, statements, embed, config.vectors(), config.k, config.floor)
    use = "none" if config.references == "none" else "all"
    return judge(nets, shown, index, tokens, use, as_text=config.references == "text")
