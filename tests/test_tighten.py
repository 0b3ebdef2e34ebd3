"""A policy that counts as tighter lets nothing out that the other would have stopped or marked."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from guard.config import merge_settings, policy_from
from guard.errors import ConfigError
from guard.gate.second_look import settled
from guard.policy import DEFAULT_POINTS, Policy, unjudged_verdict
from guard.tighten import loosened_settings, tightened_policy
from guard.verdict import BIAS_TYPES, Action, Scores
from tests.rows import rows

CHANNELS = ("content", "reasoning", "tool")
ACTIONS = ("flag", "redact", "rewrite", "terminate", "raise")
RANK: dict[Action, int] = {
    **{"pass": 0, "flag": 1, "redact": 2, "rewrite": 3},
    **{"terminate": 4, "raise": 4},
}

often_looser = settings(suppress_health_check=[HealthCheck.filter_too_much])
probability = st.sampled_from([0.0, 0.2, 0.3, 0.5, 0.6, 0.7, 1.0])
places = st.sampled_from([*BIAS_TYPES[:3], *CHANNELS, "reasoning.gender", "tool.race"])
SETTINGS: dict[str, st.SearchStrategy[Any]] = {
    "operating_point": st.sampled_from(["strict", "balanced", "quiet"]),
    "threshold": probability | st.none(),
    "thresholds": st.dictionaries(st.sampled_from(BIAS_TYPES[:3]), probability, max_size=2),
    "action": st.sampled_from(ACTIONS),
    "actions": st.dictionaries(places, st.sampled_from(ACTIONS), max_size=3),
    "scope": st.sampled_from(["choice", "response"]),
    "hold": st.sampled_from(["sentence", "association", "none"]),
    "failure": st.sampled_from(["closed", "open"]),
    "language": st.sampled_from(["pass", "judge", "stop"]),
    "timeout_ms": st.sampled_from([1.0, 100.0, 5000.0, None]),
    "queue_ms": st.sampled_from([1.0, 100.0, 5000.0, None]),
    "second_look": st.booleans(),
    "second_look_threshold": probability | st.none(),
    "second_look_ms": st.sampled_from([1.0, 2000.0, None]),
    "context_segments": st.sampled_from([0, 2]),
    "message": st.sampled_from(["stop", "halt"]),
}
labels = st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from(["1", "2"]))
values = st.fixed_dictionaries({}, optional=SETTINGS)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    given_ = draw(values)
    if given_.get("hold") == "none":
        for name in ("action", "actions", "failure", "language"):
            given_.pop(name, None)
    return policy_from(given_)


@often_looser
@given(policies(), policies())
def test_a_tighter_policy_acts_at_least_as_strictly_on_every_verdict(
    base: Policy, asked: Policy
) -> None:
    assume(not loosened_settings(base, asked, DEFAULT_POINTS))
    for channel in CHANNELS:
        for bias_type in BIAS_TYPES[:5]:
            for score in (0.1, 0.25, 0.4, 0.55, 0.65, 0.9):
                before, after = (
                    p.action_on(
                        p.verdict(
                            Scores(score, bias_type),
                            DEFAULT_POINTS,
                            detector="d",
                            index_version="",
                            elapsed_ms=0,
                        ),
                        channel,  # type: ignore[arg-type]
                    )
                    for p in (base, asked)
                )
                assert RANK[after] >= RANK[before]
                if before in ("terminate", "raise"):
                    assert ends_response(asked, after) >= ends_response(base, before)
        for reason in ("failure", "overload", "language"):
            verdict = unjudged_verdict(reason, detector="d", index_version="", elapsed_ms=0)  # type: ignore[arg-type]
            before, after = (p.action_on(verdict, channel) for p in (base, asked))  # type: ignore[arg-type]
            assert RANK[after] >= RANK[before]
            if before != "pass":
                assert ends_response(asked, after) >= ends_response(base, before)


@given(labels, labels)
def test_a_request_adds_labels_and_changes_none_of_the_owner(
    own: dict[str, str], asked: dict[str, str]
) -> None:
    base = policy_from({"labels": own})
    if any(asked.get(name, text) != text for name, text in own.items()):
        with pytest.raises(ConfigError, match="this would loosen labels"):
            tightened_policy(base, {"labels": asked}, DEFAULT_POINTS, where="guard")
    else:
        found = tightened_policy(base, {"labels": asked}, DEFAULT_POINTS, where="guard")
        assert found.labels == {**own, **asked}


def ends_response(policy: Policy, action: Action) -> bool:
    return action == "raise" or policy.scope == "response"


@often_looser
@given(
    policies(),
    policies(),
    st.sampled_from([0.5, 50.0, 2000.0, 10_000.0]),
    st.sampled_from(["timeout_ms", "queue_ms"]),
)
def test_a_tighter_policy_lets_no_more_late_text_out(
    base: Policy, asked: Policy, took: float, limit: str
) -> None:
    def late(policy: Policy) -> bool:
        most = getattr(policy, limit)
        return most is not None and took > most

    def stopped(policy: Policy) -> bool:
        return late(policy) and policy.stops_unjudged("failure")

    def passed_unjudged(policy: Policy) -> bool:
        return late(policy) and not policy.stops_unjudged("failure")

    assume(not loosened_settings(base, asked, DEFAULT_POINTS))
    assert not (stopped(base) and not stopped(asked))
    assert not (passed_unjudged(asked) and not passed_unjudged(base))


@often_looser
@given(policies(), policies(), probability, probability)
def test_a_tighter_policy_takes_no_more_findings_back(
    base: Policy, asked: Policy, score: float, second: float
) -> None:
    def passes(policy: Policy) -> bool:
        first, looked = (
            policy.verdict(
                Scores(each, "gender"),
                DEFAULT_POINTS,
                detector="d",
                index_version="",
                elapsed_ms=0,
            )
            for each in (score, second)
        )
        if first.biased and policy.second_look:
            first = settled(first, looked, policy.second_look_threshold)
        return not first.biased

    assume(not loosened_settings(base, asked, DEFAULT_POINTS))
    assert not (passes(asked) and not passes(base))


@given(policies())
def test_every_policy_is_as_strict_as_itself(policy: Policy) -> None:
    assert loosened_settings(policy, policy, DEFAULT_POINTS) == []


# Few pairs of policies are ordered; those that are not say nothing here.
@often_looser
@given(policies(), policies(), policies())
def test_what_tightens_a_tighter_one_tightens_the_first(a: Policy, b: Policy, c: Policy) -> None:
    assume(not loosened_settings(a, b, DEFAULT_POINTS))
    assume(not loosened_settings(b, c, DEFAULT_POINTS))
    assert loosened_settings(a, c, DEFAULT_POINTS) == []


@given(policies(), values)
def test_a_request_gets_what_it_asked_for_or_a_sentence(base: Policy, asked: Any) -> None:
    policy = None
    with contextlib.suppress(ConfigError):
        policy = tightened_policy(base, asked, DEFAULT_POINTS, where="request")
    wanted = None
    with contextlib.suppress(ValueError):
        wanted = Policy.model_validate(merge_settings(base.model_dump(exclude_unset=True), asked))
    granted = wanted is not None and not loosened_settings(base, wanted, DEFAULT_POINTS)
    assert policy == (wanted if granted else None)


LOOSER = [
    ({}, {"operating_point": "quiet"}, "the threshold of gender"),
    ({"operating_point": "strict"}, {"operating_point": "balanced"}, "the threshold of gender"),
    # A named point in place of a threshold that was lower than it.
    ({"threshold": 0.1}, {"operating_point": "strict"}, "the threshold of gender"),
    ({}, {"thresholds": {"age": 0.9}}, "the threshold of age"),
    ({}, {"action": "redact"}, "action"),
    ({"action": "redact"}, {"action": "flag"}, "action"),
    ({}, {"actions": {"reasoning": "flag"}}, "action"),
    ({"actions": {"age": "raise"}}, {"actions": {}}, "scope"),
    ({"action": "raise"}, {"action": "terminate"}, "scope"),
    ({"scope": "response"}, {"scope": "choice"}, "scope"),
    ({}, {"hold": "association"}, "hold"),
    ({}, {"failure": "open"}, "failure"),
    ({"language": "stop"}, {"language": "pass"}, "language"),
    ({}, {"timeout_ms": None}, "timeout_ms"),
    ({"failure": "open"}, {"timeout_ms": 10}, "timeout_ms"),
    ({}, {"queue_ms": None}, "queue_ms"),
    ({"failure": "open"}, {"queue_ms": 10}, "queue_ms"),
    ({"second_look": False}, {"second_look": True}, "second_look"),
    ({"second_look_threshold": 0.2}, {"second_look_threshold": None}, "second_look_threshold"),
    ({"second_look_threshold": 0.2}, {"second_look_threshold": 0.3}, "second_look_threshold"),
    ({}, {"second_look_ms": None}, "second_look_ms"),
    ({}, {"overlap": 0}, "overlap"),
    ({}, {"max_segment_chars": 2000}, "max_segment_chars"),
    ({}, {"user_context": True}, "user_context"),
    ({"action": "rewrite"}, {"action": "redact"}, "action"),
    ({"action": "redact"}, {"action": "rewrite", "rewrite_tries": 9}, "rewrite_tries"),
    ({}, {"breaker_failures": None}, "breaker_failures"),
]


@pytest.mark.parametrize(("base", "asked", "named"), LOOSER)
def test_looser_requests_are_refused_by_name(base: Any, asked: Any, named: str) -> None:
    with pytest.raises(ConfigError, match=f"would loosen .*{named}"):
        tightened_policy(policy_from(base), asked, DEFAULT_POINTS, where="request")


TIGHTER = [
    ({}, {"operating_point": "strict"}),
    ({"operating_point": "quiet"}, {"threshold": 0.1}),
    ({}, {"thresholds": {"age": 0.2}}),
    ({"action": "flag"}, {"action": "redact"}),
    ({"action": "redact"}, {"action": "terminate"}),
    ({}, {"action": "raise"}),
    ({"action": "raise"}, {"action": "terminate", "scope": "response"}),
    ({"action": "redact"}, {"actions": {"gender": "terminate"}}),
    ({"hold": "none"}, {"hold": "sentence"}),
    ({"hold": "association"}, {"hold": "sentence"}),
    ({"failure": "open"}, {"failure": "closed", "timeout_ms": 1}),
    ({}, {"language": "stop"}),
    ({}, {"timeout_ms": 100}),
    ({}, {"queue_ms": 100}),
    ({}, {"second_look": False}),
    ({"second_look": False}, {"second_look_threshold": 0.9, "second_look_ms": None}),
    ({}, {"second_look_threshold": 0.2}),
    ({"second_look_ms": None}, {"second_look_ms": 100}),
    ({}, {"message": "Stop."}),
    ({}, {}),
]


@pytest.mark.parametrize(("base", "asked"), TIGHTER)
def test_tighter_requests_are_granted(base: Any, asked: Any) -> None:
    policy = tightened_policy(policy_from(base), asked, DEFAULT_POINTS, where="request")
    for name, value in asked.items():
        assert getattr(policy, name) == value


def test_a_detector_without_the_operating_point_is_named() -> None:
    points = {"balanced": DEFAULT_POINTS["balanced"]}
    with pytest.raises(ConfigError, match="no operating point 'strict'; it has balanced"):
        tightened_policy(Policy(), {"operating_point": "strict"}, points, where="request")


@pytest.mark.parametrize("hold", ["none", "association"])
def test_a_looser_hold_is_called_by_its_name_alone(hold: str) -> None:
    with pytest.raises(ConfigError) as raised:
        tightened_policy(Policy(), {"hold": hold}, DEFAULT_POINTS, where="guard")
    assert "would loosen hold;" in str(raised.value)


@rows(
    "base, asked, loosens",
    [
        ({"language": "pass"}, {"language": "judge"}, False),
        ({"language": "judge"}, {"language": "stop"}, False),
        ({"language": "judge"}, {"language": "pass"}, True),
        # What is judged may pass.
        ({"language": "stop"}, {"language": "judge"}, True),
        ({"hold": "none", "language": "judge"}, {"language": "pass"}, True),
        ({"hold": "none", "language": "judge"}, {"hold": "sentence", "language": "stop"}, False),
        ({"hold": "none", "language": "judge"}, {"hold": "sentence", "language": "judge"}, False),
    ],
)
def test_judged_languages_lie_between_passing_and_stopping(
    base: dict[str, Any], asked: dict[str, Any], loosens: bool
) -> None:
    owner = policy_from(base)
    found = loosened_settings(owner, policy_from({**base, **asked}), DEFAULT_POINTS)
    assert found == (["language"] if loosens else [])
