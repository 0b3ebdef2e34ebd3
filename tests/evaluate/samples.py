"""Examples and answers made up for tests, with figures worked out by hand."""

from __future__ import annotations

import random

from guard.evaluate.columns import Prediction
from guard.evaluate.example import Example
from guard.verdict import Attribution, Span


def pair(group: str, attribute: str) -> tuple[Attribution, ...]:
    return (Attribution(group, attribute, Span(0, 1), Span(0, 1)),)


def told(number: int, biased: bool | None, **known: object) -> Example:
    return Example("some words here", biased, f"t:{number}", **known)  # type: ignore[arg-type]


def worked() -> tuple[list[Example], list[Prediction]]:
    """Five biased texts (3 found, 1 not, 1 unjudged), five harmless (4 right, 1 found biased)."""
    terms = {"groups": ("pilots",), "attributes": ("late",)}
    examples = [
        told(0, True, bias_types=("social",), **terms),
        told(1, True, bias_types=("social", "gender"), **terms),
        told(2, True, bias_types=("age",), groups=("nurses",)),
        told(3, True, bias_types=("age",)),
        told(4, True, bias_types=("age",)),
        *(told(i, False) for i in range(5, 10)),
    ]
    answers = [
        Prediction(0.9, True, "social", pair("pilots", "always late")),  # right on everything
        Prediction(0.8, True, "gender", pair("pilots", "early")),  # type right, attribute not
        Prediction(0.7, True, "race", pair("a nurse", "kind")),  # type wrong, group right
        Prediction(0.2, False),  # miss
        Prediction(0.0, False, reason="language"),
        Prediction(0.6, True, "race"),  # false positive
        Prediction(0.4, False),
        Prediction(0.3, False),
        Prediction(0.2, False),
        Prediction(0.1, False),
    ]
    return examples, answers


def many(count: int, seed: int = 0) -> tuple[list[Example], list[Prediction]]:
    """Random texts with every kind of knowledge, pairs and unjudged ones among them."""
    rng = random.Random(seed)
    examples, answers = [], []
    for i in range(count):
        biased = rng.random() < 0.6
        score = round(min(max(rng.gauss(0.6 if biased else 0.4, 0.2), 0), 1), 2)
        said = score >= 0.5
        paired = i < count // 2
        examples.append(
            Example(
                "old dogs sleep late",
                None if rng.random() < 0.1 else biased,
                f"t:{i}",
                bias_types=rng.choice([(), ("age",), ("age", "race")]),
                groups=rng.choice([(), ("dogs",)]),
                attributes=rng.choice([(), ("late",)]),
                attribute_spans=rng.choice([(), (Span(9, 19),)]),
                unit=f"u{i // 2}" if paired else "",
                role=("more" if i % 2 == 0 else "less") if paired else "",
            )
        )
        found = Attribution("dogs", rng.choice(["late", "early"]), Span(4, 8), Span(15, 19))
        reason = "language" if rng.random() < 0.05 else ""
        answers.append(
            Prediction(score, said, rng.choice(["age", "race"]), (found,) if said else (), reason)
        )
    return examples, answers
