"""Groups of texts that are alike: greedy leader clustering by the cosine of their embeddings."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def leaders(vectors: NDArray[np.float32], threshold: float) -> list[int]:
    """Return for each of ``vectors`` (n, dim), of norm 1, the place of its leader.

    The first that has none leads, and takes every later one that has none and whose cosine with it
    is ``threshold`` or more.
    """
    found = np.full(len(vectors), -1)
    for place in range(len(vectors)):
        if found[place] < 0:
            left = place + np.flatnonzero(found[place:] < 0)
            alike = vectors[left] @ vectors[place] >= threshold
            alike[0] = True  # itself, whatever rounding says
            found[left[alike]] = place
    return [int(leader) for leader in found]
