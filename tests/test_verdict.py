"""Verdicts, decisions and trails as plain values, and the sentence of a verdict."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timezone

import pytest

from guard.policy import unjudged_verdict
from guard.verdict import (
    Attribution,
    Channel,
    Decision,
    GuardTrail,
    Reference,
    Span,
    Verdict,
)

BIASED = Verdict(
    biased=True,
    score=0.9,
    threshold=0.5,
    bias_type="age",
    attributions=(Attribution("Old people", "useless at work", Span(0, 10), Span(15, 30)),),
    references=(Reference("Old people are slow.", "age", "old people", "slow", 0.8),),
    detector="encoder",
    index_version=None,
    elapsed_ms=4.0,
)
UNJUDGED = unjudged_verdict("failure", detector="encoder", index_version="6c3c", elapsed_ms=1.0)


def test_a_verdict_as_plain_values() -> None:
    assert BIASED.to_dict() == {
        "biased": True,
        "score": 0.9,
        "threshold": 0.5,
        "bias_type": "age",
        "attributions": [
            {
                "group": "Old people",
                "attribute": "useless at work",
                "group_span": [0, 10],
                "attribute_span": [15, 30],
            }
        ],
        "references": [
            {
                "statement": "Old people are slow.",
                "bias_type": "age",
                "group": "old people",
                "attribute": "slow",
                "similarity": 0.8,
            }
        ],
        "detector": "encoder",
        "index_version": None,
        "elapsed_ms": 4.0,
        "unjudged": None,
        "implied": None,
        "second_score": None,
        "judgement": BIASED.judgement,
    }


def test_what_was_not_judged_has_neither_score_nor_threshold() -> None:
    found = UNJUDGED.to_dict()
    assert (found["score"], found["threshold"], found["unjudged"]) == (None, None, "failure")


def test_a_trail_as_plain_values() -> None:
    decision = Decision(
        "terminate",
        BIASED,
        Channel(1, "tool", 2),
        Span(3, 40),
        time=datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc),
        model="m",
        labels={"tenant": "a"},
    )
    trail = GuardTrail([decision, Decision("flag", UNJUDGED, Channel(), Span(40, 44))])
    found = trail.to_dict()
    assert (found["biased"], found["stopped"], found["rewrites"]) == (True, True, 0)
    assert found["decisions"][0] == {
        "action": "terminate",
        "verdict": BIASED.to_dict(),
        "channel": {"choice": 1, "kind": "tool", "tool": 2},
        "span": [3, 40],
        "counted": True,
        "time": "2026-01-02T03:04:05+00:00",
        "model": "m",
        "request_id": None,
        "labels": {"tenant": "a"},
    }


@pytest.mark.parametrize(
    "value",
    [
        BIASED,
        UNJUDGED,
        Decision("flag", UNJUDGED, Channel(), Span(0, 1)),
        GuardTrail([Decision("flag", BIASED, Channel(), Span(0, 1))]),
    ],
)
def test_json_says_the_same(value: Verdict | Decision | GuardTrail) -> None:
    def refused(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    assert json.loads(value.to_json(), parse_constant=refused) == value.to_dict()


def pair(group: str, attribute: str) -> Attribution:
    return Attribution(group, attribute, Span(0, 1), Span(2, 3))


@pytest.mark.parametrize(
    ("verdict", "sentence"),
    [
        (UNJUDGED, "The text was not judged."),
        (replace(BIASED, biased=False, bias_type=None), "No, the text is not biased."),
        (
            BIASED,
            "Yes, the text is biased. The type of bias is age bias: it ties “Old people” to "
            "“useless at work”.",
        ),
        (
            replace(BIASED, bias_type="race", attributions=()),
            "Yes, the text is biased. The type of bias is racial bias.",
        ),
        (
            replace(BIASED, attributions=(pair("a", "b"), pair("c", "d"), pair("e", "f"))),
            "Yes, the text is biased. The type of bias is age bias: it ties “a” to “b”, “c” to “d” "
            "and “e” to “f”.",
        ),
    ],
)
def test_the_sentence_of_a_verdict(verdict: Verdict, sentence: str) -> None:
    assert verdict.judgement == sentence
