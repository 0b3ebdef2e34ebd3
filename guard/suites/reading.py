"""What suites share in reading answers and summing them: thoughts left out, ratios over nothing."""

from __future__ import annotations

import re

import numpy as np

from guard.suites.contract import Floats

_TAG = r"(?:think(?:ing)?|reasoning)"
_THOUGHT = re.compile(rf"<{_TAG}>.*?(?:</{_TAG}>|\Z)", re.DOTALL | re.IGNORECASE)


def without_thought(text: str) -> str:
    """Return an answer without what a model thought aloud before it, in tags."""
    return _THOUGHT.sub("", text)


def ratio(above: Floats, below: Floats) -> Floats:
    """Return ``above / below`` by element, broadcast; nan where ``below`` is not above 0."""
    above, below = np.broadcast_arrays(above, below)
    nothing = np.full(below.shape, np.nan)
    return np.asarray(np.divide(above, below, out=nothing, where=below > 0), dtype=np.float64)


def share(totals: Floats) -> Floats:
    """Return the first over the second column of ``totals``, (..., 2 or more) -> (...)."""
    return ratio(totals[..., 0], totals[..., 1])
