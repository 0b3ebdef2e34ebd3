"""``guard audit review``: people check the scorer of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from guard.cli import json_option, print_result
from guard.cli.audit_options import PATH, check_extra


@click.command()
@click.argument("run", type=PATH)
@click.option("--labels", type=PATH, help="The table with people's labels.")
@click.option(
    "--sample",
    "size",
    type=click.IntRange(min=1),
    default=120,
    show_default=True,
    help="Texts to label.",
)
@click.option("--seed", type=int, default=17, show_default=True, help="Seed of the sample.")
@click.option(
    "--out",
    type=PATH,
    default=Path("guard-review"),
    show_default=True,
    help="Folder to write review.csv and review.html to.",
)
@click.option("--data", type=PATH, help="The prompts of the run.")
@json_option
def review(
    run: Path,
    labels: Path | None,
    size: int,
    seed: int,
    out: Path,
    data: Path | None,
    as_json: bool,
) -> None:
    """Have people check the scorer of RUN, a run.db or its folder.

    Writes a sample of texts that shows neither the scorer's verdicts nor which texts users saw.
    Label every row 'biased' or 'not biased', then give the table as --labels to get the agreement
    with the scorer and the bias level by the labels.
    """
    check_extra()
    from guard.audit import review as reviews

    scored_run = reviews.load_run(run, data)
    if scored_run.incomplete:
        click.echo(scored_run.incomplete, err=True)
    if labels is not None:
        verdicts = reviews.read_labels(labels, (text.id for text in scored_run.texts))
        checked = reviews.check_labels(scored_run, verdicts)
        sentences = checked.sentences()
        shown: dict[str, Any] = checked.as_json()
    else:
        texts = reviews.sample_texts(scored_run, size, seed)
        table, page = reviews.write_sample(texts, out)
        sentences = [f"{len(texts)} texts to label in {table}, and in {page} for a browser."]
        shown = {"texts": len(texts), "table": str(table), "page": str(page)}
    print_result(shown, "\n".join(sentences), as_json)
