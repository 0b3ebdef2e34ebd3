"""EMGSD (King et al. 2024): stereotypes from StereoSet, SeeGULL and WinoQueer.

Read from the published CSV (``text``, ``text_with_marker``, ``category``, ``stereotype_type``,
``data_source``, ``label``), or from rows with only a text and a label; the earlier MGSD and HEARTS
files have the same columns. Only rows labelled a stereotype are used. If the row has no type or
group, they are searched in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from guard.datasets.groups import bias_type
from guard.datasets.rows import BadRow, Values, text_field
from guard.retrieve.importers.found import (
    NO_GROUP,
    NO_TYPE,
    Found,
    LeftOut,
    explicit_statement,
    find_mention,
)
from guard.retrieve.importers.named import Named, find_named, find_predicate
from guard.retrieve.phrases import find_phrase
from guard.verdict import BiasType, Span

NAME = "EMGSD"
TEXTS = ("text", "text_no_marker", "text_with_marker", "marked")
LABELS = ("category", "label")
# Text and label alone do not identify the source.
DISTINCTIVE = ("text_with_marker", "marked", "stereotype_type", "data_source", "original_dataset")

_MARKED = re.compile(r"===\s*(.*?)\s*===")
_STEREOTYPE = "stereotype"
_OTHERS = ("neutral", "unrelated", "anti-stereotype")


def emgsd_statements(row: Values) -> Iterator[Found]:
    """Yield the stereotype that a row holds."""
    label = _stated_label(row)
    if not label.startswith(_STEREOTYPE):
        return
    marked = next((text_field(row, n) for n in ("text_with_marker", "marked") if n in row), "")
    plain = next((text_field(row, n) for n in TEXTS if n in row), "").replace("===", "")
    plain = " ".join(plain.split())
    if not plain:
        raise BadRow("the text is empty")
    group = _named_group(row, plain, _stated_type(row, label))
    if isinstance(group, LeftOut):
        yield group
        return
    attribute = _marked_attribute(marked, plain, group.group) or find_predicate(plain, group.group)
    yield explicit_statement(plain, group.bias_type, group.group, attribute, NAME)


def _stated_label(row: Values) -> str:
    name = next((n for n in LABELS if n in row), "label")
    value = row.get(name)
    if value in (1, "1"):
        return _STEREOTYPE
    if value in (0, "0"):
        return ""
    label = text_field(row, name).casefold()
    if not label.startswith((_STEREOTYPE, *_OTHERS)):
        known = ", ".join((_STEREOTYPE, *_OTHERS))
        raise BadRow(f"'{name}' must be 0, 1 or one of {known}")
    return label


def _stated_type(row: Values, label: str) -> BiasType | None:
    """Return the row's type, from its own column or after the label."""
    stated = (
        text_field(row, "stereotype_type") if "stereotype_type" in row else label.partition("_")[2]
    )
    kind = bias_type(stated)
    if stated and kind is None:
        raise BadRow("the stereotype's type is not known")
    return kind


def _named_group(row: Values, plain: str, kind: BiasType | None) -> Named | LeftOut:
    """Return the row's group, or one that its text names; of type ``kind``, if that is known."""
    stated = text_field(row, "group") if "group" in row else ""
    if stated and (span := find_mention(plain, stated)) is not None:
        listed = find_named(stated)
        kind = kind or (listed.bias_type if listed else None)
        return LeftOut(NO_TYPE) if kind is None else Named(span, kind)
    named = find_named(plain, kind)
    if named is None and kind == "culture":
        # The source counts Africans and Arabs as nationalities.
        named = find_named(plain, "race")
    return LeftOut(NO_GROUP) if named is None else Named(named.group, kind or named.bias_type)


def _marked_attribute(marked: str, plain: str, group: Span) -> Span | None:
    """Return the first marked words that are not the group itself."""
    for words in _MARKED.findall(marked):
        span = find_phrase(plain, words)
        if span is not None and (span.end <= group.start or span.start >= group.end):
            return span
    return None
