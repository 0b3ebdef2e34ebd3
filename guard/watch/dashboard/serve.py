"""Serves the dashboard over HTTP, on the loopback address by default."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import uvicorn

from guard.listening import ListeningUrl, checked_host, checked_token, listening_place
from guard.results import svg
from guard.watch.dashboard.access import Rules
from guard.watch.dashboard.app import StatementOf, application
from guard.watch.store import Store

_SHUTDOWN_S = 3  # how long open requests may take once the process ends


def serve(
    store: Store,
    host: str,
    port: int,
    token: str | None,
    allowed: Sequence[str],
    statement_of: StatementOf,
    on_listening: Callable[[ListeningUrl], None],
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
    with listening_place("The dashboard", host, port, given_token, names) as here:
        rules = Rules(here.token, here.hosts, here.port)
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
        on_listening(here.shown)
        server.run(sockets=[here.listener])
