"""The ASGI application of a served detector: ``/v1/scores``, ``/v1/detector``, health, metrics.

It is the same under ``guard serve``, another ASGI server, a container and Ray Serve. Nothing that a
request holds is logged, counted by, or quoted in an error.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from guard.detect.protocol import Detector
from guard.detect.wire import DEADLINE, DETECTOR_PATH, SCORES_PATH, MalformedMessage, read_window
from guard.listening import bearer_token, is_known_host, is_loopback, same_secret
from guard.server.metrics import ServerMetrics
from guard.server.scoring import Refused, ScoreBatch, ScoringService, ServerLimits

_log = logging.getLogger("guard")
_USUAL = ServerLimits()
_BODY_S = 10.0  # that a request may take to come
_FIELDS = {"request", "windows", "index_version", "every_language", "deadline_ms"}
_LONGEST_NAME = 64


class ScoreServer:
    """The application. ``service`` scores; set its ``draining`` before the process ends.

    ``token`` is what every request needs but that for ``/health``; without one, only requests to an
    address of the loopback are served. ``hosts`` are further names to answer to, ``*`` for all.
    """

    def __init__(
        self,
        detector: Detector,
        limits: ServerLimits = _USUAL,
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
                Route(SCORES_PATH, self._scores, methods=["POST"]),
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
        refused = self._refusal(scope) if scope["type"] == "http" else None
        await (self._app if refused is None else _refusal_response(refused))(scope, receive, send)

    def _refusal(self, scope: Scope) -> Refused | None:
        """Return why a request may not pass; None if it may."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        server = (scope.get("server") or ("",))[0]
        known = len(hosts) == 1 and is_known_host(hosts[0], server, self._hosts)
        if not known and "*" not in self._hosts:
            return Refused(
                421,
                "unknown_host",
                "This host name is not known; guard serve --allow-host adds it.",
            )
        if scope["path"] == "/health":
            return None
        if self._token is None:
            if server and not is_loopback(server):
                return Refused(403, "needs_token", "Beyond this machine a token is needed.")
            return None
        if same_secret(bearer_token(headers.getlist("authorization")), self._token):
            return None
        return Refused(401, "unauthorized", "This server needs its token.")

    async def _scores(self, request: Request) -> Response:
        begin = time.monotonic()
        try:
            batch = await self._read_batch(request, begin)
            response = _json_response(await self.service.answer(batch))
        except Refused as refused:
            response = _refusal_response(refused)
        except ClientDisconnect:
            response = Response(status_code=400)  # nobody reads it
        except Exception as error:
            # Only the type: the message may quote the text.
            _log.error("a request for scores failed with %s", type(error).__name__)
            response = _refusal_response(Refused(500, "failed", "The server failed."))
        self.metrics.count_request(response.status_code, time.monotonic() - begin)
        return response

    async def _read_batch(self, request: Request, begin: float) -> ScoreBatch:
        self.service.check_room(1)
        if self._reading >= self.service.limits.queue:
            raise Refused(503, "overloaded", "Too many requests are being read; ask again later.")
        self._reading += 1
        try:
            with anyio.fail_after(_BODY_S):
                body = await self._whole_body(request)
        except TimeoutError:
            raise Refused(408, "slow_request", "The request took too long to come.") from None
        finally:
            self._reading -= 1
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            raise _bad_request("The body is no JSON.") from None
        return self._checked_batch(value, request.headers.get(DEADLINE), begin)

    async def _whole_body(self, request: Request) -> bytes:
        most, body = self.service.limits.bytes, b""
        async for part in request.stream():
            body = body + part if body else part
            if len(body) > most:
                raise Refused(
                    413, "too_large", f"A request has at most {most:,} bytes; send fewer windows."
                )
        return body

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
        wait = _deadline_seconds(value.get("deadline_ms", header), limits.wait_s)
        if wait <= 0:
            raise Refused(504, "late", "The deadline has passed; nothing was judged.")
        try:
            read = [read_window(window) for window in windows]
        except MalformedMessage as error:
            raise _bad_request(f"A window cannot be read: {error}.") from None
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


def _bad_request(sentence: str) -> Refused:
    return Refused(400, "bad_request", sentence)


def _deadline_seconds(value: Any, longest: float) -> float:
    """Return how long the client still waits; the longest wait if it does not say."""
    if value is None:
        return longest
    try:
        milliseconds = float("nan") if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        milliseconds = float("nan")
    if milliseconds != milliseconds:
        raise _bad_request(f"deadline_ms, or the header {DEADLINE}, is a number of milliseconds.")
    return min(milliseconds / 1000, longest)


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
