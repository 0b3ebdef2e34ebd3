"""The client of a served detector: what is no exact answer in time stops the output."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from guard import Guard
from guard.detect import served_http
from guard.detect.served import ServedDetector
from guard.detect.served_addresses import AddressBook, ServedAddress
from guard.detect.served_http import HttpConnections
from guard.errors import ConfigError
from guard.policy import Policy
from guard.served_settings import ServedSettings, read_addresses
from guard.verdict import Scores, Verdict, Window
from tests.rows import rows
from tests.scripted import Scripted, failing
from tests.server.serving import (
    TOKEN,
    VERSION,
    WEIGHTS,
    Fake,
    Telling,
    exact_answer,
    exactly,
    faking,
    http_answer,
    served_here,
)

TEXTS = ["Alpha beta gamma. ", "Delta BIAS epsilon. ", "Zeta eta theta."]
Say = Callable[[socket.socket, dict[str, Any]], None]
#: Long enough for a busy machine.
TIMEOUT_MS = 60_000.0
#: Of what hangs, which takes all of it.
HUNG_MS = 400.0


@pytest.fixture
def fake() -> Iterator[Fake]:
    with faking() as server:
        yield server


@pytest.fixture
def unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no thread look at addresses, so that one that failed is skipped for good."""
    monkeypatch.setattr("guard.detect.served_addresses.INTERVAL", 3600.0)


def policy_of(timeout_ms: float) -> Policy:
    return Policy(timeout_ms=timeout_ms, failure="closed", breaker_failures=None)


def guarded(detector: str, timeout_ms: float = TIMEOUT_MS, **served: Any) -> Guard:
    return Guard(policy_of(timeout_ms), detector=detector, served={"timeout_s": 60, **served})


def changed(change: Callable[[dict[str, Any]], Any]) -> Say:
    """Answer as a served detector does, after ``change``."""

    def say(connection: socket.socket, asked: dict[str, Any]) -> None:
        answer = exact_answer(asked)
        changed = change(answer)
        connection.sendall(http_answer(json.dumps(changed or answer).encode()))

    return say


def item_of(**fields: Any) -> Say:
    """Answer with scores some of whose fields are others."""
    return changed(lambda answer: answer["items"][0]["scores"].update(fields))


def raw(data: bytes, *, close: bool = False) -> Say:
    def say(connection: socket.socket, _: dict[str, Any]) -> None:
        connection.sendall(data)
        if close:
            connection.shutdown(socket.SHUT_RDWR)

    return say


def half(connection: socket.socket, asked: dict[str, Any]) -> None:
    whole = http_answer(json.dumps(exact_answer(asked)).encode())
    connection.sendall(whole[: len(whole) - 20])
    connection.shutdown(socket.SHUT_RDWR)


def half_as_whole(connection: socket.socket, asked: dict[str, Any]) -> None:
    body = json.dumps(exact_answer(asked)).encode()
    connection.sendall(http_answer(body[: len(body) // 2]))


def dripping(connection: socket.socket, asked: dict[str, Any]) -> None:
    """Send a byte now and then: no single read takes long."""
    for byte in http_answer(json.dumps(exact_answer(asked)).encode()):
        connection.sendall(bytes([byte]))
        time.sleep(0.05)


def late(connection: socket.socket, asked: dict[str, Any]) -> None:
    time.sleep(HUNG_MS / 1000 + 0.3)
    exactly(connection, asked)


def silent(connection: socket.socket, asked: dict[str, Any]) -> None:
    pass


def as_status(status: str, *headers: str, body: bytes | None = None) -> Say:
    """Answer with the right scores, but another status."""

    def say(connection: socket.socket, asked: dict[str, Any]) -> None:
        whole = json.dumps(exact_answer(asked)).encode() if body is None else body
        connection.sendall(http_answer(whole, status, *headers))

    return say


def answer_to_another(connection: socket.socket, asked: dict[str, Any]) -> None:
    exactly(connection, {**asked, "request": "another"})


PAIR = {"group": "a", "attribute": "b", "group_span": [0, 1], "attribute_span": [0, 1]}
MISBEHAVED: dict[str, Say] = {
    "garbage": raw(b"\x00\xff garbage\r\n\r\n", close=True),
    "no json": raw(http_answer(b"Yes.")),
    "html": raw(http_answer(b"<html>It works!</html>")),
    "nothing": raw(b"", close=True),
    "half an answer": half,
    "half an answer, whole by its length": half_as_whole,
    "no length": raw(b"HTTP/1.1 200 OK\r\n\r\n{}", close=True),
    "two lengths": raw(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}"),
    "a length of its own": raw(b"HTTP/1.1 200 OK\r\ncontent-length: -2\r\n\r\n{}"),
    "a huge length": raw(b"HTTP/1.1 200 OK\r\ncontent-length: 999999999\r\n\r\n{}"),
    "endless headers": raw(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000),
    "broken chunks": raw(
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}", close=True
    ),
    "half of the chunks": raw(
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n", close=True
    ),
    "200 with an error": raw(http_answer(b'{"error": "failed", "message": "It failed."}')),
    "an item with an error": changed(lambda a: a.update(items=[{"error": "failed"}])),
    "an item that is late": changed(lambda a: a.update(items=[{"error": "late"}])),
    "an item with both": changed(lambda a: a["items"][0].update(error="failed")),
    "an item that is a text": changed(lambda a: a.update(items=["division by zero"])),
    "no items": changed(lambda a: a.update(items=[])),
    "too many items": changed(lambda a: a.update(items=a["items"] * 2)),
    "items that are none": changed(lambda a: a.update(items=None)),
    "nan": item_of(score=float("nan")),
    "a score above 1": item_of(score=1.5),
    "a score that is a text": item_of(score="0.1"),
    "no score": item_of(score=None),
    "an unknown type": item_of(bias_type="boring"),
    "an unknown reason": item_of(unjudged="fair"),
    "a span outside the text": item_of(
        attributions=[{**PAIR, "group_span": [0, 4000]}]
    ),
    "an unknown field": item_of(fair=True),
    "another detector": changed(lambda a: a.update(detector="fake-2")),
    "other weights": changed(lambda a: a.update(weights="cd" * 32)),
    "no weights": changed(lambda a: a.pop("weights") and None),
    "another index": changed(lambda a: a.update(index_version="index-2")),
    "the answer to another request": answer_to_another,
    "500": as_status("500 Internal Server Error"),
    "503": as_status("503 Service Unavailable", "retry-after: 1"),
    "503, overloaded": as_status(
        "503 Service Unavailable", "retry-after: 5", body=b'{"error": "overloaded"}'
    ),
    "409": as_status("409 Conflict", body=b'{"error": "unknown_index_version"}'),
    "400": as_status("400 Bad Request"),
    "401": as_status("401 Unauthorized"),
    "201": as_status("201 Created"),
    "a redirect": as_status("307 Temporary Redirect", "location: http://127.0.0.1:1/"),
    "informed for ever": raw(b"HTTP/1.1 100 Continue\r\n\r\n" * 10),
    "dripping": dripping,
    "after the deadline": late,
    "silent": silent,
}  # fmt: skip


@rows("name", MISBEHAVED)
def test_what_is_no_exact_answer_lets_nothing_through(name: str, fake: Fake) -> None:
    hangs = name in ("silent", "dripping", "after the deadline")
    guard = guarded(fake.url, HUNG_MS if hangs else TIMEOUT_MS)
    fake.say = MISBEHAVED[name]
    stream = guard.stream(TEXTS)
    assert "".join(stream) == guard.policy.failure_message
    (decision,) = stream.guard
    reason = "overload" if name == "503, overloaded" else "failure"
    assert (decision.verdict.unjudged, decision.action) == (reason, "terminate")
    # And the same server, well again, is used at once.
    fake.say = exactly
    patient = Guard(policy_of(TIMEOUT_MS), detector=guard.detector)
    assert not patient.check("Alpha beta gamma.").unjudged


def test_a_server_that_behaves_lets_all_through_but_bias(fake: Fake) -> None:
    guard = guarded(fake.url)
    stream = guard.stream(TEXTS)
    assert "".join(stream) == TEXTS[0] + guard.policy.message
    assert [d.verdict.biased for d in stream.guard if d.counted][-1]


def test_half_of_an_answer_is_none_wherever_it_is_cut(fake: Fake) -> None:
    detector = ServedDetector(fake.url, ServedSettings(timeout_s=30))
    session = detector.snapshot()

    for share in range(0, 100, 7):

        def cut(connection: socket.socket, asked: dict[str, Any], share: int = share) -> None:
            whole = http_answer(json.dumps(exact_answer(asked)).encode())
            connection.sendall(whole[: len(whole) * share // 100])
            connection.shutdown(socket.SHUT_RDWR)

        fake.say = cut
        with pytest.raises(Exception, match=r"no connection|no HTTP"):
            session.score([Window("Alpha.")])


def test_an_answer_in_chunks_is_read(fake: Fake) -> None:
    def say(connection: socket.socket, asked: dict[str, Any]) -> None:
        body = json.dumps(exact_answer(asked)).encode()
        parts = [body[i : i + 50] for i in range(0, len(body), 50)]
        chunks = b"".join(b"%x;x=y\r\n%s\r\n" % (len(part), part) for part in parts)
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n"
        connection.sendall(head + chunks + b"0\r\ntrailer: 1\r\n\r\n")

    fake.say = say
    assert guarded(fake.url).check("Delta BIAS.").biased


def verdicts(guard: Guard, texts: list[str]) -> list[Verdict]:
    return [replace(d.verdict, elapsed_ms=0) for text in texts for d in guard.trail(text)]


def test_verdicts_equal_those_of_the_same_detector_in_this_process() -> None:
    texts = ["All is well. BIAS here. FOREIGN words.", "BIAS.", "FOREIGN.", "Well \ud800 then."]
    detector = Telling()
    with served_here(detector) as server:
        for settings in ({}, {"threshold": 0.95}, {"language": "stop"}):
            policy = Policy.model_validate(settings)
            served, own = Guard(policy, detector=server.url), Guard(policy, detector=detector)
            assert verdicts(served, texts) == verdicts(own, texts)
            assert served.detector.operating_points == own.detector.operating_points
        with pytest.raises(ConfigError, match="language='judge' needs a detector that reads other"):
            Guard(Policy(language="judge"), detector=server.url).session()


class EveryLanguage(Telling):
    """Reads other languages where it is asked to, as a cascade does."""

    thresholds = (0.2, 0.8)

    @property
    def every_language(self) -> Scripted:
        other = Scripted(pattern="FOREIGN")
        other.name = self.name
        return other


def test_the_reader_of_every_language_is_asked_and_limits_of_thresholds_hold() -> None:
    with served_here(EveryLanguage()) as server:
        guard = Guard(Policy(language="judge"), detector=server.url)
        assert guard.check("FOREIGN words.").biased
        assert not Guard(Policy(), detector=server.url).check("FOREIGN words.").biased
        with pytest.raises(ConfigError, match=r"takes thresholds from 0.2 to 0.8"):
            Guard(Policy(threshold=0.9), detector=server.url).session()


def test_what_a_detector_could_not_judge_is_its_failure_not_an_address_that_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with served_here(Scripted(before=failing)) as server:
        guard = guarded(server.url)
        assert guard.check("Alpha secret.").unjudged == "failure"
        assert f"{server.url} is skipped" not in caplog.text
        assert "secret" not in caplog.text
        several = guard.detector.snapshot().score([Window("a"), Window("b")])
        assert several == [Scores(unjudged="failure")] * 2


def test_many_windows_go_in_as_many_requests_as_the_server_takes(fake: Fake) -> None:
    fake.described["limits"] = {"windows": 3}
    session = ServedDetector(fake.url).snapshot()
    windows = [Window(f"{'BIAS' if i % 2 else 'well'} {i}") for i in range(8)]
    assert [round(s.score or 0) for s in session.score(windows)] == [0, 1] * 4
    assert [len(asked["windows"]) for asked in fake.asked] == [3, 3, 2]


def test_the_deadline_is_stated(fake: Fake) -> None:
    guarded(fake.url, 20_000).check("Alpha.")
    (head,) = [head for head in fake.heads if head.startswith("POST")]
    (line,) = [line for line in head.split("\r\n") if line.lower().startswith("guard-deadline")]
    assert 0 < float(line.partition(":")[2]) <= 20_000


@pytest.mark.parametrize("surely_idle_s", [60.0, 0.0])
def test_connections_are_kept_and_one_that_was_closed_meanwhile_is_no_failure(
    surely_idle_s: float, fake: Fake, unwatched: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_http, "_SURELY_IDLE_S", surely_idle_s)
    guard = guarded(fake.url)
    for _ in range(5):
        assert not guard.check("Alpha.").unjudged
    assert len(fake._open) == 1
    for connection in fake._open:
        connection.shutdown(socket.SHUT_RDWR)
    assert not guard.check("Alpha.").unjudged


@pytest.mark.parametrize(
    "wrong",
    ["500", "garbage", "other weights", "503, overloaded", "409", "an item that is late"],
)
def test_a_failed_request_is_repeated_once_at_another_address_and_the_first_is_skipped(
    wrong: str, fake: Fake, unwatched: None
) -> None:
    with faking() as other:
        guard = guarded(f"{fake.url},{other.url}")
        fake.say = MISBEHAVED[wrong]
        for _ in range(6):
            assert guard.check("Delta BIAS.").biased
        assert len(fake.asked) <= 1
        assert len(other.asked) == 6
        other.say = MISBEHAVED[wrong]
        assert guard.check("Delta BIAS.").unjudged
        fake.say = other.say = exactly
        assert guard.check("Delta BIAS.").biased


def test_requests_are_shared_by_the_addresses(fake: Fake, unwatched: None) -> None:
    with faking() as other:
        guard = guarded(f"{fake.url},{other.url}")
        for number in range(10):
            guard.check(f"Alpha {number}.")
        assert len(fake.asked) == len(other.asked) == 5


def test_a_hung_address_leaves_time_for_another_and_is_used_again_when_well(fake: Fake) -> None:
    with faking() as other:
        guard = guarded(f"{fake.url},{other.url}", 4000)
        fake.say = silent
        for _ in range(4):
            assert not guard.check("Alpha.").unjudged
        fake.say = exactly
        before = len(fake.asked)
        until = time.monotonic() + 20
        while len(fake.asked) == before and time.monotonic() < until:
            guard.check("Alpha.")
            time.sleep(0.05)
        assert len(fake.asked) > before


def test_a_dead_address_is_no_hindrance_while_another_answers(fake: Fake) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        dead = f"http://127.0.0.1:{listener.getsockname()[1]}"
    guard = guarded(f"{dead},{fake.url}")
    for _ in range(4):
        assert not guard.check("Alpha.").unjudged
    with pytest.raises(ConfigError, match=r"No served detector can be used \(http://127.0.0.1:"):
        guarded(dead)


def test_the_breaker_spares_a_server_that_fails(fake: Fake) -> None:
    policy = Policy(breaker_failures=2, breaker_pause_ms=60_000)
    guard = Guard(policy, detector=fake.url)
    fake.say = MISBEHAVED["500"]
    for _ in range(6):
        assert guard.check("Alpha.").unjudged == "failure"
    assert len(fake.asked) == 2


def test_a_new_index_is_for_new_streams_and_a_running_one_keeps_its_own() -> None:
    detector = Scripted()
    with served_here(detector) as server:
        guard = guarded(server.url)
        old = guard.session()
        assert guard.check("Alpha.").index_version == "index-1"
        detector.index_version = "index-2"
        until = time.monotonic() + 20
        while guard.check("Alpha.").index_version != "index-2" and time.monotonic() < until:
            time.sleep(0.05)
        assert guard.check("Alpha.").index_version == "index-2"
        (verdict,) = old.judge.judge([Window("Alpha BIAS.")])
        assert (verdict.index_version, verdict.biased) == ("index-1", True)
        for number in range(3, 8):  # more than are kept
            detector.index_version = f"index-{number}"
            server.app.service._keeper._again = 0
            server.app.service.describe()
        (verdict,) = old.judge.judge([Window("Alpha BIAS.")])
        assert verdict.unjudged == "failure"


def test_settings_name_what_must_be_served(fake: Fake) -> None:
    assert guarded(fake.url, weights=WEIGHTS).detector.name == "fake-1"
    assert guarded(fake.url, weights=WEIGHTS[:8].upper()).check("a b").index_version == VERSION
    with pytest.raises(ConfigError, match=r"served.weights is cdcdcdcd, and .* serves fake-1"):
        guarded(fake.url, weights="cd" * 4)
    with pytest.raises(ConfigError, match=r"served.index_version is index-2, and .* has index-1"):
        guarded(fake.url, index_version="index-2")
    guard = guarded(fake.url, index_version=VERSION)
    fake.say = changed(lambda answer: answer.update(newest_index_version="index-9"))
    for _ in range(2):
        assert guard.check("Alpha.").index_version == VERSION


def test_addresses_that_serve_different_detectors_are_refused(fake: Fake) -> None:
    with faking() as other:
        other.described["weights"] = "cd" * 32
        with pytest.raises(ConfigError, match="The addresses serve different detectors, fake-1"):
            guarded(f"{fake.url},{other.url}")


def test_the_token_is_sent_and_shown_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with served_here(Scripted(), token=TOKEN) as server:
        assert not guarded(server.url, token=TOKEN).check("Alpha.").unjudged
        with pytest.raises(ConfigError, match=r"another token: set served\.token") as caught:
            guarded(server.url, token="another-token-entirely")
        assert "another-token" not in str(caught.value)
        with pytest.raises(ConfigError, match=r"set served\.token"):
            guarded(server.url)
    assert TOKEN not in repr(ServedSettings(token=TOKEN))
    assert "another-token" not in caplog.text
    assert TOKEN not in caplog.text


def test_a_forked_child_has_connections_of_its_own(fake: Fake) -> None:
    guard = guarded(fake.url)
    guard.check("Alpha.")
    read, write = os.pipe()
    child = os.fork()
    if not child:  # pragma: no cover
        answers = {guard.check("Delta BIAS.").biased for _ in range(3)}
        os.write(write, b"well" if answers == {True} else b"ill")
        os._exit(0)
    for _ in range(3):
        assert guard.check("Delta BIAS.").biased
    assert os.read(read, 10) == b"well"
    os.waitpid(child, 0)
    os.close(read)
    os.close(write)


def test_no_thread_of_a_forked_child_takes_a_connection_of_the_parent(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections: Any = HttpConnections(read_addresses(fake.url)[0], 2, None, {})
    others: list[threading.Thread] = []

    def ask() -> None:
        connections.ask("GET", "/", b"", time.monotonic() + 60)

    def renewed() -> deque[Any]:
        """Have another thread ask while this one renews the connections."""
        others.append(threading.Thread(target=ask))
        others[-1].start()
        others[-1].join(0.1)
        return deque()

    ask()
    child = os.fork()
    if not child:  # pragma: no cover
        try:
            connections._idle[0].is_idle = lambda: os._exit(1)
            monkeypatch.setattr(served_http, "deque", renewed)
            ask()
            others[0].join(20)
            os._exit(0 if len(others) == 1 else 3)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_streams_at_once_share_the_calls(fake: Fake) -> None:
    guard = guarded(fake.url, 60_000)

    async def read(number: int) -> str:
        async def source() -> AsyncIterator[str]:
            for text in (f"Alpha {number}. ", "Beta. ", "Gamma BIAS. "):
                yield text

        return "".join([text async for text in guard.astream(source())])

    async def main() -> list[str]:
        return await asyncio.gather(*(read(number) for number in range(40)))

    for number, text in enumerate(asyncio.run(main())):
        assert text == f"Alpha {number}. Beta. {guard.policy.message}"


def test_the_thread_that_looks_at_addresses_ends_with_the_detector(fake: Fake) -> None:
    import gc

    detector: Any = ServedDetector(fake.url)
    detector.snapshot().score([Window("Alpha.")])
    threads = [t for t in threading.enumerate() if t.name == "guard-served"]
    del detector
    gc.collect()
    for thread in threads:
        thread.join(20)
    assert not [t for t in threads if t.is_alive()]


def looking() -> int:
    return sum(thread.name == "guard-served" for thread in threading.enumerate())


def test_an_address_that_hangs_delays_no_look_at_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("guard.detect.served_addresses.INTERVAL", 0.01)
    named = read_addresses("http://127.0.0.1:1,http://127.0.0.1:2,http://127.0.0.1:3")
    *hung, well = [ServedAddress(address, ServedSettings(), None) for address in named]
    begun: set[ServedAddress] = set()
    go, looked = threading.Event(), threading.Event()

    def look(address: ServedAddress) -> None:
        if address is not well:
            begun.add(address)
            go.wait(60)
        elif begun == set(hung):
            looked.set()

    book = AddressBook([*hung, well], look, None)
    try:
        assert looked.wait(20)
    finally:
        go.set()
    del book


def test_a_forked_child_looks_at_every_address_itself(fake: Fake) -> None:
    with faking() as other:
        detector = ServedDetector(f"{fake.url},{other.url}")
        assert looking() == 2
        child = os.fork()
        if not child:  # pragma: no cover
            try:
                before = looking()
                detector.snapshot()
                detector.snapshot()
                os._exit(0 if (before, looking()) == (0, 2) else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert looking() == 2


def test_a_place_of_an_address_that_hangs_leaves_time_for_the_next(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    (address,) = read_addresses(fake.url)
    with contextlib.ExitStack() as sockets:
        full = sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):  # beyond the backlog, a connection hangs
            plain = sockets.enter_context(socket.socket())
            plain.settimeout(0.05)
            with contextlib.suppress(TimeoutError):
                plain.connect(full.getsockname())
        places = [
            (socket.AF_INET, socket.SOCK_STREAM, 0, "", place)
            for place in (full.getsockname(), (address.host, address.port))
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: places)
        connections = HttpConnections(address, 1, None, {})
        assert connections.ask("GET", "/", b"", time.monotonic() + 3).status == 200


def test_https_is_checked_by_the_authorities_of_the_machine(
    tmp_path: Path, unwatched: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl, to make a certificate")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=judge", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    with faking(context) as server:
        with pytest.raises(ConfigError, match="its certificate is refused: self-signed"):
            guarded(server.url)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        guard = guarded(server.url, 20_000)
        monkeypatch.setattr(served_http, "_SURELY_IDLE_S", 0.0)
        opened = len(server._open)
        for _ in range(3):
            assert guard.check("Delta BIAS.").biased
        assert len(server._open) == opened
        server.say = half
        assert guard.check("Alpha.").unjudged
