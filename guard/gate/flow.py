"""Hold mode ``association``: how much of a channel's text may go out before its verdicts.

Text goes out up to the first mention of a group in its segment, and only while it certainly
belongs to that segment. The rest of the segment waits for its verdict. Both limits depend on the
segment's text alone, not on how it was chunked.
"""

from __future__ import annotations

from guard.gate.segmenter import Segment, Segmenter
from guard.mentions import Finder, first_mention, shipped_lexicon


class GroupMemory:
    """Whether a choice has named a group, so that a pronoun may refer to it."""

    def __init__(self, user: str = "") -> None:
        self.named = first_mention(user, shipped_lexicon(), pronouns=False) is not None


class Flow:
    """Follows the open segment of one channel."""

    def __init__(self, segmenter: Segmenter, groups: GroupMemory) -> None:
        self._segmenter = segmenter
        self._groups = groups
        self._held = False  # whether the previous segment was held from a mention on
        self._finder = self._begin()
        self._start = 0

    def feed(self, text: str) -> None:
        """Add text that completed no segment."""
        self._finder.feed(text)

    def continue_from(self, before: str) -> None:
        """Begin the open segment with ``before``, the end of an earlier channel's text."""
        mention = first_mention(before, shipped_lexicon(), pronouns=self._groups.named)
        self._held = self._held or mention is not None
        self._finder = self._begin()
        self._finder.feed(before)
        self._start = self._segmenter.start

    def close(self, segments: list[Segment]) -> list[int]:
        """Close segments; return the offset up to which each may go out unjudged."""
        free = [self._free(segment) for segment in segments]
        self._finder = self._begin()
        self._finder.feed(self._segmenter.open)
        self._start = segments[-1].release
        return free

    @property
    def free(self) -> int:
        """Offset up to which the open segment may go out unjudged."""
        if self._held and self._segmenter.shares:
            return self._start
        return min(self._start + self._finder.clear, self._segmenter.sure)

    def _begin(self) -> Finder:
        return Finder(shipped_lexicon(), pronouns=self._groups.named)

    def _free(self, segment: Segment) -> int:
        # After a forced cut the sentence continues: its group may be in the part before the cut.
        continues = self._held and segment.fresh > segment.start
        mention = first_mention(segment.text, shipped_lexicon(), pronouns=self._groups.named)
        self._groups.named = self._groups.named or mention is not None
        self._held = continues or mention is not None
        if continues:
            return segment.start
        reach = min(len(segment.text), self._segmenter.least)
        return segment.start + (reach if mention is None else min(mention, reach))
