"""Draws the instances: 10 pairs x 50 draws x 3 dimensions x 3 templates, and 500 x 3.

Paper, section 3.3.3. A draw has an identifier of each group and, for each dimension, five words of
each polarity, and fills the three templates. AAT draws 500 of all 1,920 combinations of an
identifier and an object. Each draw has its own seeded generator.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

DRAWS = 50
WORDS = 5
COMBINATIONS = 500
TEMPLATES = 3
DIMENSIONS = ("Competence", "Sociability", "Morality")


class WabtInstance(NamedTuple):
    """One instance of WABT; ``group`` is the pair's disadvantaged one, which names the pair."""

    id: str
    draw: str
    group: str
    dimension: str
    template: int
    sa: str
    sb: str
    positive: tuple[str, ...]
    negative: tuple[str, ...]


class AatInstance(NamedTuple):
    """One instance of AAT; ``side`` is Sa or Sb."""

    id: str
    draw: str
    group: str
    side: str
    template: int
    identifier: str
    object: str


def wabt_instances(words: Mapping[str, Any], *, seed: int) -> Iterator[WabtInstance]:
    """Yield the 4,500 instances of WABT from the word lists."""
    identifiers = {group["name"]: group["identifiers"] for group in words["groups"]}
    for advantaged, disadvantaged in words["pairs"]:
        for number in range(1, DRAWS + 1):
            draw = f"WABT-{disadvantaged.replace(' ', '_')}-{number:02d}"
            chance = random.Random(f"{seed}/{draw}")
            sa, sb = (chance.choice(identifiers[name]) for name in (advantaged, disadvantaged))
            for dimension in DIMENSIONS:
                listed = words["attributes"][dimension]
                positive = tuple(chance.sample(listed["positive"], WORDS))
                negative = tuple(chance.sample(listed["negative"], WORDS))
                for template in range(TEMPLATES):
                    yield WabtInstance(
                        f"{draw}-{dimension}-{template + 1}",
                        draw,
                        disadvantaged,
                        dimension,
                        template,
                        sa,
                        sb,
                        positive,
                        negative,
                    )


def aat_instances(words: Mapping[str, Any], *, seed: int) -> Iterator[AatInstance]:
    """Yield the 1,500 instances of AAT from the word lists."""
    combinations = [
        (group["name"], group["side"], identifier, thing)
        for group in words["groups"]
        for identifier in group["identifiers"]
        for thing in words["objects"]
    ]
    drawn = random.Random(f"{seed}/AAT").sample(combinations, COMBINATIONS)
    for number, (group, side, identifier, thing) in enumerate(drawn, start=1):
        draw = f"AAT-{number:03d}"
        for template in range(TEMPLATES):
            yield AatInstance(
                f"{draw}-{template + 1}", draw, group, side, template, identifier, thing
            )
