"""``guard audit convert``: journals of an earlier version as the file of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from guard.cli import json_option, print_json
from guard.cli.audit_options import PATH

if TYPE_CHECKING:
    from guard.audit.convert import ConvertedJournal


@click.command()
@click.argument("place", metavar="FOLDER", type=PATH)
@click.option("--to", type=PATH, help="Another folder for the file; else beside the journals.")
@json_option
def convert(place: Path, to: Path | None, as_json: bool) -> None:
    """Make a run.db of the journals (.jsonl.gz) in FOLDER, which an earlier version wrote.

    The journals stay as they are; lines that were damaged are left out, and the next run of the
    audit asks for them again. The next release no longer has this command.

    Exit codes: 0 done; 2 a mistake in the command, or a file that cannot be read or written.
    """
    from guard.audit import convert as journals

    done = list(journals.convert_journals(place, to))
    if as_json:
        print_json({"converted": [_values(converted) for converted in done]})
        return
    for converted in done:
        left_out = f"; {converted.damaged:,} damaged lines were left out" * bool(converted.damaged)
        click.echo(f"{converted.run_file}: {converted.calls:,} calls of {converted.path}{left_out}")


def _values(converted: ConvertedJournal) -> dict[str, object]:
    values = converted._asdict()
    return {**values, "path": str(converted.path), "run_file": str(converted.run_file)}
