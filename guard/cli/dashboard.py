"""``guard dashboard``: a store of events as a local web page."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click

from guard.cli import listening_options, print_result
from guard.cli.rates import on_store
from guard.errors import GuardError, UsageError

if TYPE_CHECKING:
    from guard.listening import ListeningUrl
    from guard.watch.store import Store

TOKEN = "GUARD_DASHBOARD_TOKEN"
_NEEDS = ("starlette", "uvicorn", "jinja2", "matplotlib")


@click.command()
@listening_options(8472, TOKEN, "What readers need to sign in")
@click.option(
    "--index",
    type=click.Path(path_type=Path),
    help="Folder of the bias index that references are looked up in.",
)
@on_store
def dashboard(
    store: Store,
    host: str,
    port: int,
    token: str | None,
    allowed: tuple[str, ...],
    index: Path | None,
    as_json: bool,
) -> None:
    """Show STORE as a web page: rates over time, responses, a live tail, and the review.

    STORE is a file or a URL; without one, the setting ``events``. Only this machine can reach the
    page unless --host says otherwise; then readers need a token, and also with --allow-host.
    """
    try:
        from guard.watch.dashboard.serve import serve
    except ImportError as error:
        if error.name not in _NEEDS:
            raise
        from guard.installed import install_command

        raise UsageError(
            f"The dashboard needs {error.name}; run: {install_command('watch')}"
        ) from None

    if index is not None:
        _statements(index)  # fails now if the folder is no index

    def announce(place: ListeningUrl) -> None:
        text = f"Dashboard of {store.name} at {place.url}; Ctrl-C ends it."
        if place.generated_token is not None:
            text += f"\nToken: {place.generated_token}"
        print_result({"url": place.url, "token": place.generated_token}, text, as_json)

    try:
        serve(store, host, port, token, allowed, lambda id_: _statements(index).get(id_), announce)
    except KeyboardInterrupt:  # the way to end it
        click.echo("", err=True)


@cache
def _statements(folder: Path | None) -> dict[str, str]:
    """Return the statements of an index by id; without ``folder``, none if it cannot be read."""
    from guard.config import read_settings
    from guard.places import DEFAULT, shipped_index
    from guard.retrieve.statement import read_statements
    from guard.watch.events import statement_id

    try:
        configured = read_settings()
        named = folder or configured.get("index")
        index = Path(named) if named else shipped_index(configured.get("detector") or DEFAULT)
        statements = read_statements(index / "statements.jsonl")
    except GuardError:
        if folder is not None:
            raise
        return {}
    return {statement_id(row.statement): row.statement for row in statements}
