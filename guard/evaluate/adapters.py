"""Records of the known sets, of cases and of a user's own table -> examples.

What a set says of a text is in its record (:mod:`guard.datasets.records`). Functions here raise
:class:`BadRow` with the reason if a record has an unknown bias type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

from pydantic import BeforeValidator, Field

from guard.datasets import records
from guard.datasets.records import (
    Filled,
    PublishedRow,
    PublishedText,
    Text,
    Type,
    known_types,
    listed_terms,
    shortened_value,
)
from guard.datasets.rows import BadRow
from guard.datasets.split import fold
from guard.datasets.terms import Dimension, TermList
from guard.evaluate.example import Case, Example, Expect
from guard.gate.segmenter import split

_BIASED = ("1", "biased", "yes", "true")
_HARMLESS = ("0", "unbiased", "harmless", "no", "false")
CSV_LABELS = (*_BIASED, *_HARMLESS)


def labelled(record: PublishedText, key: str) -> list[Example]:
    """Return the text with what its set says of it."""
    biased, kinds, groups, attributes, axes = record.labels
    return [Example(record.text, biased, key, kinds, groups, attributes, axes={**axes})]


def redditbias(
    record: records.Comment, key: str, terms: Mapping[Dimension, TermList]
) -> list[Example]:
    """Accept as groups and attributes the dimension's terms that occur in the text."""
    (example,), lists = labelled(record, key), terms[record.dimension]
    groups, attributes = lists.groups_in(record.text), lists.attributes_in(record.text)
    return [replace(example, groups=groups, attributes=attributes)]


def crows_pairs(record: records.SentencePair, key: str) -> list[Example]:
    """Pair order: ``sent_more`` should score above ``sent_less``.

    As classification, only pairs of the direction ``stereo``: ``sent_more`` is biased,
    ``sent_less`` is not. Pairs of the other direction contradict a stereotype and have no label.
    """
    stereo = record.direction == "stereo"
    more = Example(
        record.sent_more, True if stereo else None, f"{key}:more", (record.bias_type,),
        axes={"direction": record.direction}, parts=("stereo direction",) if stereo else (),
        unit=key, role="more",
    )  # fmt: skip
    biased = False if stereo else None
    return [
        more,
        replace(more, text=record.sent_less, biased=biased, id=f"{key}:less", role="less"),
    ]


def emgsd(record: records.MarkedText, key: str) -> list[Example]:
    """Add the attribute's place.

    The variants of a text of several sentences share the first one, which is their unit.
    """
    (example,), (first, *others) = labelled(record, key), split(record.text)
    unit = f"emgsd:{fold(first.text)}" if others else ""
    return [replace(example, attribute_spans=record.marked_spans, unit=unit)]


def stereoset(record: records.ItemVariant, key: str) -> list[Example]:
    """Keep the variants of an item together."""
    return [replace(example, unit=record.item) for example in labelled(record, key)]


def assistant(record: records.AssistantSentence, key: str) -> list[Example]:
    """Harmless sentences of an assistant, in parts by whether they name a group."""
    part = "a group named" if record.bias_type else "no group named"
    return [replace(example, parts=(part,)) for example in labelled(record, key)]


class CaseLine(PublishedRow, extra="forbid"):
    """A case of a behaviour."""

    text: Filled
    expect: Expect
    context: tuple[Filled, ...] = Field((), strict=False)
    user: Text = ""
    bias_type: Type | None = None

    def case(self, behaviour: str, key: str) -> Case:
        """Return the case with its behaviour and place."""
        kind = self.bias_type
        return Case(behaviour, self.text, self.expect, key, self.context, self.user, kind)


def _label_of(text: object) -> bool:
    label = str(text).strip().casefold()
    if label not in CSV_LABELS:
        raise BadRow(f"label {shortened_value(label)} is not one of {', '.join(CSV_LABELS)}")
    return label in _BIASED


class TableRow(PublishedRow):
    """A row of a custom table; several acceptable terms are separated by ``|``."""

    text: Filled
    label: Annotated[bool, BeforeValidator(_label_of)]
    bias_type: Text = ""
    group: Text = ""
    attribute: Text = ""


def table_row(record: TableRow, key: str) -> list[Example]:
    """Return the example of a row of a custom table."""
    kinds, groups = known_types(listed_terms(record.bias_type)), listed_terms(record.group)
    return [Example(record.text, record.label, key, kinds, groups, listed_terms(record.attribute))]
