"""Making a bias index from a file of statements."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from guard.errors import BiasIndexError
from guard.retrieve.embedder import Embedder
from guard.retrieve.index import BiasIndex
from guard.retrieve.resume import VectorCache
from guard.retrieve.statement import read_statements


def build(statements_path: Path, folder: Path, embedder: Embedder) -> BiasIndex:
    """Embed the statements of ``statements_path`` and save them as an index in ``folder``.

    The vectors are rounded to 16-bit numbers. The file may be in ``folder``; it is then rewritten
    in normalised form.

    Raises:
        BiasIndexError: the file has an invalid line or no statement, or the embedder did not
            return one vector of length 1 for each statement; nothing is written.

    """
    statements = read_statements(statements_path)
    if not statements:
        raise BiasIndexError(f"{statements_path} has no statement.")
    texts = [s.statement for s in statements]
    # Rounded to 16 bits: half the bytes, and a similarity changes by less than 1e-4.
    vectors = VectorCache(None).vectors(texts, embedder).astype(np.float16).astype(np.float32)
    index = BiasIndex(statements, vectors, embedder.name)
    index.save(folder)
    return index
