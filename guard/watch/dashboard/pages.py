"""Renders the templates; filters format times, counts and rates."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from guard import __version__
from guard.results import STYLE
from guard.watch.rates import rate_text

_FOLDER = Path(__file__).parent
SCRIPT = (_FOLDER / "static" / "dashboard.js").read_text("utf-8")
SHEET = STYLE.read_text("utf-8") + (_FOLDER / "static" / "dashboard.css").read_text("utf-8")


def when(seconds: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Return a time in UTC."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime(form)


def count(number: float) -> str:
    """Return a number with thousands separators."""
    return f"{number:,.0f}"


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"when": when, "count": count, "rate_text": rate_text}
    return environment


_PAGES = _environment()


def page(name: str, **values: Any) -> str:
    """Return a page from its template; all values are escaped."""
    return _PAGES.get_template(name).render(**values)


def about(current: str) -> dict[str, str]:
    """Return the values that every page needs; ``current`` is its name in the navigation."""
    return {"current": current, "version": __version__}
