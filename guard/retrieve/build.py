"""Making a bias index from a file of statements.

Why: docs/decisions/rounded-vectors.md.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from guard.errors import BiasIndexError
from guard.retrieve.embedder import StatementEmbedder
from guard.retrieve.index import BiasIndex
from guard.retrieve.resume import VectorCache
from guard.retrieve.statement import read_statements

# Multiples of this are 16-bit numbers with few digits, so a package compresses them.
_STEP = 1 / 2048


def rounded_vectors(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale rows to length 1 and round to multiples of 1/2048: a cosine moves by less than .001."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    nearest: NDArray[np.float32] = np.rint(unit / _STEP) * _STEP
    return nearest


def build_index(statements_path: Path, folder: Path, embedder: StatementEmbedder) -> BiasIndex:
    """Embed the statements of ``statements_path`` and save them as an index in ``folder``.

    The vectors are rounded to multiples of 1/2048. The file may be in ``folder``; it is then
    rewritten in normalised form.

    Raises:
        BiasIndexError: the file has an invalid line or no statement, or the embedder did not
            return one vector of length 1 for each statement; nothing is written.

    """
    statements = read_statements(statements_path)
    if not statements:
        raise BiasIndexError(f"{statements_path} has no statement.")
    texts = [s.statement for s in statements]
    vectors = rounded_vectors(VectorCache(None).vectors(texts, embedder))
    index = BiasIndex(statements, vectors, embedder.name)
    index.save(folder)
    return index
