"""Numbers with intervals, tables and charts, for suites, audits, rates and evaluation.

The ground floor: it imports nothing of guard but errors and texts. Who shows a figure asks here for
its interval, its table and its chart; the style sheet of every page is here, too.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["STYLE"]

STYLE = Path(__file__).parent / "page.css"
"""The style sheet of guard's HTML pages, for light and dark."""
