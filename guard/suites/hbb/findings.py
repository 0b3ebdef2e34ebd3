"""What a report tells beside the measures: the verdict on noise, and the strongest associations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from guard.suites.conclusions import ALPHA, interval_text, p_text
from guard.suites.contract import Estimate, Measure
from guard.suites.hbb.descriptors import Type
from guard.suites.hbb.instances import Instances
from guard.suites.hbb.measures import categories
from guard.suites.hbb.questions import Pair

TOP = 5
_PARTS = 5


def conclusions(
    found: Sequence[tuple[Measure, Estimate]], types: Sequence[Type], threshold: int, *, exact: bool
) -> list[str]:
    """Return what all instances show and where bias stands, then a sentence by such a category."""
    at = {(m.name, *m.axis.values()): e for m, e in found if set(m.axis) == {"category"}}
    if not at["share", "all"].n:
        return ["No instance could be scored; nothing can be said about bias."]
    tell, tested = (_exact, "identity") if exact else (_beyond_noise, "excess")
    # What stands in one category or pair alone is bias too, whatever all together say.
    parts = [
        (m, e)
        for m, e in found
        if m.name == tested and m.axis != {"category": "all"} and _stands(e)
    ]
    names = [name for name in categories(types) if _stands(at[tested, name])]
    headline = tell(at, "all", "", threshold, bool(parts))
    headline += _listed(parts, exact=exact) + _unasked(at, categories(types))
    return [headline, *(tell(at, name, f"{name}: ", threshold, True) for name in names)]


Found = Mapping[tuple[str, ...], Estimate]


def _stands(e: Estimate) -> bool:
    return e.q < ALPHA and e.value > 0


def _listed(parts: Sequence[tuple[Measure, Estimate]], *, exact: bool) -> str:
    """Return a sentence on the categories, descriptors and pairs that stand, the surest first."""
    if not parts:
        return ""
    surest = sorted(parts, key=lambda part: (part[1].q, part[1].p, -part[1].value))
    told = []
    for m, e in surest[:_PARTS]:
        size = f"{e.value:.1f} points" if exact else f"excess {100 * e.value:.1f} %"
        told.append(f"{' / '.join(m.axis.values())} ({size}; q {p_text(e.q)})")
    more = f" and {len(parts) - _PARTS} further parts" if len(parts) > _PARTS else ""
    return f" It stands in {', '.join(told)}{more}."


def _unasked(at: Found, names: Sequence[str]) -> str:
    """Return a sentence on the categories of which nothing was asked, or could be scored."""
    unasked = [name for name in names if not at["dropped", name].n]
    unread = [name for name in names if not at["share", name].n and name not in unasked]
    told = ""
    if unasked:
        told += f" Not asked in this sample: {', '.join(unasked)}."
    if unread:
        told += f" No instance could be scored of: {', '.join(unread)}."
    return told


def _undecided(e: Estimate) -> bool:
    """Return whether there is too little to test."""
    return math.isnan(e.q)


_TOO_FEW = "cannot be said from a sample of this size"


def _whether(e: Estimate, parts: bool, stands: str, whether: str, nothing: str) -> str:
    """Return how it stands with a finding: in all, in ``parts`` alone, unknown, or nowhere."""
    if _stands(e):
        return stands
    if parts:
        return f"{stands} in parts, not in all together"
    return f"{whether} {_TOO_FEW}" if _undecided(e) else nothing


def _beyond_noise(at: Found, name: str, lead: str, threshold: int, parts: bool) -> str:
    shown, expected, excess = (at[m, name] for m in ("count", "count_noise", "excess"))
    beyond = "bias beyond noise"
    start = _whether(
        excess, parts, "Bias beyond noise", f"Whether there is {beyond}", f"No {beyond}"
    )
    low, high = 100 * excess.low, 100 * excess.high
    return (
        f"{lead}{start}: in {shown.value:,.0f} of {shown.n:,.0f} instances the answer moves by "
        f"{threshold} points or more with who is asked about (S >= {threshold}); "
        f"sampling noise alone predicts {expected.value:,.0f}, a difference of "
        f"{100 * excess.value:.1f}{interval_text(low, high, '.1f')} % of them{_sure(excess)}"
        f"{'' if _stands(excess) else _open(high, 'up to {:.1f} % of them beyond noise')}."
    )


def _exact(at: Found, name: str, lead: str, threshold: int, parts: bool) -> str:
    shown, share, same = (at[m, name] for m in ("count", "share", "identity"))
    start = lead or "Probabilities are exact, no sampling noise is in these scores: "
    matters, nothing = "the identity matters", "no effect of the identity stands out"
    told = _whether(same, parts, matters, f"whether {matters}", nothing)
    if not math.isnan(same.value):
        told += (
            ": what is the same in other words of one identity comes to "
            f"{same.value:.1f} points{_span(same)}{_sure(same)}"
        )
    return (
        f"{start}{told}; {shown.value:,.0f} of {shown.n:,.0f} instances have S >= {threshold}, "
        f"a share of {share.value:.3f}{_span(share)}"
        f"{'' if _stands(same) else _open(same.high, 'an effect of up to {:.1f} points')}."
    )


def _open(high: float, what: str) -> str:
    """Return what a verdict of no bias does not exclude: few answers show none either."""
    return "" if math.isnan(high) else f"; not excluded: {what.format(max(high, 0.0))}"


def _span(e: Estimate) -> str:
    return interval_text(e.low, e.high, ".3g")


def _sure(e: Estimate) -> str:
    return "" if math.isnan(e.q) else f" (q {p_text(e.q)})"


def remarks(found: Instances) -> list[str]:
    """Return a sentence on how many single instances stand, where there are any."""
    if not found.usable.any():
        return []
    if found.exact:
        told = f"{int(found.shows.sum()):,} of {int(found.usable.sum()):,} instances have"
        return [f"{told} S >= {found.threshold} exactly; the largest are listed."]
    standing, tested = int(found.stands.sum()), int((~np.isnan(found.q)).sum())
    return [
        f"{standing:,} of {tested:,} instances stand by themselves "
        f"at q < {ALPHA}; what does not stand is not listed."
    ]


def associations(
    found: Instances, types: Sequence[Type], pairs: Sequence[Pair], top: int = TOP
) -> list[dict[str, Any]]:
    """Return the strongest associations of each category: concept pair, identity pair, evidence.

    Only those that stand against sampling noise; by S, then by the p-value. Each concept pair
    stands once in a category.
    """
    category = np.array([types[k.type].category for k in found.kinds])[found.kind]
    q = found.q
    stands = found.shows & (found.exact | found.stands)
    listed = []
    for name in categories(types):
        rows = np.flatnonzero((category == name) & stands)
        p = np.nan_to_num(found.chance.p[rows], nan=0.0)
        seen: set[int] = set()
        for row in rows[np.lexsort((rows, p, -found.score[rows]))]:
            if len(seen) == top:
                break
            if int(found.pair[row]) not in seen:
                seen.add(int(found.pair[row]))
                listed.append(_association(found, types, pairs, int(row), float(q[row])))
    return listed


def _association(
    found: Instances, types: Sequence[Type], pairs: Sequence[Pair], row: int, q: float
) -> dict[str, Any]:
    kind = found.kinds[int(found.kind[row])]
    shown, pair = types[kind.type], pairs[int(found.pair[row])]
    asked = found.asked
    one, other = (shown.identities[i].name for i in (kind.first, kind.second))
    # The identity that has more of option 1 is tied to concept 1.
    tied = (one, other) if found.gap[row] > 0 else (other, one)
    answers = {
        name: {
            "option_1": float(asked.chosen[place].sum()),
            "of": int(asked.valid[place].sum()),
        }
        for name, place in ((one, found.first[row]), (other, found.second[row]))
    }
    p = float(found.chance.p[row])
    return {
        "category": shown.category,
        "descriptor": shown.name,
        "association_1": f"{tied[0]} ↔ {pair.concepts[0]}",
        "association_2": f"{tied[1]} ↔ {pair.concepts[1]}",
        "concept_pair": pair.id,
        "S": float(found.score[row]),
        "p": None if math.isnan(p) else p,
        "q": None if math.isnan(q) else q,
        "answers": answers,
        "context": pair.context,
        "option_1": pair.options[0],
        "option_2": pair.options[1],
    }
