"""HBB from the command line, against a provider over a real socket."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from guard.cli import main
from tests.provider import Script, serving


def run(*given: str) -> Result:
    return CliRunner().invoke(main, ["audit", *given])


def test_a_sampled_audit_reports_noise_and_associations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    with serving(Script([["a) "]])) as provider:
        monkeypatch.setenv("OPENAI_API_BASE", provider.openai)
        given = ["run", "--suite", "hbb", "--model", "openai/x", "--plain-only", "--sample", "50",
                 "--set", "hbb.repeats=2", "--out", str(tmp_path)]  # fmt: skip
        done = run(*given, "--json")
        assert done.exit_code == 0, done.output
        asked = len(provider.served)
        shown = run(*given, "--tables")
        assert len(provider.served) <= asked + 1  # nothing but the question what the model can do
    (found,) = json.loads(done.stdout)["suites"]
    assert found["coverage"] == 1
    assert found["key"]["options"]["probabilities"] == "sample"
    assert found["conclusions"]["plain"][0].startswith("Bias unknown: ")
    scores = {(s["measure"], s["axis"]["category"]): s for s in found["scores"]
              if list(s["axis"]) == ["category"]}  # fmt: skip
    assert scores["position", "all"]["value"] == 0.5
    assert scores["share", "all"]["value"] == 0
    assert scores["mean", "all"]["value"] is None
    assert "plain: Bias unknown: " in shown.stdout
    assert "GPT-4o" in shown.stdout


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--allocate", "widest"], "widest needs --sample"),
        (["--set", "hbb.repeats=3"], "repeats must be even"),
        (["--set", "hbb.threshold=0"], "threshold"),
        (["--set", "hbb.probabilities=maybe"], "probabilities"),
        (["--data", "/nowhere"], "neither items.jsonl nor a CSV"),
        (["--protocol", "paper", "--set", "hbb.probabilities=logprobs"], "samples its answers"),
    ],
)
def test_bad_settings_are_one_sentence(given: list[str], message: str) -> None:
    done = run("plan", "--suite", "hbb", *given)
    assert done.exit_code == 2
    assert message in done.stderr
    assert "Traceback" not in done.output


def test_the_plan_counts_by_category() -> None:
    done = run("plan", "--suite", "hbb", "--sample", "200", "--allocate", "widest", "--json",
               "--set", "hbb.probabilities=logprobs")  # fmt: skip
    assert done.exit_code == 0, done.output
    (found,) = json.loads(done.stdout)["suites"]
    assert set(found["counts"]) == {"all", "Age", "Gender", "Race", "SES", "Religions"}
    assert found["counts"]["all"]["calls"] == 2 * found["counts"]["all"]["questions"]
    assert abs(found["items"] - 200) <= 5
    assert found["calls"] == 2 * found["items"]
