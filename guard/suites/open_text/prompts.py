"""Prompts: the pack's, and those of files that users bring.

Layouts of files. BOLD: ``<domain>_prompt.json`` of groups, entities and beginnings, or rows of
``domain``, ``group``, ``entity`` and ``prompt``. BeaverTails and its evaluation set: rows of
``prompt`` and ``category``; only the discrimination category is read. StereoTales: rows of stories
(``user_prompt``, ``target_attribute``, ``attribute_value_key``) or of samples (``generations``,
``metadata``); only English ones are read. Rows are JSON lines, a JSON list (``.json``), a table or
parquet.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from guard.datasets.rows import (
    COMPRESSED,
    DAMAGED,
    BadRow,
    FileRow,
    Values,
    convert_rows,
    json_lines,
    open_decompressed,
    read_rows,
)
from guard.errors import UsageError
from guard.verdict import BiasType

Kind = Literal["completion", "question", "control"]
KINDS: tuple[Kind, ...] = ("completion", "question", "control")
_ROWS = (".jsonl", ".json", ".csv", ".parquet")
_BOLD_TYPES: Mapping[str, BiasType] = {
    "gender": "gender",
    "race": "race",
    "religious_ideology": "religion",
    "political_ideology": "social",
    "profession": "social",
}
_HARM = "discrimination"
# The bias type by a part of StereoTales' attribute name; any other is social.
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


class Prompt(NamedTuple):
    """A half sentence to complete, a question, or an ordinary request (a control).

    ``type`` and ``group`` are those that it is about, empty if it is about nobody. ``drawn`` names
    prompts that were drawn together, such as those about one person.
    """

    id: str
    kind: Kind
    type: BiasType | Literal[""]
    group: str
    text: str
    drawn: str = ""


def shipped_prompts(folder: Path) -> Iterator[Prompt]:
    """Yield the prompts of the pack in ``folder``."""
    for row in json_lines(folder / "prompts.jsonl"):
        yield Prompt(
            row["id"], row["kind"], row.get("type", ""), row.get("group", ""), row["prompt"]
        )


class _Layout(NamedTuple):
    name: str
    columns: frozenset[str]
    read: Callable[[Values], Prompt | None]


def read_prompts(path: Path) -> tuple[list[Prompt], str]:
    """Return the distinct prompts of a file, or of the files in a folder, and their hash.

    Raises UsageError if a file cannot be read or has another layout, or if there is no prompt.
    """
    by_text: dict[str, Prompt] = {}
    for file in _prompt_files(path):
        for prompt in _prompts_in(file):
            by_text.setdefault(prompt.text, prompt)
    if not by_text:
        raise UsageError(
            f"{path} has no prompt for open_text, which reads the discrimination category of "
            "BeaverTails and the English part of StereoTales."
        )
    numbered = [p._replace(id=f"{p.id}-{n:05}") for n, p in enumerate(by_text.values())]
    whole = hashlib.sha256(json.dumps(numbered, ensure_ascii=False).encode())
    return numbered, whole.hexdigest()


def _prompt_files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if _file_suffix(file) in _ROWS)
    # BOLD's folder also has sentences of Wikipedia.
    files = [file for file in files if "prompt" in file.name] or files
    if not files:
        raise UsageError(f"{path} has no file of prompts ({', '.join(_ROWS)}).")
    return files


def _file_suffix(path: Path) -> str:
    return (path.with_suffix("") if path.suffix in COMPRESSED else path).suffix


def _prompts_in(path: Path) -> Iterator[Prompt]:
    prompts = convert_rows(path, _file_rows(path), _prompt_of, None, "Correct or delete the row.")
    return (prompt for prompt in prompts if prompt is not None and prompt.text)


def _prompt_of(row: FileRow) -> Prompt | None:
    layout = next((one for one in _LAYOUTS if one.columns <= row.values.keys()), None)
    if layout is None:
        raise BadRow("the columns are those of neither BOLD, BeaverTails nor StereoTales")
    try:
        prompt = layout.read(row.values)
        for value in prompt or ():
            str.encode(value)  # fails on surrogates, which no request can hold
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        raise BadRow(f"not a row of {layout.name}") from None
    return prompt


def _file_rows(path: Path) -> Iterator[FileRow]:
    suffix = _file_suffix(path)
    if suffix not in (".json", ".parquet"):
        return read_rows(path)
    values = _parquet_rows(path) if suffix == ".parquet" else _document_rows(path)
    return (FileRow(0, value, item=number) for number, value in enumerate(values, 1))


def _document_rows(path: Path) -> Iterable[Values]:
    """Return the rows of a JSON file that is one list, or BOLD's object of groups."""
    try:
        with open_decompressed(path) as file:
            document: Any = json.loads(file.read().decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError, *DAMAGED) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{path} cannot be read: {reason}.") from None
    if isinstance(document, dict):
        return _bold_rows(path, document)
    if not isinstance(document, list) or not all(isinstance(row, dict) for row in document):
        raise UsageError(f"{path} has no rows; give a list of objects, or JSON lines.")
    return document


def _parquet_rows(path: Path) -> Iterable[Values]:
    try:
        from pyarrow import parquet  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise UsageError(
            f"{path} is parquet, which needs pyarrow; install it, or save the table as JSON lines."
        ) from None
    try:
        values: list[Values] = parquet.read_table(path).to_pylist()
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}.") from None
    return values


def _bold_rows(path: Path, groups: Mapping[str, Any]) -> Iterator[Values]:
    """Yield the rows of BOLD's own files: beginnings by group and entity."""
    domain = path.name.partition("_prompt")[0]
    if domain not in _BOLD_TYPES:
        raise UsageError(
            f"{path} is not a file of BOLD, such as gender_prompt.json; the domains are "
            f"{', '.join(_BOLD_TYPES)}."
        )
    for group, entities in groups.items():
        if not isinstance(entities, dict) or not all(
            isinstance(e, list) for e in entities.values()
        ):
            raise UsageError(f"{path}: {group} holds no lists of prompts by entity.")
        for entity, prompts in entities.items():
            for prompt in prompts:
                yield {"domain": domain, "group": group, "entity": entity, "prompt": prompt}


def _bold_prompt(row: Values) -> Prompt:
    group = row["group"].replace("_", " ")
    kind = _BOLD_TYPES.get(row["domain"], "social")
    return Prompt("bold", "completion", kind, group, row["prompt"].strip(), row["entity"])


def _beavertails_prompt(row: Values) -> Prompt | None:
    category = row["category"]
    if isinstance(category, str) and category.lstrip().startswith("{"):
        category = json.loads(category)
    if isinstance(category, Mapping):
        category = next((name for name, true in category.items() if true and _HARM in name), "")
    if _HARM not in category.lower():
        return None
    return Prompt("beavertails", "question", "", "", row["prompt"].strip())


def _stories_prompt(row: Values) -> Prompt | None:
    if row.get("language", "en") != "en":
        return None
    return _story_prompt(row["user_prompt"], row["target_attribute"], row["attribute_value_key"])


def _samples_prompt(row: Values) -> Prompt | None:
    about = row["metadata"]
    if row.get("language", "en") != "en" or not about.get("attribute_value_key"):
        return None
    prompt = row["generations"][0]["messages"][0]["content"]
    return _story_prompt(prompt, about["attribute"], about["attribute_value_key"])


def _story_prompt(prompt: str, attribute: str, value: str) -> Prompt:
    words = attribute.lower().replace(" ", "_").split("_")
    kinds = (
        kind
        for part, kind in _ATTRIBUTES.items()
        if any(word == part if part == "age" else part in word for word in words)
    )
    return Prompt("stereotales", "question", next(kinds, "social"), value, prompt.strip(), value)


_LAYOUTS = (
    _Layout("BOLD", frozenset({"domain", "group", "entity", "prompt"}), _bold_prompt),
    _Layout("BeaverTails", frozenset({"prompt", "category"}), _beavertails_prompt),
    _Layout(
        "StereoTales",
        frozenset({"user_prompt", "target_attribute", "attribute_value_key"}),
        _stories_prompt,
    ),
    _Layout("StereoTales", frozenset({"generations", "metadata"}), _samples_prompt),
)
