"""The gate of one channel: which windows to judge, and what of the text may go out."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from typing import NamedTuple, TypeVar

from guard.gate.edits import Edits, TextEdit
from guard.gate.escapes import Escapes
from guard.gate.flow import Flow, GroupMemory
from guard.gate.job import Job
from guard.gate.joined import Joins, SegmentReading, with_spans
from guard.gate.json_text import LONGEST_PATH, JsonPiece, JsonReader, Kind, Label
from guard.gate.restart import Restart
from guard.gate.second_look import SecondLooks
from guard.gate.segmenter import Segment, Segmenter, split
from guard.policy import Policy
from guard.verdict import Channel, Decision, Span, Verdict, Window

_MOST_KEYS = 1000  # that one channel keeps in mind


class GateOutput(NamedTuple):
    """What text led to: windows to judge, in order, and edits of text that needs no verdict."""

    windows: Sequence[Job]
    edits: Sequence[TextEdit]


NOTHING = GateOutput((), ())


class Resolved(NamedTuple):
    """What a verdict led to."""

    decision: Decision
    edits: Sequence[TextEdit]


class _Asked(NamedTuple):
    """A segment that waits for its verdict, or for those before it if it needs none.

    White space needs no verdict, nor does a segment that was judged early with the same window.
    ``job`` is None for white space and structure. ``sent_to`` is None for a complete segment.
    For one that is judged early, it is the offset in the text as sent up to which text may go out;
    it includes an incomplete escape. ``free`` is the offset up to which it may go out unjudged.
    ``label`` is the key that the segment of a JSON string begins with. ``reading`` is what of it
    is judged; None if it is a key, or none of it is. ``held``: whether it may answer a question
    that names a group.
    """

    segment: Segment
    job: Job | None
    needs_verdict: bool
    sent_to: int | None
    free: int
    kind: Kind
    label: Label | None
    reading: SegmentReading | None
    held: bool


T = TypeVar("T")
_Segments = Generator[list[Segment], None, T]


class Gate:
    """State machine of one channel.

    ``feed`` and ``finish`` take text and return the windows to judge; ``resolve`` takes the verdict
    on the oldest of them. Each returns the edits that it decided on. Once ``stopped``, the gate
    releases nothing and asks for no verdict. In the hold modes that release text before its
    verdict, ``flow`` decides how much; ``groups`` is shared by the channels of a choice.

    ``released`` is the text that this channel released in an earlier answer. If the new text
    begins by repeating it, the repeat is neither judged nor sent. ``continues`` is the
    unfinished sentence of an earlier channel that this one continues. It was judged there and is
    judged again as the beginning of the first segment here.

    Text that cannot wait for the end of its segment is judged early (``judge_open``), as if the
    channel ended there, so that harmless text may go out. What follows may change its segments:
    those that changed are judged again once they are complete.

    Segments are cut from the text with its JSON escapes decoded. The text fed and the edits
    returned count characters as they were sent. In JSON each string is a text of its own, and
    begins with its key; ``fixed`` says that no other string may be put in its place.
    """

    def __init__(
        self,
        policy: Policy,
        channel: Channel,
        *,
        user: str = "",
        groups: GroupMemory | None = None,
        released: str = "",
        continues: str = "",
        fixed: bool = False,
    ) -> None:
        self.channel = channel
        self.stopped = False
        self._policy = policy
        limits = policy.max_segment_chars, policy.overlap, policy.lookahead
        self._segmenter = Segmenter(*limits)
        self._restart = Restart(released)
        self._plain = False  # whether text without a backslash needs no decoding
        self._escapes = Escapes(letters=channel.kind == "tool")
        # A key leaves room for some of its string.
        self._longest_key = min(LONGEST_PATH, policy.max_segment_chars // 3)
        reader = JsonReader(self._escapes, after=released, longest=self._longest_key)
        # Reads the text as JSON; None while it is none.
        self._json = None if continues or reader.over else reader
        self._kind: Kind = "prose"  # of the open segment
        self._fixed = fixed
        self._string_from = -1, Label("", "", 0)  # where the last string begins, and its label
        self._keys: set[str] = set()  # the first that were judged
        self._behind = ""  # the end of the last strings, and what came after them
        self._behind_sent = 0  # where that begins in the text as sent
        self._in_code = False  # whether the JSON is inside of a fence
        self._user = user if policy.user_context else ""
        before = (s.text for s in split(released, *limits) if not s.text.isspace())
        self._joins = Joins(policy.context_segments, before)
        self._asked: deque[_Asked] = deque()
        self._looks = SecondLooks(policy.overlap + policy.lookahead, enabled=policy.second_look)
        self._flow: Flow | None = None
        if policy.hold == "association":
            self._flow = Flow(self._segmenter, groups or GroupMemory())
        self._edits = Edits(self._escapes, removes=policy.redacts)
        self._asked_to = 0  # offset up to which the open segment was judged early
        self._asked_sent = 0  # the same in the text as sent
        # The windows judged early, by the offsets where their segments start.
        self._early: dict[int, Window] = {}
        #: The last segment, if the channel ended inside a sentence. The next text continues it.
        self.unfinished = continues
        # The end of the last biased segment: a finding of the next one up to here is the same one.
        self._found_to = 0

    @property
    def is_drained(self) -> bool:
        """Whether an edit was decided for every character fed."""
        held = self._segmenter.held or self._escapes.pending or not self._restart.over
        return not (self._asked or held)

    def feed(self, text: str) -> GateOutput:
        """Add text that the provider sent."""
        if (  # most text certainly completes no window
            self._plain
            and "\\" not in text
            and (self._json is None or '"' not in text)
            and self._segmenter.takes(text)
        ):
            if self._flow is not None:
                self._flow.feed(text)
            return NOTHING
        if self.stopped:
            return NOTHING
        if not self._restart.over:
            text = self._drop_repeat(*self._restart.feed(text))
        self._escapes.read = self._segmenter.fed
        windows = self._ask_about(self._read(text))
        if self._looks.last is not None:
            unread = self._kind in ("key", "structure")
            self._looks.passed(self._segmenter.fed if unread else self._segmenter.lead)
        self._plain = self._restart.over and not self._escapes.pending
        if self._json is not None:  # elsewhere every character counts
            self._plain = self._plain and self._json.string == "value"
        return GateOutput(windows, self._edits.take())

    def _drop_repeat(self, repeated: int, text: str) -> str:
        """Leave out ``repeated`` characters, which repeat released text; return ``text``."""
        if repeated:
            self._edits.drop_sent(repeated)
            self._escapes.skip(repeated)
        return text

    # Generators of segments: each list is asked about before the text behind it is read.

    def _read(self, text: str) -> _Segments[None]:
        while text:
            if self._json is not None:
                text = yield from self._read_json(text)
                continue
            at = text.find("\n") + 1 or len(text)
            yield self._segments(self._escapes.feed(text[:at]))
            if text[at - 1] == "\n":  # behind it JSON may begin
                self._json = JsonReader(self._escapes, longest=self._longest_key)
            text = text[at:]

    def _read_json(self, text: str) -> _Segments[str]:
        """Read as far as JSON goes; return what follows."""
        assert self._json is not None
        for piece in self._json.feed(text):
            if piece.kind == "structure":
                yield from self._read_structure(piece.text)
            elif piece.kind == "prose":  # no string has begun yet
                yield self._segments(piece.text)
            else:
                yield from self._read_string(piece)
        if not self._json.over:
            return ""
        if self._kind != "prose":
            self._leave_json(self._json)
        text, self._json = self._json.rest, None
        return text

    def _read_structure(self, text: str) -> _Segments[None]:
        """Read what is between the strings of JSON; it needs no verdict."""
        if self._kind == "prose":  # what came before its first string
            self._in_code = self._segmenter.in_code
            if not any(character.isalpha() for character in self._segmenter.open):
                self._kind = "structure"
            yield self._segmenter.finish()
            self._behind = ""
        self._kind = "structure"
        segment = self._segmenter.skip(text)
        self._note_behind(text)
        yield [segment]

    def _note_behind(self, text: str) -> None:
        """Add the text fed last to what prose behind JSON would continue."""
        behind = self._behind + text
        more = max(0, len(behind) - self._policy.overlap)
        self._behind = behind[more:]
        self._behind_sent += more
        if len(self._behind) <= len(text):
            self._behind_sent = self._escapes.sent(self._segmenter.fed - len(self._behind))

    def _leave_json(self, reader: JsonReader) -> None:
        """Let prose continue the string before it, unless a document ended in a line before."""
        self._kind = "prose"
        self._segmenter.in_code = self._in_code
        if not (reader.is_whole and "\n" in self._behind.rpartition('"')[2]):
            self._continue_from(self._behind.replace("\n", " "))
            self._string_from = self._segmenter.fed, Label("", "", self._behind_sent)

    def _read_string(self, piece: JsonPiece) -> _Segments[None]:
        """Read text inside of a string, or of a key."""
        label = piece.label
        if self._kind != piece.kind and piece.text:
            self._kind = piece.kind
            before = label.around if piece.kind == "key" else label.path
            self._continue_from(before and before + (" " if piece.kind == "key" else ": "))
            self._string_from = self._segmenter.fed, label
        yield self._segments(piece.text)
        if not piece.ends:
            return
        whole = self._segmenter.fed - max(self._segmenter.start, self._string_from[0])
        if self._kind == piece.kind and whole:
            self._note_behind(self._segmenter.open[-whole:])
        # A path that was cut may be another key's: such a key is always judged.
        if piece.kind == "key" and len(label.path) < self._longest_key:
            if label.path in self._keys:
                self._kind = "structure"  # judged before, it goes out as structure does
            elif len(self._keys) < _MOST_KEYS:
                self._keys.add(label.path)
        yield self._segmenter.finish()

    def _continue_from(self, before: str) -> None:
        """Let the next segment begin with ``before``, which was judged or needed no verdict."""
        if not before:
            return
        self._segmenter.continue_from(before)
        if self._flow is not None:
            self._flow.continue_from(before)

    def _segments(self, text: str) -> list[Segment]:
        """Return the segments that the reading's next characters complete."""
        if self.unfinished and text:
            self._continue_from(self.unfinished)
            self.unfinished = ""
        segments = self._segmenter.feed(text)
        if self._flow is not None and not segments:
            self._flow.feed(text)
        return segments

    def finish(self) -> GateOutput:
        """End the open segment: the channel, its choice or the stream is over."""
        self._plain = False
        if self.stopped:
            return NOTHING
        windows = self._ask_about(self._last_segments())
        self.end_looks()
        return GateOutput(windows, self._edits.take())

    def _last_segments(self) -> _Segments[None]:
        if not self._restart.over:
            yield from self._read(self._drop_repeat(*self._restart.finish()))
        if self._escapes.pending:
            yield self._segments(self._escapes.finish())
        self.unfinished = self.open_text
        yield self._segmenter.finish()

    def end_looks(self) -> None:
        """Note that the last segment is not looked at again with what may follow."""
        self._looks.end()

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

    def judge_open(self) -> GateOutput:
        """Ask for verdicts on the open text as if the channel ended here, so that it may go out."""
        if not self.holds:
            return NOTHING
        fed, in_json = self._segmenter.fed, self._kind in ("key", "value")
        # Without a segment, an escape that has begun waits alone. In JSON it waits for its end: a
        # half before a mark would be no JSON.
        segments = self._segmenter.if_finished()
        if not segments and not in_json:
            segments = [Segment("", fed, fed, fed, fed)]
        joins, user = self._joins.copy(), self._user
        free = 0 if self._flow is None else self._flow.free
        asked: list[_Asked] = []
        for segment in segments:
            last = segment is segments[-1]
            sent_to = self.sent if last and not in_json else self._escapes.sent(segment.release)
            asked.append(self._ask(segment, joins, user, free, sent_to))
            user = "" if asked[-1].job is not None else user
        self.end_looks()
        self._early = {a.segment.start: a.job.window for a in asked if a.job is not None}
        self._asked_to = fed
        self._asked_sent = self._escapes.sent(fed) if in_json else self.sent
        self._pass_known()
        windows = [a.job for a in asked if a.job is not None and a.needs_verdict]
        return GateOutput(windows, self._edits.take())

    def flow(self) -> list[TextEdit]:
        """Release text ahead of its verdict; everything before it in its choice is resolved."""
        if self.stopped:
            return []
        if self._policy.hold == "none":
            self._edits.keep(self._segmenter.fed)
            self._edits.keep_sent(self.sent)
        elif self._flow is not None:
            text, start, free = self._segmenter.open, self._segmenter.start, self._flow.free
            if self._asked:
                text, start, *_ = self._asked[0].segment
                free = start if self._asked[0].held else self._asked[0].free
            elif self._may_answer(text):
                free = start
            if free > start + _blank(text) or not self._edits.holds_space:
                self._edits.keep(free)
        return self._edits.take()

    def _may_answer(self, text: str) -> bool:
        """Whether the open segment may be judged joined to a question that names a group."""
        start, fresh = self._segmenter.start, self._segmenter.fed - self._segmenter.held
        begun = text[max(fresh - start, 0) : max(self._segmenter.sure - start, 0)]
        return self._kind in ("prose", "value") and self._joins.holds(begun)

    def resolve(self, verdict: Verdict, *, rewrites: bool = False) -> Resolved:
        """Take the verdict on the oldest unresolved window.

        ``rewrites``: whether the model can be asked to continue. If not, the action ``rewrite``
        becomes ``terminate``.
        """
        asked = self._asked.popleft()
        segment, early_to, kind, label = asked.segment, asked.sent_to, asked.kind, asked.label
        if asked.reading is not None:
            verdict = asked.reading.in_segment(verdict)
        action = self._policy.action_on(verdict, self.channel.kind)
        if action == "redact" and not self._can_replace(kind):
            action = "terminate"
        if action == "rewrite" and not rewrites:
            action = "terminate"
        repeats = verdict.biased and self._in_overlap(segment, verdict)
        begin = segment.fresh if label else segment.start
        if action == "redact":
            mark = self._policy.replacement
            if kind == "value":
                mark = json.dumps(mark, ensure_ascii=False)[1:-1]
            self._edits.remove(segment, begin, mark)
            self._edits.keep(segment.release)
        elif action in ("pass", "flag"):
            self._edits.keep(segment.release)
        else:
            self._edits.keep(begin + _blank(segment.text[begin - segment.start :]))
            self.stopped = True
            self._plain = False
            self._asked.clear()
        if verdict.biased:
            self._found_to = segment.end
        if early_to is not None and not self.stopped:
            self._edits.keep_sent(early_to)
        decision = Decision(
            action=action,
            verdict=self._as_sent(verdict, segment, label),
            channel=self.channel,
            span=Span(self._begin(segment, label), self._escapes.sent(segment.end)),
            counted=not repeats,
        )
        if early_to is None:
            self._edits.end(segment, begin)
        self._pass_known()
        return Resolved(decision, self._edits.take())

    def _ask_about(self, complete: Iterable[list[Segment]]) -> list[Job]:
        """Queue complete segments for their verdicts; return the windows that need one."""
        windows: list[Job] = []
        for segments in complete:
            if segments:
                free = [0] * len(segments) if self._flow is None else self._flow.close(segments)
                for segment, free_to in zip(segments, free, strict=True):
                    asked = self._ask(segment, self._joins, self._user, free_to)
                    self._user = self._user if asked.job is None else ""
                    if asked.job is not None and asked.needs_verdict:
                        windows.append(asked.job)
            self._pass_known()
        return windows

    def _ask(
        self, segment: Segment, joins: Joins, user: str, free: int, sent_to: int | None = None
    ) -> _Asked:
        """Queue a segment for its verdict; have ``joins`` read it."""
        label, reading, job = None, None, None
        known, held = True, False
        if segment.start < segment.fresh == self._string_from[0]:
            label = self._string_from[1]
        if self._kind != "structure" and segment.text.strip():
            look = None
            if self._kind == "key":
                # A key is judged once, whatever is before it; it is context in what it labels.
                window = Window(segment.text, (), user or None)
            else:
                held = joins.holds(segment.text[segment.fresh - segment.start :])
                reading = self._reading(segment, joins, label)
                window = reading.window(user)
                keyed, early = label is not None and self._kind == "value", sent_to is not None
                look = self._looks.add(window, segment, self._kind, keyed=keyed, early=early)
            known = self._early.get(segment.start) == window
            # After a fence that was left open, what is read anew may be several segments.
            begin = max(min(segment.fresh, segment.end), self._asked_to)
            # White space belongs to no turn of its channel.
            begin += _blank(segment.text[begin - segment.start :])
            job = Job(self.channel, window, begin, look)
        asked = _Asked(segment, job, not known, sent_to, free, self._kind, label, reading, held)
        self._asked.append(asked)
        return asked

    def _reading(self, segment: Segment, joins: Joins, label: Label | None) -> SegmentReading:
        lead = segment.fresh - segment.start
        whole = segment.release == segment.end and (lead == 0 or label is not None)
        string = self._kind == "value" and segment.fresh == self._string_from[0]
        if label is None:
            return joins.read(segment.text, string=string, whole=whole)
        keys = {"key": label.key, "around": label.around}
        return joins.read(segment.text, string=string, lead=lead, whole=whole, **keys)

    def _pass_known(self) -> None:
        """Release segments that need no verdict once everything before them is resolved."""
        while self._asked and not self._asked[0].needs_verdict:
            asked = self._asked.popleft()
            segment, early_to = asked.segment, asked.sent_to
            if asked.kind == "structure":
                self._edits.keep_structure(segment.release)
            self._edits.keep(segment.release)
            self._edits.keep_sent(early_to or 0)
            if early_to is None:
                self._edits.end(segment, segment.start)
        if not self._edits.holds_space:
            self._keep_space()

    def release_space(self) -> list[TextEdit]:
        """Let white space out that nothing is before."""
        self._keep_space()
        return self._edits.take()

    def _keep_space(self) -> None:
        if not self._asked and not self.stopped:
            self._edits.keep(self._segmenter.lead)

    def _can_replace(self, kind: Kind) -> bool:
        """Whether text may be put in the place of a segment.

        Not of a key, which code reads; nor of tool input that is no JSON, which may be code.
        """
        if kind == "prose":
            return self.channel.kind != "tool"
        return kind == "value" and not self._fixed

    def _in_overlap(self, segment: Segment, verdict: Verdict) -> bool:
        """Whether the finding lies in the overlap with a segment already found biased."""
        known = self._found_to - segment.start
        if known <= 0 or not verdict.attributions:
            return False
        return all(
            max(a.group_span.end, a.attribute_span.end) <= known for a in verdict.attributions
        )

    def _begin(self, segment: Segment, label: Label | None) -> int:
        """Return the offset in the text as sent where a segment, or its key, begins."""
        return self._escapes.sent(max(segment.start, 0)) if label is None else label.sent

    def _as_sent(self, verdict: Verdict, segment: Segment, label: Label | None) -> Verdict:
        """Return the verdict with its spans mapped to the segment as it was sent."""
        if not verdict.attributions:
            return verdict
        begin = self._escapes.sent(segment.start) if label is None else label.sent
        lead = 0 if label is None else segment.fresh - segment.start
        key = 0  # where the key is in it
        if label is not None and label.path:
            key = lead - len(f"{label.key}: ") if label.key else lead

        def place(at: int) -> int:
            if at < lead:
                return max(at - key, 0)  # in the key; what is around it stands elsewhere
            return self._escapes.sent(segment.start + at) - begin

        return with_spans(verdict, place)


def _blank(text: str) -> int:
    return len(text) - len(text.lstrip())
