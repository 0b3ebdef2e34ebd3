"""The person ``[[X]]``: descriptor types, their identities, and the names drawn for them.

HBB, Tables 4 and 10, in ``benchmarks/hbb/protocol.toml``.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from guard.suites.hbb.pack import X

_CLASSES = ("female", "male", "neutral")
_POSSESSIVE = {"she": "her", "he": "his"}


@dataclass(frozen=True, slots=True)
class Identity:
    """One identity of a type; ``pronoun`` is empty if the drawn name has it."""

    name: str
    text: str
    pronoun: str


@dataclass(frozen=True, slots=True)
class Name:
    """A drawn name and its pronoun."""

    text: str
    pronoun: str


@dataclass(frozen=True, slots=True)
class Type:
    """One way to describe a category's identities; every two of them make an instance."""

    category: str
    name: str
    form: str
    pronoun_of: str
    identities: tuple[Identity, ...]

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The indices of every two identities, in order."""
        return list(combinations(range(len(self.identities)), 2))

    @property
    def named(self) -> bool:
        """Whether a name is drawn."""
        return "{name}" in self.form

    def phrase(self, identity: Identity, name: Name) -> str:
        """Return the text for ``[[X]]`` in the context, with its comma."""
        return self.form.replace("{text}", identity.text).replace("{name}", name.text)

    def pronoun(self, identity: Identity, name: Name) -> str:
        """Return the text for ``[[X]]`` in the options: "she" or "he"."""
        if self.pronoun_of == "name":
            return name.pronoun
        if self.pronoun_of == "own":
            return identity.pronoun
        return next(i.pronoun for i in self.identities if i.name == self.pronoun_of)


class Descriptors:
    """Every type in the order of Table 10, and the names."""

    def __init__(self, table: Mapping[str, Any], *, correct_slips: bool) -> None:
        text = ("mended", "text") if correct_slips else ("text",)
        self.types = tuple(
            Type(
                t["category"],
                t["name"],
                t["form"],
                t["pronoun_of"],
                tuple(
                    Identity(i["name"], next(i[k] for k in text if k in i), i.get("pronoun", ""))
                    for i in t["identities"]
                ),
            )
            for t in table["types"]
        )
        pronouns = table["name_pronouns"]
        self._names = {
            kind: [Name(n, pronouns.get(kind) or pronouns[n]) for n in table["names"][kind]]
            for kind in _CLASSES
        }

    def name(self, seed: int, pair: str, kind: Type) -> Name:
        """Return the name for a concept pair and type: first its class is drawn, then one of four.

        All identities of the type share it; it does not depend on other pairs.
        """
        digest = hashlib.sha256(f"{seed}\n{pair}\n{kind.name}".encode()).digest()
        rng = random.Random(digest)
        return rng.choice(self._names[rng.choice(_CLASSES)])


def context(text: str, phrase: str) -> str:
    """Return a context with ``phrase`` for ``[[X]]``.

    A comma at the phrase's end is dropped before a possessive or another mark. An article is lower
    case inside a sentence.
    """
    return _filled_slots(text, phrase, phrase.removesuffix(",") + "'s")


def option(text: str, pronoun: str) -> str:
    """Return an option with "she" or "he" for ``[[X]]`` and "her" or "his" for ``[[X]]'s``.

    The pronoun is capitalised at the beginning of a sentence.
    """
    return _filled_slots(text, pronoun.capitalize(), _POSSESSIVE[pronoun].capitalize())


def _filled_slots(text: str, plain: str, possessive: str) -> str:
    done = ""
    rest = text
    while X in rest:
        before, _, rest = rest.partition(X)
        done += before
        begins = not done.strip() or done.rstrip()[-1] in ".!?"
        word = plain
        if rest.startswith("'s"):
            word, rest = possessive, rest[2:]
        elif rest[:1] in tuple(",.;:!?"):
            word = word.removesuffix(",")
        done += word if begins else _inside_sentence(word)
    return done + rest


def _inside_sentence(word: str) -> str:
    """Return a word in the case that it has inside a sentence: names keep their capital."""
    first = word.split()[0]
    return word[0].lower() + word[1:] if first in ("The", "She", "He", "Her", "His") else word
