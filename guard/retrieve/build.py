"""Making a bias index from a file of statements."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from guard.errors import BiasIndexError
from guard.retrieve.embedder import Embedder
from guard.retrieve.index import BiasIndex
from guard.retrieve.statement import read_statements

# Bounds what an embedder holds at once.
BATCH = 256


def build(statements_path: Path, folder: Path, embedder: Embedder) -> BiasIndex:
    """Embed the statements of ``statements_path`` and save them as an index in ``folder``.

    The two may lie in one place: the statements are then written back in their one spelling.

    Raises:
        BiasIndexError: the file has a wrong line or no statement, or the embedder did not give
            one vector of length 1 a statement; nothing is written.

    """
    statements = read_statements(statements_path)
    if not statements:
        raise BiasIndexError(f"{statements_path} holds no statement.")
    texts = [s.statement for s in statements]
    parts = [embedder.embed(texts[i : i + BATCH]) for i in range(0, len(texts), BATCH)]
    try:
        index = BiasIndex(statements, np.concatenate(parts), embedder.name)
    except ValueError as error:
        raise BiasIndexError(
            f"The embedder '{embedder.name}' gave vectors that cannot be used: {error}."
        ) from error
    index.save(folder)
    return index
