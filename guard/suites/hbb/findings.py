"""The results of an arm in words, and its strongest associations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from guard.results.conclusions import (
    ALPHA,
    FOUND,
    NOT_FOUND,
    UNKNOWN,
    interval_text,
    significant_text,
)
from guard.results.estimate import Estimate
from guard.results.intervals import p_text
from guard.results.measure import Measure
from guard.suites.hbb.descriptors import Type
from guard.suites.hbb.instances import Instances
from guard.suites.hbb.measures import categories
from guard.suites.hbb.questions import ConceptPair

TOP = 5
_PARTS = 5
TESTS = ("identity", "apart", "beyond")
"""The tested measures; the first is over all, too."""
Found = Mapping[tuple[str, ...], Estimate]


def bias_conclusions(
    estimates: Sequence[tuple[Measure, Estimate]],
    types: Sequence[Type],
    threshold: int,
    *,
    exact: bool,
) -> list[str]:
    """Return a headline, then a sentence for each category with significant bias."""
    at = {(m.name, *m.axis.values()): e for m, e in estimates if set(m.axis) == {"category"}}
    if not at["share", "all"].n:
        return [f"{UNKNOWN}: no instance could be scored."]
    # Bias in one category or pair alone is bias too, whatever the test over all says.
    parts = [
        (m, e)
        for m, e in estimates
        if m.name in TESTS and m.axis != {"category": "all"} and _is_significant(e)
    ]
    names = categories(types)
    cause = ", which the wording alone may cause" if exact else "; the wording may cause more"
    scored = {name: _scores_text(at, name, threshold, exact=exact) for name in ("all", *names)}
    if not parts and not _is_significant(at["identity", "all"]):
        scored["all"] += cause
    headline = _shared_effect_text(at, "all", "", scored["all"], bool(parts))
    if not parts and math.isnan(at["identity", "all"].q):
        headline = _single_identities(estimates, names, scored["all"]) or headline
    headline += _significant_parts(parts) + _without_scores(at, names)
    biased = [name for name in names if _is_significant(at["identity", name])]
    return [
        headline,
        *(_shared_effect_text(at, name, f"{name}: ", scored[name], True) for name in biased),
    ]


def _is_significant(e: Estimate) -> bool:
    return e.q < ALPHA and e.value > 0


def _single_identities(
    estimates: Sequence[tuple[Measure, Estimate]], names: Sequence[str], scored: str
) -> str | None:
    """Return that no identity is shown to be treated apart; None if none could be tested.

    It takes fewer questions to test single identities than an effect that wordings share.
    """
    tested = [(m, e) for m, e in estimates if m.name in TESTS[1:] and not math.isnan(e.q)]
    if not tested:
        return None
    left = [name for name in names if all(m.axis["category"] != name for m, _ in tested)]
    untested = f"; too few questions to test {', '.join(left)}" if left else ""
    return (
        f"{NOT_FOUND}: none of {len(tested)} tests of single identities is significant (smallest q "
        f"{p_text(min(e.q for _, e in tested))}){untested}{_most_apart(tested)}; {scored}."
    )


def _most_apart(tested: Sequence[tuple[Measure, Estimate]]) -> str:
    """Return how far apart from the others an identity may still be."""
    limits = [(e.high, m) for m, e in tested if m.name == "apart" and not math.isnan(e.high)]
    if not limits:
        return ""
    high, m = max(limits, key=lambda limit: limit[0])
    return _not_excluded(high, f"{m.axis['identity']} up to {{:.1f}} points apart")


def _significant_parts(parts: Sequence[tuple[Measure, Estimate]]) -> str:
    """Return a sentence on the significant categories, descriptors and pairs, by q."""
    if not parts:
        return ""
    by_q = sorted(parts, key=lambda part: (part[1].q, part[1].p, -part[1].value))
    texts = [
        f"{' / '.join(m.axis.values())} ({e.value:.1f} points; q {p_text(e.q)})"
        for m, e in by_q[:_PARTS]
    ]
    more = f" and {len(parts) - _PARTS} further parts" if len(parts) > _PARTS else ""
    return f" It is significant in {', '.join(texts)}{more}."


def _without_scores(at: Found, names: Sequence[str]) -> str:
    """Return a sentence on the categories that were not asked, and on those without scores."""
    unasked = [name for name in names if not at["dropped", name].n]
    unread = [name for name in names if not at["share", name].n and name not in unasked]
    asked = f" Not asked in this sample: {', '.join(unasked)}." if unasked else ""
    return asked + (f" No instance could be scored of: {', '.join(unread)}." if unread else "")


def _lead_text(e: Estimate, parts: bool) -> str:
    """Return the beginning for bias over all, in ``parts`` alone, unknown, or none."""
    if _is_significant(e):
        return FOUND
    if parts:
        return f"{FOUND} in parts, not shown in all together"
    return UNKNOWN if math.isnan(e.q) else NOT_FOUND


def _scores_text(at: Found, name: str, threshold: int, *, exact: bool) -> str:
    """Return how many instances reach the threshold, beside what sampling noise predicts."""
    shown = at["count", name]
    count = f"{shown.value:,.0f} of {shown.n:,.0f} instances have S >= {threshold}"
    if exact:
        return f"probabilities are exact, so no sampling noise is in the scores: {count}"
    return f"{count}, where sampling noise alone predicts {at['count_noise', name].value:,.0f}"


def _shared_effect_text(at: Found, name: str, lead: str, scored: str, parts: bool) -> str:
    share, effect = (at[m, name] for m in ("share", "identity"))
    start = f"{lead}{_lead_text(effect, parts)}"
    if _is_significant(effect):
        return (
            f"{start}: the identity matters, the effect that different wordings of one identity "
            f"share is {significant_text(effect, 0.0, '.1f', 1, ' points')}; {scored}, a share of "
            f"{share.value:.3f}{_interval_text(share)}."
        )
    # The test is two-sided: wordings may also disagree, which is no effect that they share.
    q = f" (q {p_text(effect.q)})" if effect.q >= ALPHA else ""
    tested = f"an effect of the identity is not shown{q}"
    if math.isnan(effect.q):
        tested = "the sample is too small to test an effect that different wordings share"
    limit = _not_excluded(effect.high, "an effect of up to {:.1f} points")
    return f"{start}: {tested}{limit}; {scored}."


def _not_excluded(high: float, form: str) -> str:
    """Return the largest effect that a result without bias leaves possible."""
    return "" if math.isnan(high) else f"; not excluded: {form.format(max(high, 0.0))}"


def _interval_text(e: Estimate) -> str:
    return interval_text(e.low, e.high, ".3g")


def instance_remarks(instances: Instances) -> list[str]:
    """Return a sentence on the number of significant single instances, if any were scored."""
    if not instances.usable.any():
        return []
    if instances.exact:
        return [
            f"{int(instances.shows.sum()):,} of {int(instances.usable.sum()):,} instances have "
            f"S >= {instances.threshold} exactly; the largest are listed."
        ]
    tested = int((~np.isnan(instances.q)).sum())
    return [
        f"{int(instances.significant.sum()):,} of {tested:,} instances are significant by "
        f"themselves at q < {ALPHA}, as the wording alone may cause; only these are listed."
    ]


def strongest_associations(
    instances: Instances, types: Sequence[Type], pairs: Sequence[ConceptPair], top: int = TOP
) -> list[dict[str, Any]]:
    """Return the strongest significant associations of each category, each concept pair once.

    In order of S, then of the p-value.
    """
    category = np.array([types[k.type].category for k in instances.kinds])[instances.kind]
    listable = instances.shows & (instances.exact | instances.significant)
    listed = []
    for name in categories(types):
        rows = np.flatnonzero((category == name) & listable)
        p = np.nan_to_num(instances.noise.p[rows], nan=0.0)
        seen: set[int] = set()
        for row in rows[np.lexsort((rows, p, -instances.score[rows]))]:
            if len(seen) == top:
                break
            if int(instances.pair[row]) not in seen:
                seen.add(int(instances.pair[row]))
                listed.append(_association_row(instances, types, pairs, int(row)))
    return listed


def _association_row(
    instances: Instances, types: Sequence[Type], pairs: Sequence[ConceptPair], row: int
) -> dict[str, Any]:
    kind = instances.kinds[int(instances.kind[row])]
    shown, pair = types[kind.type], pairs[int(instances.pair[row])]
    first, second = (shown.identities[i].name for i in (kind.first, kind.second))
    # The identity with more of option 1 is tied to concept 1.
    tied = (first, second) if instances.gap[row] > 0 else (second, first)
    answers = {
        name: {
            "option_1": float(instances.counts.chosen[place].sum()),
            "of": int(instances.counts.valid[place].sum()),
        }
        for name, place in ((first, instances.first[row]), (second, instances.second[row]))
    }
    p, q = float(instances.noise.p[row]), float(instances.q[row])
    return {
        "category": shown.category,
        "descriptor": shown.name,
        "association_1": f"{tied[0]} ↔ {pair.concepts[0]}",
        "association_2": f"{tied[1]} ↔ {pair.concepts[1]}",
        "concept_pair": pair.id,
        "S": float(instances.score[row]),
        "p": None if math.isnan(p) else p,
        "q": None if math.isnan(q) else q,
        "answers": answers,
        "context": pair.context,
        "option_1": pair.options[0],
        "option_2": pair.options[1],
    }
