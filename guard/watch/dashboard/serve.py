"""Serves the dashboard from a socket: of this machine alone, unless told otherwise."""

from __future__ import annotations

import errno
import ipaddress
import secrets
import socket
from collections.abc import Callable, Sequence
from typing import NamedTuple

import uvicorn

from guard.errors import UsageError
from guard.page import svg
from guard.watch.dashboard.access import Rules, checked_host, checked_token
from guard.watch.dashboard.app import StatementOf, application
from guard.watch.store import Store

_END_S = 3  # for which the end waits for requests that are being answered


class Place(NamedTuple):
    """Where the dashboard is; ``made`` is a token that nobody gave."""

    url: str
    made: str | None


def serve(
    store: Store,
    host: str,
    port: int,
    token: str | None,
    allowed: Sequence[str],
    statement_of: StatementOf,
    told: Callable[[Place], None],
) -> None:
    """Serve until the process is told to end; ``told`` hears where, once it listens.

    Beyond this machine nobody is answered without a token: where none is given, one is made.
    ``allowed`` are further names by which the dashboard may be asked for. Raises UsageError where
    the store cannot be read, or there is no such place to listen at.
    """
    given = None if token is None else checked_token(token)
    names = [checked_host(name) for name in allowed]
    with store.reading():
        pass
    svg.drawn("first", "", "", lambda figure: None)  # loads Matplotlib before anybody waits for it
    with _listening(host, port) as listener:
        address, port = listener.getsockname()[:2]
        made = secrets.token_urlsafe(32) if given is None and not _is_loopback(address) else None
        own = () if ipaddress.ip_address(address).is_unspecified else (host, address)
        rules = Rules(given or made, (*own, *names), port)
        server: uvicorn.Server | None = None
        app = application(
            store, rules, statement_of, lambda: server is not None and server.should_exit
        )
        # No websockets: a request for one is a request like others, and refused like them.
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws="none",
            lifespan="off",
            timeout_graceful_shutdown=_END_S,
        )
        server = uvicorn.Server(config)
        # Of every address this machine's own is shown: others are the reader's to know.
        name = address if own else "localhost"
        shown = f"[{name}]" if ":" in name else name
        told(Place(f"http://{shown}:{port}/", made))
        server.run(sockets=[listener])


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def _listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens at the first address of ``host``."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise UsageError(f"--host: {host[:200]!r} is no address of this machine.") from None
    family, kind, protocol, _, address = found[0]
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(128)
    except OSError as error:
        made.close()
        if error.errno == errno.EADDRINUSE:
            why = f"port {port} is in use; give another by --port, or end what listens there"
        elif error.errno == errno.EACCES:
            why = f"port {port} is not for this user; give one above 1023 by --port"
        else:
            why = f"{host} is no address of this machine; give one of its own by --host"
        raise UsageError(f"The dashboard cannot listen: {why}.") from None
    return made
