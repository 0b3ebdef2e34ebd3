"""``guard models``: downloads models that run on this machine, and lists them."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from guard.cli import json_option, print_json
from guard.installed import install_command

if TYPE_CHECKING:
    from rich.console import Console

    from guard.local.download import Got


@click.group()
def models() -> None:
    """Download models that run on this machine."""


@models.command("get")
@click.argument("name")
@json_option
def get(name: str, as_json: bool) -> None:
    """Download the weights of NAME, check them, and print their path.

    Run it again after an interruption; verified weights are not downloaded again.
    """
    from guard.local import download
    from guard.progress import bar_console

    model = download.find_model(name)
    # The bar goes to standard error, so that the output can be piped.
    console = bar_console()
    got = _with_bar(name, console) if console.is_terminal else download.get_weights(name)
    if as_json:
        model_file = {
            "name": name,
            "path": str(got.path),
            "fetched": got.fetched,
            "sha256": model.weights.sha256,
            "bytes": model.weights.size,
        }
        print_json(model_file)
        return
    done = "fetched and verified" if got.fetched else "already here, verified"
    click.echo(f"{model.title}: {done}\n{got.path}")
    if find_spec("torch") is None or find_spec("transformers") is None:
        click.echo(f"To run it: {install_command(model.extra)}")


@models.command("list")
@json_option
def list_models(as_json: bool) -> None:
    """List the models, and which of them are downloaded."""
    from guard.local import download

    rows = []
    for name in download.model_names():
        model, (state, detail) = download.find_model(name), download.weights_state(name)
        rows.append(
            {
                "name": name,
                "title": model.title,
                "licence": model.licence,
                "bytes": model.weights.size,
                "state": state,
                "detail": detail,
            }
        )
    if as_json:
        print_json({"models": rows})
        return
    for row in rows:
        click.echo(f"{row['name']}  {row['title']}, {row['licence']}")
        click.echo(f"  {row['state']}: {row['detail']}")


def _with_bar(name: str, console: Console) -> Got:
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    from guard.local import download

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("checking", total=None)

        def report(doing: str, done: int, size: int) -> None:
            # Hidden while pip shows its own bar: the two would overwrite each other.
            progress.update(task, visible=bool(size))
            progress.update(task, description=doing, completed=done, total=size or None)

        return download.get_weights(name, report=report)
