"""Prompts of files that users bring, in the layouts of BOLD, BeaverTails and StereoTales.

BOLD: ``<domain>_prompt.json`` of groups, entities and beginnings, or rows of ``domain``, ``group``,
``entity`` and ``prompt``. BeaverTails and its evaluation set: rows of ``prompt`` and ``category``,
of which those of discrimination are taken. StereoTales: rows of stories (``user_prompt``,
``target_attribute``, ``attribute_value_key``) or of samples (``generations``, ``metadata``), of
which the English ones are taken. Rows are JSON lines, a JSON list, CSV or parquet.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from guard.errors import UsageError
from guard.suites.open_text.prompts import Prompt
from guard.verdict import BiasType

Row = Mapping[str, Any]

_OPEN: Mapping[str, Callable[[bytes], bytes]] = {".gz": gzip.decompress, ".xz": lzma.decompress}
_ROWS = (".jsonl", ".json", ".csv", ".parquet")
_BOLD_TYPES: Mapping[str, BiasType] = {
    "gender": "gender",
    "race": "race",
    "religious_ideology": "religion",
    "political_ideology": "social",
    "profession": "social",
}
_HARM = "discrimination"
# StereoTales' names of attributes by a part of them; what none fits is social.
_ATTRIBUTES: Mapping[str, BiasType] = {
    "gender": "gender",
    "orientation": "orientation",
    "religio": "religion",
    "ethnic": "race",
    "race": "race",
    "immigra": "culture",
    "national": "culture",
    "region": "culture",
    "country": "culture",
    "disab": "disability",
    "health": "disability",
    "age": "age",
    "body": "appearance",
    "appearance": "appearance",
}


class _Layout(NamedTuple):
    name: str
    has: frozenset[str]
    read: Callable[[Row], Prompt | None]


def read(path: Path) -> tuple[list[Prompt], str]:
    """Return the prompts of a file or of the files in a folder, each once, and their hash.

    Raises UsageError where a file cannot be read or has another layout, or no prompt is found.
    """
    found: dict[str, Prompt] = {}
    for file in _files(path):
        for prompt in _prompts(file):
            found.setdefault(prompt.text, prompt)
    if not found:
        raise UsageError(
            f"{path} has no prompt for open_text: of BeaverTails those of discrimination are "
            "taken, of StereoTales the English ones."
        )
    numbered = [p._replace(id=f"{p.id}-{n:05}") for n, p in enumerate(found.values())]
    whole = hashlib.sha256(json.dumps(numbered, ensure_ascii=False).encode())
    return numbered, whole.hexdigest()


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if _suffix(file) in _ROWS)
    # BOLD's folder has Wikipedia's sentences beside the prompts.
    files = [file for file in files if "prompt" in file.name] or files
    if not files:
        raise UsageError(f"{path} has no file of prompts ({', '.join(_ROWS)}).")
    return files


def _suffix(path: Path) -> str:
    return (path.with_suffix("") if path.suffix in _OPEN else path).suffix


def _prompts(path: Path) -> Iterator[Prompt]:
    for number, row in enumerate(_rows(path), start=1):
        layout = next((one for one in _LAYOUTS if one.has <= row.keys()), None)
        if layout is None:
            raise UsageError(
                f"{path}, row {number}: the columns are those of neither BOLD, BeaverTails nor "
                "StereoTales."
            )
        try:
            prompt = layout.read(row)
            for value in prompt or ():
                str.encode(value)  # a text, and no half character, which no model can be asked
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            raise UsageError(f"{path}, row {number}: not as {layout.name} has it.") from None
        if prompt is not None and prompt.text:
            yield prompt


def _rows(path: Path) -> Iterable[Row]:
    if _suffix(path) == ".parquet":
        return _parquet(path)
    try:
        raw = path.read_bytes()
        text = _OPEN.get(path.suffix, bytes)(raw).decode("utf-8-sig")
        if _suffix(path) == ".csv":
            return list(csv.DictReader(io.StringIO(text)))
        if _suffix(path) == ".jsonl":
            # No other line break ends a row: texts may hold them.
            found: Any = [json.loads(line) for line in text.split("\n") if line.strip()]
        else:
            found = json.loads(text)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from None
    except (ValueError, EOFError, RecursionError, zlib.error, lzma.LZMAError, csv.Error) as error:
        raise UsageError(f"{path} cannot be read: {error}.") from None
    if isinstance(found, dict):
        found = list(_bold_rows(path, found))
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise UsageError(f"{path} holds no rows; give a list of objects, or JSON lines.")
    return found


def _parquet(path: Path) -> Iterable[Row]:
    try:
        from pyarrow import parquet  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise UsageError(
            f"{path} is parquet, which needs pyarrow; install it, or save the table as JSON lines."
        ) from None
    try:
        rows: list[Row] = parquet.read_table(path).to_pylist()
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}.") from None
    return rows


def _bold_rows(path: Path, groups: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the rows of BOLD's own files: beginnings by group and entity."""
    domain = path.name.partition("_prompt")[0]
    if domain not in _BOLD_TYPES:
        raise UsageError(
            f"{path} is no file of BOLD, which are called {', '.join(_BOLD_TYPES)} and then "
            "_prompt.json."
        )
    for group, entities in groups.items():
        if not isinstance(entities, dict) or not all(
            isinstance(e, list) for e in entities.values()
        ):
            raise UsageError(f"{path}: {group} holds no lists of prompts by entity.")
        for entity, prompts in entities.items():
            for prompt in prompts:
                yield {"domain": domain, "group": group, "entity": entity, "prompt": prompt}


def _bold(row: Row) -> Prompt:
    group = row["group"].replace("_", " ")
    kind = _BOLD_TYPES.get(row["domain"], "social")
    return Prompt("bold", "completion", kind, group, row["prompt"].strip(), row["entity"])


def _beavertails(row: Row) -> Prompt | None:
    category = row["category"]
    if isinstance(category, str) and category.lstrip().startswith("{"):
        category = json.loads(category)
    if isinstance(category, Mapping):
        category = next((name for name, is_so in category.items() if is_so and _HARM in name), "")
    if _HARM not in category.lower():
        return None
    return Prompt("beavertails", "question", "", "", row["prompt"].strip())


def _stories(row: Row) -> Prompt | None:
    if row.get("language", "en") != "en":
        return None
    return _story(row["user_prompt"], row["target_attribute"], row["attribute_value_key"])


def _samples(row: Row) -> Prompt | None:
    about = row["metadata"]
    if row.get("language", "en") != "en" or not about.get("attribute_value_key"):
        return None
    asked = row["generations"][0]["messages"][0]["content"]
    return _story(asked, about["attribute"], about["attribute_value_key"])


def _story(asked: str, attribute: str, value: str) -> Prompt:
    words = attribute.lower().replace(" ", "_").split("_")
    kinds = (
        kind
        for part, kind in _ATTRIBUTES.items()
        if any(word == part if part == "age" else part in word for word in words)
    )
    return Prompt("stereotales", "question", next(kinds, "social"), value, asked.strip(), value)


_LAYOUTS = (
    _Layout("BOLD", frozenset({"domain", "group", "entity", "prompt"}), _bold),
    _Layout("BeaverTails", frozenset({"prompt", "category"}), _beavertails),
    _Layout(
        "StereoTales",
        frozenset({"user_prompt", "target_attribute", "attribute_value_key"}),
        _stories,
    ),
    _Layout("StereoTales", frozenset({"generations", "metadata"}), _samples),
)
