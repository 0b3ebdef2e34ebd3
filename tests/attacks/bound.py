"""What the bound on held text allows, told from what was said alone, never by asking a gate.

A segment belongs to one channel. It is held until it ends, or until the other channels of its
choice have said ``max_segment_chars`` printed characters: then what there is of it is judged and
may go out, and its rest is held as long again. White space of others counts for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from guard.policy import Policy
from tests.attacks.case import Plant, roomy
from tests.attacks.reading import PARTED, Key, decoded

_ENDS = re.compile(r"[.!?](?:\s|\\[nrt])+")  # in the arguments of a call a line break is an escape
_UNFINISHED = re.compile(
    r"\\+(?:u(?:d[89ab][0-9a-f]{2}(?:\\+(?:u[0-9a-f]{0,3})?)?|[0-9a-f]{0,3}))?\Z", re.IGNORECASE
)
_LETTERS = re.compile(r'\\+(["/bfnrt])')


def printed(text: str) -> int:
    """Return how many characters of a text are no white space."""
    return sum(map(len, text.split()))


def free(plant: Plant, key: Key, pieces: Iterable[tuple[Key, str]], policy: Policy) -> str:
    """Return what of a channel may be out before the phrase in it is judged whole.

    ``pieces`` are what all channels said, in order; the phrase is in the channel ``key``.
    """
    if key[1] == "tool" and policy.action != "redact":
        return ""  # a call goes out whole or not at all
    mine = [(k, text) for k, text in pieces if k[0] == key[0]]
    said = decoded("".join(text for k, text in mine if k == key))
    at = said.index(plant.phrase)
    # The phrase begins with the white space that may show the end of the sentence before it.
    begins = [0, *(end.end() for end in _ENDS.finditer(said, 0, at + 1))]
    end = _ENDS.search(said, at)
    long = (end.end() if end else len(said)) - begins[-1] >= roomy(
        policy.max_segment_chars, policy.overlap
    )
    # Where forced cuts fall is not told here: then the bound counts once, from the sentence before
    # on.
    exact = not long
    # A line break may be none between sentences, until a few characters behind it are known.
    outs = [_forced(plant, key, mine, b, policy.max_segment_chars, exact) for b in begins[-2:]]
    lost = "" if plant.lead in said[begins[-1] : at] else plant.lead  # by LiteLLM, to another text
    return max([said[:at] if long else "", *outs], key=len) + lost


def _forced(
    plant: Plant, key: Key, pieces: Iterable[tuple[Key, str]], begin: int, limit: int, exact: bool
) -> str:
    """Return the same, of a segment that begins at ``begin``; if not ``exact``, or behind it."""
    said, out, others = "", "", 0
    for k, text in pieces:
        if k == key:
            out = said if text == PARTED else out  # what there is of it was judged
            said += text
            if plant.tail in decoded(said):
                break
        elif len(decoded(said)) > max(begin, len(decoded(out))):
            others += printed(text)
            if others > limit:
                out = said
                others = 0 if exact else others
    return decoded(out)


class Reading:
    """Counts the characters of a growing text as they are read: an escape is one."""

    def __init__(self) -> None:
        self.all = 0
        self.printed = 0
        self._begun = ""

    def add(self, text: str) -> None:
        text = (self._begun + text).removesuffix(PARTED)
        begun = _UNFINISHED.search(text) if "\\" in text else None
        self._begun = begun.group() if begun else ""
        read = text.removesuffix(self._begun)
        if "\\" in read:
            read = _LETTERS.sub(
                lambda found: " " if found[1] in "bfnrt" else found[1], decoded(read)
            )
        self.all += len(read)
        self.printed += printed(read)


class _Choice:
    """What came and what went of a choice, by channel."""

    def __init__(self) -> None:
        self.came: dict[Key, Reading] = {}
        self.went: dict[Key, Reading] = {}

    @property
    def several(self) -> bool:
        return len(self.came) > 1

    def held(self) -> int:
        """Return how many characters are held; where several channels speak, of those printed."""
        for key, call in self.came.items():
            if key[1] == "tool" and (key not in self.went or self.went[key].all < call.all):
                return 0  # a call is held whole, and what comes behind it
        came, went = self.came.values(), self.went.values()
        if self.several:
            return sum(r.printed for r in came) - sum(r.printed for r in went)
        return sum(r.all for r in came) - sum(r.all for r in went)


class Held:
    """How many characters a stream holds back of a choice, at most.

    One channel alone holds a segment and what tells its end; twice as much where the segment waits
    for its second look. Where several speak, the others are
    held behind it until the bound on them is reached.
    """

    def __init__(self, policy: Policy) -> None:
        self._alone = policy.max_segment_chars + policy.overlap + policy.lookahead
        if policy.second_look:
            self._alone *= 2
        self._others = policy.max_segment_chars
        self._choices: dict[int, _Choice] = {}
        self._in_hand = 0  # the most that one chunk brought
        self._over = 0
        self.most = 0

    @property
    def over(self) -> int:
        """How many characters more than the bound and the chunk in hand were held."""
        return max(0, self._over - self._in_hand)

    def take(self, pieces: Iterable[tuple[Key, str]]) -> None:
        """Note what a chunk brings; all that may go out of those before it has gone."""
        for choice in self._choices.values():
            held = choice.held()
            self.most = max(self.most, held)
            self._over = max(self._over, held - self._alone - choice.several * self._others)
        brought: dict[int, int] = {}
        for key, text in pieces:
            came = self._choices.setdefault(key[0], _Choice()).came
            reading = came.setdefault(key, Reading())
            before = reading.all
            reading.add(text)
            brought[key[0]] = brought.get(key[0], 0) + reading.all - before
        self._in_hand = max([self._in_hand, *brought.values()])

    def release(self, pieces: Iterable[tuple[Key, str]]) -> None:
        """Note what goes out."""
        for key, text in pieces:
            self._choices[key[0]].went.setdefault(key, Reading()).add(text)
