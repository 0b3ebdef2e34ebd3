"""A run as one page that needs no network: both arms side by side, and every item."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from guard import __version__
from guard.audit import grids
from guard.audit.grids import Grid, printed
from guard.audit.reports import figures, side_by_side
from guard.audit.reports.charts import Chart
from guard.audit.reports.checks import checks, counts_text
from guard.audit.reports.content import Content, SuiteContent
from guard.audit.reports.differences import differences, grid, headlines, sides, stops, title
from guard.audit.reports.drawing import draw
from guard.audit.reports.packing import CHUNK, Packed, pack
from guard.audit.reports.texts import for_xml, one_line
from guard.results import STYLE

_FOLDER = Path(__file__).parent
_ROWS = 300  # of a table; the JSON has all
_OPEN = 40  # rows of a table that is not folded


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawn chart, with a table of its values."""

    chart: Chart
    svg: Any  # jinja2's Markup
    table: Grid


def render(template: str, **values: Any) -> str:
    """Return a page; all texts are escaped and valid XML."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    def shown(value: Any) -> Any:
        return for_xml(value) if type(value) is str else value

    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=shown,
    )
    environment.globals["tone"] = tone
    style = Markup(STYLE.read_text("utf-8"))
    return str(
        environment.get_template(template).render(version=__version__, style=style, **values)
    )


def tone(reading: str) -> str:
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


def figure(chart: Chart) -> Figure:
    """Return a drawn chart for the templates."""
    from markupsafe import Markup

    return Figure(chart, Markup(draw(chart)), chart.table())


def page(content: Content) -> str:
    """Return the page."""
    from markupsafe import Markup

    items = pack([one.rows for one in content.suites])
    found = differences(content)
    leading = figures.summary(content)
    several = side_by_side.has_several(content)
    stopped = stops(content) if content.comparison is None else None
    return render(
        "page.html",
        title=one_line(f"Bias audit: {content.run}"),
        content=content,
        state=content.state(),
        headlines=headlines(content),
        stopped=stopped if stopped is not None and stopped.rows else None,
        differences=grid(found[:_OPEN], sides(content), title(content)) if found else None,
        further=max(0, len(found) - _OPEN),
        leading=figure(leading) if leading.has_data else None,
        checks=counts_text(checks(content)),
        models=side_by_side.models_grid(content) if several else None,
        models_note=side_by_side.NOTE,
        model_charts=[figure(chart) for chart in side_by_side.model_charts(content)]
        if several
        else [],
        suites=[
            _suite(number, one, packed)
            for number, (one, packed) in enumerate(zip(content.suites, items, strict=True))
        ],
        most=_ROWS,
        open=_OPEN,
        chunk=CHUNK,
        script=Markup((_FOLDER / "page.js").read_text("utf-8")),
    )


def _suite(number: int, content: SuiteContent, held: Packed) -> Mapping[str, Any]:
    """Return the template's variables for a suite."""
    result = content.result
    rows = content.rows
    return {
        "id": f"suite{number}",
        "number": number,
        "name": content.name,
        "result": result,
        "paper": getattr(content.suite, "paper", ""),
        "state": content.state(),
        "warning": result.about.get("warning", ""),
        "judges": grids.judges(result),
        "figures": [figure(chart) for chart in figures.charts(content, f"suite{number}-")],
        "outcomes": grids.outcomes(result),
        "tables": list(_tables(content)),
        "remarks": [
            (arm, remark)
            for arm, findings in result.findings.items()
            for remark in findings.get("remarks", ())
        ],
        "published": grids.published(result) if result.published else None,
        "legend": grids.legend(result),
        "key": [(name, str(value)) for name, value in result.about.get("key", {}).items()],
        "held": held,
        "flipped": content.flipped,
        "about": sorted({row.about for row in rows}),
        "names": sorted({name for row in rows for name in (row.plain, row.guarded)} - {""}),
        "guarded": "guarded" in result.arms,
        "compared": any(row.base for row in rows),
    }


def _tables(content: SuiteContent) -> Iterator[Grid]:
    """Yield the tables of a suite, the widest figures first."""
    result = content.result
    if failed := grids.errors(result):
        yield failed
    if result.stops:
        yield grids.both_arms(grids.STOPS, result.stops)
    yield grids.scores(result, printed(result), grids.scores_title(result))
    yield from (part for part in grids.by_identity(result) if isinstance(part, Grid))
    yield from (grid for grid, _ in grids.findings_tables(result))
