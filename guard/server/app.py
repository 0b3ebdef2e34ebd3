"""The ASGI application of a served detector: ``/v1/scores``, ``/v1/detector``, health, metrics.

It is the same under ``guard serve``, another ASGI server, a container and Ray Serve. Nothing that a
request holds is logged, counted by, or quoted in an error.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections.abc import Coroutine, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from guard.detect.protocol import Detector
from guard.detect.wire import DEADLINE, DETECTOR_PATH, SCORES_PATH, MalformedMessage, read_window
from guard.listening import bearer_token, is_known_host, is_loopback, same_secret
from guard.server.metrics import ServerMetrics
from guard.server.scoring import Refused, ScoreBatch, ScoringService
from guard.server.settings import (
    LONGEST_WAIT_S,
    MOST_BYTES,
    MOST_CHARACTERS,
    USUAL_LIMITS,
    ServerLimits,
)
from guard.verdict import Window

_log = logging.getLogger("guard")
_BODY_S = 10.0  # that a request may take to come
_FIELDS = {"request", "windows", "index_version", "every_language"}
_LONGEST_NAME = 64


class ScoreServer:
    """The application. ``service`` scores; set its ``draining`` before the process ends.

    ``token`` is what every request needs but that for ``/health``; without one, only requests to an
    address of the loopback are served. ``hosts`` are further names to answer to, ``*`` for all.
    """

    def __init__(
        self,
        detector: Detector,
        limits: ServerLimits = USUAL_LIMITS,
        token: str | None = None,
        hosts: Sequence[str] = (),
    ) -> None:
        self.metrics = ServerMetrics()
        self.service = ScoringService(detector, limits, self.metrics)
        self.metrics.watch_waiting(lambda: self.service.accepted)
        self._token = token
        self._hosts = tuple(hosts)
        self._reading = 0  # requests for scores whose body is being read
        self._app = Starlette(
            routes=[
                Route(DETECTOR_PATH, self._detector),
                Route("/health", self._health),
                Route("/metrics", self._metrics),
            ]
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if (refused := self._refusal(scope, headers)) is not None:
            if scope["path"] == SCORES_PATH:
                self.metrics.count_request(refused.status, 0.0)
            await _refusal_response(refused)(scope, receive, send)
        elif scope["path"] == SCORES_PATH and scope["method"] == "POST":
            # Past the routes and their middleware, a tenth of what a request costs here.
            await (await self._scores(headers, receive))(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Headers) -> Refused | None:
        """Return why a request may not pass; None if it may."""
        hosts = headers.getlist("host")
        server = (scope.get("server") or ("",))[0]
        known = len(hosts) == 1 and is_known_host(hosts[0], server, self._hosts)
        if not known and "*" not in self._hosts:
            sentence = "This host name is not known; guard serve --allow-host adds it."
            return Refused(421, "unknown_host", sentence)
        if scope["path"] == "/health":
            return None
        if self._token is None:
            if server and not is_loopback(server):
                return Refused(403, "needs_token", "Beyond this machine a token is needed.")
            return None
        if same_secret(bearer_token(headers.getlist("authorization")), self._token):
            return None
        return Refused(401, "unauthorized", "This server needs its token.")

    async def _scores(self, headers: Headers, receive: Receive) -> Response:
        begin = time.monotonic()
        try:
            self.service.check_room(1)
            body = await self._whole_body(receive)
            batch = self._checked_batch(_parsed_json(body), headers.get(DEADLINE), begin)
            response = _json_response(await self.service.answer(batch))
        except Refused as refused:
            response = _refusal_response(refused)
        except Exception as error:
            # Only the type: the message may quote the text.
            _log.error("a request for scores failed with %s", type(error).__name__)
            response = _refusal_response(Refused(500, "failed", "The server failed."))
        self.metrics.count_request(response.status_code, time.monotonic() - begin)
        return response

    async def _whole_body(self, receive: Receive) -> bytes:
        """Return the body of a request; raises Refused if it is too large, slow or cut off."""
        if self._reading >= self.service.limits.queue:
            raise Refused(503, "overloaded", "Too many requests are being read; ask again later.")
        self._reading += 1
        try:
            return await _within(_BODY_S, _read_body(receive))
        except TimeoutError:
            raise Refused(408, "slow_request", "The request took too long to come.") from None
        finally:
            self._reading -= 1

    def _checked_batch(self, value: Any, header: str | None, begin: float) -> ScoreBatch:
        limits = self.service.limits
        if not isinstance(value, dict) or value.keys() - _FIELDS:
            raise _bad_request(f"The body is an object of {', '.join(sorted(_FIELDS))}.")
        windows = value.get("windows")
        if not isinstance(windows, list) or not windows:
            raise _bad_request("windows is a list of at least one window.")
        if len(windows) > limits.windows:
            raise Refused(
                413,
                "too_large",
                f"A request has at most {limits.windows} windows; send several requests.",
            )
        name, version = value.get("request", ""), value.get("index_version")
        if not isinstance(name, str) or len(name) > _LONGEST_NAME:
            raise _bad_request(f"request is a text of at most {_LONGEST_NAME} characters.")
        if version is not None and not isinstance(version, str):
            raise _bad_request("index_version is a text or null.")
        every_language = value.get("every_language", False)
        if not isinstance(every_language, bool):
            raise _bad_request("every_language is true or false.")
        wait = _seconds_left(header)
        if wait <= 0:
            self.metrics.count_windows("late", len(windows))
            raise Refused(504, "late", "The deadline has passed; nothing was judged.")
        try:
            read = [read_window(window) for window in windows]
        except MalformedMessage as error:
            raise _bad_request(f"A window cannot be read: {error}.") from None
        if any(_characters(window) > MOST_CHARACTERS for window in read):
            raise Refused(413, "too_large", f"A window has at most {MOST_CHARACTERS:,} characters.")
        newest = "index_version" not in value
        return ScoreBatch(name, read, version, newest, every_language, begin + wait)

    async def _detector(self, request: Request) -> Response:
        if await self.service.can_score():
            return _json_response(self.service.describe())
        return _refusal_response(self._unable())

    async def _health(self, request: Request) -> Response:
        if await self.service.can_score():
            return _json_response({"status": "ok"})
        return _refusal_response(self._unable())

    async def _metrics(self, request: Request) -> Response:
        return Response(self.metrics.exposition(), media_type="text/plain; version=0.0.4")

    def _unable(self) -> Refused:
        if self.service.draining:
            return Refused(503, "draining", "This server is about to end.")
        return Refused(503, "failing", "The detector fails.")


async def _within(seconds: float, work: Coroutine[Any, Any, bytes]) -> bytes:
    """Return what ``work`` returns; raises TimeoutError if it takes longer.

    As ``asyncio.timeout``, which Python 3.10 has not; a scope of anyio costs 20 times as much.
    """
    task, late = asyncio.current_task(), False
    assert task is not None

    def cancel() -> None:
        nonlocal late
        late = task.cancel()

    timer = asyncio.get_running_loop().call_later(seconds, cancel)
    try:
        return await work
    except asyncio.CancelledError:
        if late:
            raise TimeoutError from None
        raise
    finally:
        timer.cancel()


async def _read_body(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(400, "bad_request", "The request ended before its body.")
        part: bytes = message.get("body", b"")
        body = body + part if body else part
        if len(body) > MOST_BYTES:
            raise Refused(
                413, "too_large", f"A request has at most {MOST_BYTES:,} bytes; send fewer windows."
            )
        if not message.get("more_body"):
            return body


def _characters(window: Window) -> int:
    return len(window.text) + sum(map(len, window.context)) + len(window.user or "")


def _parsed_json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise _bad_request("The body is no JSON.") from None


def _bad_request(sentence: str) -> Refused:
    return Refused(400, "bad_request", sentence)


def _seconds_left(header: str | None) -> float:
    """Return how long the client still waits; the longest wait if it does not say."""
    if header is None:
        return LONGEST_WAIT_S
    try:
        milliseconds = float(header)
    except ValueError:
        milliseconds = math.nan
    if math.isnan(milliseconds):
        raise _bad_request(f"The header {DEADLINE} is a number of milliseconds.")
    return min(milliseconds / 1000, LONGEST_WAIT_S)


def _json_response(value: Any) -> Response:
    return Response(json.dumps(value), media_type="application/json")


def _refusal_response(refused: Refused) -> Response:
    headers = dict(refused.headers)
    if refused.status == 401:
        headers["www-authenticate"] = "Bearer"
    if refused.answer["error"] in ("draining", "too_large", "slow_request"):
        headers["connection"] = "close"  # also because the body may not be read
    return Response(
        json.dumps(refused.answer), refused.status, headers, media_type="application/json"
    )
