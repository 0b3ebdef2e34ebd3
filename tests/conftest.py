from __future__ import annotations

import os
import signal

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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    # What was not checked for want of the data is said aloud, not only counted as skipped.
    skipped = terminalreporter.stats.get("skipped", [])
    count = sum(str(DATA) in str(report.longrepr) for report in skipped)
    if count:
        what = f"{count} tests did not run: {os.path.relpath(DATA, ROOT)} is absent"
        terminalreporter.write_line(what, yellow=True, bold=True)
