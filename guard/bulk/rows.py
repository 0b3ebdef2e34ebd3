"""What a row gives to judge, and what is written beside it."""

from __future__ import annotations

import json
from typing import Any, Literal, NamedTuple

from guard.verdict import GuardTrail, Verdict

#: The most bytes of a row; a file with a longer one is refused.
MOST_ROW = 64 * 2**20
#: The most bytes of a row that is read; a longer one is not judged.
MOST_READ = 8 * 2**20
#: The most characters of a text that is judged.
MOST_CHARACTERS = 1_000_000

NotRead = Literal[
    "missing",  # the row has no such column
    "null",
    "not_text",  # a value that is no string
    "empty",  # or white space alone
    "too_long",  # more than MOST_CHARACTERS
    "row_too_long",  # more than MOST_READ
    "not_utf8",
    "not_json",
    "not_object",  # JSON, but no object
    "repeated",  # the object names the column twice
    "clash",  # the object has a column of a verdict's name
    "not_csv",
    "ragged",  # more or fewer fields than the header
    "crashed",  # the process that judged it ended, each time
]
#: Reasons for which a row's bytes are no JSON object that verdicts can be added to.
NO_OBJECT = ("not_json", "not_object", "not_utf8")

#: The columns of a verdict, without their prefix.
COLUMNS = (
    "biased",
    "score",
    "threshold",
    "bias_type",
    "group",
    "attribute",
    "unjudged",
    "unjudged_segments",
    "detector",
    "index_version",
)
#: The columns that hold a row which is not of its file's format.
ROW_COLUMNS = ("row", "row_base64")


class RowText(NamedTuple):
    """The text of a row, or the reason why there is none to judge."""

    text: str = ""
    reason: NotRead | None = None


def checked_text(value: object) -> RowText:
    """Return a column's value as a text to judge, or the reason why it is none."""
    if value is None:
        return RowText(reason="null")
    if not isinstance(value, str):
        return RowText(reason="not_text")
    if len(value) > MOST_CHARACTERS:
        return RowText(reason="too_long")
    return RowText(value) if value.strip() else RowText(reason="empty")


def column_names(prefix: str) -> dict[str, str]:
    """Return the name of each column that is written, by its name without the prefix."""
    return {name: prefix + name for name in (*COLUMNS, *ROW_COLUMNS)}


class VerdictLines:
    """Renders verdicts as lines of JSON, as they are stored and written."""

    def __init__(self, prefix: str, detector: str, index_version: str | None) -> None:
        self._names = [prefix + name for name in COLUMNS]
        self._judge = detector, index_version

    def of_trail(self, trail: GuardTrail, verdict: Verdict) -> bytes:
        """Return the line of a judged text: ``verdict`` is the highest of its ``trail``."""
        pair = verdict.attributions[0] if verdict.biased and verdict.attributions else None
        biased = None if verdict.unjudged else verdict.biased
        names = (pair.group, pair.attribute) if pair else (None, None)
        unjudged = sum(1 for d in trail if d.verdict.unjudged)
        scores = verdict.score, verdict.threshold, verdict.bias_type
        return self._line(biased, *scores, *names, verdict.unjudged, unjudged)

    def of_reason(self, reason: str) -> bytes:
        """Return the line of a row that was not judged."""
        return self._line(None, None, None, None, None, None, reason, None)

    def _line(self, *values: Any) -> bytes:
        # ASCII alone: a group's name may have lone surrogates.
        fields = dict(zip(self._names, (*values, *self._judge), strict=True))
        return json.dumps(fields, separators=(",", ":")).encode("ascii")
