from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from tests.data import DATA, ROOT
from tests.rows import SLOW
from tests.slow_lane import Record, Slice, done_before

# The slow lane draws all examples: `--hypothesis-profile slow`. How long one takes says more of the
# machine than of the code.
settings.register_profile("ci", deadline=None, max_examples=25)
settings.register_profile(SLOW, deadline=None, max_examples=100)
settings.load_profile("ci")


def pytest_configure(config: pytest.Config) -> None:
    # Most tests need a judge and no particular one: the small detector is the fastest. What is
    # about the default one names it, or takes this variable away.
    os.environ.setdefault("BIASGUARD_DETECTOR", "encoder-small")
    # GNU readline, which pytest loads, tells what it starts a width: tables would follow that.
    os.environ.pop("COLUMNS", None)
    # What a shell starts in the background ignores interrupts, and so would what the tests start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if (path := config.getoption("record")) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Record(path))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--slice",
        type=Slice.read,
        metavar="I/N",
        help="run part I of N of the selected tests",
    )
    parser.addoption(
        "--record",
        type=Path,
        metavar="FILE",
        help="write how each test ends to FILE, and leave out those that it says passed",
    )


# Importing these takes seconds that every run would pay, whatever it selects.
HEAVY = {"torch", "transformers", "scipy", "matplotlib", "litellm.proxy.proxy_server"}


def _limit_of_slow(why: str, limit_s: int = 1200) -> int:
    """Take the arguments of the mark ``slow``; return after how many seconds a test has failed."""
    return limit_s


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if imported := sorted(HEAVY & sys.modules.keys()):
        raise pytest.UsageError(
            f"A test module imports {imported[0]} at its top: import it in a test or fixture."
        )
    for item in items:
        # The limit of pyproject.toml is for the default run.
        if mark := item.get_closest_marker("slow"):
            try:
                limit = _limit_of_slow(*mark.args, **mark.kwargs)
            except TypeError:
                raise pytest.UsageError(f"{item.nodeid}: say why it is slow: slow(WHY)") from None
            item.add_marker(pytest.mark.timeout(limit))
    part, record = config.getoption("slice"), config.getoption("record")
    done = done_before(record) if record else set()

    def turn(item: pytest.Item) -> bool:
        return item.nodeid not in done and (part is None or part.has(item.nodeid))

    turns = {item: turn(item) for item in items}
    config.hook.pytest_deselected(items=[item for item, its in turns.items() if not its])
    items[:] = [item for item, its in turns.items() if its]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    # What was not checked for want of the data is said aloud, not only counted as skipped.
    skipped = terminalreporter.stats.get("skipped", [])
    count = sum(str(DATA) in str(report.longrepr) for report in skipped)
    if count:
        what = f"{count} tests did not run: {os.path.relpath(DATA, ROOT)} is absent"
        terminalreporter.write_line(what, yellow=True, bold=True)
