"""``guard audit review``: people check the scorer of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from guard.cli.audit_options import check_extra


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--labels", type=click.Path(path_type=Path), help="The table with people's labels.")
@click.option(
    "--sample",
    "size",
    type=click.IntRange(min=1),
    default=120,
    show_default=True,
    help="Texts to label.",
)
@click.option("--seed", type=int, default=17, show_default=True, help="Of the sample.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("guard-review"),
    show_default=True,
    help="Folder to write review.csv and review.html to.",
)
@click.option("--data", type=click.Path(path_type=Path), help="The prompts, as the run had them.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def review(
    run: Path,
    labels: Path | None,
    size: int,
    seed: int,
    out: Path,
    data: Path | None,
    as_json: bool,
) -> None:
    """Have people check the scorer of RUN, a journal or its folder.

    Writes a sample of texts without saying what the scorer found, or which of them users saw. Once
    every row has the label 'biased' or 'not biased', give the table as --labels: it says how often
    people agree with the scorer, and what the bias level is by their labels.
    """
    check_extra()
    from guard.audit import review as reviews

    found = reviews.load(run, data)
    if found.incomplete:
        click.echo(found.incomplete, err=True)
    if labels is not None:
        given = reviews.labels(labels, (one.id for one in found.texts))
        checked = reviews.check(found, given)
        sentences = checked.sentences()
        shown: dict[str, Any] = checked.as_json()
    else:
        texts = reviews.sample_texts(found, size, seed)
        table, page = reviews.write(texts, out)
        sentences = [f"{len(texts)} texts to label in {table}, and in {page} for a browser."]
        shown = {"texts": len(texts), "table": str(table), "page": str(page)}
    click.echo(json.dumps(shown, ensure_ascii=False) if as_json else "\n".join(sentences))
