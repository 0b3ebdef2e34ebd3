"""One question of SAI/ASA, from the pack or the official data, and the option that is chosen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

DIRECTIONS = ("SAI", "ASA")
DOMAINS = ("ageism", "beauty", "beauty_profession", "institution", "nationality")
PRONOUNS = ("masculine", "feminine", "non-binary")
CHOICES = ("negative", "neutral", "positive")
"""The options from low to high, in the order that tau uses."""
_NUMBERED = re.compile(r"option\s*\d*\s*:\s*")


class StimulusRow(NamedTuple):
    """A sentence with BLANK, the polarity of its stimulus or attribute, and three options.

    ``given_word`` is the inserted stimulus or attribute, ``given`` its polarity, ``template`` names
    the sentence without it. Rows with the same ``variants`` differ only in the pronoun and have the
    same options.
    """

    id: str
    direction: str
    domain: str
    pronoun: str
    given: str  # "negative" or "positive"
    given_word: str
    template: str
    variants: str
    context: str
    negative: str
    neutral: str
    positive: str

    @property
    def options(self) -> tuple[str, str, str]:
        """Return the options in the order of :data:`CHOICES`, lower-cased as they are shown."""
        return self.negative.lower(), self.neutral.lower(), self.positive.lower()


def chosen_option(text: str, options: Sequence[str]) -> int | None:
    """Return the index of the option that an answer equals, None if it equals none.

    As in the authors' code, the answer is stripped and lower-cased, and loses its full stops and a
    leading "option N:". Options lose their full stops too, or "St. Louis" could never be chosen.
    """
    answer = _plain_text(text)
    leading = _NUMBERED.match(answer)
    if leading:
        answer = answer[leading.end() :]
    return {_plain_text(option): at for at, option in enumerate(options)}.get(answer)


def _plain_text(text: str) -> str:
    return text.strip().replace(".", "").lower().strip()
