"""A served detector that ends, hangs or is cut off: no stream lets text through unjudged."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.server import partition
from tests.server.load import Load
from tests.server.serving import Process, served_apart

slow = pytest.mark.slow("kills servers under load, and waits for time limits", limit_s=600)


def asked(url: str, text: str) -> httpx.Response:
    return httpx.post(f"{url}/v1/scores", json={"windows": [{"text": text}]}, timeout=60)


def told_to_end(server: Process) -> httpx.Response:
    """Send SIGTERM once a window is accepted; return the answer to another one after that."""
    until = time.monotonic() + 25  # the window fails after 30 s
    while "\nguard_served_waiting_windows 1.0" not in httpx.get(f"{server.url}/metrics").text:
        assert time.monotonic() < until
    server.process.send_signal(signal.SIGTERM)
    while (answer := asked(server.url, "late")).status_code != 503:
        assert time.monotonic() < until
    return answer


def test_sigterm_ends_a_server_once_what_it_accepted_is_answered(tmp_path: Path) -> None:
    release = tmp_path / "release"
    with ThreadPoolExecutor() as pool, served_apart("--release", str(release)) as server:
        waiting = pool.submit(asked, server.url, "HELD BIAS")
        assert told_to_end(server).json()["error"] == "draining"
        release.touch()
        assert waiting.result().json()["items"][0]["scores"]["score"] == 0.9
        assert server.process.wait(30) == 0


def test_a_second_sigterm_ends_a_server_that_still_judges(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    never = str(tmp_path / "never")
    with ThreadPoolExecutor() as pool, served_apart("--release", never) as server:
        waiting = pool.submit(asked, server.url, "HELD BIAS")
        told_to_end(server)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == -signal.SIGTERM
        with pytest.raises(httpx.RemoteProtocolError):
            waiting.result()
    assert capfd.readouterr().err == ""  # uvicorn tells of a limit that it waited for


def test_a_killed_server_stops_streams_and_a_new_one_is_used_at_once() -> None:
    with served_apart() as first, Load(first.url) as load:
        load.wait_for("judged", 10)
        first.process.kill()
        load.wait_for("stopped", 10)
        with served_apart("--port", str(first.port)):
            load.wait_for("judged", 10)
    assert load.let_through == []


@slow
def test_killed_again_and_again_lets_nothing_through() -> None:
    with served_apart() as first:
        port = str(first.port)
        with Load(first.url) as load:
            load.wait_for("judged")
            first.process.kill()
            for _ in range(10):
                load.wait_for("stopped")
                with served_apart("--port", port):
                    load.wait_for("judged")
    assert load.let_through == []


@slow
def test_a_server_that_hangs_lets_nothing_through() -> None:
    with served_apart() as server, Load(server.url, timeout_ms=500) as load:
        for _ in range(5):
            load.wait_for("judged")
            server.process.send_signal(signal.SIGSTOP)
            load.wait_for("stopped")
            server.process.send_signal(signal.SIGCONT)
    assert load.let_through == []


@slow
def test_one_of_two_servers_may_be_killed_or_hang() -> None:
    with (
        served_apart() as first,
        served_apart() as other,
        Load(f"{first.url},{other.url}", timeout_ms=20_000) as load,
    ):
        load.wait_for("judged", 100)
        first.process.kill()
        load.wait_for("judged", 100)
        with served_apart("--port", str(first.port)) as first_again:
            time.sleep(2)
            other.process.send_signal(signal.SIGSTOP)
            load.wait_for("judged", 100)
            other.process.send_signal(signal.SIGCONT)
            time.sleep(2)
            first_again.process.kill()
            load.wait_for("judged", 100)
    assert load.let_through == []
    assert load.ends["stopped"] == 0


@slow
def test_servers_that_are_replaced_in_turn_stop_no_stream() -> None:
    with ExitStack() as servers:
        first, other = (servers.enter_context(served_apart()) for _ in range(2))
        load = Load(f"{first.url},{other.url}", timeout_ms=20_000)
        servers.enter_context(load)
        for server in (first, other):
            load.wait_for("judged", 100)
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(60) == 0
            servers.enter_context(served_apart("--port", str(server.port)))
            time.sleep(2)  # by then it is looked at
        load.wait_for("judged", 100)
        load.finish()
    assert load.let_through == []
    assert load.ends["stopped"] == 0


@slow
def test_a_partition_lets_nothing_through() -> None:
    if sys.platform != "linux" or not all(map(shutil.which, ("unshare", "nsenter", "ip"))):
        pytest.skip("needs unshare, nsenter and ip of Linux")
    if subprocess.run(["unshare", "-n", "true"], capture_output=True).returncode:
        pytest.skip("this user may not make a network namespace")
    command = ["unshare", "-n", sys.executable, "-m", partition.__name__]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=300, check=True)
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["let_through"] == []
    assert told["ends"]["stopped"] >= 60
    assert told["ends"]["judged"] >= 60
