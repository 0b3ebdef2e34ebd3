"""Names that can be searched for: one class a name, functions that say what they return."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1] / "guard"
#: Names that say nothing of the value, unless a comprehension beside them does.
EMPTY = {"found", "one", "of", "made", "given"}
#: The largest share of functions that may have a one-word name.
MOST_ONE_WORD = 0.45
Function = ast.FunctionDef | ast.AsyncFunctionDef


def trees() -> Iterator[tuple[str, ast.Module]]:
    """Every file of guard, parsed."""
    for path in sorted(ROOT.rglob("*.py")):
        yield str(path.relative_to(ROOT)), ast.parse(path.read_bytes())


def shared_classes(files: list[tuple[str, ast.Module]]) -> dict[str, int]:
    """The class names that stand more than once, and how often."""
    names = Counter(
        node.name for _, tree in files for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    )
    return {name: count for name, count in names.items() if count > 1}


def empty_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The lines in functions that give an empty name to a value or a parameter."""
    in_comprehensions = {
        id(name)
        for node in ast.walk(tree)
        if isinstance(node, ast.comprehension)
        for name in ast.walk(node.target)
    }
    for function in ast.walk(tree):
        if not isinstance(function, Function):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.arg) and node.arg in EMPTY:
                yield node.lineno, node.arg
            stored = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            if stored and node.id in EMPTY and id(node) not in in_comprehensions:
                yield node.lineno, node.id


def one_word_share(files: list[tuple[str, ast.Module]]) -> float:
    """The share of functions and methods whose name is one word; Python's own are left out."""
    names = [
        node.name
        for _, tree in files
        for node in ast.walk(tree)
        if isinstance(node, Function) and not node.name.startswith("__")
    ]
    return sum("_" not in name.strip("_") for name in names) / len(names)


def test_a_class_name_stands_once() -> None:
    assert not shared_classes(list(trees()))


def test_no_value_is_called_by_an_empty_name() -> None:
    places = [f"{path}:{line} {name}" for path, tree in trees() for line, name in empty_names(tree)]
    assert not places, "\n".join(places)


def test_functions_say_what_they_return() -> None:
    assert one_word_share(list(trees())) <= MOST_ONE_WORD


def test_what_the_checks_see() -> None:
    tree = ast.parse(
        "class A: found: int\n"
        "class A: pass\n"
        "def read(of):\n"
        "    found = [one for one in of]\n"
        "def read_rows(): pass\n"
    )
    assert shared_classes([("x", tree)]) == {"A": 2}
    assert list(empty_names(tree)) == [(3, "of"), (4, "found")]
    assert one_word_share([("x", tree)]) == 0.5
