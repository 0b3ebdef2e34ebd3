"""The setting ``judge`` in files, variables and code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from guard import Guard
from guard.config import read_settings
from guard.errors import ConfigError
from guard.judge_settings import (
    JudgeSettings,
    checked_settings,
    merged_settings,
    printable_settings,
)
from tests.scripted import Scripted


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BIASGUARD_DETECTOR")


FILE = """
[judge]
timeout_s = 20
budget = 5
concurrency = 4
record = "runs/judge.jsonl"

[judge.params]
api_base = "http://127.0.0.1:8000/v1"
seed = 7
stop = ["\\n\\n"]
"""


def test_a_file_and_a_variable_are_merged_by_key(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "guard.toml").write_text(FILE)
    monkeypatch.setenv("BIASGUARD_JUDGE", "timeout_s=2.5,budget=none,params.seed=8,params.user=me")
    found = JudgeSettings.of(read_settings()["judge"])
    assert (found.timeout_s, found.budget, found.concurrency) == (2.5, None, 4)
    assert found.record == tmp_path / "runs" / "judge.jsonl"
    base = {"api_base": "http://127.0.0.1:8000/v1", "stop": ["\n\n"]}
    assert found.params == {**base, "seed": 8, "user": "me"}
    monkeypatch.setenv("BIASGUARD_JUDGE", "replay=/r")
    found = JudgeSettings.of(read_settings()["judge"])
    assert (found.record, found.replay) == (None, Path("/r"))


def test_settings_in_code_override_those_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BIASGUARD_JUDGE", "budget=none")  # LiteLLM has no price for it
    (tmp_path / "guard.toml").write_text(f'detector = "judge:hosted_vllm/x"\n{FILE}')
    guard = Guard(judge={"concurrency": 9, "params": {"seed": 1}}, events="none")
    client = guard.detector.client  # type: ignore[attr-defined]
    assert (client.settings.concurrency, client.settings.timeout_s) == (9, 20.0)
    assert client.params["seed"] == 1
    assert client.params["api_base"] == "http://127.0.0.1:8000/v1"
    same = Guard(judge={"concurrency": 9, "params": {"seed": 1}}, events="none")
    assert same.detector is guard.detector
    assert Guard(events="none").detector is not guard.detector


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"timeout": 3}, "guard: unknown key judge.timeout; known are timeout_s, budget,"),
        ({"timeout_s": 0}, r"judge\.timeout_s takes seconds above 0 and at most 86,400, got 0"),
        (
            {"timeout_s": "soon"},
            r"judge\.timeout_s takes seconds above 0 and at most 86,400, got 'soon'",
        ),
        ({"timeout_s": True}, r"judge\.timeout_s takes seconds"),
        ({"budget": -1}, r"judge\.budget takes US dollars from 0 on, or 'none', got -1"),
        ({"budget": "nan"}, r"judge\.budget takes US dollars"),
        ({"concurrency": 1.5}, r"judge\.concurrency takes a whole number of calls from 1 to 1000"),
        ({"concurrency": 0}, r"judge\.concurrency takes a whole number"),
        ({"concurrency": "inf"}, r"judge\.concurrency takes a whole number"),
        ({"record": 3}, r"judge\.record takes a file's name, got 3"),
        ({"replay": ""}, r"judge\.replay takes a file's name"),
        ({"record": "a", "replay": "b"}, r"judge\.record asks the model and judge\.replay does"),
        ({"params": 3}, r"judge\.params takes a table"),
        ({"params": {"model": "x"}}, r"judge\.params takes no model: the detector's name has"),
        ({"params": {"stream": True}}, r"judge\.params takes no stream: answers are not streamed"),
        ({"params": {"timeout": 3}}, r"judge\.params takes no timeout: use timeout_s"),
        ({"timeout_s": 1e300}, r"judge\.timeout_s takes seconds above 0 and at most 86,400"),
        ({"record": "\ud800"}, r"judge\.record takes a file's name"),
        ({"params": {"max_tokens": "many"}}, r"max_tokens takes a whole number of tokens from 1"),
        ({"params": {"max_tokens": None}}, r"max_tokens takes a whole number of tokens from 1"),
        ({"params": {"extra_body": {"max_tokens": 9000}}}, r"extra_body takes no max_tokens"),
        ({"params": {"max_completion_tokens": -1}}, r"max_completion_tokens takes a whole number"),
        ({"params": {"num_retries": 2}}, r"takes no num_retries: a failed call is not repeated"),
        ({"params": {"fallbacks": ["x/y"]}}, r"takes no fallbacks: another model would be"),
        ({"params": {"no-log": False}}, r"takes no no-log: guard keeps the judged text"),
        ({"params": {"x": {1, 2}}}, r"judge\.params takes texts, numbers"),
        ({"params": {"x": float("nan")}}, r"judge\.params takes texts, numbers"),
        (3, r"judge takes a table of settings"),
    ],
)
def test_a_wrong_value_is_named(values: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        checked_settings(values, "guard")
    with pytest.raises(ConfigError):
        Guard(detector="encoder-small", judge=values, events="none")


def test_the_proxys_configuration_takes_them() -> None:
    pytest.importorskip("fastapi")
    from guard.proxy.settings import made_guard

    given = {"detector": "judge:hosted_vllm/x.y", "judge": {"timeout_s": 3}, "events": "none"}
    guard = made_guard(given, "config.yaml")
    assert guard.detector.client.settings.timeout_s == 3.0  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"config\.yaml: unknown key judge\.limit"):
        made_guard({**given, "judge": {"limit": 3}}, "config.yaml")


def test_the_settings_belong_to_detectors_that_guard_makes() -> None:
    with pytest.raises(
        ConfigError, match="index, weights, device, judge and served belong to detectors"
    ):
        Guard(detector=Scripted(), judge={"timeout_s": 3}, events="none")


def test_keys_and_headers_are_not_shown() -> None:
    params = {"api_key": "sk-1", "extra_headers": {"a": "sk-2"}, "seed": 1, "api_base": "http://h"}
    told = printable_settings({"budget": 1.0, "params": params})
    assert "sk-" not in json.dumps(told)
    assert told["params"]["seed"] == 1
    assert told["params"]["api_base"] == "http://h"


def test_a_later_file_overrules_the_other_kind() -> None:
    assert merged_settings({"record": "a", "budget": 1.0}, {"replay": "b"}) == {
        "budget": 1.0,
        "replay": "b",
    }
