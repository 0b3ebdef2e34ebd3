"""What the gate lets out, for random texts, chunkings, choices, verdicts and actions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.errors import BiasFound, DetectorError
from guard.gate import Codec, Part, ResponseGate, split
from guard.policy import DEFAULT_POINTS, Policy, unjudged_verdict
from guard.verdict import Attribution, Channel, Scores, Span, Verdict
from tests.gate.driven import judge_all

ONLY = Channel()


@dataclass
class Chunk:
    """A chunk of a made-up provider: a text for each (choice, kind)."""

    texts: dict[Channel, str]
    done: list[int] = field(default_factory=list)
    usage: bool = False
    last: str = ""


class ChunkCodec(Codec[Chunk]):
    def parts(self, chunk: Chunk) -> list[Part]:
        return [Part(c, t) for c, t in chunk.texts.items() if t]

    def choices(self, chunk: Chunk) -> list[int]:
        return sorted({c.choice for c in chunk.texts} | set(chunk.done))

    def finished(self, chunk: Chunk) -> list[int]:
        return chunk.done

    def cut(
        self, chunk: Chunk, choice: int, texts: Mapping[Channel, str], *, ends: bool = False
    ) -> Chunk | None:
        done = [] if ends else [c for c in chunk.done if c == choice]
        texts = {c: t for c, t in texts.items() if t}
        return Chunk(texts, done) if texts or done else None

    def last(self, template: Chunk, choice: int, message: str) -> Chunk:
        return Chunk({}, [choice], last=message)


def marked(text: str) -> Verdict:
    """The scripted detector: a segment is biased where it holds an X."""
    scores = Scores(score=1.0 if "X" in text else 0.0, bias_type="gender")
    return Policy().verdict(
        scores, DEFAULT_POINTS, detector="script", index_version="", elapsed_ms=0.0
    )


class Run:
    """Drives a gate as a door does, and checks at each verdict that nothing got out early."""

    def __init__(self, chunks: list[Chunk], policy: Policy, judge=marked, n: int = 1) -> None:
        self.out: list[Chunk] = []
        self.judged = 0
        self.gate = ResponseGate(ChunkCodec(), policy, n=n)
        self.judge = judge
        for chunk in chunks:
            if self.gate.ended_by_guard:
                break
            self.gate.push(chunk)
            self.step()
        self.pulled_to_the_end = not self.gate.ended_by_guard
        if self.pulled_to_the_end:
            self.gate.finish()
            self.step()

    def step(self) -> None:
        while jobs := self.gate.pending():
            for job in jobs:
                self.judged += len(job.window.text)
                self.gate.resolve(job, self.judge(job.window.text))
        self.out += self.gate.emit()

    def text(self, channel: Channel = ONLY) -> str:
        return "".join(c.texts.get(channel, "") for c in self.out)


def chunked(text: str, sizes: list[int], channel: Channel = ONLY) -> list[Chunk]:
    chunks, at = [], 0
    for size in [*sizes, len(text) or 1]:
        if at < len(text):
            chunks.append(Chunk({channel: text[at : at + size]}))
            at += size
    return chunks


texts = st.lists(
    st.sampled_from(["ab", " ", "X", ". ", "! ", "\n\n", "word ", "long" * 20, " " * 40]),
    max_size=40,
).map("".join)
sizes = st.lists(st.integers(1, 60), max_size=60)
actions = st.sampled_from(["terminate", "redact", "flag", "raise"])


def expected(text: str, action: str) -> str:
    """What may be seen of ``text``: all of it up to the words of the first biased segment."""
    biased = (s.end - len(s.text.lstrip()) for s in split(text) if "X" in s.text)
    return text if action == "flag" else text[: next(biased, len(text))]


@given(texts, sizes, st.sampled_from(["terminate", "flag", "raise"]))
def test_all_goes_out_up_to_the_first_finding(text: str, cuts: list[int], action: str) -> None:
    run = Run(chunked(text, cuts), Policy(action=action))
    assert run.text() == expected(text, action)
    assert isinstance(run.gate.error, BiasFound) == (action == "raise" and "X" in text)


@given(texts, sizes)
def test_redaction_hides_every_biased_segment_and_nothing_else(text: str, cuts: list[int]) -> None:
    run = Run(chunked(text, cuts), Policy(action="redact", replacement="•"))
    segments = [s for s in split(text) if "X" in s.text]
    hidden = {i for s in segments for i in range(s.start, s.end)}
    # Overlap that an earlier, harmless segment shares with a biased one is held, so hidden too.
    kept = "".join(c for i, c in enumerate(text) if i not in hidden)
    assert run.text().replace("•", "").replace(" ", "").replace("\n", "") == kept.replace(
        " ", ""
    ).replace("\n", "")
    assert "X" not in run.text()
    assert ("•" in run.text()) == bool(segments)


@given(texts, texts, sizes, st.sampled_from(["terminate", "redact"]), st.booleans())
@pytest.mark.parametrize("hold", ["sentence", "association"])
def test_a_choice_ends_once_whatever_follows_its_finish_reason(
    hold: Any, text: str, late: str, cuts: list[int], action: Any, at_once: bool
) -> None:
    chunks = [*chunked(text, cuts), Chunk({}, [0]), *chunked(late, cuts)]
    policy = Policy(action=action, hold=hold, replacement="•", message="Stopped.")
    if at_once:  # a driver that judges when all has come
        gate = ResponseGate(ChunkCodec(), policy)
        for chunk in chunks:
            gate.push(chunk)
        gate.finish()
        judge_all(gate, marked)
        out = gate.emit()
    else:
        out = Run(chunks, policy).out
    assert sum(0 in chunk.done for chunk in out) == 1
    stopped = action == "terminate" and "X" in text
    assert [chunk.last for chunk in out if chunk.done] == ["Stopped." if stopped else ""]
    if hold == "sentence":
        assert not any("X" in said for chunk in out for said in chunk.texts.values())


@given(st.lists(texts, min_size=2, max_size=3), st.data(), actions)
def test_choices_do_not_wait_for_or_change_each_other(
    said: list[str], data: st.DataObject, action: str
) -> None:
    policy = Policy(action=action) if action != "raise" else Policy()
    queues = [chunked(t, data.draw(sizes), Channel(i)) for i, t in enumerate(said)]
    mixed = []
    while any(queues):
        ready = [q for q in queues if q]
        chosen = data.draw(st.lists(st.sampled_from(range(len(ready))), min_size=1, unique=True))
        mixed.append(Chunk({k: v for i in chosen for k, v in ready[i].pop(0).texts.items()}))
    run = Run(mixed, policy, n=len(said))
    for choice, text in enumerate(said):
        alone = Run(chunked(text, [], Channel(choice)), policy)
        assert run.text(Channel(choice)) == alone.text(Channel(choice))
        ends = [c.last for c in run.out if choice in c.done]
        assert ends == [c.last for c in alone.out if choice in c.done]


@given(texts, sizes, st.integers(0, 12))
def test_nothing_of_a_segment_is_out_before_its_verdict(
    text: str, cuts: list[int], index: int
) -> None:
    """Every character differs here, so that its presence in the output is unmistakable."""
    unique = "".join(
        c if c in " .!\n" else chr(0x4E00 + i) for i, c in enumerate(text.replace("X", "y"))
    )
    segments = [s for s in split(unique) if not s.text.isspace()]
    seen: list[str] = []

    def judge(window: str) -> Verdict:
        fresh = segments[len(seen)]
        assert window == fresh.text
        released = repr([c.texts for c in run_out])
        assert not any(c in released for c in window if ord(c) > 0x4E00)
        seen.append(window)
        return marked("X" if len(seen) == index else "")

    run_out: list[Chunk] = []
    gate = ResponseGate(ChunkCodec(), Policy())
    for chunk in [*chunked(unique, cuts), None]:
        if gate.ended_by_guard:
            break
        gate.finish() if chunk is None else gate.push(chunk)
        while jobs := gate.pending():
            for job in jobs:
                if job.second:
                    gate.resolve(job, marked("X"))
                elif not gate.ended_by_guard:
                    gate.resolve(job, judge(job.window.text))
        run_out += gate.emit()
    if 0 < index <= len(segments):
        hidden = segments[index - 1].text
        released = repr([c.texts for c in run_out])
        assert not any(c in released for c in hidden if ord(c) > 0x4E00)


def test_a_termination_ends_its_choice_with_the_message_once() -> None:
    run = Run(chunked("Fine. X here. More. ", [3] * 9), Policy(message="stop"))
    assert run.text() == "Fine. "
    assert [c.last for c in run.out if c.done] == ["stop"]
    assert run.gate.ended_by_guard
    assert not run.pulled_to_the_end


@pytest.mark.parametrize(
    ("scope", "other"), [("choice", "Yes. All is well."), ("response", "Yes. ")]
)
def test_scope_says_whether_other_choices_end_too(scope: str, other: str) -> None:
    chunks = [
        Chunk({Channel(0): "So. ", Channel(1): "Yes. All is"}),
        Chunk({Channel(0): "X! "}),
        Chunk({Channel(0): "And. "}),
        Chunk({Channel(1): " well."}),
        Chunk({}, done=[0, 1]),
    ]
    run = Run(chunks, Policy(scope=scope), n=2)
    assert run.text(Channel(0)) == "So. "
    assert run.text(Channel(1)) == other
    assert run.gate.ended_by_guard == (scope == "response")


def test_a_choice_released_to_its_end_stays_complete() -> None:
    chunks = [Chunk({Channel(0): "All is well."}, done=[0]), Chunk({Channel(1): "X."}, done=[1])]
    run = Run(chunks, Policy(scope="response", message="stop"), n=2)
    assert run.out[0] is chunks[0]
    assert [c.last for c in run.out[1:]] == ["stop"]
    assert run.gate.ended_by_guard


def test_a_choice_without_text_keeps_the_stream_open() -> None:
    chunks = [Chunk({Channel(0): "X. "}), Chunk({Channel(1): "Fine. "}), Chunk({}, done=[1])]
    run = Run(chunks, Policy(), n=2)
    assert run.text(Channel(1)) == "Fine. "


def test_white_space_after_a_sentence_does_not_wait_for_the_next() -> None:
    chunks = chunked("One day. Two is long", [9])
    gate = ResponseGate(ChunkCodec(), Policy())
    gate.push(chunks[0])
    (job,) = gate.pending()
    gate.resolve(job, marked(""))
    assert gate.emit() == [chunks[0]]


def test_raise_gives_the_error_after_the_harmless_text_and_no_message() -> None:
    run = Run(chunked("Fine. X here. ", [4] * 4), Policy(action="raise", message="found"))
    assert run.text() == "Fine. "
    assert isinstance(run.gate.error, BiasFound)
    assert str(run.gate.error) == "found"
    assert run.gate.error.trail.biased
    assert not any(c.last for c in run.out)


def failing(text: str) -> Verdict:
    return unjudged_verdict("failure", detector="script", index_version="", elapsed_ms=1.0)


def test_a_failed_detector_ends_the_output_unless_the_policy_is_open() -> None:
    closed = Run(chunked("One. Two. ", [4]), Policy(failure_message="unchecked"), failing)
    assert closed.text() == ""
    assert [c.last for c in closed.out] == ["unchecked"]
    opened = Run(chunked("One. Two. ", [4]), Policy(failure="open"), failing)
    assert opened.text() == "One. Two. "
    assert all(d.verdict.unjudged == "failure" for d in opened.gate.trail)
    raised = Run(chunked("One. ", []), Policy(action="raise"), failing)
    assert isinstance(raised.gate.error, DetectorError)


def test_a_finding_in_the_overlap_is_counted_once() -> None:
    text = "word " * 34 + "X" * 60 + " word" * 40
    spans = []

    def judge(window: str) -> Verdict:
        at = window.find("X")
        if at < 0:
            return marked("")
        place = Span(at, window.rfind("X") + 1)
        scores = Scores(1.0, "gender", (Attribution("g", "a", place, place),))
        spans.append(place)
        return Policy().verdict(
            scores, DEFAULT_POINTS, detector="s", index_version="", elapsed_ms=0.0
        )

    run = Run(chunked(text, [7] * 90), Policy(action="flag", second_look=False), judge)
    assert len(spans) == 2
    assert len(run.gate.trail.findings) == 1
    assert run.text() == text


def test_redaction_of_tool_input_that_is_no_json_stops_instead() -> None:
    call = Channel(0, "tool", 0)
    run = Run(chunked("a(X)", [], call), Policy(action="redact"))
    assert run.gate.ended_by_guard
    assert run.text(call) == ""
    run = Run(chunked('{"a": "X"}', [], call), Policy(action="redact"))
    assert not run.gate.ended_by_guard
    assert run.text(call) == '{"a": "[removed]"}'


def test_work_grows_with_the_text() -> None:
    length = 2_000
    text = ("word " * length)[:length]
    run = Run(chunked(text, [1] * length), Policy())
    # A forced cut judges its overlap twice; nothing is judged three times.
    assert run.judged <= 2 * length
    assert run.text() == text


def test_context_is_what_came_before_in_the_channel() -> None:
    gate = ResponseGate(ChunkCodec(), Policy(context_segments=2, user_context=True), user="Ask?")
    gate.push(Chunk({Channel(): "One. Two. Three. Four. "}))
    assert [(job.window.context, job.window.user) for job in gate.pending()] == [
        ((), "Ask?"),
        (("One.",), None),
        (("One.", " Two."), None),
        ((" Two.", " Three."), None),
    ]
