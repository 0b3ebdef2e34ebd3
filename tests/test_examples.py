"""The examples run as they stand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests import warm
from tests.provider import Script, serving

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name: str, *args: str, said: str = "", **variables: str) -> str:
    # A reader has no settings, and so the default detector.
    given = {key: value for key, value in os.environ.items() if key != "BIASGUARD_DETECTOR"}
    env = {**given, "LITELLM_LOCAL_MODEL_COST_MAP": "True", **variables}
    done = warm.run(EXAMPLES / name, *args, said=said, env=env)
    done.check_returncode()
    return done.stdout


def test_a_chat_removes_what_is_biased_and_goes_on() -> None:
    with serving() as provider:
        provider.script = Script(
            [["Ask both the same. ", "Old people are use", "less at work. ", "Then decide."]]
        )
        out = run(
            "chat.py",
            "openai/x",
            said="Whom shall I hire?\nAnd then?\n\n",
            OPENAI_API_BASE=provider.openai,
            OPENAI_API_KEY="none",
        )
        asked = [served.body["messages"] for served in provider.served]
    assert out.count("model: Ask both the same. [removed] Then decide.") == 2
    assert "useless" not in out.replace("to “useless at work”", "")
    assert [len(messages) for messages in asked] == [1, 3]
    # The model reads on what the user saw.
    assert asked[1][1]["content"] == "Ask both the same. [removed] Then decide."


def test_quickstart_is_short_and_cuts_the_biased_sentence() -> None:
    assert len((EXAMPLES / "quickstart.py").read_text().splitlines()) <= 15
    out = run("quickstart.py")
    assert out.startswith("Look at the work first.")
    shown, judgement = out.rsplit("\n ", 1)
    assert "useless" not in shown
    assert "Old people" in judgement or "old people" in judgement


def test_interception_reaches_a_name_bound_earlier() -> None:
    guarded, plain = run("intercept.py").splitlines()
    assert guarded == "guarded: Look at the work first. [removed] Then decide."
    assert plain.startswith("as it was: Look at the work first. Old people are useless")


def test_watching_keeps_events_and_reports_from_them(tmp_path: Path) -> None:
    given = {key: value for key, value in os.environ.items() if key != "BIASGUARD_DETECTOR"}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", str(EXAMPLES / "watching.sh"), "guard.db"],
        input="Ask both the same. Old people are useless at work.\nThe train is late.\n",
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
        cwd=tmp_path,
        env={**given, "PATH": path, "PYTHONPATH": str(EXAMPLES.parent)},
    )
    said = done.stdout.splitlines()
    assert said[0] == "Ask both the same. [removed]"
    assert said[3].split("\t")[:5] == ["7", "age", "2", "3", "1"]
    assert "100.0 %" in said[3]
    assert any(line.startswith("3 items drawn; they represent 3 segments") for line in said)
    assert said[-1].startswith("text: ")
