"""How well an embedder finds: what a text implies, and statements of its group and type."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from guard.errors import UsageError
from guard.train.base import Embed
from guard.train.corpus import VALIDATION_SHARE, eval_folds
from guard.train.groups import group_type
from guard.train.rows import fold, share
from guard.train.sources import read_jsonl
from guard.verdict import BiasType

_MANY = 5
# Words that name no group by themselves: "black men" and "white men" are two groups.
_SEX = {"women": "women", "woman": "women", "females": "women", "female": "women", "girls": "women",
        "men": "men", "man": "men", "males": "men", "male": "men", "boys": "men"}  # fmt: skip
_ANYONE = (
    frozenset(
        "people folk folks person persons community communities group groups the of and all".split()
    )
    | _SEX.keys()
)
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


class Nearest(NamedTuple):
    """What a query finds: whether its own statement, and what the others say.

    Of each of the others: its similarity, whether it names the query's type, whether its group.
    """

    own: bool
    others: list[tuple[float, bool, bool]]


def nearest(
    embed: Embed, validating: Sequence[Implied], known: Sequence[Implied]
) -> dict[str, list[Nearest]]:
    """Search with posts (``implicit``) and with the statements they imply (``explicit``).

    ``known`` are statements that stand in the index beside the validating ones; copies of a
    statement count once. Of each query the five nearest count, its own statement left out.
    """
    index = {fold(p.statement): p for p in (*known, *validating)}
    folds, statements = list(index), list(index.values())
    vectors = embed([p.statement for p in statements])
    queries = {"implicit": [p.post for p in validating],
               "explicit": [p.statement for p in validating]}  # fmt: skip
    out: dict[str, list[Nearest]] = {}
    for name, texts in queries.items():
        out[name] = []
        for asked, values in zip(validating, embed(texts) @ vectors.T, strict=True):
            order, mine = np.argsort(-values)[: _MANY + 1].tolist(), fold(asked.statement)
            others = [
                (float(values[i]), statements[i].bias_type == asked.bias_type,
                 same_group(statements[i].group, asked.group))
                for i in order if folds[i] != mine
            ]  # fmt: skip
            own = mine in (folds[i] for i in order[:_MANY])
            out[name].append(Nearest(own, others[:_MANY]))
    return out


def quality(found: Mapping[str, Sequence[Nearest]]) -> dict[str, Any]:
    """Return :class:`Found` of what :func:`nearest` found, implicit and explicit apart."""
    out = {}
    for name, queries in found.items():
        shares = [
            [np.mean([kind for _, kind, _ in q.others]), np.mean([g for *_, g in q.others]),
             np.mean([kind and g for _, kind, g in q.others])]
            for q in queries
        ]  # fmt: skip
        own = float(np.mean([q.own for q in queries])) if name == "implicit" else float("nan")
        means = np.mean(shares, axis=0)
        out[name] = Found(len(queries), own, *map(float, means))._asdict()
    return out


class Band(NamedTuple):
    """References whose similarity lies in [``low``, ``low`` + 0.1), and the shares that fit.

    The first band takes in all below, the last all above.
    """

    low: float
    n: int
    bias_type: float
    both: float


def bands(found: Mapping[str, Sequence[Nearest]]) -> list[Band]:
    """Return, by similarity, how often what was found names the query's type and group.

    Queries are posts and statements alike.
    """
    others = [other for queries in found.values() for q in queries for other in q.others]
    out = []
    for step in range(10):
        inside = [o for o in others if step == min(9, max(0, math.floor(o[0] * 10)))]
        if inside:
            kinds = float(np.mean([kind for _, kind, _ in inside]))
            both = float(np.mean([kind and group for _, kind, group in inside]))
            out.append(Band(step / 10, len(inside), kinds, both))
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
    found = {name: nearest(e, validating, known) for name, e in embedders.items()}
    *_, last = found.values()
    similar = bands(last)
    return {
        "quality": {name: quality(one) for name, one in found.items()},
        "bands": [b._asdict() for b in similar],
        "floor": floor(similar, least),
    }
