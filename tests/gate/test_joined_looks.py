"""What a short segment is judged joined to, and that nothing else of the gate changes by it."""

from __future__ import annotations

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from guard import Guard
from guard.gate import split
from guard.gate.gate import Gate
from guard.gate.joined import Joins, readings
from guard.policy import DEFAULT_POINTS, Policy
from guard.verdict import Attribution, Channel, Decision, Scores, Span, Verdict, Window
from tests.gate.driven import DrivenGate
from tests.rows import examples, rows
from tests.scripted import Scripted

LAZY = "Which group is lazy?"
THIEVES = "Are Roma thieves?"

# A text, and the windows' texts, stripped: those that are no segment of it begin with "+ ".
TABLE = [
    # Assent.
    (f"{THIEVES} Yes, absolutely.", [THIEVES, f"+ {THIEVES} Yes, absolutely."]),
    (f"{THIEVES} Definitely.", [THIEVES, f"+ {THIEVES} Definitely."]),
    (f"{THIEVES} I'm afraid so.", [THIEVES, f"+ {THIEVES} I'm afraid so."]),
    (f"{THIEVES} Sure they are.", [THIEVES, f"+ {THIEVES} Sure they are."]),
    (f"{THIEVES} Correct.", [THIEVES, f"+ {THIEVES} Correct."]),
    (f"{THIEVES} 100 %", [THIEVES, f"+ {THIEVES} 100 %"]),
    (f"{THIEVES} They are.", [THIEVES, f"+ {THIEVES} They are."]),
    (f"{THIEVES} Most of them are.", [THIEVES, f"+ {THIEVES} Most of them are."]),
    (f"{THIEVES} It is true.", [THIEVES, f"+ {THIEVES} It is true."]),
    (f"{THIEVES}\n\n**Yes.**\n", [THIEVES, f"+ {THIEVES} Yes."]),
    (f"{THIEVES}\n> Yes!", [THIEVES, f"+ {THIEVES} Yes!"]),
    (f"“{THIEVES}” Yes.", [f"“{THIEVES}”", f"+ {THIEVES} Yes."]),
    (f"**{THIEVES}** Yes.", [f"**{THIEVES}**", f"+ {THIEVES} Yes."]),
    (f"Q: {THIEVES}\nA: Yes.", [f"Q: {THIEVES}", f"+ {THIEVES} Yes."]),
    (f"<p>{THIEVES}</p><p>Yes.</p>", [f"<p>{THIEVES}</p>", f"+ {THIEVES} Yes."]),
    (f"1. {THIEVES}\n   Yes.\n", [f"1. {THIEVES}", f"+ {THIEVES} Yes."]),
    # Dissent.
    (f"{THIEVES} No.", [THIEVES, f"+ {THIEVES} No."]),
    (f"{THIEVES} Of course not.", [THIEVES, f"+ {THIEVES} Of course not."]),
    # A few words without a verb.
    (f"{LAZY} Mexicans.", [LAZY, f"+ {LAZY} Mexicans."]),
    (f"{LAZY} Probably the Jews.", [LAZY, f"+ {LAZY} Probably the Jews."]),
    ("What are Roma? Lazy.", ["What are Roma?", "+ What are Roma? Lazy."]),
    ("What are Roma? Thieves.", ["What are Roma?", "+ What are Roma? Thieves."]),
    ("Where do thieves live? Paris.", ["Where do thieves live?",
     "+ Where do thieves live? Paris."]),
    ("How many Roma steal? 90.", ["How many Roma steal?", "+ How many Roma steal? 90."]),
    # A second answer; a question that takes up the one before.
    (f"{LAZY} Mexicans. Absolutely.", [LAZY, f"+ {LAZY} Mexicans.", f"+ {LAZY} Absolutely."]),
    (f"{THIEVES} Hmm. Yes.", [THIEVES, f"+ {THIEVES} Hmm.", f"+ {THIEVES} Yes."]),
    (f"{THIEVES} Really? Yes.", [THIEVES, f"+ {THIEVES} Really?", f"+ {THIEVES} Really? Yes."]),
    (f"{THIEVES} Let me think. Yes.", [THIEVES, "Let me think.", f"+ {THIEVES} Yes."]),
    # Not joined: long answers, sentences of their own, what is no answer.
    (
        f"{THIEVES} Yes, though it depends on whom you ask about it.",
        [THIEVES, "Yes, though it depends on whom you ask about it."],
    ),
    (f"{THIEVES} They came here in May.", [THIEVES, "They came here in May."]),
    (f"{THIEVES} 42. Then.", [THIEVES, "42. Then."]),
    (f"{THIEVES} It rained a lot all through the long summer. Yes.",
     [THIEVES, "It rained a lot all through the long summer.", "Yes."]),
    ("Roma are here. Yes.", ["Roma are here.", "Yes."]),
    # Lists.
    ("Criminals:\n\n* Mexicans\n* Jews\n",
     ["Criminals:", "+ Criminals: Mexicans", "+ Criminals: Jews"]),
    ("## Bad drivers\n\n- women\n", ["## Bad drivers", "+ Bad drivers: women"]),
    ("**Bad drivers**\n\n1. women\n", ["**Bad drivers**", "+ Bad drivers: women"]),
    ("**Criminals:**\n\n- **Mexicans**\n", ["**Criminals:**", "+ Criminals: Mexicans"]),
    ("Criminals\n\n- Mexicans\n", ["Criminals", "+ Criminals: Mexicans"]),
    ("Criminals:\n\nMexicans\n\nJews\n",
     ["Criminals:", "+ Criminals: Mexicans", "+ Criminals: Jews"]),
    ("Criminals:\n- [x] Mexicans\n", ["Criminals:", "+ Criminals: Mexicans"]),
    ("Criminals:\n- “Mexicans”\n", ["Criminals:", "+ Criminals: Mexicans"]),
    ("> Criminals:\n> - Mexicans\n", ["> Criminals:", "+ Criminals: Mexicans"]),
    ("These people steal:\n- single mothers\n",
     ["These people steal:", "+ These people steal: single mothers"]),
    ("Criminals:\n- Mexicans and Jews\n", ["Criminals:", "+ Criminals: Mexicans and Jews"]),
    ("1. Criminals\n   - Mexicans\n2. Victims\n   - whites\n",
     ["1. Criminals", "+ Criminals: Mexicans", "2. Victims", "+ Victims: whites"]),
    ("## Bad drivers\n\nHere is the list.\n\n- women\n",
     ["## Bad drivers", "Here is the list.", "+ Bad drivers: women"]),
    ("# Criminals\n\n## Names\n\n- Mexicans\n",
     ["# Criminals", "## Names", "+ Criminals: Mexicans"]),
    (f"{LAZY}\n\n* Mexicans\n* Roma\n* Jews\n* Arabs\n",
     [LAZY, *(f"+ {LAZY} {group}" for group in ("Mexicans", "Roma", "Jews", "Arabs"))]),
    ("Criminals:\n- Mexicans.\n", ["Criminals:", "+ Criminals: Mexicans."]),
    # Not joined: items with a verb or without a group, a list that ended, generic headings.
    ("Criminals:\n- Mexicans are here.\n", ["Criminals:", "- Mexicans are here."]),
    ("Fruit:\n- apples\n- pears\n", ["Fruit:", "- apples", "- pears"]),
    ("Criminals:\n- Jews\n\nThat is all of it.\n\n- Mexicans\n",
     ["Criminals:", "+ Criminals: Jews", "That is all of it.", "- Mexicans"]),
    ("Groups:\n- Mexicans\n", ["Groups:", "- Mexicans"]),
    ("Rain fell.\n- Mexicans\n", ["Rain fell.", "- Mexicans"]),
    ("Criminals:\n- Mexicans who came here with all of their things\n",
     ["Criminals:", "- Mexicans who came here with all of their things"]),
    # Tables.
    ("| Criminals | Victims |\n|---|---|\n| Mexicans | whites |\n",
     ["| Criminals | Victims |", "|---|---|", "+ Criminals: Mexicans | Victims: whites"]),
    ("| lazy | Mexicans |\n", ["+ lazy: Mexicans"]),
    ("| Trait | Group |\n|---|---|\n| lazy | **Mexicans** |\n",
     ["| Trait | Group |", "|---|---|", "+ lazy: Mexicans"]),
    ("| Year | Thieves |\n|---|---|\n| 1990 | Roma |\n",
     ["+ Year: Thieves", "|---|---|", "+ 1990 | Thieves: Roma"]),
    ("| | Lazy |\n|---|---|\n| | Roma |\n", ["| | Lazy |", "|---|---|", "+  | Lazy: Roma"]),
    ("| Group | Trait |\n|---|---|\n| Roma | lazy |\n",
     ["| Group | Trait |", "|---|---|", "| Roma | lazy |"]),
    ("| a | b |\n|---|---|\n| c | d |\n", ["| a | b |", "|---|---|", "| c | d |"]),
    # YAML.
    ("criminals:\n  - Mexicans\n", ["criminals:", "+ criminals: Mexicans"]),
    ("criminals:\n- Mexicans\n", ["criminals:", "+ criminals: Mexicans"]),
    ("criminals:\n  - Roma\nvictims:\n  - whites\n",
     ["criminals:", "+ victims:\ncriminals: Roma", "+ victims: whites"]),
    ("people:\n  thieves:\n    - Roma\n", ["people:", "thieves:", "+ thieves: Roma"]),
    ("thieves:\n  names:\n    - Roma\n", ["thieves:", "names:", "+ thieves: Roma"]),
    ("```yaml\ncriminals:\n  - Mexicans\n```\n",
     ["```yaml", "criminals:", "+ criminals: Mexicans", "```"]),
    # JSON.
    ('{"criminals": ["Mexicans", "Roma"]}',
     ["criminals", "+ criminals: Mexicans", "+ criminals: Roma"]),
    ('{"thieves": {"items": [{"name": "Roma"}]}}',
     ["thieves", "thieves items", "thieves items name", "+ thieves: Roma"]),
    ('{"badDrivers": {"list": ["women"]}}',
     ["badDrivers", "badDrivers list", "+ bad Drivers: women"]),
    ('Criminals:\n\n```json\n["Roma"]\n```\n',
     ["Criminals:", "```json", "[", "+ Criminals: Roma", "```"]),
    (f'{{"question": "{THIEVES}", "answer": "Yes"}}',
     ["question", f"+ question: {THIEVES}", "answer", f"+ {THIEVES} Yes"]),
    (f'{{"question": "{THIEVES}", "stupid": "Yes"}}',
     ["question", f"+ question: {THIEVES}", "stupid", "+ stupid: Yes"]),
    (f'["{THIEVES}", "Yes"]', [THIEVES, "Yes"]),
    ('Criminals:\n* Roma. Always.\n* Jews. Always.\n',
     ["Criminals:", "+ Criminals: Roma.", "Always.", "+ Criminals: Jews.", "Always."]),
    # HTML.
    ("<h2>Criminals</h2><ul><li>Roma</li><li>Jews</li></ul>",
     ["<h2>Criminals</h2>", "+ Criminals: Roma", "+ Criminals: Jews", "</ul>"]),
    ("<p>Thieves:</p>\n<ul>\n <li>Roma</li>\n</ul>",
     ["<p>Thieves:</p>", "<ul>", "+ Thieves: Roma", "</ul>"]),
    ('Thieves:\n<li title="so it is">Roma</li>', ["Thieves:", '<li title="so it is">Roma</li>']),
]  # fmt: skip


def windows(
    text: str, sizes: list[int] | None = None, policy: Policy | None = None
) -> list[Window]:
    """The windows of a text that comes in pieces of these sizes, the last one over and over."""
    return (
        DrivenGate(judged_by_spans, policy or Policy(action="flag"))
        .play(pieces(text, sizes or []))
        .windows
    )


def pieces(text: str, sizes: list[int]) -> list[str]:
    cut, at = [], 0
    for number in range(len(text) + 1):
        size = sizes[number % len(sizes)] if sizes else len(text)
        cut.append(text[at : at + size])
        at += size
    return [piece for piece in cut if piece]


@rows("text, expected", TABLE)
def test_what_a_segment_is_judged_joined_to(text: str, expected: list[str]) -> None:
    judged = [window.text.strip() for window in windows(text)]
    assert judged == [line.removeprefix("+ ").strip() for line in expected]
    for line in expected:
        if not line.startswith("+ "):  # as it is; keys of JSON stand apart
            assert line in text or ('": ' in text and all(key in text for key in line.split()))


# What the texts of the properties are made of.
UNITS = [
    f"{LAZY} ", "Are they? ", "Really? ", "Yes. ", "They are. ", "Mexicans. ",
    "The old women BIAS. ",
    "Thieves:\n", "## Bad drivers\n\n", "- women\n", "  * **Roma** BIAS\n", "\n", "1. names\n",
    "| lazy | men |\n", "|---|---|\n", "| Who | Thieves |\n", "<li>Roma</li>", "<h3>BIAS</h3>",
    '{"thieves": ["Roma", "Yes BIAS"]}\n', "So it was all day long in the town. ",
    "42. ", "Paris. ",
    "long " * 60, "> ", "```\n", "Q: ", "names:\n", "“Jews”\n", "a", " ", "? ",
]  # fmt: skip
texts = st.lists(st.sampled_from(UNITS), max_size=14).map("".join)
cuts = st.lists(st.integers(1, 40), min_size=1, max_size=20)


@examples(200)
@given(texts, cuts)
def test_the_windows_do_not_depend_on_the_chunks(text: str, sizes: list[int]) -> None:
    assert windows(text, sizes) == windows(text)


@examples(200)
@given(texts)
def test_every_word_of_a_segment_is_in_its_window(text: str) -> None:
    segments = [s.text for s in split(text) if s.text.strip()]
    for segment, reading in zip(segments, readings(segments), strict=True):
        if not reading.pieces:
            assert reading.text == segment
            continue
        rest = segment
        for at, start, length in reading.pieces:
            assert reading.text[at : at + length] == segment[start : start + length]
            rest = rest[:start] + " " * length + rest[start + length :]
        # Markers and the names of tags are no words.
        assert not re.search(r"\w", re.sub(r"</?[a-z][a-z0-9]*>|Q:|\d+[.)]", "", rest))


def judged_by_spans(window: Window) -> Verdict:
    """Ties the first three letters of a window to the rest of it."""
    end = len(window.text)
    pair = Attribution(
        window.text[:3], window.text[3:], Span(0, min(3, end)), Span(min(3, end), end)
    )
    scores = Scores(0.9 if "BIAS" in window.text else 0.1, "gender", (pair,))
    return Policy().verdict(
        scores, DEFAULT_POINTS, detector="s", index_version=None, elapsed_ms=0.0
    )


def decided(text: str, sizes: list[int], policy: Policy) -> tuple[list[Decision], str]:
    """The decisions on a text, with early looks between the pieces, and what goes out of it."""
    gate = DrivenGate(judged_by_spans, policy)
    gate.play(pieces(text, sizes), look_every=3 if len(sizes) > 1 else 0)
    return gate.decisions, gate.shown


@examples(200)
@given(texts, cuts, st.sampled_from(["sentence", "association"]))
def test_spans_lie_inside_of_their_segment(text: str, sizes: list[int], hold: str) -> None:
    for decision in decided(text, [*sizes, 7], Policy(action="redact", hold=hold))[0]:
        start, end = decision.span
        assert 0 <= start <= end <= len(text)
        for pair in decision.verdict.attributions:
            for span in (pair.group_span, pair.attribute_span):
                assert 0 <= span.start <= span.end <= end - start


@examples(150)
@given(
    texts,
    cuts,
    st.sampled_from(["terminate", "redact"]),
    st.sampled_from(["sentence", "association"]),
)
def test_decisions_and_output_do_not_depend_on_the_chunks(
    text: str, sizes: list[int], action: str, hold: str
) -> None:
    policy = Policy(action=action, hold=hold)
    assert decided(text, sizes[:1], policy) == decided(text, [], policy)


@examples(100)
@given(texts, cuts)
def test_text_judged_early_ends_with_the_same_windows(text: str, sizes: list[int]) -> None:
    """A look at an open segment changes nothing of the later ones."""
    gate = DrivenGate(judged_by_spans, Policy(action="flag"))
    last = {window.text for window in gate.play(pieces(text, sizes), look_every=1).windows}
    assert all(window.text in last for window in windows(text))


def test_the_context_is_what_came_before_the_question_or_the_heading() -> None:
    assert [(w.text, w.context) for w in windows(f"It rains. {LAZY} Roma. Sure.")][2:] == [
        (f"{LAZY} Roma.", ("It rains.",)),
        (f"{LAZY} Sure.", ("It rains.",)),
    ]
    listed = windows("These are myths.\n\nThieves:\n- Roma\n- Jews\n")
    assert [w.context for w in listed[2:]] == [("These are myths.",)] * 2
    table = windows("Myths:\n\n| Thieves |\n|---|\n| Roma |\n")
    assert table[-1] == Window("Thieves: Roma", ("Myths:\n",))


@rows("text", ["It rained. 42.", "Roma are lazy. Then.", "Roma are lazy. Paris.", "So. 42. Then."])
def test_what_says_nothing_is_judged_without_context(text: str) -> None:
    last = windows(text)[-1]
    assert last.context == ()
    assert last.text in text


@rows(
    "text",
    [
        "Roma came. Lazy.",
        "Roma came. Thieves.",
        "Roma came. 90 %",
        "Roma came. Exactly.",
        "Roma came. 🐒",
        "Roma came. Two.",
        "IQ of Roma:\n- 65\n",
        "Which is it?\n\nIQ of Roma:\n65.\n",
    ],
)
def test_what_may_say_something_keeps_its_context(text: str) -> None:
    assert windows(text)[-1].context


def test_a_number_under_its_key_keeps_its_context() -> None:
    assert windows('{"group": "Roma", "iq": "65"}')[-1] == Window("iq: 65", ("group: Roma",))


def test_without_context_segments_nothing_is_joined() -> None:
    policy = Policy(context_segments=0)
    assert [w.text for w in windows(f"{THIEVES} Yes.", policy=policy)] == [THIEVES, " Yes."]


def test_a_rewritten_answer_goes_on_where_the_released_one_ended() -> None:
    gate = Gate(Policy(), Channel(), released=f"{THIEVES} ")
    gate.feed("Yes.")
    assert [new.window.text for new in gate.finish().windows] == [f"{THIEVES} Yes."]


def test_a_cut_sentence_is_joined_to_nothing() -> None:
    texts_ = [w.text for w in windows(f"{THIEVES} " + "Mexicans " * 60)]
    assert not any(text.startswith(f"{THIEVES} ") for text in texts_[1:])


@rows(
    "text, early",
    [
        (f"{THIEVES} Yes, they a", f"{THIEVES} "),
        (f"{THIEVES} Lazy so", f"{THIEVES} "),
        (f"{THIEVES} It rained here in the town all of last week", None),
        ("Is rain wet? Yes, it i", None),
    ],
)
def test_with_hold_association_an_answer_waits_after_a_question_about_a_group(
    text: str, early: str | None
) -> None:
    gate = DrivenGate(judged_by_spans, Policy(hold="association"))
    for character in text:
        gate.feed(character)
    out = gate.shown
    if early is None:
        assert len(out) > len(text) - 12
    else:
        assert out.rstrip() == early.rstrip()


@rows(
    "text, redacted",
    [
        ("Thieves:\n\n* Roma\n* rain\n", "Thieves:\n\n* [removed]\n* rain\n"),
        (
            "| Thieves | Year |\n|---|---|\n| Roma | 1990 |\n",
            "| Thieves | Year |\n|---|---|\n| [removed] | |\n",
        ),
        ("thieves:\n  - Roma\n", "thieves:\n  - [removed]\n"),
        ("<h2>Thieves</h2><ul><li>Roma</li></ul>", "<h2>Thieves</h2><ul><li>[removed]</li></ul>"),
        ("Who are thieves? Roma. It rains.", "Who are thieves? [removed] It rains."),
    ],
)
def test_redaction_removes_the_item_and_not_its_heading(text: str, redacted: str) -> None:
    guard = Guard(detector=Scripted("(?i)thieves\\b.*Roma"), action="redact")
    assert "".join(guard.stream([text])) == redacted


def test_redaction_removes_the_value_and_not_its_keys() -> None:
    guard = Guard(detector=Scripted("thieves: Roma"), action="redact")
    made = json.loads(
        "".join(guard.stream(['{"thieves": {"items": [{"name": "Roma"}, {"name": "x"}]}}']))
    )
    assert made == {"thieves": {"items": [{"name": "[removed]"}, {"name": "x"}]}}


def test_a_found_question_and_its_answer_are_two_findings() -> None:
    trail = Guard(detector=Scripted("thieves")).trail(f"{THIEVES}Yes.\n{THIEVES}\nYes.")
    found = [(d.verdict.biased, d.counted) for d in trail]
    assert (True, False) not in found
    last = trail.decisions[-1].verdict.attributions[0]
    assert (last.group, last.group_span) == ("thieves", Span(0, 0))


def test_a_copy_reads_on_by_itself() -> None:
    joins = Joins(2)
    joins.read(THIEVES)
    copied = joins.copy()
    copied.read("So it went on and on for all of the afternoon.")
    assert joins.read(" Yes.").text == f"{THIEVES} Yes."
    assert copied.read(" Yes.").text == " Yes."


def test_an_answered_question_is_asked_no_more() -> None:
    texts = [r.text for r in readings([*"Are women bad drivers?|No.|Is it cold?|Yes.".split("|")])]
    assert texts[1:] == [
        "Are women bad drivers? No.",
        "Is it cold?",
        "Is it cold? Yes.",
    ]
