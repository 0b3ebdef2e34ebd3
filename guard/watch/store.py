"""A store of events and of the history of audits: SQLite by default, PostgreSQL by URL."""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import time
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from sqlalchemy import (
    JSON,
    Connection,
    Insert,
    Table,
    bindparam,
    delete,
    func,
    literal_column,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError

from guard.errors import ConfigError
from guard.watch import schema
from guard.watch.engines import advice_on, file_ids, parsed, read_engine, write_engine
from guard.watch.events import Row, bounded, hashed

# PostgreSQL's advisory lock for making tables: one process at a time.
_SCHEMA_LOCK = 0x67756172
# Another: writers share it; forget() waits until those have ended that do not know of it.
_FORGET_LOCK = 0x67756173
# In guard_store: deleted rows may still be in SQLite's journal.
_JOURNAL = "journal"
_DELETE_BATCH = 1_000  # responses deleted in one transaction: others may write in between


class StoreError(ConfigError):
    """A store cannot be used; the message says why and what to do."""


class Store:
    """One database of events and audits, used by one thread at a time.

    ``url`` is ``sqlite:///FILE``, ``postgresql://USER@HOST/NAME``, or the path of a SQLite file;
    any other raises ConfigError. Errors name ``where``, the setting or argument that gave the URL.
    ``name`` is the URL without passwords.
    """

    def __init__(self, url: str, where: str = "events") -> None:
        self._where = where
        self.url = parsed(url, where)
        self._secrets = {n: v for n, v in self.url.query.items() if "pass" in n.lower()}
        self.name = self.url.difference_update_query(self._secrets).render_as_string()
        self.is_sqlite = self.url.drivername == "sqlite"
        self._connection: Connection | None = None
        self._files: dict[str, tuple[int, int]] = {}  # device and inode of what was opened
        self.key = b""
        self.journal_pending = False
        """Whether deleted rows were left in SQLite's journal, for another process reads it."""

    def copy(self) -> Store:
        """Return another store of the same database, for another thread."""
        return Store(self.url.render_as_string(hide_password=False), self._where)

    def prepare(self) -> None:
        """Create the tables, or bring older ones up to date.

        Raises StoreError if the store cannot be opened or written, or a newer guard made it.
        """
        with self._errors():
            self.open()

    def open(self, *, wait: bool = True) -> None:
        """Do the same and stay connected; raises SQLAlchemyError too.

        With ``wait`` False no call waits for another writer of a SQLite file, but fails.
        """
        connection = self._connected(wait=wait)
        with connection.begin():
            if not self.is_sqlite:
                connection.execute(text(f"SELECT pg_advisory_xact_lock({_SCHEMA_LOCK})"))
            schema.bring_up(connection)
            self._check(connection)
            self.key = self._key(connection)
            # SQLite locks a read-only file too; only a write shows that it can be written.
            connection.execute(schema.about.update().values(value=schema.about.c.value))
        if self.is_sqlite:
            self._files = file_ids(self.url.database or "")

    @property
    def connected(self) -> bool:
        """Whether it is connected."""
        return self._connection is not None

    def replaced(self) -> bool:
        """Whether the open file is no longer at its path; if so, disconnect.

        SQLite would go on writing to a file that was deleted or moved.
        """
        if not self.is_sqlite or self._connection is None:
            return False
        now, database = file_ids(self.url.database or ""), self.url.database or ""
        if database not in now and os.path.lexists(database):
            return False  # it is there, but cannot be looked at
        if now.get(database) == self._files.get(database):
            return False
        with contextlib.suppress(sqlite3.Error):  # a moved file is to have all that was written
            self._driver().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self.disconnect()
        for path in now.keys() - {database}:
            # A journal of the old file would damage the new one.
            if now[path] == self._files.get(path):
                with contextlib.suppress(OSError):
                    os.remove(path)
        self._files = {}
        return True

    def _driver(self) -> Any:
        return self._connected().connection.driver_connection

    def _key(self, connection: Connection) -> bytes:
        key = select(schema.about.c.value).where(schema.about.c.name == "key")
        try:
            return bytes.fromhex(connection.scalar(key) or "")
        except ValueError:
            raise StoreError(
                f"{self._where}: {self.name} is damaged: its key cannot be read."
            ) from None

    def _check_there(self) -> None:
        """Say that there is no such file: SQLite says only that it cannot open it."""
        if self.is_sqlite:
            try:
                os.stat(self.url.database or "")
            except (FileNotFoundError, NotADirectoryError):
                raise StoreError(
                    f"There is no store at {self.url.database}; {self._where} takes the file or "
                    "URL of a store that a guard has written to."
                ) from None
            except (OSError, ValueError):  # which SQLite meets, too, and explains
                pass

    def _check(self, connection: Connection) -> None:
        version = schema.version_of(connection)
        if version is None:
            raise StoreError(
                f"{self._where}: {self.name} is not a guard store; give one that guard writes to."
            )
        if version != schema.VERSION:
            writer, advice = (
                ("a newer", "use that guard or a newer one")
                if version > schema.VERSION
                else ("an older", "let a guard of this version write to it once")
            )
            raise StoreError(
                f"{self._where}: {self.name} was written by {writer} guard (its tables have "
                f"version {version}, this guard reads {schema.VERSION}); {advice}."
            )

    def write(
        self,
        settings: Sequence[Row],
        began: Sequence[Row],
        events: Sequence[Row],
        ended: Sequence[Row],
        drops: Sequence[Row] = (),
    ) -> None:
        """Write a batch in one transaction; rows that exist already stay as they are.

        Of requests that were forgotten nothing is written. Raises SQLAlchemyError; then nothing is
        written at all.
        """
        with self._connected().begin():
            connection = self._connected()
            if not self.is_sqlite:
                lock = f"SELECT pg_advisory_xact_lock_shared({_FORGET_LOCK})"
                connection.execute(text(lock))
            gone = self._forgotten(connection, (*began, *ended))
            began = [row for row in began if row["id"] not in gone]
            ended = [row for row in ended if row["id"] not in gone]
            events = [row for row in events if row["response_id"] not in gone]
            # Whoever changes rows of a response locks its row in guard_responses first, in the
            # order of ids: other orders would deadlock.
            if not self.is_sqlite:  # where one writer waits for the other anyway
                ids = {row["id"] for row in (*began, *ended)}
                self._lock(connection, schema.responses.c.id.in_(ids))
            for table, rows, replaces in (
                (schema.settings, sorted(settings, key=lambda row: row["hash"]), False),
                (schema.responses, began, False),
                (schema.events, events, False),
                (schema.drops, drops, True),
                (schema.responses, ended, True),
            ):
                if rows:
                    # JSON text that is read into columns holds neither "\0" nor half a surrogate
                    # pair: all texts are without them, but for policies.
                    together = not self.is_sqlite and table is not schema.settings
                    new = _insert_of(table, tuple(rows[0]), self.is_sqlite, replaces, together)
                    values: Any = list(rows)
                    connection.execute(new, {"rows": values} if together else values)

    def _forgotten(self, connection: Connection, rows: Sequence[Row]) -> set[str]:
        """Return the ids of those responses in ``rows`` whose requests were forgotten."""
        hashes = {
            row["id"]: hashed(row["request_id"], self.key)
            for row in rows
            if row["request_id"] is not None
        }
        request = schema.forgotten.c.request
        query = select(request).where(request.in_(set(hashes.values())))
        gone = set(connection.scalars(query)) if hashes else set()
        return {id_ for id_, hash_ in hashes.items() if hash_ in gone}

    def forget(self, request_id: str) -> int:
        """Delete the responses to a request with their events; return the number of responses.

        What is still to come of them is not written.
        """
        request = bounded(request_id) or ""
        with self._connected().begin():
            connection = self._connected()
            if not self.is_sqlite:
                connection.execute(text(f"SELECT pg_advisory_xact_lock({_FORGET_LOCK})"))
            row = {"request": hashed(request, self._key(connection)), "time": time.time()}
            new = _insert_into(schema.forgotten, self.is_sqlite).values(row)
            latest = {"time": new.excluded.time}
            connection.execute(new.on_conflict_do_update(index_elements=["request"], set_=latest))
        return self._deleted(schema.responses.c.request_id == request)

    def has_gap(self, before: float, now: float, longest: float) -> bool:
        """Whether the store has no response of over ``longest`` seconds somewhere.

        It looks from the newest response older than ``before`` until ``now``; if there is no such
        response, there is no gap. Times are in seconds since 1970.
        """
        newest = select(func.max(schema.responses.c.time))
        with self._connected().begin():
            scalar = self._connected().scalar
            last = scalar(newest.where(schema.responses.c.time < before))
            while last is not None and last < now - longest:
                following = scalar(newest.where(schema.responses.c.time <= last + longest))
                if following is None or following <= last:
                    return True
                last = following
        return False

    def prune(self, before: float, at_most: int | None = None) -> int:
        """Delete responses, drops and forgotten requests from before a time, seconds since 1970.

        Deletes at most ``at_most`` responses, which are left in SQLite's journal; returns their
        number.
        """
        count = self._deleted(schema.responses.c.time < before, at_most)
        with self._connected().begin():
            for table in (schema.drops, schema.forgotten):
                self._connected().execute(delete(table).where(table.c.time < before))
        return count

    def _deleted(self, which: Any, at_most: int | None = None) -> int:
        count = 0
        id_, time_ = schema.responses.c.id, schema.responses.c.time
        # Oldest first, so that has_gap() is not misled if not all are deleted.
        batch = select(id_).where(which).order_by(time_).limit(at_most or _DELETE_BATCH)
        while at_most is None or count < at_most:
            with self._connected().begin():
                connection = self._connected()
                ids = self._lock(connection, schema.responses.c.id.in_(batch))
                for table in (schema.events, schema.items, schema.marks):
                    connection.execute(delete(table).where(table.c.response_id.in_(ids)))
                connection.execute(delete(schema.responses).where(schema.responses.c.id.in_(ids)))
                if ids and self.is_sqlite:
                    note = {"name": _JOURNAL, "value": secrets.token_hex(8)}
                    new = sqlite.insert(schema.about).values(note)
                    latest = {"value": new.excluded.value}
                    connection.execute(
                        new.on_conflict_do_update(index_elements=["name"], set_=latest)
                    )
            if not ids:
                break
            count += len(ids)
        if at_most is None:
            self.journal_pending = not self.empty_journal()
        return count

    def empty_journal(self) -> bool:
        """Overwrite deleted rows in SQLite's journal; return whether none is left in it.

        It cannot be done while another connection reads an older state of the store.
        """
        if not self.is_sqlite:
            return True
        about = schema.about
        with self._connected().begin():
            query = select(about.c.value).where(about.c.name == _JOURNAL)
            note = self._connected().scalar(query)
        if note is None:
            return True
        with contextlib.suppress(sqlite3.Error):
            busy, _, _ = self._driver().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if not busy:
                with self._connected().begin():
                    self._connected().execute(
                        delete(about).where(about.c.name == _JOURNAL, about.c.value == note)
                    )
                return True
        return False

    def _lock(self, connection: Connection, which: Any) -> Sequence[str]:
        """Lock the responses that exist, in the order of their ids, which are returned."""
        id_ = schema.responses.c.id
        return connection.scalars(select(id_).where(which).order_by(id_).with_for_update()).all()

    def disconnect(self) -> None:
        """Close the connection; the next call opens a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(SQLAlchemyError):
                connection.close()

    def renew(self) -> object:
        """Drop a forked child's copy of the connection and return it.

        The caller must keep it alive: closing it would close the parent's.
        """
        inherited, self._connection = self._connection, None
        return inherited

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yield a read-only connection that sees one snapshot of the store.

        Raises StoreError if there is none, it cannot be read or is no store of this version.
        """
        self._check_there()
        with self._errors(disconnect=False), read_engine(self.url).connect() as connection:
            self._check(connection)
            yield connection

    @contextlib.contextmanager
    def changing(self) -> Iterator[Store]:
        """Yield the store to a command that deletes; raises as :meth:`reading` does."""
        with self.reading():
            pass
        with self._errors():
            yield self

    @contextlib.contextmanager
    def adding(self) -> Iterator[Connection]:
        """Yield a connection for adding rows in one transaction.

        Creates the tables first. Raises StoreError if they or the rows cannot be written.
        """
        self.prepare()
        with self._errors(), self._connected().begin():
            yield self._connected()

    def new(self, table: Table, row: Row) -> Insert:
        """Return an insert of ``row`` that does nothing if a row has its key."""
        new: Insert = _insert_into(table, self.is_sqlite).values(**row).on_conflict_do_nothing()
        return new

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """Yield a connection for one transaction; raises as :meth:`reading` does.

        Nothing is written if the block raises.
        """
        with self.changing(), self._connected().begin():
            yield self._connected()

    def _connected(self, *, wait: bool = True) -> Connection:
        if self._connection is None:
            self._connection = write_engine(self.url, wait=wait).connect()
        return self._connection

    @contextlib.contextmanager
    def _errors(self, *, disconnect: bool = True) -> Iterator[None]:
        """Turn the database's errors into StoreErrors."""
        try:
            yield
        except SQLAlchemyError as error:
            raise StoreError(self._error_sentence(error)) from None
        finally:
            if disconnect:
                self.disconnect()

    def _error_sentence(self, error: SQLAlchemyError) -> str:
        reason = " ".join(str(getattr(error, "orig", None) or error).split())
        for secret in (self.url.password, *self._secrets.values()):
            for value in (secret,) if isinstance(secret, str) else secret or ():
                reason = reason.replace(value, "***") if value else reason
        advice = advice_on(reason, self.url)
        return f"{self._where}: {self.name} cannot be used ({reason[:200]}); {advice}."


def _insert_into(table: Table, is_sqlite: bool) -> Any:
    """Return an insert that may say what becomes of a row whose key is there already."""
    return (sqlite.insert if is_sqlite else postgresql.insert)(table)


@cache
def _insert_of(
    table: Table, names: tuple[str, ...], is_sqlite: bool, replaces: bool, together: bool
) -> Any:
    """Return the statement that adds rows with these ``names``; ``together``: all by one parameter.

    A row that exists stays, or is replaced by the new one.
    """
    new = _insert_into(table, is_sqlite)
    if replaces:
        latest = {name: new.excluded[name] for name in names if name != "id"}
        # A response's end does not know these; its first decision did.
        for name in latest.keys() & {"detector", "index_version"}:
            latest[name] = func.coalesce(latest[name], table.c[name])
        new = new.on_conflict_do_update(index_elements=["id"], set_=latest)
    else:
        new = new.on_conflict_do_nothing()
    if not together:
        return new
    # A parameter for each value of each row costs the server and the driver more than all else.
    rows = func.json_populate_recordset(
        literal_column(f"NULL::{table.name}"), bindparam("rows", type_=JSON)
    )
    return new.from_select(names, select(rows.table_valued(*names, name="new_row")))
