"""StereoSet (Nadeem et al. 2021), intrasentence: a sentence with three fillers of one blank.

Read from the published ``dev.json`` or from JSON lines with one variant in each, the variants of
an item in a row. The variant labelled a stereotype is the statement; its attribute is the part that
the others do not share. The source's race includes nationality: a group with the name of a country
or people gets the type culture.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from guard.datasets.groups import bias_type
from guard.datasets.rows import BadRow, FileRow, Values, text_field
from guard.retrieve.importers.found import (
    NO_GROUP,
    Found,
    LeftOut,
    explicit_statement,
    find_mention,
    predicate_of,
)
from guard.retrieve.importers.named import find_named
from guard.retrieve.phrases import changed_part

NAME = "StereoSet"
COLUMNS = ("text", "label", "target", "bias_type", "item")
LIST = "intrasentence"

_LABELS = ("stereotype", "anti-stereotype", "unrelated", "related")


def gathered_items(rows: Iterator[FileRow]) -> Iterator[FileRow]:
    """Join the lines of an item into one row, as in the published file."""

    def item(numbered: tuple[int, FileRow]) -> object:
        number, row = numbered
        return number if row.broken else row.values.get("item", number)

    for _, group in groupby(enumerate(rows), key=item):
        variants = [row for _, row in group]
        first = variants[0]
        if first.broken:
            yield first
            continue
        sentences = [
            {"sentence": v.values.get("text"), "gold_label": v.values.get("label")}
            for v in variants
        ]
        yield first._replace(values={**first.values, "sentences": sentences})


def stereoset_statements(row: Values) -> Iterator[Found]:
    """Yield the stereotypes of an item."""
    target, kind = text_field(row, "target"), bias_type(text_field(row, "bias_type"))
    if kind is None:
        raise BadRow("'bias_type' is not one of StereoSet's")
    variants = [_labelled_sentence(one) for one in _item_sentences(row)]
    for statement, label in variants:
        if label != "stereotype":
            continue
        group = find_mention(statement, target)
        if group is None:
            yield LeftOut(NO_GROUP)
            continue
        # The source counts nationalities as race.
        listed = find_named(target) if kind == "race" else None
        own = "culture" if listed is not None and listed.bias_type == "culture" else kind
        attribute = changed_part(statement, [other for other, _ in variants if other != statement])
        if attribute is None or (attribute.start < group.end and attribute.end > group.start):
            attribute = predicate_of(statement, group)
        yield explicit_statement(statement, own, group, attribute, NAME)


def _item_sentences(row: Values) -> list[Values]:
    sentences = row.get("sentences")
    if not isinstance(sentences, list) or not all(isinstance(one, dict) for one in sentences):
        raise BadRow("'sentences' is not a list of objects")
    return sentences


def _labelled_sentence(variant: Any) -> tuple[str, str]:
    label = text_field(variant, "gold_label")
    if label not in _LABELS:
        raise BadRow(f"a label is not one of {', '.join(_LABELS)}")
    return text_field(variant, "sentence"), label
