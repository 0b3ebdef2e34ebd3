"""A provider on 127.0.0.1 that makes up its answers from the number in the user's message.

It writes bytes in random pieces, each an HTTP chunk and a write of its own: inside characters,
lines and escapes. Connections are kept alive. ``GET /seen/NUMBER`` says how a stream ended here.
"""

from __future__ import annotations

import json
import random
import re
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.attacks import wire_formats
from tests.attacks.case import Answer, Case, Wire, make

STALL_S = 10.0  # in vain only where something is found, or a machine is overloaded
_NUMBER = re.compile(rb"attack-(\d+p?e?)")
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_WIRES: dict[str, Wire] = {
    "/chat/completions": "chat",
    "/completions": "text",
    "/responses": "responses",
    "/messages": "messages",
}


def answer_for(case: Case, body: str) -> Answer:
    """Return what to answer a request: the second answer where the model is asked to go on."""
    return case.second if "Go on with your answer" in body else case.answer


class Provider:
    """The server; use :func:`serving`. ``seen`` has, by case, how the last answer to it ended."""

    def __init__(self) -> None:
        self.seen: dict[str, str] = {}
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def ended(self, seed: str, seconds: float) -> str:
        """Return how the stream of a case ended here, or "open" if not within ``seconds``."""
        end = time.monotonic() + seconds
        while (how := self.seen.get(seed, "open")) == "open" and time.monotonic() < end:
            time.sleep(0.005)
        return how

    def stop(self) -> None:
        self._socket.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        rest = b""
        with connection, suppress(OSError):
            while True:
                while b"\r\n\r\n" not in rest:
                    if not (data := connection.recv(65536)):
                        return
                    rest += data
                head, _, rest = rest.partition(b"\r\n\r\n")
                found = _LENGTH.search(head)
                length = int(found.group(1)) if found else 0
                while len(rest) < length:
                    if not (data := connection.recv(65536)):
                        return
                    rest += data
                body, rest = rest[:length], rest[length:]
                path = head.split(b" ", 2)[1].decode()
                if path.startswith("/seen/"):
                    self._send(connection, 200, self.seen.get(path[6:], "open").encode())
                elif not self._answer(connection, path, body):
                    return

    def _answer(self, connection: socket.socket, path: str, body: bytes) -> bool:
        """Answer one request; return whether the connection stays."""
        found = _NUMBER.search(body)
        wire = next((wire for end, wire in _WIRES.items() if path.endswith(end)), None)
        if found is None or wire is None:
            self._send(connection, 404, b'{"error": {"message": "no such attack"}}')
            return True
        seed, request = found.group(1).decode(), json.loads(body)
        case = make(seed)
        answer = answer_for(case, body.decode())
        out = _Out(connection, random.Random(f"bytes of {seed}"))
        self.seen[seed] = "open"
        if not request.get("stream"):
            data = json.dumps(wire_formats.whole(wire, answer), ensure_ascii=answer.ascii).encode()
            out.head("application/json")
            out.write(data)
            out.end()
            self.seen[seed] = "whole"
            return True
        try:
            stays = self._stream(out, wire, answer, usage=bool(request.get("stream_options")))
            self.seen[seed] = "whole" if stays else "cut"
            return stays
        except OSError:
            self.seen[seed] = "left"
            return False

    def _stream(self, out: _Out, wire: Wire, answer: Answer, *, usage: bool) -> bool:
        out.head("text/event-stream")
        comments = wire == "chat" and out.rng.random() < 0.1
        last = "[DONE]" if wire in ("chat", "text") else ""
        said = list(wire_formats.events(wire, answer, usage=usage))
        # A stalling provider has said everything but how it ends.
        tail = len(said) - (2 if wire == "messages" else 1)
        for number, (name, data) in enumerate(said):
            if number == tail and answer.ending == "stall":
                out.flush()
                _wait_until_left(out.connection)
            if comments and out.rng.random() < 0.1:
                out.add(b": ping\n\n")
            text = last if data is None else json.dumps(data, ensure_ascii=answer.ascii)
            out.add(f"{f'event: {name}' + chr(10) if name else ''}data: {text}\n\n".encode())
        if answer.ending == "error":
            name, data = wire_formats.error(wire, answer)
            head = f"event: {name}\n" if name else ""
            out.add(f"{head}data: {json.dumps(data, ensure_ascii=answer.ascii)}\n\n".encode())
        out.flush()
        if answer.ending == "drop":
            return False
        out.end()
        return True

    def _send(self, connection: socket.socket, status: int, body: bytes) -> None:
        head = f"HTTP/1.1 {status} OK\r\ncontent-type: application/json\r\n"
        connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)


class _Out:
    """Writes to a connection in pieces of random sizes."""

    def __init__(self, connection: socket.socket, rng: random.Random) -> None:
        self.connection = connection
        self.rng = rng
        # How far apart cuts are in the mean, and whether events go out together or one by one.
        self._mean = rng.choice((7, 40, 40, 150, 400, 4000))
        self._joins = rng.random() < 0.5
        self._pending = b""

    def head(self, kind: str) -> None:
        head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n"
        self.connection.sendall(head.encode())

    def add(self, data: bytes) -> None:
        self._pending += data
        if not self._joins or len(self._pending) > 2000:
            self.flush()

    def flush(self) -> None:
        data, self._pending = self._pending, b""
        self.write(data)

    def write(self, data: bytes) -> None:
        rng, at = self.rng, 0
        mean = max(self._mean, len(data) // 60)
        while at < len(data):
            end = min(len(data), at + 1 + int(rng.expovariate(1 / mean)))
            # Now and then inside the next character of several bytes or escape.
            if rng.random() < 0.3:
                near = re.compile(rb"[\x80-\xff\\]").search(data, end, end + 40)
                end = near.end() if near else end
            piece = data[at:end]
            self.connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
            at = end
            if rng.random() < 0.03:
                time.sleep(0.0003)  # let the reader see what is there

    def end(self) -> None:
        self.connection.sendall(b"0\r\n\r\n")


def _wait_until_left(connection: socket.socket) -> None:
    readable, _, _ = select.select([connection], [], [], STALL_S)
    if readable and not connection.recv(1, socket.MSG_PEEK):
        raise ConnectionError
    if readable:
        raise ConnectionError("a client sends while it is answered")


@contextmanager
def serving() -> Iterator[Provider]:
    provider = Provider()
    try:
        yield provider
    finally:
        provider.stop()
