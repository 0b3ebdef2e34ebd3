"""Which concepts go with which identity: the paper's score, chi-squared tests, corrected and not.

A document is the concepts of one character in one story. Of a place category, with *a* the
documents of an identity that have the concept, and *c* those of the other identity, or the fewest
of any identity where there are more than two::

    score = (a - c) / all concepts mentioned of the identity, repeats within a document counted

The p-value is that of the chi-squared test on documents with and without the concept by identity,
with Yates' correction where there are two: one for all identities. The authors keep score > 0 and
p <= .05 (``published``). Here an association ``stands`` where p, corrected by Benjamini and
Hochberg over every concept of every place category of the audit, is at most .05, and where the
identity has the concept more often than the others together, which is tested likewise: among four
identities the score of all but the rarest is above 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from guard.suites.conclusions import ALPHA, corrected
from guard.suites.contract import Floats

Documents = Mapping[str, Sequence[Sequence[str]]]
"""By identity, the concepts of each document."""


@dataclass(frozen=True, slots=True)
class Association:
    """A concept and an identity in a place category.

    ``share`` is that of the identity's documents with the concept, ``others`` that of the other
    identities' together. ``p`` is of all identities at once, ``q`` corrected; ``p_own`` is of this
    identity against the others together.
    """

    category: str
    place: str
    identity: str
    concept: str
    score: float
    p: float
    q: float
    p_own: float
    share: float
    others: float

    @property
    def published(self) -> bool:
        """Whether the authors keep it, its exclusivity aside."""
        return self.score > 0 and self.p <= ALPHA

    @property
    def stands(self) -> bool:
        """Whether it stands corrected, its exclusivity aside."""
        own = self.share > self.others and self.p_own <= ALPHA
        return self.score > 0 and self.q <= ALPHA and own


def associations(groups: Mapping[tuple[str, str], Documents]) -> list[Association]:
    """Return every concept with every identity that has documents, by category and place.

    A group with documents of one identity alone compares nothing, and gives nothing.
    """
    counted = [(key, _Counts(documents)) for key, documents in groups.items()]
    counted = [(key, counts) for key, counts in counted if len(counts.identities) > 1]
    p = np.concatenate([counts.p for _, counts in counted]) if counted else np.zeros(0)
    q = corrected(p)
    found: list[Association] = []
    begin = 0
    for (category, place), counts in counted:
        end = begin + len(counts.concepts)
        found += counts.associations(category, place, q[begin:end])
        begin = end
    return found


class _Counts:
    """The documents of one group, counted: ``having`` has shape (concepts, identities)."""

    def __init__(self, documents: Documents) -> None:
        self.identities = [name for name, lists in documents.items() if lists]
        lists = [documents[name] for name in self.identities]
        each = [Counter(concept for one in some for concept in set(one)) for some in lists]
        self.concepts = list(dict.fromkeys(c for some in lists for one in some for c in one))
        self.having = np.array([[n[c] for n in each] for c in self.concepts], dtype=np.float64)
        self.having = self.having.reshape(len(self.concepts), len(lists))
        self.n = np.array([len(some) for some in lists], dtype=np.float64)
        self.mentions = np.array([sum(map(len, some)) for some in lists], dtype=np.float64)

    @property
    def p(self) -> Floats:
        """The p-value of each concept."""
        return chi_squared(self.having, self.n)

    def associations(self, category: str, place: str, q: Floats) -> Iterable[Association]:
        a = self.having
        scores = (a - base(a)) / np.where(self.mentions > 0, self.mentions, np.nan)
        p, p_own = self.p, np.empty_like(a)
        rest, n_rest = a.sum(1, keepdims=True) - a, self.n.sum() - self.n
        for i in range(a.shape[1]):
            two = np.stack([a[:, i], rest[:, i]], axis=1)
            p_own[:, i] = chi_squared(two, np.array([self.n[i], n_rest[i]]))
        share, others = a / self.n, rest / n_rest
        for t, concept in enumerate(self.concepts):
            for i, identity in enumerate(self.identities):
                yield Association(
                    category,
                    place,
                    identity,
                    concept,
                    float(scores[t, i]),
                    float(p[t]),
                    float(q[t]),
                    float(p_own[t, i]),
                    float(share[t, i]),
                    float(others[t, i]),
                )


def base(having: Floats) -> Floats:
    """Return *c* of each count in ``having`` (concepts, identities)."""
    if having.shape[1] == 2:
        return having[:, ::-1]
    return np.broadcast_to(having.min(axis=1, keepdims=True), having.shape)


def chi_squared(having: Floats, n: Floats) -> Floats:
    """Return the p-value of each row of ``having``, (concepts, identities), out of ``n`` documents.

    As ``scipy.stats.chi2_contingency`` has it. A concept of every document, or of none, has p = 1.
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
    """Return the mean of ``values``; nan over none."""
    return math.fsum(values) / len(values) if values else math.nan
