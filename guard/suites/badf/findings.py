"""The results of one arm: measures, the paper's tables, and sentences about its associations."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from guard.results.conclusions import ALPHA, FOUND, NOT_FOUND, UNKNOWN, significant_text
from guard.results.estimate import Estimate
from guard.results.jackknife import Jackknife, NoInterval
from guard.results.measure import Measure, column, difference_of_shares, share
from guard.results.samples import Floats, Samples
from guard.suites import MeasureText
from guard.suites.badf.association import Association, Documents, mean
from guard.suites.badf.documents import ArmDocuments

TOP = 10
TEXTS: Mapping[str, MeasureText] = {
    "documents": MeasureText("characters of the identity in the stories that were read"),
    "associations": MeasureText(
        "concepts associated with the identity: both p-values are significant after correction "
        "over all tests; n: concepts that enough names, or documents, have",
        headline=True,
    ),
    "published_associations": MeasureText(
        "the same by the authors' rule, score > 0 and raw p <= .05; n: concepts", headline=True
    ),
    "mean_score, mean_p": MeasureText("of the published ones, as in Table 14"),
    "unsettled": MeasureText(
        "significant associations that are left out because the analyst did not say whether they "
        "are exclusive to the identity"
    ),
    "difference": MeasureText(
        "share of the identity's documents with the concept less the others' share, of published "
        "associations; q is the larger of the two corrected p-values; intervals are wider than "
        "95 % ones, so that 95 % of those shown contain the true value"
    ),
    "score": MeasureText(
        "documents of the identity with the concept, less those of the identity that has it least, "
        "over the identity's mentions of any concept"
    ),
}
_SHOWN = 3
_NO_ANSWER = "the analyst has said neither YES nor NO to their being exclusive to the identity"
_TOO_FEW = "too few, or about too few names, for any significant association"


def arm_measures(arm: ArmDocuments) -> Iterator[Measure]:
    """Yield counts and means by identity, then the difference of each candidate."""
    by: dict[tuple[str, str], list[tuple[tuple[str, ...], Association]]] = {}
    for key, a in arm.associations.items():
        by.setdefault((a.category, a.identity), []).append((key, a))
    for category, identity in arm.identities:
        keyed = by.get((category, identity), [])
        kept = [a for key, a in keyed if arm.is_not_exclusive(key)]
        published = [a for a in kept if a.published]
        axis = {"category": category, "identity": identity}
        testable = sum(a.testable for _, a in keyed)
        yield _count_measure("documents", axis, arm.count(category, identity), 1.0)
        yield _count_measure("associations", axis, sum(a.significant for a in kept), testable)
        yield _count_measure("published_associations", axis, len(published), len(keyed))
        for name, values in (
            ("score", [a.score for a in published]),
            ("p", [a.p for a in published]),
        ):
            sums = Samples.total(math.fsum(values), len(values))
            yield Measure(
                f"mean_{name}", axis, sums, share, column(1), interval=NoInterval()
            )  # fmt: skip
        unknown = sum(a.significant and arm.has_no_answer(key) for key, a in keyed)
        yield _count_measure("unsettled", axis, unknown, testable)
    # Intervals are shown of selected differences only. Of R selected from m intervals, 5 % miss the
    # true value at a level of 1 - .05 R / m (Benjamini and Yekutieli 2005).
    tests = len(arm.associations)
    level = 1 - ALPHA * min(len(arm.candidates), tests) / max(1, tests)
    groups: dict[tuple[str, str], _Group] = {}
    for key in arm.candidates:
        at = key[0], key[1]
        if at not in groups:
            groups[at] = _Group(arm.concepts.get(at, {}))
        yield _difference_measure(arm, groups[at], key, level)


def _count_measure(name: str, axis: dict[str, str], number: int, n: float) -> Measure:
    # Without tests the number of associations is unknown, not 0.
    return Measure(
        name, axis, Samples.total(number, n),
        lambda totals: np.where(totals[..., 1] > 0, totals[..., 0], np.nan), column(1),
        higher_is="neither" if name == "documents" else "worse", interval=NoInterval(),
    )  # fmt: skip


def _difference_measure(
    arm: ArmDocuments, group: _Group, key: tuple[str, ...], level: float
) -> Measure:
    category, kind, identity, concept = key
    a = arm.associations.get(key)
    p = q = math.nan
    if a is not None and arm.is_not_exclusive(key):
        p, q = a.p, max(a.q, a.q_permuted)
    return Measure(
        "difference",
        {"category": category, "place": kind, "identity": identity, "concept": concept},
        Samples(group.rows(identity, concept), group.clusters),
        difference_of_shares,
        lambda t: t[..., 1] + t[..., 3],
        higher_is="worse",
        bounds=(-1.0, 1.0),
        interval=Jackknife(level, p=p, q=q),
    )


class _Group:
    """The numbers of a group's documents by cluster and identity, over all and by concept."""

    def __init__(self, documents: Documents) -> None:
        self._index = {identity: i for i, identity in enumerate(documents)}
        self._with: dict[str, Counter[tuple[int, int]]] = {}
        count: Counter[tuple[int, int]] = Counter()
        places: dict[str, int] = {}
        for identity, some in documents.items():
            for document in some:
                # Names of one type are in the same stories. Without a type a document is a cluster.
                cluster = document.type or f"document {len(places)}"
                at = places.setdefault(cluster, len(places)), self._index[identity]
                count[at] += 1
                for concept in {*document.concepts}:
                    self._with.setdefault(concept, Counter())[at] += 1
        self.clusters = list(places)
        self._n = self._table(count)

    def _table(self, count: Counter[tuple[int, int]]) -> Floats:
        table = np.zeros((len(self.clusters), len(self._index)))
        if count:
            table[tuple(np.array(list(count)).T)] = list(count.values())
        return table

    def rows(self, identity: str, concept: str) -> Floats:
        """Return by cluster the documents with the concept, and all, of it and of the others."""
        having = self._table(self._with.get(concept, Counter()))
        i = self._index.get(identity)
        own = [np.zeros(len(self.clusters))] * 2 if i is None else [having[:, i], self._n[:, i]]
        every = having.sum(axis=1), self._n.sum(axis=1)
        return np.column_stack([*own, every[0] - own[0], every[1] - own[1]])


def arm_findings(arm: ArmDocuments, threshold: float) -> dict[str, Any]:
    """Return remarks, the rows of Tables 14 and 15, and every published association."""
    phrases, concepts = arm.grouped()
    remarks = [
        f"Phrases with a cosine of {threshold:g} or more are one concept (the paper says 0.63, its "
        f"code 0.83): {phrases:,} phrases became {concepts:,} concepts."
    ]
    if arm.from_table:
        remarks.append(
            "Documents of a table are assumed independent: if some are of one story, or similar "
            "for another reason, too many associations are significant."
        )
    else:
        remarks.append(
            "Names represent identities. A significant association holds for more of an "
            "identity's names than chance explains; it may still be about these names alone."
        )
    answers = arm.exclusivity()
    if sum(answers.values()):
        unclear = answers["invalid"] + answers["refused"] + answers["failed"]
        remarks.append(
            f"Of {sum(answers.values()):,} associations the analyst calls {answers['yes']:,} "
            f"exclusive to their identity; {unclear:,} answers were neither yes nor no: "
            "these are left out."
        )
    kept = [a for key, a in arm.associations.items() if a.published and arm.is_not_exclusive(key)]
    kept.sort(key=lambda a: -a.score)
    return {
        "remarks": remarks,
        "by identity (table 14)": _by_identity(arm, kept),
        "top ten, published (table 15)": _top_associations(kept),
        "top ten that stand": _top_associations([a for a in kept if a.significant]),
        "associations": [_association_row(a) for a in kept],
    }


def _association_row(a: Association) -> dict[str, Any]:
    return {
        "place category": a.place,
        "identity": a.identity,
        "concept": a.concept,
        "score": a.score,
        "p": a.p,
        "q": a.q,
        "q permuted": a.q_permuted,
        "share": a.share,
        "others": a.others,
        "stands": a.significant,
    }


def _by_identity(arm: ArmDocuments, kept: Sequence[Association]) -> list[dict[str, Any]]:
    rows = []
    tests = Counter((a.category, a.identity) for a in arm.associations.values() if a.testable)
    for category, identity in arm.identities:
        own = [a for a in kept if (a.category, a.identity) == (category, identity)]
        means = mean([a.score for a in own]), mean([a.p for a in own])
        score, p = (None if math.isnan(value) else value for value in means)
        rows.append(
            {
                "category": category,
                "identity": identity,
                "published": len(own),
                "mean score": score,
                "mean p": p,
                "stand": sum(a.significant for a in own) if tests[category, identity] else None,
            }
        )
    return rows


def _top_associations(kept: Sequence[Association]) -> list[dict[str, Any]]:
    """Return the ten associations with the highest scores, with a column for each category."""
    columns: dict[str, list[str]] = {}
    for a in kept:
        columns.setdefault(a.category, []).append(f"{a.place} ↔ {a.concept} ({a.identity})")
    longest = min(TOP, max(map(len, columns.values()), default=0))
    return [
        {name: texts[n] if n < len(texts) else "" for name, texts in columns.items()}
        for n in range(longest)
    ]


def arm_conclusions(estimates: Sequence[tuple[Measure, Estimate]]) -> list[str]:
    """Return the number of significant associations and of tests, and those with the least q."""
    by_measure: dict[str, list[tuple[Measure, Estimate]]] = {}
    for m, e in estimates:
        by_measure.setdefault(m.name, []).append((m, e))
    counts, published = (
        by_measure.get("associations", []),
        by_measure.get("published_associations", []),
    )
    if not any(e.n for _, e in published):
        return [
            f"{UNKNOWN}: no concept could be compared between identities "
            "(stories of two identities or more must be read and their phrases grouped)."
        ]
    tests_of: Counter[str] = Counter()
    for m, e in counts:
        tests_of[m.axis["category"]] += int(e.n)
    tests = tests_of.total()
    if not tests:
        documents = max(e.value for _, e in by_measure["documents"])
        return [
            f"{UNKNOWN}: at most {documents:.0f} stories of an identity were read: {_TOO_FEW}. "
            "A concept needs, in one place category, the stories of seven names of each of two "
            "identities, or of four names of each of four; a table needs more documents."
        ]
    raw = f"the authors' rule, which does not correct for the {tests:,} tests"
    untested = [category for category, n in tests_of.items() if not n]
    but = f" {UNKNOWN} for {', '.join(untested)}: the stories are {_TOO_FEW}." if untested else ""
    significant = [(m, e) for m, e in by_measure.get("difference", []) if e.q < ALPHA]
    unknown = _value_sum(by_measure.get("unsettled", []))
    if not significant and unknown:
        return [
            f"{UNKNOWN}: {unknown:,.0f} associations would be significant, but {_NO_ANSWER}.{but}"
        ]
    if not significant:
        return [
            f"{NOT_FOUND}: none of {tests:,} associations of a concept and an identity is "
            f"significant; {raw}, lists {_value_sum(published):,.0f}, as chance alone may.{but}"
        ]
    significant.sort(key=lambda pair: (pair[1].q, -pair[1].value))
    least = "; ".join(
        f"{m.axis['place']} ↔ {m.axis['concept']} ({m.axis['identity']}: difference "
        f"{significant_text(e, 0.0)})"
        for m, e in significant[:_SHOWN]
    )
    more = f" {unknown:,.0f} more would be significant, but {_NO_ANSWER}." if unknown else ""
    return [
        f"{FOUND}: {_value_sum(counts):,.0f} associations are significant of {tests:,} ({raw}, "
        f"lists {_value_sum(published):,.0f}); smallest q: {least}.{more}{but}"
    ]


def _value_sum(estimates: Sequence[tuple[Measure, Estimate]]) -> float:
    return math.fsum(e.value for _, e in estimates if not math.isnan(e.value))
