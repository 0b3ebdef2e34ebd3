"""``guard review export``: what reviewers confirmed goes to the index and to training."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from guard.audit.files import write_all
from guard.cli import detector_option
from guard.cli.rates import open_store
from guard.cli.review_items import reviewer_option
from guard.errors import UsageError

if TYPE_CHECKING:
    from guard.retrieve.statement import Statement
    from guard.watch.review import Correction, Item
    from guard.watch.store import Store

_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command()
@click.argument("store", required=False)
@click.option("--index", "index", type=_FOLDER, help="Index of your own to add misses to.")
@click.option(
    "--train", type=_FOLDER, help="Folder of statements.jsonl (misses), negatives.jsonl (alarms)."
)
@reviewer_option
@detector_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def export(
    store: str | None,
    index: Path | None,
    train: Path | None,
    reviewer: str,
    detector: str | None,
    as_json: bool,
) -> None:
    """Write confirmed misses and false alarms of STORE where guard learns from them.

    A miss is confirmed where more than half of its reviewers marked it wrong; it needs a type, a
    group and an attribute, and a terminal is asked for those that are missing. An index has biased
    statements alone, so false alarms go to the training folder. What is there already is not
    written again.
    """
    if index is None and train is None:
        raise UsageError(
            "There is nowhere to write to: give --index FOLDER, --train FOLDER or both."
        )
    opened = open_store(store)
    from guard.watch.review import confirmed

    with opened.reading() as connection:
        found = confirmed(connection)
    misses = [(item, told) for item, told in found if item.action == "pass"]
    alarms = [item for item, _ in found if item.action != "pass"]
    statements = list(_statements(opened, misses, reviewer))
    if train is not None:
        _write_training(train, statements, alarms)
    change = None
    if index is not None and statements:
        from guard.cli.index import add_statements

        change = add_statements(index, statements, detector)
    told = {
        "misses": len(misses),
        "statements": len(statements),
        "false_alarms": len(alarms),
        "index": None if change is None else change._asdict(),
    }
    if as_json:
        click.echo(json.dumps(told))
        return
    click.echo(f"{len(statements):,} of {len(misses):,} confirmed misses have all that is needed.")
    if train is not None:
        click.echo(f"{train}: these, and {len(alarms):,} false alarms.")
    if change is not None:
        click.echo(f"{index}: {change.added:,} added, {change.duplicates:,} were there.")


def _statements(
    opened: Store, misses: Iterable[tuple[Item, Correction]], reviewer: str
) -> Iterable[Statement]:
    from guard.retrieve.phrases import find_phrase
    from guard.retrieve.statement import Statement

    for item, told in misses:
        if not all(told) and sys.stdin.isatty():
            told = _completed(opened, item, told, reviewer)
        if told.bias_type is None or told.group is None or told.attribute is None:
            click.echo(
                f"Left out, for it has no type, group or attribute: guard review mark {item.id} "
                "wrong --type TYPE --group GROUP --attribute ATTRIBUTE",
                err=True,
            )
            continue
        text = " ".join(item.text.split())
        said = find_phrase(text, told.group) and find_phrase(text, told.attribute)
        try:
            yield Statement(
                *(text, told.bias_type, told.group, told.attribute),  # type: ignore[arg-type]
                implicit=said is None,
                note="review",
            )
        except ValueError as error:
            click.echo(f"Left out: {item.id}: {error}.", err=True)


def _completed(opened: Store, item: Item, told: Correction, reviewer: str) -> Correction:
    from guard.cli.review_items import asked, shown
    from guard.watch import review as reviews

    click.echo(shown(item))
    new = asked(item)
    whole = reviews.Correction(*(b or a for a, b in zip(told, new, strict=True)))
    if any(new):
        with opened.writing() as connection:
            reviews.mark(connection, item.id, reviewer, "wrong", whole)
    return whole


def _write_training(folder: Path, misses: Iterable[Statement], alarms: Iterable[Item]) -> None:
    from guard.retrieve.statement import lines

    negatives = [
        {"text": " ".join(item.text.split()), "kind": "reviewed", "bias_type": item.bias_type}
        for item in alarms
        if item.text.strip()
    ]
    made = [json.loads(line) for line in lines(misses).splitlines()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_all(
            {
                path: _with(path, key, rows)
                for path, key, rows in (
                    (folder / "statements.jsonl", "statement", made),
                    (folder / "negatives.jsonl", "text", negatives),
                )
            }
        )
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}.") from None


def _with(path: Path, key: str, rows: Iterable[Mapping[str, Any]]) -> str:
    """Return what is in ``path``, and after it the rows whose text it does not have."""
    from guard.datasets.rows import json_lines
    from guard.datasets.split import fold

    there = list(json_lines(path)) if path.exists() and path.stat().st_size else []
    known = {fold(str(row.get(key, ""))) for row in there}
    for row in rows:
        if fold(row[key]) not in known:
            known.add(fold(row[key]))
            there.append(dict(row))
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in there)
