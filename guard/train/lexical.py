"""Fits the n-gram model: logistic regression with an L2 penalty, by L-BFGS."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from guard.detect.lexical import BUCKETS, Floats, LexicalHead, grams, values
from guard.train.rows import Row

_SIZE = 2 * BUCKETS
# What the n-grams' logit weighs beside the network's, chosen on validation rows.
WEIGHT = 0.3
# Comments are where wording tells most: their rows count so often.
_REPEATS = {"redditbias": 3}


def fit_rows(rows: Sequence[Row]) -> LexicalHead:
    """Fit the rows whose label follows from their text alone."""
    known = [r for r in rows if r.known and r.alone is not None]
    known += [r for r in known for _ in range(_REPEATS.get(r.source, 1) - 1)]
    return fit([r.text for r in known], [bool(r.alone) for r in known])


def fit(
    texts: Sequence[str], labels: Sequence[bool], *, strength: float = 1.0, iterations: int = 60
) -> LexicalHead:
    """Return the model that minimises the summed log loss plus ``|w|^2 / (2 * strength)``.

    N-grams that occur in one text only are left out.
    """
    found = [grams(t) for t in texts]
    df = np.bincount(np.concatenate([g.ids for g in found]), minlength=_SIZE)
    idf: Floats = (np.log((1 + len(texts)) / (1 + df)) + 1).astype(np.float32)
    idf[df < 2] = 0
    rows = torch.from_numpy(np.repeat(np.arange(len(found)), [len(g.ids) for g in found]))
    columns = torch.from_numpy(np.concatenate([g.ids for g in found]))
    entries = torch.from_numpy(np.concatenate([values(g, idf) for g in found]))
    x = _sparse(rows, columns, entries, (len(found), _SIZE))
    x_t = _sparse(columns, rows, entries, (_SIZE, len(found)))
    y = torch.tensor([float(b) for b in labels])
    # The last entry is the bias, which is not penalised.
    parameter = torch.zeros(_SIZE + 1, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [parameter], max_iter=iterations, history_size=10, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        with torch.no_grad():
            w, b = parameter[:-1], parameter[-1]
            z = (x @ w[:, None]).squeeze(1) + b
            loss = torch.nn.functional.binary_cross_entropy_with_logits(z, y, reduction="sum")
            wrong = torch.sigmoid(z) - y
            slope = (x_t @ wrong[:, None]).squeeze(1) + w / strength
            # By hand: autograd through a sparse product is slower than both products.
            parameter.grad = torch.cat([slope, wrong.sum()[None]])
            total: Tensor = loss + w.square().sum() / (2 * strength)
            return total

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    done = parameter.detach().numpy()
    return LexicalHead(idf, done[:-1].copy(), float(done[-1]))


def _sparse(rows: Tensor, columns: Tensor, entries: Tensor, size: tuple[int, int]) -> Tensor:
    indices = torch.stack([rows, columns])
    with warnings.catch_warnings():
        # torch calls its sparse rows a beta; the two products used here are exact.
        warnings.simplefilter("ignore")
        return torch.sparse_coo_tensor(indices, entries, size).coalesce().to_sparse_csr()


def save(head: LexicalHead, path: Path) -> None:
    """Write the model as an npz file, in half precision."""
    np.savez(
        path,
        idf=head.idf.astype(np.float16),
        weight=head.weight.astype(np.float16),
        bias=np.float32(head.bias),
    )
