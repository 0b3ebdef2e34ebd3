from __future__ import annotations

from typing import Any

import pytest

from guard.errors import UsageError
from guard.local.options import DEFAULT_MAX_TOKENS, GenerationOptions, NotOffered, read_options


def test_nothing_asked_for_is_greedy_and_bounded() -> None:
    assert (
        read_options({})
        == GenerationOptions()
        == GenerationOptions(max_tokens=DEFAULT_MAX_TOKENS, temperature=0)
    )


def test_what_is_asked_for_is_read() -> None:
    found = read_options(
        {
            "max_completion_tokens": 7,
            "temperature": 1,
            "top_p": 0.9,
            "top_k": 5,
            "seed": -1,
            "stop": "x",
        }
    )
    assert found == GenerationOptions(7, 1.0, 0.9, 5, -1, ("x",))


@pytest.mark.parametrize(
    "harmless",
    [
        {"user": "u", "stream": True, "stream_options": {"include_usage": True}},
        {"n": 1, "logprobs": False, "tools": [], "frequency_penalty": 0.0, "extra_body": {}},
        {"response_format": {"type": "text"}, "modalities": ["text"], "tool_choice": "none"},
        {"tools": None, "n": None},
    ],
)
def test_what_changes_nothing_is_ignored(harmless: dict[str, Any]) -> None:
    assert read_options(harmless) == GenerationOptions()


@pytest.mark.parametrize(
    "asked",
    [
        {"n": 2},
        {"tools": [{"type": "function"}]},
        {"response_format": {"type": "json_object"}},
        {"top_logprobs": 3},
        {"logit_bias": {"5": 1}},
        {"min_p": 0.1},
    ],
)
def test_what_would_change_the_answer_is_refused_by_name(asked: dict[str, Any]) -> None:
    with pytest.raises(NotOffered, match=next(iter(asked))):
        read_options(asked)


@pytest.mark.parametrize(
    "asked",
    [
        {"max_tokens": 0},
        {"max_tokens": 1.5},
        {"max_tokens": True},
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"top_p": 0},
        {"top_p": 1.1},
        {"top_k": 0},
        {"seed": "x"},
        {"stop": ["a", ""]},
        {"stop": 3},
    ],
)
def test_values_out_of_range_are_refused_by_name(asked: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(asked))):
        read_options(asked)
