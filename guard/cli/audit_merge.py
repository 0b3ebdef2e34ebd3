"""``guard audit merge``: the shards of an audit as one run."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from guard.cli import json_option, print_json, stdout_kept
from guard.cli.audit_options import PATH, check_extra, data_option, own_suites_option
from guard.exit_codes import ExitCode

if TYPE_CHECKING:
    from guard.audit.merge import MergedSuite


@click.command()
@click.argument("shards", nargs=-1, required=True, type=PATH, metavar="DIR...")
@click.option("--out", required=True, type=PATH, help="A new folder for the whole run.")
@click.option("--incomplete", is_flag=True, help="Also merge shards that lack answers.")
@own_suites_option
@data_option
@json_option
def merge(
    shards: tuple[Path, ...],
    out: Path,
    incomplete: bool,
    own_suites: tuple[str, ...],
    data: Path | None,
    as_json: bool,
) -> None:
    """Put the shards of an audit, the --out folders of guard audit run --shard, into one run.

    It is the run that one process would have written: score, report, compare and gate it as any
    other. The same guard audit run without --shard and with this --out asks nothing that is
    answered. The shards stay as they are.

    Exit codes: 0 written; 2 the shards are not all those of one audit, a mistake in the command, or
    a file that cannot be read or written; 4 a shard lacks answers, so nothing was written.
    """
    check_extra()
    with stdout_kept():
        from guard.audit.merge import UnfinishedShard, merge_shards

        try:
            merged = merge_shards(shards, out, own_suites, data, incomplete=incomplete)
        except UnfinishedShard as error:
            click.echo(f"Error: {error}", err=True)
            raise click.exceptions.Exit(ExitCode.INCOMPLETE) from None
    if as_json:
        print_json({"merged": [asdict(one) | {"run_file": str(one.run_file)} for one in merged]})
        return
    for merged_suite in merged:
        click.echo(_merged_text(merged_suite))


def _merged_text(suite: MergedSuite) -> str:
    text = f"{suite.run_file}: {suite.calls:,} calls of {suite.suite} from {suite.shards:,} shards"
    if suite.differing:
        text += (
            f"; {suite.differing:,} requests got different answers in two shards, of which the "
            "first item's are kept"
        )
    lacking = ""
    if suite.unanswered:
        lacking = f"{suite.unanswered:,} items have a request without an answer"
    if suite.follow_ups:
        lacking = "further requests follow from all answers together"
    if lacking:
        text += f"; {lacking}: run the audit without --shard, with --out {suite.run_file.parent}"
    return f"{text}."
