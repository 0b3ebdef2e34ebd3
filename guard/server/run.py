"""Runs the application on uvicorn: ``guard serve``. SIGTERM and Ctrl-C drain it."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Sequence
from types import FrameType

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from guard.detect.protocol import Detector
from guard.listening import ListeningUrl, checked_host, checked_token, listening_place
from guard.server.app import ScoreServer
from guard.server.settings import ServerLimits

#: Seconds that accepted windows may take once the process is told to end.
DRAIN_S = 30.0
#: Seconds that the head of a request may take to come.
HEAD_S = 10.0
#: Bytes that a head may have.
_MOST_HEAD = 64 * 1024
_KEEP_ALIVE_S = 75  # longer than a client's pauses, or each would begin with a new connection


class PromptProtocol(HttpToolsProtocol):
    """Closes a connection that sends no whole head in time, or too large a one.

    Else anybody could hold the connections of a server or fill its memory, token or not.
    """

    _head_timer: asyncio.TimerHandle | None = None
    _beside_bodies = 0  # bytes of the current request

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Read what came; close the connection if too much of it is no body."""
        self._beside_bodies += len(data)
        super().data_received(data)
        if self._beside_bodies > _MOST_HEAD:
            self.transport.close()
        elif self._head_timer is None and (self.cycle is None or self.cycle.response_complete):
            # Something came and no request is being answered: a head is to follow.
            self._await_head()

    def on_body(self, body: bytes) -> None:
        """Take a part of a body, which the application bounds."""
        self._beside_bodies -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Begin to count anew."""
        self._beside_bodies = 0
        super().on_message_complete()

    def on_message_begin(self) -> None:
        """Begin to wait for the rest of a head."""
        super().on_message_begin()
        if self._head_timer is None:
            self._await_head()

    def on_headers_complete(self) -> None:
        """Wait no more: the head is whole."""
        self._forget_head()
        self._beside_bodies = 0
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._forget_head()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_S, self.transport.close)

    def _forget_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class DrainingServer(uvicorn.Server):
    """Answers what is accepted before it ends, and refuses what is new with 503 meanwhile.

    A second signal ends it at once.
    """

    def __init__(self, config: uvicorn.Config, app: ScoreServer) -> None:
        super().__init__(config)
        self._app = app
        self._drained_by = 0.0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain; uvicorn calls this on a signal."""
        service = self._app.service
        if service.draining:
            # Uvicorn's own way waits up to five seconds, and for connections, too.
            signal.signal(sig, signal.SIG_DFL)
            signal.raise_signal(sig)
        service.draining = True
        self._drained_by = time.monotonic() + DRAIN_S

    async def on_tick(self, counter: int) -> bool:
        """Return whether to end; uvicorn calls this ten times a second."""
        service = self._app.service
        if service.draining and not (service.accepted and time.monotonic() < self._drained_by):
            self.should_exit = True
        return await super().on_tick(counter)


def serve_detector(
    detector: Detector,
    limits: ServerLimits,
    host: str,
    port: int,
    token: str | None,
    allowed: Sequence[str],
    on_listening: Callable[[ListeningUrl, ScoreServer], None],
) -> None:
    """Serve until a signal; calls ``on_listening`` once the socket listens.

    Token and host names are as for :func:`guard.listening.listening_place`.

    Raises:
        UsageError: the token or a name cannot be used, or the address not be listened on.

    """
    token = None if token is None else checked_token(token)
    names = [checked_host(name) for name in allowed]
    with listening_place("guard serve", host, port, token, names) as here:
        app = ScoreServer(detector, limits, here.token, here.hosts)
        config = uvicorn.Config(
            app,
            http=PromptProtocol,
            log_level="warning",
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            ws="none",
            lifespan="off",
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=5,
        )
        on_listening(here.shown, app)
        DrainingServer(config, app).run(sockets=[here.listener])
