"""What guard bench measures is there, and is what it says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from guard.cli import main
from guard.policy import Policy
from tests.scripts import load
from tests.tiny_model import save_model

SPEED = Path(__file__).parents[2] / "benchmarks" / "speed"


@pytest.fixture(scope="module", autouse=True)
def imported() -> Iterator[None]:
    """Imports here, and not above, what would take seconds of every collection: LiteLLM."""
    global bench, chat, door
    from guard import bench
    from guard.doors import chat

    with pytest.MonkeyPatch.context() as patch:
        door = load(SPEED / "door.py", patch)
        yield


def run(*args: str, code: int = 0) -> Any:
    done = CliRunner().invoke(main, ["bench", *args])
    assert done.exit_code == code, done.output
    return done


LOUD = """
import sys

class Loud:
    def find_spec(self, name, *_):
        if name in ("litellm", "onnxruntime"):
            print("loading", name)

sys.meta_path.insert(0, Loud())
from guard.cli import main
for command in (["door", "--rounds", "1"], ["verdict", "--texts", "texts.jsonl"]):
    main(["bench", *command, "--json"], standalone_mode=False)
"""


def test_standard_output_is_json_alone(tmp_path: Path) -> None:
    """Whatever the libraries print that it loads."""
    (tmp_path / "texts.jsonl").write_text('{"text": "One is here."}')
    done = subprocess.run(
        [sys.executable, "-c", LOUD],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert done.returncode == 0, done.stderr
    for name in ("litellm", "onnxruntime"):
        assert f"loading {name}" in done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == 2
    assert all(result["figures"] for result in results)


def test_a_generative_verdict_is_measured_with_and_without_the_shared_instruction(
    tmp_path: Path,
) -> None:
    folder = save_model(tmp_path / "model")
    done: list[int] = []
    found = bench.figures(
        ["One is here. Two are late."] * 20,
        f"generative:{folder}",
        lambda judged, every: done.append(judged),
    )
    assert len(done) == bench.FEW
    assert found[0].bound.startswith("generative-untuned.model+")
    once, each = found[0].value, found[2].value
    assert found[3].bound == "<= 0.4"
    assert found[3].value == pytest.approx(once / each, rel=1)


def test_the_door_is_measured_for_every_size() -> None:
    figures = {f.name: f for f in door.figures((50, 100), rounds=1)}
    for kind in ("sync", "async"):
        for size in (50, 100):
            assert figures[f"gate + door, {kind}, {size} chunks"].unit == "us/chunk"
        assert figures[f"gate + door, {kind}, largest / smallest"].value >= 1
    assert figures["bare hold until a full stop"].value > 0


def test_replayed_chunks_hold_whole_sentences() -> None:
    text = "".join(c.choices[0].delta.content or "" for c in door.chunks(200))
    assert text == (door.TEXT * 2)[: len(text)]
    assert door.chunks(200)[-1].choices[0].finish_reason == "stop"


def test_windows_are_those_of_a_stream() -> None:
    first, second, third = bench.windows_of(["One is here. Two is there. Three."])
    assert (first.text, first.context) == ("One is here.", ())
    assert second.context == ("One is here.",)
    assert third.context == ("One is here.", " Two is there.")


def test_two_detectors_are_compared_in_one_run(tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl").write_text('{"text": "One is here. Old people are useless."}\n')
    texts = str(tmp_path / "texts.jsonl")
    done = run(
        "verdict", "--texts", texts, "--detector", "cascade", "--against", "encoder", "--json"
    )
    found = [(f["name"], f["value"]) for f in json.loads(done.stdout)["figures"]]
    assert [name for name, _ in found] == [
        "CPU a text",
        "CPU a text",
        "CPU a text, ratio",
        "verdict, median, ratio",
        "verdict, 99th percentile, ratio",
        "deferred",
    ]
    first, second, ratio = (value for _, value in found[:3])
    assert ratio == pytest.approx(first / second)
    assert found[-1][1] in (0, 50, 100)


def test_a_cascade_of_two_shows_the_share_deferred(tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl").write_text(
        '{"text": "One is here."}\n{"text": "Her accent made the customers nervous."}\n'
    )
    name = "cascade:encoder-small,encoder"
    given = ("verdict", "--texts", str(tmp_path / "texts.jsonl"), "--detector", name, "--json")
    for more in ((), ("--against", "encoder-small")):
        found = json.loads(run(*given, *more).stdout)["figures"]
        (share,) = (f["value"] for f in found if f["name"] == "deferred")
        assert share == 50


def test_percentiles() -> None:
    values = [float(n) for n in range(100)]
    assert bench.percentile(values, 0.5) == 50
    assert bench.percentile(values, 0.99) == 99
    assert bench.percentile(values, 1.0) == 99
    assert bench.percentile([], 0.5) != bench.percentile([], 0.5)


def test_a_bad_file_of_texts_is_named(tmp_path: Path) -> None:
    mistakes = {
        b'{"text": "a"}\nnot json\n': "line 2",
        b'{"other": "a"}\n': "line 1",
        b'{"text": 3}\n': "line 1",
        b"": "has no text",
        b"\xff\xfe": "UTF-8",
    }
    path = tmp_path / "texts.jsonl"
    wrong = {}
    for content, sentence in mistakes.items():
        path.write_bytes(content)
        stderr = run("verdict", "--texts", str(path), code=2).stderr
        if sentence not in stderr or str(path) not in stderr:
            wrong[content] = stderr
    assert not wrong
    assert "cannot be read" in run("verdict", "--texts", str(tmp_path / "no"), code=2).stderr


def test_the_door_outside_of_a_checkout_says_what_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("guard.cli.bench.shipped", lambda room: tmp_path)
    told = run("door", code=2).stderr
    assert "is not part of the installed package; run: " in told
    assert told.count("\n") == 1


def test_the_start_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    start = load(SPEED / "start.py", monkeypatch)
    monkeypatch.setattr(start, "_wall", lambda code, rounds: 40.0)
    names = [figure.name for figure in start.figures()]
    assert names[:2] == ["import guard", "guard --help"]


@pytest.mark.skipif(os.name == "nt", reason="sends a signal")
def test_an_interrupt_ends_it_without_a_traceback(tmp_path: Path) -> None:
    code = (
        "import sys; from guard import bench; from guard.cli import main\n"
        "windows_of = bench.windows_of\n"
        "def told(texts):\n"
        "    print('reading', file=sys.__stdout__, flush=True)\n"
        "    return windows_of(texts)\n"
        "bench.windows_of = told; main()"
    )
    (tmp_path / "texts.jsonl").write_text('{"text": "One is here."}\n' * 100_000)
    args = ["bench", "verdict", "--texts", str(tmp_path / "texts.jsonl")]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "reading\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Aborted!" in err
    assert "Traceback" not in err


def test_the_work_a_chunk_does_not_grow_with_the_stream() -> None:
    """Calls of functions, which no load of the machine changes; the times are in benchmarks."""

    def calls(size: int) -> float:
        count = 0

        def note(frame: object, event: str, argument: object) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        stream = chat.guard(door.ready(Policy()), door.Replay(door.chunks(size)))
        before = sys.getprofile()
        sys.setprofile(note)
        try:
            for _ in stream:
                pass
        finally:
            sys.setprofile(before)
        return count / size

    costs = [calls(size) for size in (250, 1000, 4000)]
    assert max(costs) / min(costs) <= 1.15
    assert max(costs) <= 70  # of the long way, each chunk takes some 110
