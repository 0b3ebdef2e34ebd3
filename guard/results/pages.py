"""Pages from Jinja's templates, in guard's style: the audit's reports and the dashboard."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from guard.results import STYLE
from guard.texts import for_xml

if TYPE_CHECKING:
    from jinja2 import Environment

    from guard.results.table import Table

_FOLDER = Path(__file__).parent
_ROWS = 10_000


def environment(*folders: Path, finalize: Callable[[Any], Any] | None = None) -> Environment:
    """Return an environment with the templates of ``folders`` and of this room.

    All values are escaped.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader([*folders, _FOLDER]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=finalize,
    )


def render_page(folder: Path, template: str, **values: Any) -> str:
    """Return a page that needs no network; all texts are escaped and valid XML."""
    from markupsafe import Markup

    from guard import __version__

    style = Markup(STYLE.read_text("utf-8"))
    page = environment(folder, finalize=_for_xml).get_template(template)
    return str(page.render(version=__version__, style=style, **values))


def table_page(title: str, table: Table) -> str:
    """Return a page of one table with its notes."""
    return render_page(_FOLDER, "table.html", title=title, table=table, most=_ROWS)


@cache
def page_macros() -> Any:
    """Return the macros of tables and charts."""
    jinja = environment(finalize=_for_xml)
    jinja.globals["tone"] = tone_class
    return jinja.get_template("macros.html").module


def _for_xml(value: Any) -> Any:
    return for_xml(value) if type(value) is str else value


def tone_class(reading: str) -> str:
    """Return the class of a reading in words: "worse", "better", "undecided" or none."""
    for name, words in _TONES.items():
        if any(word in reading for word in words):
            return name
    return ""


_TONES = {
    "worse": ("regression", "worse", "bias found"),
    "better": ("better",),
    "undecided": ("inconclusive", "too few", "not known", "no interval"),
}
