"""Draws the texts that are read twice, and keeps what the readers said without the texts.

``python readings.py sample --data DATA TO`` writes 150 comments of RedditBias and 150 texts of
EMGSD to ``TO/sample.txt``, a number and a text a line in random order, without labels, and two
empty forms, ``TO/reader-A.csv`` and ``TO/reader-B.csv``. A reader gets these and docs/policy.md
alone and fills in B (biased) or N (not biased), and 1 for sure or 0.

``python readings.py keep --data DATA FROM`` reads both forms and writes ``readings.csv`` beside
this file: the set, a hash of the folded text, the reader, the label, sure or not.
"""

from __future__ import annotations

import argparse
import csv
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from guard.datasets import registry
from guard.datasets.rows import object_rows
from guard.evaluate.readings import FIELDS, READINGS, key_of, read

SEED, TEXTS = 40, 150
READERS = ("A", "B")
_FORM = ("number", "label", "sure")


class Drawn(NamedTuple):
    """A text of the sample: ``shown`` on one line to the readers, ``key`` that of its reading."""

    source: str
    key: str
    shown: str


def sample(data: Path) -> list[Drawn]:
    """Return the sample in the order of its numbers, from the sets in the folder ``data``."""
    drawn = random.Random(SEED)
    chosen = [
        text
        for of_set in (_redditbias(data), _emgsd(data))
        for text in drawn.sample(_different(of_set), TEXTS)
    ]
    drawn.shuffle(chosen)
    return chosen


def _redditbias(data: Path) -> Iterator[Drawn]:
    for row in object_rows(data / registry.REDDITBIAS.file):
        record = registry.REDDITBIAS.record.of(row.values)
        if record.biased is not None:
            yield _drawn("redditbias", record.text)


def _emgsd(data: Path) -> Iterator[Drawn]:
    for row in object_rows(data / registry.EMGSD.file):
        record = registry.EMGSD.record.of(row.values)
        yield _drawn("emgsd", record.text)


def _drawn(source: str, text: str) -> Drawn:
    return Drawn(source, key_of(text), " ".join(text.split()))


def _different(texts: Iterator[Drawn]) -> list[Drawn]:
    """Return the texts that the set has once: one that it has twice may have two labels."""
    all_texts = list(texts)
    times = Counter(text.key for text in all_texts)
    return [text for text in all_texts if times[text.key] == 1]


def write_sample(chosen: Sequence[Drawn], to: Path) -> None:
    """Write the texts and the empty forms into the folder ``to``."""
    to.mkdir(parents=True, exist_ok=True)
    lines = [f"{number}\t{text.shown}\n" for number, text in enumerate(chosen, start=1)]
    (to / "sample.txt").write_text("".join(lines), encoding="utf-8")
    for reader in READERS:
        empty = [f"{number},,\n" for number in range(1, len(chosen) + 1)]
        form = to / f"reader-{reader}.csv"
        form.write_text("".join([",".join(_FORM) + "\n", *empty]), encoding="utf-8")


def keep(chosen: Sequence[Drawn], forms: Path, to: Path) -> None:
    """Write what both forms in the folder ``forms`` say to the file ``to``, in order of the keys.

    A form that lacks a text, has one twice, or has another label than B and N, or another sure than
    1 and 0, ends it with the form's name and the number.
    """
    rows = []
    for reader in READERS:
        form = forms / f"reader-{reader}.csv"
        with form.open(encoding="utf-8-sig", newline="") as lines:
            filled = [[cell.strip() for cell in row] for row in csv.reader(lines) if row]
        if filled[0] != list(_FORM):
            sys.exit(f"{form}: the first line is {','.join(_FORM)}.")
        said = {row[0]: row[1:] for row in filled[1:]}
        if len(said) != len(filled) - 1 or len(said) != len(chosen):
            sys.exit(f"{form}: every number from 1 to {len(chosen)} has one line.")
        for number, text in enumerate(chosen, start=1):
            given = said.get(str(number), [])
            if len(given) != 2 or given[0] not in ("B", "N") or given[1] not in ("0", "1"):
                sys.exit(f"{form}, number {number}: write B or N, and 1 (sure) or 0.")
            rows.append((text.source, text.key, reader, *given))
    with to.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(FIELDS)
        writer.writerows(sorted(rows))
    read(to)  # what is written can be read


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw the sample, or keep the readings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("do", choices=("sample", "keep"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    given = parser.parse_args(arguments)
    chosen = sample(given.data)
    if given.do == "sample":
        write_sample(chosen, given.folder)
    else:
        keep(chosen, given.folder, Path(__file__).with_name(READINGS))


if __name__ == "__main__":
    main()
