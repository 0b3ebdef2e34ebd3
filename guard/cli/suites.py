"""``guard suites``: the published bias suites that an audit can run."""

from __future__ import annotations

import json
from typing import Any

import click

from guard.cli import json_option


@click.group()
def suites() -> None:
    """List the bias suites."""


@suites.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the suites: title, paper, size, what they need of a model, options."""
    from guard.suites import AsksOtherModels, registry
    from guard.suites.optional import part_of

    rows: list[dict[str, Any]] = []
    for name in registry.names():
        suite = registry.make(name, {})
        items = list(suite.items())
        rows.append(
            {
                "name": name,
                "title": suite.about.title,
                "paper": suite.about.paper,
                "version": suite.version,
                "items": len(items),
                "samples": sum(item.samples for item in items),
                "needs": sorted(suite.needs),
                "roles": sorted(part_of(suite, AsksOtherModels).roles),
                "options": list(suite.options_type.model_fields),
            }
        )
    if as_json:
        click.echo(json.dumps({"suites": rows}, ensure_ascii=False))
        return
    for row in rows:
        others = f"; also asks {', '.join(row['roles'])}" if row["roles"] else ""
        asked = f"{row['items']:,} items, {row['samples']:,} samples"
        click.echo(f"{row['name']:10} {row['version']:5} {row['title']} ({row['paper']})")
        click.echo(f"{'':16} {asked}; needs {', '.join(row['needs'])}{others}")
        click.echo(f"{'':16} options: {', '.join(row['options'])}")
