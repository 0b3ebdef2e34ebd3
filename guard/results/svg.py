"""Matplotlib figures as inline SVG: coloured by the page, labelled for screen readers.

Figures are drawn in placeholder colours, which become the page's CSS variables and so follow the
reader's light or dark setting. Text stays text. Style attributes become presentation attributes,
because a strict content security policy refuses inline styles.
"""

from __future__ import annotations

import html
import io
import re
import threading
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, LINE, PAPER = "#010101", "#020202", "#030303"
SERIES = ("#0a0001", "#0a0002", "#0a0003", "#0a0004")
MARKERS = "osD^"
WIDTH = 5.2  # inches: legible on a telephone
_PAGE = {INK: "currentColor", LINE: "var(--line)", PAPER: "var(--paper)"} | {
    colour: f"var(--c{number})" for number, colour in enumerate(SERIES)
}
_SETTINGS: Mapping[str, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with Matplotlib
    "font.size": 9,
    "hatch.linewidth": 0.6,
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.facecolor": "none",
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": LINE,
    "legend.frameon": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "figure.facecolor": "none",
}
_FONT = re.compile(r"(?P<size>[\d.]+(?:px|pt)) (?P<family>.+)")
_drawing = threading.Lock()  # rc_context changes Matplotlib's settings for the whole process


def drawn_figure(name: str, title: str, text: str, draw: Callable[[Figure], None]) -> str:
    """Return the figure that ``draw`` fills as an ``svg`` element.

    ``name`` prefixes its ids and must be unique on the page; ``title`` and ``text`` are its
    accessible name and description.
    """
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    out = io.StringIO()
    with (
        _drawing,
        matplotlib.rc_context({**_SETTINGS, "svg.hashsalt": name}),
        warnings.catch_warnings(),
    ):
        # Matplotlib's font may lack a glyph that the reader's font has.
        warnings.filterwarnings("ignore", "Glyph", UserWarning)
        figure = Figure(layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure)
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return _inline_svg(out.getvalue(), name, title, text)


def _inline_svg(svg: str, name: str, title: str, text: str) -> str:
    """Return an SVG file as an element with prefixed ids and the page's colours."""
    svg = svg[svg.index("<svg") :]
    # A style element inside would apply to the whole page; page.css has its rules.
    svg = re.sub(r"<(metadata|style)\b.*?</\1>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' style="([^"]*)"', lambda match: _style_attributes(match[1]), svg)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'((?:xlink:)?href="#|url\(#)', rf"\g<1>{name}-", svg)
    for placeholder, colour in _PAGE.items():
        svg = svg.replace(placeholder, colour)
    head, _, rest = svg.partition(">")
    head = re.sub(r' (?:width|height|xmlns|xmlns:xlink|version)="[^"]*"', "", head)
    labelled = f'role="img" aria-labelledby="{name}-title {name}-desc"'
    title_ = f'<title id="{name}-title">{html.escape(title)}</title>'
    description = f'<desc id="{name}-desc">{html.escape(text)}</desc>'
    return f"{head} {labelled}>{title_}{description}{rest.strip()}"


def _style_attributes(style: str) -> str:
    """Return a ``style`` attribute's declarations as presentation attributes."""
    attributes: dict[str, str] = {}
    for part in style.split(";"):
        name, _, value = (text.strip() for text in part.partition(":"))
        font = _FONT.fullmatch(value) if name == "font" else None
        if font is not None:
            attributes |= {"font-size": font["size"], "font-family": font["family"]}
        elif name:
            attributes[name] = value
    return "".join(f' {name}="{value}"' for name, value in attributes.items())
