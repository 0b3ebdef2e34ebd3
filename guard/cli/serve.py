"""``guard serve``: a detector over HTTP, for guards in other processes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from guard.cli import (
    Number,
    detector_option,
    json_option,
    listening_options,
    print_result,
    stdout_kept,
)
from guard.errors import UsageError
from guard.server.settings import (
    LONGEST_WAIT_S,
    MOST_QUEUE,
    QUEUE,
    TIMEOUT,
    TOKEN,
    USUAL_LIMITS,
    limits_of,
)

if TYPE_CHECKING:
    from guard.listening import ListeningUrl
    from guard.server.app import ScoreServer

_NEEDS = ("starlette", "uvicorn", "httptools", "prometheus_client")


@click.command()
@detector_option
@click.option(
    "--index",
    type=click.Path(path_type=Path),
    help="Folder of a bias index in place of the shipped one; new versions are used as they come.",
)
@listening_options(8471, TOKEN, "What clients need (served.token)")
@click.option(
    "--queue",
    envvar=QUEUE,
    show_envvar=True,
    default=USUAL_LIMITS.queue,
    show_default=True,
    type=click.IntRange(1, MOST_QUEUE),
    help="The most windows that are accepted and not answered yet; further ones are refused.",
)
@click.option(
    "--timeout",
    envvar=TIMEOUT,
    show_envvar=True,
    default=USUAL_LIMITS.timeout_s,
    show_default=True,
    type=Number(0, LONGEST_WAIT_S, min_open=True),
    metavar="SECONDS",
    help="The time limit of one call of the detector; a window that takes longer has failed.",
)
@json_option
def serve(
    detector: str | None,
    index: Path | None,
    host: str,
    port: int,
    token: str | None,
    allowed: tuple[str, ...],
    queue: int,
    timeout: float,
    as_json: bool,
) -> None:
    """Serve a detector over HTTP: Guard(detector="http://HOST:PORT") asks it for scores.

    Only this machine can reach it unless --host says otherwise; then clients need a token, and also
    with --allow-host. SIGTERM and Ctrl-C end it once all that it has accepted is answered.
    """
    try:
        from guard.server.configured import own_detector
        from guard.server.run import serve_detector
    except ImportError as error:
        if error.name not in _NEEDS:
            raise
        from guard.installed import install_command

        raise UsageError(
            f"guard serve needs {error.name}; run: {install_command('serve')}"
        ) from None

    with stdout_kept():
        served = own_detector(detector, index)

    def announce(place: ListeningUrl, app: ScoreServer) -> None:
        described = app.service.describe()
        version = described["index_version"]
        text = (
            f"Serving {described['detector']} at {place.url}; Ctrl-C ends it.\n"
            f"Weights: {described['weights']}\nIndex: {version or 'none'}"
        )
        if place.generated_token is not None:
            text += f"\nToken: {place.generated_token}"
        shown = {"url": place.url, "token": place.generated_token}
        shown |= {key: described[key] for key in ("detector", "weights", "index_version")}
        print_result(shown, text, as_json)

    limits = limits_of(queue, timeout)
    serve_detector(served, limits, host, port, token, allowed, announce)
