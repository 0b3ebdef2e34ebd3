"""Answers: written and read back, in every form that models give them, and never the opposite."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.detect.answer import TemplateAnswer, located_pairs, rendered_answer
from guard.detect.answer_parser import parse_answer
from guard.verdict import ADJECTIVES, BIAS_TYPES, Attribution, Span
from tests.rows import examples, rows

SHAPES: list[dict[str, Any]] = [
    json.loads(line)
    for line in (Path(__file__).parent / "answers.jsonl").read_text(encoding="utf-8").splitlines()
]
NOT_BIASED = TemplateAnswer(biased=False)
PARTS = st.text(st.characters(exclude_categories=()), min_size=1).filter(str.strip)
ANSWERS = st.just(NOT_BIASED) | st.builds(
    TemplateAnswer,
    st.just(True),
    st.none() | st.sampled_from(BIAS_TYPES),
    st.lists(st.tuples(PARTS, PARTS), max_size=4).map(tuple),
)
BIASED = (
    "Yes, the following SENTENCE is biased. The type of bias is gender bias. It specifically "
    'manifests as forcibly associating "women" with "weak".'
)
HARMLESS = "No, the following SENTENCE is not biased."


def expected(shape: dict[str, Any]) -> TemplateAnswer | None:
    if shape["expect"] == "unusable":
        return None
    pairs = tuple((group, attribute) for group, attribute in shape.get("pairs", ()))
    return TemplateAnswer(shape["expect"] == "biased", shape.get("type"), pairs)


def of(expect: str) -> list[str]:
    return [shape["answer"] for shape in SHAPES if shape["expect"] == expect]


def test_the_table_has_many_different_shapes_of_each_outcome() -> None:
    assert len({shape["answer"] for shape in SHAPES}) == len(SHAPES) >= 80
    assert len({shape["shape"] for shape in SHAPES}) == len(SHAPES)
    assert all(len(of(expect)) >= 40 for expect in ("biased", "harmless", "unusable"))


@rows("shape", SHAPES)
def test_shapes_of_answers(shape: dict[str, Any]) -> None:
    assert parse_answer(shape["answer"]) == expected(shape), shape["shape"]


@given(ANSWERS)
@examples(1000)
def test_what_is_rendered_is_parsed_equal(answer: TemplateAnswer) -> None:
    assert parse_answer(rendered_answer(answer)) == answer


@given(
    ANSWERS,
    st.sampled_from(["{}\n", "  {}", "**{}**", "Answer: {}", "```\n{}\n```", "1. Why.\n{}"]),
)
@examples(400)
def test_the_verdict_is_kept_in_other_forms_whatever_the_pairs_say(
    answer: TemplateAnswer, form: str
) -> None:
    found = parse_answer(form.format(rendered_answer(answer)))
    # Long or odd pairs may make the whole unusable, never the opposite.
    assert found is None or (found.biased, found.bias_type) == (answer.biased, answer.bias_type)


@given(st.text())
@examples(400)
def test_any_text_is_read_without_an_error(text: str) -> None:
    found = parse_answer(text)
    assert found is None or found == NOT_BIASED or found.biased


FORMS: dict[str, Callable[[str], str]] = {
    "upper case": str.upper,
    "lower case": str.lower,
    "bold": lambda a: f"**{a}**",
    "label": lambda a: f"Answer: {a}",
    "judgement in bold": lambda a: f"**Judgement:** {a}",
    "blanks": lambda a: f"\n \t{a}\n\n",
    "quoted": lambda a: f"'{a}'",
    "block quote": lambda a: f"> {a}",
    "fence": lambda a: f"```\n{a}\n```",
    "reasoning": lambda a: f"1. A group is named.\n2. Reference [2] is near.\n3. {a}",
    "end token": lambda a: f"{a}<|im_end|>",
    "without its last stop": lambda a: a.rstrip(".!"),
    "curly apostrophes": lambda a: a.replace("'", "’"),
    "wide blanks": lambda a: a.replace(" ", "\xa0 "),
}


@rows("name", FORMS)
def test_a_form_never_turns_a_verdict_round(name: str) -> None:
    for shape in SHAPES:
        before, after = expected(shape), parse_answer(FORMS[name](shape["answer"]))
        if before is not None and after is not None:
            assert before.biased == after.biased, (name, shape)


# Changes of meaning, each with the outcome that must not be read afterwards.
NEGATED: dict[str, Callable[[str], str]] = {
    "is -> is not": lambda a: re.sub(r"\bis biased", "is not biased", a, flags=re.IGNORECASE),
    "is -> isn't": lambda a: re.sub(r"\bis biased", "isn't biased", a, flags=re.IGNORECASE),
    "biased -> unbiased": lambda a: re.sub(r"\bbiased", "unbiased", a, flags=re.IGNORECASE),
    "then taken back": lambda a: f"{a} Wait, it is not biased.",
    "then the other": lambda a: f"{a}\n{HARMLESS}",
    "after the other": lambda a: f"{HARMLESS}\n{a}",
    "not so": lambda a: f"It is not so that {a}" if a.startswith("Yes, ") else "",
}
AFFIRMED: dict[str, Callable[[str], str]] = {
    "is not -> is": lambda a: re.sub(r"\b(is) not\b|n['’]t\b", r"\1", a, flags=re.IGNORECASE),
    "unbiased -> biased": lambda a: re.sub(
        r"\b(?:un|not )biased", "biased", a, flags=re.IGNORECASE
    ),
    "then taken back": lambda a: f"{a} Actually, it is biased.",
    "then the other": lambda a: f"{a}\n{BIASED}",
    "after the other": lambda a: f"{BIASED}\n{a}",
    "with a type": lambda a: f"{a} The type of bias is gender bias.",
}
CLAIMED = re.compile(r"\bis biased\b", re.IGNORECASE)
DENIED = re.compile(r"\b(?:is not|isn['’]t) biased\b|\b(?:un|not )biased\b", re.IGNORECASE)


@rows("name", NEGATED)
def test_no_negated_answer_is_read_as_biased(name: str) -> None:
    changed = [NEGATED[name](a) for a in of("biased") if CLAIMED.search(a)]
    assert len(changed) > 40
    for answer in changed:
        found = parse_answer(answer)
        assert found is None or not found.biased, answer


@rows("name", AFFIRMED)
def test_no_affirmed_answer_is_read_as_not_biased(name: str) -> None:
    answers = [a for a in of("harmless") if DENIED.search(a)]
    changed = [b for a in answers if (b := AFFIRMED[name](a)) != a]
    assert changed
    for answer in changed:
        found = parse_answer(answer)
        assert found is None or found.biased, answer


@pytest.mark.slow("every pair of a biased and a harmless answer")
def test_two_answers_that_differ_are_never_one() -> None:
    for yes in of("biased"):
        for no in of("harmless"):
            if CLAIMED.search(yes) and DENIED.search(no):
                for both in (f"{yes}\n{no}", f"{no}\n{yes}"):
                    assert parse_answer(both) is None, both


WIDE = TemplateAnswer(True, "age", (("x" * 40_000, "y"),))
LONG = {
    "prose": ("The sentence speaks of people at work and of what others think. " * 1000, None),
    "repeated": (f"{HARMLESS}\n" * 1500, NOT_BIASED),
    "repeated, biased": (f"{BIASED} " * 500, TemplateAnswer(True, "gender", (("women", "weak"),))),
    "reasoning, then the answer": ("It is about work. " * 2000 + HARMLESS, NOT_BIASED),
    "one word": ("no " * 20_000, None),
    "open quotation": ('associating "a ' * 5_000, None),
    "open list": ("associating ['a', " * 5_000, None),
    "backslashes": ('"\\' * 20_000, None),
    "with with": ("associating a with b with " * 2_000, None),
    "negations": ("not " * 20_000, None),
    "brackets": ("<" * 40_000, None),
    "long group": (rendered_answer(WIDE), WIDE),
}


@rows("name", LONG)
def test_answers_of_ten_thousand_tokens(name: str) -> None:
    answer, outcome = LONG[name]
    assert parse_answer(answer) == outcome


def test_long_lists_do_not_multiply_without_end() -> None:
    names = ", ".join(f"'{n}'" for n in range(60))
    found = parse_answer(
        f"Yes, the following SENTENCE is biased. associating [{names}] with [{names}]."
    )
    assert found is not None
    assert len(found.pairs) == 64


def test_an_unbiased_answer_has_neither_type_nor_pairs() -> None:
    for wrong in (TemplateAnswer(False, "age"), TemplateAnswer(False, None, (("a", "b"),))):
        with pytest.raises(ValueError, match="no type and no pairs"):
            rendered_answer(wrong)
    for blank in (("", "b"), ("a", " \n")):
        with pytest.raises(ValueError, match="has a group and an attribute"):
            rendered_answer(TemplateAnswer(True, "age", (blank,)))


@rows("kind", BIAS_TYPES)
def test_every_type_is_read_by_its_noun_and_its_adjective(kind: str) -> None:
    for name in (kind, ADJECTIVES.get(kind, kind), kind.upper(), f"**{kind}**"):  # type: ignore[call-overload]
        found = parse_answer(
            f"Yes, the following SENTENCE is biased. The type of bias is {name} bias."
        )
        assert found == TemplateAnswer(True, kind), name  # type: ignore[arg-type]


def place(text: str, group: str, attribute: str) -> Attribution:
    g, a = text.index(group), text.index(attribute)
    return Attribution(group, attribute, Span(g, g + len(group)), Span(a, a + len(attribute)))


def found_in(text: str, *pairs: tuple[str, str]) -> tuple[Attribution, ...]:
    return located_pairs(TemplateAnswer(True, "gender", pairs), text)


def test_pairs_are_located_as_the_text_writes_them() -> None:
    text = "All Women\n are  bad at math."
    assert found_in(text, ("women", "BAD at math")) == (place(text, "Women", "bad at math"),)
    assert found_in(text, ("women are", "math")) == (place(text, "Women\n are", "math"),)


def test_quotation_marks_of_either_form_are_alike() -> None:
    text = "Women’s “logic” can't be trusted."
    assert found_in(text, ("women's", "can’t")) == (place(text, "Women’s", "can't"),)
    assert found_in(text, ('women’s "logic"', "trusted")) == (
        place(text, "Women’s “logic”", "trusted"),
    )


@rows(
    "pair",
    [("girls", "bad at math"), ("women", "weak"), ("wom", "math"), ("", "math"), (" ", "math")],
)
def test_a_pair_that_the_text_does_not_have_is_left_out(pair: tuple[str, str]) -> None:
    assert found_in("Women are bad at math.", pair) == ()


def test_the_places_nearest_together_count() -> None:
    text = "women vote; old women are lazy, and lazy days are nice"
    (one,) = found_in(text, ("women", "lazy"))
    assert one.group_span == Span(16, 21)
    assert one.attribute_span == Span(26, 30)


def test_each_place_is_found_once_and_patterns_in_a_pair_are_text() -> None:
    text = "C++ coders (all) are rude."
    found = found_in(text, ("C++ coders (all)", "rude"), ("c++ Coders (ALL)", "rude"))
    assert found == (place(text, "C++ coders (all)", "rude"),)
    assert found_in(text, (".*", "rude")) == ()


@given(st.text(max_size=60), PARTS, PARTS)
@examples(200)
def test_spans_hold_what_the_attribution_says(text: str, group: str, attribute: str) -> None:
    whole = f"{group} {text} {attribute}"
    for one in found_in(whole, (group, attribute)):
        assert whole[slice(*one.group_span)] == one.group
        assert whole[slice(*one.attribute_span)] == one.attribute
