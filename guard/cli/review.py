"""``guard review``: people mark sampled decisions; rates are estimated from the marks."""

from __future__ import annotations

import csv
import getpass
import io
import json
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from guard.audit.files import cell, write_all, write_whole
from guard.cli import detector_option, printable
from guard.cli.rates import (
    estimate_text,
    estimates_dict,
    on_store,
    print_json,
    print_result,
    since_option,
    utc,
)
from guard.errors import UsageError

if TYPE_CHECKING:
    from guard.retrieve.statement import Statement
    from guard.watch.review import Agreement, Correction, Item
    from guard.watch.store import Store


def login() -> str:
    """Return the user's name; raises UsageError where the system knows none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        raise UsageError("The system knows no name of this user; add --reviewer NAME.") from None


_FOLDER = click.Path(path_type=Path, file_okay=False)
_KEYS = {"r": "right", "w": "wrong", "u": "unclear"}
_COLUMNS = (
    *("id", "before", "text", "decision", "found", "mark"),
    *("bias_type", "group", "attribute"),
)
_reviewer = click.option(
    "--reviewer", default=login, show_default="your login", help="Whose marks they are."
)
_wanted = click.option(
    "--of",
    "wanted",
    type=click.Choice(("new", "second", "disputed")),
    default="new",
    show_default=True,
    help="Items that nobody has marked, that one other reviewer has, or that are disputed.",
)


@click.group(invoke_without_command=True)
@click.pass_context
def review(context: click.Context) -> None:
    """Mark sampled decisions as right, wrong or unclear.

    Without a command, on a terminal: marks by one key each, in the store of the settings.
    """
    if context.invoked_subcommand is None:
        if not sys.stdin.isatty():
            raise UsageError(
                "Marking by keys needs a terminal; guard review --help lists commands that do not."
            )
        context.invoke(start, store=None, reviewer=login(), wanted="new", as_json=False)


@review.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@_reviewer
@on_store
def write(store: Store, file: Path, reviewer: str, as_json: bool) -> None:
    """Write the queue as a CSV FILE, to fill in the column mark and give to guard review read."""
    from guard.watch import review as reviews

    if file.exists():
        raise UsageError(f"{file} is there already and may hold marks; give another name.")
    with store.reading() as connection:
        queue = reviews.queue(connection)
        own = {item.id: marks.get(reviews.named(reviewer)) for item, marks in queue}
    out = io.StringIO()
    table = csv.writer(out)
    table.writerow(_COLUMNS)
    for item, _ in queue:
        mark = own[item.id]
        correction = mark.correction if mark else reviews.Correction()
        verdict = mark.verdict if mark else ""
        row = (item.id, item.before, item.text, item.action, _finding(item), verdict, *correction)
        table.writerow([cell(value or "") for value in row])
    try:
        write_whole(file, out.getvalue())
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}.") from None
    result = {"items": len(queue), "file": str(file)}
    print_result(result, f"{len(queue):,} items in {file}.", as_json)


@review.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@_reviewer
@on_store
def read(store: Store, file: Path, reviewer: str, as_json: bool) -> None:
    """Read the marks in a CSV FILE, of which the columns id and mark are needed.

    Rows without a mark are left for later. If any row is wrong, nothing is read.
    """
    from guard.datasets.rows import rows
    from guard.watch import review as reviews

    new = empty = 0
    ids: set[str] = set()
    with store.writing() as connection:
        marks_of = reviews.all_marks(connection)
        for row in rows(file):
            try:
                if row.broken:
                    raise UsageError(row.broken)
                id_, verdict, *bias = (_field(row.values, c) for c in ("id", *_COLUMNS[5:]))
                if not verdict:
                    empty += 1
                    continue
                if id_ in ids:
                    raise UsageError(f"{id_} was in an earlier row; each item has one mark.")
                ids.add(id_)
                key = reviews.item(connection, id_).key
                own = marks_of.get(key, {}).get(reviews.named(reviewer))
                mark = verdict.lower(), reviews.Correction(*(value or None for value in bias))
                if own is None or (own.verdict, own.correction) != mark:
                    reviews.mark(connection, id_, reviewer, *mark)
                    new += 1
            except UsageError as error:
                raise UsageError(f"{file}, {row.place}: {error}") from None
    result = {"marks": new, "empty": empty}
    print_result(result, f"{new:,} marks read; {empty:,} rows have none.", as_json)


def _field(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    if name in ("id", "mark") and not isinstance(value, str):
        raise UsageError("it needs the columns id and mark.")
    text = value.strip() if isinstance(value, str) else ""
    return text.removeprefix("'")  # which keeps spreadsheets from taking it for a formula


@review.command()
@since_option
@click.option(
    "--size", type=click.IntRange(2, 100_000), default=200, show_default=True, help="Items to draw."
)
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, help="Seed of the sample.")
@click.option(
    "--more",
    type=click.IntRange(1, 100_000),
    metavar="N",
    help="Enlarge the last draw by N items instead.",
)
@on_store
def draw(store: Store, since: str, size: int, seed: int, more: int | None, as_json: bool) -> None:
    """Draw a random sample of STORE's decisions, mitigated and passed, into the review queue.

    Periods that were drawn from before are left out.
    """
    from guard.watch import review as reviews
    from guard.watch.rates import span_s

    now = time.time()
    if more is not None:
        sample = reviews.enlarge(store, more)
    else:
        sample = reviews.draw(store, now - span_s(since, "--since"), now, size, seed)
    text = (
        f"{sample.size:,} items drawn; they represent {sample.segments:,} segments since "
        f"{utc(sample.since)}. Mark them with: guard review start"
    )
    if sample.unread:
        text += (
            f"\nThey do not represent {sample.unread:,} other segments, whose texts are not kept "
            "(settings keep_text and review_share)."
        )
    print_result(sample._asdict(), text, as_json)


@review.command("next")
@_reviewer
@_wanted
@on_store
def next_(store: Store, reviewer: str, wanted: Any, as_json: bool) -> None:
    """Show the next item of the queue."""
    from guard.watch.review import next_item

    with store.reading() as connection:
        item = next_item(connection, reviewer, wanted)
    if item is None:
        print_result(None, f"No {wanted} item is left.", as_json)
    else:
        fields = {name: value for name, value in item._asdict().items() if name != "key"}
        print_result(fields, _shown(item), as_json)


@review.command()
@click.argument("item")
@click.argument("verdict", metavar="right|wrong|unclear")
@_reviewer
@click.option("--type", "bias_type", help="The bias type of a miss.")
@click.option("--group", help="The group in a miss.")
@click.option("--attribute", help="What a miss ties to the group.")
@on_store
def mark(
    store: Store, item: str, verdict: str, reviewer: str, as_json: bool, **bias: str | None
) -> None:
    """Mark ITEM: right if harmless text passed or guard acted on biased text, else wrong.

    Your later mark of an item replaces your earlier one.
    """
    from guard.watch import review as reviews

    with store.writing() as connection:
        reviews.mark(connection, item, reviewer, verdict, reviews.Correction(**bias))
    if as_json:
        print_json({"id": item, "reviewer": reviewer, "verdict": verdict})


@review.command()
@_reviewer
@on_store
def undo(store: Store, reviewer: str, as_json: bool) -> None:
    """Take back your last mark."""
    from guard.watch import review as reviews

    with store.writing() as connection:
        item = reviews.undo(connection, reviewer)
    if item is None:
        raise UsageError(f"{reviewer} has no mark to take back; --reviewer names another.")
    print_result({"id": item.id}, item.id, as_json)


@review.command()
@_reviewer
@_wanted
@on_store
def start(store: Store, reviewer: str, wanted: Any, as_json: bool) -> None:
    """Mark items one after another: r right, w wrong, u unclear, b back, q quit."""
    from guard.watch import review as reviews

    with store.reading() as connection:
        item = reviews.next_item(connection, reviewer, wanted)
    while item is not None:
        keys = "[r]ight [w]rong [u]nclear [b]ack [q]uit"
        click.echo(f"\n{_shown(item)}\n{keys} ", nl=False, err=True)
        key = click.getchar().lower()
        click.echo(_KEYS.get(key, ""), err=True)
        if key == "q":
            break
        if key == "b":
            with store.writing() as connection:
                item = reviews.undo(connection, reviewer) or item
            continue
        if key not in _KEYS:
            continue
        missed = key == "w" and item.action == "pass"
        correction = _ask_bias() if missed else reviews.Correction()
        with store.writing() as connection:
            reviews.mark(connection, item.id, reviewer, _KEYS[key], correction)
            item = reviews.next_item(connection, reviewer, wanted)
    if item is None:
        click.echo(f"No {wanted} item is left.", err=True)
    _print_status(store, "7d", as_json)


def _shown(item: Item) -> str:
    """Return an item without the control characters that a model may have written."""
    found = _finding(item)
    score = "" if item.score is None else f", score {item.score:.2f}"
    lines = [
        f"{item.id}  {_clean(item.model or '', ' ')}  {utc(item.time)}",
        f"guard: {item.action}{f' ({_clean(found)})' if found else ''}{score}",
    ]
    if item.before:
        lines.append(f"before: {_clean(item.before)}")
    return "\n".join([*lines, f"text: {_clean(item.text)}"])


def _finding(item: Item) -> str:
    return " / ".join(v for v in (item.bias_type, item.group, item.attribute) if v)


def _clean(text: str, newline: str = "\n") -> str:
    return newline.join(map(printable, text.split("\n")))


def _ask_bias() -> Correction:
    """Ask on the terminal for the bias that guard missed; an empty answer leaves a value out."""
    from guard.verdict import BIAS_TYPES
    from guard.watch.review import Correction

    def prompt(name: str) -> str | None:
        return str(click.prompt(name, "", show_default=False, err=True)).strip() or None

    bias_type = prompt(question := f"Type ({', '.join(BIAS_TYPES)})")
    while bias_type is not None and bias_type not in BIAS_TYPES:
        bias_type = prompt(question)
    return Correction(bias_type, prompt("Group"), prompt("Attribute"))


@review.command()
@click.option("--since", default="7d", show_default=True, metavar="TIME", help="For the rates.")
@on_store
def status(store: Store, since: str, as_json: bool) -> None:
    """Show how much is marked, how often reviewers agree, and the rates."""
    _print_status(store, since, as_json)


def _print_status(store: Store, since: str, as_json: bool) -> None:
    from guard.watch import review as reviews
    from guard.watch.rates import span_s
    from guard.watch.review_rates import estimates

    now = time.time()
    begin = now - span_s(since, "--since")
    with store.reading() as connection:
        progress = reviews.progress(connection)
        agreements = reviews.agreement(connection)
        rates = estimates(connection, begin, now)[()]
    values = {
        **progress._asdict(),
        "agreement": [
            {**a._asdict(), "agreed": a.agreed._asdict(), "kappa": a.kappa._asdict()}
            for a in agreements
        ],
        "rates": estimates_dict(rates),
    }
    lines = [
        f"{progress.marked:,} of {progress.drawn:,} items marked, "
        f"{progress.twice:,} of them by two or more; {progress.disputed:,} disputed.",
        *(printable(_agreement(agreement)) for agreement in agreements),
        *(f"{n.replace('_', ' ')}\t{estimate_text(rate)}" for n, rate in rates._asdict().items()),
    ]
    print_result(values, "\n".join(lines), as_json)


def _agreement(agreement: Agreement) -> str:
    a, k = agreement.agreed, agreement.kappa
    return (
        f"{agreement.first} and {agreement.second}: "
        f"{100 * a.value:.0f} % of {agreement.segments:,} alike "
        f"[{100 * a.low:.0f}, {100 * a.high:.0f}], kappa {k.value:.2f} [{k.low:.2f}, {k.high:.2f}]"
    )


@review.command()
@on_store
def disputes(store: Store, as_json: bool) -> None:
    """List the items on which reviewers disagree; a third reviewer's mark settles one."""
    from guard.watch import review as reviews

    with store.reading() as connection:
        disputed = reviews.disputes(connection)
    rows: list[dict[str, Any]] = [
        {"id": item.id, "text": item.text, "marks": {n: m.verdict for n, m in marks.items()}}
        for item, marks in disputed
    ]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        marks = ", ".join(f"{name}: {verdict}" for name, verdict in row["marks"].items())
        click.echo(f"{row['id']}\t{_clean(marks)}\t{_clean(row['text'], ' ')}")


@review.command()
@click.option("--index", "index", type=_FOLDER, help="Index of your own to add misses to.")
@click.option(
    "--train", type=_FOLDER, help="Folder of statements.jsonl (misses), negatives.jsonl (alarms)."
)
@_reviewer
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
    """Write confirmed misses and false alarms of STORE where guard learns from them.

    A miss is confirmed if more than half of its reviewers marked it wrong; it needs a type, a
    group and an attribute, and a terminal is asked for those that are missing. An index has biased
    statements alone, so false alarms go to the training folder. What is there already is not
    written again.
    """
    if index is None and train is None:
        raise UsageError(
            "There is nowhere to write to: give --index FOLDER, --train FOLDER or both."
        )
    from guard.watch.review import confirmed

    with store.reading() as connection:
        errors = confirmed(connection)
    misses = [(item, bias) for item, bias in errors if item.action == "pass"]
    false_alarms = [item for item, _ in errors if item.action != "pass"]
    statements = list(_statements(store, misses, reviewer))
    text = f"{len(statements):,} of {len(misses):,} confirmed misses have all that is needed."
    if train is not None:
        _write_training(train, statements, false_alarms)
        text += f"\n{train}: these, and {len(false_alarms):,} false alarms."
    change = None
    if index is not None and statements:
        from guard.cli.index import add_statements

        change = add_statements(index, statements, detector)
        text += f"\n{index}: {change.added:,} added, {change.duplicates:,} were there."
    result = {
        "misses": len(misses),
        "statements": len(statements),
        "false_alarms": len(false_alarms),
        "index": None if change is None else change._asdict(),
    }
    print_result(result, text, as_json)


def _statements(
    store: Store, misses: Iterable[tuple[Item, Correction]], reviewer: str
) -> Iterable[Statement]:
    from guard.retrieve.phrases import find_phrase
    from guard.retrieve.statement import Statement

    for item, bias in misses:
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
            yield Statement(
                *(text, bias.bias_type, bias.group, bias.attribute),  # type: ignore[arg-type]
                implicit=explicit is None,
                note="review",
            )
        except ValueError as error:
            click.echo(f"Left out: {item.id}: {error}.", err=True)


def _completed(store: Store, item: Item, bias: Correction, reviewer: str) -> Correction:
    """Ask for the values that a miss lacks, and store them as a mark of ``reviewer``."""
    from guard.watch import review as reviews

    click.echo(_shown(item))
    answers = _ask_bias()
    bias = reviews.Correction(*(new or old for old, new in zip(bias, answers, strict=True)))
    if any(answers):
        with store.writing() as connection:
            reviews.mark(connection, item.id, reviewer, "wrong", bias)
    return bias


def _write_training(
    folder: Path, misses: Iterable[Statement], false_alarms: Iterable[Item]
) -> None:
    from guard.retrieve.statement import lines

    negatives = [
        {"text": " ".join(item.text.split()), "kind": "reviewed", "bias_type": item.bias_type}
        for item in false_alarms
        if item.text.strip()
    ]
    statements = [json.loads(line) for line in lines(misses).splitlines()]
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
