"""``guard demo``: guarded streams on screen, through LiteLLM's real streaming path."""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from guard.cli import detector_option, print_json
from guard.errors import GuardError

if TYPE_CHECKING:
    from rich.console import Console

    from guard.core import Guard
    from guard.verdict import GuardTrail


class Scene(NamedTuple):
    """A prompt, and the scripted provider's answer to it."""

    prompt: str
    answer: str


SCENES = (
    Scene(
        "How do I keep basil alive on a windowsill?",
        "Give it at least six hours of light a day and water it when the top of the soil feels "
        "dry. Pinch off the flowers, and turn the pot now and then so that it grows evenly.",
    ),
    Scene(
        "We have two applicants, 29 and 61. Any advice?",
        "Start from the tasks of the post and ask both the same questions. Honestly, old people "
        "are useless at work and too slow to learn anything new. So I would take the younger one.",
    ),
    Scene(
        "What should I know before visiting Istanbul during Ramadan?",
        "Many Muslims fast from dawn to sunset, so some cafés are quiet at noon and lively at "
        "night. Visitors are welcome at most mosques outside prayer times.",
    ),
    Scene(
        "Write a short speech for my sister's graduation as an engineer.",
        "Dear all, thank you for coming. Women are too emotional to be good engineers, but she "
        "got lucky. Let us raise a glass to her.",
    ),
    Scene(
        "Summarise the exam report of our school in two sentences.",
        "Women and men sat the same exam this year and passed at the same rate. The full report "
        "is on the school's website.",
    ),
)


@click.command()
@click.argument("prompts", nargs=-1)
@click.option("--model", help="Any LiteLLM model; by default the answers are scripted.")
@click.option("--local", is_flag=True, help="Use SmolLM2-135M-Instruct on this machine.")
@click.option(
    "--action",
    type=click.Choice(["terminate", "redact", "flag"]),
    default="terminate",
    show_default=True,
    help="What to do with a biased passage.",
)
@detector_option
@click.option("--max-tokens", default=120, show_default=True, type=click.IntRange(1, 4096))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and no stream.")
def demo(
    prompts: tuple[str, ...],
    model: str | None,
    local: bool,
    action: str,
    detector: str | None,
    max_tokens: int,
    as_json: bool,
) -> None:
    """Ask PROMPTS (or five prepared ones) and guard the answers while they stream."""
    if local and model:
        raise click.UsageError("Use --model or --local, not both.")
    if prompts and not (model or local):
        raise click.UsageError(
            "There are scripted answers for the prepared prompts only; use --model or --local for "
            "your own prompts."
        )
    if model and model.startswith("local:"):
        raise click.UsageError("Use --local for a local model, without --model.")
    if any(not prompt.strip() for prompt in prompts):
        raise click.UsageError("A prompt is empty; pass text to answer.")
    # The demo shows no prices, so LiteLLM need not fetch its price map.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

    from rich.console import Console

    console = Console(highlight=False, quiet=as_json)
    with console.status("loading LiteLLM and the detector …"):
        import litellm

        from guard.audit.models import check_model
        from guard.core import Guard

        litellm.suppress_debug_info = True
        if model:
            check_model(model)
        logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)
        guard = Guard(action=action, detector=detector, events="none")
        if local:
            from guard.local import provider

            provider.load_model("smollm2")  # raises an error now if something is missing
            provider.register_provider()
            model = provider.SMOLLM2
    if model is None:
        console.print(
            "[bold]Scripted provider[/]: no model was named, so the answers below were written "
            "for this demo.\nLiteLLM streams them in small chunks; the guard judges them live. "
            "Try [bold]--model[/] NAME or [bold]--local[/].\n"
        )
    scenes = [Scene(p, "") for p in prompts] or list(SCENES)
    streams = []
    for scene in scenes:
        call: dict[str, Any] = {"messages": [{"role": "user", "content": scene.prompt}]}
        if model is None:
            call |= {"model": "openai/scripted", "mock_response": scene.answer}
        else:
            call |= {"model": model, "max_tokens": max_tokens}
        streams.append(_play(console, guard, scene, call, slowly=model is None))
    cut = sum(bool(s["findings"]) for s in streams)
    unchecked = sum(s["stopped"] and not s["findings"] for s in streams)
    verb = {"terminate": "cut", "redact": "redacted", "flag": "flagged"}[action]
    counts = [f"{cut} {verb}"]
    if unchecked:
        counts.append(f"{unchecked} stopped as they could not be checked")
    counts.append(f"{len(streams) - cut - unchecked} passed whole")
    console.print(f"[bold]{len(streams)} streams[/]: {', '.join(counts)}.")
    if as_json:
        print_json({"scripted": model is None, "streams": streams})


def _play(
    console: Console, guard: Guard, scene: Scene, call: dict[str, Any], *, slowly: bool
) -> dict[str, Any]:
    from rich.text import Text

    from guard.cli.evidence import show_verdict

    console.print(Text("› " + scene.prompt, "bold cyan"))
    shown: list[str] = []
    pace = 0.012 if slowly and console.is_terminal and not console.quiet else 0.0
    try:
        stream = guard.completion(stream=True, **call)
        for chunk in stream:
            text = (chunk.choices[0].delta.content or "") if chunk.choices else ""
            if not text:
                continue
            shown.append(text)
            stopped = chunk.choices[0].finish_reason == "content_filter"
            console.print(Text(text, "bold red" if stopped else ""), end="", soft_wrap=True)
            time.sleep(pace)
    except GuardError:
        raise
    except Exception as error:  # any error of the provider's client
        first = (str(error).strip().splitlines() or [""])[0]
        raise GuardError(
            f"{call['model']} gave no answer: {type(error).__name__}: {first}"
        ) from None
    console.print()
    trail: GuardTrail = stream.guard
    for finding in trail.findings:
        # A passage of a scripted answer is shown; a model's withheld text is not.
        passage = scene.answer[slice(*finding.span)].strip()
        show_verdict(console, passage, finding.verdict)
    console.print()
    return {
        "prompt": scene.prompt,
        "shown": "".join(shown),
        "stopped": trail.stopped,
        "findings": [d.verdict.judgement for d in trail.findings],
    }
