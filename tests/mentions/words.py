"""The listed words, and ways to hide one from a plain comparison."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files

from guard.mentions.lexicon import Kind, read_words


def listed(kind: Kind) -> list[str]:
    text = files("guard.mentions").joinpath("groups.txt").read_text(encoding="utf-8")
    return read_words(text)[kind]


def disguises(name: str) -> Iterator[str]:
    yield name.upper()
    yield name.title()
    yield name + "s" if name[-1].isalpha() else name
    for letter, sign in zip("aeioslt", "@310$17", strict=True):
        if letter in name and len(name) > 2:
            yield name.replace(letter, sign, 1)
    yield name[:-1] + name[-1] * 4
    yield name[0] + "\u200b" + name[1:]
    yield name.replace("e", "é").replace("o", "ö")
    yield name.replace("a", "а").replace("o", "о").replace("e", "е")
    if len(name) > 3 and name.isalpha():
        yield " ".join(name)
        yield "-".join(name)
        yield ".".join(name)
