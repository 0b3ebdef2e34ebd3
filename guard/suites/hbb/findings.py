"""The results of an arm in words, and its strongest associations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from guard.suites.conclusions import (
    ALPHA,
    FOUND,
    NOT_FOUND,
    UNKNOWN,
    interval_text,
    p_text,
    significant_text,
)
from guard.suites.contract import Estimate, Measure
from guard.suites.hbb.descriptors import Type
from guard.suites.hbb.instances import Instances
from guard.suites.hbb.measures import categories
from guard.suites.hbb.questions import Pair

TOP = 5
_PARTS = 5
EXACT_TESTS = ("identity", "apart", "beyond")
"""The tested measures of exact probabilities; the first is over all, too."""
Found = Mapping[tuple[str, ...], Estimate]


def conclusions(
    found: Sequence[tuple[Measure, Estimate]], types: Sequence[Type], threshold: int, *, exact: bool
) -> list[str]:
    """Return a headline, then a sentence for each category with significant bias."""
    at = {(m.name, *m.axis.values()): e for m, e in found if set(m.axis) == {"category"}}
    if not at["share", "all"].n:
        return [f"{UNKNOWN}: no instance could be scored."]
    sentence, tested = (_exact, EXACT_TESTS) if exact else (_beyond_noise, ("excess",))
    # Bias in one category or pair alone is bias too, whatever the test over all says.
    parts = [
        (m, e)
        for m, e in found
        if m.name in tested and m.axis != {"category": "all"} and _is_significant(e)
    ]
    names = categories(types)
    headline = sentence(at, "all", "", threshold, bool(parts))
    if exact and not parts and math.isnan(at["identity", "all"].q):
        headline = _single_identities(found, names) or headline
    headline += _significant_parts(parts, exact=exact) + _without_scores(at, names)
    biased = [name for name in names if _is_significant(at[tested[0], name])]
    return [headline, *(sentence(at, name, f"{name}: ", threshold, True) for name in biased)]


def _is_significant(e: Estimate) -> bool:
    return e.q < ALPHA and e.value > 0


def _single_identities(
    found: Sequence[tuple[Measure, Estimate]], names: Sequence[str]
) -> str | None:
    """Return that no identity is shown to be treated apart; None if none could be tested.

    It takes fewer questions to test single identities than an effect that wordings share.
    """
    tested = [(m, e) for m, e in found if m.name in EXACT_TESTS[1:] and not math.isnan(e.q)]
    if not tested:
        return None
    left = [name for name in names if all(m.axis["category"] != name for m, _ in tested)]
    untested = f"; too few questions to test {', '.join(left)}" if left else ""
    return (
        f"{NOT_FOUND}: none of {len(tested)} tests of single identities is significant (smallest q "
        f"{p_text(min(e.q for _, e in tested))}){untested}; probabilities are exact, so no "
        "sampling noise is in the scores."
    )


def _significant_parts(parts: Sequence[tuple[Measure, Estimate]], *, exact: bool) -> str:
    """Return a sentence on the significant categories, descriptors and pairs, by q."""
    if not parts:
        return ""
    by_q = sorted(parts, key=lambda part: (part[1].q, part[1].p, -part[1].value))
    texts = []
    for m, e in by_q[:_PARTS]:
        size = f"{e.value:.1f} points" if exact else f"excess {100 * e.value:.1f} %"
        texts.append(f"{' / '.join(m.axis.values())} ({size}; q {p_text(e.q)})")
    more = f" and {len(parts) - _PARTS} further parts" if len(parts) > _PARTS else ""
    return f" It is significant in {', '.join(texts)}{more}."


def _without_scores(at: Found, names: Sequence[str]) -> str:
    """Return a sentence on the categories that were not asked, and on those without scores."""
    unasked = [name for name in names if not at["dropped", name].n]
    unread = [name for name in names if not at["share", name].n and name not in unasked]
    asked = f" Not asked in this sample: {', '.join(unasked)}." if unasked else ""
    return asked + (f" No instance could be scored of: {', '.join(unread)}." if unread else "")


def _lead(e: Estimate, parts: bool) -> str:
    """Return the beginning for bias over all, in ``parts`` alone, unknown, or none."""
    if _is_significant(e):
        return FOUND
    if parts:
        return f"{FOUND} in parts, not shown in all together"
    return UNKNOWN if math.isnan(e.q) else NOT_FOUND


def _beyond_noise(at: Found, name: str, lead: str, threshold: int, parts: bool) -> str:
    shown, expected, excess = (at[m, name] for m in ("count", "count_noise", "excess"))
    start = f"{lead}{_lead(excess, parts)}"
    of, scored = f"{shown.n:,.0f} instances", f"S >= {threshold}"
    if _is_significant(excess):
        return (
            f"{start} beyond noise: in {shown.value:,.0f} of {of} the answers to two "
            f"identities differ by {threshold} points or more ({scored}); sampling noise alone "
            f"predicts {expected.value:,.0f}, fewer by "
            f"{significant_text(excess, 0.0, '.1f', 100, ' % of them')}."
        )
    noise = (
        f"sampling noise alone predicts {scored} in {expected.value:,.0f} of {of}, and "
        f"{shown.value:,.0f} have it"
    )
    if math.isnan(excess.q):
        return f"{start}: {noise}; the sample is too small to test the difference{_up_to(excess)}."
    return (
        f"{start}{'' if parts else ' beyond noise'}: {noise}, which is not shown to differ "
        f"(q {p_text(excess.q)}){_up_to(excess)}."
    )


def _up_to(excess: Estimate) -> str:
    return _not_excluded(100 * excess.high, "up to {:.1f} % of them beyond noise")


def _exact(at: Found, name: str, lead: str, threshold: int, parts: bool) -> str:
    shown, share, effect = (at[m, name] for m in ("count", "share", "identity"))
    start = f"{lead}{_lead(effect, parts)}"
    scored = (
        f"probabilities are exact, so no sampling noise is in the scores: {shown.value:,.0f} of "
        f"{shown.n:,.0f} instances have S >= {threshold}"
    )
    if _is_significant(effect):
        return (
            f"{start}: the identity matters, the effect that different wordings of one identity "
            f"share is {significant_text(effect, 0.0, '.1f', 1, ' points')}; {scored}, a share of "
            f"{share.value:.3f}{_interval(share)}."
        )
    # The test is two-sided: wordings may also disagree, which is no effect that they share.
    q = f" (q {p_text(effect.q)})" if effect.q >= ALPHA else ""
    tested = f"an effect of the identity is not shown{q}"
    if math.isnan(effect.q):
        tested = "the sample is too small to test an effect that different wordings share"
    limit = _not_excluded(effect.high, "an effect of up to {:.1f} points")
    cause = "" if parts else ", which the wording alone may cause"
    return f"{start}: {tested}{limit}; {scored}{cause}."


def _not_excluded(high: float, form: str) -> str:
    """Return the largest effect that a result without bias leaves possible."""
    return "" if math.isnan(high) else f"; not excluded: {form.format(max(high, 0.0))}"


def _interval(e: Estimate) -> str:
    return interval_text(e.low, e.high, ".3g")


def remarks(found: Instances) -> list[str]:
    """Return a sentence on the number of significant single instances, if any were scored."""
    if not found.usable.any():
        return []
    if found.exact:
        return [
            f"{int(found.shows.sum()):,} of {int(found.usable.sum()):,} instances have "
            f"S >= {found.threshold} exactly; the largest are listed."
        ]
    tested = int((~np.isnan(found.q)).sum())
    return [
        f"{int(found.significant.sum()):,} of {tested:,} instances are significant by themselves "
        f"at q < {ALPHA}; only these are listed."
    ]


def associations(
    found: Instances, types: Sequence[Type], pairs: Sequence[Pair], top: int = TOP
) -> list[dict[str, Any]]:
    """Return the strongest significant associations of each category, each concept pair once.

    In order of S, then of the p-value.
    """
    category = np.array([types[k.type].category for k in found.kinds])[found.kind]
    listable = found.shows & (found.exact | found.significant)
    listed = []
    for name in categories(types):
        rows = np.flatnonzero((category == name) & listable)
        p = np.nan_to_num(found.noise.p[rows], nan=0.0)
        seen: set[int] = set()
        for row in rows[np.lexsort((rows, p, -found.score[rows]))]:
            if len(seen) == top:
                break
            if int(found.pair[row]) not in seen:
                seen.add(int(found.pair[row]))
                listed.append(_association(found, types, pairs, int(row)))
    return listed


def _association(
    found: Instances, types: Sequence[Type], pairs: Sequence[Pair], row: int
) -> dict[str, Any]:
    kind = found.kinds[int(found.kind[row])]
    shown, pair = types[kind.type], pairs[int(found.pair[row])]
    one, other = (shown.identities[i].name for i in (kind.first, kind.second))
    # The identity with more of option 1 is tied to concept 1.
    tied = (one, other) if found.gap[row] > 0 else (other, one)
    answers = {
        name: {
            "option_1": float(found.counts.chosen[place].sum()),
            "of": int(found.counts.valid[place].sum()),
        }
        for name, place in ((one, found.first[row]), (other, found.second[row]))
    }
    p, q = float(found.noise.p[row]), float(found.q[row])
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
