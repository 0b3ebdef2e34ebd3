"""Term lists, which find the groups and attributes that a text names.

RedditBias (Barikeri et al. 2021) has no target or attribute column, but its comments were collected
by lists of both, one pair for each dimension.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from guard.errors import UsageError

Dimension = Literal[
    "gender_female", "race_black", "religion1_jews", "religion2_muslims", "orientation_lgbtq"
]
DIMENSIONS: tuple[Dimension, ...] = get_args(Dimension)
# "women are","men are": a target and its counterpart, each with a verb that is not part of it.
_VERB = re.compile(r"\s+(?:are|is|should|was|were|has|have)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TermList:
    """Patterns of group terms and of attribute terms."""

    targets: re.Pattern[str]
    attributes: re.Pattern[str]

    def groups_in(self, text: str) -> tuple[str, ...]:
        """Return the group terms of ``text`` as written, each once."""
        return _terms_found(self.targets, text)

    def attributes_in(self, text: str) -> tuple[str, ...]:
        """Return the attribute terms of ``text`` as written, each once."""
        return _terms_found(self.attributes, text)


def redditbias_terms(folder: Path) -> dict[Dimension, TermList]:
    """Read the lists of every dimension from the folder ``terms`` of RedditBias.

    Targets are the left column of ``<subject>_opposites.txt`` without its verb, attributes the
    lines of ``<dimension>.txt``. Raises UsageError if a list is missing.
    """
    return {dimension: _dimension_terms(folder, dimension) for dimension in DIMENSIONS}


def make_terms(targets: Iterable[str], attributes: Iterable[str]) -> TermList:
    """Return a list of these terms, which may be inflected by ``s`` or ``es``."""
    return TermList(
        _any_of(map(_inflected_pattern, targets)), _any_of(map(_inflected_pattern, attributes))
    )


def _dimension_terms(folder: Path, dimension: str) -> TermList:
    subject = dimension.split("_")[0]
    targets = _target_terms(folder / f"{subject}_opposites.txt")
    words = _first_cells(folder / f"{dimension}.txt")
    return TermList(_any_of(map(re.escape, targets)), _any_of(map(_inflected_pattern, words)))


def _first_cells(path: Path) -> list[str]:
    """Return the first cell of every line that has one."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UsageError(
            f"The term list {path} cannot be read: {error.strerror}; name a folder that has it."
        ) from None
    except UnicodeDecodeError:
        raise UsageError(f"The term list {path} is not UTF-8 text; convert it first.") from None
    # Cells may be quoted; a counterpart may be missing or empty.
    cells = (row[0].strip() for row in csv.reader(lines, skipinitialspace=True) if row)
    return [cell for cell in cells if cell]


def _target_terms(path: Path) -> list[str]:
    return [_VERB.sub("", cell) for cell in _first_cells(path)]


def _inflected_pattern(term: str) -> str:
    # A wildcard matches any ending; other terms match their plural too.
    return re.escape(term.rstrip("*")) + (r"\w*" if term.endswith("*") else "(?:s|es)?")


def _any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    longest_first = sorted(set(patterns), key=lambda p: (-len(p), p))
    return re.compile(rf"(?<!\w)(?:{'|'.join(longest_first)})(?!\w)", re.IGNORECASE)


def _terms_found(pattern: re.Pattern[str], text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(hit.group() for hit in pattern.finditer(text)))
