"""Shared by guard's HTML pages: a style sheet for light and dark, and charts in its colours."""

from __future__ import annotations

from pathlib import Path

__all__ = ["STYLE"]

STYLE = Path(__file__).parent / "page.css"
"""The style sheet."""
