"""Making a bias index from a file of statements."""

from __future__ import annotations

from pathlib import Path

from guard.errors import BiasIndexError
from guard.retrieve.embedder import Embedder
from guard.retrieve.index import BiasIndex
from guard.retrieve.resume import Kept
from guard.retrieve.statement import read_statements


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
    index = BiasIndex(statements, Kept(None).vectors(texts, embedder), embedder.name)
    index.save(folder)
    return index
