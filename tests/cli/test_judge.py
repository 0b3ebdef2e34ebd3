"""Commands with a judge as the detector: mistakes are told before anything is asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from guard.cli import main
from guard.detect import named
from tests.audit.answering import Answering, answering
from tests.detect.judging import obedient

JUDGE = "judge:openai/gpt-4o-mini"
TEXTS = ["I heard that Velmorians are lazy.", "The train is late. So are we."]


@pytest.fixture(autouse=True)
def provider(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Answering]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-owner")
    monkeypatch.delenv("BIASGUARD_DETECTOR")
    named._named_judge.cache_clear()  # what one has spent is not the next test's
    with answering() as provider:
        provider.answer = obedient
        limits = "timeout_ms = 60000\n[judge]\ntimeout_s = 60\nbudget = 1\n"
        table = f'{limits}[judge.params]\napi_base = "{provider.base}"\n'
        (tmp_path / "guard.toml").write_text(table)
        yield provider


def run(*args: str, code: int = 0) -> Result:
    done = CliRunner().invoke(main, list(args))
    assert done.exit_code == code, done.output
    return done


def test_check_judges_by_a_judge(provider: Answering) -> None:
    found = json.loads(run("check", "--json", "--detector", JUDGE, "--text", TEXTS[0]).stdout)
    assert found["biased"]
    assert found["bias_type"] == "culture"
    assert found["detector"].startswith(f"{JUDGE}+")
    assert {one["authorization"] for one in provider.headers} == {"Bearer sk-of-the-owner"}


@pytest.mark.parametrize(
    ("detector", "said"),
    [
        ("judge:nobody/x", "LiteLLM knows no provider for the judge 'nobody/x'; name judge:"),
        ("judge:groq/x", "the environment variable GROQ_API_KEY is not set; set it to"),
        ("judge:hosted_vllm/x", "LiteLLM has no price for hosted_vllm/x, so judge.budget cannot"),
        ("judge:", "unknown detector 'judge:'"),
    ],
)
def test_a_mistake_is_one_sentence_before_anything_is_asked(
    provider: Answering, detector: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GROQ_API_KEY", raising=False)
    for command in (["check", "--text", TEXTS[0]], ["eval", "--behaviours"], ["bench", "verdict"]):
        error = run(*command, "--detector", detector, code=2).stderr
        assert said in error
        assert error.count("\n") == 1
    assert provider.asked == []


def test_a_model_that_only_the_provider_knows_is_unjudged(provider: Answering) -> None:
    provider.status, provider.busy = 404, 99
    done = run("check", "--exit-code", "--detector", "judge:openai/gpt-4o", TEXTS[0], code=3)
    assert "unjudged  1 of 1 segments (failure)" in done.stdout


def test_eval_tells_what_the_judge_was_asked_and_cost(provider: Answering, tmp_path: Path) -> None:
    rows = [f'"{text}",{label}' for label, text in zip((1, 0), TEXTS, strict=True)]
    (tmp_path / "set.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    args = ("eval", "--data", "set.csv", "--detector", JUDGE, "--bootstrap", "0")
    told = run(*args).stdout
    assert "judge, calls" in told
    assert "USD per 1,000 texts" in told
    assert "judge, latency, 99th percentile" in told
    spent = json.loads(run(*args, "--json").stdout)["judge"]
    assert spent["calls"] == len(provider.asked)
    assert spent["outcomes"].keys() == {"biased", "not biased"}
    assert spent["cost"] > 0


def test_eval_tells_that_the_budget_is_spent(provider: Answering, tmp_path: Path) -> None:
    (tmp_path / "set.csv").write_text(f"text,label\n{TEXTS[0]},1\n{TEXTS[1]},0\n")
    table = (tmp_path / "guard.toml").read_text()
    (tmp_path / "guard.toml").write_text(table.replace("budget = 1", "budget = 0"))
    told = run("eval", "--data", "set.csv", "--detector", JUDGE, "--bootstrap", "0").stdout
    assert "raise judge.budget to go on." in told
    assert provider.asked == []


def test_bench_asks_once_a_window_and_tells_the_cost(provider: Answering, tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in TEXTS))
    args = ("bench", "verdict", "--texts", "texts.jsonl", "--detector", JUDGE, "--json")
    figures = {f["name"]: f for f in json.loads(run(*args).stdout)["figures"]}
    assert figures["judge, calls"]["value"] == 1500
    assert len(provider.asked) == 3
    assert figures["judge, cost"]["value"] > 0
    assert not any(name.startswith("lots") for name in figures)


def test_a_judge_is_not_timed_in_turn(provider: Answering) -> None:
    for pair in ((JUDGE, "encoder-small"), ("encoder-small", JUDGE)):
        error = run("bench", "verdict", "--detector", pair[0], "--against", pair[1], code=2).stderr
        assert "leave --against out." in error
    assert provider.asked == []


def test_doctor_tells_how_the_judge_is_asked_and_no_key(
    provider: Answering, tmp_path: Path
) -> None:
    table = (tmp_path / "guard.toml").read_text()
    secret = table + 'api_key = "sk-in-the-file"\n'
    (tmp_path / "guard.toml").write_text(f'detector = "{JUDGE}"\n{secret}')
    done = CliRunner().invoke(main, ["doctor", "--json"])
    findings = json.loads(done.stdout)["findings"]
    (told,) = [f["detail"] for f in findings if (f["area"], f["name"]) == ("detector", "judge")]
    assert told.startswith(
        "openai/gpt-4o-mini: at most 8 calls at once, 60 s each, a budget of $1,"
    )
    assert "sk-" not in done.stdout
    assert provider.asked == []
