"""The contract of a served detector, asked for over real connections."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import httpx
import pytest
import uvicorn

from guard.detect.wire import plain_window, read_scores
from guard.server import run
from guard.server.app import ScoreServer
from guard.server.settings import ServerLimits
from guard.verdict import Window
from tests.rows import rows
from tests.scripted import Scripted, failing
from tests.server.serving import TOKEN, Here, Telling, served_here

SECRET = "secret words"


@pytest.fixture(scope="module")
def server() -> Iterator[Here]:
    limits = ServerLimits(windows=4, timeout_s=30)
    with served_here(Telling(), limits) as here:
        yield here


def asked(url: str, *texts: str, headers: Mapping[str, str] = {}, **more: Any) -> httpx.Response:
    body = {"windows": [plain_window(Window(text)) for text in texts], **more}
    return httpx.post(f"{url}/v1/scores", json=body, headers=dict(headers), timeout=60)


def test_windows_go_in_and_scores_come_out(server: Here) -> None:
    texts = ["All is well.", "Here is BIAS.", "FOREIGN."]
    answer = asked(server.url, *texts, request="r1").json()
    assert answer["request"] == "r1"
    assert answer["index_version"] == answer["newest_index_version"] == "index-1"
    scores = [read_scores(i["scores"], t) for i, t in zip(answer["items"], texts, strict=True)]
    assert [s.score for s in scores] == [0.1, 0.9, None]
    assert scores[2].unjudged == "language"
    described = httpx.get(f"{server.url}/v1/detector").json()
    assert (answer["detector"], answer["weights"]) == (described["detector"], described["weights"])


def test_a_server_describes_its_detector(server: Here) -> None:
    described = httpx.get(f"{server.url}/v1/detector").json()
    assert described["detector"] == "scripted-1"
    assert described["languages"] == ["en"]
    assert described["thresholds"] is None
    assert described["index_versions"] == ["index-1"]
    assert described["operating_points"]["strict"]["age"] == 0.3
    assert described["limits"] == {"windows": 4, "bytes": 4_194_304, "queue": 512, "timeout_s": 30}


def test_one_window_that_fails_is_an_item_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    def before(window: Window) -> None:
        if "ILL" in window.text:
            raise RuntimeError(window.text)

    with served_here(Scripted(before=before)) as server:
        items = asked(server.url, "well", f"ILL {SECRET}", "BIAS").json()["items"]
        assert [*items[0], *items[1], *items[2]] == ["scores", "error", "scores"]
        assert items[1] == {"error": "failed"}
        assert SECRET not in caplog.text
        assert SECRET not in httpx.get(f"{server.url}/metrics").text


WINDOW = {"text": "a"}
BAD: list[tuple[Any, int, str]] = [
    (b"no json", 400, "The body is no JSON."),
    (b"[" * 4_200_000, 413, "at most 4,194,304 bytes"),
    (b"[" * 10_000, 400, "The body is no JSON."),
    (b"\xff", 400, "The body is no JSON."),
    ([], 400, "The body is an object of"),
    ({"windows": []}, 400, "at least one window"),
    ({"windows": "a"}, 400, "at least one window"),
    ({}, 400, "at least one window"),
    ({"windows": [WINDOW] * 5}, 413, "at most 4 windows"),
    ({"windows": [{"text": "a " * 30_000}]}, 413, "at most 50,000 characters"),
    ({"windows": [{"text": "a", "context": ["a " * 30_000]}]}, 413, "at most 50,000 characters"),
    ({"windows": [{"text": 1}]}, 400, "text of a window is no text"),
    ({"windows": [{"text": "a", SECRET: SECRET}]}, 400, "a window has an unknown field"),
    ({"windows": [{"text": "a", "context": SECRET}]}, 400, "no list of texts"),
    ({"windows": [WINDOW], SECRET: 1}, 400, "The body is an object of"),
    ({"windows": [WINDOW], "request": "a" * 65}, 400, "at most 64 characters"),
    ({"windows": [WINDOW], "index_version": 1}, 400, "a text or null"),
    ({"windows": [WINDOW], "every_language": 1}, 400, "true or false"),
    ({"windows": [WINDOW], "every_language": True}, 400, "no reader of every language"),
    ({"windows": [WINDOW], "index_version": "gone"}, 409, "No session of this version"),
    ({"windows": [WINDOW], "index_version": None}, 409, "No session of this version"),
]


@rows("body, status, sentence", BAD)
def test_a_request_that_cannot_be_served_is_one_sentence(
    body: Any, status: int, sentence: str, server: Here, caplog: pytest.LogCaptureFixture
) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = httpx.post(f"{server.url}/v1/scores", content=data, timeout=60)
    assert answer.status_code == status
    assert sentence in answer.json()["message"]
    assert "items" not in answer.json()
    assert SECRET not in answer.text + caplog.text


@rows(
    "deadline, status, sentence",
    [
        ("soon", 400, "guard-deadline-ms is a number of milliseconds"),
        ("nan", 400, "guard-deadline-ms is a number of milliseconds"),
        ("0", 504, "nothing was judged"),
        ("-inf", 504, "nothing was judged"),
    ],
)
def test_a_deadline_that_is_none_or_has_passed(
    deadline: str, status: int, sentence: str, server: Here
) -> None:
    answer = asked(server.url, "a", headers={"guard-deadline-ms": deadline})
    assert answer.status_code == status
    assert sentence in answer.json()["message"]


def test_an_unknown_version_names_those_that_are_kept(server: Here) -> None:
    answer = asked(server.url, "a", index_version="gone").json()
    assert answer["error"] == "unknown_index_version"
    assert answer["newest_index_version"] == "index-1"
    assert asked(server.url, "a", index_version="index-1").status_code == 200


def test_other_paths_and_methods_are_none(server: Here) -> None:
    assert httpx.get(f"{server.url}/v1/scores").status_code in (404, 405)
    assert httpx.get(f"{server.url}/").status_code == 404
    assert httpx.post(f"{server.url}/health").status_code == 405


class Held(Scripted):
    """Waits with each window until it is let go."""

    concurrency = 1

    def __init__(self) -> None:
        super().__init__(before=lambda _: self._meet())
        self.go = threading.Event()
        self.begun = threading.Event()

    def _meet(self) -> None:
        self.begun.set()
        self.go.wait(60)


@pytest.fixture
def held() -> Iterator[tuple[Held, Here]]:
    detector = Held()
    with served_here(detector, ServerLimits(queue=3, windows=3, timeout_s=60)) as here:
        yield detector, here
        detector.go.set()


def test_beyond_the_queue_a_request_is_refused_at_once(held: tuple[Held, Here]) -> None:
    detector, server = held
    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(asked, server.url, f"BIAS {i}") for i in range(3)]
        wait_for(lambda: server.app.service.accepted == 3)
        refused = asked(server.url, "one more")
        assert (refused.status_code, refused.json()["error"]) == (503, "overloaded")
        assert int(refused.headers["retry-after"]) >= 1
        assert httpx.get(f"{server.url}/health").status_code == 200
        metrics = httpx.get(f"{server.url}/metrics").text
        assert "guard_served_waiting_windows 3.0" in metrics
        assert 'guard_served_windows_total{outcome="refused"}' in metrics
        detector.go.set()
        assert {one.result().status_code for one in waiting} == {200}
    assert server.app.service.accepted == 0


def test_what_is_late_is_dropped_and_not_judged(held: tuple[Held, Here]) -> None:
    detector, server = held
    with ThreadPoolExecutor() as pool:
        first = pool.submit(asked, server.url, "first")
        assert detector.begun.wait(60)
        late = asked(server.url, "second", headers={"guard-deadline-ms": "50"}).json()
        assert late["items"] == [{"error": "late"}]
        detector.go.set()
        assert first.result().status_code == 200
    assert detector.calls == 1


def test_while_draining_what_is_accepted_is_answered_and_the_rest_refused(
    held: tuple[Held, Here],
) -> None:
    detector, server = held
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(asked, server.url, "BIAS")
        assert detector.begun.wait(60)
        server.app.service.draining = True
        refused = asked(server.url, "late")
        assert (refused.status_code, refused.json()["error"]) == (503, "draining")
        assert refused.headers["connection"] == "close"
        assert httpx.get(f"{server.url}/health").status_code == 503
        assert httpx.get(f"{server.url}/v1/detector").status_code == 503
        detector.go.set()
        assert "scores" in waiting.result().json()["items"][0]


def test_a_detector_that_fails_is_not_healthy_until_a_trial_succeeds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("guard.server.scoring._TRIAL_PAUSE", 0.0)
    detector = Scripted(before=failing)
    with served_here(detector) as server:
        assert httpx.get(f"{server.url}/health").status_code == 200
        for number in range(3):
            asked(server.url, f"text {number}")
        failed = httpx.get(f"{server.url}/health")
        assert (failed.status_code, failed.json()["error"]) == (503, "failing")
        detector._before = None
        assert httpx.get(f"{server.url}/health").status_code == 200


def test_hung_threads_are_replaced() -> None:
    hang = threading.Event()

    class Hanging(Scripted):
        concurrency = 1

    detector = Hanging(before=lambda w: hang.wait(60) if "HANG" in w.text else None)
    with served_here(detector, ServerLimits(timeout_s=0.5)) as server:
        assert asked(server.url, "HANG").json()["items"] == [{"error": "failed"}]
        # It has less time than what hangs, after which a thread would be free again.
        answer = asked(server.url, "BIAS", headers={"guard-deadline-ms": "20000"}).json()
        assert "scores" in answer["items"][0]
        hang.set()


def test_the_token_is_needed_but_for_health() -> None:
    with served_here(Scripted(), token=TOKEN) as server:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": TOKEN}):
            refused = asked(server.url, "a", headers=headers)
            assert (refused.status_code, refused.json()["error"]) == (401, "unauthorized")
            assert TOKEN not in refused.text
        assert asked(server.url, "a", headers={"authorization": f"Bearer {TOKEN}"}).is_success
        for path in ("/v1/detector", "/metrics"):
            assert httpx.get(f"{server.url}{path}").status_code == 401
        assert httpx.get(f"{server.url}/health").status_code == 200


@rows("host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "a b"])
def test_an_unknown_host_is_refused(host: str, server: Here) -> None:
    assert asked(server.url, "a", headers={"host": host}).status_code in (400, 421)


def test_a_name_that_is_allowed_is_known() -> None:
    with served_here(Scripted(), hosts=["judge-1"]) as server:
        assert asked(server.url, "a", headers={"host": "judge-1:8471"}).is_success
        assert asked(server.url, "a", headers={"host": "judge-2:8471"}).status_code == 421


def test_beyond_this_machine_nothing_is_served_without_a_token(server: Here) -> None:
    sent: list[Any] = []

    async def ask(address: str) -> int:
        scope = {
            "type": "http", "method": "GET", "path": "/v1/detector", "query_string": b"",
            "headers": [(b"host", b"localhost")], "server": (address, 80),
        }  # fmt: skip

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        await server.app(scope, receive, send)
        return int(next(m["status"] for m in reversed(sent) if "status" in m))

    assert asyncio.run(ask("192.0.2.1")) == 403
    assert asyncio.run(ask("127.0.0.1")) == 200


def connected(server: Here) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=60)


def posted(*windows: Mapping[str, str], more: int = 0) -> bytes:
    """Return a request for scores whose body lacks so many bytes at its end."""
    body = json.dumps({"windows": windows}).encode()
    lines = ["POST /v1/scores HTTP/1.1", "host: localhost", f"content-length: {len(body) + more}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


def test_a_request_that_stalls_is_ended(monkeypatch: pytest.MonkeyPatch, server: Here) -> None:
    monkeypatch.setattr("guard.server.app._BODY_S", 0.2)
    with connected(server) as connection:
        connection.sendall(posted(WINDOW, more=1))
        assert b"408" in connection.recv(1000).split(b"\r\n")[0]
    assert server.app._reading == 0


def test_no_more_requests_are_read_at_once_than_the_queue_has_room_for() -> None:
    with (
        served_here(Scripted(), ServerLimits(queue=2, windows=2, timeout_s=30)) as server,
        connected(server) as first,
        connected(server) as second,
    ):
        for connection in (first, second):
            connection.sendall(posted(WINDOW, more=1))
        wait_for(lambda: server.app._reading == 2)
        refused = asked(server.url, "a")
        assert (refused.status_code, refused.json()["error"]) == (503, "overloaded")
        first.sendall(b" ")
        assert b"200" in first.recv(1000).split(b"\r\n")[0]
        assert asked(server.url, "a").status_code == 200


def test_a_request_that_another_cancels_is_not_called_slow(server: Here) -> None:
    sent: list[Any] = []

    async def main() -> None:
        async def receive() -> Any:
            await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http", "method": "POST", "path": "/v1/scores", "query_string": b"",
            "headers": [(b"host", b"localhost")], "server": ("127.0.0.1", 80),
        }  # fmt: skip
        request = asyncio.ensure_future(server.app(scope, receive, send))
        while not server.app._reading:
            await asyncio.sleep(0)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request

    asyncio.run(main())
    assert sent == []


def test_what_is_unexpected_is_no_traceback(
    server: Here, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError(SECRET)

    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(server.app.service, "answer", fail)
    answer = asked(server.url, SECRET)
    assert (answer.status_code, answer.json()["error"]) == (500, "failed")
    assert SECRET not in caplog.text + answer.text


def wait_for(done: Any) -> None:
    until = time.monotonic() + 60
    while not done():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_request_whose_head_does_not_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "HEAD_S", 0.3)
    with served_here(Scripted()) as server, connected(server) as silent:
        with connected(server) as slow:
            slow.sendall(b"POST /v1/scores HTTP/1.1\r\nHost: 127")
            assert slow.recv(1) == b""
        assert silent.recv(1) == b""


@pytest.mark.parametrize("more", ["\r\n", "{"], ids=["an empty line", "a part of a body"])
def test_what_is_no_request_after_an_answer_holds_no_connection(
    more: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "HEAD_S", 0.3)
    with served_here(Scripted()) as server, connected(server) as connection:
        length = 0 if more.isspace() else 1_000
        head = f"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {length}\r\n\r\n"
        connection.sendall(head.encode())
        with http.client.HTTPResponse(connection) as answer:
            answer.begin()
            assert json.load(answer) == {"status": "ok"}
        connection.sendall(more.encode())
        with suppress(ConnectionResetError):  # where it left something unread
            assert connection.recv(1) == b""


@pytest.mark.parametrize("line", ["a: b\r\n", "b"], ids=["many headers", "a long one"])
@pytest.mark.parametrize("before", ["", "Transfer-Encoding: chunked\r\n\r\n0\r\n"])
def test_a_head_that_does_not_end_fills_no_memory(line: str, before: str) -> None:
    with served_here(Scripted()) as server, connected(server) as connection:
        head = f"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n{before}a: "
        connection.sendall(head.encode())
        sent, part = 0, line.encode() * 1_000
        with suppress(ConnectionError):
            while sent < 50_000_000:
                connection.sendall(part)
                sent += len(part)
        assert sent < 50_000_000


def test_what_is_refused_is_counted() -> None:
    with served_here(Scripted(), token=TOKEN) as server:
        wrong = httpx.post(f"{server.url}/v1/scores", json={"windows": [WINDOW]})
        late = {"guard-deadline-ms": "0", "authorization": f"Bearer {TOKEN}"}
        httpx.post(f"{server.url}/v1/scores", json={"windows": [WINDOW] * 2}, headers=late)
        page = httpx.get(f"{server.url}/metrics", headers=late).text
    assert wrong.status_code == 401
    assert 'guard_served_requests_total{status="401"} 1.0' in page
    assert 'guard_served_requests_total{status="504"} 1.0' in page
    assert 'guard_served_windows_total{outcome="late"} 2.0' in page


def test_a_request_whose_head_is_whole_may_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "HEAD_S", 0.3)
    with (
        served_here(Scripted(before=lambda _: time.sleep(0.5))) as server,
        connected(server) as connection,
    ):
        for _ in range(2):  # on one connection: what is silent between requests stays open, too
            connection.sendall(posted(WINDOW))
            with http.client.HTTPResponse(connection) as answer:
                answer.begin()
                assert (answer.status, "scores" in json.load(answer)["items"][0]) == (200, True)
            time.sleep(0.5)


@pytest.mark.parametrize(
    ("accepted", "limit", "ends"), [(1, 3600.0, False), (1, 0.0, True), (0, 3600.0, True)]
)
def test_a_drained_server_ends_and_one_that_drains_does_at_its_limit(
    accepted: int, limit: float, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "DRAIN_S", limit)
    app = ScoreServer(Scripted())
    app.service.accepted = accepted
    server = run.DrainingServer(uvicorn.Config(app), app)
    assert not asyncio.run(server.on_tick(1))
    server.handle_exit(signal.SIGTERM, None)
    assert asyncio.run(server.on_tick(1)) == ends
