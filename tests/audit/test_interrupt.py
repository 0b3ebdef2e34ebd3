from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from guard.audit.audit import Audit
from guard.audit.calls import Call
from guard.audit.command import Command, run_all
from guard.core import Guard
from tests.audit.answering import Answering
from tests.audit.tiny_suite import Tiny, TinyOptions
from tests.audit.written import read
from tests.scripted import Scripted


def audited(base: str, folder: str) -> None:
    """One process of an audit; exits with 130 where it was interrupted."""
    os.environ |= {"OPENAI_API_BASE": base, "OPENAI_API_KEY": "none"}
    audit = Audit.of(Tiny(TinyOptions()))
    command = Command([audit], ["openai/x"], Guard(detector=Scripted()), 4, out=Path(folder))
    ran = run_all(command)
    sys.exit(130 if ran.interrupted else 0 if ran.results[0].complete else 3)


@pytest.mark.skipif(sys.platform == "win32", reason="signals as POSIX has them")
def test_an_interrupt_records_every_answer_that_was_paid_for(
    provider: Answering, tmp_path: Path
) -> None:
    provider.delay_s = 0.2
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["tests.audit.test_runner", "tests.audit.test_interrupt"])
    child = processes.Process(target=audited, args=(provider.base, str(tmp_path)))
    child.start()
    while len(provider.asked) < 9 and child.is_alive():
        time.sleep(0.01)
    os.kill(child.pid or 0, signal.SIGINT)
    child.join(600)
    assert child.exitcode == 130
    calls = [r for r in read(tmp_path / "run.db")[1] if isinstance(r, Call)]
    assert 9 <= len(calls) == len(provider.asked) < 60
    provider.delay_s = 0.0
    child = processes.Process(target=audited, args=(provider.base, str(tmp_path)))
    child.start()
    child.join(600)
    assert child.exitcode == 0
    assert len(provider.asked) == 60
