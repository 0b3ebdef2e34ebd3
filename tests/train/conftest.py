from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest


@pytest.fixture(scope="module")
def base_read_once() -> Iterator[None]:
    """The published base is hashed once, and not at each of the four times that a run reads it.

    So is the embedder, which no run changes.
    """
    pytest.importorskip("torch")
    from guard.train import base, encoder

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "base_folder", cache(base.base_folder))
        patch.setattr(encoder, "text_embedder", cache(base.text_embedder))
        yield
