"""What to do next after a comparison: what to look at, and what a decision would cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from guard.audit.comparison import AxisComparison
from guard.audit.sides import Side, SuiteSide

_FEW = 3
_GOING_ON = {
    "": "The command that made it goes on where it stopped.",
    "inspect": "inspect eval-retry goes on with it.",
    "lm-eval": "Run lm_eval again.",
}


def steps(axes: Sequence[AxisComparison], base: Side, new: Side) -> Iterator[str]:
    """Yield sentences: how to finish a run, which items got worse, how many more would decide."""
    for side in (base, new):
        if side.missing:
            yield (
                f"{side.name} is incomplete: {side.missing:,} samples have no outcome. "
                f"{_GOING_ON[next(iter(side.suites.values())).harness]}"
            )
    suites_named: set[str] = set()
    failed = [one for one in axes if one.verdict == "regression"]
    for axis in sorted(failed, key=lambda one: (not one.decides, one.q)):
        worse = [flip for flip in axis.flips if flip.moves > 0]
        if worse and axis.suite not in suites_named:
            suites_named.add(axis.suite)
            few = ", ".join(_flip(flip.item, flip.base, flip.new) for flip in worse[:_FEW])
            yield f"Look first at what got worse in {axis.name}: {few}."
    for name, one in new.suites.items():
        open_ = [
            axis
            for axis in axes
            if axis.suite == name and axis.verdict == "inconclusive" and axis.decides
        ]
        if open_ and name in base.suites:
            yield from _undecided(name, one, open_)


def _flip(item: str, base: str, new: str) -> str:
    return f"{item} ({base or 'nothing'} → {new or 'nothing'})" if base or new else item


def _undecided(name: str, one: SuiteSide, axes: Sequence[AxisComparison]) -> Iterator[str]:
    decidable = [axis for axis in axes if axis.more_items]
    for axis in axes:
        if axis not in decidable:
            yield f"{axis.name} is not decided: {axis.reason}."
    if not decidable:
        return
    more = max(axis.more_items or 0 for axis in decidable)
    which = decidable[0].name if len(decidable) == 1 else f"{len(decidable)} axes of {name}"
    if one.items + more <= one.available:
        yield (
            f"About {more:,} more items on each side would decide {which}{_cost(one, more)}: "
            f"{'--limit' if one.harness else '--sample'} {one.items + more}."
        )
        return
    least = max(axis.at_most for axis in decidable)
    yield (
        f"No sample of {name} is likely to decide {which}: it would take about "
        f"{one.items + more:,} items of the {one.available:,} there are. With the {one.items:,} "
        f"asked a tolerance of {least:.2g} in audit.toml would."
    )


def _cost(one: SuiteSide, more: int) -> str:
    """Return the cost of ``more`` items on one side, at the average cost of those asked."""
    if not one.items or one.harness:
        return ""  # a log of another harness has no costs
    spent = one.spent.get("cost_usd")
    if spent is None:
        from guard.audit.remote_model import cost_of  # imports LiteLLM, for seconds

        prompt_tokens, completion_tokens = (
            one.spent.get(f"{kind}_tokens", 0) for kind in ("prompt", "completion")
        )
        cost_per_item = cost_of(
            one.header.model, prompt_tokens / one.items, completion_tokens / one.items
        )
    else:
        cost_per_item = spent / one.items
    if math.isnan(cost_per_item):
        return f" (LiteLLM has no price of {one.header.model})"
    return f" (about ${more * cost_per_item:,.2f} a side)"
