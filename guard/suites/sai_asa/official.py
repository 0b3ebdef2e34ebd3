"""Reads the authors' data: dataset.csv, and the same columns with a recorded ``response``.

``stereotype`` is merely the option of the same polarity as what is given (``item_category``),
``anti_stereotype`` the one of the opposite polarity, ``unrelated`` the neutral one. The data do not
name templates. A sentence's template is found by removing every word for a stimulus, an attribute
or a gender; the 11,940 sentences have 291 templates.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from guard.datasets.rows import convert_rows, whole_values
from guard.datasets.rows import read_rows as lines
from guard.errors import UsageError
from guard.suites.sai_asa.rows import StimulusRow

Phrases = dict[str, set[tuple[str, ...]]]
"""Phrases for a stimulus or an attribute, by their first word."""

FILE = "dataset.csv"
COLUMNS = (
    "bias_type",
    "target_gender",
    "context",
    "anti_stereotype",
    "stereotype",
    "unrelated",
    "item_category",
    "type_category",
)
_OPTIONS = ("anti_stereotype", "stereotype", "unrelated")
_DIRECTIONS = {"type1": "SAI", "type2": "ASA"}
_DOMAINS = {
    "ageism": "ageism",
    "beauty": "beauty",
    "beauty_profession": "beauty_profession",
    "instituition": "institution",  # the data's own spelling
    "institution": "institution",
    "nationality": "nationality",
}
_PRONOUNS = {
    "male": "masculine",
    "female": "feminine",
    "not_spacified": "non-binary",  # the data's own spelling
    "not_specified": "non-binary",
}
_WORD = re.compile(r"\w+")
_GENDERED = frozenset(
    "he she they him her them his their theirs himself herself themselves man woman men women "
    "people person persons male female guy girl gender is are was were be has have had a an few "
    "do does go goes".split()
)


def read_official(path: Path) -> tuple[list[StimulusRow], str]:
    """Return the rows of a data file, or of the one in a folder, and the file's SHA-256.

    Raises UsageError if there is none or a row has another form.
    """
    file = path / FILE if path.is_dir() else path
    if not file.is_file():
        raise UsageError(f"There is no {file}; give the authors' {FILE}, or a folder with it.")
    table = list(convert_rows(file, lines(file), whole_values, None, "Correct the row."))
    if not table:
        raise UsageError(f"{file} has no rows; give the authors' {FILE}, or a folder with it.")
    return table_rows(table), hashlib.sha256(file.read_bytes()).hexdigest()


def has_columns(row: Mapping[str, str]) -> bool:
    """Return whether a row has the authors' columns."""
    return all(row.get(column) is not None for column in COLUMNS)


def table_rows(table: Sequence[Mapping[str, str]]) -> list[StimulusRow]:
    """Return the rows of a table with the authors' columns, in its order.

    The id is a hash of a row's texts, so that the data and recorded answers agree on it. Raises
    UsageError that names the line and the column.
    """
    templates = _row_templates(table)
    return [
        _row_of(row, line, *template)
        for line, (row, template) in enumerate(zip(table, templates, strict=True), start=2)
    ]


def _row_of(row: Mapping[str, str], line: int, template: str, word: str) -> StimulusRow:
    direction = _named_value(row, line, "type_category", _DIRECTIONS)
    domain = _named_value(row, line, "bias_type", _DOMAINS)
    pronoun = _named_value(row, line, "target_gender", _PRONOUNS)
    polarity = _named_value(
        row, line, "item_category", {"positive": "positive", "negative": "negative"}
    )
    if "BLANK" not in row["context"]:
        raise UsageError(f"Line {line}: the context has no BLANK to fill.")
    same, opposite = row["stereotype"].strip(), row["anti_stereotype"].strip()
    negative, positive = (opposite, same) if polarity == "positive" else (same, opposite)
    content = "\n".join(row[column].strip().lower() for column in COLUMNS)
    drawn = (direction, domain, polarity, template, negative, row["unrelated"].strip(), positive)
    return StimulusRow(
        _text_digest(content),
        direction,
        domain,
        pronoun,
        polarity,
        word,
        f"{direction}-{domain}-{_text_digest(template)}",
        _text_digest("\n".join(drawn).lower()),
        row["context"].strip(),
        negative,
        row["unrelated"].strip(),
        positive,
    )


def _named_value(row: Mapping[str, str], line: int, column: str, names: Mapping[str, str]) -> str:
    value = _present_value(row, line, column).strip()
    if value.lower() not in names:
        raise UsageError(f"Line {line}: {column} must be one of {', '.join(names)}, got {value!r}.")
    return names[value.lower()]


def _present_value(row: Mapping[str, str], line: int, column: str) -> str:
    if row.get(column) is None:
        raise UsageError(
            f"Line {line} has no column {column!r}; the table needs {', '.join(COLUMNS)}."
        )
    return row[column]


def _row_templates(table: Sequence[Mapping[str, str]]) -> list[tuple[str, str]]:
    """Return the template of each row, and the words that fill it."""
    phrases: dict[str, Phrases] = {}
    for line, row in enumerate(table, start=2):
        for column in ("bias_type", "context", *_OPTIONS):
            _present_value(row, line, column)
        for column in _OPTIONS:
            if words := _words_of(row[column]):
                phrases.setdefault(row["bias_type"], {}).setdefault(words[0], set()).add(words)
    return [_template_of(row["context"], phrases.get(row["bias_type"], {})) for row in table]


def _words_of(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(text.lower()))


def _template_of(context: str, phrases: Phrases) -> tuple[str, str]:
    """Return the sentence with stimuli, attributes and numbers as "#", and the words replaced."""
    kept: list[str] = []
    inserted: list[str] = []
    words, at = _words_of(context), 0
    while at < len(words):
        known = phrases.get(words[at], ())
        length = max((len(p) for p in known if words[at : at + len(p)] == p), default=0)
        if length or words[at].isdigit():
            kept.append("#")
            inserted += words[at : at + max(length, 1)]
        elif words[at] not in _GENDERED:
            # Verbs differ between the pronouns by their ending.
            kept.append(words[at].removesuffix("s"))
        at += max(length, 1)
    return " ".join(kept), " ".join(inserted)


def _text_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
