"""The files of a pack of concept pairs, items.jsonl and variants.jsonl, and their form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from guard.datasets.rows import json_lines
from guard.errors import UsageError

ITEMS, VARIANTS = "items.jsonl", "variants.jsonl"
X = "[[X]]"
"""Stands for the person in every sentence."""
REWRITTEN = 10
"""The number of rewritten sentences of an option."""
_SENTENCES = ("context", "option_1", "option_2")
_KEYS = ("id", "domain", "concept_1", "concept_2", *_SENTENCES)


def read_folder(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the concept pairs and the rewritten sentences of a folder, unchecked.

    ``variants.jsonl`` may be missing. Raises UsageError that names the file and the line.
    """
    path = folder / VARIANTS
    return read_lines(folder / ITEMS), read_lines(path) if path.is_file() else []


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file, one a line. Raises UsageError that names the line."""
    if not path.is_file():
        raise UsageError(f"There is no {path}; give a folder with {ITEMS}.")
    return list(json_lines(path))


def item_faults(
    items: Sequence[Mapping[str, Any]], variants: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """Yield what cannot be asked of concept pairs and rewritten sentences, and its correction."""
    known: set[str] = set()
    for item in items:
        name = str(item.get("id", "?"))
        if missing := [key for key in _KEYS if not _is_text(item.get(key))]:
            yield f"{name}: {', '.join(missing)}: missing, empty or not text; give it"
            continue
        if name in known:
            yield f"{name}: id: occurs twice; give each pair its own"
        known.add(name)
        for key in _SENTENCES:
            if (count := item[key].count(X)) != 1:
                yield f"{name}: {key}: has {count} {X}; every sentence has exactly one"
    listed: set[str] = set()
    for entry in variants:
        name = str(entry.get("id", "?"))
        if name not in known:
            yield f"{name}: id: no concept pair of {ITEMS} has this id"
        elif name in listed:
            yield f"{name}: id: has several lines in {VARIANTS}; join them"
        listed.add(name)
        for key in ("option_1", "option_2"):
            sentences = entry.get(key)
            if not isinstance(sentences, list) or not _are_rewritten(sentences):
                yield f"{name}: variants.{key}: give {REWRITTEN} sentences, each with one {X}"


def _are_rewritten(sentences: Sequence[Any]) -> bool:
    usable = [text for text in sentences if _is_text(text) and text.count(X) == 1]
    return len(usable) == len(sentences) == REWRITTEN


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())
