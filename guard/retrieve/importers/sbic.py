"""Social Bias Frames (Sap et al. 2020), both published layouts.

``SBIC.v2.*.csv`` has a row for every annotation of a post, ``SBIC.v2.agg.*.csv`` a row for every
post with JSON lists of all annotations. The statement is the implied one (``targetStereotype``);
the posts are not used. The column ``hasBiasedImplication`` means the opposite of its name in the
published files and is not read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from guard.datasets.groups import group_type
from guard.datasets.rows import BadRow, Values, text_field
from guard.retrieve.importers.found import (
    NO_GROUP,
    NO_TYPE,
    Found,
    LeftOut,
    find_mention,
    implied_statement,
)
from guard.verdict import BIAS_TYPES, BiasType

NAME = "SBIC"
COLUMNS = ("targetminority", "targetcategory", "targetstereotype")

AMBIGUOUS = "several groups are targeted, and the statement names none of them"


class _Category(NamedTuple):
    """The bias type of a category, and others that the group's name may select.

    The source's gender includes orientation, its culture religion, its body age.
    """

    usual: BiasType
    also: tuple[BiasType, ...] = ()


_CATEGORIES = {
    "race": _Category("race"),
    "gender": _Category("gender", ("orientation",)),
    "culture": _Category("culture", ("religion",)),
    "disabled": _Category("disability"),
    "body": _Category("appearance", ("age",)),
    "social": _Category("social"),
    "victim": _Category("social", BIAS_TYPES),
}


def sbic_statements(row: Values) -> Iterator[Found]:
    """Yield the statements of an annotation or of an aggregated post; most rows have none."""
    aggregated = "hasbiasedimplication" in row
    lists, categories, implications = (_field_texts(row, name, aggregated) for name in COLUMNS)
    groups = [name.strip() for names in lists for name in names.split(",") if name.strip()]
    for implication in implications:
        named = [group for group in groups if find_mention(implication, group) is not None]
        if not groups:
            yield LeftOut(NO_GROUP)
        elif not named and aggregated and len(groups) > 1:
            yield LeftOut(AMBIGUOUS)
        else:
            # One annotation with several groups applies to all of them.
            group = max(named, key=len) if named else ", ".join(groups)
            kind = _category_type(categories, group)
            yield (
                LeftOut(NO_TYPE)
                if kind is None
                else implied_statement(implication, kind, group, NAME)
            )


def _category_type(categories: list[str], group: str) -> BiasType | None:
    """Return the type of the only category; with several, that of the group's name among them."""
    known = [_CATEGORIES[c] for c in dict.fromkeys(categories) if c in _CATEGORIES]
    named = group_type(group)
    if len(known) == 1:
        return named if named in known[0].also else known[0].usual
    return named if any(named in (c.usual, *c.also) for c in known) else None


def _field_texts(row: Values, name: str, aggregated: bool) -> list[str]:
    if not aggregated:
        return [said] if (said := text_field(row, name)) else []
    value = text_field(row, name)
    try:
        texts = json.loads(value) if value else []
    except (json.JSONDecodeError, RecursionError):
        texts = None
    if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
        raise BadRow(f"'{name}' is not a JSON list of strings")
    return [folded for one in texts if (folded := " ".join(one.split()))]
