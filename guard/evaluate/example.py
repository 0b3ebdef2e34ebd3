"""What every evaluation file is turned into, and the bias types that figures count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from guard.verdict import BiasType, Span


@dataclass(frozen=True, slots=True)
class Example:
    """One text with what its source says of it.

    ``biased`` is None where the source gives no label. The tuples hold what is acceptable and are
    empty where it is not known: any of ``bias_types``, ``groups`` and ``attributes`` is right.
    ``attribute_spans`` are the marked characters of the text. ``axes`` are further properties that
    figures are broken down by, ``parts`` named subsets shown beside the whole. Examples of one
    ``unit`` are variants of each other: drawn together where texts are drawn. ``role`` says which
    of a pair should score higher.
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
    """One text of a behaviour with the verdict it should get.

    ``context`` are sentences of the same answer before it, oldest first; ``user`` is the message
    that the answer is to, empty where it does not matter; ``bias_type`` that of the group named.
    """

    behaviour: str
    text: str
    expect: Expect
    id: str
    context: tuple[str, ...] = ()
    user: str = ""
    bias_type: BiasType | None = None


Types = Literal["own", "paper"]
# The seven types of the BiasAlert paper: two of ours are part of another.
_PAPER: Mapping[BiasType, BiasType] = {"age": "social", "appearance": "social"}


def in_types(kind: BiasType, types: Types) -> BiasType:
    """Return the type as ``types`` count it: our nine, or the paper's seven."""
    return _PAPER.get(kind, kind) if types == "paper" else kind
