"""The small detector's files, for tests that need a judge and no particular one."""

from __future__ import annotations

from guard.detect.weights import shipped_weights
from guard.places import shipped_index

WEIGHTS = shipped_weights("encoder-small")
INDEX = shipped_index("encoder-small")
