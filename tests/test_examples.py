"""The examples run as they stand."""

from __future__ import annotations

import itertools
import json
import os
import re
import socketserver
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from guard.config import read_settings
from guard.local import download
from tests import warm
from tests.audit.answering import answering
from tests.detect.judging import obedient
from tests.provider import Script, serving
from tests.tiny_model import save_model

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


def test_a_language_model_on_this_machine_judges(tmp_path: Path) -> None:
    """With a model of random weights: the way there, not what it finds."""
    folder = save_model(tmp_path / "model")
    texts = ("Old people are useless at work.", "The train is late.")
    out = run("generative.py", str(folder), *texts)
    assert [line for line in out.splitlines() if line in texts] == list(texts)
    assert out.count("score 0.") == 2
    assert "shown to the model: " in out
    assert out.splitlines()[-1].startswith("judged by generative-untuned.model+")


@pytest.mark.slow("loads a language model of 500 MB in memory", limit_s=600)
def test_smollm2_judges_as_it_is() -> None:
    if download.weights_state("smollm2")[0] != "ok":
        pytest.skip("needs the weights of smollm2: guard models get smollm2")
    out = run("generative.py", "smollm2", "Old people are useless at work.")
    assert out.splitlines()[-1].startswith("judged by generative-untuned.smollm2+")


def test_a_judge_behind_a_server_judges_as_its_files_say() -> None:
    folder = EXAMPLES / "judge"
    given = {key: value for key, value in os.environ.items() if key != "BIASGUARD_DETECTOR"}
    with answering() as server:
        server.answer = obedient
        done = warm.run(
            folder / "judge.py",
            "I heard that Velmorians are lazy.",
            "The train is late.",
            env={
                **given,
                "LITELLM_LOCAL_MODEL_COST_MAP": "True",
                "BIASGUARD_JUDGE": f"timeout_s=60,params.api_base={server.base}",
                "BIASGUARD_TIMEOUT_MS": "60000",
            },
            cwd=folder,
        )
        assert {body["model"] for body in server.bodies} == {"biasalert"}
        assert all(body["logprobs"] for body in server.bodies)
    assert done.returncode == 0, done.stderr
    assert "it ties “Velmorians” to “lazy”." in done.stdout
    assert "  No, the text is not biased." in done.stdout
    assert re.search(r"judge, calls +1000 per 1,000 texts", done.stdout)


def test_what_is_served_is_what_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of the same name takes the place of vLLM, and says what it was given."""
    monkeypatch.delenv("BIASGUARD_DETECTOR")
    vllm = tmp_path / "vllm"
    vllm.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    vllm.chmod(0o755)
    served = subprocess.run(
        [EXAMPLES / "judge" / "serve.sh", "a base", "an adapter"],
        env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    given = dict(itertools.pairwise(served))
    assert served[:2] == ["serve", "a base"]
    assert "--enable-lora" in served
    asked = read_settings(EXAMPLES / "judge")
    assert given["--lora-modules"] == f"{asked['detector'].rpartition('/')[2]}=an adapter"
    address = f"http://{given['--host']}:{given['--port']}/v1"
    assert asked["judge"]["params"]["api_base"] == address
    assert asked["judge"]["concurrency"] <= int(given["--max-num-seqs"])
    assert asked["judge"]["timeout_s"] * 1000 <= asked["timeout_ms"]


def test_the_story_of_a_safety_team_finds_the_release_that_got_worse(tmp_path: Path) -> None:
    """Release 7 says one biased sentence in 40 answers, release 8 one in each second answer."""
    fair, biased = "The train is late.", "Ask both the same. Old people are useless at work."
    for name, counted in (("old", lambda n: n == 0), ("new", lambda n: n % 2 == 0)):
        texts = [biased if counted(number) else fair for number in range(40)]
        (tmp_path / name).write_text("\n".join(texts) + "\n")
    parts = watched(tmp_path, "old", "new")
    assert parts["events"].count("Ask both the same. [removed]") == 21
    assert "useless" not in parts["events"]
    assert "responses\t80\nevents\t101\n" in parts["events"]
    rates = {tuple(x.split("\t")[:5]) for x in parts["rates"].splitlines()}
    assert {("7", "age", "40", "41", "1"), ("8", "age", "40", "60", "20")} <= rates
    (prevalence,) = (x for x in parts["compare"].splitlines() if x.startswith("prevalence"))
    assert prevalence.endswith("worse")
    assert "33.3 % " in prevalence  # 20 of 60 segments
    assert parts["compare"].endswith("compare: exit code 1")
    (biased_share, *_) = (x for x in parts["alert"].splitlines() if x.startswith("8\tbiased"))
    assert "ALARM\t20 of 40 (50.00 %)\t1 of 40 (2.50 %) of release 7" in biased_share
    assert parts["alert"].endswith("alert: exit code 1")
    assert "20 items drawn; they represent 101 segments" in parts["review"]
    assert "text: " in parts["review"]
    assert "1 of 20 items marked" in parts["review"]


def test_the_story_goes_on_where_nothing_can_be_shown(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).write_text("The train is late.\n" * 3)
    parts = watched(tmp_path, "old", "new")
    assert parts["compare"].endswith("compare: exit code 3")
    assert parts["alert"].endswith("alert: exit code 3")  # three responses are no baseline
    assert "not shown to differ" not in parts["compare"]


# What `python` is in a story: it has a warm process of the test's run what it was given.
_ASKS = """import json, os, socket, sys
asked = [sys.argv[1:], sys.stdin.read(), dict(os.environ)]  # a pipe's writer asks first
with socket.socket(socket.AF_UNIX) as asking:
    asking.connect({place!r})
    asking.sendall(json.dumps(asked).encode() + b"\\n")
    code, out, err = json.loads(asking.makefile().readline())
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(code)
"""


class _Warm(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        (option, target, *args), said, env = json.loads(self.rfile.readline())
        with tempfile.TemporaryDirectory() as folder:
            if option == "-c":
                script = Path(folder, "given.py")
                script.write_text(target)
                target = str(script)
            done = warm.run(target, *args, said=said, env=env, cwd=env["PWD"])
        answer = json.dumps([done.returncode, done.stdout, done.stderr])
        self.wfile.write(answer.encode() + b"\n")


@contextmanager
def warm_python(folder: Path) -> Iterator[Path]:
    """Yield a folder with a ``python`` whose processes have imported LiteLLM and guard."""
    place = str(folder / "s")
    python = folder / "python"
    asks = folder / "asks.py"
    asks.write_text(_ASKS.format(place=place))
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS "{asks}" "$@"\n')
    python.chmod(0o755)
    with socketserver.UnixStreamServer(place, _Warm) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield folder
        finally:
            server.shutdown()
            thread.join()


def watched(folder: Path, *names: str) -> dict[str, str]:
    """Return what watching.sh prints, by its parts."""
    given = {key: value for key, value in os.environ.items() if key != "BIASGUARD_DETECTOR"}
    with tempfile.TemporaryDirectory() as tools, warm_python(Path(tools)):
        done = subprocess.run(
            ["bash", str(EXAMPLES / "watching.sh"), "guard.db", *names],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=200,
            cwd=folder,
            env={**given, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"},
        )
    assert done.returncode == 0, done.stdout + done.stderr
    pieces = re.split(r"^== (\w+)\n", done.stdout, flags=re.MULTILINE)[1:]
    parts = {name: text.strip() for name, text in zip(pieces[::2], pieces[1::2], strict=True)}
    assert list(parts) == ["events", "rates", "compare", "alert", "review"]
    return parts
