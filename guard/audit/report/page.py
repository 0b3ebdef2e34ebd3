"""A run as one page that needs no network: both arms side by side, and every item."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from guard.audit.report import FOLDER, models, tables
from guard.audit.report.charts import suite_charts, summary_chart
from guard.audit.report.checks import content_checks, counts_text
from guard.audit.report.content import Content, SuiteContent
from guard.audit.report.differences import differences_table, main_findings, stops_table
from guard.audit.report.packing import CHUNK, Packed, pack_suites
from guard.audit.report.tables import printed_lines
from guard.results.pages import render_page
from guard.results.table import Table
from guard.texts import one_line

_OPEN = 40  # rows of a table that is not folded


def report_page(content: Content) -> str:
    """Return the page."""
    from markupsafe import Markup

    items = pack_suites([suite.rows for suite in content.suites])
    differences = differences_table(content)
    leading = summary_chart(content)
    several = models.has_several(content)
    stopped = stops_table(content) if content.comparison is None else None
    return render_page(
        FOLDER,
        "page.html",
        title=one_line(f"Bias audit: {content.run}"),
        content=content,
        state=content.state(),
        headlines=main_findings(content),
        stopped=stopped if stopped is not None and stopped.rows else None,
        differences=replace(differences, rows=differences.rows[:_OPEN]),
        further=max(0, len(differences.rows) - _OPEN),
        leading=leading if leading.has_data else None,
        checks=counts_text(content_checks(content)),
        models=models.models_table(content) if several else None,
        model_charts=list(models.model_charts(content)) if several else [],
        suites=[
            _suite_variables(number, suite, packed)
            for number, (suite, packed) in enumerate(zip(content.suites, items, strict=True))
        ],
        open=_OPEN,
        chunk=CHUNK,
        script=Markup((FOLDER / "page.js").read_text("utf-8")),
    )


def _suite_variables(number: int, content: SuiteContent, held: Packed) -> Mapping[str, Any]:
    """Return the template's variables for a suite."""
    result = content.result
    rows = content.rows
    return {
        "id": f"suite{number}",
        "number": number,
        "name": content.name,
        "result": result,
        "paper": content.suite.about.paper,
        "state": content.state(),
        "warning": result.about.get("warning", ""),
        "judges": tables.judges_sentence(result),
        "figures": suite_charts(content, f"suite{number}-"),
        "outcomes": tables.outcomes_table(result),
        "tables": list(_suite_tables(content)),
        "remarks": [
            (arm, remark)
            for arm, findings in result.findings.items()
            for remark in findings.get("remarks", ())
        ],
        "published": tables.published_table(result) if result.published else None,
        "legend": tables.measure_legend(result),
        "key": [(name, str(value)) for name, value in result.about.get("key", {}).items()],
        "held": held,
        "flipped": content.flipped,
        "about": sorted({row.about for row in rows}),
        "names": sorted({name for row in rows for name in (row.plain, row.guarded)} - {""}),
        "guarded": "guarded" in result.arms,
        "compared": any(row.base for row in rows),
    }


def _suite_tables(content: SuiteContent) -> Iterator[Table]:
    """Yield the tables of a suite, the widest figures first."""
    result = content.result
    if failed := tables.errors_table(result):
        yield failed
    if result.stops:
        yield tables.both_arms(tables.STOPS, result.stops)
    yield tables.scores_table(result, printed_lines(result), tables.scores_title(result))
    yield from (part for part in tables.by_identity(result) if isinstance(part, Table))
    yield from (table for table, _ in tables.findings_tables(result))
