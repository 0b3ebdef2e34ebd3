"""A store of events: SQLite by default, PostgreSQL by URL."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    create_engine,
    delete,
    event,
    func,
    make_url,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from guard.errors import ConfigError, UsageError
from guard.watch import schema
from guard.watch.events import Row, bounded

_TAKES = "sqlite:///FILE or postgresql://USER@HOST/NAME"
_BUSY_S = 10.0  # a writer waits so long for another's
_CONNECT_S = 5
_POSTGRES = {
    "connect_timeout": _CONNECT_S,
    "application_name": "guard",
    "tcp_user_timeout": 15_000,  # ms after which a host that does not answer is given up
}
# One number for all of guard's: stores are made by one process at a time.
_MAKING = 0x67756172
_LOT = 1_000  # responses that are deleted at a time: others may write in between


class Store:
    """One database of events; of one thread at a time.

    ``url`` is ``sqlite:///FILE``, ``postgresql://USER@HOST/NAME``, or the path of a file of SQLite.
    ``name`` says which it is, without a password. Raises ConfigError, naming ``where``, on any
    other.
    """

    def __init__(self, url: str, where: str = "events") -> None:
        self._where = where
        self.url = _parsed(url, where)
        self.name = self.url.render_as_string(hide_password=True)
        self.is_sqlite = self.url.drivername == "sqlite"
        self._engine: Engine | None = None
        self._connection: Connection | None = None
        self.key = b""

    def prepare(self) -> None:
        """Make the tables where there are none, and bring older ones up to date.

        Raises ConfigError where the store cannot be opened or written, or is a newer guard's.
        """
        try:
            with self._connected().begin():
                connection = self._connected()
                if not self.is_sqlite:
                    connection.execute(text(f"SELECT pg_advisory_xact_lock({_MAKING})"))
                schema.bring_up(connection)
                self._check(connection)
                key = select(schema.about.c.value).where(schema.about.c.name == "key")
                self.key = bytes.fromhex(connection.scalar(key) or "")
                # A lock is not the leave to write: a file may be read-only.
                connection.execute(schema.about.update().values(value=schema.about.c.value))
        except SQLAlchemyError as error:
            raise ConfigError(self._sentence(error)) from None
        finally:
            self.disconnect()

    def _check(self, connection: Connection) -> None:
        version = schema.version_of(connection)
        if version is None:
            raise ConfigError(f"{self._where}: {self.name} is no store of guard's.")
        if version != schema.VERSION:
            age = "a newer guard's" if version > schema.VERSION else "an older guard's"
            mend = (
                "use that guard or a newer one"
                if version > schema.VERSION
                else "let a guard of this version write to it once"
            )
            raise ConfigError(
                f"{self._where}: {self.name} is {age} (tables of version {version}, this one "
                f"reads {schema.VERSION}); {mend}."
            )

    def write(
        self,
        settings: Sequence[Row],
        began: Sequence[Row],
        events: Sequence[Row],
        ended: Sequence[Row],
        drops: Sequence[Row] = (),
    ) -> None:
        """Write a batch, in one transaction; what is there already stays as it is.

        Raises SQLAlchemyError; nothing is written then.
        """
        insert = sqlite.insert if self.is_sqlite else postgresql.insert
        with self._connected().begin():
            connection = self._connected()
            for table, rows in (
                (schema.settings, settings),
                (schema.responses, began),
                (schema.events, events),
            ):
                if rows:
                    connection.execute(insert(table).on_conflict_do_nothing(), list(rows))
            if drops:
                counted = insert(schema.drops)
                most = {"events": counted.excluded.events}
                connection.execute(
                    counted.on_conflict_do_update(index_elements=["id"], set_=most), list(drops)
                )
            if ended:
                of = insert(schema.responses)
                new: dict[str, Any] = {
                    c.name: of.excluded[c.name] for c in schema.responses.c if c.name != "id"
                }
                # What a decision named and the end of the response did not.
                for name in ("detector", "index_version"):
                    new[name] = func.coalesce(of.excluded[name], schema.responses.c[name])
                connection.execute(
                    of.on_conflict_do_update(index_elements=["id"], set_=new), list(ended)
                )

    def forget(self, request_id: str) -> int:
        """Delete the responses to a request, with their events; return how many there were."""
        return self._deleted(schema.responses.c.request_id == bounded(request_id))

    def prune(self, before: float) -> int:
        """Delete the responses that began before a time, and drops; return how many responses."""
        count = self._deleted(schema.responses.c.time < before)
        with self._connected().begin():
            self._connected().execute(delete(schema.drops).where(schema.drops.c.time < before))
        return count

    def _deleted(self, which: Any) -> int:
        count = 0
        while True:
            with self._connected().begin():
                connection = self._connected()
                lot = select(schema.responses.c.id).where(which).limit(_LOT)
                ids = list(connection.scalars(lot))
                for table in (schema.events, schema.items, schema.marks):
                    connection.execute(delete(table).where(table.c.response_id.in_(ids)))
                connection.execute(delete(schema.responses).where(schema.responses.c.id.in_(ids)))
            count += len(ids)
            if len(ids) < _LOT:
                break
        if count and self.is_sqlite:  # what was deleted leaves the journal, too
            driver: Any = self._connected().connection.driver_connection
            with contextlib.suppress(sqlite3.Error):
                driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return count

    def disconnect(self) -> None:
        """Give the connection back; the next call makes a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(SQLAlchemyError):
                connection.close()

    def renew(self) -> object:
        """Leave the connection to the parent of this process, and return it: it must not close."""
        left = (self._connection, self._engine)
        self._connection = self._engine = None
        return left

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """Give a connection that sees the store as it is now and changes nothing.

        Raises UsageError where it cannot be read, ConfigError where it is no store of this version.
        """
        engine = _reader(self.url)
        try:
            with engine.connect() as connection:
                self._check(connection)
                yield connection
        except SQLAlchemyError as error:
            raise UsageError(self._sentence(error)) from None
        finally:
            engine.dispose()

    @contextlib.contextmanager
    def changing(self) -> Iterator[Store]:
        """Give the store to commands that delete; raises as :meth:`reading` does."""
        with self.reading():
            pass
        try:
            yield self
        except SQLAlchemyError as error:
            raise UsageError(self._sentence(error)) from None
        finally:
            self.disconnect()

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """Give a connection for one transaction; raises as :meth:`reading` does.

        Nothing is written where the block raises.
        """
        with self.changing(), self._connected().begin():
            yield self._connected()

    def _connected(self) -> Connection:
        if self._connection is None:
            if self._engine is None:
                self._engine = _writer(self.url)
            self._connection = self._engine.connect()
        return self._connection

    def _sentence(self, error: SQLAlchemyError) -> str:
        reason = " ".join(str(getattr(error, "orig", None) or error).split())
        if self.url.password:
            reason = reason.replace(str(self.url.password), "***")
        mend = (
            "give a file in a folder that may be written"
            if self.is_sqlite
            else "see that the server runs and lets this user in"
        )
        return f"{self._where}: {self.name} cannot be used ({reason[:200]}); {mend}."


def _parsed(given: str, where: str) -> URL:
    shown = given if "@" not in given else f"…@{given.rpartition('@')[2]}"
    wrong = ConfigError(f"{where}: a store is {_TAKES}, got {shown[:200]!r}.")
    try:
        url = make_url(given if "://" in given else f"sqlite:///{given}")
    except (ArgumentError, ValueError):
        raise wrong from None
    if url.drivername == "sqlite" and url.host is None and not url.query:
        if not url.database or url.database == ":memory:":
            raise ConfigError(f"{where}: a store in memory is lost; give a file: {_TAKES}.")
        # A relative path names another file once the working directory has changed.
        return url.set(database=str(Path(url.database).absolute()))
    if url.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        return url.set(drivername="postgresql+psycopg")
    raise wrong


def _writer(url: URL) -> Engine:
    if url.drivername != "sqlite":
        return _postgres(url)
    engine = create_engine(url, poolclass=NullPool, connect_args={"timeout": _BUSY_S})

    @event.listens_for(engine, "connect")
    def connect(connection: Any, _: object) -> None:
        connection.isolation_level = None  # sqlite3 begins no transactions of its own
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "secure_delete=ON"):
            connection.execute(f"PRAGMA {pragma}").fetchall()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # From the start: a reader that becomes a writer may not wait for another.
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _reader(url: URL) -> Engine:
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
        given = {k: v for k, v in _POSTGRES.items() if k not in url.query}
        return create_engine(url, poolclass=NullPool, connect_args=given)
    except ImportError as error:
        from guard.installed import install_command

        raise ConfigError(
            f"events: PostgreSQL needs {error.name}; run: {install_command('watch')}"
        ) from None
