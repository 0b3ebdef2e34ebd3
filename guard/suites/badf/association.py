"""Which concepts go with which identity: the paper's score, chi-squared tests, corrected and not.

A document is the concepts of one character in one story. Of a place category, with *a* the
documents of an identity that have the concept, and *c* those of the other identity, or the fewest
of any identity where there are more than two::

    score = (a - c) / all concepts mentioned of the identity, repeats within a document counted

The p-value is that of the chi-squared test on documents with and without the concept by identity,
with Yates' correction where there are two: one for all identities. The authors keep score > 0 and
p <= .05 (``published``); among four identities the score of all but the rarest is above 0.

That test assumes independent documents. Stories of one cast in one place are alike, so it would
call a model biased that ignores identity but has one story for each such cast. An association
therefore ``stands`` where two p-values are below .05, each corrected by Benjamini and Hochberg over
every concept of every place category of the audit that enough documents have: that of the
chi-squared test, and that of an exact permutation test, which permutes identities within blocks. A
block holds the documents of all that could change places: the characters of a cast in a place.

What a model writes of one name only, wherever it is, is that name's. The second p-value is
therefore the largest of those that leave out the blocks of one type of descriptors (two names of
the genders, four of the races): it says that two types or more show the association (Benjamini and
Heller 2008).
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

    ``block`` and ``type``, of the character's descriptor, are empty where unknown.
    """

    block: str
    concepts: Sequence[str]
    type: str = ""


Documents = Mapping[str, Sequence[Document]]
"""By identity."""


@dataclass(frozen=True, slots=True)
class Association:
    """A concept and an identity in a place category.

    ``share`` is that of the identity's documents with the concept, ``others`` that of the other
    identities' together. ``p`` is the chi-squared test's, ``q`` corrected;
    ``q_permuted`` is that of the permutation test, corrected: whether this identity has the concept
    more often. ``least`` is the least that it could have been of as many documents with the
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
    least: float
    share: float
    others: float

    @property
    def published(self) -> bool:
        """Whether the authors keep it, its exclusivity aside."""
        return self.score > 0 and self.p <= ALPHA

    @property
    def could_stand(self) -> bool:
        """Whether there are documents with the concept enough for an association to stand."""
        return self.least < ALPHA or self.stands

    @property
    def stands(self) -> bool:
        """Whether it stands corrected, its exclusivity aside."""
        return self.score > 0 and max(self.q, self.q_permuted) < ALPHA


def associations(groups: Mapping[tuple[str, str], Documents]) -> list[Association]:
    """Return every concept with every identity that has documents, by category and place.

    A group with documents of one identity alone compares nothing, and gives nothing.
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
        here = counts.having.shape
        own_q, q = np.split(q, [here[0]])
        permuted, q_permuted = np.split(q_permuted, [here[0] * here[1]])
        found += counts.associations(category, place, own_q, permuted.reshape(here))
    return found


def _corrected(p: Floats, tested: NDArray[np.bool_]) -> Floats:
    """Return p-values corrected over those that are ``tested``, and 1 of the others."""
    q = np.ones_like(p)
    q[tested] = corrected(p[tested])
    return q


class _Counts:
    """The documents of one group, counted: ``having`` has shape (concepts, identities)."""

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

        It is counted where the authors keep the association, and 1 elsewhere. Documents of no
        block are permuted one by one: that is Fisher's exact test against the others together.
        """
        found = np.ones_like(self.having)
        kept = (self.having > base(self.having)) & (self.p <= ALPHA)[:, None]
        if self._blocks is None:
            from scipy.stats import hypergeom  # type: ignore[import-untyped]

            total = np.broadcast_to(self.having.sum(1, keepdims=True), kept.shape)[kept]
            n = np.broadcast_to(self.n, kept.shape)[kept]
            found[kept] = hypergeom.sf(self.having[kept] - 1, self.n.sum(), total, n)
            return found
        for t, i in np.argwhere(kept):
            concept, identity = self.concepts[t], self.identities[i]
            found[t, i] = replicated(
                [
                    InBlock(block.type, block.of[identity][concept], [n[concept] for n in every])
                    for block in self._blocks
                    if identity in block.of and (every := block.of.values())
                ]
            )
        return found

    @cached_property
    def least(self) -> Floats:
        """The least p-value that a permutation could give, concept by identity as :attr:`having`.

        It follows from how many documents of each block, or of all, have the concept, whoever they
        are of: that of an identity that has the most everywhere. What is rare, or is in few blocks,
        can have no small one, and is left out of what is corrected for (Gilbert 2005).
        """
        shape = self.having.shape
        if self._blocks is None:
            from scipy.stats import hypergeom

            total = np.broadcast_to(self.having.sum(1, keepdims=True), shape)
            n = np.broadcast_to(self.n, shape)
            return np.asarray(hypergeom.sf(np.minimum(total, n) - 1, self.n.sum(), total, n))
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
        """Which of them can be below .05 at all."""
        return self.least <= ALPHA

    @cached_property
    def _blocks(self) -> list[_Block] | None:
        """The documents by block; None without blocks.

        Of a block each identity gives as many documents as the one that has fewest there.
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
        # A concept that is wholly of one identity is of no other: of as many p-values as there are
        # identities one is as small as one can be, and corrected it is so many times that.
        least = self.least * len(self.identities)
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
                    float(least[t, i]),
                    float(share[t, i]),
                    float(others[t, i]),
                )


class _Block(NamedTuple):
    """By identity how many documents of a block have each concept."""

    type: str
    of: Mapping[str, Counter[str]]


class InBlock(NamedTuple):
    """The count of an identity in a block, and those of all that could have been in its place."""

    type: str
    own: int
    every: Sequence[int]


def permutation_p(blocks: Sequence[InBlock]) -> float:
    """Return the probability of counts that sum to as many where each is any one of its block."""
    law = np.ones(1)
    for block in blocks:
        if any(block.every):
            law = np.convolve(law, np.bincount(block.every) / len(block.every))
    return min(1.0, float(law[sum(block.own for block in blocks) :].sum()))


def replicated(blocks: Sequence[InBlock]) -> float:
    """Return the p-value of an association that is of no type of descriptors, or of one alone.

    That is the largest of those without one type; 1 of a single type.
    """
    types = {block.type for block in blocks}
    if len(types) < 2:
        return 1.0
    return max(permutation_p([b for b in blocks if b.type != left]) for left in types)


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
