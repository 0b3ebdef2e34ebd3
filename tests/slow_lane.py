"""The slow lane: tests that take minutes, and every property with all of its examples.

``python -m tests.slow_lane --minutes 12`` runs those of the rooms that differ from the last tag,
first those of a tenth that the date chooses; without a tag only that tenth. ``--part 2/6`` runs one
part of six of the whole lane, as before a release: given again on the same commit, it goes on where
it was. A test that fails is run again alone, and the exit code is 1 if it fails then too, or if a
part did not get to its end. These second runs have five minutes more than ``--minutes``.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import re
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
PROFILE = ["--hypothesis-profile", SLOW]
LANE = ["-m", "slow or hypothesis", *PROFILE]
SECOND_RUNS_S = 300
CRASHED = "(a worker)"


class Slice(NamedTuple):
    """One of ``of`` parts of the tests, drawn by their ids; ``number`` counts from 1."""

    number: int
    of: int

    @classmethod
    def read(cls, text: str) -> Slice:
        """Return the slice written as ``I/N``; raises ArgumentTypeError."""
        number, _, of = text.partition("/")
        if not re.fullmatch(r"[1-9]\d{0,5}/[1-9]\d{0,5}", text, re.A) or int(number) > int(of):
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
    content = record.read_bytes() if record.exists() else b""
    return content[: content.rfind(b"\n") + 1].decode("utf-8", "replace")


def outcomes(record: Path) -> dict[str, str]:
    """Return how each test of a record ended when it last ran: passed, failed or skipped.

    Raises ValueError if the file is no record.
    """
    try:
        rows = [json.loads(line) for line in _whole_lines(record).splitlines()]
        return {row["id"]: row["outcome"] for row in rows}
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{record} is no record of a run: delete it.") from None


def done_before(record: Path) -> set[str]:
    """Return the ids of the tests that had passed when the run with this record began."""
    return set(record.with_suffix(".done").read_text("utf-8").splitlines())


class Record:
    """A pytest plugin that adds a line to a file when a test has ended with its teardown.

    A file that cannot be collected and a test whose worker crashed have failed; so has
    :data:`CRASHED` itself.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_text(_whole_lines(path), encoding="utf-8")
        # For the workers of this run: one that replaces another must leave out the same tests.
        done = [name for name, how in outcomes(path).items() if how == "passed"]
        path.with_suffix(".done").write_text("\n".join(done), encoding="utf-8")
        self._worst: dict[str, str] = {}

    def _write(self, name: str, outcome: str) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"id": name, "outcome": outcome}) + "\n")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if type(report) is not pytest.TestReport:  # a subtest's; its test is reported too
            return
        worst = self._worst.setdefault(report.nodeid, "passed")
        if report.outcome == "failed" or worst == "passed":
            self._worst[report.nodeid] = report.outcome
        if report.when not in ("setup", "call"):  # of a crashed worker xdist says "???"
            self._write(report.nodeid, self._worst.pop(report.nodeid))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object, error: object) -> None:
        if error:
            self._write(CRASHED, "failed")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write(report.nodeid, "failed")


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
        return None
    finally:  # nothing goes on writing to the record, however this ends
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Lane(NamedTuple):
    """How a run of the lane ended: whether it got to its end, and how many tests ended how."""

    complete: bool
    passed: int
    passed_alone: int
    failed: int


def run_lane(tests: list[str], part: Slice, record: Path, end: float | None) -> Lane:
    """Run the lane's tests of a slice, and what fails once more alone.

    Tests that passed by the record are not run again. Raises RuntimeError if pytest itself fails.
    """
    before = outcomes(record)
    # With "=" and a path: before pytest has read tests/conftest.py it does not know these options,
    # and would take a record that exists for the path of tests.
    words = ["-n", "3", "--dist", "loadfile", f"--slice={part}", *LANE, f"--record={record}"]
    code = run_pytest([*words, *(tests or ["tests"])], end)
    if code is None:
        print("The time was over before all of these tests had run.", flush=True)
    after = outcomes(record)
    failed = [name for name, how in after.items() if how == "failed"]
    if code not in (None, 0, NO_TESTS) and not failed:
        raise RuntimeError(f"pytest ended with exit code {code}, and no failed test says why.")
    last = None if end is None else max(end, time.monotonic()) + SECOND_RUNS_S
    if code is None:  # it was interrupted, and its workers with it
        failed = [name for name in failed if name != CRASHED]
    for name in failed:
        if name != CRASHED:
            print(f"{name} failed beside others; once more alone:", flush=True)
            run_pytest(["-m", "", *PROFILE, f"--record={record}", name], last)
    alone = outcomes(record)
    for name in failed:
        again = "passed" if alone[name] == "passed" else "failed or did not end"
        print(f"{name} failed beside others and {again} alone.", flush=True)
    twice = sum(alone[name] != "passed" for name in failed)
    passed = sum(how == "passed" and before.get(name) != how for name, how in after.items())
    found = Lane(code is not None, passed, len(failed) - twice, twice)
    print(
        f"slow lane: {found.passed} passed, {found.passed_alone} passed only alone, "
        f"{found.failed} failed",
        flush=True,
    )
    return found


def _minutes(text: str) -> float:
    minutes = float(text)
    if not (math.isfinite(minutes) and minutes > 0):
        raise argparse.ArgumentTypeError(f"must be a number above 0, not {text!r}")
    return minutes


def _interrupted(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.slow_lane", description=__doc__)
    parser.add_argument("--minutes", type=_minutes, help="interrupt the tests after this time")
    parser.add_argument("--part", type=Slice.read, metavar="I/N", help="part I of N of all tests")
    options = parser.parse_args(words)
    os.environ.update(HF_HUB_OFFLINE="1", LITELLM_LOCAL_MODEL_COST_MAP="True")
    signal.signal(signal.SIGTERM, _interrupted)
    try:
        _git("rev-parse", "HEAD")
    except (OSError, subprocess.CalledProcessError):
        parser.error("it needs git and a repository with a commit")
    RECORDS.mkdir(exist_ok=True)
    end = None if options.minutes is None else time.monotonic() + 60 * options.minutes
    if options.part is not None:
        if _git("status", "--porcelain").strip():
            parser.error("a part is of one commit: commit your changes first")
        commit = _git("rev-parse", "--short=12", "HEAD").strip()
        part: Slice = options.part
        name = f"{commit}-{part.number}-of-{part.of}.jsonl"
        found = run_lane([], part, RECORDS / name, end)
        return 0 if found.complete and not found.failed else 1
    record = RECORDS / "day.jsonl"
    record.unlink(missing_ok=True)
    today, rooms = datetime.date.today(), changed_rooms()
    if rooms == []:
        print("Nothing differs from the last tag.", flush=True)
        return 0
    if rooms is None:
        print(f"There is no tag: the tenth of {today}.", flush=True)
    else:
        print(f"The rooms that differ from the last tag: {' '.join(rooms)}", flush=True)
    found = run_lane(rooms or [], Slice.of_day(today), record, end)
    if rooms and found.complete and not found.failed:
        found = run_lane(rooms, Slice(1, 1), record, end)
    return 1 if found.failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (RuntimeError, ValueError) as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("Interrupted. With --part the same command goes on from here.")
