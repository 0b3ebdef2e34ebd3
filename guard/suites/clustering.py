"""Greedy leader clustering of texts by the cosine of their embeddings."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def leaders(vectors: NDArray[np.float32], threshold: float) -> list[int]:
    """Return the index of each vector's leader; ``vectors`` (n, dim) have norm 1.

    In order, each vector without a leader becomes one. It also leads every later vector that has
    none and whose cosine with it is ``threshold`` or more.
    """
    leader_of = np.full(len(vectors), -1)
    for place in range(len(vectors)):
        if leader_of[place] < 0:
            open_ = place + np.flatnonzero(leader_of[place:] < 0)
            similar = vectors[open_] @ vectors[place] >= threshold
            similar[0] = True  # itself, whatever rounding says
            leader_of[open_[similar]] = place
    return [int(leader) for leader in leader_of]
