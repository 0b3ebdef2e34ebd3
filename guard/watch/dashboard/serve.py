"""Serves the dashboard over HTTP, on the loopback address by default."""

from __future__ import annotations

import errno
import ipaddress
import secrets
import socket
from collections.abc import Callable, Sequence
from typing import NamedTuple

import uvicorn

from guard.errors import UsageError
from guard.results import svg
from guard.watch.dashboard.access import Rules, checked_host, checked_token, is_loopback
from guard.watch.dashboard.app import StatementOf, application
from guard.watch.store import Store

_SHUTDOWN_S = 3  # how long open requests may take once the process ends


class Place(NamedTuple):
    """The dashboard's URL, and its token if ``serve`` generated one."""

    url: str
    generated_token: str | None


def serve(
    store: Store,
    host: str,
    port: int,
    token: str | None,
    allowed: Sequence[str],
    statement_of: StatementOf,
    on_listening: Callable[[Place], None],
) -> None:
    """Serve until the process is interrupted; calls ``on_listening`` once the socket listens.

    Readers need a token if the address is not a loopback address, or a name in ``allowed``, further
    host names to answer to, is not: a proxy may pass requests from other machines on. If none is
    given, one is generated. Raises UsageError if the store cannot be read, or the address or port
    cannot be listened on.
    """
    given_token = None if token is None else checked_token(token)
    names = [checked_host(name) for name in allowed]
    with store.reading():
        pass
    svg.drawn_figure(
        "first", "", "", lambda figure: None
    )  # loads Matplotlib before anybody waits for it
    with _listening(host, port) as listener:
        address, port = listener.getsockname()[:2]
        needs_token = given_token is None and not all(map(is_loopback, (address, host, *names)))
        generated = secrets.token_urlsafe(32) if needs_token else None
        served_at = () if ipaddress.ip_address(address).is_unspecified else (host, address)
        rules = Rules(given_token or generated, (*served_at, *names), port)
        server: uvicorn.Server | None = None
        app = application(
            store, rules, statement_of, lambda: server is not None and server.should_exit
        )
        # Without websockets, an upgrade request passes the same checks as any other.
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws="none",
            lifespan="off",
            timeout_graceful_shutdown=_SHUTDOWN_S,
        )
        server = uvicorn.Server(config)
        # 0.0.0.0 and :: are no addresses to visit.
        name = address if served_at else "localhost"
        shown = f"[{name}]" if ":" in name else name
        on_listening(Place(f"http://{shown}:{port}/", generated))
        server.run(sockets=[listener])


def _listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens on the first address of ``host``."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise UsageError(
            f"--host: {host[:200]!r} is no address of this machine; give one of its own."
        ) from None
    family, kind, protocol, _, address = addresses[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            why = f"port {port} is in use; give another with --port, or stop what listens there"
        elif error.errno == errno.EACCES:
            why = f"this user may not listen on port {port}; give one above 1023 with --port"
        else:
            why = f"{host} is no address of this machine; give one of its own with --host"
        raise UsageError(f"The dashboard cannot listen: {why}.") from None
    return listener
