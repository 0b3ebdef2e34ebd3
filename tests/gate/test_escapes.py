"""JSON escapes are judged as what they stand for, however the text is chunked."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from hypothesis import example, given
from hypothesis import strategies as st

from guard.gate.escapes import Escapes
from guard.policy import DEFAULT_POINTS, Policy
from guard.verdict import Attribution, Channel, ChannelKind, Scores, Span, Verdict
from tests.gate.driven import DrivenGate
from tests.rows import rows

TOOL = Channel(0, "tool", 0)
CHARACTERS = st.text(alphabet='Wéx \n\t"\\/\U0001f600\ud83d\ude00u0057{', max_size=40)


def read(text: str, sizes: Sequence[int] = (10**9,), *, letters: bool = True) -> str:
    escapes = Escapes(letters=letters)
    made, at, turn = "", 0, 0
    while at < len(text):
        size = sizes[turn % len(sizes)]
        made += escapes.feed(text[at : at + size])
        assert len(escapes.pending) <= 42
        at, turn = at + size, turn + 1
    return made + escapes.finish()


def escaped(text: str) -> str:
    return "".join(f"\\u{ord(c):04x}" for c in text)


@rows(
    "raw, reading",
    [
        ("plain", "plain"),
        (r"\u0057omen", "Women"),
        (r"\\u0057omen", "Women"),
        (r"\\\\\\\\u0057omen", "Women"),
        (r"a\nb\tc\"d\/e", 'a\nb\tc"d/e'),
        (r"\ud83d\ude00!", "\U0001f600!"),
        (r"\\ud83d\\ude00!", "\U0001f600!"),
        (r"\ud83d!", "\ufffd!"),
        (r"\ude00\ud83d", "\ufffd\ufffd"),
        (r"\ud83d\n", "\ufffd\n"),
        (r"\d+ \U0057 \u12", r"\d+ \U0057 \u12"),
        ("\\", "\\"),
        ("\\" * 40 + "n", "\\" * 12 + "\n"),
        (r"\\d \\\\P", r"\d \\P"),
    ],
)
def test_an_escape_is_read_as_the_character_it_encodes(raw: str, reading: str) -> None:
    assert read(raw) == reading
    assert read(raw, [1]) == reading


def test_prose_is_read_without_the_escapes_of_single_letters() -> None:
    assert read(r"\nu = \frac{1}{2} \u0057", letters=False) == r"\nu = \frac{1}{2} W"


@given(CHARACTERS, st.integers(1, 3))
def test_nested_json_escapes_are_decoded(text: str, depth: int) -> None:
    # Backslashes of the text itself are taken for escapes: the same text in deeper JSON.
    text = re.sub(r"[\\\ud800-\udfff]", "", text)
    raw = text
    for _ in range(depth):
        raw = json.dumps(raw)[1:-1]
    assert read(raw) == text


@given(
    st.lists(st.sampled_from([*'\\\\\\\\u00dD8e57nab "', "\\u0057", "\\ud83d", "\\ude00"])),
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
    st.booleans(),
)
def test_the_reading_does_not_depend_on_the_chunks(
    pieces: list[str], sizes: list[int], letters: bool
) -> None:
    text = "".join(pieces)
    assert read(text, sizes, letters=letters) == read(text, letters=letters)


@given(st.lists(st.sampled_from(["W", " ", "\\u0057", "\\n", "\\ud83d\\ude00", "\\"])), st.data())
def test_places_of_the_reading_lead_to_places_of_the_text(
    pieces: list[str], data: st.DataObject
) -> None:
    text = "".join(pieces)
    escapes = Escapes()
    reading = escapes.feed(text) + escapes.finish()
    places = [escapes.sent(at) for at in range(len(reading) + 1)]
    assert places[0] == 0
    assert places[-1] == len(text)
    assert places == sorted(set(places))
    for at, character in enumerate(reading):
        assert read(text[places[at] : places[at + 1]]) == character
    before = data.draw(st.integers(0, len(reading)))
    escapes.forget(before)
    assert [escapes.sent(at) for at in range(before, len(reading) + 1)] == places[before:]


# Through the gate of a channel.


def verdict_on(text: str) -> Verdict:
    found = re.search("Women are", text)
    scores = Scores(0.1, "social")
    if found:
        place = Span(*found.span())
        scores = Scores(0.9, "gender", (Attribution("women", "are", place, place),))
    return Policy().verdict(scores, DEFAULT_POINTS, detector="d", index_version="i", elapsed_ms=0)


def judged(
    text: str, sizes: Sequence[int], kind: ChannelKind = "tool", action: str = "terminate"
) -> tuple[str, list[tuple[str, Span, float | None]], list[str]]:
    """Return what is let out, the decisions, and the passages that attributions point at."""
    policy = Policy(action=action)  # type: ignore[arg-type]
    driven = DrivenGate(lambda window: verdict_on(window.text), policy, Channel(0, kind))
    at, turn, most = 0, 0, 0
    while at < len(text) and not driven.gate.stopped:
        size = sizes[turn % len(sizes)]
        driven.feed(text[at : at + size])
        at, turn = min(at + size, len(text)), turn + 1
        most = max(most, at - driven.taken - size)
    driven.settle(driven.gate.finish())
    assert driven.gate.stopped or (driven.taken == len(text) and driven.gate.is_drained)
    limits = policy.max_segment_chars + policy.overlap + policy.lookahead
    assert most <= 6 * limits + 42
    passages = [
        text[slice(*pair.group_span.shifted(decision.span.start))]
        for decision in driven.decisions
        for pair in decision.verdict.attributions
    ]
    decisions = [(d.action, d.span, d.verdict.score) for d in driven.decisions]
    return driven.shown, decisions, passages


@example("All is well", 2, [1])
@given(
    st.text(alphabet="ab .é\U0001f600\n", max_size=400),
    st.integers(1, 2),
    st.lists(st.integers(1, 50), min_size=1, max_size=5),
)
def test_escaped_arguments_are_judged_decoded(before: str, depth: int, sizes: list[int]) -> None:
    raw = escaped("Women are")
    for _ in range(depth - 1):
        raw = json.dumps(raw)[1:-1]
    head = json.dumps({"text": before})[:-2]
    text = f'{head}. {raw} weak."}}'
    out, decisions, passages = judged(text, sizes)
    assert raw[:6] not in out[len(head) :]
    assert decisions[-1][0] == "terminate"
    assert set(passages) == {raw}
    assert (out, decisions, passages) == judged(text, [10**9])


@given(st.lists(st.integers(1, 50), min_size=1, max_size=5), st.sampled_from(["flag", "redact"]))
def test_escapes_in_a_text_are_judged_and_replaced_where_they_were_sent(
    sizes: list[int], action: str
) -> None:
    biased = f"{escaped('Women')} are weak."
    out, _, passages = judged(f"Well. {biased} So.", sizes, "content", action)
    instead = biased if action == "flag" else Policy().replacement
    assert out == f"Well. {instead} So."
    assert passages == [f"{escaped('Women')} are"]


def test_free_text_of_a_tool_is_judged_unchanged() -> None:
    out, _, _ = judged(r"C:\data \d+. Women are weak.", [3])
    assert out == r"C:\data \d+. "


def test_many_escapes_are_forgotten_once_they_are_judged() -> None:
    driven = DrivenGate(lambda window: verdict_on(window.text), channel=TOOL)
    for _ in range(500):
        driven.feed(escaped("It is so. "))
    assert len(driven.gate._escapes._after) < 1000
