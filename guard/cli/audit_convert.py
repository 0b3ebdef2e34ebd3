"""``guard audit convert``: journals of an earlier version as the file of a run."""

from __future__ import annotations

from pathlib import Path

import click

from guard.cli.audit_options import PATH


@click.command()
@click.argument("place", metavar="FOLDER", type=PATH)
@click.option("--to", type=PATH, help="Another folder for the file; else beside the journals.")
def convert(place: Path, to: Path | None) -> None:
    """Make a run.db of the journals (.jsonl.gz) in FOLDER, which an earlier version wrote.

    The journals stay as they are; lines that were damaged are left out, and the next run of the
    audit asks for them again. The next release no longer has this command.

    Exit codes: 0 done; 2 a mistake in the command, or a file that cannot be read or written.
    """
    from guard.audit import convert as journals

    for converted in journals.convert(place, to):
        left_out = f"; {converted.damaged:,} damaged lines were left out" * bool(converted.damaged)
        click.echo(f"{converted.run_file}: {converted.calls:,} calls of {converted.path}{left_out}")
