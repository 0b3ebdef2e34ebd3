"""An audit of the official HBB data fits into 400 MB: its plan, and its score.

That of all 773,500 calls, and of 160,000 with both arms, of which the guard has stopped a tenth.
Two shards of the latter are merged within it, too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from guard.audit.audit import Audit
from guard.audit.calls import Call, Guarded, Piece, Reply, Usage
from guard.audit.outcomes import item_samples, sentence_key, walk_requests
from guard.audit.shards import Shard
from guard.core import Guard
from guard.suites.registry import make
from tests.audit.written import write
from tests.data import DATA as FOLDER
from tests.data import needs
from tests.scripted import Scripted

ROOT = Path(__file__).parents[2]
DATA = FOLDER / "hbb"
LIMIT = 400e6
# Runs the command line and prints its peak of resident memory, in bytes, behind the output. Linux
# hands the peak of getrusage on to a child process: it would count the memory of the test itself.
MEASURED = """
import pathlib, re, sys
from guard.cli import main
try:
    main(sys.argv[1:])
finally:
    status = pathlib.Path("/proc/self/status").read_text()
    print(int(re.search(r"VmHWM:\\s+(\\d+) kB", status)[1]) * 1024, file=sys.stderr)
"""
pytestmark = [
    pytest.mark.slow("audits in processes of half a million calls", limit_s=3600),
    needs(DATA),
    pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from Linux's /proc"),
]


def peak(*args: str) -> float:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, "audit", *args],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return float(done.stderr.splitlines()[-1])


def write_run(path: Path, size: int | None, shard: Shard | None = None, *, guarded: bool) -> None:
    """Write an answer to every request, and in the guarded arm its readings."""
    audit = Audit.of(make("hbb", {"data": str(DATA)}), size, shard=shard)
    guard = Guard(detector=Scripted()) if guarded else None

    def records() -> Iterator[Call | Guarded]:
        asked = (
            one
            for i, s in item_samples(audit.items)
            for one in walk_requests(audit.suite, i, s, {})[0]
        )
        for n, one in enumerate(asked):
            letter = "ab"[n * 2654435761 % 97 < 40]
            said = f"{letter}) This is the answer of a model, in a sentence of the usual length."
            yield Call(one.key, one.slot, Reply((Piece(said),), usage=Usage(222, 18, 1e-4)))
            # The guard judges the answer, and the sentence that it completes.
            for key in (one.key, sentence_key(one.key)) if guarded else ():
                if n % 10:
                    yield Guarded(key, "same")
                else:
                    yield Guarded(key, "guarded", "This was stopped.", ("age",), 0.93)

    write(path, audit.header("openai/x", guard), records())


def test_the_plan_of_773_500_calls_fits() -> None:
    args = ("--model", "openai/o3", "--plain-only", "--json")  # the guard's weights are no calls
    assert peak("plan", "--suite", "hbb", "--data", str(DATA), *args) < LIMIT


@pytest.mark.parametrize("guarded", [False, True], ids=["773,500 plain", "160,000 of both"])
def test_the_score_fits(tmp_path: Path, guarded: bool) -> None:
    path = tmp_path / "run.db"
    write_run(path, 16_000 if guarded else None, guarded=guarded)
    options = ("--suite", "hbb", "--data", str(DATA), "--json")
    used = peak("score", *options, "--answers", str(path))
    print(f"{used / 1e6:.0f} MB")
    assert used < LIMIT


def test_the_merge_of_160_000_answers_fits(tmp_path: Path) -> None:
    shards = [tmp_path / str(number) for number in (1, 2)]
    for number, folder in enumerate(shards, 1):
        write_run(folder / "run.db", 16_000, Shard(number, 2), guarded=True)
    out = tmp_path / "merged"
    used = peak("merge", *map(str, shards), "--out", str(out), "--data", str(DATA), "--json")
    print(f"{used / 1e6:.0f} MB")
    assert used < LIMIT


@pytest.mark.parametrize("command", ["score", "report"])
def test_an_answer_more_takes_less_than_its_text(tmp_path: Path, command: str) -> None:
    # What is kept of an answer is its outcome, so that a million fit: texts are read and let go.
    said = f"a) {'A long answer of the model. ' * 100}"
    used = []
    for size in (500, 4_500):
        audit = Audit.of(make("hbb", {"data": str(DATA)}), size)
        path = tmp_path / f"{size}.db"
        asked = (
            request
            for item, sample in item_samples(audit.items)
            for request in walk_requests(audit.suite, item, sample, {})[0]
        )
        calls = (Call(one.key, one.slot, Reply((Piece(said),))) for one in asked)
        write(path, audit.header("openai/x", None), calls)
        place = ["--data", str(DATA)]
        if command == "score":
            options = ["--suite", "hbb", *place, "--json", "--answers", str(path)]
        else:
            options = [str(path), *place, "--html", str(tmp_path / f"{size}.html")]
        used.append(peak(command, *options))
    answer_bytes = (used[1] - used[0]) / 40_000
    print(f"{answer_bytes:.0f} bytes an answer")
    assert answer_bytes < len(said) / 2
