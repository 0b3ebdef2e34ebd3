"""The file of a run: one SQLite database with the requests and the answers of all its suites.

One process writes a file, and any number of others read it meanwhile; none of them waits.
:meth:`RunWriter.commit` is where an answer becomes durable: the runner makes no further call before
it returns, and a process that is killed loses nothing that was committed. :data:`SYNC_S` says what
a power failure may cost.

Calls and readings are read on access, so memory does not grow with their number. Each row has a
checksum: one that was edited, or comes from another run, is refused. docs/run-file.md has the
format, and docs/decisions/run-is-a-database.md why it is one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
import time
import weakref
from collections import ChainMap
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, ValuesView
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from filelock import FileLock, Timeout

from guard.audit.calls import Call, Guarded, line_of
from guard.audit.files import JOURNAL, refuse_journal, unwritable_file
from guard.audit.header import Header
from guard.audit.run_rows import (
    ADD_READING,
    ADD_REPLY,
    ADD_REQUEST,
    CALL,
    PUT_HEADER,
    READING,
    REMOVE_REQUEST,
    REMOVE_SUITE,
    REQUEST,
    Row,
    call_of_row,
    call_row,
    encoded,
    header_row,
    reading_of_row,
    reading_row,
    row_checksum,
)
from guard.errors import UsageError

SYNC_S = 5.0
"""Seconds after which a commit waits for the disk (fsync): a power failure costs at most their
answers."""
SCHEMA_VERSION = 1
_APPLICATION = 0x67756172  # SQLite's application_id: "guar"
_WAIT_S = 60.0
_CHECKPOINT_EVERY = 500
"""Commits after which the write-ahead log is copied into the file."""
_CLOSED, _NEEDS_LOG, _OPEN = 0, 1, 2
"""States of a suite. The file says that it needs the log, and only the log that it has been opened:
so a file that was copied without its log is noticed."""

_SCHEMA = Path(__file__).with_name("run_file.sql")

_TABLES = {"reply": "request JOIN reply USING (id)", "reading": "reading"}
"""Where the records of a table are read from."""

_Record = TypeVar("_Record")


def _decoded(text: bytes) -> str:
    """Return a text of the file; what is damaged becomes one that no checksum fits."""
    try:
        return text.decode("utf-8", "surrogatepass")  # a model may answer half a surrogate pair
    except UnicodeDecodeError:
        return text.decode("utf-8", "replace")


def _file_size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


class RunFile:
    """The file of a run, to read. One that is being written is seen as it was when it was opened.

    ``headers`` has the header of each suite. Raises UsageError where ``path`` is not the file of a
    run, is damaged, or lacks its log.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise UsageError(f"There is no run at {path}.")
        refuse_journal(path)
        self._open(path, "ro")

    def _open(self, path: Path, mode: str) -> None:
        self.path = path
        log = Path(f"{path}-wal")
        log_size = _file_size(log)  # a reader makes an empty one
        try:
            self._connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode={mode}",
                uri=True,
                timeout=_WAIT_S,
                isolation_level=None,
                check_same_thread=False,
            )
        except sqlite3.Error as error:
            raise self._unreadable(error) from None
        self.disconnect = weakref.finalize(self, self._connection.close)
        self._connection.text_factory = _decoded
        self.headers: dict[str, Header] = {}
        self._states: dict[str, int] = {}
        try:
            if mode == "ro" and self.value("PRAGMA journal_mode") == "wal":
                self._connection.execute("BEGIN")  # one state of the file for all queries
            if self._is_run():
                self._read_headers()
            if _NEEDS_LOG in self._states.values() and not log_size and not _file_size(log):
                raise UsageError(
                    f"{path} was copied without {log.name}, which has its last answers: copy that "
                    f"file, too. If it is lost, go on without them: sqlite3 {path.name} "
                    f'"UPDATE header SET state = {_OPEN}".'
                )
        except UsageError:
            self.disconnect()
            raise

    def _is_run(self) -> bool:
        """Return whether the file has any tables; raises UsageError where they are not a run's."""
        application = self.value("PRAGMA application_id")
        version = self.value("PRAGMA user_version")
        if not application and not self.value("SELECT count(*) FROM sqlite_master"):
            return False  # its writer was killed before its first commit
        if application != _APPLICATION:
            raise UsageError(f"{self.path} is not the file of a run.")
        if version != SCHEMA_VERSION:
            raise UsageError(
                f"{self.path} has schema version {version}, and this version of guard reads "
                f"{SCHEMA_VERSION}; use the version that wrote it."
            )
        return True

    def _read_headers(self) -> None:
        for suite, model, key, state, stored in self.rows(
            "SELECT suite, model, key, state, sum FROM header ORDER BY suite"
        ):
            if row_checksum("", (suite, model, key)) != stored:
                raise UsageError(
                    f"The header of {suite} in {self.path} was edited, so none of its answers can "
                    "be relied on; restore the file from a copy, or give another --out."
                )
            self.headers[suite] = Header.of(json.loads(key), self.path)
            self._states[suite] = state

    def suite(self, name: str) -> RecordedSuite:
        """Return what is recorded of a suite; raises UsageError where nothing is."""
        if name not in self.headers:
            has = f"has {', '.join(self.headers)}" if self.headers else "has no answer at all"
            raise UsageError(f"{self.path} has no answers of {name}: it {has}.")
        return RecordedSuite(self, self.headers[name], self._states[name] != _CLOSED)

    def rows(self, statement: str, *parameters: object) -> Generator[Row, None, None]:
        """Yield the rows of a query; raises UsageError where they cannot be read."""
        try:
            # Not "yield from": that closes the cursor of a file which may be closed by then.
            for row in self._connection.execute(statement, parameters):  # noqa: UP028
                yield row
        except sqlite3.Error as error:
            raise self._unreadable(error) from None

    def row(self, statement: str, *parameters: object) -> Row | None:
        """Return the first row of a query, or None; raises UsageError where it cannot be read."""
        try:
            row: Row | None = self._connection.execute(statement, parameters).fetchone()
        except sqlite3.Error as error:
            raise self._unreadable(error) from None
        return row

    def value(self, statement: str, *parameters: object) -> Any:
        """Return the one value of a query; raises UsageError where it cannot be read."""
        row = self.row(statement, *parameters)
        return row and row[0]

    def _unreadable(self, error: sqlite3.Error) -> UsageError:
        if "not a database" in str(error):
            return UsageError(f"{self.path} is not the file of a run.")
        return UsageError(f"{self.path} cannot be read: {error}; restore it from a copy.")

    def close(self) -> None:
        """Close the file."""
        self.disconnect()

    def __enter__(self) -> RunFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close()


class RunWriter(RunFile):
    """The file of a run for its one writer; creates it where there is none.

    Raises UsageError where the file is not that of a run, is locked by another process, or cannot
    be written.
    """

    def __init__(self, path: Path) -> None:
        self._lock = FileLock(f"{path}.lock")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(timeout=0)
        except Timeout:
            raise UsageError(
                f"{path} is being written by another audit; wait for it, or give another --out."
            ) from None
        except OSError as error:
            raise unwritable_file(path, error) from None
        try:
            if path.exists() and not path.is_file():
                raise UsageError(f"{path} is not a file; give another --out.")
            self._open(path, "rwc")
            self._prepare()
        except BaseException:
            self._lock.release()
            raise

    def _prepare(self) -> None:
        self._synced = time.monotonic()
        self._commits = 0
        damage = self.value("PRAGMA integrity_check(1)")
        if damage != "ok":
            raise UsageError(f"{self.path} is damaged: {damage}; restore it from a copy.")
        with self._changing():
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._connection.execute("PRAGMA wal_autocheckpoint = 0")
        if not self._is_run():
            tables = [(statement, ()) for statement in _SCHEMA.read_text("utf-8").split(";")]
            names = ("application_id", _APPLICATION), ("user_version", SCHEMA_VERSION)
            self.commit([*tables, *((f"PRAGMA {name} = {value}", ()) for name, value in names)])

    def begin(self, header: Header) -> RecordedSuite:
        """Return the suite of ``header`` to add to; that of a smaller sample grows.

        Raises UsageError where the recorded audit is not comparable with ``header``.
        """
        if header.suite in self.headers:
            self.headers[header.suite].check_compatible(header, self.path)
        self.headers[header.suite] = header
        self.commit([(PUT_HEADER, header_row(header, _OPEN))])
        self._checkpoint()
        return RecordedSuite(self, header, unfinished=True)

    def replace_suite(self, header: Header, records: Iterable[Call | Guarded]) -> None:
        """Write all of a suite in one transaction, in place of what the file has of it."""
        suite = RecordedSuite(self, header, unfinished=False)
        self.write_suite(header, (row for record in records for row in suite.statements(record)))

    def write_suite(self, header: Header, statements: Iterable[tuple[str, Row]]) -> None:
        """Write a suite by the ``statements`` of its records, in place of what the file has of it.

        It is one transaction, whose statements may be made of what those before have written.
        """
        removal = [(statement, (header.suite,)) for statement in REMOVE_SUITE]
        self.commit(chain(removal, [(PUT_HEADER, header_row(header, _CLOSED))], statements))

    def commit(self, statements: Iterable[tuple[str, Row]]) -> None:
        """Write ``statements`` in one transaction; when this returns, a killed process keeps them.

        Raises UsageError where they cannot be written, and then writes none of them.
        """
        sync = time.monotonic() - self._synced > SYNC_S
        with self._changing():
            if sync:
                self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                for statement, parameters in statements:
                    self._connection.execute(statement, parameters)
                self._connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise
            if sync:
                self._connection.execute("PRAGMA synchronous = NORMAL")
                self._synced = time.monotonic()
        self._commits += 1
        if self._commits % _CHECKPOINT_EVERY == 0:
            self._checkpoint()

    def _checkpoint(self) -> None:
        """Copy the log into the file, as far as no reader needs the file as it is."""
        with self._changing():
            self._connection.execute("UPDATE header SET state = ? WHERE state", (_NEEDS_LOG,))
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
            self._connection.execute("UPDATE header SET state = ? WHERE state", (_OPEN,))

    def _unreadable(self, error: sqlite3.Error) -> UsageError:
        failed = isinstance(error, sqlite3.OperationalError) and "no such" not in str(error)
        return unwritable_file(self.path, error) if failed else super()._unreadable(error)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._unreadable(error) from None

    def close(self) -> None:
        """Leave one file without a log; raises UsageError where it cannot be written."""
        if not self.disconnect.alive:
            return
        try:
            with self._changing():
                self._connection.execute("UPDATE header SET state = ?", (_CLOSED,))
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
                self._connection.execute("PRAGMA busy_timeout = 0")
                with contextlib.suppress(sqlite3.OperationalError):  # others still read it
                    self._connection.execute("PRAGMA journal_mode = DELETE")
        finally:
            self.disconnect()
            self._lock.release()

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except UsageError:
            if kind is None:  # the error that ended the audit says more
                raise


class RecordedSuite:
    """What a run's file has of one suite: calls and readings by key.

    ``unfinished`` says that its writer is still running, or was killed.
    """

    def __init__(self, run_file: RunFile, header: Header, unfinished: bool) -> None:
        self.run_file = run_file
        self.header = header
        self.unfinished = unfinished
        # A sample may grow, another analyst may be asked, and shards are merged, so they are no
        # part of the checksums.
        changing = ("sampling", "others", "shard")
        own = {k: v for k, v in header.line().items() if k not in changing}
        self._seed = row_checksum("", (json.dumps(own, sort_keys=True),))
        place = (run_file, header.suite, self._seed)
        self.calls: Mapping[str, Call] = RecordedRows(*place, "reply", CALL, call_of_row)
        self.readings: Mapping[str, Guarded] = RecordedRows(
            *place, "reading", READING, reading_of_row
        )

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self.run_file.path

    def count_answers(self) -> int:
        """Return how many requests have an answer."""
        query = f"SELECT count(*) FROM {_TABLES['reply']} WHERE suite = ? AND error IS NULL"
        return int(self.run_file.value(query, self.header.suite))

    def add(self, record: Call | Guarded) -> None:
        """Commit ``record`` (:meth:`RunWriter.commit`).

        Raises UsageError where it cannot be written; ``calls`` has it even then.
        """
        try:
            cast(RunWriter, self.run_file).commit(self.statements(record))
        except UsageError:
            if isinstance(record, Call):
                # It was paid for, so it is reported.
                unwritten: dict[str, Call] = {record.key: record}
                self.calls = ChainMap(unwritten, cast(dict[str, Call], self.calls))
            raise

    def statements(self, record: Call | Guarded) -> Iterator[tuple[str, Row]]:
        """Yield the statements that write ``record``, with their parameters."""
        suite = self.header.suite
        if isinstance(record, Guarded):
            row = reading_row(record)
            text = record.text.encode("utf-8", "surrogatepass")
            yield ADD_READING, (suite, *row[:2], text, *row[3:], row_checksum(self._seed, row))
            return
        row = call_row(record)
        request = row[: REQUEST.count(",") + 1]
        yield ADD_REQUEST, (suite, *request)
        reply = row[len(request) :]
        yield ADD_REPLY, (suite, record.key, *reply, row_checksum(self._seed, row))

    def removal(self, key: str) -> Iterator[tuple[str, Row]]:
        """Yield the statements that remove the request ``key`` with its reply."""
        return ((statement, (self.header.suite, key)) for statement in REMOVE_REQUEST)

    def digest(self) -> str:
        """Return the SHA-256 of the header, calls and readings, independent of their order."""
        digest = hashlib.sha256(encoded(self.header.line()))
        for records in (self.calls, self.readings):
            for key in sorted(records):
                digest.update(b"\n" + encoded(line_of(records[key])))
        return digest.hexdigest()


class RecordedRows(Mapping[str, _Record], Generic[_Record]):
    """Records of one kind by key, each read and checked on access, in the order of recording."""

    def __init__(
        self,
        run_file: RunFile,
        suite: str,
        seed: str,
        table: str,
        columns: str,
        record: Callable[[Row], _Record],
    ) -> None:
        self._run_file = run_file
        self._suite = suite
        self._seed = seed
        self._table = table
        self._where = f"FROM {_TABLES[table]} WHERE suite = ?"
        self._select = f"SELECT {columns}, sum {self._where}"
        self._select_one = f"{self._select} AND key = ?"
        self._record = record

    def __getitem__(self, key: str) -> _Record:
        row = self._run_file.row(self._select_one, self._suite, key)
        if row is None:
            raise KeyError(key)
        return self._checked(row)

    def __iter__(self) -> Iterator[str]:
        rows = self._run_file.rows(f"SELECT key {self._where} ORDER BY id", self._suite)
        yield from (key for (key,) in rows)

    def __len__(self) -> int:
        return int(self._run_file.value(f"SELECT count(*) {self._where}", self._suite))

    def values(self) -> ValuesView[_Record]:
        """Return the records, which are read in one pass."""
        return _RecordsInOnePass(self)

    def records(self) -> Iterator[_Record]:
        """Yield the records, in one pass over the file."""
        rows = self._run_file.rows(f"{self._select} ORDER BY id", self._suite)
        with contextlib.closing(rows):  # an open query would keep the file locked
            yield from map(self._checked, rows)

    def _checked(self, row: Row) -> _Record:
        *values, stored = row
        if row_checksum(self._seed, values) != stored:
            raise UsageError(
                f"{self._run_file.path} was edited: the {self._table} {row[0]} of {self._suite} "
                "does not match its checksum. Restore the file from a copy, or have it asked "
                f"again, after: sqlite3 {self._run_file.path.name} "
                f"\"DELETE FROM {self._table} WHERE sum = '{stored}'\"."
            )
        return self._record(tuple(values))


class _RecordsInOnePass(ValuesView[_Record]):
    def __init__(self, rows: RecordedRows[_Record]) -> None:
        super().__init__(rows)
        self._rows = rows

    def __iter__(self) -> Iterator[_Record]:
        return self._rows.records()


def header_at(path: Path, suite: str) -> Header | None:
    """Return the header of a suite in the run's file at ``path``; None where there is none yet.

    Raises UsageError where the file cannot be used, or a journal stands in its place.
    """
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is not a file; give another --out.")
    header = RunFile(path).headers.get(suite) if path.exists() else None
    if header is None:
        refuse_journal(path.parent / f"{suite}{JOURNAL}")
    return header


def resumed_header(there: Header | None, wanted: Header) -> Header:
    """Return the header to resume with: the audit that is ``there`` may have a larger sample."""
    if there is not None and there.contains_sample(wanted):
        return replace(wanted, sampling=there.sampling)
    return wanted


def record_cassette(path: Path, suite: str, cassette: Path) -> None:
    """Write the answers of a suite in the file at ``path`` to ``cassette``, all or none."""
    with RunFile(path) as run, RunWriter(cassette) as copy:
        recorded = run.suite(suite)
        answered = (call for call in recorded.calls.values() if call.reply is not None)
        copy.replace_suite(replace(recorded.header, guard={}), answered)
