"""The gate of one channel: which windows to judge, and what of the text may go out."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import NamedTuple

from guard.gate.context import Context
from guard.gate.escapes import Escapes
from guard.gate.flow import Flow, View
from guard.gate.layout import bars, opening
from guard.gate.restart import Restart
from guard.gate.segmenter import Segment, Segmenter, split
from guard.policy import Policy
from guard.verdict import Channel, Decision, Span, Verdict, Window


class TextEdit(NamedTuple):
    """What to do with the next ``length`` characters: keep them, or put ``text`` in their place.

    The characters are those of the text as the provider sent it. ``text`` is None for "keep".
    """

    length: int
    text: str | None = None


class _Asked(NamedTuple):
    """A segment that waits for its verdict, or for those before it if it needs none.

    White space needs no verdict, nor does a segment that was judged early with the same window.
    ``sent_to`` is None for a complete segment. For one that is judged early, it is the offset in
    the text as sent up to which text may go out; it includes an incomplete escape.
    """

    segment: Segment
    needs_verdict: bool
    sent_to: int | None = None


class Gate:
    """State machine of one channel.

    ``feed`` and ``finish`` take text. ``windows`` returns the windows to judge, in order.
    ``resolve`` takes the verdict on the oldest of them. ``take_edits`` returns the edits decided
    since its last call. Once ``stopped``, the gate releases nothing and asks for no verdict. In
    the hold modes that release text before its verdict, ``flow`` decides how much; ``view`` is
    shared by the channels of a choice.

    ``released`` is the text that this channel released in an earlier answer. If the new text
    begins by repeating it, the repeat is neither judged nor sent. ``continues`` is the
    unfinished sentence of an earlier channel that this one continues. It was judged there and is
    judged again as the beginning of the first segment here.

    Text that cannot wait for the end of its segment is judged early (``judge_open``), as if the
    channel ended there, so that harmless text may go out. What follows may change its segments:
    those that changed are judged again once they are complete.

    Segments are cut from the text with its JSON escapes decoded. The text fed and the edits
    returned count characters as they were sent.
    """

    def __init__(
        self,
        policy: Policy,
        channel: Channel,
        *,
        user: str = "",
        view: View | None = None,
        released: str = "",
        continues: str = "",
    ) -> None:
        self.channel = channel
        self.stopped = False
        self._policy = policy
        limits = policy.max_segment_chars, policy.overlap, policy.lookahead
        self._segmenter = Segmenter(*limits)
        self._restart = Restart(released)
        self._plain = False  # whether text without a backslash needs no decoding
        self._escapes = Escapes(letters=channel.kind == "tool")
        self._user = user if policy.user_context else ""
        before = (s.text for s in split(released, *limits) if not s.text.isspace())
        self._context = Context(policy.context_segments, before)
        self._asked: deque[_Asked] = deque()
        self._flow: Flow | None = None
        self._free: deque[int] = deque()  # how far each segment asked about may flow
        if policy.hold == "association":
            self._flow = Flow(self._segmenter, view or View())
        self._new: list[tuple[Window, int]] = []
        self._edits: list[TextEdit] = []
        self._resolved_to = 0  # offset in the decoded text up to which edits are decided
        self._sent_to = 0  # the same in the text as sent
        self._asked_to = 0  # offset up to which the open segment was judged early
        self._asked_sent = 0  # the same in the text as sent
        # The windows judged early, by the offsets where their segments start.
        self._early: dict[int, Window] = {}
        #: The last segment, if the channel ended inside a sentence. The next text continues it.
        self.unfinished = continues
        # The end of the last biased segment: a finding of the next one up to here is the same one.
        self._found_to = 0
        self._replaced_to = -1  # the end of the last replaced segment

    @property
    def is_drained(self) -> bool:
        """Whether an edit was decided for every character fed."""
        held = self._segmenter.held or self._escapes.pending or not self._restart.over
        return not (self._asked or held)

    def takes(self, text: str) -> bool:
        """Add text if it certainly completes no window; otherwise return False (call ``feed``)."""
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
            text = self._drop_repeat(*self._restart.feed(text))
        self._escapes.read = self._segmenter.fed
        self._feed(self._escapes.feed(text))
        self._plain = self._restart.over and not self._escapes.pending

    def _drop_repeat(self, repeated: int, text: str) -> str:
        """Leave out ``repeated`` characters, which repeat released text; return ``text``."""
        if repeated:
            self._edits.append(TextEdit(repeated, ""))
            self._escapes.skip(repeated)
            self._sent_to += repeated
        return text

    def _feed(self, text: str) -> None:
        if self.unfinished and text:
            self._segmenter.continue_from(self.unfinished)
            if self._flow is not None:
                self._flow.continue_from(self.unfinished)
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
                self._feed(self._escapes.feed(self._drop_repeat(*self._restart.finish())))
            if self._escapes.pending:
                self._feed(self._escapes.finish())
            self.unfinished = self.open_text
            self._open(self._segmenter.finish())

    @property
    def open_text(self) -> str:
        """The incomplete sentence at the end of the text; empty if there is none."""
        if self.unfinished or self.ends_sentence:
            return self.unfinished
        return self._segmenter.open

    @property
    def held_from(self) -> int:
        """Offset from which text waits for the end of its segment."""
        return max(self._segmenter.lead, self._asked_to)

    @property
    def holds(self) -> bool:
        """Whether any text waits for the end of its segment or of an escape."""
        begun = bool(self._escapes.pending) and self._asked_sent < self.sent
        return (begun or self.held_from < self._segmenter.fed) and not self.stopped

    @property
    def sent(self) -> int:
        """Characters fed so far, as they were sent."""
        return self._escapes.sent(self._segmenter.fed) + len(self._escapes.pending)

    @property
    def fed(self) -> int:
        """Characters fed so far."""
        return self._segmenter.fed

    @property
    def ends_sentence(self) -> bool:
        """Whether the open segment is a complete sentence if nothing follows."""
        return self._segmenter.closing is not None

    def judge_open(self) -> None:
        """Ask for verdicts on the open text as if the channel ended here, so that it may go out."""
        if not self.holds:
            return
        fed = self._segmenter.fed
        # Without a segment, an escape that has begun waits alone.
        segments = self._segmenter.if_finished() or [Segment("", fed, fed, fed, fed)]
        context, user = self._context.copy(), self._user
        early: dict[int, Window] = {}
        for segment in segments:
            last = segment is segments[-1]
            sent_to = self.sent if last else self._escapes.sent(segment.release)
            if window := self._ask(segment, context, user, sent_to):
                early[segment.start] = window
                user = ""
        if self._flow is not None:
            self._free += [self._flow.free] * len(segments)
        self._early, self._asked_to, self._asked_sent = early, fed, self.sent
        self._pass_known()

    def flow(self) -> None:
        """Release text ahead of its verdict; everything before it in its choice is resolved."""
        if self.stopped:
            return
        if self._policy.hold == "none":
            self._resolve_to(self._segmenter.fed)
            self._let_out(self.sent)
        elif self._flow is not None:
            self._resolve_to(self._free[0] if self._asked else self._flow.free)

    def windows(self) -> list[tuple[Window, int]]:
        """Return the windows to judge that are new since the last call.

        Each comes with the offset of its first character that was in no earlier window.
        """
        new, self._new = self._new, []
        return new

    def resolve(self, verdict: Verdict, *, rewrites: bool = False) -> Decision:
        """Take the verdict on the oldest unresolved window and return the decision.

        ``rewrites``: whether the model can be asked to continue. If not, the action ``rewrite``
        becomes ``terminate``.
        """
        segment, _, early_to = self._take()
        action = self._policy.action_on(verdict, self.channel.kind)
        if action == "redact" and self.channel.kind == "tool":
            action = "terminate"  # text put inside arguments could change what the tool does
        if action == "rewrite" and not rewrites:
            action = "terminate"
        repeats = verdict.biased and self._in_overlap(segment, verdict)
        joins = self._replaced_to == self._resolved_to and segment.start < self._resolved_to
        if not joins:
            kept = _blank(segment.text) if action != "redact" else opening(segment.text)
            self._resolve_to(segment.start + kept)
        if action in ("pass", "flag"):
            self._resolve_to(segment.release)
        elif action == "redact":
            if segment.end > self._resolved_to:
                self._replaced_to = segment.end
            self._replace(segment, "" if joins else self._policy.replacement)
            self._resolve_to(segment.release)
        else:
            self.stopped = True
            self._plain = False
            self._new.clear()
            self._asked.clear()
            self._free.clear()
        if verdict.biased:
            self._found_to = segment.end
        if early_to is not None and not self.stopped:
            self._let_out(early_to)
        decision = Decision(
            action=action,
            verdict=self._as_sent(verdict, segment),
            channel=self.channel,
            span=self._sent(Span(max(segment.start, 0), segment.end)),
            counted=not repeats,
        )
        if early_to is None:
            self._forget(segment.release)
        self._pass_known()
        return decision

    def take_edits(self) -> list[TextEdit]:
        """Return the edits decided since the last call, in order of the text."""
        edits, self._edits = self._edits, []
        return edits

    def _open(self, segments: list[Segment]) -> None:
        if self._flow is not None and segments:
            self._free += self._flow.close(segments)
        for segment in segments:
            if self._ask(segment, self._context, self._user):
                self._user = ""
        self._pass_known()

    def _ask(
        self, segment: Segment, context: Context, user: str, sent_to: int | None = None
    ) -> Window | None:
        """Queue a segment for its verdict; return its window, None for white space.

        Adds the segment to ``context``.
        """
        window, known = None, True
        if segment.text.strip():
            window = Window(segment.text, context.shown(), user or None)
            context.add(segment.text)
            known = self._early.get(segment.start) == window
            if not known:
                fresh = max(segment.fresh, self._asked_to)
                # White space belongs to no turn of its channel.
                fresh += _blank(segment.text[fresh - segment.start :])
                self._new.append((window, fresh))
        self._asked.append(_Asked(segment, not known, sent_to))
        return window

    def _pass_known(self) -> None:
        """Release segments that need no verdict once everything before them is resolved."""
        while self._asked and not self._asked[0].needs_verdict:
            segment, _, early_to = self._take()
            self._resolve_to(segment.release)
            self._let_out(early_to or 0)
            if early_to is None:
                self._forget(segment.release)
        if not self._asked and not self.stopped:
            self._resolve_to(self._segmenter.lead)

    def _take(self) -> _Asked:
        if self._free:
            self._free.popleft()
        return self._asked.popleft()

    def _replace(self, segment: Segment, mark: str) -> None:
        """Put ``mark`` in the place of a segment, but keep its end of line and a row's bars."""
        text = segment.text
        for bar in bars(text):
            self._resolve_to(segment.start + bar, f" {mark} " if mark else " ")
            self._resolve_to(segment.start + bar + 1)
            mark = ""
        ends_line = text.endswith("\n") and segment.release == segment.end  # else it goes on
        kept = len(text) - len(text.rstrip()) if ends_line else 0
        self._resolve_to(segment.end - kept, mark)
        self._resolve_to(segment.end)

    def _in_overlap(self, segment: Segment, verdict: Verdict) -> bool:
        """Whether the finding lies in the overlap with a segment already found biased."""
        known = self._found_to - segment.start
        return bool(verdict.attributions) and all(
            max(a.group_span.end, a.attribute_span.end) <= known for a in verdict.attributions
        )

    def _resolve_to(self, upto: int, text: str | None = None) -> None:
        if upto > self._resolved_to:
            self._resolved_to = upto
            self._let_out(self._escapes.sent(upto), text)

    def _let_out(self, upto: int, text: str | None = None) -> None:
        """Decide on the text as sent up to an offset."""
        if upto > self._sent_to:
            self._edits.append(TextEdit(upto - self._sent_to, text))
            self._sent_to = upto

    def _forget(self, before: int) -> None:
        """Drop the offsets of resolved escapes before an offset of the decoded text."""
        self._escapes.forget(min(before, self._resolved_to))

    def _sent(self, span: Span) -> Span:
        """Map a span of the decoded text to the text as sent."""
        return Span(self._escapes.sent(span.start), self._escapes.sent(span.end))

    def _as_sent(self, verdict: Verdict, segment: Segment) -> Verdict:
        """Return the verdict with its spans mapped to the segment as it was sent."""
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
