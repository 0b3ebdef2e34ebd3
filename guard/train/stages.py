"""How the card tells of the stages of training."""

from __future__ import annotations

from typing import Any


def begins_with(run: dict[str, Any], number: int) -> int:
    """Return the number (from 1; 0: the base) of the stage that stage ``number`` began with.

    A stage behind a mean says it; any other began with the one before it.
    """
    return int(run.get("begins", number - 1))


def stages(runs: list[dict[str, Any]]) -> str:
    """Return the table of ``runs``: the settings of every stage, the last one's weights ship."""
    lines = [
        "| stage | begins with | learns | left out | steps x rows | epochs "
        "| learning rate (heads) | weight of distillation | seed | drawn most an epoch |",
        "| --- |" + " --- |" * 9,
    ]
    for number, run in enumerate(runs, 1):
        begun = run.get("embedder") and run.get("begin", "embedder") == "embedder"
        base = "the embedder" if begun else "the base"
        if "averaged" in run:
            means = _named(run, run["averaged"])
            lines.append(f"| {number} | the mean of the weights of {means} |" + " |" * 8)
            continue
        lines.append(
            f"| {number} | {_named(run, [begins_with(run, number)]) or base} | {_learns(run)} "
            f"| {left_out(run)} | {run['steps']:,} x {run['batch_size']} "
            f"| {run['epochs']:g} | {run['lr']:g} ({run['head_lr']:g}) "
            f"| {run.get('distill', 6.0):g} | {run['seed']} | {_drawn(run['quotas'])} |"
        )
    last = runs[-1]
    return (
        f"AdamW, weight decay {last['weight_decay']:g}, linear warm-up "
        f"over {last['warmup']:.0%} of a stage's steps and linear decay, dropout "
        f"{last['dropout']:g}, {'bfloat16' if last['bf16'] else 'float32'} on "
        "CPU. Stages begin with the weights of others (`guard train encoder --start`), means are "
        "those of `guard train average`; `figures.json` keeps the settings of every stage, the "
        "rows for `--quotas`.\n\n" + "\n".join(lines)
    )


_METHODS = {
    "full": "every weight",
    "lora": "adapters and heads",
    "frozen": "the heads alone",
    "fusion": "what the references change",
}


def _learns(run: dict[str, Any]) -> str:
    verdict = run.get("learn") == "verdict"
    said = _METHODS[run["method"]] + (", the pass from the verdict" if verdict else "")
    if "taught_by" in run:
        said += f", taught by {_named(run, run['taught_by'])}"
    return said


def _named(run: dict[str, Any], numbers: list[int]) -> str:
    """Name other stages; those whose weights came back from the 8-bit integers of a release too."""
    restored = run.get("as_shipped", [])
    return ", ".join(f"{n} as shipped" if n in restored else str(n) for n in numbers if n)


def left_out(run: dict[str, Any]) -> str:
    """Name the parts of the recipe that a stage did without."""
    said = {
        "cuts": run.get("whole", False),
        "references": run["references"] == "none",
        "order of pairs": not run["contrast"],
        "bags": not run.get("bags", True) and not run.get("whole", False),
        "context": not run.get("context", True),
        "foreign context": run.get("context", True) and not run.get("foreign", 0.25),
    }
    return ", ".join(name for name, out in said.items() if out)


def _drawn(quotas: dict[str, int]) -> str:
    most = sorted(quotas.items(), key=lambda item: -item[1])[:4]
    return ", ".join(f"{name} {count:,}" for name, count in most)
