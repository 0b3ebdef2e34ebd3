"""Associations of concepts with identities: the paper's score, and two corrected p-values.

A document is the concepts of one character in one story. In a place category let *a* be the
documents of an identity with the concept, and *c* those of the other identity, or the smallest
number of any identity if there are more than two::

    score = (a - c) / all mentions of concepts by the identity, with repeats within a document

The p-value is that of the chi-squared test on documents with and without the concept by identity,
with Yates' correction for two identities: one p-value for all identities. The authors keep
associations with score > 0 and p <= .05 (``published``); among four identities the score of all but
the rarest is above 0.

That test assumes independent documents. Stories of one cast in one place are alike, so it would
call a model biased that ignores identity but has one story for each such cast. An association is
therefore ``significant`` only if two p-values are below .05, each corrected by Benjamini and
Hochberg over every concept of every place category that enough documents have: that of the
chi-squared test, and that of an exact permutation test of identities within blocks. A block has the
documents that are exchangeable: the characters of a cast in a place.

A model may tie a concept to one name, wherever the name occurs. The second p-value is therefore the
largest over the types of descriptors (two names of the genders, four of the races) of the p-value
without that type: it tests that two types or more show the association (partial conjunction:
Benjamini and Heller 2008).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from guard.suites.conclusions import ALPHA, corrected
from guard.suites.contract import Floats


class Document(NamedTuple):
    """The phrases, or concepts, of one character in one story.

    ``block`` and ``type``, of the character's descriptor, are empty if unknown.
    """

    block: str
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
    concept more often; ``min_p`` is the smallest possible one for as many documents with the
    concept.
    """

    category: str
    place: str
    identity: str
    concept: str
    score: float
    p: float
    q: float
    q_permuted: float
    min_p: float
    share: float
    others: float

    @property
    def published(self) -> bool:
        """Whether the authors keep it, before exclusivity."""
        return self.score > 0 and self.p <= ALPHA

    @property
    def testable(self) -> bool:
        """Whether enough documents have the concept for the association to be significant."""
        return self.min_p < ALPHA or self.significant

    @property
    def significant(self) -> bool:
        """Whether it is significant after correction, before exclusivity."""
        return self.score > 0 and max(self.q, self.q_permuted) < ALPHA


def associations(groups: Mapping[tuple[str, str], Documents]) -> list[Association]:
    """Return every concept with every identity that has documents, by category and place.

    A group with documents of a single identity gives none.
    """
    counted = [(key, _Counts(documents)) for key, documents in groups.items()]
    counted = [(key, counts) for key, counts in counted if len(counts.identities) > 1]
    if not counted:
        return []
    tested = np.concatenate([counts.tested.ravel() for _, counts in counted])
    concepts = np.concatenate([counts.tested.any(axis=1) for _, counts in counted])
    p_permuted = np.concatenate([counts.p_permuted().ravel() for _, counts in counted])
    q = _corrected(np.concatenate([counts.p for _, counts in counted]), concepts)
    q_permuted = _corrected(p_permuted, tested)
    found: list[Association] = []
    for (category, place), counts in counted:
        shape = counts.having.shape
        own_q, q = np.split(q, [shape[0]])
        permuted, q_permuted = np.split(q_permuted, [shape[0] * shape[1]])
        found += counts.associations(category, place, own_q, permuted.reshape(shape))
    return found


def _corrected(p: Floats, tested: NDArray[np.bool_]) -> Floats:
    """Return p-values corrected over the ``tested`` ones, and 1 for the others."""
    q = np.ones_like(p)
    q[tested] = corrected(p[tested])
    return q


class _Counts:
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

    @cached_property
    def p(self) -> Floats:
        """The p-value of each concept."""
        return chi_squared(self.having, self.n)

    def p_permuted(self) -> Floats:
        """Return the p-value of the permutation test, (concepts, identities).

        It is computed for published associations, and 1 for others. Documents without a block are
        permuted one by one: that is Fisher's exact test against the others together.
        """
        found = np.ones_like(self.having)
        kept = (self.having > base(self.having)) & (self.p <= ALPHA)[:, None]
        if self._blocks is None:
            found[kept] = self._fisher(self.having)[kept]
            return found
        for t, i in np.argwhere(kept):
            concept, identity = self.concepts[t], self.identities[i]
            found[t, i] = partial_conjunction(
                [
                    BlockCount(block.type, block.of[identity][concept], [n[concept] for n in every])
                    for block in self._blocks
                    if identity in block.of and (every := block.of.values())
                ]
            )
        return found

    def _fisher(self, having: Floats) -> Floats:
        """Return the one-sided p-values of Fisher's exact test for these counts."""
        from scipy.stats import hypergeom  # type: ignore[import-untyped]

        total = self.having.sum(1, keepdims=True)
        return np.asarray(hypergeom.sf(having - 1, self.n.sum(), total, self.n))

    @cached_property
    def min_p(self) -> Floats:
        """The smallest p-value that a permutation could give, (concepts, identities).

        It depends on the number of documents with the concept in each block, or in all, whatever
        their identities: it is the p-value of an identity with the most in every block. A concept
        that is rare, or in few blocks, cannot have a small one, and is left out of the correction
        (Gilbert 2005).
        """
        shape = self.having.shape
        if self._blocks is None:
            return self._fisher(np.minimum(self.having.sum(1, keepdims=True), self.n))
        place = {concept: t for t, concept in enumerate(self.concepts)}
        who = {identity: i for i, identity in enumerate(self.identities)}
        logs: dict[str, Floats] = {}
        for block in self._blocks:
            of = logs.setdefault(block.type, np.zeros(shape))
            rows = [who[identity] for identity in block.of]
            for concept in {c for counts in block.of.values() for c in counts}:
                counts = [n[concept] for n in block.of.values()]
                of[place[concept], rows] += math.log(counts.count(max(counts)) / len(counts))
        if len(logs) < 2:
            return np.ones(shape)
        every = np.stack(list(logs.values()))
        return np.asarray(np.exp((every.sum(axis=0) - every).max(axis=0)))

    @property
    def tested(self) -> NDArray[np.bool_]:
        """Whether the smallest possible p-value is at most .05."""
        return self.min_p <= ALPHA

    @cached_property
    def _blocks(self) -> list[_Block] | None:
        """The documents by block; None without blocks.

        In a block each identity has as many documents as the identity with the fewest there.
        """
        found: dict[tuple[str, str], dict[str, list[Sequence[str]]]] = {}
        for identity in self.identities:
            for document in self._documents[identity]:
                if not document.block:
                    return None
                block = found.setdefault((document.block, document.type), {})
                block.setdefault(identity, []).append(document.concepts)
        return [
            _Block(
                type_,
                {
                    identity: Counter(
                        c for one in some[: min(map(len, block.values()))] for c in {*one}
                    )
                    for identity, some in block.items()
                },
            )
            for (_, type_), block in found.items()
            if len(block) > 1
        ]

    def associations(
        self, category: str, place: str, q: Floats, q_permuted: Floats
    ) -> Iterable[Association]:
        """Yield every concept with every identity."""
        a, p = self.having, self.p
        # A concept of one identity alone gives one smallest p-value among as many tests as there
        # are identities, so the correction multiplies it by their number.
        min_p = self.min_p * len(self.identities)
        scores = (a - base(a)) / np.where(self.mentions > 0, self.mentions, np.nan)
        share = a / self.n
        others = (a.sum(1, keepdims=True) - a) / (self.n.sum() - self.n)
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
                    float(q_permuted[t, i]),
                    float(min_p[t, i]),
                    float(share[t, i]),
                    float(others[t, i]),
                )


class _Block(NamedTuple):
    """By identity the number of a block's documents with each concept."""

    type: str
    of: Mapping[str, Counter[str]]


class BlockCount(NamedTuple):
    """The count of an identity in a block, and those of all exchangeable identities."""

    type: str
    own: int
    every: Sequence[int]


def permutation_p(blocks: Sequence[BlockCount]) -> float:
    """Return P(sum >= observed) if each count is drawn from those of its block."""
    law = np.ones(1)
    for block in blocks:
        if any(block.every):
            law = np.convolve(law, np.bincount(block.every) / len(block.every))
    return min(1.0, float(law[sum(block.own for block in blocks) :].sum()))


def partial_conjunction(blocks: Sequence[BlockCount]) -> float:
    """Return the p-value of the null hypothesis that at most one type shows the association.

    That is the largest p-value without one type; 1 for a single type.
    """
    types = {block.type for block in blocks}
    if len(types) < 2:
        return 1.0
    return max(permutation_p([b for b in blocks if b.type != without]) for without in types)


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
