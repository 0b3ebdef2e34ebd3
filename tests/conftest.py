from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from guard.doors import reading

# How long an example takes says more of the machine than of the code.
settings.register_profile("guard", deadline=None)
settings.load_profile("guard")


def pytest_configure() -> None:
    # What a shell starts in the background ignores interrupts, and so would what the tests start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def patient() -> Iterator[None]:
    """Read no stream on while a verdict is out: tests count what is pulled, on busy machines too.

    Those of `tests/doors/test_reading.py` have every verdict be a late one.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "PATIENCE", 60.0)
        yield
