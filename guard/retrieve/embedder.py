"""What turns text into the vectors of a bias index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

#: How far a vector's length may be from 1: float32 rounding, and 16-bit vectors read back.
LENGTH_TOLERANCE = 1e-3


class Embedder(Protocol):
    """Turns texts into vectors whose inner product is their cosine.

    Two embedders with one name must give the same vectors: an index is only searched with the
    embedder it names.
    """

    @property
    def name(self) -> str:
        """Name and version of the weights, as an index's manifest records it."""
        ...

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one row of length 1 a text, in order: shape ``(len(texts), dim)``."""
        ...
