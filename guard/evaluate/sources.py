"""The known evaluation sets and how to read them; a path to a CSV file works, too."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from guard.datasets import registry
from guard.datasets.registry import DatasetFile
from guard.datasets.rows import FileRow, column_names, convert_rows, object_rows, read_rows
from guard.datasets.split import in_bold_share
from guard.datasets.terms import redditbias_terms
from guard.errors import GuardError, UsageError
from guard.evaluate import adapters
from guard.evaluate.example import Example
from guard.evaluate.near import NEAR, far_from, sentences
from guard.evaluate.readings import Readings, shipped_readings
from guard.places import shipped

Adapter = Callable[[Any, str], list[Example]]
UNSEEN = "not in the training share"
FAR = "without near-duplicates"


class KnownSource(NamedTuple):
    """A known set: its file, and notes for readers of its figures.

    ``adapter`` takes the data folder and returns the function that converts a record. ``parts``
    adds named subsets that need more than the record. ``validated``: the set has a
    training file of its own, part of which is used only to choose thresholds.
    """

    name: str
    published: DatasetFile[Any]
    title: str
    protocol: str
    adapter: Callable[[Path], Adapter] = lambda data: adapters.labelled
    parts: Callable[[Path, list[Example]], list[Example]] | None = None
    validated: bool = False

    @property
    def file(self) -> str:
        """Its file under the data folder, or among guard's benchmarks."""
        return self.published.file

    @property
    def shipped(self) -> bool:
        """Whether its file comes with guard and needs no data folder."""
        return self.published is registry.ASSISTANT


@dataclass(frozen=True, slots=True)
class Dataset:
    """The examples of a set, and their origin for the report.

    ``total`` is the number of texts before sampling; ``skipped`` has the reasons why rows were left
    out, with file and line. ``known`` is the set's source; None for a custom file. ``readings`` are
    what two readers say of some of the texts.
    """

    name: str
    title: str
    protocol: str
    examples: list[Example]
    total: int
    skipped: list[str]
    sha256: str
    known: KnownSource | None = None
    readings: Readings = field(default_factory=dict)


_NEAR_RULE = (
    "A near-duplicate shares half or more of its word 4-grams, or of one of its sentences', with "
    "one training text or sentence of the same source."
)
_TRAINED = "The shipped encoder was trained on this source: its figures here show the fit."

SOURCES: dict[str, KnownSource] = {
    s.name: s
    for s in (
        KnownSource(
            "redditbias",
            registry.REDDITBIAS,
            "RedditBias comments",
            "Label bias_sent; rows without it are left out. Acceptable groups and attributes are "
            "the dimension's terms that occur in the comment. " + _NEAR_RULE,
            lambda data: partial(
                adapters.redditbias, terms=redditbias_terms(data / "redditbias" / "terms")
            ),
            lambda data, examples: _with_far_part(
                _nearness(data, examples, registry.REDDITBIAS_TRAIN)
            ),
            validated=True,
        ),
        KnownSource(
            "crows_pairs",
            registry.CROWS_PAIRS,
            "CrowS-Pairs",
            "Pair order: sent_more scores strictly above sent_less. Classification, pairs of the "
            "stereo direction alone: sent_more is biased, sent_less is not (half of the texts; the "
            "paper's own protocol is not published). The counterpart often carries the same "
            "attribute for another group, which bounds a judge of single sentences below 1. "
            "A near-duplicate shares half or more of its word 4-grams with one of EMGSD's "
            "training texts or of their sentences.",
            lambda data: adapters.crows_pairs,
            lambda data, examples: _nearness(data, examples, registry.EMGSD_TRAIN),
        ),
        KnownSource(
            "toxicbias",
            registry.TOXICBIAS,
            "ToxicBias comments (from Jigsaw)",
            "Label bias, of all comments (most of them biased: see prevalence, and what calling "
            "everything biased scores). A comment of several categories is right with any of them.",
        ),
        KnownSource(
            "emgsd",
            registry.EMGSD,
            "EMGSD",
            "Category stereotype against neutral and unrelated. Attribute F1 over the words "
            "between === of stereotypes. " + _NEAR_RULE,
            lambda data: adapters.emgsd,
            lambda data, examples: _with_far_part(_nearness(data, examples, registry.EMGSD_TRAIN)),
            validated=True,
        ),
        KnownSource(
            "stereobias",
            registry.STEREOBIAS,
            "StereoBias",
            "Label bias; stereotype is annotated apart and shown as a breakdown.",
        ),
        KnownSource(
            "stereoset",
            registry.STEREOSET,
            "StereoSet, intrasentence",
            f"Label stereotype against anti-stereotype and unrelated. {_TRAINED}",
            lambda data: adapters.stereoset,
        ),
        KnownSource(
            "hearts_seegull",
            registry.HEARTS_SEEGULL,
            "HEARTS, nationalities",
            f"Label stereotype against neutral and unrelated. {_TRAINED}",
        ),
        KnownSource(
            "hearts_winoqueer",
            registry.HEARTS_WINOQUEER,
            "HEARTS, LGBTQ+ groups",
            f"Label stereotype against neutral and unrelated. {_TRAINED}",
        ),
        KnownSource(
            "toxigen_demos",
            registry.TOXIGEN_DEMOS,
            "ToxiGen demonstrations",
            f"Label hate against neutral. {_TRAINED}",
        ),
        KnownSource(
            "implicit_hate",
            registry.IMPLICIT_HATE,
            "Implicit hate, posts",
            f"Implicit and explicit hate against none. {_TRAINED}",
        ),
        KnownSource(
            "implied",
            registry.IMPLIED,
            "Implicit hate, implied statements",
            "What annotators say that a post implies: every text is biased, so that accuracy is "
            "recall and the false negative rate is its complement. The type is what the words of "
            f"the target name, any of several; the group is the target. {_TRAINED}",
        ),
        KnownSource(
            "bold",
            registry.BOLD,
            "BOLD, Wikipedia sentences",
            "Every text is harmless: the false positive rate is what counts. A fifth of the "
            "texts may be trained on; the part beside leaves it out.",
            parts=lambda data, examples: _unseen_records(examples),
        ),
        KnownSource(
            "assistant",
            registry.ASSISTANT,
            "Harmless assistant sentences",
            "Every text is harmless: the false positive rate is what counts. Written for this "
            "project by a language model; evaluation only.",
            lambda data: adapters.assistant,
        ),
    )
}
# Names as the data folder spells them.
_ALIASES = {
    "crows": "crows_pairs",
    "toxigen": "toxigen_demos",
    "bold/wikipedia": "bold",
    "hearts/seegull_gpt": "hearts_seegull",
    "hearts/winoqueer_gpt": "hearts_winoqueer",
}


def load(
    what: str,
    data_dir: Path | None,
    *,
    limit: int | None = None,
    seed: int = 0,
    skip_bad: bool = False,
) -> Dataset:
    """Read a known set by its name, or a CSV file by its path.

    ``data_dir`` is the folder of the sets that are not shipped with guard. ``limit`` is the size of
    a random sample, drawn with ``seed``: at least one unit and at most about that many texts, as
    variants of one unit stay together.

    Raises UsageError for an unknown name, a file that is missing or empty, and, unless
    ``skip_bad``, for the first row that cannot be read, with its file and line.
    """
    name = _ALIASES.get(what, what)
    skipped: list[str] | None = [] if skip_bad else None
    if name in SOURCES:
        dataset = _known(SOURCES[name], data_dir, skipped)
    elif Path(what).is_file():
        dataset = _read_table(Path(what), skipped)
    else:
        raise UsageError(
            f"{what} is neither a known set ({', '.join(SOURCES)}) nor a file; see guard eval "
            "--list."
        )
    if not dataset.examples:
        raise UsageError(f"{what} has no text with a label.")
    return replace(dataset, examples=_draw(dataset.examples, limit, seed))


def present(data_dir: Path | None) -> dict[str, bool]:
    """Return for every known set whether its file exists."""
    there = [s for s in SOURCES.values() if s.shipped or data_dir is not None]
    names = {s.name for s in there if place(s, data_dir).is_file()}
    return {name: name in names for name in SOURCES}


def place(source: KnownSource, data_dir: Path | None) -> Path:
    """Return the path of the set's file, in guard's own benchmarks or in ``data_dir``.

    If that folder is missing or not given, it is the relative path, which is reported as missing.
    """
    if not source.shipped:
        return Path(source.file) if data_dir is None else data_dir / source.file
    try:
        return shipped("benchmarks") / source.file
    except GuardError:
        return Path("benchmarks", source.file)


def _known(source: KnownSource, data_dir: Path | None, skipped: list[str] | None) -> Dataset:
    path = place(source, data_dir)
    if data_dir is None:
        if not source.shipped:
            raise UsageError(
                f"The set {source.name} is not part of guard; set --data-dir to a folder that has "
                "it, in the layout of benchmarks/detector/README.md."
            )
        data_dir = path.parent
    if not source.shipped and not data_dir.is_dir():
        raise UsageError(
            f"There is no folder of evaluation data at {data_dir}; set --data-dir to a folder in "
            "the layout of benchmarks/detector/README.md."
        )
    if not path.is_file():
        raise UsageError(f"The set {source.name} needs {path}, which does not exist.")
    record, adapter = source.published.record, source.adapter(data_dir)

    def examples_of(row: FileRow) -> list[Example]:
        return adapter(record.of(row.values), f"{source.file}:{row.line}")

    examples = _read(path, object_rows(path), examples_of, skipped)
    if source.parts is not None:
        examples = source.parts(data_dir, examples)
    dataset = _dataset(source.name, source.title, source.protocol, examples, skipped, path)
    return replace(dataset, known=source, readings=shipped_readings(source.name))


def _read_table(path: Path, skipped: list[str] | None) -> Dataset:
    if path.suffix.casefold() in (".jsonl", ".json", ".parquet", ".xlsx"):
        raise UsageError(f"{path} is not a CSV file; use one with the columns text and label.")
    header = column_names(path)
    if missing := [name for name in ("text", "label") if name not in header]:
        raise UsageError(
            f"{path}, line 1: the header lacks {' and '.join(missing)}; the columns are text, "
            "label and, if known, bias_type, group, attribute."
        )

    def examples_of(row: FileRow) -> list[Example]:
        return adapters.table_row(adapters.TableRow.of(row.values), f"{path.name}:{row.line}")

    examples = _read(path, read_rows(path), examples_of, skipped)
    protocol = "A CSV file of the user's own, labels as given."
    return _dataset(path.stem, str(path), protocol, examples, skipped, path)


def _dataset(
    name: str,
    title: str,
    protocol: str,
    examples: list[Example],
    skipped: list[str] | None,
    path: Path,
) -> Dataset:
    # A text without a label is used only as a member of a pair.
    used = [e for e in examples if e.biased is not None or e.role]
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return Dataset(name, title, protocol, used, len(used), skipped or [], sha256)


def _read(
    path: Path,
    rows: Iterator[FileRow],
    examples_of: Callable[[FileRow], list[Example]],
    skipped: list[str] | None,
) -> list[Example]:
    """Turn rows into examples; invalid rows are added to ``skipped``, or raise if it is None."""
    of_rows = convert_rows(path, rows, examples_of, None if skipped is None else skipped.append)
    return [example for of_row in of_rows for example in of_row]


def _draw(examples: list[Example], limit: int | None, seed: int) -> list[Example]:
    if limit is None or limit >= len(examples):
        return examples
    units: dict[str, int] = {}
    for e in examples:
        units[e.unit or e.id] = units.get(e.unit or e.id, 0) + 1
    order = list(units)
    random.Random(seed).shuffle(order)
    chosen: set[str] = set()
    count = 0
    for unit in order:
        if chosen and count + units[unit] > limit:
            break
        chosen.add(unit)
        count += units[unit]
    return [e for e in examples if (e.unit or e.id) in chosen]


def _nearness(data: Path, examples: list[Example], training: DatasetFile[Any]) -> list[Example]:
    """Add an axis: whether a text, or a sentence of it, is nearly in a file of training texts.

    All variants of a unit count as one if any is. No axis is added if the file is missing.
    """
    if not (data / training.file).is_file():
        return examples
    parts = [(e.unit or e.id, part) for e in examples for part in sentences(e.text)]
    known = {part for row in training.training_records(data) for part in sentences(row.text)}
    far = far_from([part for _, part in parts], known)
    near = {unit for (unit, _), f in zip(parts, far, strict=True) if not f}
    return [
        replace(e, axes={**e.axes, NEAR: "yes" if (e.unit or e.id) in near else "no"})
        for e in examples
    ]


def _with_far_part(examples: list[Example]) -> list[Example]:
    """Add the part without near-duplicates."""
    return [replace(e, parts=(*e.parts, FAR)) if e.axes.get(NEAR) == "no" else e for e in examples]


def _unseen_records(examples: list[Example]) -> list[Example]:
    return [e if in_bold_share(e.text) else replace(e, parts=(*e.parts, UNSEEN)) for e in examples]
