"""Runs the tests of what a change touches and of what imports it.

``python -m tests.changed`` takes what differs from the last commit, with files that git does not
know yet; ``--since main`` takes what differs from another. What follows is for pytest:
``python -m tests.changed --since main -n 3 --dist loadfile``. ``--list`` shows the choice alone.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterable

import grimp
import pytest

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
        *("tests/test_cluster_files.py", "tests/test_cluster.py"),
        *("tests/test_proxy.py", "tests/watch/test_grafana.py", "tests/audit"),
    ],
    "findings/": ["tests/test_docs.py"],
    "index/": [*_SHIPPED, "tests/cli", "tests/mentions", "tests/test_places.py"],
    "benchmarks/": ["tests/suites", "tests/audit", "tests/test_docs.py"],
    "benchmarks/detector/": _SHIPPED,
    "benchmarks/speed/": ["tests/bench", "tests/mentions", "tests/test_docs.py"],
    "guard/cli/frameworks.toml": ["tests/test_docs.py", "tests/cli"],
    "guard/models/": _SHIPPED,
    "tests/doors/proxy_side.py": ["tests/doors/test_proxy.py", "tests/doors/test_proxy_routes.py"],
    "tests/frameworks/measured.csv": ["tests/test_docs.py"],
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
    if module not in graph.modules:  # it was deleted or moved, and who imported it is not known
        yield "tests"
        return
    changed = {module} | graph.find_descendants(module)  # which run a package's own code
    for one in tuple(changed):
        changed |= {m for m in graph.find_downstream_modules(one) if _room(m) == _room(module)}
    importers = set(changed)
    for one in changed:
        importers |= graph.find_modules_that_directly_import(one)
    for name in importers:
        top, _, rest = name.partition(".")
        if top == "guard":
            room = rest.split(".")[0]
            yield from (
                (f"tests/{room}", f"tests/test_{room}.py") if room else ("tests/test_api.py",)
            )
            continue
        for user in {name} | graph.find_downstream_modules(name):
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


def _git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True)
    return [os.fsdecode(name) for name in done.stdout.split(b"\0") if name]


def changed_files(since: str) -> list[str]:
    """Return the files that differ from a commit, with new ones; raises CalledProcessError."""
    (commit,) = _git("rev-parse", "--verify", "--end-of-options", f"{since}^{{commit}}")
    differing = _git("diff", "--name-only", "--no-renames", "-z", commit.strip(), "--")
    return sorted({*differing, *_git("ls-files", "--others", "--exclude-standard", "-z")})


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.changed", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--since", default="HEAD", help="a commit, tag or branch (default: HEAD)")
    parser.add_argument("--list", action="store_true", help="show the tests, and run none")
    options, more = parser.parse_known_args(words)
    try:
        paths = changed_files(options.since)
        chosen = tests_of(paths, import_graph())
    except FileNotFoundError:
        parser.error("it needs git")
    except subprocess.CalledProcessError:
        parser.error(f"git knows no commit {options.since!r} here; git fetch may bring it")
    except (grimp.exceptions.SourceSyntaxError, UnicodeError) as error:
        parser.error(f"a module cannot be read: {error}")
    if not chosen:
        print(f"Nothing that a test reads differs from {options.since}.")
        return 0
    print(f"{len(paths)} changed files; tests: {' '.join(chosen)}", flush=True)
    if options.list:
        return 0
    code = subprocess.call([sys.executable, "-m", "pytest", *more, *chosen], cwd=ROOT)
    if code == pytest.ExitCode.NO_TESTS_COLLECTED:
        print("All of these tests are slow; to run them: python -m tests.changed -m slow")
        return 0
    return code


if __name__ == "__main__":
    sys.exit(main())
