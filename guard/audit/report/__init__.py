"""Reports of a run: a page, a comment, JUnit, SARIF, JSON and a table of the items."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
"""The folder of the templates."""
