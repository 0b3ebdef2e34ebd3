"""Own-written examples, and the evaluation data where it is present."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.data import DATA, absent


@pytest.fixture(scope="session")
def data() -> Path:
    if not DATA.is_dir():
        pytest.skip(absent())
    return DATA


@pytest.fixture(scope="session")
def part(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data with few training texts, of which three are evaluation texts.

    To look for each evaluation text among all training texts takes seconds a set.
    """
    folder = tmp_path_factory.mktemp("part") / "data"
    for path in (p for p in data.rglob("*") if p.is_file()):
        to = folder / path.relative_to(data)
        to.parent.mkdir(parents=True, exist_ok=True)
        if path.name == "train.jsonl":
            to.write_text("".join(first_lines(path, 500)), encoding="utf-8")
        else:
            to.symlink_to(path)
    learned = [
        *({"text": row["sent_more"], "label": 0} for row in rows(data / "crows_pairs")),
        *rows(data / "redditbias"),
    ]
    for row in learned:
        name = "emgsd" if "text" in row else "redditbias"
        with (folder / name / "train.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    return folder


def first_lines(path: Path, most: int) -> list[str]:
    with path.open(encoding="utf-8") as lines:
        return list(islice(lines, most))


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in first_lines(folder / "eval.jsonl", 3)]
