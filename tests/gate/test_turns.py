"""Channels of one choice that take turns: each is judged as if it spoke alone."""

from __future__ import annotations

import json
import re
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.gate import Part, ResponseGate, split
from guard.gate.gate import Gate
from guard.gate.turns import Turns
from guard.policy import DEFAULT_POINTS, Policy
from guard.verdict import Channel, Scores, Verdict
from tests.gate.driven import judge_all
from tests.gate.test_response import Chunk, ChunkCodec, Run, marked

SAID, THOUGHT = Channel(0), Channel(0, "reasoning")
CHANNELS = [SAID, THOUGHT, Channel(0, "tool", 0), Channel(0, "tool", 1)]
PHRASE = re.compile(r"grelks[^.!?\n]*lazy")
# No longer than the overlap of two segments, so that one of them holds all of it.
SHORT = re.compile(r"grelks[^.!?\n#]{0,60}lazy")
LIMIT = Policy().max_segment_chars
BOUND = LIMIT + Policy().overlap + Policy().lookahead

Turn = tuple[Channel, str]


def phrased(text: str) -> Verdict:
    """A scripted detector: biased where a window ties the group to the attribute."""
    scores = Scores(1.0 if PHRASE.search(text) else 0.0, bias_type="gender")
    return Policy().verdict(
        scores, DEFAULT_POINTS, detector="script", index_version="", elapsed_ms=0.0
    )


PIECES = ["ab ", " ", ". ", "! ", "\n\n", "word ", "grelks ", "are ", "lazy ", "women "]
pieces = st.sampled_from([*PIECES, "long" * 20, "and " * 30, " " * 40])


@st.composite
def turns(draw: st.DrawFn, most: int = 4, least: int = 2) -> list[Turn]:
    channels = CHANNELS[: draw(st.integers(least, most))]
    return draw(st.lists(st.tuples(st.sampled_from(channels), pieces), max_size=50))


def spoken(said: list[Turn]) -> dict[Channel, str]:
    texts: dict[Channel, str] = {}
    for channel, text in said:
        texts[channel] = texts.get(channel, "") + text
    return texts


def rechunked(said: list[Turn], sizes: list[int]) -> list[Chunk]:
    """The same turns in other chunks: those of one channel joined, then cut anew."""
    chunks, at = [], 0
    for channel, several in groupby(said, key=lambda turn: turn[0]):
        text = "".join(piece for _, piece in several)
        while text:
            size = sizes[at % len(sizes)] if sizes else len(text)
            chunks.append(Chunk({channel: text[:size]}))
            text, at = text[size:], at + 1
    return chunks


@given(turns())
def test_every_segment_of_a_channel_is_judged_whole(said: list[Turn]) -> None:
    windows: list[str] = []

    def judge(text: str) -> Verdict:
        windows.append(text)
        return marked("")

    Run([Chunk({channel: text}) for channel, text in said], Policy(), judge)
    for text in filter(str.strip, spoken(said).values()):
        for segment in split(text):
            assert any(segment.text.strip() in window for window in windows)


@given(turns(), st.sampled_from(["terminate", "redact", "raise"]))
def test_no_phrase_goes_out_whole_however_its_channel_is_interrupted(
    said: list[Turn], action: str
) -> None:
    run = Run(
        [Chunk({channel: text}) for channel, text in said],
        Policy(action=action, replacement="#"),
        phrased,
    )
    for channel, text in spoken(said).items():
        out = run.text(channel)
        for segment in split(text):
            if PHRASE.search(segment.text):
                assert segment.text.strip() not in out
        assert not SHORT.search(out)


@given(turns(least=1), st.sampled_from(["sentence", "association", "none"]))
def test_nothing_found_gives_the_very_same_chunks(said: list[Turn], hold: str) -> None:
    spoken = [Chunk({channel: text}) for channel, text in said]
    chunks = [*spoken, Chunk({}, done=[0]), Chunk({}, usage=True)]
    run = Run(chunks, Policy(hold=hold))
    assert len(run.out) == len(chunks)
    assert all(a is b for a, b in zip(run.out, chunks, strict=True))
    judged = [(d.channel, d.span) for d in run.gate.trail]
    assert len(judged) == len(set(judged))  # what is judged early is one decision in the end


@given(
    turns(least=1),
    st.lists(st.integers(1, 40), max_size=9),
    st.sampled_from(["terminate", "redact", "flag", "raise"]),
    st.sampled_from(["sentence", "association"]),
)
def test_any_chunking_gives_the_same_text_and_decisions(
    said: list[Turn], sizes: list[int], action: str, hold: str
) -> None:
    policy = Policy(action=action, hold=hold)
    one = Run(rechunked(said, []), policy, phrased)
    many = Run(rechunked(said, sizes), policy, phrased)
    for channel in CHANNELS:
        assert many.text(channel) == one.text(channel)
    assert many.gate.trail.decisions == one.gate.trail.decisions
    assert type(many.gate.error) is type(one.gate.error)


@given(turns(most=3), st.data())
def test_white_space_of_another_channel_changes_nothing(
    said: list[Turn], data: st.DataObject
) -> None:
    blank = Channel(0, "content", 7)
    mixed: list[Turn] = []
    for turn in said:
        mixed.append(turn)
        mixed += [(blank, text) for text in data.draw(st.sampled_from([[], [" "], ["\n", " "]]))]
    plain = Run([Chunk({c: t}) for c, t in said], Policy(), phrased)
    with_blanks = Run([Chunk({c: t}) for c, t in mixed], Policy(), phrased)
    for channel in CHANNELS:
        assert with_blanks.text(channel) == plain.text(channel)
    assert with_blanks.gate.trail.decisions == plain.gate.trail.decisions


@given(turns())
def test_the_text_held_of_all_channels_is_bounded(said: list[Turn]) -> None:
    gate = ResponseGate(ChunkCodec(), Policy())
    came = went = 0
    for channel, text in said:
        for char in text:
            gate.push(Chunk({channel: char}))
            came += not char.isspace()
            judge_all(gate, lambda _: marked(""))
            went += sum(not c.isspace() for out in gate.emit() for c in out.texts[channels_of(out)])
            assert came - went <= BOUND + LIMIT


def channels_of(chunk: Chunk) -> Channel:
    (channel,) = chunk.texts
    return channel


def test_a_sentence_that_is_complete_does_not_wait_for_its_channel_to_go_on() -> None:
    gate = ResponseGate(ChunkCodec(), Policy())
    chunks = [Chunk({THOUGHT: "They ask for a poem."}), Chunk({SAID: "H"})]
    for chunk in chunks:
        gate.push(chunk)
    (job,) = gate.pending()
    gate.resolve(job, marked(""))
    assert gate.emit() == chunks[:1]


def test_an_incomplete_sentence_waits_until_other_channels_reach_the_limit() -> None:
    gate = ResponseGate(ChunkCodec(), Policy())
    gate.push(Chunk({THOUGHT: "They ask for"}))
    gate.push(Chunk({SAID: "x" * LIMIT}))
    assert gate.pending() == []
    gate.push(Chunk({SAID: "x"}))
    (early, *_) = gate.pending()
    assert (early.channel, early.window.text) == (THOUGHT, "They ask for")


@pytest.mark.parametrize("rewrites", [True, False])
def test_a_rewrite_that_is_not_possible_terminates(rewrites: bool) -> None:
    gate = Gate(Policy(action="rewrite"), Channel())
    gate.feed("It is X.")
    gate.finish()
    decision = gate.resolve(marked("X"), rewrites=rewrites).decision
    assert decision.action == ("rewrite" if rewrites else "terminate")


def test_nothing_of_a_segment_found_biased_early_goes_out() -> None:
    gate = Gate(Policy(), Channel())
    gate.feed("It is X and")
    windows, edits = gate.judge_open()
    assert (len(windows), edits) == (1, [])
    assert gate.resolve(marked("X")).edits == []
    assert gate.stopped


def test_sentences_read_anew_behind_a_fence_are_asked_about_in_their_order() -> None:
    gate = ResponseGate(ChunkCodec(), Policy())
    seen: list[str] = []
    for chunk in (
        Chunk({SAID: "```\nOne is. Two is. Three"}),
        Chunk({THOUGHT: "Hm. "}),
        Chunk({SAID: " is. "}),
        Chunk({}, done=[0]),
        Chunk({SAID: "Four. "}),
    ):
        gate.push(chunk)
        while jobs := gate.pending():
            seen += [job.window.text.strip() for job in jobs if job.channel == SAID]
            for job in jobs:
                gate.resolve(job, marked(""))
    assert seen[-4:] == ["One is.", "Two is.", "Three is.", "Four."]


def test_a_segment_judged_early_is_judged_again_when_complete() -> None:
    chunks = [
        Chunk({SAID: "The grelks are"}),
        Chunk({THOUGHT: "hmm " * LIMIT}),
        Chunk({SAID: " lazy. "}),
    ]
    run = Run(chunks, Policy(message="stop"), phrased)
    assert run.text(SAID) == "The grelks are"
    assert [d.span for d in run.gate.trail.findings] == [(0, 20)]


def test_a_segment_judged_early_and_not_continued_is_judged_once() -> None:
    seen: list[str] = []

    def judge(text: str) -> Verdict:
        seen.append(text)
        return marked("")

    chunks = [Chunk({THOUGHT: "They ask."}), Chunk({SAID: "Yes. "}), Chunk({}, done=[0])]
    run = Run(chunks, Policy(), judge)
    assert seen == ["They ask.", "Yes."]
    assert [d.channel for d in run.gate.trail] == [THOUGHT, SAID]


@pytest.mark.parametrize(
    "text",
    ["\n\n\n\nabcd", "Yes:\nab", "Yes.\n- ab", "So\n", 'He said "why?" ', "Yes. \n", "etc. "],
)
def test_a_text_judged_early_where_it_ends_has_the_segments_it_has_alone(text: str) -> None:
    """What follows would show whether the last line break ends a segment; nothing follows."""
    said = [(SAID, text), (CHANNELS[2], "x" * 2 * LIMIT)]
    end = Chunk({}, done=[0])
    streamed = Run([*rechunked(said, [1]), end], Policy())
    whole = Run([Chunk(dict(said), done=[0])], Policy())
    assert streamed.gate.trail.decisions == whole.gate.trail.decisions
    alone = [(s.start, s.end) for s in split(text) if not s.text.isspace()]
    assert [d.span for d in streamed.gate.trail if d.channel == SAID] == alone


def test_a_segment_judged_early_is_not_judged_again_where_only_the_next_one_grew() -> None:
    said = [(SAID, "Yes:\nab"), (THOUGHT, "x" * (LIMIT + 1)), (SAID, "cd"), (THOUGHT, "x" * LIMIT)]
    run = Run([Chunk({channel: text}) for channel, text in said], Policy())
    assert [d.span for d in run.gate.trail if d.channel == SAID] == [(0, 5), (5, 7), (5, 9)]


def test_an_escape_that_went_out_incomplete_is_judged_last() -> None:
    said = [(SAID, "So \\u00"), (CHANNELS[2], "x" * 2 * LIMIT)]
    end = Chunk({}, done=[0])
    streamed = Run([*rechunked(said, [1]), end], Policy())
    whole = Run([Chunk(dict(said), done=[0])], Policy())
    assert streamed.gate.trail.decisions == whole.gate.trail.decisions
    assert [d.span for d in whole.gate.trail if d.channel == SAID] == [(0, 3), (0, 7)]


@pytest.mark.parametrize("call", ["lazy grelks X. ", "X " + "word " * 50])
def test_decisions_are_in_the_order_of_the_text(call: str) -> None:
    """The longer call is cut by force while the text before it is still open."""
    chunks = [Chunk({SAID: "Let me see"}), Chunk({CHANNELS[2]: call})]
    run = Run([*chunks, Chunk({}, done=[0])], Policy(message="stop"))
    assert [(d.channel, d.action) for d in run.gate.trail] == [
        (SAID, "pass"),
        (CHANNELS[2], "terminate"),
    ]
    assert run.text(SAID) == "Let me see"


def test_decisions_are_in_the_order_of_the_text_despite_another_choice_between() -> None:
    chunks = [
        Chunk({THOUGHT: "Let me see"}),
        Chunk({SAID: "Yes.\n\nI", Channel(1): "No.\n\nI"}, done=[0, 1]),
    ]
    run = Run(chunks, Policy())
    assert [d.channel for d in run.gate.trail if d.channel.choice == 0] == [THOUGHT, SAID, SAID]


def test_a_redaction_of_a_segment_judged_early_appears_once() -> None:
    chunks = [
        Chunk({SAID: "So grelks are lazy"}),
        Chunk({THOUGHT: "hmm " * LIMIT}),
        Chunk({SAID: " at work. Fine. "}),
    ]
    run = Run(chunks, Policy(action="redact", replacement="#"), phrased)
    assert run.text(SAID) == "# Fine. "


class Parts(ChunkCodec):
    """Parts of one text, each a channel: what a reader joins to the part before."""

    def closed(self, chunk: Chunk) -> list[Channel]:
        return list(chunk.texts)

    def continued(self, channel: Channel) -> Channel | None:
        return Channel(0, "content", channel.tool - 1) if channel.tool else None


def test_a_sentence_that_goes_on_in_the_next_part_is_judged_whole() -> None:
    gate = ResponseGate(Parts(), Policy(message="stop"))
    out = []
    texts = ["Fine. The", " grelks are", " lazy at", " work. "]
    for number, text in enumerate(texts):
        gate.push(Chunk({Channel(0, "content", number): text}))
        judge_all(gate, phrased)
        out += gate.emit()
        if gate.ended_by_guard:
            break
    assert [text for chunk in out for text in chunk.texts.values()] == texts[:2]
    assert gate.ended_by_guard


def test_text_after_a_channels_end_continues_its_sentence() -> None:
    class Ends(ChunkCodec):
        def closed(self, chunk: Chunk) -> list[Channel]:
            return list(chunk.texts)

    gate = ResponseGate(Ends(), Policy())
    seen = []
    for text in ("The ", "grelks ", "are ", "lazy"):
        gate.push(Chunk({SAID: text}))
        while jobs := gate.pending():
            for job in jobs:
                seen.append(job.window.text)
                gate.resolve(job, phrased(job.window.text))
    assert seen == ["The ", "The grelks ", "The grelks are ", "The grelks are lazy"]
    assert gate.ended_by_guard


@pytest.mark.parametrize("channels", [2, 16])
def test_work_grows_with_the_text(channels: int) -> None:
    """Channels that alternate at every character are judged early so often, and no oftener."""
    length = 2_000
    chunks = [Chunk({Channel(0, "tool", i % channels): "x"}) for i in range(length)]
    calls = 0

    def judge(text: str) -> Verdict:
        nonlocal calls
        calls += 1
        return marked("")

    Run(chunks, Policy(), judge)
    assert calls <= channels * (length / LIMIT + 2) + length / 100


def test_only_the_turns_of_open_text_are_kept() -> None:
    gate = ResponseGate(ChunkCodec(), Policy())
    for _ in range(500):
        for channel in (SAID, THOUGHT):
            gate.push(Chunk({channel: "A word. "}))
            judge_all(gate, lambda _: marked(""))
    turns: Turns = gate._choices[0].turns
    assert all(len(kept) < 10 for kept in turns._turns.values())


def test_an_escape_that_has_begun_does_not_hold_others_for_ever() -> None:
    call = CHANNELS[2]
    gate = ResponseGate(ChunkCodec(), Policy(message="stop"))
    out: list[Chunk] = []

    def push(channel: Channel, text: str) -> None:
        gate.push(Chunk({channel: text}))
        judge_all(gate, phrased)
        out.extend(gate.emit())

    push(call, "So \\u0067relk\\u00")
    push(SAID, "Fine. ")
    assert out == []
    push(SAID, "x" * LIMIT + ". ")
    assert [list(chunk.texts) for chunk in out] == [[call], [SAID], [SAID]]
    push(call, "73 are lazy")
    gate.finish()
    (job,) = gate.pending()
    assert job.window.text == "So grelks are lazy"
    gate.resolve(job, phrased(job.window.text))
    assert gate.ended_by_guard
    assert not any("lazy" in text for chunk in out for text in chunk.texts.values())


def test_half_an_escape_of_json_never_goes_out() -> None:
    """Behind it a mark would be no JSON."""
    for said in ('{"k": "\\n\\u00e9 grelks are lazy"}', r'{"k": "\\P grelks are lazy"}'):
        for cut in range(1, len(said)):
            chunks = [
                Chunk({SAID: said[:cut]}),
                Chunk({THOUGHT: "Hm. "}),
                Chunk({SAID: said[cut:]}),
            ]
            run = Run(chunks, Policy(action="redact", replacement="#"), phrased)
            assert json.loads(run.text(SAID))["k"].strip() == "#", cut


def test_a_channel_that_ends_in_a_chunk_with_several_of_its_parts_is_judged_whole() -> None:
    """Several events may arrive at once: a call's deltas and its end."""

    class Frames(ChunkCodec):
        def parts(self, chunk: Chunk) -> list[Part]:
            return [Part(c, t) for c, text in chunk.texts.items() for t in text]

        def closed(self, chunk: Chunk) -> list[Channel]:
            return list(chunk.texts)

    gate = ResponseGate(Frames(), Policy())
    gate.push(Chunk({CHANNELS[2]: '{"a": "\\u0067relks are lazy"}'}))
    assert [job.window.text for job in gate.pending()] == ["a", "a: grelks are lazy"]


def test_a_mention_that_is_split_by_the_end_of_its_channel_is_held() -> None:
    gate = ResponseGate(Parts(), Policy(hold="association", message="stop"))
    out: list[Chunk] = []
    for number, text in enumerate(["A quiet old peop", "le grelks are", " lazy. "]):
        gate.push(Chunk({Channel(0, "content", number): text}))
        out += gate.emit()
        while jobs := gate.pending():
            for job in jobs:
                gate.resolve(job, marked(""))
                out += gate.emit()
        if number == 1:
            gate.push(Chunk({Channel(0, "content", number): " so "}))
            assert gate.emit() == []
    assert len(out) == 4
