"""What pages share: a style that follows light and dark, and charts in its colours."""

from __future__ import annotations

from pathlib import Path

__all__ = ["STYLE"]

STYLE = Path(__file__).parent / "page.css"
"""The style sheet."""
