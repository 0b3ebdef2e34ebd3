"""A process that was forked judges like its parent, whatever that was at, and ends as it would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HANGS = 60  # seconds after which a process is taken to hang

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")

START = """
import os, sys, threading, multiprocessing
from guard import Guard, forks

SAID = "Old people are useless at work."

def fork(work):
    child = os.fork()
    if not child:
        work()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""
# The parent judges all the time, with a network that has a lock as ONNX Runtime's arenas have one.
JUDGING = """
guard = Guard(timeout_ms=2000)
lock, network = threading.Lock(), guard.detector._network
class Locked:
    def run(self, *arguments):
        with lock:
            return network.run(*arguments)
guard.detector._network = Locked()

over = threading.Event()
def judge():
    while not over.is_set(): guard.check(SAID)
for _ in range(2):
    threading.Thread(target=judge).start()
"""


def run(code: str, **variables: str) -> tuple[int, str, str]:
    """Return the exit code, standard output and error of a process that runs ``code``."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", START + code],
        capture_output=True,
        text=True,
        timeout=HANGS,
        env=environment,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_a_child_forked_while_its_parent_judges_judges_too() -> None:
    code = """
print({fork(lambda: os._exit(0 if guard.check(SAID).biased else 1)) for _ in range(10)})
over.set()
"""
    assert run(JUDGING + code)[:2] == (0, "{0}\n")


def test_a_pool_of_children_judges_as_its_parent_does() -> None:
    code = """
def score(text): return guard.check(text).score
with multiprocessing.get_context("fork").Pool(2) as pool:
    scores = pool.map(score, [SAID] * 4)
print(set(scores) == {score(SAID)})
over.set()
"""
    assert run(JUDGING + code)[:2] == (0, "True\n")


def test_a_child_of_a_cascade_judges_and_reads_a_users_statements_itself() -> None:
    """The thread that computes their vectors stays in the parent."""
    code = """
from guard.detect.mirror import Mirror
from guard.retrieve.statement import BiasStatement
guard = Guard(detector="cascade")
cascade, said = guard.detector, BiasStatement("Velmorians hum.", "culture", "Velmorians", "hum")
index = cascade.index.extended([said], cascade.embedder.embed([said.statement]))
work, Mirror._make_mirrors = Mirror._make_mirrors, lambda self: threading.Event().wait()
cascade.use_index(index)
Mirror._make_mirrors = work
print(fork(lambda: os._exit(0 if cascade.ready(50) and guard.check(SAID).biased else 1)))
"""
    assert run(code)[:2] == (0, "0\n")


def test_a_child_leaves_by_its_own_code() -> None:
    code = """
guard = Guard()
for parent_judged in (False, True):
    if parent_judged:
        guard.check(SAID)
    for child_judges in (False, True):
        child = os.fork()
        if not child:
            if child_judges:
                guard.check(SAID)
            sys.exit(4)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
    assert run(code) == (0, "4\n" * 4, "")


def test_a_child_whose_parent_could_not_be_waited_for_is_told() -> None:
    code = """
guard, within = Guard(), threading.Event()
forks.LONGEST_WAIT = 0.01
def call():
    with forks.native:
        within.set()
        threading.Event().wait()
threading.Thread(target=call, daemon=True).start()
within.wait()
print(fork(lambda: print(guard.check(SAID).unjudged, flush=True)))
print(guard.check(SAID).biased)
"""
    code, out, err = run(code)
    assert (code, out) == (0, "failure\n0\nTrue\n")
    assert "was forked during a native call of its parent that did not end in time" in err
    assert "Traceback" not in err


def test_who_forks_in_the_midst_of_a_call_does_not_wait_for_itself() -> None:
    """As the handler of a signal may."""
    code = """
guard = Guard()
with forks.native:
    print(fork(lambda: os._exit(0 if guard.check(SAID).biased else 1)), flush=True)
print(guard.check(SAID).biased)
"""
    assert run(code) == (0, "0\nTrue\n", "")


def test_a_child_finds_the_locks_of_other_threads_open() -> None:
    code = """
from guard import default
from guard.detect import named
def hold(lock, held):
    with lock:
        held.set()
        threading.Event().wait()
def work(lock):
    with lock:
        os._exit(7)
for lock in (forks.Lock(), named._loading, default._making):
    held = threading.Event()
    threading.Thread(target=hold, args=(lock, held), daemon=True).start()
    held.wait()
    print(fork(lambda: work(lock)), flush=True)
"""
    assert run(code) == (0, "7\n" * 3, "")


def test_the_runtime_is_told_to_report_nothing(tmp_path: Path) -> None:
    """It would keep a name for the device, and has no thread of its own."""
    code = "Guard().check(SAID)\nprint(os.environ['ORT_DISABLE_TELEMETRY'])"
    telling = ("CI", "GITHUB_ACTIONS", "ORT_DISABLE_TELEMETRY")
    environment = {k: v for k, v in os.environ.items() if k not in telling}
    with pytest.MonkeyPatch.context() as patch:
        for name in telling:
            patch.delenv(name, raising=False)
        assert environment.keys() == os.environ.keys()
        said = run(code, HOME=str(tmp_path), XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert said == (0, "1\n", "")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
