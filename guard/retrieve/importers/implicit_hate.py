"""Latent Hatred (ElSherief et al. 2021), stage 3: target and implied statement of a post.

Read from ``implicit_hate_v1_stg3_posts.tsv`` or from JSON lines with the same names. The post
itself is not used. The bias type is that of the target's name.
"""

from __future__ import annotations

from collections.abc import Iterator

from guard.datasets.groups import group_type
from guard.datasets.rows import Values, text_field
from guard.retrieve.importers.found import NO_TYPE, Found, LeftOut, implied_statement

NAME = "implicit-hate"
COLUMNS = ("target", "implied_statement")


def implicit_hate_statements(row: Values) -> Iterator[Found]:
    """Yield the implied statement; a few published rows have no target or no statement."""
    group, statement = text_field(row, "target"), text_field(row, "implied_statement")
    if not group or not statement:
        return
    kind = group_type(group)
    yield LeftOut(NO_TYPE) if kind is None else implied_statement(statement, kind, group, NAME)
