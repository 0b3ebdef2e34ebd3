"""Stores to test with: files of SQLite, and databases of a real server of PostgreSQL."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from guard.watch import writer
from tests.browser import Page, browsing

_INSTALL = "PostgreSQL's server is not installed; run: apt-get install postgresql"
_numbers = count()


@pytest.fixture(autouse=True)
def no_backlog_is_left() -> Iterator[None]:
    """Close writers that cannot write: each would log that, every minute, in other tests."""
    yield
    for one in list(writer._by_store.values()):
        if one._queue.qsize():
            one.close(0.1)


def _programs() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = shutil.which("initdb")
    paths = [*found, *([Path(on_path).resolve()] if on_path else [])]
    return paths[-1].parent if paths else None


class Server:
    """A server of PostgreSQL in a folder of its own, reached by a socket there."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs, self._folder = programs, folder
        # The server refuses to run as root.
        self._user: dict[str, Any] = {"user": "postgres"} if os.geteuid() == 0 else {}
        self._process: subprocess.Popen[bytes] | None = None
        if self._user:
            shutil.chown(folder, "postgres")
        initdb = [programs / "initdb", "-D", folder / "data", "-U", "guard", "-A", "trust"]
        self._run([*initdb, "-E", "UTF8", "--locale=C", "--no-sync"])
        self.start()

    def _run(self, command: list[Any]) -> None:
        subprocess.run(
            list(map(str, command)), check=True, capture_output=True, cwd="/", **self._user
        )

    def start(self) -> None:
        options = f"-k {self._folder} -c listen_addresses= -c fsync=off"
        data = str(self._folder / "data")
        command = [self._programs / "pg_ctl", "-D", data, "-w", "-o", options]
        self._run([*command, "-l", self._folder / "log", "start"])

    def stop(self) -> None:
        self._run(
            [self._programs / "pg_ctl", "-D", self._folder / "data", "-m", "immediate", "stop"]
        )

    def url(self, name: str = "postgres") -> str:
        return f"postgresql://guard@/{name}?host={self._folder}"

    def database(self) -> str:
        import psycopg

        name = f"of_test_{next(_numbers)}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')  # type: ignore[arg-type]
        return self.url(name)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    programs = _programs()
    if programs is None:
        pytest.skip(_INSTALL)
    folder = Path(tempfile.mkdtemp(prefix="guard-pg-"))
    try:
        started = Server(programs, folder)
        yield started
        started.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


BOTH = ("sqlite", pytest.param("postgresql", marks=pytest.mark.slow("starts PostgreSQL")))


def sqlite_often(fixture: str = "url") -> pytest.MarkDecorator:
    """Mark a test that asks both databases the same: the default run asks SQLite alone."""
    return pytest.mark.parametrize(fixture, BOTH, indirect=True)


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    """The address of a store in a file of the test's own, which is not there yet."""
    return f"sqlite:///{tmp_path / 'guard.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, sqlite: str) -> str:
    if request.param == "sqlite":
        return sqlite
    started: Server = request.getfixturevalue("server")
    return started.database()


@pytest.fixture(scope="session")
def _browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browsing(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture
def page(_browser: Page) -> Page:
    """A browser's empty page, which has seen nothing yet and knows of no earlier test."""
    _browser.call("Emulation.clearDeviceMetricsOverride")
    _browser.call("Emulation.setEmulatedMedia", features=[])
    _browser.call("Network.clearBrowserCookies")
    _browser.go("about:blank")
    _browser.events.clear()
    return _browser


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], None]:
    """Wait for what another thread or process does."""

    def wait(true: Callable[[], bool], seconds: float = 30.0) -> None:
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end, "it did not come true"
            time.sleep(0.02)

    return wait
