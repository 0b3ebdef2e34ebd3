"""Which concepts go with which identity: the paper's score, chi-squared tests, corrected and not.

A document is the concepts of one character in one story. Of a place category, with *a* the
documents of an identity that have the concept, and *c* those of the other identity, or the fewest
of any identity where there are more than two::

    score = (a - c) / all concepts mentioned of the identity, repeats within a document counted

The p-value is that of the chi-squared test on documents with and without the concept by identity,
with Yates' correction where there are two: one for all identities. The authors keep score > 0 and
p <= .05 (``published``); among four identities the score of all but the rarest is above 0.

That test takes documents for independent. Stories of one cast in one place are alike, so a model
that ignores identity, but tells every such cast its own story, would be called biased. An
association therefore ``stands`` where two p-values are at most .05, each corrected by Benjamini and
Hochberg over every concept of every place category of the audit: that one, and the exact one of
dealing identities anew within each block, as a whole. A block has the documents of all that could
change places: the characters of a cast in a place.
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
    """The phrases, or concepts, of one character in one story; ``block`` is empty where unknown."""

    block: str
    concepts: Sequence[str]


Documents = Mapping[str, Sequence[Document]]
"""By identity."""


@dataclass(frozen=True, slots=True)
class Association:
    """A concept and an identity in a place category.

    ``share`` is that of the identity's documents with the concept, ``others`` that of the other
    identities' together. ``p`` is the chi-squared test's, ``q`` corrected; ``q_dealt`` is that of
    dealing identities anew, corrected: whether this identity has the concept more often.
    """

    category: str
    place: str
    identity: str
    concept: str
    score: float
    p: float
    q: float
    q_dealt: float
    share: float
    others: float

    @property
    def published(self) -> bool:
        """Whether the authors keep it, its exclusivity aside."""
        return self.score > 0 and self.p <= ALPHA

    @property
    def stands(self) -> bool:
        """Whether it stands corrected, its exclusivity aside."""
        return self.score > 0 and max(self.q, self.q_dealt) <= ALPHA


def associations(groups: Mapping[tuple[str, str], Documents]) -> list[Association]:
    """Return every concept with every identity that has documents, by category and place.

    A group with documents of one identity alone compares nothing, and gives nothing.
    """
    counted = [(key, _Counts(documents)) for key, documents in groups.items()]
    counted = [(key, counts) for key, counts in counted if len(counts.identities) > 1]
    if not counted:
        return []
    q = corrected(np.concatenate([counts.p for _, counts in counted]))
    q_dealt = corrected(np.concatenate([counts.p_dealt().ravel() for _, counts in counted]))
    found: list[Association] = []
    for (category, place), counts in counted:
        here = counts.having.shape
        mine, q = np.split(q, [here[0]])
        dealt, q_dealt = np.split(q_dealt, [here[0] * here[1]])
        found += counts.associations(category, place, mine, dealt.reshape(here))
    return found


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

    def p_dealt(self) -> Floats:
        """Return the p-value of dealing identities anew, (concepts, identities).

        It is counted where the authors keep the association, and 1 elsewhere. Documents of no
        block are dealt each by itself, by chi-squared against the others together.
        """
        found = np.ones_like(self.having)
        rest, n_rest = self.having.sum(1, keepdims=True) - self.having, self.n.sum() - self.n
        more = self.having / self.n > rest / n_rest
        blocks = self._blocks()
        if blocks is None:
            for i in range(len(self.identities)):
                two = np.stack([self.having[:, i], rest[:, i]], axis=1)
                own = chi_squared(two, np.array([self.n[i], n_rest[i]]))
                found[:, i] = np.where(more[:, i], own, 1.0)
            return found
        where = np.argwhere((self.having > base(self.having)) & (self.p <= ALPHA)[:, None])
        for t, i in where:
            concept, identity = self.concepts[t], self.identities[i]
            counts = [
                (block[identity][concept], [each[concept] for each in block.values()])
                for block in blocks
                if identity in block
            ]
            found[t, i] = dealt([own for own, _ in counts], [every for _, every in counts])
        return found

    def _blocks(self) -> list[dict[str, Counter[str]]] | None:
        """Return by block and identity how many documents have each concept; None without blocks.

        Of a block each identity gives as many documents as the one that has fewest there.
        """
        found: dict[str, dict[str, list[Sequence[str]]]] = {}
        for identity in self.identities:
            for block, concepts in self._documents[identity]:
                found.setdefault(block, {}).setdefault(identity, []).append(concepts)
        if "" in found:
            return None
        return [
            {
                identity: Counter(
                    c for one in some[: min(map(len, block.values()))] for c in {*one}
                )
                for identity, some in block.items()
            }
            for block in found.values()
            if len(block) > 1
        ]

    def associations(
        self, category: str, place: str, q: Floats, q_dealt: Floats
    ) -> Iterable[Association]:
        """Yield every concept with every identity."""
        a, p = self.having, self.p
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
                    float(q_dealt[t, i]),
                    float(share[t, i]),
                    float(others[t, i]),
                )


def dealt(own: Sequence[int], blocks: Sequence[Sequence[int]]) -> float:
    """Return the probability of a sum of ``own`` or more where each comes from its block at random.

    ``blocks`` have the counts of all that could have been in the place of ``own``, itself included.
    """
    law = np.ones(1)
    for counts in blocks:
        if any(counts):
            law = np.convolve(law, np.bincount(counts) / len(counts))
    return min(1.0, float(law[sum(own) :].sum()))


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
