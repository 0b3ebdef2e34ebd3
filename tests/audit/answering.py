"""A chat provider on 127.0.0.1 whose answers depend on what it is asked, and that may be busy."""

from __future__ import annotations

import json
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WORDS = ("first", "second", "nobody", "Sorry, no.", "BIAS says first.")


def by_content(messages: list[dict[str, str]]) -> str:
    """One of :data:`WORDS`, by a checksum of what was asked."""
    return WORDS[zlib.crc32(json.dumps(messages).encode()) % len(WORDS)]


class Answering:
    """``asked`` holds the messages of every request that was answered, in order."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer: Callable[[list[dict[str, str]]], str] = by_content
        self.delay_s = 0.0
        self.busy = 0  # so many requests are turned away with 429 first
        self.retry_after: str | None = None
        self.status = 429
        self.logprobs: tuple[Any, Any] = (
            -0.1,
            -2.4,
        )  # of the first token: what was said, and another
        self.words = "too much"  # of what turns a request away
        self.refusal: dict[str, Any] | str | None = None  # the whole body in their place
        self.malformed: list[str] = []  # bodies of the next successes, in order
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.refused_at: list[float] = []
        self.answered_at: list[float] = []
        self.bodies: list[dict[str, Any]] = []
        self.at_once = self.most_at_once = 0
        self.lock = threading.Lock()
        self.server = _Server(("127.0.0.1", 0), _Handler)
        self.server.owner = self
        self.base = f"http://127.0.0.1:{self.server.server_port}/v1"
        self.thread = threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self.thread.start()


@contextmanager
def answering() -> Iterator[Answering]:
    found = Answering()
    try:
        yield found
    finally:
        found.server.shutdown()
        found.server.server_close()
        found.thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    owner: Answering

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients that are killed are what the tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        owner = self.server.owner
        with owner.lock:
            busy = owner.busy > 0
            owner.busy -= busy
            owner.at_once += 1
            owner.most_at_once = max(owner.most_at_once, owner.at_once)
        try:
            if busy:
                owner.refused_at.append(time.monotonic())
                own = {"error": {"message": owner.words, "type": "busy"}}
                self._send(owner.status, own if owner.refusal is None else owner.refusal)
                return
            with owner.lock:
                malformed = owner.malformed.pop(0) if owner.malformed else None
            if malformed is not None:
                self._send(200, malformed)
                return
            time.sleep(owner.delay_s)
            said = owner.answer(body["messages"])
            with owner.lock:
                owner.asked.append(json.dumps(body["messages"]))
                owner.bodies.append(body)
                owner.paths.append(self.path)
                owner.headers.append({k.lower(): v for k, v in self.headers.items()})
                owner.answered_at.append(time.monotonic())
            anthropic = self.path.endswith("/messages")
            self._send(200, _message(said) if anthropic else _answer(said, body, owner))
        finally:
            with owner.lock:
                owner.at_once -= 1

    def _send(self, status: int, found: dict[str, Any] | str) -> None:
        data = (found if isinstance(found, str) else json.dumps(found)).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        if status == 429 and self.server.owner.retry_after is not None:
            self.send_header("retry-after", self.server.owner.retry_after)
        self.end_headers()
        self.wfile.write(data)


def _answer(said: str, body: dict[str, Any], owner: Answering) -> dict[str, Any]:
    choice: dict[str, Any] = {
        "index": 0,
        "message": {"role": "assistant", "content": said},
        "finish_reason": "stop",
    }
    if body.get("logprobs"):
        told = zip((said, "x"), owner.logprobs, strict=True)
        top = [{"token": t, "logprob": p, "bytes": None} for t, p in told]
        first = {"token": said, "logprob": owner.logprobs[0], "bytes": None, "top_logprobs": top}
        choice["logprobs"] = {"content": [first]}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "x",
        "choices": [choice],
        "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9},
    }


def _message(said: str) -> dict[str, Any]:
    """Anthropic's form of an answer."""
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": [{"type": "text", "text": said}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 7, "output_tokens": 2},
    }
