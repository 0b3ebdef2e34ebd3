from __future__ import annotations

import datetime
import os
import signal
import zlib

import pytest
from hypothesis import settings

from tests.data import DATA, ROOT

# How long an example takes says more of the machine than of the code.
settings.register_profile("guard", deadline=None)
settings.load_profile("guard")


def pytest_configure() -> None:
    # Most tests need a judge and no particular one: the small detector is the fastest. What is
    # about the default one names it, or takes this variable away.
    os.environ.setdefault("BIASGUARD_DETECTOR", "encoder-small")
    # GNU readline, which pytest loads, tells what it starts a width: tables would follow that.
    os.environ.pop("COLUMNS", None)
    # What a shell starts in the background ignores interrupts, and so would what the tests start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tenth",
        type=datetime.date.fromisoformat,
        metavar="YYYY-MM-DD",
        help="run a tenth of the selected slow tests, drawn by this date; ten days run them all",
    )


def in_tenth(name: str, day: datetime.date) -> bool:
    """Say whether the test of this id is in the tenth of this day."""
    return (zlib.crc32(name.encode()) + day.toordinal()) % 10 == 0


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        # The limit of pyproject.toml is for the default run.
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(1200))
    day = config.getoption("tenth")
    if day is None:
        return
    skipped = [i for i in items if i.get_closest_marker("slow") and not in_tenth(i.nodeid, day)]
    config.hook.pytest_deselected(items=skipped)
    left_out = set(skipped)
    items[:] = [item for item in items if item not in left_out]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    # What was not checked for want of the data is said aloud, not only counted as skipped.
    skipped = terminalreporter.stats.get("skipped", [])
    count = sum(str(DATA) in str(report.longrepr) for report in skipped)
    if count:
        what = f"{count} tests did not run: {os.path.relpath(DATA, ROOT)} is absent"
        terminalreporter.write_line(what, yellow=True, bold=True)
