"""Served detectors for tests: in this process, in one of their own, and one that misbehaves."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import uvicorn

from guard.detect.protocol import Detector
from guard.detect.wire import plain_scores
from guard.server.app import ScoreServer
from guard.server.run import PromptProtocol
from guard.server.settings import ServerLimits
from guard.verdict import Attribution, Reference, Scores, Span, Window
from tests.scripted import Scripted
from tests.server import process as program

TOKEN = "correct-horse-battery-staple"
LIMITS = ServerLimits(timeout_s=30)  # patient: a busy machine is no failure


class Telling(Scripted):
    """Scripted, with references, what is implied, and text in another language."""

    languages = ("en",)

    def score(self, window: Window) -> Scores:
        scores = super().score(window)
        if "FOREIGN" in window.text:
            return Scores(unjudged="language")
        near = Reference("A statement.", "age", "elders", "slow", 0.8125)
        return Scores(
            scores.score, scores.bias_type, scores.attributions, (near, near), implied=0.75
        )


class Here(NamedTuple):
    """A served detector in this process."""

    url: str
    app: ScoreServer


@contextmanager
def served_here(
    detector: Detector,
    limits: ServerLimits = LIMITS,
    token: str | None = None,
    hosts: Sequence[str] = (),
) -> Iterator[Here]:
    """Serve a detector by uvicorn in a thread of this process."""
    app = ScoreServer(detector, limits, token, hosts)
    config = uvicorn.Config(
        app,
        http=PromptProtocol,
        log_level="error",
        access_log=False,
        ws="none",
        lifespan="off",
    )
    server = uvicorn.Server(config)
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield Here(f"http://127.0.0.1:{listener.getsockname()[1]}", app)
    finally:
        server.should_exit = server.force_exit = True
        thread.join(20)
        listener.close()


class Process(NamedTuple):
    """A served detector in a process of its own."""

    url: str
    port: int
    process: subprocess.Popen[str]


@contextmanager
def served_apart(*options: str, prefix: Sequence[str] = ()) -> Iterator[Process]:
    """Run :mod:`tests.server.process`, and end it."""
    process = subprocess.Popen(
        [*prefix, sys.executable, "-m", program.__name__, *options],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, "the server ended before it listened"
        port = json.loads(line)["port"]
        yield Process(f"http://127.0.0.1:{port}", port, process)
    finally:
        process.kill()
        process.communicate(timeout=20)


NAME, WEIGHTS, VERSION = "fake-1", "ab" * 32, "index-1"
DESCRIPTION: Mapping[str, Any] = {
    "detector": NAME,
    "weights": WEIGHTS,
    "operating_points": {
        point: dict.fromkeys(
            ("gender", "race", "religion", "culture", "orientation", "disability", "age",
             "appearance", "social"), 0.5
        )
        for point in ("strict", "balanced", "quiet")
    },
    "thresholds": None,
    "languages": None,
    "every_language": False,
    "own_thresholds": {},
    "index_version": VERSION,
    "index_versions": [VERSION],
    "limits": {"windows": 64},
}  # fmt: skip


def exact_answer(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the right answer to a request: nothing biased but what says BIAS."""
    items = []
    for window in asked["windows"]:
        text = window["text"]
        begin = text.find("BIAS")
        scores = Scores(0.1, "social")
        if begin >= 0:
            place = Span(begin, begin + 4)
            scores = Scores(0.9, "age", (Attribution("BIAS", "BIAS", place, place),))
        items.append({"scores": plain_scores(scores)})
    return {
        "request": asked["request"],
        "detector": NAME,
        "weights": WEIGHTS,
        "index_version": asked["index_version"],
        "newest_index_version": VERSION,
        "items": items,
    }


def http_answer(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    """Return the bytes of an answer."""
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


class Fake:
    """A server on a real socket, whose answer to a request for scores is whatever ``say`` does.

    ``say`` gets the connection and the request, and may answer nothing or anything. Meanwhile the
    server describes itself as :data:`DESCRIPTION`.
    """

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.say: Callable[[socket.socket, dict[str, Any]], None] = exactly
        self.described: Any = dict(DESCRIPTION)
        self.asked: list[dict[str, Any]] = []
        self.heads: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._context = context
        scheme = "http" if context is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        for connection in self._open:
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        try:
            if self._context is not None:
                connection = self._context.wrap_socket(connection, server_side=True)
                self._open.append(connection)
            reader = connection.makefile("rb")
            while head := self._head(reader):
                length = next(
                    int(line.partition(":")[2])
                    for line in head.split("\r\n")
                    if line.lower().startswith("content-length")
                )
                body = reader.read(length)
                self.heads.append(head)
                if head.startswith("GET"):
                    connection.sendall(http_answer(json.dumps(self.described).encode()))
                    continue
                asked = json.loads(body)
                self.asked.append(asked)
                self.say(connection, asked)
        except (OSError, ValueError):
            return
        finally:
            connection.close()

    def _head(self, reader: Any) -> str:
        lines = []
        while (line := reader.readline()) not in (b"\r\n", b""):
            lines.append(line.decode("latin-1").rstrip("\r\n"))
        return "\r\n".join(lines)


def exactly(connection: socket.socket, asked: dict[str, Any]) -> None:
    """Answer as a served detector does."""
    connection.sendall(http_answer(json.dumps(exact_answer(asked)).encode()))


@contextmanager
def faking(context: ssl.SSLContext | None = None) -> Iterator[Fake]:
    fake = Fake(context)
    try:
        yield fake
    finally:
        fake.close()
