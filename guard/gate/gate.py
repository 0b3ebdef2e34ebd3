"""The gate of one channel: which windows to judge, and what of the text may go out."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from guard.gate.flow import Flow, View
from guard.gate.segmenter import Segment, Segmenter, split
from guard.policy import Policy
from guard.verdict import Channel, Decision, Span, Verdict, Window


class Settled(NamedTuple):
    """The fate of the next ``length`` characters: unchanged, or ``text`` in their place."""

    length: int
    text: str | None = None


class Gate:
    """State machine of one channel.

    ``feed`` and ``finish`` take text; ``windows`` gives what is to be judged, in order; ``resolve``
    takes one verdict for the oldest of them; ``settled`` gives the fates decided since the last
    call. Once ``stopped``, nothing more goes out and nothing more is asked. In the hold modes that
    let text out before its verdict, ``flow`` settles what may go; ``view`` is the choice's own.
    ``said`` is text of the channel that went out before the first that is fed.
    """

    def __init__(
        self,
        policy: Policy,
        channel: Channel,
        *,
        user: str = "",
        view: View | None = None,
        said: str = "",
    ) -> None:
        self.channel = channel
        self.stopped = False
        self._policy = policy
        limits = policy.max_segment_chars, policy.overlap, policy.lookahead
        self._segmenter = Segmenter(*limits)
        self._user = user if policy.user_context else ""
        before = (s.text for s in split(said, *limits) if not s.text.isspace())
        self._context = deque(before, maxlen=policy.context_segments)
        self._asked: deque[Segment] = deque()
        self._flow: Flow | None = None
        self._free: deque[int] = deque()  # how far each segment asked about may flow
        if policy.hold == "association":
            self._flow = Flow(self._segmenter, view or View())
        self._new: list[Window] = []
        self._fates: list[Settled] = []
        self._settled = 0
        # The segment before, where it was found biased: its end, up to which a finding of the
        # next one would be the same, and whether it was replaced.
        self._found_to = 0
        self._replaced_to = -1

    @property
    def settled_all(self) -> bool:
        """Whether every character fed has been settled."""
        return not self._asked and self._segmenter.held == 0

    def takes(self, text: str) -> bool:
        """Add text if that surely completes no window; False where ``feed`` must look at it."""
        if self.stopped or not self._segmenter.takes(text):
            return False
        if self._flow is not None:
            self._flow.feed(text)
        return True

    def feed(self, text: str) -> None:
        """Add text that the provider sent."""
        if self.stopped:
            return
        segments = self._segmenter.feed(text)
        if self._flow is not None and not segments:
            self._flow.feed(text)
        self._open(segments)

    def finish(self) -> None:
        """End the open segment: the channel, its choice or the stream is over."""
        if not self.stopped:
            self._open(self._segmenter.finish())

    def flow(self) -> None:
        """Settle what may go out before its verdict; all before it in its choice is resolved."""
        if self.stopped:
            return
        if self._policy.hold == "none":
            self._settle(self._segmenter.fed)
        elif self._flow is not None:
            self._settle(self._free[0] if self._asked else self._flow.free)

    def windows(self) -> list[Window]:
        """Return the windows that became complete since the last call."""
        new, self._new = self._new, []
        return new

    def resolve(self, verdict: Verdict, *, rewrites: bool = False) -> Decision:
        """Take the verdict on the oldest window not yet resolved, and decide.

        ``rewrites`` tells whether the model can be asked to go on; else a rewrite is a termination.
        """
        segment = self._take()
        action = self._policy.action_on(verdict, self.channel.kind)
        if action == "redact" and self.channel.kind == "tool":
            action = "terminate"  # text put inside arguments could change what the tool does
        if action == "rewrite" and not rewrites:
            action = "terminate"
        repeats = verdict.biased and self._repeats(segment, verdict)
        joins = self._replaced_to == self._settled and segment.fresh > segment.start
        if not joins:
            self._settle(segment.start + _blank(segment.text))
        if action in ("pass", "flag"):
            self._settle(segment.release)
        elif action == "redact":
            if segment.end > self._settled:
                self._replaced_to = segment.end
            self._settle(segment.end, "" if joins else self._policy.replacement)
        else:
            self.stopped = True
            self._new.clear()
            self._asked.clear()
            self._free.clear()
        if verdict.biased:
            self._found_to = segment.end
        self._pass_blanks()
        return Decision(
            action=action,
            verdict=verdict,
            channel=self.channel,
            span=Span(segment.start, segment.end),
            counted=not repeats,
        )

    def settled(self) -> list[Settled]:
        """Return the fates decided since the last call, in order of the text."""
        fates, self._fates = self._fates, []
        return fates

    def _open(self, segments: list[Segment]) -> None:
        if self._flow is not None and segments:
            self._free += self._flow.close(segments)
        for segment in segments:
            self._asked.append(segment)
            if not segment.text.isspace():
                self._new.append(Window(segment.text, tuple(self._context), self._user))
                self._context.append(segment.text)
                self._user = ""
        self._pass_blanks()

    def _pass_blanks(self) -> None:
        # White space says nothing: it is not judged, and goes out once all before it is settled.
        while self._asked and self._asked[0].text.isspace():
            self._settle(self._take().release)
        if not self._asked and not self.stopped:
            self._settle(self._segmenter.lead)

    def _take(self) -> Segment:
        if self._free:
            self._free.popleft()
        return self._asked.popleft()

    def _repeats(self, segment: Segment, verdict: Verdict) -> bool:
        """Whether the finding lies in the overlap with a segment already found biased."""
        known = min(self._found_to, segment.fresh) - segment.start
        return bool(verdict.attributions) and all(
            max(a.group_span.end, a.attribute_span.end) <= known for a in verdict.attributions
        )

    def _settle(self, upto: int, text: str | None = None) -> None:
        if upto > self._settled:
            self._fates.append(Settled(upto - self._settled, text))
            self._settled = upto


def _blank(text: str) -> int:
    return len(text) - len(text.lstrip())
