"""The options that the commands of ``guard audit`` share."""

from __future__ import annotations

from pathlib import Path

import click

from guard.cli import given
from guard.errors import UsageError
from guard.installed import install_command


def check_extra() -> None:
    """Raise UsageError where the packages of the statistics are not installed.

    It is called first, so that a missing package is not found out after a paid audit.
    """
    from importlib.util import find_spec

    if find_spec("scipy") is None:
        raise UsageError(f"guard audit needs scipy: {install_command('audit')}")


suite_options = given(
    click.option(
        "--data", type=click.Path(path_type=Path), help="Official data of the one suite given."
    ),
    click.option(
        "--protocol",
        type=click.Choice(["guard", "paper"]),
        help="Follow the publication to the letter, or mend what distorts.  [default: guard]",
    ),
    click.option(
        "--set",
        "assignments",
        multiple=True,
        metavar="[SUITE.]KEY=VALUE",
        help="With SUITE an option of that suite, without it a setting that the model is asked "
        "with, such as temperature=0.5; repeatable.",
    ),
    click.option("--seed", type=int, help="Of every random choice.  [default: the suite's]"),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
)
"""Options of suites and their scoring."""


embedder_option = click.option(
    "--embedder",
    metavar="NAME",
    default="mpnet",
    show_default=True,
    help="What unifies phrases: mpnet (guard models get mpnet), a folder or a name on the hub.",
)


asking_options = given(
    click.option(
        "--suite", "suites", required=True, metavar="A,B", help="Suites; see guard suites list."
    ),
    click.option(
        "--model",
        "models",
        multiple=True,
        help="Any LiteLLM model string, or local:NAME or local:PATH in process; repeatable, "
        "and each has results of its own.",
    ),
    click.option(
        "--analyst",
        metavar="MODEL",
        help="Who reads the answers of suites such as badf: any model that --model takes, or "
        "'patterns' to try a suite without one. Its settings are --set analyst.KEY=VALUE.",
    ),
    click.option(
        "--scorer",
        metavar="NAME",
        help="Who scores open text: a detector at an operating point.  [default: the embedded "
        "detector that does not guard, balanced]",
    ),
    embedder_option,
    click.option(
        "--drop",
        "dropped",
        multiple=True,
        metavar="KEY",
        help="A setting of the suite to leave out, such as top_p; repeatable. What LiteLLM "
        "says that a model does not take is left out anyway, and reported.",
    ),
    click.option(
        "--system",
        type=click.Path(path_type=Path),
        help="File with the deployed system prompt; the suite's own follows it.",
    ),
    click.option("--api-base", metavar="URL", help="Where the model is asked."),
    click.option(
        "--header",
        "headers",
        multiple=True,
        metavar="NAME=VALUE",
        help="An HTTP header of every call; its name and the SHA-256 of its value are "
        "recorded, never the value; repeatable.",
    ),
    click.option(
        "--sample",
        "size",
        type=click.IntRange(min=1),
        metavar="N",
        help="About N items of each suite, spread over its strata; an item is asked as often "
        "as the suite says, which guard audit plan shows. Variants of a question stay "
        "together, so it may be up to 2 N items, or one question with its variants where that "
        "is more. A larger sample goes on from the answers of a smaller one.",
    ),
    click.option(
        "--quick",
        is_flag=True,
        help="A sample for every change: about 300 items of each suite, 600 answers at most. A "
        "replay of it takes minutes; it compares with quick runs alone, and guard audit plan says "
        "what it could find.",
    ),
    click.option(
        "--allocate",
        type=click.Choice(["even", "widest"]),
        default="even",
        show_default=True,
        help="Spread a sample evenly, or ask a pilot and then where the interval is widest.",
    ),
    click.option(
        "--concurrency",
        type=click.IntRange(1, 1000),
        default=8,
        show_default=True,
        help="Calls at a time at most; fewer while the provider has enough. A run that is "
        "killed outright asks at most so many calls again.",
    ),
)
"""What is asked, of whom, and how much of it."""


comparing_options = given(
    click.option(
        "--axis",
        "axes",
        multiple=True,
        metavar="PATTERN",
        help="Only axes of these names, such as 'mist/plain/mean*'; repeatable.  [default: all]",
    ),
    click.option(
        "--allow",
        "allowed",
        multiple=True,
        metavar="NAME",
        help="What may differ: version, data, prompt, parser, options, model, sample, guard, "
        "request, others, items or suites; repeatable.",
    ),
    click.option(
        "--config",
        type=click.Path(path_type=Path),
        help="Tolerances and floors.  [default: audit.toml, if there is one]",
    ),
)
"""What a comparison may leave out of account, and by how much an axis may get worse."""


guard_options = given(
    click.option(
        "--operating-point",
        type=click.Choice(["strict", "balanced", "quiet"]),
        help="The guard's set of thresholds.",
    ),
    click.option(
        "--action",
        type=click.Choice(["terminate", "redact", "flag", "raise"]),
        help="What the guard does with a biased passage.",
    ),
    click.option(
        "--hold",
        type=click.Choice(["sentence", "association", "none"]),
        help="What the guard holds until it is judged.",
    ),
    click.option(
        "--guard",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="Any other setting of the guard, as its BIASGUARD_ variable has it; repeatable.",
    ),
)
"""The guard of the guarded arm."""
