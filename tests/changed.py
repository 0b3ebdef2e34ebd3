"""Runs the tests of what a change touches and of what imports it.

``python -m tests.changed`` takes what differs from the last commit, with files that git does not
know yet; ``--since main`` takes what differs from another. What follows is for pytest:
``python -m tests.changed --since main -n 2 --dist loadfile``. ``--list`` shows the choice alone.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import grimp

import guard
from tests.data import ROOT

PACKAGES = ("guard", "tests")

_SHIPPED = ["tests/detect", "tests/retrieve", "tests/behaviours", "tests/evaluate", "tests/train"]
# Which tests read a file other than by an import: the longest beginning that fits counts. A file
# that is no module and fits none may matter to any test.
READERS = {
    "README.md": ["tests/test_docs.py", "tests/test_api.py", "tests/doors/test_install.py"],
    "CHANGELOG.md": ["tests/test_docs.py", "tests/behaviours"],
    "CONTRIBUTING.md": ["tests/test_docs.py"],
    "ARCHITECTURE.md": ["tests/test_docs.py", "tests/test_architecture.py"],
    "NOTICE": ["tests/test_docs.py"],
    "SECURITY.md": ["tests/test_docs.py"],
    "docs/": ["tests/test_docs.py", "tests/test_api.py", "tests/audit/test_documented_suite.py"],
    "mkdocs.yml": ["tests/test_docs.py"],
    "examples/": [
        *("tests/test_docs.py", "tests/test_examples.py", "tests/test_testing.py"),
        *("tests/test_proxy.py", "tests/watch/test_grafana.py", "tests/audit"),
    ],
    "findings/": ["tests/test_docs.py"],
    "index/": [*_SHIPPED, "tests/cli", "tests/mentions", "tests/test_places.py"],
    "benchmarks/": ["tests/suites", "tests/audit", "tests/test_docs.py"],
    "benchmarks/detector/": _SHIPPED,
    "benchmarks/speed/": ["tests/bench", "tests/mentions", "tests/test_docs.py"],
    "guard/models/": _SHIPPED,
    "tests/doors/proxy_side.py": ["tests/doors/test_proxy.py", "tests/doors/test_proxy_routes.py"],
    "tests/page.py": ["tests/test_docs.py"],
}


def import_graph() -> grimp.ImportGraph:
    """Return who imports whom, with the modules that ``guard`` loads on first use of a name."""
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True, cache_dir=None)
    for home in {*guard._HOMES.values(), "guard.suites"}:
        graph.add_import(importer="guard", imported=home)
    return graph


def module_of(path: str) -> str | None:
    """Return the module that a file of the repository is; None if it is none."""
    if not path.endswith(".py") or path.split("/")[0] not in PACKAGES:
        return None
    parts = path.removesuffix(".py").split("/")
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _room(module: str) -> str:
    return ".".join(module.split(".")[:2])


def tests_of_module(module: str, graph: grimp.ImportGraph) -> Iterable[str]:
    """Yield the test files and folders that a change to a module needs; some may not exist.

    These are the tests of its room, of the rooms that import what of the room depends on it, and
    the test files that import any of that, themselves or by a helper of the tests. Rooms further
    off are left to the whole run: nearly all of them import ``gate`` by way of ``core``.
    """
    changed = {module}
    if module in graph.modules:  # else it was deleted: its importers changed with it, or fail
        changed |= graph.find_descendants(module)  # they run a package's own code
        for one in tuple(changed):
            changed |= {m for m in graph.find_downstream_modules(one) if _room(m) == _room(module)}
    importers = set(changed)
    for one in changed & graph.modules:
        importers |= graph.find_modules_that_directly_import(one)
    for name in importers:
        top, _, rest = name.partition(".")
        if top == "guard":
            room = rest.split(".")[0]
            yield from (
                (f"tests/{room}", f"tests/test_{room}.py") if room else ("tests/test_api.py",)
            )
            continue
        users = graph.find_downstream_modules(name) if name in graph.modules else set()
        for user in {name} | users:
            package, _, stem = user.rpartition(".")
            if stem.startswith("test_"):
                yield f"{user.replace('.', '/')}.py"
            elif stem == "conftest":
                yield package.replace(".", "/")


def tests_of(paths: Iterable[str], graph: grimp.ImportGraph) -> list[str]:
    """Return the test files and folders, relative to the repository, that a change to files needs.

    A ``conftest.py`` needs its folder; the imports of ``guard`` are always checked.
    """
    needed: set[str] = set()
    for path in paths:
        module = module_of(path)
        fits = [start for start in READERS if path.startswith(start)]
        if fits or module is None:
            needed.update(READERS[max(fits, key=len)] if fits else ["tests"])
        if module is not None:
            needed.update(tests_of_module(module, graph))
        if path.startswith("guard/"):
            needed.add("tests/test_architecture.py")
    there = {path for path in needed if (ROOT / path).exists()}
    return sorted(p for p in there if not any(p.startswith(f"{q}/") for q in there))


def changed_files(since: str) -> list[str]:
    """Return the files that differ from a commit, with new ones; raises CalledProcessError."""

    def git(*words: str) -> list[str]:
        done = subprocess.run(
            ["git", *words], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
        )
        return [name for name in done.stdout.split("\0") if name]

    differing = git("diff", "--name-only", "--no-renames", "-z", since, "--")
    return sorted({*differing, *git("ls-files", "--others", "--exclude-standard", "-z")})


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.changed", description=__doc__)
    parser.add_argument("--since", default="HEAD", help="a commit, tag or branch (default: HEAD)")
    parser.add_argument("--list", action="store_true", help="show the tests, and run none")
    options, more = parser.parse_known_args(words)
    try:
        paths = changed_files(options.since)
    except subprocess.CalledProcessError:
        parser.error(f"git knows no {options.since!r}: name a commit, tag or branch")
    chosen = tests_of(paths, import_graph())
    if not chosen:
        print(f"Nothing that a test reads differs from {options.since}.")
        return 0
    print(f"{len(paths)} changed files; tests: {' '.join(chosen)}", flush=True)
    if options.list:
        return 0
    return subprocess.call([sys.executable, "-m", "pytest", *more, *chosen], cwd=Path(ROOT))


if __name__ == "__main__":
    sys.exit(main())
