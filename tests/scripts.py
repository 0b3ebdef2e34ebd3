"""Loads a script that lies outside of the package."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest


def load(path: Path, patch: pytest.MonkeyPatch) -> Any:
    """Return the script at ``path`` as a module, which pickle and dataclasses find by its name."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    patch.setitem(sys.modules, path.stem, module)
    spec.loader.exec_module(module)
    return module
