"""The files of a pack of concept pairs: items.jsonl, variants.jsonl and what pack.toml records."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from guard.errors import UsageError

ITEMS, VARIANTS = "items.jsonl", "variants.jsonl"


def read(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the concept pairs and the rewritten sentences of a folder, unchecked.

    ``variants.jsonl`` may be missing. Raises UsageError that names the file and the line.
    """
    path = folder / VARIANTS
    return lines(folder / ITEMS), lines(path) if path.is_file() else []


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file, one a line. Raises UsageError that names the line."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"Cannot read {path}: {error}. Give a folder that has {ITEMS}.") from error
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise UsageError(f"{path}, line {number} is no JSON: {error}.") from error
        if not isinstance(entry, dict):
            raise UsageError(f"{path}, line {number} must be an object with the pair's fields.")
        found.append(entry)
    return found


def record(folder: Path) -> None:
    """Write the files' SHA-256 and the counts into the folder's pack.toml."""
    items, variants = read(folder)
    about = folder / "pack.toml"
    text = about.read_text("utf-8")
    for key, count in (("pairs", len(items)), ("variants", len(variants))):
        text = re.sub(rf"(?m)^{key} = \d+$", f"{key} = {count}", text)
    for name in re.findall(r'(?m)^"([^"]+)" = "', text):
        found = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        text = re.sub(rf'(?m)^"{re.escape(name)}" = ".*"$', f'"{name}" = "{found}"', text)
    about.write_text(text, "utf-8")
