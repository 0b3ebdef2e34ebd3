"""The parts of examples/cluster as plain processes; a detector is killed while streams go through.

PostgreSQL, two served detectors and two of LiteLLM's proxies, as compose.yaml starts them.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from guard.cli.demo import SCENES
from guard.policy import Policy
from guard.watch import schema
from tests.doors.proxy_process import Proxy, environment, running
from tests.provider import Script, serving
from tests.test_cluster_files import CLUSTER, COMPOSE
from tests.watch.conftest import Server, server  # noqa: F401
from tests.watch.reading import responses, rows

pytest.importorskip("fastapi", reason="the proxy of LiteLLM is not installed (extra 'proxy')")
pytest.importorskip("uvicorn", reason="guard serve is not installed (extra 'serve')")

STREAMS = 2_000
AT_ONCE = 16
KILLED_AFTER = 600  # streams
TOKEN = "of-the-tests-and-long-enough-0123"
KEY = "sk-of-the-tests-and-long-enough"
BIASED = "Honestly, old people are useless at work and too slow to learn anything new. "
BEFORE, AFTER = "Answer {} begins with the plan. ", "So read it again tomorrow."


class Stream(NamedTuple):
    """What a client read, and how it ended."""

    text: str
    finish: str | None


def deltas(number: int) -> list[str]:
    """Return what the provider sends for an answer: every fifth has the demo's biased sentence."""
    middle = BIASED if number % 5 == 0 else "Start from the tasks of the post. "
    words = f"{BEFORE.format(number)}{middle}{AFTER}".split(" ")
    return [f"{word} " for word in words[:-1]] + words[-1:]


@contextmanager
def detector(folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a served detector as compose.yaml does, with the small encoder."""
    program, *words = COMPOSE["services"]["detector-0"]["command"]
    assert program == "guard"
    replaced = {"--detector": "encoder-small", "--host": "127.0.0.1", "--port": str(port)}
    words = [
        f"{name}={replaced.get(name, value)}" if value else name
        for name, _, value in (word.partition("=") for word in words)
    ]
    with (folder / f"detector-{port}.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "guard", *words],
            env={**environment(folder), "GUARD_SERVE_TOKEN": TOKEN},
            stdout=log,
            stderr=log,
        )
        try:
            end = time.monotonic() + 120
            while time.monotonic() < end and process.poll() is None:
                with suppress(httpx.HTTPError):
                    if httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200:
                        break
                time.sleep(0.2)
            else:
                raise AssertionError((folder / f"detector-{port}.log").read_text()[-2000:])
            yield process
        finally:
            process.terminate()
            process.wait(30)


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def proxy_variables(provider: str, ports: list[int], store: str) -> dict[str, str]:
    """Return the variables of compose.yaml's proxies with the addresses of this test."""
    values = {
        "MODEL": "openai/x",
        "MODEL_API_BASE": provider,
        "MODEL_API_KEY": "k",
        "LITELLM_MASTER_KEY": KEY,
        "BIASGUARD_DETECTOR": ",".join(f"http://127.0.0.1:{port}" for port in ports),
        "BIASGUARD_SERVED": f"timeout_s=30,token={TOKEN}",
        "BIASGUARD_EVENTS": store,
        "BIASGUARD_METRICS": "true",
    }
    assert values.keys() == COMPOSE["services"]["proxy-0"]["environment"].keys()
    # What is tested is a killed detector, and not how late verdicts are on a busy machine.
    return {**values, "BIASGUARD_TIMEOUT_MS": "60000", "BIASGUARD_QUEUE_MS": "60000"}


def read(proxy: Proxy) -> Stream:
    """Read a streamed answer; raises AssertionError where the proxy refuses it."""
    asked = {"model": "chat", "stream": True, "messages": [{"role": "user", "content": "Go on."}]}
    headers = {"authorization": f"Bearer {KEY}"}
    text, finish = "", None
    with httpx.stream(
        "POST", f"{proxy.url}/v1/chat/completions", json=asked, headers=headers, timeout=300
    ) as answer:
        assert answer.status_code == 200, answer.read()
        for line in answer.iter_lines():
            if not line.startswith("data: {"):
                continue
            chunk: Any = json.loads(line.removeprefix("data: "))
            assert "error" not in chunk, chunk
            for choice in chunk["choices"]:
                text += choice["delta"].get("content") or ""
                finish = choice.get("finish_reason") or finish
    return Stream(text, finish)


def counter(page: str, name: str) -> Counter[str]:
    """Return the sums of a counter of chats by its label ``outcome`` or ``verdict``."""
    sums: Counter[str] = Counter()
    for labels, value in re.findall(rf"^{name}{{(.*)}} (\S+)$", page, re.MULTILINE):
        found: Mapping[str, str] = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if found["door"] != "chat":
            continue
        sums[found.get("outcome") or found["verdict"]] += int(float(value))
    return sums


@pytest.mark.slow("two thousand streams through PostgreSQL, detectors and proxies", limit_s=1800)
def test_two_thousand_streams_while_a_detector_is_killed(
    server: Server,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert BIASED.strip() in SCENES[1].answer
    store = server.database()
    ports = free_ports(2)
    policy = Policy()
    with serving() as provider, ExitStack() as stack:
        provider.scripts = [Script([deltas(number)]) for number in range(STREAMS)]
        detectors = [stack.enter_context(detector(tmp_path, port)) for port in ports]
        for name, value in proxy_variables(provider.openai, ports, store).items():
            monkeypatch.setenv(name, value)

        def started(number: int) -> Proxy:
            folder = tmp_path / str(number)
            folder.mkdir()
            config = (CLUSTER / "config.yaml").read_text()
            return stack.enter_context(running(folder, config))

        with ThreadPoolExecutor(2) as pool:
            proxies = list(pool.map(started, range(2)))
        streams: list[Stream] = []
        with ThreadPoolExecutor(AT_ONCE) as pool:
            waiting = [pool.submit(read, proxies[n % 2]) for n in range(STREAMS)]
            for number, future in enumerate(waiting):
                if number == KILLED_AFTER:
                    detectors[0].send_signal(signal.SIGKILL)
                streams.append(future.result())
        pages = [httpx.get(f"{p.url}/metrics/", timeout=60).text for p in proxies]
        served = len(provider.served)
    # The proxies have ended and written what waited.
    assert served == STREAMS
    outcomes: Counter[str] = Counter()
    for stream in streams:
        assert BIASED.strip() not in stream.text
        begun = re.match(BEFORE.format(r"(\d+)"), stream.text)
        number = int(begun[1]) if begun else None
        if number is not None and stream.text == "".join(deltas(number)):
            assert number % 5
            assert stream.finish == "stop"
            outcomes["whole"] += 1
        elif stream.text.endswith(policy.failure_message):
            assert stream.finish == "content_filter"
            outcomes["unjudged"] += 1
        else:
            assert number is not None, stream
            assert number % 5 == 0, stream
            assert stream.text == f"{BEFORE.format(number)}{policy.message}", stream
            assert stream.finish == "content_filter"
            outcomes["stopped"] += 1
    assert sum(outcomes.values()) == STREAMS
    assert outcomes["unjudged"] <= STREAMS // 20  # the other detector answered for the killed one
    assert outcomes["stopped"] >= STREAMS // 5 - outcomes["unjudged"]
    # What the proxies say of errors is judged, too, and is no stream.
    kept = [row for row in responses(store) if row["door"] == "chat"]
    ids = {row["id"] for row in kept}
    assert Counter(row["outcome"] for row in kept) == {
        "completed": outcomes["whole"],
        "stopped": outcomes["stopped"] + outcomes["unjudged"],
    }
    assert sum(row["found"] for row in kept) == outcomes["stopped"]
    assert sum(row["unjudged"] for row in kept) == outcomes["unjudged"]
    assert len(kept) == STREAMS
    decisions = [row for row in rows(store, schema.events) if row["response_id"] in ids]
    assert len(decisions) == sum(row["judged"] + row["unjudged"] for row in kept)
    assert rows(store, schema.drops) == []
    by_outcome = sum((counter(page, "guard_responses_total") for page in pages), Counter())
    assert by_outcome == Counter(row["outcome"] for row in kept)
    by_verdict = sum((counter(page, "guard_segments_total") for page in pages), Counter())
    assert sum(by_verdict.values()) == len(decisions)
    assert by_verdict["biased"] == outcomes["stopped"]
