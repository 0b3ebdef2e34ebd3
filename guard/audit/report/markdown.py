"""A run in Markdown, short enough for a comment on a pull request."""

from __future__ import annotations

from collections.abc import Iterator

from guard.audit.report import models, tables
from guard.audit.report.checks import checks, counts_text
from guard.audit.report.content import Content, SuiteContent
from guard.audit.report.differences import differences_table, headlines, stops_table
from guard.results.table import Table
from guard.texts import for_markdown

_ROWS = 20
_FLIPPED = 10
_TEXT = 600  # characters of a sentence
LIMIT = 60_000
"""The most characters; a comment on GitHub may have 65,536."""


def markdown(content: Content) -> str:
    """Return the comment; if it is too long, its end is replaced by a note."""
    text = "\n\n".join(_parts(content)) + "\n"
    if len(text) <= LIMIT:
        return text
    return text[:LIMIT].rpartition("\n")[0] + "\n\nThe rest is left out; the page has it.\n"


def _parts(content: Content) -> Iterator[str]:
    yield f"## Bias audit: {for_markdown(content.run)}"
    state = content.state()
    if state:
        yield "\n".join(f"> **{for_markdown(sentence)}**  " for sentence in state)
    yield "\n".join(f"- {_cut(sentence)}" for sentence in headlines(content))
    yield counts_text(checks(content))
    if models.has_several(content):
        yield from _titled(models.models_table(content), _ROWS * 2)
    stopped = stops_table(content)
    if stopped.rows and content.comparison is None:
        yield stopped.markdown(_ROWS)
    differences = differences_table(content)
    if differences.rows:
        yield from _titled(differences, _ROWS)
    if content.comparison is not None:
        yield from (for_markdown(sentence) for sentence in content.comparison.next)
    for suite in content.suites:
        yield from _suite(suite)


def _titled(table: Table, most: int) -> Iterator[str]:
    yield f"**{for_markdown(table.title)}**"
    yield table.markdown(most)
    yield from map(for_markdown, table.notes)


def _suite(content: SuiteContent) -> Iterator[str]:
    result = content.result
    yield f"### {for_markdown(result.title)} · {for_markdown(result.model)}"
    if warning := result.about.get("warning"):
        yield f"> **{for_markdown(warning)}**"
    yield "\n".join(
        f"- {arm}: {_cut(sentences[0])}"
        for arm, sentences in result.conclusions.items()
        if sentences
    )
    if failed := tables.errors(result):
        yield failed.markdown(_ROWS)
    flipped = [row for row in content.rows if row.base or row.changed]
    yield f"<details><summary>Outcomes and {len(flipped):,} items that changed</summary>"
    yield tables.outcomes(result).markdown(_ROWS)
    if flipped:
        changed = Table("Changed")
        changed.add_columns("item", "plain", "guarded", "baseline")
        shown = flipped[:_FLIPPED]
        changed.rows.extend([row.name, row.plain, row.guarded, row.base] for row in shown)
        yield changed.markdown()
    yield "</details>"


def _cut(text: str) -> str:
    return for_markdown(text if len(text) <= _TEXT else f"{text[:_TEXT]}…")
