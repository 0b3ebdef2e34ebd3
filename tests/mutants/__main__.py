"""Plants faults in a copy of the code, one at a time, and says which the tests of their room find.

``python -m tests.mutants`` takes about an hour on two cores. ``--from N`` resumes an interrupted
run. It exits with 1 if a fault was found by none of them.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.data import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TIMEOUT = 1800
"""Seconds for the tests of one fault; a fault that makes them hang is found."""


class Mutant(NamedTuple):
    """One fault: ``replace`` in the place of ``find`` in a file under ``guard/``."""

    file: str
    promise: int
    find: str
    replace: str

    def planted(self, text: str) -> str:
        """Return a file's text with the fault; raises ValueError unless it fits exactly once."""
        if text.count(self.find) != 1:
            raise ValueError(f"guard/{self.file} must hold once: {self.find!r}")
        return text.replace(self.find, self.replace)


def mutants() -> list[Mutant]:
    """Return the faults of ``mutants.toml``."""
    with Path(__file__).with_name("mutants.toml").open("rb") as file:
        return [Mutant(**one) for one in tomllib.load(file)["mutant"]]


@contextmanager
def copied() -> Iterator[Path]:
    """Yield a copy of the repository's files."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        where = Path(folder) / "guard"
        for name in filter(None, listed.stdout.split("\0")):
            (where / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, where / name)
        yield where


def room(file: str) -> str:
    """Return the tests that have to find a fault in a file: those of its room."""
    return f"tests/{file.split('/')[0]}"


def first_failure(where: Path, tests: str) -> str | None:
    """Return the id of a test that fails in the copy; None if all pass."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", tests]
    environment = {**os.environ, "PYTHONPATH": str(where)}
    try:
        done = subprocess.run(
            command, cwd=where, env=environment, capture_output=True, text=True, timeout=TIMEOUT
        )
    except subprocess.TimeoutExpired:
        return "no end in time"
    if done.returncode == 0:
        return None
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return found[1] if found else f"pytest exited with {done.returncode}"


def finder(mutant: Mutant, where: Path) -> str | None:
    """Plant a fault, run the tests, take it out; return the id of a test that found it."""
    file = where / "guard" / mutant.file
    text = file.read_text("utf-8")
    file.write_text(mutant.planted(text), encoding="utf-8")
    try:
        return first_failure(where, room(mutant.file))
    finally:
        file.write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--from", type=int, default=1, dest="first", help="number of the first")
    parser.add_argument("--to", type=int, help="number of the last")
    options = parser.parse_args()
    chosen = list(enumerate(mutants(), start=1))[options.first - 1 : options.to]
    missed = 0
    with copied() as where:
        for number, mutant in chosen:
            test = finder(mutant, where)
            missed += test is None
            outcome = "NOT FOUND" if test is None else f"found by {test}"
            print(f"{number:3} promise {mutant.promise} {mutant.file}: {outcome}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} found")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
