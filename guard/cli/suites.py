"""``guard suites``: the published bias suites that an audit can run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from guard.cli import Number, json_option, stdout_kept
from guard.cli.audit_options import NO_SECONDS, PATH
from guard.errors import UsageError
from guard.exit_codes import ExitCode

if TYPE_CHECKING:
    from guard.suites.hbb.build import Ask, Built, Source

_ATTEMPTS = 4


@click.group()
def suites() -> None:
    """List the bias suites, and build data for them."""


@suites.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the suites: title, paper, size, what they need of a model, options."""
    from guard.suites import AsksOtherModels, registry
    from guard.suites.optional import part_of

    found: list[dict[str, Any]] = []
    for name in registry.names():
        suite = registry.make(name, {})
        items = list(suite.items())
        found.append(
            {
                "name": name,
                "title": suite.about.title,
                "paper": suite.about.paper,
                "version": suite.version,
                "items": len(items),
                "samples": sum(item.samples for item in items),
                "needs": sorted(suite.needs),
                "roles": sorted(part_of(suite, AsksOtherModels).roles),
                "options": list(suite.options_type.model_fields),
            }
        )
    if as_json:
        click.echo(json.dumps({"suites": found}, ensure_ascii=False))
        return
    for row in found:
        others = f"; also asks {', '.join(row['roles'])}" if row["roles"] else ""
        asked = f"{row['items']:,} items, {row['samples']:,} samples"
        click.echo(f"{row['name']:10} {row['version']:5} {row['title']} ({row['paper']})")
        click.echo(f"{'':16} {asked}; needs {', '.join(row['needs'])}{others}")
        click.echo(f"{'':16} options: {', '.join(row['options'])}")


@suites.command()
@click.argument("name", metavar="SUITE", type=click.Choice(["hbb"]))
@click.option(
    "--from",
    "source",
    required=True,
    type=PATH,
    help="Biased sentences: a CSV, JSON lines, or text with one stereotype per line.",
)
@click.option("--model", help="Any LiteLLM model string, or local:NAME or local:PATH.")
@click.option(
    "--out", required=True, type=PATH, help="Folder of the pack; name it "
    "again to resume, and with guard audit run --data to run it."
)  # fmt: skip
@click.option(
    "--replay", is_flag=True, help="Use only the answers recorded in --out; make no calls."
)
@click.option("--concurrency", type=click.IntRange(1, 100), default=4, show_default=True)
@click.option("--timeout", "timeout_s", type=Number(0.1, wrong=NO_SECONDS), default=120.0)
@json_option
def build(name: str, source: Path, out: Path, as_json: bool, **options: Any) -> None:
    """Build concept pairs of SUITE from biased sentences, with a model.

    A pair that does not pass the linter of the shipped pack is left out, with the reason. Every
    answer is on disk before the next call: run the same command again to resume. Review the result
    before you use it. Exit code 4 means that some requests have no answer.
    """
    import asyncio

    from guard.suites.hbb import build as building

    if (options["model"] is None) != options["replay"]:
        raise UsageError("Use --model, or --replay for recorded answers only.")
    found = building.sources(source)
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is not a folder; name one for the pack.")
    with stdout_kept():
        built = asyncio.run(_build(found, out, **options))
    summary = {
        "pairs": len(built.items),
        "rejected": built.rejected,
        "failed": built.failed,
        "calls": built.calls,
        "folder": str(out),
    }
    if as_json:
        click.echo(json.dumps(summary, ensure_ascii=False))
    else:
        click.echo(
            f"{len(built.items)} concept pairs in {out} from {len(found)} sources; "
            f"{len(built.rejected)} rejected (see rejected.jsonl), {len(built.failed)} without an "
            f"answer, {built.calls} calls."
        )
        for key, why in built.failed.items():
            click.echo(f"{key}: {why}", err=True)
    if built.failed:
        raise click.exceptions.Exit(ExitCode.INCOMPLETE)


async def _build(
    found: list[Source],
    out: Path,
    *,
    model: str | None,
    replay: bool,
    concurrency: int,
    timeout_s: float,
) -> Built:
    from rich.console import Console
    from rich.progress import Progress

    from guard.audit.others import open_model
    from guard.suites.hbb import build as building

    console = Console(stderr=True)
    opened = None if model is None else open_model(model, timeout_s=timeout_s)
    try:
        ask = None if opened is None else _asking(opened)
        with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
            task = bar.add_task("concept pairs", total=len(found))
            return await building.build(
                found, ask, out, concurrency=concurrency, done=lambda _: bar.advance(task)
            )
    finally:
        if opened is not None:
            await opened.aclose()


def _asking(model: Any) -> Ask:
    """Return the function that asks ``model``, with retries."""
    import asyncio

    from guard.audit.calls import Slot
    from guard.audit.models import CallError
    from guard.suites import Chat

    async def once(prompt: str, attempt: int) -> str | None:
        request = Chat(({"role": "user", "content": prompt},))
        try:
            return str((await model.ask(request, "", Slot("build", 0, 0))).answer.text)
        except CallError as error:
            if error.fatal:
                raise UsageError(str(error)) from error
            if not error.retryable or attempt == _ATTEMPTS:
                raise
            await asyncio.sleep(max(error.retry_after_s, 0.5 * 2**attempt))
            return None

    async def ask(prompt: str) -> str:
        attempt, answer = 0, None
        while answer is None:
            attempt += 1
            answer = await once(prompt, attempt)
        return answer

    return ask
