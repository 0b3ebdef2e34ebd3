from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Generator, Iterator
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
    # LiteLLM makes clients for each event loop, and each loads all authorities that it trusts, in
    # 20 ms. Tests call only this machine, without TLS.
    os.environ.setdefault("SSL_CERT_FILE", str(ROOT / "tests" / "authority.pem"))
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


@pytest.fixture(autouse=True)
def _no_look_outlives_its_test() -> Iterator[None]:
    """Drop served detectors, which look at their addresses until they are collected.

    Else they warn in the next test that the server of this one is gone.
    """
    yield
    if any(thread.name == "guard-served" for thread in threading.enumerate()):
        gc.collect()


# Importing these takes seconds that every run would pay, whatever it selects.
HEAVY = {"torch", "transformers", "scipy", "matplotlib", "litellm.proxy.proxy_server"}


def _limit_of_slow(why: str, limit_s: int = 1200) -> int:
    """Take the arguments of the mark ``slow``; return after how many seconds a test has failed.

    Raises TypeError if the mark does not say why, or if the limit is no time.
    """
    if not (isinstance(why, str) and why.strip() and isinstance(limit_s, int) and limit_s > 0):
        raise TypeError
    return limit_s


def _refused(collected: pytest.CollectReport, before: set[str]) -> str | None:
    """Say what makes this file slow down others; None if nothing does."""
    if imported := sorted((HEAVY & sys.modules.keys()) - before):
        return f"It imports {imported[0]} at its top: import it in a test or fixture."
    for item in collected.result or ():
        try:
            for mark in item.iter_markers("slow"):
                _limit_of_slow(*mark.args, **mark.kwargs)
        except TypeError:  # noqa: PERF203  (the sentence names the test)
            return f"{item.name} must say why it is slow: slow(WHY, limit_s=SECONDS)."
    return None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    # An error of the file, since xdist hides what a worker says otherwise.
    before = set(sys.modules)
    report = yield
    if report.passed and (said := _refused(report, before)):
        report.outcome, report.longrepr, report.result = "failed", said, []
    return report


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        # The limit of pyproject.toml is for the default run.
        if mark := item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.timeout(_limit_of_slow(*mark.args, **mark.kwargs)))
    part, record = config.getoption("slice"), config.getoption("record")
    done = done_before(record) if record else set()

    def turn(item: pytest.Item) -> bool:
        return item.nodeid not in done and (part is None or part.has(item.nodeid))

    turns = {item: turn(item) for item in items}
    config.hook.pytest_deselected(items=[item for item, its in turns.items() if not its])
    items[:] = [item for item, its in turns.items() if its]


def pytest_collection_finish() -> None:
    # What is imported by now stays: each later search for garbage would go through it again.
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    # What was not checked for want of the data is said aloud, not only counted as skipped.
    skipped = terminalreporter.stats.get("skipped", [])
    count = sum(str(DATA) in str(report.longrepr) for report in skipped)
    if count:
        what = f"{count} tests did not run: {os.path.relpath(DATA, ROOT)} is absent"
        terminalreporter.write_line(what, yellow=True, bold=True)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run a test in an empty folder of its own."""
    monkeypatch.chdir(tmp_path)
