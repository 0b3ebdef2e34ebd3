"""Builds the shipped items from word lists and sentence templates.

Every stimulus (SAI) or attribute (ASA) fills every template of its domain. One pair of opposite
options and one neutral option are drawn for its three pronoun variants (paper, "Iterative Data
Collection"). Each draw has its own seeded generator, so that a new template changes no other item.

A template is written for "they": ``{they}`` becomes he, she or they, ``{person}`` man, woman or
person, ``[are|is]`` the verb's form, ``{given}`` the given word and ``{a given}`` that word with
its article; a capitalised slot gives a capitalised word.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from guard.suites.sai_asa.rows import DIRECTIONS, DOMAINS, PRONOUNS, StimulusRow

FORMS = {
    "masculine": {"they": "he", "them": "him", "their": "his", "person": "man", "people": "men"},
    "feminine": {
        "they": "she",
        "them": "her",
        "their": "her",
        "person": "woman",
        "people": "women",
    },
    "non-binary": {word: word for word in ("they", "them", "their", "person", "people")},
}

_SLOT = re.compile(r"\{([^{}]+)\}|\[([^|\[\]]+)\|([^|\[\]]+)\]")


class Words(NamedTuple):
    """The words of one side of a domain; ``paired`` ones are opposites and drawn together."""

    negative: tuple[str, ...]
    neutral: tuple[str, ...]
    positive: tuple[str, ...]
    paired: bool
    in_sentences: Mapping[str, str]

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Words:
        """Read a side from words.json: ``pairs`` of (positive, negative), or two lists."""
        pairs = table.get("pairs")
        return cls(
            tuple(pair[1] for pair in pairs) if pairs else tuple(table["negative"]),
            tuple(table["neutral"]),
            tuple(pair[0] for pair in pairs) if pairs else tuple(table["positive"]),
            bool(pairs),
            table.get("in_sentences", {}),
        )

    def draw(self, chance: random.Random) -> tuple[str, str, str]:
        """Draw a negative, a neutral and a positive word."""
        at = chance.randrange(len(self.positive))
        negative = self.negative[at] if self.paired else chance.choice(self.negative)
        return negative, chance.choice(self.neutral), self.positive[at]


def build_rows(
    words: Mapping[str, Any], templates: Iterable[Mapping[str, str]], *, seed: int
) -> Iterator[StimulusRow]:
    """Yield every row: SAI, then ASA, domain by domain.

    ``words`` has ``stimuli`` and ``attributes`` by domain, ``templates`` are rows of direction,
    domain and sentence. A template with ``leaves_out`` "one" gets two of the three pronouns with
    each word, in rotation: 940 sentences with 20 institutions (paper, "Dataset Statistics") are
    not a multiple of three.
    """
    sentences: dict[tuple[str, str], list[Mapping[str, str]]] = {}
    for template in templates:
        sentences.setdefault((template["direction"], template["domain"]), []).append(template)
    for direction in DIRECTIONS:
        for domain in DOMAINS:
            stimuli, attributes = _domain_sides(words, domain)
            inserted, options = (
                (stimuli, attributes) if direction == "SAI" else (attributes, stimuli)
            )
            for number, template in enumerate(sentences[direction, domain], start=1):
                name = f"{direction}-{domain}-{number:02d}"
                for row in _filled_rows(name, template, inserted, options, seed):
                    yield StimulusRow(row[0], direction, domain, *row[1:])


def _domain_sides(words: Mapping[str, Any], domain: str) -> tuple[Words, Words]:
    stimuli = words[domain]["stimuli"]
    same_as = stimuli.get("as")
    return (
        Words.of(words[same_as]["stimuli"] if same_as else stimuli),
        Words.of(words[domain]["attributes"]),
    )


def _filled_rows(
    name: str, template: Mapping[str, str], inserted: Words, options: Words, seed: int
) -> Iterator[tuple[str, ...]]:
    """Yield the fields of each row of a template, without direction and domain."""
    for polarity, words in (("positive", inserted.positive), ("negative", inserted.negative)):
        for at, word in enumerate(words):
            variants = f"{name}-{word.lower().replace(' ', '_')}"
            drawn = options.draw(random.Random(f"{seed}/{variants}"))
            left_out = (at + (polarity == "negative")) % len(PRONOUNS)
            shown = inserted.in_sentences.get(word, word)
            for place, pronoun in enumerate(PRONOUNS):
                if template["leaves_out"] == "one" and place == left_out:
                    continue
                text = fill_sentence(template["sentence"], pronoun, shown)
                yield f"{variants}-{pronoun}", pronoun, polarity, word, name, variants, text, *drawn


def fill_sentence(template: str, pronoun: str, word: str) -> str:
    """Return the template's sentence with this pronoun and the given word.

    Raises KeyError for an unknown slot.
    """

    def fill(slot: re.Match[str]) -> str:
        name, they, he_or_she = slot.groups()
        if name is None:
            return they if pronoun == "non-binary" else he_or_she
        if name == "given":
            return word
        if name == "a given":
            return f"{_article_for(word)}{word}"
        form = FORMS[pronoun][name.lower()]
        return form.capitalize() if name[0].isupper() else form

    return _SLOT.sub(fill, template)


def _article_for(word: str) -> str:
    if word.startswith("a "):
        return ""
    return "an " if word[0].lower() in "aeiou" or word.startswith("hon") else "a "
