"""The published data that some tests read: it is no part of this repository."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("BIASGUARD_TEST_DATA", ROOT.parent / "shared" / "data"))


def absent(folder: Path = DATA) -> str:
    """Why a test is skipped; the summary of a run counts the skips that name ``DATA``."""
    return f"{folder} is absent"


def needs(folder: Path = DATA) -> pytest.MarkDecorator:
    """Return the mark of tests that do not run where the folder is absent."""
    return pytest.mark.skipif(not folder.is_dir(), reason=absent(folder))


needs_data = needs()


def digest(items: Iterable[object]) -> tuple[int, str]:
    """Return how many items there are, and a hash of all that they say."""
    found, count = hashlib.sha256(), 0
    for item in items:
        found.update(f"{item}\n".encode("utf-8", "surrogatepass"))
        count += 1
    return count, found.hexdigest()[:16]
