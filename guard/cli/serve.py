"""``guard serve``: a detector over HTTP, for guards in other processes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from guard.cli import detector_option, json_option, print_result, stdout_kept
from guard.errors import UsageError

if TYPE_CHECKING:
    from guard.listening import Place
    from guard.server.app import ScoreServer

_TOKEN = "GUARD_SERVE_TOKEN"
_NEEDS = ("starlette", "uvicorn", "httptools", "prometheus_client")


@click.command()
@detector_option
@click.option(
    "--index",
    type=click.Path(path_type=Path),
    help="Folder of a bias index in place of the shipped one; new versions are used as they come.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    default=8471,
    show_default=True,
    type=click.IntRange(0, 65_535),
    help="The port to listen on; 0 takes any free one.",
)
@click.option(
    "--token",
    envvar=_TOKEN,
    show_envvar=True,
    help="What clients need (served.token); made and printed if --host or --allow-host is not a "
    "loopback name.",
)
@click.option(
    "--allow-host",
    "allowed",
    multiple=True,
    metavar="NAME",
    help="A further host name to answer to; may be given several times.",
)
@click.option(
    "--queue",
    default=512,
    show_default=True,
    type=click.IntRange(1, 1_000_000),
    help="The most windows that are accepted and not answered yet; further ones are refused.",
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
    as_json: bool,
) -> None:
    """Serve a detector over HTTP: Guard(detector="http://HOST:PORT") asks it for scores.

    Only this machine can reach it unless --host says otherwise; then clients need a token, and also
    with --allow-host. SIGTERM and Ctrl-C end it once all that it has accepted is answered.
    """
    try:
        from guard.server.configured import limits_for, own_detector
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

    def announce(place: Place, app: ScoreServer) -> None:
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

    serve_detector(served, limits_for(queue), host, port, token, allowed, announce)
