"""Own-written examples, and the evaluation data where it is present."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.data import DATA, absent


@pytest.fixture
def data() -> Path:
    if not DATA.is_dir():
        pytest.skip(absent())
    return DATA
