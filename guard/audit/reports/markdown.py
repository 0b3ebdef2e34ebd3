"""A run in Markdown, short enough for a comment on a pull request."""

from __future__ import annotations

from collections.abc import Iterator

from guard.audit import grids
from guard.audit.grids import Grid
from guard.audit.reports import side_by_side
from guard.audit.reports.checks import checks, counts_text
from guard.audit.reports.content import Content, SuiteContent
from guard.audit.reports.differences import differences, grid, headlines, sides, stops, title
from guard.audit.reports.texts import for_markdown

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
    if side_by_side.has_several(content):
        yield f"**{for_markdown(side_by_side.TITLE)}**"
        yield table(side_by_side.models_grid(content), _ROWS * 2)
        yield for_markdown(side_by_side.NOTE)
    stopped = stops(content)
    if stopped.rows and content.comparison is None:
        yield table(stopped, _ROWS)
    found = differences(content)
    if found:
        yield f"**{for_markdown(title(content))}**"
        yield table(grid(found, sides(content), title(content)), _ROWS)
    if content.comparison is not None:
        yield from (for_markdown(sentence) for sentence in content.comparison.next)
    for one in content.suites:
        yield from _suite(one)


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
    if failed := grids.errors(result):
        yield table(failed, _ROWS)
    flipped = [row for row in content.rows if row.base or row.changed]
    yield f"<details><summary>Outcomes and {len(flipped):,} items that changed</summary>"
    yield table(grids.outcomes(result), _ROWS)
    if flipped:
        listed = Grid("Changed")
        listed.add_columns("item", "plain", "guarded", "baseline")
        shown = flipped[:_FLIPPED]
        listed.rows.extend([r.name, r.plain, r.guarded, r.base] for r in shown)
        yield table(listed, _FLIPPED)
    yield "</details>"


def _cut(text: str) -> str:
    return for_markdown(text if len(text) <= _TEXT else f"{text[:_TEXT]}…")


def table(found: Grid, most: int) -> str:
    """Return a table of at most ``most`` rows, with a note on the others."""
    rows = [[name for name, _ in found.columns], *found.rows[:most]]
    lines = ["| " + " | ".join(for_markdown(cell) for cell in row) + " |" for row in rows]
    lines.insert(
        1, "|" + "|".join(" ---: " if figures else " --- " for _, figures in found.columns) + "|"
    )
    if len(found.rows) > most:
        lines.append(f"\n{len(found.rows) - most:,} further rows are in the page.")
    return "\n".join(lines)
