"""``guard review``: people mark sampled decisions; rates are estimated from the marks."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from guard.cli import print_json, print_result
from guard.cli.rates import estimate_text, on_store, since_option, utc
from guard.cli.review_export import ask_bias, clean, export, login, reviewer_option, shown
from guard.errors import UsageError
from guard.texts import printable

if TYPE_CHECKING:
    from guard.results.agreement import Agreement
    from guard.watch.store import Store

_KEYS = {"r": "right", "w": "wrong", "u": "unclear"}
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


review.add_command(export)


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
@reviewer_option
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
        print_result(fields, shown(item), as_json)


@review.command()
@click.argument("item")
@click.argument("verdict", metavar="right|wrong|unclear")
@reviewer_option
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
@reviewer_option
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
@reviewer_option
@_wanted
@on_store
def start(store: Store, reviewer: str, wanted: Any, as_json: bool) -> None:
    """Mark items one after another: r right, w wrong, u unclear, b back, q quit."""
    from guard.watch import review as reviews

    with store.reading() as connection:
        item = reviews.next_item(connection, reviewer, wanted)
    while item is not None:
        keys = "[r]ight [w]rong [u]nclear [b]ack [q]uit"
        click.echo(f"\n{shown(item)}\n{keys} ", nl=False, err=True)
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
        correction = ask_bias() if missed else reviews.Correction()
        with store.writing() as connection:
            reviews.mark(connection, item.id, reviewer, _KEYS[key], correction)
            item = reviews.next_item(connection, reviewer, wanted)
    if item is None:
        click.echo(f"No {wanted} item is left.", err=True)
    _print_status(store, "7d", as_json)


@review.command()
@click.option(
    "--since", default="7d", show_default=True, metavar="TIME", help="Period of the rates."
)
@on_store
def status(store: Store, since: str, as_json: bool) -> None:
    """Show how much is marked, how often reviewers agree, and the rates."""
    _print_status(store, since, as_json)


def _print_status(store: Store, since: str, as_json: bool) -> None:
    from guard.watch import review as reviews
    from guard.watch.rates import span_s
    from guard.watch.review_rates import estimates
    from guard.watch.tables import interval_values, reviewed_values

    now = time.time()
    begin = now - span_s(since, "--since")
    with store.reading() as connection:
        progress = reviews.progress(connection)
        agreements = reviews.agreement(connection)
        rates = estimates(connection, begin, now)[()]
    values = {
        **progress._asdict(),
        "agreement": [
            {
                "first": a.first,
                "second": a.second,
                "segments": a.n,
                "agreed": interval_values(a.agreed),
                "kappa": interval_values(a.kappa),
            }
            for a in agreements
        ],
        "rates": reviewed_values(rates),
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
        f"{100 * a.value:.0f} % of {agreement.n:,} alike "
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
        click.echo(f"{row['id']}\t{clean(marks)}\t{clean(row['text'], ' ')}")
