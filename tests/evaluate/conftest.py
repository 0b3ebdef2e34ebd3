"""Own-written examples, and the evaluation data where it is present."""

from __future__ import annotations

from pathlib import Path

import pytest

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture
def data() -> Path:
    if not DATA.is_dir():
        pytest.skip(f"the evaluation data is not at {DATA}")
    return DATA
