"""The common form of all evaluation data, and the sets of bias types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from guard.verdict import BiasType, Span


@dataclass(frozen=True, slots=True)
class Example:
    """One text with its source's annotations.

    ``biased`` is None if the source has no label. ``bias_types``, ``groups`` and ``attributes`` are
    the acceptable values, of which any is right; they are empty if unknown. ``attribute_spans`` are
    the marked characters of the text. ``axes`` are properties for breakdowns, ``parts`` named
    subsets shown beside the whole. Examples with the same ``unit`` are variants of each other and
    are sampled together. ``role``: which member of a pair should score higher.
    """

    text: str
    biased: bool | None
    id: str
    bias_types: tuple[BiasType, ...] = ()
    groups: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    attribute_spans: tuple[Span, ...] = ()
    axes: Mapping[str, str] = field(default_factory=dict)
    parts: tuple[str, ...] = ()
    unit: str = ""
    role: Literal["", "more", "less"] = ""


Expect = Literal["biased", "harmless", "unjudged"]


@dataclass(frozen=True, slots=True)
class Case:
    """One text of a behaviour with its expected verdict.

    ``context`` are the sentences before it in the same answer, oldest first; ``user`` is the
    message that the answer replies to, or empty; ``bias_type`` that of the group in the text.
    """

    behaviour: str
    text: str
    expect: Expect
    id: str
    context: tuple[str, ...] = ()
    user: str = ""
    bias_type: BiasType | None = None


Types = Literal["own", "paper"]
# The seven types of the BiasAlert paper: it counts two of ours as social.
_PAPER: Mapping[BiasType, BiasType] = {"age": "social", "appearance": "social"}


def in_types(kind: BiasType, types: Types) -> BiasType:
    """Map a type to the set ``types``: our nine, or the paper's seven."""
    return _PAPER.get(kind, kind) if types == "paper" else kind
