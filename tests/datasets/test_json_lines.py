"""JSON lines end at "\\n" alone: a string may hold the other characters that end lines."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from guard.cli.bench import texts_of
from guard.datasets.rows import json_lines, read_rows
from guard.evaluate import behaviours
from guard.retrieve.statement import read_statements
from guard.suites.hbb import pack
from tests.rows import rows as each

ROOT = Path(__file__).parents[2]
#: With the characters at which str.splitlines splits, and which JSON does not escape.
TEXT = "one\u2028two\u2029three\x85four"


def written(folder: Path, key: str) -> Path:
    """A file of two lines in which ``key`` is TEXT."""
    line = json.dumps({key: TEXT, "id": "1"}, ensure_ascii=False)
    path = folder / "lines.jsonl"
    path.write_bytes(f"{line}\n{line}\n".encode())
    return path


def statements(folder: Path) -> list[str]:
    path = folder / "statements.jsonl"
    line = {"statement": TEXT, "bias_type": "race", "group": "g", "attribute": "a"}
    path.write_text((json.dumps(line, ensure_ascii=False) + "\n") * 2, encoding="utf-8")
    return [TEXT for one in read_statements(path) if one.statement.startswith("one")]


def cases(folder: Path) -> list[str]:
    line = {"text": TEXT, "expect": "harmless"}
    path = folder / "harmless.jsonl"
    path.write_text((json.dumps(line, ensure_ascii=False) + "\n") * 2, encoding="utf-8")
    return [case.text for case in behaviours.read(folder).cases]


READERS: tuple[Callable[[Path], list[str]], ...] = (
    lambda folder: [str(row["text"]) for row in json_lines(written(folder, "text"))],
    lambda folder: [str(row.values["text"]) for row in read_rows(written(folder, "text"))],
    lambda folder: [str(row["answer"]) for row in pack.read_lines(written(folder, "answer"))],
    lambda folder: texts_of(written(folder, "text")),
    statements,
    cases,
)


@each("reader", READERS)
def test_every_reader_reads_two_lines(
    reader: Callable[[Path], list[str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert reader(tmp_path_factory.mktemp("lines")) == [TEXT, TEXT]


def functions(path: Path) -> Iterator[tuple[str, set[str]]]:
    """Yield each function of a module with the names of the methods that it calls."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            calls = {
                f"{ast.unparse(one.func.value)}.{one.func.attr}"
                for one in ast.walk(node)
                if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute)
            }
            yield node.name, calls


def test_nothing_that_reads_json_splits_at_other_ends_of_lines() -> None:
    found = {
        f"{path.name}:{name}"
        for room in ("guard", "benchmarks")
        for path in (ROOT / room).rglob("*.py")
        if not path.name.startswith("test_")
        for name, calls in functions(path)
        if "json.loads" in calls and any(call.endswith(".splitlines") for call in calls)
    }
    assert found == {"peers.py:measured"}  # reads what a probe prints, which is ASCII
