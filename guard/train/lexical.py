"""Fits the n-gram model: logistic regression with an L2 penalty, by L-BFGS."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from guard.detect.lexical import BUCKETS, Floats, LexicalHead, grams, values
from guard.train.rows import TrainingRow

_SIZE = 2 * BUCKETS
# What the n-grams' logit weighs beside the network's, chosen on validation rows.
WEIGHT = 0.3
# Comments are where wording tells most: their rows count so often.
_REPEATS = {"redditbias": 3}


def fit_rows(rows: Sequence[TrainingRow]) -> LexicalHead:
    """Fit the rows whose label follows from their text alone."""
    known = [r for r in rows if r.known and r.alone is not None]
    weights = [float(_REPEATS.get(r.source, 1)) for r in known]
    return fit([r.text for r in known], [bool(r.alone) for r in known], weights)


def fit(
    texts: Sequence[str],
    labels: Sequence[bool],
    weights: Sequence[float] | None = None,
    *,
    strength: float = 1.0,
) -> LexicalHead:
    """Return the model that minimises the summed log loss plus ``|w|^2 / (2 * strength)``.

    The bias is not penalised. N-grams that occur in one text only are left out.
    """
    from scipy.sparse import csr_matrix  # type: ignore[import-untyped]
    from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]

    found = [*map(grams, texts)]
    ids = np.concatenate([g.ids for g in found])
    df = np.bincount(ids, minlength=_SIZE)
    idf: Floats = (np.log((1 + len(texts)) / (1 + df)) + 1).astype(np.float32)
    idf[df < 2] = 0
    entries = np.concatenate([values(g, idf) for g in found])
    starts = np.cumsum([0, *(len(g.ids) for g in found)])
    x = csr_matrix((entries.astype(np.float64), ids, starts), (len(texts), _SIZE))
    model = LogisticRegression(C=strength, max_iter=500)
    model.fit(x, np.array(labels, bool), weights)
    return LexicalHead(idf, model.coef_[0], float(model.intercept_[0]))


def save(head: LexicalHead, path: Path) -> None:
    """Write the model as an npz file, in half precision."""
    np.savez(
        path,
        idf=head.idf.astype(np.float16),
        weight=head.weight.astype(np.float16),
        bias=np.float32(head.bias),
    )
