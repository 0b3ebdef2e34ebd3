"""A provider on 127.0.0.1 that speaks four wire formats and watches its clients leave.

Doors are tested through real LiteLLM calls against it: ``openai/x`` with
``api_base=provider.openai`` (chat, text and responses) and ``anthropic/claude-x`` with
``api_base=provider.anthropic``. What it answers is a :class:`Script`; what it saw of each request
is a :class:`Served`.
"""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests import wire_formats

Delta = str | dict[str, Any]


@dataclass
class Script:
    """What to answer: one list of deltas a choice, sent in turns, ``interval`` seconds apart.

    A delta is a text, or the wire format's own delta as a dict. ``drop_after``, ``error_after``
    and ``stall_after`` count chunks: from then on the connection is cut without an end, an error
    event is sent, or nothing more comes until the client leaves.
    """

    choices: Sequence[Sequence[Delta]] = (("Hello",),)
    interval: float = 0.0
    finish: str = "stop"
    finish_twice: bool = False
    split: bool = False  # characters of several bytes come in several writes
    finish_early: bool = (
        False  # a choice's finish reason follows its last delta, not the last of all
    )
    drop_after: int | None = None
    error_after: int | None = None
    stall_after: int | None = None
    message: dict[str, Any] = field(default_factory=dict)  # more fields of a whole answer
    answer: Any = None  # a whole answer as it is sent, in place of what ``choices`` make
    events: Sequence[dict[str, Any]] | None = None  # the same for a stream
    raw: Sequence[bytes] | None = None  # the same for one that is not of server-sent events
    status: int = 200
    id: str = "chatcmpl-1"


@dataclass
class Served:
    """One request as the provider saw it."""

    path: str
    body: dict[str, Any]
    client: tuple[str, int]  # the other end of the connection, by which two are told apart
    sent: int = 0  # chunks written, the ends of blocks and messages not counted
    finished: bool = False  # the answer went out to its end
    disconnected: bool = False  # the client left before that
    over: threading.Event = field(default_factory=threading.Event)  # either of the two happened
    began: threading.Event = field(default_factory=threading.Event)  # the first chunk is out
    alone: bool = True  # when the request came, the clients of all others were done or had left


class _Gone(Exception):
    """The client closed its end."""


class Provider:
    """The server and its record; use :func:`serving`."""

    def __init__(self) -> None:
        self.script = Script()
        self.scripts: list[Script] = []  # of the next requests, in order; then ``script`` again
        self.served: list[Served] = []
        self.server = _Server(("127.0.0.1", 0), _Handler)
        self.server.provider = self
        self.thread = threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self.thread.start()

    @property
    def openai(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/v1"

    @property
    def anthropic(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    @property
    def last(self) -> Served:
        return self.served[-1]

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@contextmanager
def serving(script: Script | None = None) -> Iterator[Provider]:
    provider = Provider()
    if script is not None:
        provider.script = script
    try:
        yield provider
    finally:
        provider.stop()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    provider: Provider

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.streaming: list[tuple[Served, socket.socket]] = []

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients that leave are what the tests are about."""


def _left(connection: socket.socket, seconds: float = 0.0) -> bool:
    """Whether the client's end of a socket is closed, or closes within ``seconds``."""
    try:
        readable, _, _ = select.select([connection], [], [], seconds)
        return bool(readable) and not connection.recv(1, socket.MSG_PEEK)
    except (OSError, ValueError):  # reset by the client, or closed on this side since
        return True


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the tests' output clean."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        served = Served(self.path, body, self.client_address)
        # Asked of the sockets: the threads that wait at them may notice later.
        others = [c for s, c in self.server.streaming if not s.over.is_set()]
        served.alone = all(map(_left, others))
        self.server.provider.served.append(served)
        scripts = self.server.provider.scripts
        script = scripts.pop(0) if scripts else self.server.provider.script
        wire: Any = next((w for end, w in _WIRES.items() if self.path.endswith(end)), _OpenAI)
        try:
            if script.status != 200:
                self._whole({"error": {"message": "scripted", "type": "scripted"}}, script.status)
            elif body.get("stream") or "stream" in self.path.lower():
                self.server.streaming.append((served, self.connection))
                if script.raw is not None:
                    self._raw(script.raw)
                else:
                    events = wire.events(script, body) if script.events is None else _sent(script)
                    self._stream(events, script, served)
            else:
                answer = wire.whole(script, body) if script.answer is None else script.answer
                self._whole(answer)
                served.sent += 1
            served.finished = True
        except (_Gone, ConnectionError):
            served.disconnected = True
            self.close_connection = True
        finally:
            served.over.set()

    def _whole(self, answer: dict[str, Any], status: int = 200) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _raw(self, pieces: Sequence[bytes]) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/vnd.amazon.eventstream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for piece in pieces:
            self._write(piece)
        self.wfile.write(b"0\r\n\r\n")

    def _stream(self, events: Iterator[tuple[bool, str]], script: Script, served: Served) -> None:
        self.split = script.split
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for counts, event in events:
            if counts:
                if served.sent:
                    self._watch(script.interval)
                if served.sent == script.stall_after:
                    self._watch(60.0)
                if served.sent == script.drop_after:
                    self._reset()
                    return
                if served.sent == script.error_after:
                    self._chunk('data: {"error": {"message": "scripted", "code": 500}}\n\n')
                    break
            self._chunk(event)
            if counts:
                served.sent += 1
                served.began.set()
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, event: str) -> None:
        if not self.split:
            self._write(event.encode())
            return
        head, brace, data = event.partition("{")
        said = json.dumps(json.loads(brace + data), ensure_ascii=False) if brace else ""
        rest = f"{head}{said}\n\n".encode() if brace else event.encode()
        while rest:
            # Up to the middle of the next character of several bytes.
            at = next((i for i, byte in enumerate(rest) if byte >= 0x80), len(rest) - 1) + 1
            self._write(rest[:at])
            rest = rest[at:]
            time.sleep(0.001)

    def _write(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _watch(self, seconds: float) -> None:
        """Wait, and raise :class:`_Gone` the moment the client's end of the socket closes."""
        if _left(self.connection, seconds):
            raise _Gone

    def _reset(self) -> None:
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True


def _sent(script: Script) -> Iterator[tuple[bool, str]]:
    for event in script.events or ():
        named = f"event: {event['type']}\n" if "type" in event else ""
        yield True, f"{named}data: {json.dumps(event)}\n\n"
    yield False, "data: [DONE]\n\n"


class _OpenAI:
    """Chat completions."""

    @staticmethod
    def events(script: Script, body: dict[str, Any]) -> Iterator[tuple[bool, str]]:
        def event(choices: list[dict[str, Any]], **fields: Any) -> str:
            chunk = {
                "id": script.id,
                "object": "chat.completion.chunk",
                "created": 1,
                "model": "x",
                "choices": choices,
            } | fields
            return f"data: {json.dumps(chunk)}\n\n"

        end = {"delta": {}, "finish_reason": script.finish}
        for turn in range(max(len(c) for c in script.choices)):
            for index, deltas in enumerate(script.choices):
                if turn < len(deltas):
                    delta = deltas[turn]
                    fields = {"content": delta} if isinstance(delta, str) else dict(delta)
                    logprobs = fields.pop("logprobs", None)
                    if turn == 0:
                        fields = {"role": "assistant"} | fields
                    choice = {"index": index, "delta": fields, "finish_reason": None}
                    yield True, event([choice | ({"logprobs": logprobs} if logprobs else {})])
                if script.finish_early and turn == len(deltas) - 1:
                    yield False, event([end | {"index": index}])
        for _ in range(1 + script.finish_twice):
            for index in range(len(script.choices)):
                if not script.finish_early:
                    yield False, event([end | {"index": index}])
        if (body.get("stream_options") or {}).get("include_usage"):
            yield False, event([], usage=wire_formats.usage_of(script))
        yield False, "data: [DONE]\n\n"

    @staticmethod
    def whole(script: Script, body: dict[str, Any]) -> dict[str, Any]:
        choices = []
        for index, deltas in enumerate(script.choices):
            message = {"role": "assistant", "content": None} | script.message
            text = "".join(d if isinstance(d, str) else d.get("content") or "" for d in deltas)
            message["content"] = text or None
            choices.append({"index": index, "message": message, "finish_reason": script.finish})
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "x",
            "choices": choices,
            "usage": wire_formats.usage_of(script),
        }


_USAGE = {"input_tokens": 7, "output_tokens": 1}
_START = {
    "text": {"type": "text", "text": ""},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}


class _Anthropic:
    """Messages: one choice; a delta is text, ``{"thinking": ...}`` or ``{"partial_json": ...}``.

    ``call`` tells calls of tools apart. Another delta is sent as it is, as one of text.
    """

    @staticmethod
    def events(script: Script, body: dict[str, Any]) -> Iterator[tuple[bool, str]]:
        def event(kind: str, **fields: Any) -> str:
            return f"event: {kind}\ndata: {json.dumps({'type': kind} | fields)}\n\n"

        message = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": "claude-x",
            "stop_reason": None,
            "usage": _USAGE,
        }
        yield False, event("message_start", message=message)
        block, index = "", -1
        for delta in script.choices[0]:
            kind, fields = _Anthropic.delta(delta)
            if kind != block:
                if block:
                    yield False, event("content_block_stop", index=index)
                block, index = kind, index + 1
                start = _Anthropic.start(kind)
                yield False, event("content_block_start", index=index, content_block=start)
            yield True, event("content_block_delta", index=index, delta=fields)
        if block:
            yield False, event("content_block_stop", index=index)
        stop = {"stop_reason": "end_turn", "stop_sequence": None}
        for _ in range(1 + script.finish_twice):
            yield False, event("message_delta", delta=stop, usage={"output_tokens": index + 2})
            yield False, event("message_stop")

    @staticmethod
    def delta(delta: Delta) -> tuple[str, dict[str, Any]]:
        if isinstance(delta, str):
            return "text", {"type": "text_delta", "text": delta}
        if "thinking" in delta:
            return "thinking", {"type": "thinking_delta"} | delta
        if "partial_json" in delta:
            fields = {"type": "input_json_delta", "partial_json": delta["partial_json"]}
            return f"tool_use {delta.get('call', 0)}", fields
        return "text", delta

    @staticmethod
    def start(kind: str) -> dict[str, Any]:
        if kind in _START:
            return _START[kind]
        named = {"id": f"toolu_{kind.split()[1]}", "name": "f", "input": {}}
        return {"type": "tool_use", **named}

    @staticmethod
    def whole(script: Script, body: dict[str, Any]) -> dict[str, Any]:
        content: list[dict[str, Any]] = []
        kinds: list[str] = []
        for kind, delta in map(_Anthropic.delta, script.choices[0]):
            field, said = list(delta.items())[1]
            if not kinds or kinds[-1] != kind:
                kinds.append(kind)
                content.append({**_Anthropic.start(kind), field: ""})
            content[-1][field] += said
        for block in content:
            if "partial_json" in block:
                block["input"] = json.loads(block.pop("partial_json"))
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-x",
            "content": content or [{"type": "text", "text": ""}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": _USAGE | {"output_tokens": len(script.choices[0])},
        }


_WIRES = {
    "/messages": _Anthropic,
    "/chat/completions": _OpenAI,
    "/completions": wire_formats.Text,
    "/responses": wire_formats.Responses,
}
