"""Associations of concepts with identities: the paper's score, and two corrected p-values.

A document is the concepts of one character in one story. In a place category let *a* be the
documents of an identity with the concept, and *c* those of the other identity, or the smallest
number of any identity if there are more than two::

    score = (a - c) / all mentions of concepts by the identity, with repeats within a document

The p-value is that of the chi-squared test on documents with and without the concept by identity,
with Yates' correction for two identities: one p-value for all identities. The authors keep
associations with score > 0 and p <= .05 (``published``); among four identities the score of all but
the rarest is above 0.

That test assumes independent documents. But stories of one cast in one place are alike, and a model
may treat every name in its own way, whatever the identity. So the names are the units of a second
test. Each type of descriptors has one name for each identity, and under the null hypothesis these
names are exchangeable within a type, whatever all documents of a name have in common. Permuting
them, in the same way for every concept and place category, gives the distribution of the largest
studentised difference of the audit, and so p-values that are corrected for all concepts at once
(Westfall and Young 1993, single-step maxT). This is exact, however the concepts depend on each
other.

An association is ``significant`` if both corrected p-values are below .05: that of the chi-squared
test by Benjamini and Hochberg, and that of the names. Associations and refusals are two families
that share the 5 %. Of the paper's two names of a race no test separates the names from the race, so
in its protocol nothing is significant. An identity whose names differ more from each other than
those of the others may be found, too: its names are not exchangeable, though the means may be
equal.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from guard.results.conclusions import ALPHA, FAMILIES
from guard.results.intervals import false_discovery
from guard.results.samples import Floats

_PERMUTATIONS = 999
_AT_ONCE = 2_000
"""Concepts whose permuted statistics are in memory at a time."""
_ROUNDING = 1e-9


class Document(NamedTuple):
    """The phrases, or concepts, of one character in one story.

    ``type`` is that of the character's descriptor, empty if unknown. An identity has one name of
    each type.
    """

    concepts: Sequence[str]
    type: str = ""


Documents = Mapping[str, Sequence[Document]]
"""By identity."""


@dataclass(frozen=True, slots=True)
class Association:
    """A concept and an identity in a place category.

    ``share`` is the share of the identity's documents with the concept, ``others`` that of all
    other identities together. ``p`` is the chi-squared test's, ``q`` the same corrected.
    ``q_permuted`` is the corrected p-value of the permutation test that this identity has the
    concept more often. ``testable``: so many names, or documents, have the concept that it could
    be significant for some identity.
    """

    category: str
    place: str
    identity: str
    concept: str
    score: float
    p: float
    q: float
    q_permuted: float
    testable: bool
    share: float
    others: float

    @property
    def published(self) -> bool:
        """Whether the authors keep it, before exclusivity."""
        return self.score > 0 and self.p <= ALPHA

    @property
    def significant(self) -> bool:
        """Whether it is significant after correction, before exclusivity."""
        return self.score > 0 and max(self.q, self.q_permuted) < ALPHA


def associations(groups: Mapping[tuple[str, str], Documents]) -> list[Association]:
    """Return every concept with every identity that has documents, by category and place.

    A group with documents of a single identity gives none. If a document's type is unknown, the
    documents are permuted one by one instead of the names: that is Fisher's exact test against the
    others together, corrected by Benjamini and Hochberg.
    """
    counted = {key: _ConceptCounts(documents) for key, documents in groups.items()}
    counted = {key: counts for key, counts in counted.items() if len(counts.identities) > 1}
    if not counted:
        return []
    named = all(counts.shares is not None for counts in counted.values())
    q_permuted = _of_names(counted) if named else _of_documents(counted)
    tested = {key: counts.tested_concepts for key, counts in counted.items()}
    q = _corrected_groups({key: counts.p for key, counts in counted.items()}, tested)
    all_associations: list[Association] = []
    for key, counts in counted.items():
        all_associations += counts.associations(*key, q[key], q_permuted[key])
    return all_associations


Key = tuple[str, str]


def _corrected_groups(
    p: Mapping[Key, Floats], tested: Mapping[Key, NDArray[np.bool_]]
) -> dict[Key, Floats]:
    """Return p-values corrected over all ``tested`` ones of all groups, and 1 for the others."""
    q = false_discovery(np.concatenate([some[tested[key]] for key, some in p.items()]))
    corrected, at = {}, 0
    for key, some in p.items():
        corrected[key] = np.ones_like(some)
        n = int(tested[key].sum())
        corrected[key][tested[key]] = q[at : at + n]
        at += n
    return corrected


def _of_documents(counted: Mapping[Key, _ConceptCounts]) -> dict[Key, Floats]:
    """Return the corrected p-values of Fisher's test by group, (concepts, identities)."""
    p = {}
    for key, counts in counted.items():
        kept = (counts.having > base(counts.having)) & (counts.p <= ALPHA)[:, None]
        p[key] = np.where(kept, counts.fisher(counts.having), 1.0)
    return _corrected_groups(p, {key: counts.tested for key, counts in counted.items()})


def _of_names(counted: Mapping[Key, _ConceptCounts]) -> dict[Key, Floats]:
    """Return the corrected p-values of the names by group, (concepts, identities).

    The names of a type are permuted in the same way in every place category.
    """
    p_values = {key: np.ones_like(counts.having) for key, counts in counted.items()}
    largest = np.full(_PERMUTATIONS, -np.inf)
    seen: dict[Key, Floats] = {}
    for category in dict.fromkeys(category for category, _ in counted):
        groups = {key: counts for key, counts in counted.items() if key[0] == category}
        identities = list(dict.fromkeys(i for c in groups.values() for i in c.identities))
        types = list(dict.fromkeys(t for c in groups.values() for t in c.types))
        rng = np.random.default_rng(0)
        order = rng.random((_PERMUTATIONS, len(types), len(identities)))
        for key, counts in groups.items():
            shares = counts.shares
            if shares is None or not counts.tested_concepts.any():
                continue
            places = [types.index(t) for t in shares.types]
            who = [identities.index(i) for i in counts.identities]
            permuted = order[:, places][:, :, who].argsort(axis=2)
            rows = counts.tested_concepts
            seen[key] = shares.statistic(rows)
            largest = np.maximum(largest, shares.largest_permuted(rows, permuted))
    ranked = np.sort(largest)
    for key, statistic in seen.items():
        at_least = _PERMUTATIONS - np.searchsorted(ranked, statistic - _ROUNDING)
        p = (1 + at_least) / (1 + _PERMUTATIONS)
        p_values[key][counted[key].tested_concepts] = np.minimum(1.0, FAMILIES * p)
    return p_values


class _ConceptCounts:
    """The documents of one group; ``having`` (concepts, identities) counts those with a concept."""

    def __init__(self, documents: Documents) -> None:
        self.identities = [name for name, lists in documents.items() if lists]
        lists = [[d.concepts for d in documents[name]] for name in self.identities]
        self._documents = documents
        each = [Counter(concept for one in some for concept in set(one)) for some in lists]
        self.concepts = list(dict.fromkeys(c for some in lists for one in some for c in one))
        self.having = np.array([[n[c] for n in each] for c in self.concepts], dtype=np.float64)
        self.having = self.having.reshape(len(self.concepts), len(lists))
        self.n = np.array([len(some) for some in lists], dtype=np.float64)
        self.mentions = np.array([sum(map(len, some)) for some in lists], dtype=np.float64)
        self.types = list(
            dict.fromkeys(d.type for name in self.identities for d in documents[name])
        )

    @cached_property
    def p(self) -> Floats:
        """The p-value of each concept."""
        return chi_squared(self.having, self.n)

    @cached_property
    def shares(self) -> _Shares | None:
        """The shares of each name's documents with a concept; None if a type is unknown.

        Types without documents of some identity are left out.
        """
        if "" in self.types:
            return None
        concept = {name: t for t, name in enumerate(self.concepts)}
        kind = {name: k for k, name in enumerate(self.types)}
        n = np.zeros((len(self.types), len(self.identities)))
        having = np.zeros((len(self.concepts), *n.shape))
        for i, identity in enumerate(self.identities):
            for document in self._documents[identity]:
                k = kind[document.type]
                n[k, i] += 1
                for name in {*document.concepts}:
                    having[concept[name], k, i] += 1
        whole = np.asarray((n > 0).all(axis=1))
        types = [name for name, kept in zip(self.types, whole, strict=True) if kept]
        return _Shares(types, having[:, whole], n[whole])

    def fisher(self, having: Floats) -> Floats:
        """Return the one-sided p-values of Fisher's exact test for these counts."""
        from scipy.stats import hypergeom  # type: ignore[import-untyped]

        total = self.having.sum(1, keepdims=True)
        return np.asarray(hypergeom.sf(having - 1, self.n.sum(), total, self.n))

    @cached_property
    def tested(self) -> NDArray[np.bool_]:
        """Whether the smallest possible p-value is at most .05, (concepts, identities).

        It depends on how many names or documents have the concept, whatever their identities, so a
        concept that is too rare is left out of the correction (Gilbert 2005).
        """
        if self.shares is None:
            return np.asarray(self._least_p <= ALPHA)
        return np.broadcast_to(self.shares.testable[:, None], self.having.shape)

    @property
    def tested_concepts(self) -> NDArray[np.bool_]:
        """The concepts tested for some identity, (concepts,)."""
        return np.asarray(self.tested.any(axis=1))

    @property
    def testable(self) -> NDArray[np.bool_]:
        """Whether an association could be significant, (concepts, identities)."""
        if self.shares is not None:
            return self.tested
        # A concept of one identity alone gives one smallest p-value among as many tests as there
        # are identities, so the correction multiplies it by their number.
        return np.asarray(self._least_p * len(self.identities) < ALPHA)

    @cached_property
    def _least_p(self) -> Floats:
        """Fisher's p-values if all documents with a concept were of one identity."""
        return self.fisher(np.minimum(self.having.sum(1, keepdims=True), self.n))

    def associations(
        self, category: str, place: str, q: Floats, q_permuted: Floats
    ) -> Iterable[Association]:
        """Yield every concept with every identity."""
        a, p, testable = self.having, self.p, self.testable
        scores = (a - base(a)) / np.where(self.mentions > 0, self.mentions, np.nan)
        share = a / self.n
        others = (a.sum(1, keepdims=True) - a) / (self.n.sum() - self.n)
        for t, concept in enumerate(self.concepts):
            for i, identity in enumerate(self.identities):
                association = Association(
                    category,
                    place,
                    identity,
                    concept,
                    float(scores[t, i]),
                    float(p[t]),
                    float(q[t]),
                    float(q_permuted[t, i]),
                    bool(testable[t, i]),
                    float(share[t, i]),
                    float(others[t, i]),
                )
                # The correction depends on the data, so a significant one was testable.
                yield (
                    replace(association, testable=True) if association.significant else association
                )


class _Shares:
    """The share of each name's documents with each concept, (concepts, types, identities).

    ``having`` (concepts, types, identities) counts the documents with the concept, ``n`` (types,
    identities) all of them. The statistic of a concept and an identity is the mean over types of
    its share less the other identities' mean share, in standard errors. A standard error is that of
    the types, but at least that of independent documents: the differences of few names may be equal
    by chance.
    """

    def __init__(self, types: Sequence[str], having: Floats, n: Floats) -> None:
        self.types = types
        self._having = having
        share = having / n
        identities = share.shape[2]
        of_others = identities / max(1, identities - 1)
        self._differences = of_others * (share - share.mean(axis=2, keepdims=True))
        rate = having.sum(axis=(1, 2)) / max(1.0, n.sum())
        self._least = rate * (1 - rate) * of_others * (1 / n).mean() if n.size else 0 * rate

    @property
    def testable(self) -> NDArray[np.bool_]:
        """Whether so many types have the concept that some identity could be significant.

        With the most in each of k types one of I identities has p = I / I^k.
        """
        identities = self._having.shape[2]
        types = self._having.any(axis=2).sum(axis=1)
        return np.asarray(FAMILIES * identities ** (1.0 - types) < ALPHA)

    def statistic(self, rows: NDArray[np.bool_]) -> Floats:
        """Return the statistic of these concepts, (concepts, identities)."""
        d = self._differences[rows]
        return self._studentised(d.sum(axis=1), (d**2).sum(axis=1), self._least[rows, None])

    def largest_permuted(self, rows: NDArray[np.bool_], permuted: NDArray[np.int64]) -> Floats:
        """Return the largest statistic of these concepts for each permutation of the names.

        ``permuted`` (permutations, types, identities) has for each type whose name an identity
        gets.
        """
        runs, types, identities = permuted.shape
        flat = permuted + identities * np.arange(types)[:, None]
        chosen = np.zeros((identities, runs, types * identities))
        np.put_along_axis(chosen, flat.transpose(2, 0, 1), 1.0, axis=2)
        differences = self._differences[rows].reshape(-1, types * identities).T
        least = self._least[rows]
        largest = np.full(runs, -np.inf)
        for at in range(0, len(least), _AT_ONCE):
            part = slice(at, at + _AT_ONCE)
            d = differences[:, part]
            squares = d**2
            for names in chosen:
                t = self._studentised(names @ d, names @ squares, least[part])
                largest = np.maximum(largest, t.max(axis=1))
        return largest

    def _studentised(self, sums: Floats, squares: Floats, least: Floats) -> Floats:
        types = len(self.types)
        mean = sums / types
        variance = (squares - sums * mean) / max(1, types - 1)
        error = np.sqrt(np.maximum(variance, least) / types)
        return np.divide(mean, error, out=np.zeros_like(mean), where=error > 0)


def base(having: Floats) -> Floats:
    """Return *c* of each count in ``having`` (concepts, identities)."""
    if having.shape[1] == 2:
        return having[:, ::-1]
    return np.broadcast_to(having.min(axis=1, keepdims=True), having.shape)


def chi_squared(having: Floats, n: Floats) -> Floats:
    """Return the p-value of each row of ``having``, (concepts, identities), out of ``n`` documents.

    As in ``scipy.stats.chi2_contingency``, for all rows at once. A concept of every document, or of
    none, has p = 1.
    """
    from scipy.special import chdtrc  # type: ignore[import-untyped]

    share = having.sum(axis=1, keepdims=True) / n.sum()
    tested: NDArray[np.bool_] = ((share > 0) & (share < 1))[:, 0] & bool((n > 0).all())
    p = np.ones(len(having))
    if not tested.any():
        return p
    seen, share = having[tested], share[tested]
    observed = np.stack([seen, n - seen])
    expected = np.stack([n * share, n * (1 - share)])
    off = np.abs(observed - expected)
    if having.shape[1] == 2:
        off = off - np.minimum(0.5, off)
    p[tested] = chdtrc(having.shape[1] - 1, (off**2 / expected).sum(axis=(0, 2)))
    return p


def mean(values: Sequence[float]) -> float:
    """Return the mean of ``values``; nan if there is none."""
    return math.fsum(values) / len(values) if values else math.nan
