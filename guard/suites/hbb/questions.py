"""Questions from concept pairs: those of a pack, shipped or built, or the official ones.

A concept pair has one question for each identity of each descriptor type, 50 in all, and 67
instances: two questions that differ in the identity alone (HBB, section 3.2).
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from guard.datasets.rows import BadRow, FileRow, column_names, convert_rows, read_rows, text_field
from guard.errors import UsageError
from guard.suites.hbb import pack
from guard.suites.hbb.descriptors import Descriptors, Name, Type, context, option
from guard.suites.packs import Pack

_COLUMNS = ("context", "s1", "s2", "bias type1", "bias type2")


@dataclass(frozen=True, slots=True)
class ConceptPair:
    """A concept pair with its texts and, for HBB-SG, ten rewritten sentences of each option."""

    id: str
    concepts: tuple[str, str]
    context: str
    options: tuple[str, str]
    variants: tuple[tuple[str, ...], tuple[str, ...]] | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """A concept pair for one identity; its texts are made on access."""

    pair: ConceptPair
    type: Type
    identity: int
    name: Name

    @property
    def context(self) -> str:
        """The context with the identity's descriptor."""
        identity = self.type.identities[self.identity]
        return context(self.pair.context, self.type.phrase(identity, self.name))

    def option(self, number: int) -> str:
        """Return option 1 or 2 with its pronoun."""
        return option(self.pair.options[number - 1], self._pronoun)

    def variants(self, number: int) -> list[str]:
        """Return the rewritten sentences of option 1 or 2 with their pronoun."""
        assert self.pair.variants is not None
        return [option(text_field, self._pronoun) for text_field in self.pair.variants[number - 1]]

    @property
    def _pronoun(self) -> str:
        return self.type.pronoun(self.type.identities[self.identity], self.name)


@dataclass(frozen=True, slots=True)
class Data:
    """Concept pairs, descriptors, and the hash of both."""

    pairs: tuple[ConceptPair, ...]
    descriptors: Descriptors
    hash: str

    def questions(self, seed: int) -> Iterator[Question]:
        """Yield every question: by concept pair, type and identity."""
        for pair in self.pairs:
            for kind in self.descriptors.types:
                name = self.descriptors.name(seed, pair.id, kind)
                for place in range(len(kind.identities)):
                    yield Question(pair, kind, place, name)


def read_questions(shipped: Pack, path: Path | None, *, correct_slips: bool) -> Data:
    """Return the shipped concept pairs, or those at ``path``.

    ``path`` is a folder with items.jsonl in the pack's form, the official CSV, or its folder.
    ``correct_slips`` corrects the paper's slips in descriptors. Raises UsageError that names what
    cannot be read.
    """
    descriptors = Descriptors(shipped.protocol, correct_slips=correct_slips)
    folder = shipped.folder if path is None else path
    if (folder / pack.ITEMS).is_file():
        pairs = tuple(_from_pack(folder))
        names = [pack.ITEMS, pack.VARIANTS]
        files = [folder / n for n in names if (folder / n).is_file()]
        return Data(pairs, descriptors, shipped.data_hash if path is None else _files_hash(files))
    file = _official_file(folder)
    _check_descriptors(file.parent / "descriptors.json", shipped.protocol)
    pairs = tuple(_from_csv(file))
    return Data(pairs, descriptors, _files_hash([file]))


def _files_hash(files: list[Path]) -> str:
    whole = hashlib.sha256()
    for file in files:
        whole.update(hashlib.sha256(file.read_bytes()).digest())
    return whole.hexdigest()


def _from_pack(folder: Path) -> Iterator[ConceptPair]:
    items, variants = pack.read_folder(folder)
    if faults := list(pack.item_faults(items, variants)):
        more = f" ({len(faults)} faults in all)" if len(faults) > 1 else ""
        raise UsageError(f"{folder / pack.ITEMS}: {faults[0]}{more}.")
    rewritten = {v["id"]: (tuple(v["option_1"]), tuple(v["option_2"])) for v in variants}
    for item in items:
        yield ConceptPair(
            item["id"],
            (item["concept_1"], item["concept_2"]),
            item["context"],
            (item["option_1"], item["option_2"]),
            rewritten.get(item["id"]),
        )


def _official_file(path: Path) -> Path:
    if path.is_file():
        return path
    for file in sorted(path.glob("*.csv")):
        if set(_COLUMNS) <= set(column_names(file)):
            return file
    raise UsageError(
        f"{path} has neither {pack.ITEMS} nor a CSV with the columns {', '.join(_COLUMNS)}; give "
        "the folder of a built pack, or the official questions."
    )


def _from_csv(file: Path) -> Iterator[ConceptPair]:
    numbers = itertools.count()

    def pair(row: FileRow) -> ConceptPair:
        if empty := [name for name in _COLUMNS if not text_field(row.values, name)]:
            raise BadRow(f"{empty[0]!r} is empty")
        texts = {name: row.values[name].strip() for name in _COLUMNS}
        if pack.X not in texts["context"]:
            raise BadRow(f"the context has no {pack.X}")
        # Three first options have no [[X]]: they are used unchanged.
        return ConceptPair(
            f"q{next(numbers):04d}",
            (texts["bias type1"], texts["bias type2"]),
            texts["context"],
            (texts["s1"], texts["s2"]),
        )

    return convert_rows(file, read_rows(file), pair, None, "Correct the row.")


def _check_descriptors(file: Path, table: Mapping[str, Any]) -> None:
    """Raise UsageError unless the official descriptors have every text of Table 10."""
    if not file.is_file():
        return
    try:
        official = json.loads(file.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is not JSON: {error}.") from error
    known = {_plain_value(text) for text in _strings_in(official)}
    for kind in table["types"]:
        for identity in kind["identities"]:
            if _plain_value(identity["text"]) not in known:
                raise UsageError(
                    f"{file} has no {identity['text']!r} of {kind['name']}: this suite uses the "
                    "descriptors of the paper's Table 10, and the file has other ones."
                )


def _strings_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings_in(inner)


def _plain_value(text: str) -> str:
    return text.strip(" ,").lower()
