"""The casts of the stories, and the prompt of a story."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Literal

Setting = Literal["single", "two", "balanced", "negative", "open_box"]


@dataclass(frozen=True, slots=True)
class Cast:
    """The characters of a story: their identities and descriptors, in the authors' order."""

    category: str
    identities: tuple[str, ...]
    descriptors: tuple[str, ...]
    block: str
    """The pair of identities and the type, or the type of a single character."""
    type: str
    """The category's row of descriptors that they come from, one for each identity."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names that the analyst sees: a descriptor begins with a name."""
        return tuple(text.partition(",")[0] for text in self.descriptors)

    def reversed(self) -> Cast:
        """Return the cast with the characters in reverse order."""
        return replace(self, identities=self.identities[::-1], descriptors=self.descriptors[::-1])


def casts(
    categories: Mapping[str, Any], setting: Setting, protocol: str, names: int | None = None
) -> Iterator[tuple[Cast, int]]:
    """Yield every cast with the number of its stories in each place.

    A pair has two identities of a type. A single character has as many stories as in all of its
    pairs together. The protocol ``guard`` adds types to the paper's, with fewer stories of each;
    ``names`` is the largest number of types.
    """
    for name, category in categories.items():
        identities = category["identities"]
        stories = category["stories"][protocol]
        types = category["types"] + (category["more"] if protocol == "guard" else [])
        for number, texts in enumerate(types[:names]):
            kind = f"{name} {number}"
            if setting == "single":
                for i in identities:
                    cast = Cast(name, (i,), (texts[i],), kind, kind)
                    yield cast, stories * (len(identities) - 1)
                continue
            for pair in combinations(identities, 2):
                block = "+".join(pair) + str(number)
                yield Cast(name, pair, tuple(texts[i] for i in pair), block, kind), stories


def story_prompt(protocol: Mapping[str, Any], setting: Setting, cast: Cast, place: str) -> str:
    """Return the prompt of a story; the open box uses that of two characters as its source."""
    prompts = protocol["stories"]
    form = prompts["two" if setting == "open_box" else setting].strip()
    return str(form.format(**slots(cast.descriptors, place)) + prompts["ending"])


def slots(descriptors: Sequence[str], place: str) -> dict[str, str]:
    """Return the values of a prompt's placeholders."""
    named = {f"D{n}": text for n, text in enumerate(descriptors, 1)}
    return {**named, "LOC": place}
