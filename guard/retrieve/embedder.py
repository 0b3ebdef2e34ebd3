"""The protocol of embedders, which turn text into the vectors of a bias index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

#: Tolerance of a vector's length, 1: float32 rounding, and vectors stored with 16 bits.
LENGTH_TOLERANCE = 1e-3


class StatementEmbedder(Protocol):
    """Turns texts into vectors of length 1, so that an inner product is a cosine.

    Embedders with the same name must return the same vectors: an index is only searched with the
    embedder that it names.
    """

    @property
    def name(self) -> str:
        """Name and version of the weights, as an index's manifest records it."""
        ...

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one row of length 1 for each text, in order: shape ``(len(texts), dim)``."""
        ...
