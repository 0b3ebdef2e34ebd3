"""Demeaning names of groups, which the network has hardly met: a short list with a sense check.

A text with such a name is judged as written, and also with plain words in the name's place; the
higher score counts. The network so tells use from mention ("The word '...' is an insult."). A name
whose text shows another sense ("a chink in the armour") is left.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from guard.detect.spelling import Edit

_PLURALS = {"person": "people", "man": "men", "woman": "women", "Gypsy": "Gypsies"}
_UNCHANGED = ("men", "people")


class _Slur(NamedTuple):
    meant: str
    other_sense: re.Pattern[str] | None


def plain_names(text: str) -> list[Edit]:
    """Return the edits that put plain words in the place of the demeaning names of a text."""
    known, pattern = _listed_slurs()
    edits = []
    for match in pattern.finditer(text):
        name, plural = match[1].lower(), bool(match[2])
        slur = known[name]
        if slur.other_sense is None or not slur.other_sense.search(text):
            edits.append(Edit(*match.span(), _plural_of(slur.meant) if plural else slur.meant))
    return edits


@cache
def _listed_slurs() -> tuple[dict[str, _Slur], re.Pattern[str]]:
    lines = files("guard.detect").joinpath("slurs.txt").read_text(encoding="utf-8").splitlines()
    slurs: dict[str, _Slur] = {}
    for line in lines:
        if line and not line.startswith("#"):
            name, meant, *senses = line.split("; ", 2)
            slurs[name] = _Slur(meant, re.compile(senses[0], re.IGNORECASE) if senses else None)
    names = "|".join(sorted(slurs, key=len, reverse=True))
    return slurs, re.compile(rf"(?<![\w@#/-])({names})(s?)(?![\w@/-])", re.IGNORECASE)


def _plural_of(meant: str) -> str:
    before, _, last = meant.rpartition(" ")
    if last not in _UNCHANGED:
        last = _PLURALS.get(last, last + "s")
    return f"{before} {last}"
