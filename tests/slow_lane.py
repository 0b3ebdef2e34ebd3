"""The slow lane: tests that take minutes, and every property with all of its examples.

``python -m tests.slow_lane --minutes 12`` runs those of the rooms that differ from the last tag,
today's tenth first; without a tag the day's tenth. ``--whole`` runs them all, as before a release,
and ``--whole --part 2/6`` one part of six: an interrupted run goes on where it was when the command
is given again on the same commit. What fails is run once more alone; the exit code is 1 if a test
failed both times.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.data import ROOT
from tests.rows import SLOW

RECORDS = ROOT / ".slow-lane"
NO_TESTS = pytest.ExitCode.NO_TESTS_COLLECTED
LANE = ["-m", "slow or hypothesis", "--hypothesis-profile", SLOW]


class Slice(NamedTuple):
    """One of ``of`` parts of the tests, drawn by their ids; ``number`` counts from 1."""

    number: int
    of: int

    @classmethod
    def read(cls, text: str) -> Slice:
        """Return the slice written as ``I/N``; raises ArgumentTypeError."""
        number, _, of = text.partition("/")
        if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
            raise argparse.ArgumentTypeError(f"must be I/N with I from 1 to N, not {text!r}")
        return cls(int(number), int(of))

    @classmethod
    def of_day(cls, day: datetime.date) -> Slice:
        """Return the tenth of a day: ten days in a row run each test once."""
        return cls(day.toordinal() % 10 + 1, 10)

    def has(self, name: str) -> bool:
        """Say whether the test of this id is in the slice."""
        return zlib.crc32(name.encode("utf-8", "surrogatepass")) % self.of == self.number - 1

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


def _whole_lines(record: Path) -> str:
    """Return a record's text without the half line that a killed run may have left."""
    text = record.read_text("utf-8") if record.exists() else ""
    return text[: text.rfind("\n") + 1]


def outcomes(record: Path) -> dict[str, str]:
    """Return how each test of a record ended when it last ran: passed, failed or skipped."""
    lines = _whole_lines(record).splitlines()
    return {row["id"]: row["outcome"] for row in map(json.loads, lines)}


def passed(record: Path) -> set[str]:
    """Return the ids of the tests that passed by a record."""
    return {name for name, outcome in outcomes(record).items() if outcome == "passed"}


class Record:
    """A pytest plugin that adds a line to a file when a test has ended with its teardown."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_text(_whole_lines(path), encoding="utf-8")
        self._worst: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if type(report) is not pytest.TestReport:  # a subtest's; its test is reported too
            return
        worst = self._worst.setdefault(report.nodeid, "passed")
        if report.outcome == "failed" or worst == "passed":
            self._worst[report.nodeid] = report.outcome
        if report.when == "teardown":
            row = {"id": report.nodeid, "outcome": self._worst.pop(report.nodeid)}
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def changed_rooms() -> list[str] | None:
    """Return the tests of the rooms that differ from the last tag; None if there is no tag."""
    try:
        tag = _git("describe", "--tags", "--abbrev=0").strip()
    except subprocess.CalledProcessError:
        return None
    from tests.changed import changed_files, import_graph, tests_of

    return tests_of(changed_files(tag), import_graph())


def run_pytest(words: list[str], end: float | None) -> int | None:
    """Run pytest; return its exit code, or None if it was interrupted at ``end``.

    ``end`` is by ``time.monotonic``; None means that it runs to the last test.
    """
    left = None if end is None else end - time.monotonic()
    if left is not None and left <= 0:
        return None
    process = subprocess.Popen([sys.executable, "-m", "pytest", *words], cwd=ROOT)
    try:
        return process.wait(left)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return None


def run_lane(tests: list[str], part: Slice, record: Path, end: float | None) -> bool:
    """Run the lane's tests of a slice, and what fails once more alone; return whether all passed.

    Tests that passed by the record are not run again.
    """
    before = outcomes(record)
    words = ["-n", "2", "--dist", "loadfile", "--slice", str(part), *LANE, "--record", str(record)]
    code = run_pytest([*words, *tests], end)
    if code is None:
        print("The time was over before all of these tests had run.", flush=True)
    after = outcomes(record)
    failed = [name for name, how in after.items() if how == "failed"]
    # A worker that crashes, or a file that cannot be imported, leaves no line of a failed test.
    if not (code in (None, 0, NO_TESTS) or (code == pytest.ExitCode.TESTS_FAILED and failed)):
        print(f"pytest ended with exit code {code}, and no failed test says why.", flush=True)
        return False
    for name in failed:
        print(f"{name} failed beside others; once more alone:", flush=True)
        run_pytest(["-m", "", *LANE[2:], "--record", str(record), name], None)
    alone = outcomes(record)
    for name in failed:
        again = "passed" if alone[name] == "passed" else "failed again"
        print(f"{name} failed beside others and {again} alone.", flush=True)
    twice = [name for name in failed if alone[name] != "passed"]
    new = sum(how == "passed" for how in after.values()) - sum(
        how == "passed" for how in before.values()
    )
    print(f"slow lane: {new} passed, {len(failed) - len(twice)} passed only alone, ", end="")
    print(f"{len(twice)} failed", flush=True)
    return not twice


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.slow_lane", description=__doc__)
    parser.add_argument("--minutes", type=float, help="interrupt the tests after this time")
    parser.add_argument("--whole", action="store_true", help="run all; goes on where it was")
    parser.add_argument(
        "--part",
        type=Slice.read,
        default=Slice(1, 1),
        metavar="I/N",
        help="of --whole: part I of N",
    )
    options = parser.parse_args(words)
    os.environ.update(HF_HUB_OFFLINE="1", LITELLM_LOCAL_MODEL_COST_MAP="True")
    RECORDS.mkdir(exist_ok=True)
    end = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    if options.whole:
        if _git("status", "--porcelain").strip():
            parser.error("a whole run is of one commit: commit your changes first")
        commit = _git("rev-parse", "--short=12", "HEAD").strip()
        record = RECORDS / f"{commit}.jsonl"
        return 0 if run_lane([], options.part, record, end) else 1
    record = RECORDS / "day.jsonl"
    record.unlink(missing_ok=True)
    today, rooms = datetime.date.today(), changed_rooms()
    if rooms is None:
        print(f"There is no tag: the tenth of {today}.", flush=True)
        return 0 if run_lane([], Slice.of_day(today), record, end) else 1
    print(f"What differs from the last tag: {' '.join(rooms) or 'nothing'}", flush=True)
    slices = [Slice.of_day(today), Slice(1, 1)] if rooms else []
    passed_all = [run_lane(rooms, part, record, end) for part in slices]
    return 0 if all(passed_all) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("Interrupted. With --whole the same command goes on from here.")
