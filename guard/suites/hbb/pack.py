"""The files of a pack of concept pairs: items.jsonl, variants.jsonl, and pack.toml's hashes."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

from guard.datasets.rows import json_lines
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
    if not path.is_file():
        raise UsageError(f"There is no {path}; give a folder with {ITEMS}.")
    return list(json_lines(path))


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
