"""What differs between SQLite and PostgreSQL before a store is open: URLs and engines."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import NullPool

from guard.errors import ConfigError

_URL_FORMS = "sqlite:///FILE or postgresql://USER@HOST/NAME"
_BUSY_S = 10.0  # how long a statement waits for a lock
_SWITCH_PAUSE_S = 0.005
#: By a part of the database's message; the last one is for all others.
_SQLITE_ADVICE = {
    "locked": "another process writes to it; try again",
    "full": "free space on its disk",
    "disk I/O error": "check that its disk works and has free space, and that it is a file",
    "not a database": "give another file, for this one is no SQLite database",
    "malformed": "restore it from a copy or give another file, for this one is damaged",
    "": "give a file in a folder that you may write to",
}
_POSTGRES_ADVICE = {
    "lock timeout": "another session locks its tables; try again",
    "": "check that the server runs and accepts this user",
}
_CONNECT_S = 5
_POSTGRES = {
    "connect_timeout": _CONNECT_S,
    "application_name": "guard",
    "tcp_user_timeout": 15_000,  # ms until an unresponsive host counts as lost
}


def advice_on(reason: str, url: URL) -> str:
    """Return what to do about a database's message."""
    by_reason = _SQLITE_ADVICE if url.drivername == "sqlite" else _POSTGRES_ADVICE
    return next(text for part, text in by_reason.items() if part in reason)


def file_ids(database: str) -> dict[str, tuple[int, int]]:
    """Return device and inode of a SQLite database and its journals, by path."""
    ids = {}
    for path in (database, f"{database}-wal", f"{database}-shm"):
        with contextlib.suppress(OSError):
            state = os.stat(path)
            ids[path] = (state.st_dev, state.st_ino)
    return ids


def parsed(written: str, where: str) -> URL:
    """Return the URL of a store; raises ConfigError, which names ``where``, if it is none."""
    # A password may be in any part of a URL that guard cannot read.
    shown = f"{written.partition('://')[0]}://…" if "://" in written else written
    unknown = ConfigError(f"{where}: a store is {_URL_FORMS}, got {shown[:200]!r}.")
    try:
        url = make_url(written if "://" in written else f"sqlite:///{written}")
    except (ArgumentError, ValueError):
        raise unknown from None
    if url.drivername == "sqlite" and url.host is None and not url.query:
        if not url.database or url.database == ":memory:":
            raise ConfigError(
                f"{where}: a store in memory is lost when the process ends; give {_URL_FORMS}."
            )
        try:
            url.database.encode()
        except UnicodeEncodeError:
            raise ConfigError(f"{where}: the name of a store has to be UTF-8.") from None
        # A relative path names another file once the working directory has changed.
        return url.set(database=str(Path(url.database).absolute()))
    if url.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        return url.set(drivername="postgresql+psycopg")
    raise unknown


def write_engine(url: URL, *, wait: bool = True) -> Engine:
    """Return an engine whose transactions may write.

    With ``wait`` False no statement waits for another writer of a SQLite file, but fails.
    """
    if url.drivername != "sqlite":
        return _postgres(url)
    busy_s = _BUSY_S if wait else 0.0
    engine = create_engine(url, poolclass=NullPool, connect_args={"timeout": busy_s})

    @event.listens_for(engine, "connect")
    def connect(connection: Any, _: object) -> None:
        connection.isolation_level = None  # sqlite3 begins no transactions of its own
        _use_write_ahead_log(connection, time.monotonic() + busy_s)
        for pragma in ("synchronous=NORMAL", "secure_delete=ON"):
            connection.execute(f"PRAGMA {pragma}").fetchall()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # Take the write lock at once: SQLite refuses to upgrade a read lock while another writes.
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _use_write_ahead_log(connection: sqlite3.Connection, until: float) -> None:
    """Switch a file to its write-ahead log; a file that has one stays as it is.

    SQLite's own timeout does not hold for the switch: it fails at once while another connection
    writes to a file that has none yet (findings/sqlite-log-switch-without-timeout.sh).
    """
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
            return
        except sqlite3.OperationalError as error:  # noqa: PERF203
            if "locked" not in str(error) or time.monotonic() >= until:
                raise
            time.sleep(_SWITCH_PAUSE_S)


def read_engine(url: URL) -> Engine:
    """Return an engine whose transactions read one snapshot."""
    if url.drivername != "sqlite":
        engine = _postgres(url)
        return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    path = f"file:{quote(url.database or '')}?mode=ro"

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(path, uri=True, timeout=_BUSY_S)
        connection.isolation_level = None
        return connection

    engine = create_engine("sqlite://", creator=connect, poolclass=NullPool)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    return engine


def _postgres(url: URL) -> Engine:
    try:
        options = {k: v for k, v in _POSTGRES.items() if k not in url.query}
        engine = create_engine(url, poolclass=NullPool, connect_args=options)
    except ImportError as error:
        from guard.installed import install_command

        raise ConfigError(
            f"events: PostgreSQL needs {error.name}; run: {install_command('watch')}"
        ) from None

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{_BUSY_S:g}s'")

    return engine
