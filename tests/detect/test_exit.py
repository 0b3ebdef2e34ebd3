"""A process that ends while verdicts are taken ends at once, cleanly, and with its own code.

Each test runs processes of its own. What they run has a moment in which a verdict is being taken;
they are ended there: once by default, and several times over in the slow lane, since native code
is in another place each time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
# A process that has not ended by then hangs: it takes a second or two, most of it to start.
HANGS = 60
AGAIN = 3
PROSE = "This is sentence number {} of a long and harmless text about gardens in the morning."

# Judges with a shipped encoder; `Slow` does with it what `work` says, for ever.
START = """
import asyncio, ctypes, sys, threading, time
import numpy as np
import guard.detect.encoder  # a process that is ending cannot import thread pools any more
from guard import Guard
from guard.policy import DEFAULT_POINTS

class Slow:
    name, operating_points, index_version = "slow", DEFAULT_POINTS, ""
    def __init__(self, work): self.work = work
    def snapshot(self): return self
    def score(self, windows): return self.work()

def sleeps(): time.sleep(3600)
def locks():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
def native_sleep(): ctypes.CDLL(None).sleep(3600)
def native_naps():
    while True: ctypes.CDLL(None).usleep(1000)
def native_runs():
    network, ids = Guard().detector._network._session, np.full((1, 256), 1000, np.int64)
    feed = {"input_ids": ids, "attention_mask": ids * 0 + 1, "token_type_ids": ids * 0}
    while True: network.run(None, feed)

def hang(work):
    guard = Guard(detector=Slow(work), timeout_ms=50, failure="open", breaker_failures=None)
    assert guard.check("Some words.").unjudged == "failure"

texts = [f"This is sentence number {i} of a long and harmless text." for i in range(5000)]

def tell(): print("now", flush=True)
"""

ENDS = {
    "normally": ("", 0),
    "with sys.exit(3)": ("sys.exit(3)", 3),
    "with a text": ("sys.exit('text')", 1),
    "with an error": ("raise ValueError", 1),
}


def slow(*values: str) -> Any:
    """Return a case that runs with the slow tests alone: others stand for it."""
    return pytest.param(*values, marks=pytest.mark.slow("starts processes for every kind of end"))


repeatedly = pytest.mark.parametrize(
    "times", [1, pytest.param(AGAIN, marks=pytest.mark.slow("ends a process several times over"))]
)


def run(code: str, *, interrupt: bool = False) -> tuple[int, str, str]:
    """Return the exit code, standard output and error of a process that runs ``code``."""
    command = [sys.executable, "-c", START + code]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        if interrupt:
            assert process.stdout is not None
            assert process.stdout.readline() == "now\n"
            time.sleep(0.2)  # it is in the midst of it
            process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=HANGS)
    finally:
        process.kill()
    assert "terminate called" not in err
    assert process.returncode != -signal.SIGABRT
    return process.returncode, out, err


@pytest.mark.parametrize(
    ("work", "end"),
    [
        (work, end) if end == usual else slow(work, end)
        for work, usual in {
            "sleeps": None,
            "locks": "with sys.exit(3)",
            "native_sleep": "with a text",
            "native_naps": "with an error",
            "native_runs": "normally",
        }.items()
        for end in ENDS
    ],
)
def test_a_process_ends_while_its_detector_hangs(work: str, end: str) -> None:
    statement, code = ENDS[end]
    got, out, err = run(f"hang({work})\nprint('out')\n{statement}")
    assert (got, out) == (code, "out\n"), err


@repeatedly
@pytest.mark.parametrize("end", ["normally", *map(slow, list(ENDS)[1:])])
def test_a_process_ends_while_a_late_verdict_is_taken(end: str, times: int) -> None:
    statement, code = ENDS[end]
    late = "guard = Guard(timeout_ms=0.1, breaker_failures=None)\nguard.check_many(texts[:4])\n"
    for _ in range(times):
        assert run(late + statement)[0] == code


@repeatedly
@pytest.mark.parametrize(
    "call",
    [
        "Guard().check_many(texts)",
        slow("Guard().check(' '.join(texts))"),
        slow("for _ in Guard().stream(text + ' ' for text in texts): pass"),
        slow("Guard(detector=Slow(sleeps)).check('Some words.')"),
        "Guard(detector=Slow(native_runs)).check('Some words.')",
    ],
)
def test_an_interrupted_call_ends_as_python_ends(call: str, times: int) -> None:
    for _ in range(times):
        code, _, err = run(f"Guard().check('Warm.')\ntell()\n{call}", interrupt=True)
        assert code == -signal.SIGINT
        assert err.rstrip().endswith("KeyboardInterrupt")
        assert "Exception ignored" not in err


@repeatedly
def test_guard_check_of_a_file_is_interrupted_without_a_traceback(
    tmp_path: Path, times: int
) -> None:
    file = tmp_path / "long.txt"
    file.write_text("\n".join(PROSE.format(i) for i in range(20_000)))
    code = f"""
from guard.cli import main
trail = Guard.trail
Guard.trail = lambda *arguments: (tell(), trail(*arguments))[1]
main(["check", {str(file)!r}])
"""
    for _ in range(times):
        assert run(code, interrupt=True) == (130, "", "\nAborted!\n")


ASYNC = """
async def source():
    for text in texts:
        yield text + " "

async def read(guard):
    async for _ in guard.astream(source()):
        pass

async def main(guard):
    tasks = [asyncio.create_task(read(guard)) for _ in range(8)]
    await asyncio.sleep(0.05)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
"""


@repeatedly
@pytest.mark.parametrize(
    ("detector", "end"),
    [
        ("", "normally"),
        ("detector=Slow(native_runs)", "with sys.exit(3)"),
        slow("", "with sys.exit(3)"),
        slow("detector=Slow(native_runs)", "normally"),
        slow("detector=Slow(sleeps)", "normally"),
        slow("detector=Slow(sleeps)", "with sys.exit(3)"),
    ],
)
def test_a_process_ends_after_its_async_streams_were_cancelled(
    detector: str, end: str, times: int
) -> None:
    statement, code = ENDS[end]
    for _ in range(times):
        got, _, err = run(f"{ASYNC}\nasyncio.run(main(Guard({detector})))\n{statement}")
        assert got == code, err


def test_handlers_and_threads_of_others_end_as_they_would() -> None:
    code = """
import atexit
def last(): print("last", flush=True)
atexit.register(last)
def thread():
    time.sleep(0.5)
    print(Guard().check("All is well.").unjudged is None, flush=True)
hang(native_sleep)
threading.Thread(target=thread).start()
sys.exit(3)
"""
    assert run(code)[:2] == (3, "True\nlast\n")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_ends_as_it_would() -> None:
    code = """
import os
hang(native_sleep)
child = os.fork()
if not child:
    verdict = Guard().check("All is well.")
    sys.exit(4 if not verdict.unjudged else 5)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run(code)[:2] == (0, "4\n")


def test_what_is_asked_after_the_end_has_failed() -> None:
    code = """
from guard.detect import shutdown
guard = Guard()
guard.check("Warm.")
shutdown._leave_all()
print({guard.check("All is well.").unjudged for _ in range(9)})
"""
    # The detector has not failed: it was not asked.
    assert run(code) == (0, "{'failure'}\n", "")
