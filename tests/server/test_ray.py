"""The same application on Ray Serve: equal verdicts, and a killed replica stops what it judged."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from guard import Guard
from guard.policy import Policy
from tests.data import ROOT
from tests.processes import started_by

pytest.importorskip("ray")
pytestmark = pytest.mark.slow("starts a cluster of Ray and waits for its replicas", limit_s=600)

TEXT = "Old people are useless at work. The sun shines. Women are too emotional to lead."


@contextmanager
def on_ray() -> Iterator[tuple[str, int]]:
    """Run the example; yield its URL and its process."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "examples" / "cluster" / "serve_ray.py"), "--port", str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "BIASGUARD_DETECTOR": "encoder-small", "PYTHONPATH": str(ROOT)},
    )
    try:
        assert process.stdout is not None
        assert any(line.startswith("{") for line in process.stdout), "Serve did not start"
        yield f"http://127.0.0.1:{port}", process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            raise


def test_verdicts_are_equal_and_a_killed_replica_lets_nothing_through() -> None:
    own = Guard(Policy(), detector="encoder-small")
    with on_ray() as (url, process):
        served = Guard(Policy(breaker_failures=None), detector=url)
        for one, other in zip(served.trail(TEXT), own.trail(TEXT), strict=True):
            assert replace(one.verdict, elapsed_ms=0) == replace(other.verdict, elapsed_ms=0)
        for replica in started_by(process, "ServeReplica"):
            os.kill(replica, signal.SIGKILL)
        stream = served.stream([TEXT])
        assert "".join(stream) in (served.policy.failure_message, served.policy.message)
        until = time.monotonic() + 120
        while served.check(TEXT).unjudged:
            assert time.monotonic() < until
            time.sleep(1)
        assert served.check(TEXT).biased
