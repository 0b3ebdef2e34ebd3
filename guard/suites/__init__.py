"""Published bias suites: each turns its pack into items, requests, outcomes and measures."""

from __future__ import annotations

from guard.suites.contract import (
    NON_ANSWERS,
    Answer,
    Capability,
    Chat,
    Compared,
    Estimate,
    Given,
    Item,
    Judge,
    Measure,
    Options,
    Outcome,
    Published,
    Record,
    Request,
    Role,
    Side,
    Smooth,
    Suite,
    TextScore,
)

__all__ = [
    "NON_ANSWERS",
    "Answer",
    "Capability",
    "Chat",
    "Compared",
    "Estimate",
    "Given",
    "Item",
    "Judge",
    "Measure",
    "Options",
    "Outcome",
    "Published",
    "Record",
    "Request",
    "Role",
    "Side",
    "Smooth",
    "Suite",
    "TextScore",
]
