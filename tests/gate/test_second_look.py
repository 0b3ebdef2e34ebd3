"""A finding is taken back only by a harmless verdict on its segment and the one after it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.core import Guard
from guard.gate import ResponseGate, split
from guard.policy import DEFAULT_POINTS, Policy, unjudged_verdict
from guard.verdict import Channel, Decision, Scores, Verdict
from tests.gate.driven import judge_all
from tests.gate.test_calls import CALL, Piece, Pieces
from tests.gate.test_response import ONLY, Chunk, ChunkCodec, Run, chunked, sizes
from tests.gate.test_turns import CHANNELS, SAID, THOUGHT, rechunked
from tests.scripted import Scripted

POLICY = Policy(message="stop")
BOUND = POLICY.max_segment_chars + POLICY.overlap + POLICY.lookahead


def refuted(text: str) -> Verdict:
    """A scripted detector: an X is biased unless the window also has a NO."""
    return scored(1.0 if "X" in text and "NO" not in text else 0.1 * ("NO" in text))


def scored(score: float) -> Verdict:
    scores = Scores(score, bias_type="gender")
    return Policy().verdict(
        scores, DEFAULT_POINTS, detector="script", index_version="", elapsed_ms=1.0
    )


class Asked(Run):
    """A run that keeps the texts of the windows, the second looks apart."""

    def __init__(self, chunks: list[Chunk], policy: Policy = POLICY, judge: Any = refuted) -> None:
        self.first: list[str] = []
        self.second: list[str] = []
        super().__init__(chunks, policy, judge)

    def step(self) -> None:
        while jobs := self.gate.pending():
            for job in jobs:
                (self.second if job.second else self.first).append(job.window.text)
                self.gate.resolve(job, self.judge(job.window.text))
        self.out += self.gate.emit()


PIECES = [
    "ab ",
    " ",
    ". ",
    "! ",
    "\n\n",
    "word ",
    "X ",
    "NO ",
    "X! ",
    "NO! ",
    "ab! ",
    "women ",
    "42! ",
]
pieces = st.sampled_from([*PIECES, "long" * 20, " " * 40, '{"a": "X", "b": "NO"}\n'])
texts = st.lists(pieces, max_size=40).map("".join)
actions = st.sampled_from(["terminate", "redact", "flag", "raise"])
holds = st.sampled_from(["sentence", "association"])


def findings(text: str) -> list[tuple[int, int]]:
    """Say from the text alone which of its segments are biased in the end.

    Without context nothing is joined to what is before it.
    """
    policy = POLICY
    segments = [s for s in split(text) if not s.text.isspace()]
    found = []
    for number, segment in enumerate(segments):
        biased = refuted(segment.text).biased
        said = [(after, after.text[after.fresh - after.start :]) for after in segments[number:]]
        said = [(after, own) for after, own in said if re.search(r"[^\W\d_]", own)]
        if biased and said and said[0][0] is segment and len(said) > 1:
            after, own = said[1]
            far = after.fresh + len(own) - len(own.lstrip()) - segment.end
            near = far <= policy.overlap + policy.lookahead
            biased = not near or refuted(segment.text + own).biased
        if biased:
            found.append((segment.start, segment.end))
    return found


prose = st.lists(st.sampled_from([*PIECES, "long" * 20, " " * 40]), max_size=40).map("".join)


@given(prose, sizes)
def test_findings_stand_unless_the_next_segment_takes_them_back(text: str, cuts: list[int]) -> None:
    run = Run(chunked(text, cuts), Policy(action="flag", context_segments=0), refuted)
    assert [tuple(d.span) for d in run.gate.trail if d.verdict.biased] == findings(text)
    assert run.text() == text


@given(prose, sizes, st.sampled_from(["terminate", "raise"]))
def test_text_goes_out_up_to_the_first_finding_that_stands(
    text: str, cuts: list[int], action: str
) -> None:
    run = Run(chunked(text, cuts), Policy(action=action, context_segments=0), refuted)
    begin = next((b for b, _ in findings(text)), len(text))
    end = begin + len(text[begin:]) - len(text[begin:].lstrip())
    assert run.text() == text[:end]


@given(texts, sizes, actions, holds)
def test_any_chunking_gives_the_same_text_and_decisions(
    text: str, cuts: list[int], action: str, hold: str
) -> None:
    policy = Policy(action=action, hold=hold)
    one, many = (Run(chunked(text, c), policy, refuted) for c in ([], cuts))
    assert many.text() == one.text()
    assert many.gate.trail.decisions == one.gate.trail.decisions
    assert type(many.gate.error) is type(one.gate.error)


@given(
    st.lists(st.tuples(st.sampled_from(CHANNELS), pieces), max_size=50),
    st.lists(st.integers(1, 40), max_size=9),
    actions,
    holds,
)
def test_any_chunking_of_channels_that_take_turns_gives_the_same(
    said: list[tuple[Channel, str]], cuts: list[int], action: str, hold: str
) -> None:
    policy = Policy(action=action, hold=hold)
    one, many = (Run(rechunked(said, c), policy, refuted) for c in ([], cuts))
    for channel in CHANNELS:
        assert many.text(channel) == one.text(channel)
    assert many.gate.trail.decisions == one.gate.trail.decisions


@given(texts, sizes, actions, holds)
def test_a_second_look_lets_out_no_more_than_its_own_verdicts(
    text: str, cuts: list[int], action: str, hold: str
) -> None:
    """Where no second verdict is harmless, all is as without a second look."""

    def firm(window: str) -> Verdict:
        return scored(float("X" in window))

    with_it, without = (
        Run(chunked(text, cuts), Policy(action=action, hold=hold, second_look=looks), firm)
        for looks in (True, False)
    )
    assert with_it.text() == without.text()
    assert [d.action for d in with_it.gate.trail] == [d.action for d in without.gate.trail]


@given(texts, st.integers(1, 9))
def test_what_waits_is_bounded(text: str, size: int) -> None:
    gate = ResponseGate(ChunkCodec(), Policy(action="flag"))
    came = went = 0
    for at in range(0, len(text), size):
        gate.push(Chunk({ONLY: text[at : at + size]}))
        came += len(text[at : at + size])
        judge_all(gate, lambda _: scored(1.0))
        went += sum(len(t) for c in gate.emit() for t in c.texts.values())
        assert came - went <= 2 * BOUND + size


@pytest.mark.parametrize(
    ("before", "more"),
    [("X here!", "\n"), ("X here!", " "), ('{"a": "X", "b": [', "1, "), ('["X"', ', {"k": 1}')],
)
def test_what_is_no_segment_is_not_waited_behind_for_ever(before: str, more: str) -> None:
    gate = ResponseGate(ChunkCodec(), POLICY)
    pulled = 0
    gate.push(Chunk({ONLY: before}))
    while not gate.ended_by_guard and pulled < 1000:
        gate.push(Chunk({ONLY: more}))
        pulled += len(more)
        judge_all(gate, refuted)
    assert pulled <= BOUND


def test_a_refuted_claim_goes_out_with_what_refutes_it() -> None:
    run = Asked(chunked("Fine! X here! NO, it is not! So on", [3] * 20))
    assert run.second == ["X here! NO, it is not!"]
    assert run.text() == "Fine! X here! NO, it is not! So on"
    decision = run.gate.trail.decisions[1]
    assert not decision.verdict.biased
    assert decision.verdict.second_score == decision.verdict.score == 0.1
    assert decision.verdict.elapsed_ms == 2.0
    assert decision.action == "pass"


def test_a_claim_that_is_not_refuted_stops_as_it_did() -> None:
    run = Asked(chunked("Fine! X here! Really! NO", [3] * 20))
    assert run.second == ["X here! Really!"]
    assert run.text() == "Fine! "
    decision = run.gate.trail.decisions[-1]
    assert decision.verdict == Verdict(**{**_fields(scored(1.0)), "second_score": 1.0})


def _fields(verdict: Verdict) -> dict[str, Any]:
    return {name: getattr(verdict, name) for name in Verdict.__dataclass_fields__}


@pytest.mark.parametrize("size", [1, 1000])
def test_a_refutation_too_far_behind_takes_nothing_back(size: int) -> None:
    outcomes = set()
    for blank in range(
        POLICY.overlap + POLICY.lookahead - 3, POLICY.overlap + POLICY.lookahead + 4
    ):
        text = f"X here!{' ' * blank}NO, it is not! So"
        chunks = chunked(text, [size] * len(text))
        run = Run(chunks, Policy(action="flag", context_segments=0), refuted)
        found = [tuple(d.span) for d in run.gate.trail if d.verdict.biased]
        assert found == findings(text)
        outcomes.add(bool(found))
    assert outcomes == {True, False}


def test_a_segment_after_the_next_takes_nothing_back() -> None:
    assert Asked(chunked("X here! Really! NO!", [])).text() == ""


def test_a_question_takes_nothing_back() -> None:
    run = Asked(chunked("X here! NO? Well! ", []))
    assert (run.text(), run.second) == ("", [])


def test_another_item_of_a_list_takes_nothing_back() -> None:
    policy = Policy(action="flag")
    run = Asked(chunked("X:\n\n- women\n- NO men\n", []), policy)
    assert [d.verdict.biased for d in run.gate.trail] == [True, True, False]


def test_a_refutation_before_is_for_the_first_look() -> None:
    assert Asked(chunked("NO! X here! Well! ", [])).text() == "NO! "


@pytest.mark.parametrize("end", [[], [Chunk({}, done=[0])], [Chunk({ONLY: " \n "})]])
def test_the_end_of_the_text_lets_the_finding_stand(end: list[Chunk]) -> None:
    run = Asked([Chunk({ONLY: "Fine! X here! "}), *end])
    assert run.second == []
    assert run.text() == "Fine! "
    assert run.gate.ended_by_guard


def test_text_behind_a_finish_reason_takes_nothing_back() -> None:
    run = Asked([Chunk({ONLY: "X here! "}), Chunk({}, done=[0]), Chunk({ONLY: "NO! "})])
    assert (run.text(), run.second) == ("", [])


def test_nothing_goes_out_before_the_second_verdict() -> None:
    gate = ResponseGate(ChunkCodec(), POLICY)
    for text in ("X here! ", "NO", "! ", "On", " and on"):
        gate.push(Chunk({ONLY: text}))
        for job in gate.pending():
            if job.second:
                look = job
            else:
                assert gate.resolve(job, refuted(job.window.text)) == []
        assert gate.emit() == []
    decision, _ = gate.resolve(look, refuted(look.window.text))
    assert not decision.verdict.biased
    assert [t for c in gate.emit() for t in c.texts.values()] == ["X here! ", "NO", "! "]


def test_verdicts_that_came_meanwhile_are_decided_in_order() -> None:
    gate = ResponseGate(ChunkCodec(), Policy(action="flag"))
    gate.push(Chunk({ONLY: "X one! NO two! X three! four! five! "}))
    jobs = gate.pending()
    assert [gate.resolve(job, refuted(job.window.text)) for job in jobs] == [[]] * 5
    (look,) = gate.pending()
    decided = gate.resolve(look, refuted(look.window.text))
    assert [d.verdict.biased for d in decided] == [False, False]
    (look,) = gate.pending()
    decided = gate.resolve(look, refuted(look.window.text))
    assert [d.verdict.biased for d in decided] == [True, False, False]
    spans = [d.span.start for d in gate.trail]
    assert spans == sorted(spans)


def test_a_second_look_that_fails_lets_the_finding_stand() -> None:
    def fails(text: str) -> Verdict:
        if "NO" in text and "X" in text:
            return unjudged_verdict("failure", detector="script", index_version="", elapsed_ms=1.0)
        return refuted(text)

    run = Asked(chunked("X here! NO! On", []), Policy(failure="open", message="stop"), fails)
    assert run.text() == ""
    assert run.gate.trail.decisions[0].verdict == scored(1.0)


def test_without_a_second_look_there_is_none() -> None:
    run = Asked(chunked("X here! NO! ", []), Policy(second_look=False))
    assert (run.text(), run.second) == ("", [])


@pytest.mark.parametrize(
    ("threshold", "out"), [(0.1, ""), (0.2, "X here! NO! "), (None, "X here! NO! ")]
)
def test_the_second_score_must_be_below_its_threshold(threshold: float | None, out: str) -> None:
    run = Asked(chunked("X here! NO! ", []), Policy(second_look_threshold=threshold))
    assert run.text() == out


def test_the_thresholds_of_both_types_count() -> None:
    policy = Policy(thresholds={"gender": 0.3, "age": 0.6}, action="flag")

    def judge(text: str) -> Verdict:
        score = (0.5, "age") if "NO" in text else (0.9, "gender")
        return policy.verdict(
            Scores(*score),  # type: ignore[arg-type]
            DEFAULT_POINTS,
            detector="script",
            index_version="",
            elapsed_ms=0.0,
        )

    decision = Run(chunked("X! NO! ", []), policy, judge).gate.trail.decisions[0]
    assert (decision.verdict.bias_type, decision.verdict.second_score) == ("gender", 0.5)


def test_after_a_forced_cut_the_fresh_text_is_read_once() -> None:
    text = "X " + "long " * 70 + "NO! On"
    run = Asked(chunked(text, [7] * 90))
    first, after, *_ = split(text)
    assert run.second[0] == (first.text + after.text[after.fresh - after.start :]).strip()
    assert run.text() == text


@pytest.mark.parametrize(
    ("text", "joined"),
    [
        ("X here!\nNO!\nOn", "X here! NO!"),
        ("- X here\n- NO\n- On", "- X here\n- NO"),
        ("# X\n\n\nNO! On", "# X\nNO!"),
        ("| X | b |\n| NO | c |\n|", "| X | b |\n| NO | c |"),
        ("X。NO。On", "X。NO。"),
        ("| X |\n|---|\n| NO |\n| On |", "| X |\n| NO |"),
        ("X here! :-) 42! NO! On", "X here! NO!"),
        ('{"a": "X here! NO!", "b": "On"}', "a: X here! NO!"),
        ('["X here! NO!", "On"]', "X here! NO!"),
    ],
)
def test_the_two_are_read_as_they_stand(text: str, joined: str) -> None:
    for size in (1, 4, 100):
        run = Asked([*chunked(text, [size] * 100), Chunk({}, done=[0])])
        assert run.second == [joined]
        assert run.text() == text


@pytest.mark.parametrize(
    "text",
    [
        '{"claim": "X here", "urgent": "NO"}\n',
        '{"a": {"c": "X"}, "d": [1, null, "NO"]}',
        '{"claim": "X here"}\nNO!\n',
        'X here!\n{"fact": "NO"}\n',
        "- Remark: X here!\n- **Urgent:** NO\n",
        "remark X!\n\nactive = NO\n",
    ],
)
def test_what_speaks_of_another_thing_takes_nothing_back(text: str) -> None:
    run = Asked([*chunked(text, [5] * 20), Chunk({}, done=[0])])
    assert run.second == []
    assert "X" not in run.text()


def test_a_biased_key_is_not_looked_at_twice() -> None:
    run = Asked(chunked('{"X": "NO", "a": "NO"}', []))
    assert run.second == []
    assert run.gate.ended_by_guard


@pytest.mark.parametrize("said", ['{"a": "X. NO."}', "X. NO."])
def test_a_call_goes_out_whole_where_its_finding_is_taken_back(said: str) -> None:
    gate = ResponseGate(Pieces(), POLICY)
    out = []
    parts = [*(Piece(CALL, c) for c in said), Piece(CALL, "", True)]
    for piece in parts:
        gate.push(piece)
        judge_all(gate, refuted)
        emitted = gate.emit()
        assert not emitted or piece is parts[-1]
        out += emitted
    assert out == parts


def test_redaction_takes_out_what_stands_and_nothing_else() -> None:
    text = "X one! NO two! X three! Four! X five! NO six! "
    run = Asked(chunked(text, [4] * 30), Policy(action="redact", replacement="#"))
    assert run.text() == "X one! NO two! # Four! X five! NO six! "


def test_a_rewrite_waits_for_the_second_verdict() -> None:
    for text, again in (("Fine! X! NO! On", False), ("Fine! X! So! On", True)):
        gate = ResponseGate(ChunkCodec(), Policy(action="rewrite"))
        gate.rewrites = True
        gate.push(Chunk({ONLY: text}))
        judge_all(gate, refuted)
        assert gate.needs_rewrite == again


def test_a_second_look_keeps_its_first_context_and_user() -> None:
    gate = ResponseGate(ChunkCodec(), Policy(user_context=True), user="Ask?")
    gate.push(Chunk({ONLY: "X here! NO! "}))
    for job in gate.pending():
        gate.resolve(job, refuted(job.window.text))
    (look,) = gate.pending()
    assert look.window == (look.window.__class__)("X here! NO!", (), "Ask?")


def test_another_channel_that_speaks_ends_the_wait_where_nothing_has_begun() -> None:
    run = Asked([Chunk({SAID: "X here! "}), Chunk({THOUGHT: "hm"}), Chunk({SAID: "NO! "})])
    assert (run.text(SAID), run.second) == ("", [])


def test_a_sentence_that_has_begun_is_read_as_far_as_others_let_it_come() -> None:
    limit = POLICY.max_segment_chars
    begun = [Chunk({SAID: "X here! "}), Chunk({SAID: "NO and"})]
    run = Asked([*begun, Chunk({THOUGHT: "hmm " * limit})])
    assert run.second == ["X here! NO and"]
    assert run.text(SAID) == "X here! NO and"


def test_a_segment_judged_early_is_looked_at_once() -> None:
    run = Asked([Chunk({SAID: "X here."}), Chunk({THOUGHT: "hm"}), Chunk({SAID: " NO! "})])
    assert (run.text(SAID), run.second) == ("", [])


def test_choices_do_not_wait_for_each_others_second_looks() -> None:
    gate = ResponseGate(ChunkCodec(), POLICY, n=2)
    gate.push(Chunk({Channel(0): "X here! "}))
    gate.push(Chunk({Channel(1): "Fine! "}))
    judge_all(gate, refuted)
    assert [c.texts for c in gate.emit()] == [{Channel(1): "Fine! "}]
    assert len(gate.awaited) == 1


def test_a_driver_can_give_up() -> None:
    gate = ResponseGate(ChunkCodec(), POLICY)
    gate.push(Chunk({ONLY: "X here! NO, that"}))
    for job in gate.pending():
        gate.resolve(job, refuted(job.window.text))
    assert len(gate.awaited) == 1
    assert not gate.waiting
    gate.give_up_second_looks()
    assert gate.waiting
    assert not gate.awaited
    assert gate.pending() == []
    assert gate.ended_by_guard
    assert [c.last for c in gate.emit()] == ["stop"]


def test_each_decision_is_recorded_when_it_is_the_last() -> None:
    seen: list[tuple[int, str]] = []

    def record(trail: Any, decision: Decision, text: str) -> None:
        assert trail.decisions[-1] is decision
        seen.append((len(trail.decisions), text))

    gate = ResponseGate(ChunkCodec(), Policy(action="flag"), record=record)
    gate.push(Chunk({ONLY: "X one! NO two! three! "}))
    gate.finish()
    judge_all(gate, refuted)
    assert seen == [(1, "X one!"), (2, " NO two!"), (3, " three!")]


def test_work_grows_with_the_text() -> None:
    text = "X is! " * 2_000
    run = Asked(chunked(text, []), Policy(action="flag"))
    assert len(run.second) < len(run.first) == 2_000
    assert run.judged <= 4 * len(text)


def test_whole_texts_get_their_second_looks() -> None:
    guard = Guard(detector=Scripted("^(?!.*NO).*BIAS"))
    assert not guard.check("BIAS is. NO, it is not.").biased
    assert guard.check("BIAS is. It is. NO, it is not.").biased
    many = guard.check_many(["BIAS is. NO!", "BIAS! ", "Fine.", "BIAS is. BIAS is. NO!"])
    assert [v.biased for v in many] == [False, True, False, True]
    trail = guard.trail("BIAS is. BIAS is. NO!")
    assert [d.verdict.biased for d in trail] == [True, False, False]
