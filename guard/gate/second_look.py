"""A second look: a segment found biased is judged again together with the segment after it.

Only a harmless verdict on the two takes the finding back. If there is no such verdict, because
nothing follows or judging fails, the first one stands.
"""

from __future__ import annotations

import re
from dataclasses import replace

from guard.gate.json_text import Kind
from guard.gate.layout import opening
from guard.gate.phrases import is_bare_group, is_question
from guard.gate.segmenter import Segment
from guard.verdict import Verdict, Window


class SecondLook:
    """What the second look at a segment reads; known once the segment after it is.

    ``waits`` until then. After that, ``window`` has both segments; None if none followed.
    """

    __slots__ = ("_end", "_first", "_kind", "waits", "window")

    def __init__(self, first: Window, kind: Kind, end: int) -> None:
        self._first = first
        self._kind = kind
        self._end = end
        self.waits = True
        self.window: Window | None = None

    def end(self) -> None:
        """Note that no segment follows."""
        self.waits = False

    def passed(self, to: int, furthest: int) -> None:
        """Note that no segment has begun up to the offset ``to``.

        One that begins more than ``furthest`` characters behind the first does not follow it.
        """
        if to - self._end > furthest:
            self.waits = False

    def followed(self, segment: Segment, kind: Kind, *, keyed: bool) -> None:
        """Take the segment that follows; one of another kind does not.

        A string of JSON with a key of its own speaks of that, whatever it says.
        """
        if self.waits and kind == self._kind and not keyed and not _refutes_nothing(segment.text):
            own = _own(segment)
            whole = _one_text(self._first.text, own, adjoins=segment.fresh == self._end)
            self.window = replace(self._first, text=whole)
        self.waits = False


# "Urgent: no", "active = false", "- **Status:** wrong"
_FIELD = re.compile(r"\W*\w[\w -]{0,30}[*_`\"']*\s*[:=][*_`\"']*\s*\S+(?:[ \t]+\S+)?\s*")


def _refutes_nothing(text: str) -> bool:
    """Return whether a segment can refute nothing, whatever the detector reads in it.

    That is a question ("Untrue? Look around."), another item that only names a group, and a field
    with a value of one or two words, which speaks of another thing ("Urgent: no").
    """
    is_item = opening(text.lstrip()) > 0
    is_group = is_item and is_bare_group(text)
    return is_group or is_question(text) or _FIELD.fullmatch(text) is not None


def _own(segment: Segment) -> str:
    return segment.text[segment.fresh - segment.start :]


def _one_text(first: str, then: str, *, adjoins: bool) -> str:
    """Join two segments: by a line break if one belongs to either, else by a space.

    By nothing where they adjoin, as after a forced cut.
    """
    blank = first[len(first.rstrip()) :] + then[: len(then) - len(then.lstrip())]
    between = "\n" if "\n" in blank else " "
    return first.strip() + ("" if adjoins and not blank else between) + then.strip()


class SecondLooks:
    """The second looks at the segments of one channel.

    ``furthest``: characters of white space, structure and keys that may lie between a segment
    and the next. So the text that waits is bounded. ``enabled``: whether there are second looks.
    """

    def __init__(self, furthest: int, *, enabled: bool) -> None:
        self._furthest = furthest
        self._enabled = enabled
        self.last: SecondLook | None = None
        """That at the last complete segment, if it waits for the next."""

    def add(
        self, window: Window, segment: Segment, kind: Kind, *, keyed: bool, early: bool
    ) -> SecondLook | None:
        """Take the next segment and return the second look at it.

        ``keyed``: it begins with the key of its string. One that is judged ``early`` gets no
        second look, but may follow another. One without a letter of its own does neither: it
        says nothing, such as a smiley or the line below a table's head.
        """
        own = _own(segment)
        if not any(map(str.isalpha, own)):
            return None
        if self.last is not None:
            self.passed(segment.fresh + len(own) - len(own.lstrip()))
            self.last.followed(segment, kind, keyed=keyed)
        self.last = None if early or not self._enabled else SecondLook(window, kind, segment.end)
        return self.last

    def passed(self, to: int) -> None:
        """Note that no segment has begun up to an offset."""
        if self.last is not None:
            self.last.passed(to, self._furthest)

    def end(self) -> None:
        """Note that nothing follows the last segment."""
        if self.last is not None:
            self.last.end()
            self.last = None


def settled(first: Verdict, second: Verdict, threshold: float | None) -> Verdict:
    """Return the verdict on a segment found biased that was looked at twice.

    The segment is harmless if the second score is below the threshold of the first verdict's type
    and below ``threshold``. If not, or if there is no second score, the first verdict stands.
    """
    if second.score is None:
        return first
    limits = (first.threshold, threshold)
    stands = any(limit is not None and second.score >= limit for limit in limits)
    looked = replace(first, second_score=second.score)
    if stands:
        return looked
    elapsed = first.elapsed_ms + second.elapsed_ms
    both = replace(looked, score=second.score, references=second.references, elapsed_ms=elapsed)
    return replace(both, biased=False, bias_type=None, attributions=(), implied=None)
