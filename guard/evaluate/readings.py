"""What two readers say of a sample of a set, and how far they and the published labels agree.

``benchmarks/detector/readings.csv`` has a line for each text and reader: the set, the key of the
text (:func:`key_of`; never the text), the reader, ``B`` (biased) or ``N``, and 1 if the reader was
sure, else 0. Where both readers are sure and agree, their label stands beside the published one.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from guard.datasets.split import fold
from guard.errors import GuardError, UsageError
from guard.evaluate.example import Example
from guard.places import shipped
from guard.results.agreement import Agreement, agreement_of

READINGS = "readings.csv"
FIELDS = ("set", "text", "reader", "label", "sure")
#: The name of the published labels among the readers.
PUBLISHED_LABEL = "published label"
BOTH_READERS = "both readers, sure and agreed"
NOTE = (
    "Two readings: a random sample of the set's texts (seed 40), read by two language models that "
    "worked on this project. Each read alone, with docs/policy.md and the texts, without labels "
    "and without verdicts of guard. The figures are those of the texts on which both are sure and "
    "agree; these are easier than the others. Models of one kind may share errors, so that their "
    "agreement is an upper bound of people's. No person has read the texts."
)
_LABELS = {"B": True, "N": False}


class ReaderLabel(NamedTuple):
    """What one reader says of one text."""

    biased: bool
    sure: bool


#: Of one set: by the key of a text and the reader's name.
Readings = Mapping[str, Mapping[str, ReaderLabel]]


def key_of(text: str) -> str:
    """Return 16 hexadecimal digits of the SHA-256 of the folded text."""
    return hashlib.sha256(fold(text).encode()).hexdigest()[:16]


def shipped_readings(name: str) -> Readings:
    """Return the readings of the set ``name`` that come with guard; none if there are none."""
    try:
        place = shipped("benchmarks") / "detector" / READINGS
    except GuardError:
        return {}
    return read(place).get(name, {}) if place.is_file() else {}


def read(place: Path) -> Mapping[str, Readings]:
    """Return the readings in a file, by set.

    Raises UsageError, with file and line, for a line that is no reading or a second one of the same
    reader on a text.
    """
    sets: dict[str, dict[str, dict[str, ReaderLabel]]] = {}
    with place.open(encoding="utf-8", newline="") as lines:
        reader = csv.reader(lines)
        if tuple(next(reader, ())) != FIELDS:
            raise UsageError(f"{place}, line 1: the columns are {', '.join(FIELDS)}.")
        for row in reader:
            where = f"{place}, line {reader.line_num}"
            if len(row) != len(FIELDS) or row[3] not in _LABELS or row[4] not in ("0", "1"):
                raise UsageError(f"{where}: label is B or N and sure is 1 or 0.")
            of_text = sets.setdefault(row[0], {}).setdefault(row[1], {})
            if row[2] in of_text:
                raise UsageError(f"{where}: reader {row[2]} has read this text twice.")
            of_text[row[2]] = ReaderLabel(_LABELS[row[3]], row[4] == "1")
    return sets


def agreed_label(of_text: Mapping[str, ReaderLabel]) -> bool | None:
    """Return what two or more readers say of a text; None unless all are sure and agree."""
    labels = {reading.biased for reading in of_text.values()}
    sure = all(reading.sure for reading in of_text.values())
    return labels.pop() if len(of_text) > 1 and sure and len(labels) == 1 else None


def relabelled(examples: Sequence[Example], readings: Readings) -> list[Example | None]:
    """Return each example with the label of both readers; None where they have none together."""
    labels = [agreed_label(readings.get(key_of(e.text), {})) for e in examples]
    return [
        None if label is None else replace(e, biased=label)
        for e, label in zip(examples, labels, strict=True)
    ]


def agreements(examples: Sequence[Example], readings: Readings) -> list[Agreement]:
    """Return the agreement of every two readers, and of each with the published label.

    These count all labels, sure or not. The last one is that of the published label with the
    readers' where they are sure and agree. ``kappa`` is nan if both gave one same label to every
    text.
    """
    published: dict[str, bool] = {}
    readers: dict[str, dict[str, bool]] = {}
    agreed: dict[str, bool] = {}
    for example in examples:
        key = key_of(example.text)
        if example.biased is None or not (of_text := readings.get(key)):
            continue
        published[key] = example.biased
        for name, reading in of_text.items():
            readers.setdefault(name, {})[key] = reading.biased
        if (label := agreed_label(of_text)) is not None:
            agreed[key] = label
    named = [*sorted(readers.items()), (PUBLISHED_LABEL, published)]
    pairs = [*combinations(named, 2), ((BOTH_READERS, agreed), (PUBLISHED_LABEL, published))]
    return [agreement for pair in pairs if (agreement := _agreement(*pair))]


def _agreement(
    first: tuple[str, Mapping[str, bool]], second: tuple[str, Mapping[str, bool]]
) -> Agreement | None:
    """Return the agreement on the texts that both have a label for; None if there are none."""
    both = [(label, second[1][key]) for key, label in first[1].items() if key in second[1]]
    if not both:
        return None
    return agreement_of(first[0], second[0], both)
