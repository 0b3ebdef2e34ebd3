"""Templates, and how values are written in them."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from guard import __version__
from guard.page import STYLE
from guard.watch.rates import Rate

_FOLDER = Path(__file__).parent
SCRIPT = (_FOLDER / "static" / "dashboard.js").read_text("utf-8")
SHEET = STYLE.read_text("utf-8") + (_FOLDER / "static" / "dashboard.css").read_text("utf-8")


def when(seconds: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Return a time in UTC."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime(form)


def count(number: float) -> str:
    """Return a number with its thousands set apart."""
    return f"{number:,.0f}"


def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"when": when, "count": count, "rate": lambda of: Rate(*of[:3]).text}
    return made


_PAGES = _environment()


def page(name: str, **values: Any) -> str:
    """Return a page from its template; all values are escaped."""
    return _PAGES.get_template(name).render(**values)


def about(here: str) -> dict[str, str]:
    """Return what every page shows; ``here`` is its name in the navigation."""
    return {"here": here, "version": __version__}
