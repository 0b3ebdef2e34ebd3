"""SeeGULL (Jha et al. 2023): an identity, an attribute, and how many raters know the stereotype.

Read from the published CSV files (``region_stereo``) or from JSON lines (``region_votes``). A pair
is used if at least ``VOTES`` raters of the identity's own region call it a stereotype (usually
there are three). The attributes are single words, mostly without their endings;
:mod:`guard.retrieve.importers.frame` makes sentences of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from guard.datasets.records import VOTES
from guard.datasets.rows import BadRow, Values, text_field
from guard.retrieve.importers.found import NO_ATTRIBUTE, Found, LeftOut, explicit_statement
from guard.retrieve.importers.frame import group_in, people_sentence
from guard.retrieve.statement import fold_words
from guard.verdict import Span

NAME = "SeeGULL"
COLUMNS = ("identity", "attribute")
COUNTS = ("region_stereo", "region_votes")


def seegull_statements(row: Values) -> Iterator[Found]:
    """Yield the sentence of a pair that enough raters know."""
    # A few names in the published files begin with a stray punctuation mark.
    identity = re.sub(r"^\W+", "", text_field(row, "identity"))
    attribute = text_field(row, "attribute").replace("_", " ").strip(" .,")
    if _region_votes(row) < VOTES:
        return
    if not identity or not attribute:
        raise BadRow("the identity or the attribute is empty")
    if set(fold_words(attribute).split()) & set(fold_words(identity).split()):
        # "Italian" is no attribute of Italians.
        yield LeftOut(NO_ATTRIBUTE)
        return
    group = group_in(identity)
    framed = people_sentence(group, attribute)
    yield explicit_statement(framed.text, "culture", Span(0, len(group)), framed.attribute, NAME)


def _region_votes(row: Values) -> int:
    name = next((n for n in COUNTS if n in row), None)
    if name is None:
        raise BadRow(f"no column counts the votes: {' or '.join(COUNTS)}")
    value = row[name]
    try:
        return int(value) if isinstance(value, (str, int)) else int(str(value))
    except ValueError:
        raise BadRow(f"'{name}' must be a whole number") from None
