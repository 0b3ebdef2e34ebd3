"""``guard suites``: the published bias suites that an audit can run."""

from __future__ import annotations

import json

import click


@click.group()
def suites() -> None:
    """Say which bias suites there are."""


@suites.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_(as_json: bool) -> None:
    """List the suites by name, with their papers and options."""
    from guard.suites import registry

    found = []
    for name in registry.names():
        suite = registry.find(name)
        options = list(suite.options_type.model_fields)
        found.append(
            {
                "name": name,
                "title": suite.title,
                "paper": suite.paper,
                "version": suite.version,
                "options": options,
            }
        )
    if as_json:
        click.echo(json.dumps({"suites": found}, ensure_ascii=False))
        return
    for row in found:
        click.echo(f"{row['name']:10} {row['version']:5} {row['title']} ({row['paper']})")
        click.echo(f"{'':16} options: {', '.join(row['options'])}")
