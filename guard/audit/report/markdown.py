"""A run in Markdown, short enough for a comment on a pull request."""

from __future__ import annotations

from collections.abc import Iterator

from guard.audit.report import models, tables
from guard.audit.report.checks import content_checks, counts_text
from guard.audit.report.content import Content, SuiteContent
from guard.audit.report.differences import differences_table, main_findings, stops_table
from guard.results.table import Table
from guard.texts import for_markdown

_ROWS = 20
_FLIPPED = 10
_TEXT = 600  # characters of a sentence
LIMIT = 60_000
"""The most characters; a comment on GitHub may have 65,536."""


def markdown_comment(content: Content) -> str:
    """Return the comment; if it is too long, its end is replaced by a note."""
    text = "\n\n".join(_comment_parts(content)) + "\n"
    if len(text) <= LIMIT:
        return text
    return text[:LIMIT].rpartition("\n")[0] + "\n\nThe rest is left out; the page has it.\n"


def _comment_parts(content: Content) -> Iterator[str]:
    yield f"## Bias audit: {for_markdown(content.run)}"
    state = content.state()
    if state:
        yield "\n".join(f"> **{for_markdown(sentence)}**  " for sentence in state)
    yield "\n".join(f"- {_cut_text(sentence)}" for sentence in main_findings(content))
    yield counts_text(content_checks(content))
    if models.has_several(content):
        yield from _titled_table(models.models_table(content), _ROWS * 2)
    stopped = stops_table(content)
    if stopped.rows and content.comparison is None:
        yield stopped.markdown(_ROWS)
    differences = differences_table(content)
    if differences.rows:
        yield from _titled_table(differences, _ROWS)
    if content.comparison is not None:
        yield from (for_markdown(sentence) for sentence in content.comparison.next)
    for suite in content.suites:
        yield from _suite_parts(suite)


def _titled_table(table: Table, most: int) -> Iterator[str]:
    yield f"**{for_markdown(table.title)}**"
    yield table.markdown(most)
    yield from map(for_markdown, table.notes)


def _suite_parts(content: SuiteContent) -> Iterator[str]:
    result = content.result
    yield f"### {for_markdown(result.title)} · {for_markdown(result.model)}"
    if warning := result.about.get("warning"):
        yield f"> **{for_markdown(warning)}**"
    yield "\n".join(
        f"- {arm}: {_cut_text(sentences[0])}"
        for arm, sentences in result.conclusions.items()
        if sentences
    )
    if failed := tables.errors_table(result):
        yield failed.markdown(_ROWS)
    flipped = content.flipped
    yield f"<details><summary>Outcomes and {flipped:,} items that changed</summary>"
    yield tables.outcomes_table(result).markdown(_ROWS)
    if flipped:
        changed = Table("Changed")
        changed.add_columns("item", "plain", "guarded", "baseline")
        shown = content.rows[: min(_FLIPPED, flipped)]
        changed.rows.extend([row.name, row.plain, row.guarded, row.base] for row in shown)
        yield changed.markdown()
    yield "</details>"


def _cut_text(text: str) -> str:
    return for_markdown(text if len(text) <= _TEXT else f"{text[:_TEXT]}…")
