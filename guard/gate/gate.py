"""The gate of one channel: which windows to judge, and what of the text may go out."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import NamedTuple

from guard.gate.context import Context
from guard.gate.escapes import Escapes
from guard.gate.flow import Flow, View
from guard.gate.restart import Restart
from guard.gate.segmenter import Segment, Segmenter, split
from guard.policy import Policy
from guard.verdict import Channel, Decision, Span, Verdict, Window


class Settled(NamedTuple):
    """The fate of the next ``length`` characters: unchanged, or ``text`` in their place."""

    length: int
    text: str | None = None


class _Asked(NamedTuple):
    """A segment that waits for its verdict.

    ``sent_to`` is None for a whole segment. For a beginning that is judged early it is the offset,
    in the text as sent, up to which text may go out with it: behind an escape that has begun.
    """

    segment: Segment
    sent_to: int | None = None


class Gate:
    """State machine of one channel.

    ``feed`` and ``finish`` take text; ``windows`` gives what is to be judged, in order; ``resolve``
    takes one verdict for the oldest of them; ``settled`` gives the fates decided since the last
    call. Once ``stopped``, nothing more goes out and nothing more is asked. In the hold modes that
    let text out before its verdict, ``flow`` settles what may go; ``view`` is the choice's own.
    ``said`` is what this channel let out in an earlier answer. If the new text begins by repeating
    it, the repeat is neither judged nor sent. ``goes_on_from`` is the
    unfinished sentence of an earlier channel that this one continues; it was judged there, and is
    judged again as the beginning of the first segment here.

    A segment that cannot wait for its end is judged as far as it goes (``judge_open``): what is
    harmless of it may go out, and the segment is judged whole once it is complete.

    Segments are cut from the reading of the text: JSON escapes are judged as what they stand for.
    What comes in and what is settled are characters as they were sent.
    """

    def __init__(
        self,
        policy: Policy,
        channel: Channel,
        *,
        user: str = "",
        view: View | None = None,
        said: str = "",
        goes_on_from: str = "",
    ) -> None:
        self.channel = channel
        self.stopped = False
        self._policy = policy
        limits = policy.max_segment_chars, policy.overlap, policy.lookahead
        self._segmenter = Segmenter(*limits)
        self._restart = Restart(said)
        self._plain = False  # whether text without a backslash is read as it comes
        self._escapes = Escapes(letters=channel.kind == "tool")
        self._user = user if policy.user_context else ""
        before = (s.text for s in split(said, *limits) if not s.text.isspace())
        self._context = Context(policy.context_segments, before)
        self._asked: deque[_Asked] = deque()
        self._beginnings = 0  # among them, of segments that were judged early
        self._flow: Flow | None = None
        self._free: deque[int] = deque()  # how far each segment asked about may flow
        if policy.hold == "association":
            self._flow = Flow(self._segmenter, view or View())
        self._new: list[tuple[Window, int]] = []
        self._fates: list[Settled] = []
        self._settled = 0  # in the reading
        self._sent_to = 0  # the same in the text as sent
        self._asked_to = 0  # up to where the open segment was given to the judge before its end
        self._asked_sent = 0  # the same in the text as sent
        self._early: Window | None = None  # what was last judged before the end of its segment
        #: The last segment, where the channel ended inside a sentence. What follows continues it.
        self.unfinished = goes_on_from
        # The segment before, where it was found biased: its end, up to which a finding of the
        # next one would be the same, and whether it was replaced.
        self._found_to = 0
        self._replaced_to = -1

    @property
    def settled_all(self) -> bool:
        """Whether every character fed has been settled."""
        held = self._segmenter.held or self._escapes.pending or not self._restart.over
        return not (self._asked or held)

    def takes(self, text: str) -> bool:
        """Add text if that surely completes no window; False where ``feed`` must look at it."""
        if not self._plain or "\\" in text or not self._segmenter.takes(text):
            return False
        if self._flow is not None:
            self._flow.feed(text)
        return True

    def feed(self, text: str) -> None:
        """Add text that the provider sent."""
        if self.stopped:
            return
        if not self._restart.over:
            text = self._without(*self._restart.feed(text))
        self._escapes.read = self._segmenter.fed
        self._feed(self._escapes.feed(text))
        self._plain = self._restart.over and not self._escapes.pending

    def _without(self, again: int, text: str) -> str:
        """Leave out so many characters that say again what was let out; return what goes on."""
        if again:
            self._fates.append(Settled(again, ""))
            self._escapes.skip(again)
            self._sent_to += again
        return text

    def _feed(self, text: str) -> None:
        if self.unfinished and text:
            self._segmenter.go_on(self.unfinished)
            if self._flow is not None:
                self._flow.go_on(self.unfinished)
            self.unfinished = ""
        segments = self._segmenter.feed(text)
        if self._flow is not None and not segments:
            self._flow.feed(text)
        self._open(segments)

    def finish(self) -> None:
        """End the open segment: the channel, its choice or the stream is over."""
        self._plain = False
        if not self.stopped:
            if not self._restart.over:
                self._feed(self._escapes.feed(self._without(*self._restart.finish())))
            if self._escapes.pending:
                self._feed(self._escapes.finish())
            self.unfinished = self.open_text
            self._open(self._segmenter.finish())

    @property
    def open_text(self) -> str:
        """The text of a sentence that is not complete yet; empty where there is none."""
        if self.unfinished or self.ends_sentence:
            return self.unfinished
        return self._segmenter.open

    @property
    def held_from(self) -> int:
        """Offset from which on text is to be judged once its segment ends."""
        return max(self._segmenter.lead, self._asked_to)

    @property
    def holds(self) -> bool:
        """Whether any text waits for its verdict until its segment, or an escape, ends."""
        begun = bool(self._escapes.pending) and self._asked_sent < self._sent_all
        return (begun or self.held_from < self._segmenter.fed) and not self.stopped

    @property
    def _sent_all(self) -> int:
        """Characters fed so far, as they were sent."""
        return self._escapes.sent(self._segmenter.fed) + len(self._escapes.pending)

    @property
    def fed(self) -> int:
        """Characters fed so far."""
        return self._segmenter.fed

    @property
    def ends_sentence(self) -> bool:
        """Whether the open segment could end as it stands."""
        return self._segmenter.closing is not None

    def judge_open(self) -> None:
        """Have the open segment judged as far as it goes, so that this much may go out."""
        if not self.holds:
            return
        segmenter, start = self._segmenter, self._segmenter.start
        fresh, self._asked_to, end = self.held_from, segmenter.fed, segmenter.closing
        text = segmenter.open if end is None else segmenter.open[: end - start]
        segment = Segment(text, start, start, start + len(text), segmenter.fed)
        self._asked_sent = self._sent_all
        self._asked.append(_Asked(segment, self._asked_sent))
        self._beginnings += 1
        if self._flow is not None:
            self._free.append(self._flow.free)
        if segment.text.strip():
            self._early = Window(segment.text, self._context.shown(), self._user or None)
            self._new.append((self._early, fresh))
        self._pass_blanks()

    def same_as_early(self, window: Window) -> bool:
        """Whether nothing followed what was judged early: ``window`` is the same once more."""
        early = self._early
        return early is not None and early is not window and early == window

    def settle_as_early(self) -> None:
        """Settle the oldest segment asked about by the verdict on what was judged early."""
        self._early = None
        segment = self._take().segment
        self._settle(segment.release)
        self._forget(segment.release)
        self._pass_blanks()

    def flow(self) -> None:
        """Settle what may go out before its verdict; all before it in its choice is resolved."""
        if self.stopped:
            return
        if self._policy.hold == "none":
            self._settle(self._segmenter.fed)
            self._let_out(self._sent_all)
        elif self._flow is not None:
            self._settle(self._free[0] if self._asked else self._flow.free)

    def windows(self) -> list[tuple[Window, int]]:
        """Return the windows to judge that came up since the last call.

        With each comes the offset of the first character in it that was in none before.
        """
        new, self._new = self._new, []
        return new

    def resolve(self, verdict: Verdict, *, rewrites: bool = False) -> Decision:
        """Take the verdict on the oldest window not yet resolved, and decide.

        ``rewrites`` tells whether the model can be asked to go on; else a rewrite is a termination.
        """
        segment, early_to = self._take()
        action = self._policy.action_on(verdict, self.channel.kind)
        if action == "redact" and self.channel.kind == "tool":
            action = "terminate"  # text put inside arguments could change what the tool does
        if action == "rewrite" and not rewrites:
            action = "terminate"
        repeats = verdict.biased and self._in_overlap(segment, verdict)
        joins = self._replaced_to == self._settled and segment.start < self._settled
        if not joins:
            self._settle(segment.start + _blank(segment.text))
        if action in ("pass", "flag"):
            self._settle(segment.release)
        elif action == "redact":
            if segment.end > self._settled:
                self._replaced_to = segment.end
            self._settle(segment.end, "" if joins else self._policy.replacement)
            self._settle(segment.release)
        else:
            self.stopped = True
            self._plain = False
            self._new.clear()
            self._asked.clear()
            self._free.clear()
        if verdict.biased:
            self._found_to = segment.end
        if early_to is None and not self._beginnings:
            self._early = None  # the segment is over
        elif early_to is not None and not self.stopped:
            self._let_out(early_to)
        decision = Decision(
            action=action,
            verdict=self._as_sent(verdict, segment),
            channel=self.channel,
            span=self._sent(Span(max(segment.start, 0), segment.end)),
            counted=not repeats,
        )
        self._forget(segment.release if early_to is None else segment.start)
        self._pass_blanks()
        return decision

    def settled(self) -> list[Settled]:
        """Return the fates decided since the last call, in order of the text."""
        fates, self._fates = self._fates, []
        return fates

    def _open(self, segments: list[Segment]) -> None:
        if self._flow is not None and segments:
            self._free += self._flow.close(segments)
        for segment in segments:
            self._asked.append(_Asked(segment))
            if not segment.text.isspace():
                window = Window(segment.text, self._context.shown(), self._user or None)
                fresh = max(segment.fresh, self._asked_to)
                # White space belongs to no turn of its channel's.
                fresh += _blank(segment.text[fresh - segment.start :])
                self._new.append((window, fresh))
                self._context.add(segment.text)
                self._user = ""
        self._pass_blanks()

    def _pass_blanks(self) -> None:
        # White space says nothing: it is not judged, and goes out once all before it is settled.
        while self._asked and not self._asked[0].segment.text.strip():
            segment, early_to = self._take()
            self._settle(segment.release)
            self._let_out(early_to or 0)
            self._forget(segment.start)
        if not self._asked and not self.stopped:
            self._settle(self._segmenter.lead)

    def _take(self) -> _Asked:
        if self._free:
            self._free.popleft()
        asked = self._asked.popleft()
        self._beginnings -= asked.sent_to is not None
        return asked

    def _in_overlap(self, segment: Segment, verdict: Verdict) -> bool:
        """Whether the finding lies in the overlap with a segment already found biased."""
        known = self._found_to - segment.start
        return bool(verdict.attributions) and all(
            max(a.group_span.end, a.attribute_span.end) <= known for a in verdict.attributions
        )

    def _settle(self, upto: int, text: str | None = None) -> None:
        if upto > self._settled:
            self._settled = upto
            self._let_out(self._escapes.sent(upto), text)

    def _let_out(self, upto: int, text: str | None = None) -> None:
        """Settle characters as they were sent, up to an offset among them."""
        if upto > self._sent_to:
            self._fates.append(Settled(upto - self._sent_to, text))
            self._sent_to = upto

    def _forget(self, before: int) -> None:
        """Forget the places of escapes before an offset of the reading, as far as it is settled."""
        self._escapes.forget(min(before, self._settled))

    def _sent(self, span: Span) -> Span:
        """Return the place in the text as sent of a place in its reading."""
        return Span(self._escapes.sent(span.start), self._escapes.sent(span.end))

    def _as_sent(self, verdict: Verdict, segment: Segment) -> Verdict:
        """Return a verdict with its spans in the segment as it was sent."""
        if not verdict.attributions:
            return verdict
        begin = self._escapes.sent(segment.start)

        def place(span: Span) -> Span:
            return self._sent(span.shifted(segment.start)).shifted(-begin)

        pairs = tuple(
            replace(a, group_span=place(a.group_span), attribute_span=place(a.attribute_span))
            for a in verdict.attributions
        )
        return verdict if pairs == verdict.attributions else replace(verdict, attributions=pairs)


def _blank(text: str) -> int:
    return len(text) - len(text.lstrip())
