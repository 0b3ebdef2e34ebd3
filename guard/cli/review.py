"""``guard review``: people mark sampled decisions; rates are estimated from the marks."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from guard.cli import given, printable, without_nan
from guard.cli.rates import open_store, reviewed_dict, shown_estimate
from guard.cli.review_export import export
from guard.cli.review_items import asked, clean, login, reviewer_option, shown, when
from guard.cli.review_table import read, write
from guard.errors import UsageError

if TYPE_CHECKING:
    from guard.watch.draw import Draw
    from guard.watch.review import Agreement
    from guard.watch.store import Store

_STORE = click.argument("store", required=False)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
_OF = click.option(
    "--of",
    "wanted",
    type=click.Choice(("new", "second", "disputed")),
    default="new",
    show_default=True,
    help="Items that nobody has marked, that one other reviewer has, or that are disputed.",
)
_correction = given(
    click.option("--type", "bias_type", help="The bias type of a miss."),
    click.option("--group", help="The group in a miss."),
    click.option("--attribute", help="What a miss ties to the group."),
)
_KEYS = {"r": "right", "w": "wrong", "u": "unclear"}


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


for command in (export, write, read):
    review.add_command(command)


@review.command()
@_STORE
@click.option("--since", default="7d", show_default=True, metavar="TIME", help="How far back.")
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
@_JSON
def draw(
    store: str | None, since: str, size: int, seed: int, more: int | None, as_json: bool
) -> None:
    """Draw a random sample of STORE's decisions, mitigated and passed, into the review queue.

    Periods that were drawn from before are left out.
    """
    opened = open_store(store)
    from guard.watch import review as reviews
    from guard.watch.rates import span_s

    now = time.time()
    if more is not None:
        sample = reviews.enlarge(opened, more)
    else:
        sample = reviews.draw(opened, now - span_s(since, "--since"), now, size, seed)
    click.echo(json.dumps(sample._asdict()) if as_json else _drawn(sample))


def _drawn(sample: Draw) -> str:
    lines = [
        f"{sample.size:,} items drawn; they represent {sample.segments:,} segments since "
        f"{when(sample.since)}. Mark them with: guard review start"
    ]
    if sample.unread:
        lines.append(
            f"They do not represent {sample.unread:,} other segments, whose texts are not kept "
            "(settings keep_text and review_share)."
        )
    return "\n".join(lines)


@review.command("next")
@_STORE
@reviewer_option
@_OF
@_JSON
def next_(store: str | None, reviewer: str, wanted: Any, as_json: bool) -> None:
    """Show the next item of the queue."""
    opened = open_store(store)
    from guard.watch.review import next_item

    with opened.reading() as connection:
        item = next_item(connection, reviewer, wanted)
    if as_json:
        fields = None if item is None else {k: v for k, v in item._asdict().items() if k != "key"}
        click.echo(json.dumps(fields, ensure_ascii=False))
    else:
        click.echo(f"No {wanted} item is left." if item is None else shown(item))


@review.command()
@click.argument("item")
@click.argument("verdict", metavar="right|wrong|unclear")
@_STORE
@reviewer_option
@_correction
@_JSON
def mark(
    item: str,
    verdict: str,
    store: str | None,
    reviewer: str,
    bias_type: str | None,
    group: str | None,
    attribute: str | None,
    as_json: bool,
) -> None:
    """Mark ITEM: right if harmless text passed or guard acted on biased text, else wrong.

    Your later mark of an item replaces your earlier one.
    """
    opened = open_store(store)
    from guard.watch import review as reviews

    correction = reviews.Correction(bias_type, group, attribute)
    with opened.writing() as connection:
        reviews.mark(connection, item, reviewer, verdict, correction)
    if as_json:
        click.echo(json.dumps({"id": item, "reviewer": reviewer, "verdict": verdict}))


@review.command()
@_STORE
@reviewer_option
@_JSON
def undo(store: str | None, reviewer: str, as_json: bool) -> None:
    """Take back your last mark."""
    opened = open_store(store)
    from guard.watch import review as reviews

    with opened.writing() as connection:
        item = reviews.undo(connection, reviewer)
    if item is None:
        raise UsageError(f"{reviewer} has no mark to take back; --reviewer names another.")
    click.echo(json.dumps({"id": item.id}) if as_json else item.id)


@review.command()
@_STORE
@reviewer_option
@_OF
@_JSON
def start(store: str | None, reviewer: str, wanted: Any, as_json: bool) -> None:
    """Mark items one after another: r right, w wrong, u unclear, b back, q quit."""
    opened = open_store(store)
    from guard.watch import review as reviews

    with opened.reading() as connection:
        item = reviews.next_item(connection, reviewer, wanted)
    while item is not None:
        keys = "[r]ight [w]rong [u]nclear [b]ack [q]uit"
        click.echo(f"\n{shown(item)}\n{keys} ", nl=False, err=True)
        key = click.getchar().lower()
        click.echo(_KEYS.get(key, ""), err=True)
        if key == "q":
            break
        if key == "b":
            with opened.writing() as connection:
                item = reviews.undo(connection, reviewer) or item
            continue
        if key not in _KEYS:
            continue
        correction = asked(item) if key == "w" and item.action == "pass" else reviews.Correction()
        with opened.writing() as connection:
            reviews.mark(connection, item.id, reviewer, _KEYS[key], correction)
            item = reviews.next_item(connection, reviewer, wanted)
    if item is None:
        click.echo(f"No {wanted} item is left.", err=True)
    _print_status(opened, "7d", as_json)


@review.command()
@_STORE
@click.option("--since", default="7d", show_default=True, metavar="TIME", help="For the rates.")
@_JSON
def status(store: str | None, since: str, as_json: bool) -> None:
    """Show how much is marked, how often reviewers agree, and the rates."""
    _print_status(open_store(store), since, as_json)


def _print_status(opened: Store, since: str, as_json: bool) -> None:
    from guard.watch import review as reviews
    from guard.watch.rates import span_s
    from guard.watch.review_rates import estimates

    now = time.time()
    begin = now - span_s(since, "--since")
    with opened.reading() as connection:
        progress = reviews.progress(connection)
        agreements = reviews.agreement(connection)
        rates = estimates(connection, begin, now)[()]
    if as_json:
        values = {
            **progress._asdict(),
            "agreement": [
                {**a._asdict(), "agreed": a.agreed._asdict(), "kappa": a.kappa._asdict()}
                for a in agreements
            ],
            "rates": reviewed_dict(rates),
        }
        click.echo(json.dumps(without_nan(values), ensure_ascii=False))
        return
    click.echo(
        f"{progress.marked:,} of {progress.drawn:,} items marked, "
        f"{progress.twice:,} of them by two or more; {progress.disputed:,} disputed."
    )
    for agreement in agreements:
        click.echo(printable(_agreement(agreement)))
    for name, value in rates._asdict().items():
        click.echo(f"{name.replace('_', ' ')}\t{shown_estimate(value)}")


def _agreement(agreement: Agreement) -> str:
    a, k = agreement.agreed, agreement.kappa
    return (
        f"{agreement.first} and {agreement.second}: "
        f"{100 * a.value:.0f} % of {agreement.segments:,} alike "
        f"[{100 * a.low:.0f}, {100 * a.high:.0f}], kappa {k.value:.2f} [{k.low:.2f}, {k.high:.2f}]"
    )


@review.command()
@_STORE
@_JSON
def disputes(store: str | None, as_json: bool) -> None:
    """List the items on which reviewers disagree; a third reviewer's mark settles one."""
    opened = open_store(store)
    from guard.watch import review as reviews

    with opened.reading() as connection:
        disputed = reviews.disputes(connection)
    rows: list[dict[str, Any]] = [
        {"id": item.id, "text": item.text, "marks": {n: m.verdict for n, m in marks.items()}}
        for item, marks in disputed
    ]
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False))
        return
    for row in rows:
        marks = ", ".join(f"{name}: {verdict}" for name, verdict in row["marks"].items())
        click.echo(f"{row['id']}\t{clean(marks)}\t{clean(row['text'], ' ')}")
