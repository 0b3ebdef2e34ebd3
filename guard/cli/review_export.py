"""``guard review export``: what reviewers confirmed as data; how items are shown and asked for."""

from __future__ import annotations

import getpass
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from guard.audit.files import write_all
from guard.cli import detector_option, print_result
from guard.cli.rates import on_store, utc
from guard.errors import UsageError
from guard.texts import printable

if TYPE_CHECKING:
    from guard.retrieve.statement import BiasStatement
    from guard.watch.review import Correction, ReviewItem
    from guard.watch.store import Store

_FOLDER = click.Path(path_type=Path, file_okay=False)


def login() -> str:
    """Return the user's name; raises UsageError where the system knows none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        raise UsageError("The system knows no name of this user; add --reviewer NAME.") from None


reviewer_option = click.option(
    "--reviewer", default=login, show_default="your login", help="Name of the reviewer."
)


def shown(item: ReviewItem) -> str:
    """Return an item without the control characters that a model may have written."""
    finding = " / ".join(v for v in (item.bias_type, item.group, item.attribute) if v)
    score = "" if item.score is None else f", score {item.score:.2f}"
    lines = [
        f"{item.id}  {clean(item.model or '', ' ')}  {utc(item.time)}",
        f"guard: {item.action}{f' ({clean(finding)})' if finding else ''}{score}",
    ]
    if item.before:
        lines.append(f"before: {clean(item.before)}")
    return "\n".join([*lines, f"text: {clean(item.text)}"])


def clean(text: str, newline: str = "\n") -> str:
    """Return ``text`` without control characters; ``newline`` replaces its line breaks."""
    return newline.join(map(printable, text.split("\n")))


def ask_bias() -> Correction:
    """Ask on the terminal for the bias that guard missed; an empty answer leaves a value out."""
    from guard.verdict import BIAS_TYPES
    from guard.watch.review import Correction

    def prompt(name: str) -> str | None:
        return str(click.prompt(name, "", show_default=False, err=True)).strip() or None

    bias_type = prompt(question := f"Type ({', '.join(BIAS_TYPES)})")
    while bias_type is not None and bias_type not in BIAS_TYPES:
        bias_type = prompt(question)
    return Correction(bias_type, prompt("Group"), prompt("Attribute"))


@click.command()
@click.option(
    "--index", "index", type=_FOLDER, help="Index of your own that receives what was missed."
)
@click.option(
    "--train",
    type=_FOLDER,
    help="Folder that receives statements.jsonl (what was missed) and negatives.jsonl (false "
    "alarms).",
)
@reviewer_option
@detector_option
@on_store
def export(
    store: Store,
    index: Path | None,
    train: Path | None,
    reviewer: str,
    detector: str | None,
    as_json: bool,
) -> None:
    """Export the confirmed missed segments and false alarms of STORE.

    One is confirmed if more than half of its reviewers marked it wrong; a missed one needs a type,
    a group and an attribute, and a terminal is asked for those that are missing. An index has
    biased statements alone, so false alarms go to the training folder. What is there already is not
    written again.
    """
    if index is None and train is None:
        raise UsageError(
            "There is nowhere to write to: give --index FOLDER, --train FOLDER or both."
        )
    from guard.watch.review import confirmed

    with store.reading() as connection:
        errors = confirmed(connection)
    missed = [(item, bias) for item, bias in errors if item.action == "pass"]
    false_alarms = [item for item, _ in errors if item.action != "pass"]
    statements = list(_statements(store, missed, reviewer))
    text = (
        f"{len(statements):,} of {len(missed):,} confirmed missed segments have all that is needed."
    )
    if train is not None:
        _write_training(train, statements, false_alarms)
        text += f"\n{train}: these, and {len(false_alarms):,} false alarms."
    change = None
    if index is not None and statements:
        from guard.cli.index import add_statements

        change = add_statements(index, statements, detector)
        text += f"\n{index}: {change.added:,} added, {change.duplicates:,} were there."
    result = {
        "missed": len(missed),
        "statements": len(statements),
        "false_alarms": len(false_alarms),
        "index": None if change is None else change._asdict(),
    }
    print_result(result, text, as_json)


def _statements(
    store: Store, missed: Iterable[tuple[ReviewItem, Correction]], reviewer: str
) -> Iterable[BiasStatement]:
    from guard.retrieve.phrases import find_phrase
    from guard.retrieve.statement import BiasStatement

    for item, bias in missed:
        if not all(bias) and sys.stdin.isatty():
            bias = _completed(store, item, bias, reviewer)
        if bias.bias_type is None or bias.group is None or bias.attribute is None:
            click.echo(
                f"Left out, for it has no type, group or attribute: guard review mark {item.id} "
                "wrong --type TYPE --group GROUP --attribute ATTRIBUTE",
                err=True,
            )
            continue
        text = " ".join(item.text.split())
        explicit = find_phrase(text, bias.group) and find_phrase(text, bias.attribute)
        try:
            yield BiasStatement(
                *(text, bias.bias_type, bias.group, bias.attribute),  # type: ignore[arg-type]
                implicit=explicit is None,
                note="review",
            )
        except ValueError as error:
            click.echo(f"Left out: {item.id}: {error}.", err=True)


def _completed(store: Store, item: ReviewItem, bias: Correction, reviewer: str) -> Correction:
    """Ask for the values that a miss lacks, and store them as a mark of ``reviewer``."""
    from guard.watch import review as reviews

    click.echo(shown(item))
    answers = ask_bias()
    bias = reviews.Correction(*(new or old for old, new in zip(bias, answers, strict=True)))
    if any(answers):
        with store.writing() as connection:
            reviews.mark(connection, item.id, reviewer, "wrong", bias)
    return bias


def _write_training(
    folder: Path, missed: Iterable[BiasStatement], false_alarms: Iterable[ReviewItem]
) -> None:
    negatives = [
        {"text": " ".join(item.text.split()), "kind": "reviewed", "bias_type": item.bias_type}
        for item in false_alarms
        if item.text.strip()
    ]
    statements = [asdict(one) for one in missed]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_all(
            {
                folder / name: _with_new(folder / name, key, rows)
                for name, key, rows in (
                    ("statements.jsonl", "statement", statements),
                    ("negatives.jsonl", "text", negatives),
                )
            }
        )
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}.") from None


def _with_new(path: Path, key: str, rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the lines of ``path``, then those of the rows whose text it does not have."""
    from guard.datasets.rows import json_lines
    from guard.datasets.split import fold

    whole = list(json_lines(path)) if path.exists() and path.stat().st_size else []
    texts = {fold(str(row.get(key, ""))) for row in whole}
    for row in rows:
        if fold(row[key]) not in texts:
            texts.add(fold(row[key]))
            whole.append(dict(row))
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in whole)
