"""How well an embedder finds: what a text implies, and statements of its group and type."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from guard.errors import UsageError
from guard.train.base import Embed
from guard.train.corpus import VALIDATION_SHARE, eval_folds
from guard.train.groups import group_type
from guard.train.rows import fold, share
from guard.train.sources import read_jsonl
from guard.verdict import BiasType

_MANY = 5
# Words that name no group by themselves: "black men" and "white men" are two groups.
_ANYONE = frozenset(
    "people folk folks person persons community communities group groups the of and all men women "
    "man woman males females male female girls boys".split()
)
_SEX = {"women": "women", "woman": "women", "females": "women", "female": "women", "girls": "women",
        "men": "men", "man": "men", "males": "men", "male": "men", "boys": "men"}  # fmt: skip
_WORD = re.compile(r"[^\W\d_]{3,}")
_OTHERS = re.compile(r"\bnon[- ]?(?=\w)", re.IGNORECASE)


class Implied(NamedTuple):
    """A post with the statement it implies, and of whom; statements of the index have no post."""

    post: str
    statement: str
    group: str
    bias_type: BiasType


def pairs(data: Path, *, validating: bool) -> list[Implied]:
    """Return the posts of one side of the split that imply something of a group of known type.

    The split is that of the corpus; texts of evaluation files are left out. Raises UsageError where
    ``data`` does not hold the implicit-hate corpus.
    """
    if not (data / "implicit_hate" / "implied.jsonl").is_file():
        raise UsageError(
            f"{data} holds no implicit_hate/implied.jsonl; name the folder of the sources."
        )
    forbidden = eval_folds(data)
    found = []
    for item in read_jsonl(data / "implicit_hate" / "implied.jsonl"):
        post, statement = item["post"].strip(), item["implied_statement"].strip()
        kind = group_type(item["target"])
        side = share(f"implicit_hate:{fold(post)}", "validation") < VALIDATION_SHARE
        if kind is None or side != validating or len(statement) <= 8:
            continue
        if fold(post) not in forbidden and fold(statement) not in forbidden:
            found.append(Implied(post, statement, fold(item["target"]), kind))
    return found


def index_statements(path: Path) -> list[Implied]:
    """Return the statements of a bias index's source file."""
    return [Implied("", i["statement"], fold(i["group"]), i["bias_type"]) for i in read_jsonl(path)]


def same_group(one: str, other: str) -> bool:
    """Whether two names have a word in common, up to its ending: "Jews" and "Jewish people".

    "Non-white people" are not white people; women and men count where nothing else is named.
    """
    return any(_alike(a, b) for a in _names(one) for b in _names(other))


def _names(group: str) -> list[str]:
    words = _WORD.findall(_OTHERS.sub("non", group.casefold()))
    return [w for w in words if w not in _ANYONE] or [_SEX[w] for w in words if w in _SEX]


def _alike(one: str, other: str) -> bool:
    one, other = (w.removesuffix("s").removesuffix("ish") for w in (one, other))
    return one == other or (min(len(one), len(other)) >= 5 and one[:5] == other[:5])


class Found(NamedTuple):
    """How well n queries find: shares over their five nearest statements.

    ``own`` is the share of queries whose own implied statement is among them (nan where the
    query is that statement); ``group`` and ``both`` the share of the nearest, own statement left
    out, that name the query's group, and its group and type; ``bias_type`` its type.
    """

    n: int
    own: float
    bias_type: float
    group: float
    both: float


def quality(
    embed: Embed, validating: Sequence[Implied], known: Sequence[Implied]
) -> dict[str, Any]:
    """Measure retrieval: implicit (a post asks) and explicit (its implied statement asks).

    ``known`` are statements that stand in the index beside the validating ones; copies of a
    statement count once.
    """
    index, folds = _index(known, validating)
    vectors = embed([p.statement for p in index])
    out = {}
    for name, texts in (
        ("implicit", [p.post for p in validating]),
        ("explicit", [p.statement for p in validating]),
    ):
        near = embed(texts) @ vectors.T
        rows = [_found(p, values, index, folds) for p, values in zip(validating, near, strict=True)]
        means = np.mean(rows, axis=0)
        own = float(means[0]) if name == "implicit" else float("nan")
        out[name] = Found(len(rows), own, *map(float, means[1:]))._asdict()
    return out


def _found(
    asked: Implied, values: NDArray[np.float32], index: Sequence[Implied], folds: Sequence[str]
) -> tuple[float, float, float, float]:
    order = np.argsort(-values)[: _MANY + 1].tolist()
    mine = fold(asked.statement)
    own = any(folds[i] == mine for i in order[:_MANY])
    others = [index[i] for i in order if folds[i] != mine][:_MANY]
    kind = [p.bias_type == asked.bias_type for p in others]
    group = [same_group(p.group, asked.group) for p in others]
    both = [k and g for k, g in zip(kind, group, strict=True)]
    return float(own), *(float(np.mean(v)) for v in (kind, group, both))  # type: ignore[return-value]


def _index(
    known: Sequence[Implied], validating: Sequence[Implied]
) -> tuple[list[Implied], list[str]]:
    index = {fold(p.statement): p for p in (*known, *validating)}
    return list(index.values()), list(index)


class Band(NamedTuple):
    """References whose similarity lies in [``low``, ``low`` + 0.1), and the shares that fit.

    The first band takes in all below, the last all above.
    """

    low: float
    n: int
    bias_type: float
    both: float


def bands(embed: Embed, validating: Sequence[Implied], known: Sequence[Implied]) -> list[Band]:
    """Return, by similarity, how often one of the five nearest names the query's type and group.

    Queries are the validating posts and their statements alike; a query's own statement is none
    of its references.
    """
    index, folds = _index(known, validating)
    vectors = embed([p.statement for p in index])
    found: list[tuple[float, bool, bool]] = []
    for queries in ([p.post for p in validating], [p.statement for p in validating]):
        near = embed(queries) @ vectors.T
        for asked, values in zip(validating, near, strict=True):
            mine = fold(asked.statement)
            order = [i for i in np.argsort(-values)[: _MANY + 1].tolist() if folds[i] != mine]
            for i in order[:_MANY]:
                kind = index[i].bias_type == asked.bias_type
                both = kind and same_group(index[i].group, asked.group)
                found.append((float(values[i]), kind, both))
    out = []
    for step in range(10):
        inside = [f for f in found if step == min(9, max(0, math.floor(f[0] * 10)))]
        if inside:
            kinds, boths = (float(np.mean([f[j] for f in inside])) for j in (1, 2))
            out.append(Band(step / 10, len(inside), kinds, boths))
    return out


def floor(similar: Sequence[Band], least: float) -> float:
    """Return the similarity from which on more than half of the references name the query's type.

    It is the lower end of a band, and never below ``least``, the floor of the training.
    """
    found = 1.0
    for band in sorted(similar, reverse=True):
        if band.bias_type <= 0.5:
            break
        found = band.low
    return max(found, least)


def compared(
    embedders: Mapping[str, Embed], data: Path, statements: Path, least: float
) -> dict[str, Any]:
    """Return :func:`quality` of each embedder, :func:`bands` and :func:`floor` of the last one.

    The index holds the statements of ``statements`` and all that posts imply.
    """
    known, validating = (pairs(data, validating=side) for side in (False, True))
    # Several posts imply one statement: what was a goal of the training is no measure of it.
    learned = {fold(p.statement) for p in known}
    validating = [p for p in validating if fold(p.statement) not in learned]
    known += index_statements(statements)
    out: dict[str, Any] = {name: quality(e, validating, known) for name, e in embedders.items()}
    *_, last = embedders.values()
    similar = bands(last, validating, known)
    return {
        "quality": out,
        "bands": [b._asdict() for b in similar],
        "floor": floor(similar, least),
    }
