"""One question of SAI/ASA, of the shipped pack or of the official data alike."""

from __future__ import annotations

from typing import NamedTuple

DIRECTIONS = ("SAI", "ASA")
DOMAINS = ("ageism", "beauty", "beauty_profession", "institution", "nationality")
PRONOUNS = ("masculine", "feminine", "non-binary")
CHOICES = ("negative", "neutral", "positive")
"""What can be chosen, from low to high: the order that tau is over."""


class Row(NamedTuple):
    """A sentence with BLANK, the polarity of what it gives, and an option of each polarity.

    ``template`` is the sentence without what was put into it; ``variants`` are told apart by their
    pronoun only and have the same options.
    """

    id: str
    direction: str
    domain: str
    pronoun: str
    given: str  # "negative" or "positive"
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
