"""What goes out before its verdict in the hold modes, and that chunking changes nothing of it."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from guard.gate import ResponseGate
from guard.policy import DEFAULT_POINTS, Policy, unjudged_verdict
from guard.verdict import Channel, Scores, Verdict
from tests.gate.driven import DrivenGate
from tests.gate.test_response import Chunk, ChunkCodec, Run, chunked
from tests.rows import rows

GROUP = re.compile(
    r"(?<!\w)(?:women|old tenants|people of colour|w0men|w o m e n|they)(?!\w)", re.IGNORECASE
)
ATTRIBUTE = "X"


def ties(text: str) -> Verdict:
    """The scripted detector: biased is what holds a group and the attribute."""
    tied = ATTRIBUTE in text and GROUP.search(text)
    scores = Scores(score=1.0 if tied else 0.0, bias_type="gender")
    return Policy().verdict(
        scores, DEFAULT_POINTS, detector="script", index_version="", elapsed_ms=0.0
    )


UNITS = [
    "women", " women ", "w0men", "old tenants", "people of colour", "they ", "w o m e n ", "old ",
    "people ", "X", " X ", "lazy X, ", ". ", "! ", "? ", "\n\n", "\n", ", ", "table ", "rain ",
    "long" * 20, " " * 9, "so it is and ", "wombats ", "3.14", '." ', "Dr. ", "\n- ", "```\n",
]  # fmt: skip
texts = st.lists(st.sampled_from(UNITS), max_size=40).map("".join)
sizes = st.lists(st.integers(1, 60), max_size=80)
cutting = st.sampled_from(["terminate", "redact", "raise"])
actions = st.sampled_from(["terminate", "redact", "flag", "raise"])
holds = st.sampled_from(["association", "none"])
LONG = pytest.mark.slow("a chunk for each of 8,000 characters")


def policy_for(hold: str, action: str) -> Policy:
    return Policy(hold=hold, action="flag" if hold == "none" else action)


def driven(text: str, cuts: list[int], policy: Policy) -> DrivenGate:
    pieces = [chunk.texts[Channel()] for chunk in chunked(text, cuts)]
    return DrivenGate(lambda window: ties(window.text), policy).play(pieces)


@given(texts, sizes, cutting)
def test_group_and_attribute_of_one_segment_never_both_go_out(
    text: str, cuts: list[int], action: str
) -> None:
    played = driven(text, cuts, policy_for("association", action))
    for decision in played.decisions:
        if decision.verdict.biased:
            start, end = decision.span
            groups = [m.span() for m in GROUP.finditer(text, start, end)]
            # A pronoun alone names no group; where none was named before, it may be out.
            named = [g for g in groups if text[slice(*g)].lower() != "they"] or groups[:0]
            for begin, stop in named:
                assert not played.out.intersection(range(begin, min(stop, end)))


@example("women? X", [], "terminate")
@given(texts, sizes, cutting)
def test_a_pronoun_is_held_once_a_group_was_named(text: str, cuts: list[int], action: str) -> None:
    said = "The women came in. " + text
    played = driven(said, cuts, policy_for("association", action))
    for decision in played.decisions:
        if decision.verdict.biased:
            first = GROUP.search(said, *decision.span)
            begin = decision.span.end - len(said[slice(*decision.span)].lstrip())
            if first is not None:  # else the group is in the question that it answers
                begin = first.start()
            # The end of a removed line stays.
            end = len(said[: decision.span.end].rstrip())
            assert not played.out.intersection(range(begin, end))


@given(texts, sizes, holds, actions)
def test_any_chunking_gives_the_same_text_and_decisions(
    text: str, cuts: list[int], hold: str, action: str
) -> None:
    policy = policy_for(hold, action)
    one, many = driven(text, [], policy), driven(text, cuts, policy)
    assert many.decisions == one.decisions
    assert many.out == one.out
    chunks = [*chunked(text, cuts), Chunk({}, done=[0])]
    run, whole = Run(chunks, policy, ties), Run(chunked(text, []), policy, ties)
    assert run.text() == whole.text()
    assert run.gate.trail.decisions == whole.gate.trail.decisions
    assert type(run.gate.error) is type(whole.gate.error)


@given(texts, sizes, actions)
def test_the_hold_mode_changes_no_verdict_that_is_taken(
    text: str, cuts: list[int], action: str
) -> None:
    held = Run(chunked(text, cuts), Policy(action=action), ties)
    for hold in ("association", "none"):
        free = Run(chunked(text, cuts), policy_for(hold, action), ties)
        verdicts = [d.verdict for d in free.gate.trail]
        assert verdicts[: len(held.gate.trail)] == [d.verdict for d in held.gate.trail]


@given(texts, sizes)
def test_no_more_is_held_than_with_whole_sentences(text: str, cuts: list[int]) -> None:
    """In bytes out after each chunk, `none` gives most and `sentence` least."""
    outs = {}
    for hold in ("sentence", "association", "none"):
        run = Run([], Policy(action="flag", hold=hold), ties)
        outs[hold] = []
        for chunk in chunked(text, cuts):
            run.gate.push(chunk)
            run.step()
            outs[hold].append(len(run.text()))
    triples = zip(outs["sentence"], outs["association"], outs["none"], strict=True)
    assert all(a <= b <= c for a, b, c in triples)
    assert outs["none"][-1:] == [len(text)][: len(outs["none"])]


def by_character(text: str) -> DrivenGate:
    return driven(text, [1] * len(text), Policy(hold="association"))


def seen(text: str) -> str:
    out = by_character(text).out
    return "".join(c for i, c in enumerate(text) if i in out)


@rows(
    "text, out",
    [
        ("Rain. X is what all women are. More.", "Rain. X is what all "),
        ("so X, these women.", "so X, these "),
        ("The old tenants are X.", "The "),
        ("Women came. It rained. So X, they are.", "Women came. It rained. So X, "),
        ("They sang. X it was.", "They sang. X it was."),
        ("They are X\n- rain fell.", "They are X\n"),  # nothing of the next segment
        ("I met w o m e n who are X.", "I met "),
        ("My w0men are X.", "My "),
    ],
)
def test_a_cut_begins_at_the_first_mention(text: str, out: str) -> None:
    assert seen(text) == out


def test_text_without_a_group_waits_for_nothing() -> None:
    text = "It rained and rained. Nobody minded 3.14 of it at all, or so it seemed. "
    run = by_character(text)
    assert run.early >= len(text) - 12
    assert run.out == set(range(len(text)))


@pytest.mark.parametrize("size", [1, 1000])
def test_a_sentence_cut_by_force_stays_held_where_it_named_a_group(size: int) -> None:
    text = "Women, so it is, " + "and so it is, " * 30 + "are lazy"
    gate = DrivenGate(lambda _: ties(""), Policy(hold="association"))
    for at in range(0, len(text), size):
        gate.feed(text[at : at + size])
    assert len(gate.decisions) > 1
    assert 0 < gate.taken < len(text) - 80
    assert gate.early == 0  # what follows a verdict is the same sentence, so none of it flows


def test_pronouns_follow_a_group_named_in_another_channel_of_the_choice() -> None:
    thought, said, other = Channel(0, "reasoning"), Channel(0), Channel(1)
    chunks = [
        Chunk({thought: "Women came. "}),
        Chunk({said: "So it is, they are"}),
        Chunk({other: "So it is, they are"}),
    ]
    run = Run(chunks, Policy(hold="association"), ties, n=2)
    assert run.text(said) == run.text(other) == "So it is, they are"
    gate = Run(chunks, Policy(hold="association"), ties, n=2).gate
    views = [state.groups for state in gate._choices.values()]
    assert [groups is not None and groups.named for groups in views] == [True, False]


@pytest.mark.parametrize(
    ("user", "early"), [("What of women?", "So "), ("What of roses?", "So they are ")]
)
def test_a_pronoun_may_mean_a_group_that_the_user_named(user: str, early: str) -> None:
    gate = ResponseGate(ChunkCodec(), Policy(hold="association"), user=user)
    for chunk in chunked("So they are X", [1] * 13):
        gate.push(chunk)
    out = "".join(chunk.texts[Channel()] for chunk in gate.emit())
    assert out == early


def test_text_released_early_waits_for_earlier_segments_of_its_choice() -> None:
    """A whole answer must end where a stream would: behind nothing that still waits."""
    thought, said = Channel(0, "reasoning"), Channel(0)
    policy = Policy(hold="association", message="stop")

    def judge(text: str) -> Verdict:
        return ties("women X" if text.startswith("Hmm") else "")

    whole = Run([Chunk({thought: "Hmm so.", said: "All is well."}, done=[0])], policy, judge)
    streamed = Run([Chunk({thought: "Hmm so."}), Chunk({said: "All is well."})], policy, judge)
    assert whole.text(thought) == streamed.text(thought) == "Hmm so."
    assert whole.text(said) == streamed.text(said) == ""


def test_watching_judges_everything_and_cuts_nothing() -> None:
    text = "Women are X! Rain. Women are X!"
    run = Run(chunked(text, [3] * 20), Policy(hold="none"), ties)
    assert run.text() == text
    assert [d.action for d in run.gate.trail] == ["flag", "pass", "flag"]
    assert not run.gate.ended_by_guard


def test_watching_lets_a_failed_detector_pass() -> None:
    def failing(text: str) -> Verdict:
        return unjudged_verdict("failure", detector="s", index_version="", elapsed_ms=1.0)

    run = Run(chunked("One. Two. ", [3] * 9), Policy(hold="none"), failing)
    assert run.text() == "One. Two. "
    assert [d.verdict.unjudged for d in run.gate.trail] == ["failure", "failure"]


def test_a_failed_detector_ends_what_a_mention_held() -> None:
    def failing(text: str) -> Verdict:
        return unjudged_verdict("failure", detector="s", index_version="", elapsed_ms=1.0)

    run = Run(chunked("It is what women say. Two. ", [3] * 9), Policy(hold="association"), failing)
    assert run.text() == "It is what "
    assert run.gate.ended_by_guard


@pytest.mark.parametrize("length", [2_000, pytest.param(8_000, marks=LONG)])
def test_work_grows_with_the_text(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from guard.mentions import Lexicon

    read = [0]
    kinds, may_begin = Lexicon.kinds, Lexicon.may_begin

    def counted(function):
        def call(self, word, **more):
            read[0] += len(word)
            return function(self, word, **more)

        return call

    monkeypatch.setattr(Lexicon, "kinds", counted(kinds))
    monkeypatch.setattr(Lexicon, "may_begin", counted(may_begin))
    text = ("rain and old wool " * length)[:length]
    run = Run(chunked(text, [1] * length), Policy(hold="association"), ties)
    assert run.text() == text
    assert run.judged <= 2 * length
    assert read[0] <= 12 * length
