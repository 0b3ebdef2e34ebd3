"""The writer: streams go on whatever the store does, and what is lost is bounded and counted."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import URL, Engine, event
from sqlalchemy.exc import SQLAlchemyError

from guard.doors.plain import TextStream
from guard.errors import UsageError
from guard.policy import Policy
from guard.watch import schema, writer
from guard.watch.engines import write_engine
from guard.watch.events import ResponseStart, _stored, response_row
from guard.watch.store import _FORGET_LOCK, Store
from tests.watch.conftest import Server, sqlite_often
from tests.watch.reading import events, flushed, guard_with, responses, rows

Until = Callable[[Callable[[], bool]], None]
ROOT = Path(__file__).parents[2]


def writer_in(guard: Any) -> writer.Writer:
    found: writer.Writer = guard.recorder.writer
    return found


def full(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the store's file grow no further: SQLite then says that the disk is full."""

    def connected(connection: Any, _: object) -> None:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}").fetchall()

    def engine(url: URL, **wait: bool) -> Engine:
        made = write_engine(url, **wait)
        event.listen(made, "connect", connected)
        return made

    monkeypatch.setattr("guard.watch.store.write_engine", engine)
    store.disconnect()


def test_a_full_disk_costs_events_and_no_stream(
    sqlite: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    monkeypatch.setattr(writer, "QUEUE", 100)
    guard = guard_with(sqlite)
    full(guard.recorder.writer.store, monkeypatch)  # type: ignore[union-attr]
    text = "All is well. " * 50
    for _ in range(40):
        assert "".join(guard.stream([text])) == text
    until(lambda: writer_in(guard).dropped > 0)
    assert "events cannot be written" in caplog.text
    assert "All is well" not in caplog.text
    assert writer_in(guard)._queue.qsize() <= 100


def test_a_dead_database_costs_events_and_is_told_of_them_later(
    server: Server, monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    monkeypatch.setattr(writer, "QUEUE", 20)
    monkeypatch.setattr(writer, "_LONGEST_PAUSE_S", 0.5)
    url = server.database()
    guard = guard_with(url)
    list(guard.stream(["Before."]))
    flushed(guard)
    server.stop()
    try:
        began = time.monotonic()
        for _ in range(60):
            assert "".join(guard.stream(["While it is dead."])) == "While it is dead."
        assert time.monotonic() - began < 30
        until(lambda: writer_in(guard).dropped > 0)
    finally:
        server.start()
    until(lambda: writer_in(guard)._queue.qsize() == 0)
    list(guard.stream(["After."]))
    flushed(guard)
    (report,) = rows(url, schema.drops)
    assert report["events"] == writer_in(guard).dropped
    # Every event is there once, or counted; each response has two.
    kept = len(events(url)) + len([r for r in responses(url) if r["outcome"] != "running"])
    assert kept + report["events"] == 2 * 62


def test_what_cannot_be_written_at_all_is_dropped_and_the_rest_goes_on(
    sqlite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = guard_with(sqlite)
    made = writer.event_row

    def fails_on_one(item: Any, key: bytes) -> Any:
        return {}[0] if item.number == 1 else made(item, key)

    monkeypatch.setattr(writer, "event_row", fails_on_one)
    list(guard.stream(["One. Two. Three."]))  # with it in one batch
    for _ in range(20):
        list(guard.stream(["One."]))
    flushed(guard)
    assert writer_in(guard).dropped == 1
    assert sorted(event["number"] for event in events(sqlite)) == [0] * 21 + [2]
    assert len(responses(sqlite)) == 21
    list(guard.stream(["Four."]))
    flushed(guard)
    assert [(d["events"], d["reason"]) for d in rows(sqlite, schema.drops)] == [(1, "KeyError")]


@given(number=st.integers())
def test_a_number_that_no_column_holds_is_kept_at_the_bound(number: int) -> None:
    stored = _stored(number)
    assert -(2**31) <= stored < 2**31
    assert stored == number or abs(number) >= 2**31


def run(
    code: str, url: str, *, wait: bool = True, stdout: int = subprocess.DEVNULL
) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", code, url],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=stdout,
        text=True,
    )
    if wait:
        assert process.wait(250) == 0
    return process


MAKE = """
import os, sys, time
from guard import Guard
from guard.policy import Policy
from tests.scripted import Scripted
guard = Guard(Policy(), detector=Scripted(), events=sys.argv[1])
"""


def test_the_end_of_a_process_writes_what_waits(url: str) -> None:
    run(MAKE + "for _ in range(20): list(guard.stream(['Fine. And fine.']))", url)
    assert len(events(url)) == 40
    assert {r["outcome"] for r in responses(url)} == {"completed"}


@pytest.mark.parametrize(
    "how",
    [
        "os.fork",
        pytest.param("multiprocessing", marks=pytest.mark.slow("forks another process")),
    ],
)
def test_a_fork_writes_its_own_and_its_parents_once(url: str, how: str) -> None:
    fork = """
list(guard.stream(['Of the parent.']))
def child():
    for _ in range(5): list(guard.stream(['Of the child.']))
"""
    if how == "os.fork":
        fork += """
pid = os.fork()
if not pid:
    child()
    sys.exit(0)
os.waitpid(pid, 0)
"""
    else:
        fork += """
import multiprocessing
process = multiprocessing.get_context('fork').Process(target=child)
process.start(); process.join()
assert process.exitcode == 0
"""
    run(MAKE + fork + "list(guard.stream(['Of the parent again.']))", url)
    assert len(events(url)) == 7
    assert len(responses(url)) == 7


def test_a_killed_process_loses_no_more_than_what_waited(url: str) -> None:
    code = """
for number in range(100000):
    list(guard.stream([f'Number {number} is fine.']))
    print(number, flush=True)
    time.sleep(0.002)
"""
    with run(MAKE + code, url, wait=False, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # importing may take long
        began = time.monotonic()
        for line in process.stdout:
            if int(line) >= 50 and time.monotonic() - began > 1:
                break
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read()
    printed = [int(n) for n in re.findall(r"^\d+$", f"{line}{rest}", re.MULTILINE)][-1] + 1
    kept = responses(url)
    lost = printed - len([r for r in kept if r["outcome"] == "completed"])
    assert len(kept) > 0
    assert 2 * lost <= writer.QUEUE + writer.BATCH
    if url.startswith("sqlite"):
        with Store(url).reading() as connection:
            assert connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"


@pytest.mark.parametrize(
    "count", [2, pytest.param(4, marks=pytest.mark.slow("starts four processes"))]
)
def test_processes_at_once_lose_none_and_double_none(url: str, count: int) -> None:
    code = MAKE + "for _ in range(100): list(guard.stream(['Fine. BIAS is here.']))"
    started = [run(code, url, wait=False) for _ in range(count)]
    assert [process.wait(200) for process in started] == [0] * count
    found = responses(url)
    assert len(found) == 100 * count
    assert len(events(url)) == 200 * count
    assert {(r["judged"], r["found"], r["outcome"]) for r in found} == {(2, 1, "stopped")}
    assert rows(url, schema.drops) == []
    assert len(rows(url, schema.settings)) == 1


def test_a_batch_that_is_written_twice_changes_nothing(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Store.write

    def twice(self: Store, *batch: Any) -> None:
        write(self, *batch)
        write(self, *batch)

    monkeypatch.setattr(Store, "write", twice)
    guard = guard_with(url)
    for _ in range(10):
        list(guard.stream(["Fine. Also fine."]))
    flushed(guard)
    assert len(events(url)) == 20
    assert [r["judged"] for r in responses(url)] == [2] * 10


def test_a_response_that_runs_is_there_before_it_ends(url: str) -> None:
    guard = guard_with(url)
    stream = guard.stream(["First is fine. ", "Second is fine. ", "Third."])
    next(stream)
    flushed(guard)
    (response,) = responses(url)
    assert (response["outcome"], response["detector"]) == ("running", "scripted-1")
    list(stream)
    flushed(guard)
    (response,) = responses(url)
    assert (response["outcome"], response["judged"]) == ("completed", 3)
    assert response["detector"] == "scripted-1"


DAY = 86_400.0


def add_days(url: str, *days: float) -> None:
    """Add a response that is an hour less than each number of ``days`` old."""
    store, now = Store(url), time.time()
    store.prepare()
    for day in days:
        start = ResponseStart(f"{day} days old", "plain", None, None, Policy())
        store.write([], [response_row(start, now - day * DAY + 3600)], [], [])
    store.disconnect()


def test_what_is_too_old_is_deleted_by_the_writer(sqlite: str, until: Until) -> None:
    add_days(sqlite, *range(1, 12))
    guard = guard_with(sqlite, keep_days=8)
    list(guard.stream(["Now."]))
    until(lambda: len(responses(sqlite)) == 9)
    assert len(events(sqlite)) == 1


@pytest.fixture
def upkeep(monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer looks ten times a second for what is too old."""
    monkeypatch.setattr(writer, "_UPKEEP_S", 0.1)
    monkeypatch.setattr(writer, "_PRUNE_S", 0.1)


@pytest.mark.usefixtures("upkeep")
def test_what_grows_too_old_is_deleted_while_nothing_happens(sqlite: str, until: Until) -> None:
    guard = guard_with(sqlite, keep_days=8)
    list(guard.stream(["Now."]))
    flushed(guard)
    add_days(sqlite, *range(1, 12))
    until(lambda: len(responses(sqlite)) == 9)
    writer_in(guard).close()


@pytest.mark.usefixtures("upkeep")
def test_a_process_whose_clock_is_ahead_deletes_nothing_for_a_day(
    sqlite: str, until: Until, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = time.time
    add_days(sqlite, *range(1, 8))
    monkeypatch.setattr(writer.time, "time", lambda: now() + 400 * DAY)
    for started in (1, 2):  # the second time, the newest response has the wrong time, too
        writer._by_store.clear()
        caplog.clear()
        guard = guard_with(sqlite, keep_days=8)
        list(guard.stream(["Now."]))
        flushed(guard)
        add_days(sqlite, started / 10)
        until(lambda: "nothing is deleted by age until this process has run" in caplog.text)
        assert len(responses(sqlite)) == 7 + 2 * started
        if started == 2:
            writer_in(guard)._steady_since -= DAY
            until(lambda: len(responses(sqlite)) == 2)
        writer_in(guard).close()


@pytest.mark.usefixtures("upkeep")
def test_retention_goes_on_after_the_clock_was_set(
    sqlite: str, until: Until, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = time.time
    add_days(sqlite, *range(1, 9))
    guard = guard_with(sqlite, keep_days=8)
    monkeypatch.setattr(writer.time, "time", lambda: now() + 2 * 3600)
    list(guard.stream(["Now."]))
    flushed(guard)
    until(lambda: len(responses(sqlite)) == 8)
    writer_in(guard).close()
    assert "the clock has jumped by more than an hour; nothing is deleted by age" in caplog.text


def test_a_clock_that_jumps_deletes_nothing(
    sqlite: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    guard = guard_with(sqlite, keep_days=8)
    now = time.time
    monkeypatch.setattr(writer.time, "time", lambda: now() + 400 * 86_400)
    list(guard.stream(["Now."]))
    flushed(guard)
    list(guard.stream(["And now."]))
    flushed(guard)
    assert len(responses(sqlite)) == 2
    assert "the clock has jumped by more than an hour; nothing is deleted by age" in caplog.text


def test_guards_with_one_store_share_a_writer(tmp_path: Path, sqlite: str) -> None:
    first, second = guard_with(sqlite), guard_with(sqlite, keep_text="full")
    assert writer_in(first) is writer_in(second)
    assert writer_in(guard_with(f"sqlite:///{tmp_path / 'b.db'}")) is not writer_in(first)


def test_no_stream_waits_for_a_store_that_does_not_answer(
    sqlite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    write = Store.write

    def late(self: Store, *batch: Any) -> None:
        assert answers.wait(60)
        write(self, *batch)

    monkeypatch.setattr(Store, "write", late)
    guard = guard_with(sqlite)
    for _ in range(100):
        assert "".join(guard.stream(["Fine."])) == "Fine."
    assert events(sqlite) == []
    answers.set()
    flushed(guard)
    assert len(events(sqlite)) == 100


@pytest.mark.parametrize("batch", [1, 500])
def test_what_an_exit_leaves_unwritten_is_counted_exactly(
    sqlite: str, monkeypatch: pytest.MonkeyPatch, batch: int, until: Until
) -> None:
    never = threading.Event()
    monkeypatch.setattr(writer, "BATCH", batch)
    monkeypatch.setattr(Store, "write", lambda *_: never.wait(60))
    guard = guard_with(sqlite)
    for _ in range(3):
        list(guard.stream(["Fine."]))
    writer_in(guard)._queue.put(threading.Event())  # a flush is no event
    dropped: list[int] = []
    writer_in(guard).on_drop.add(dropped.append)
    writer_in(guard).close(1)
    list(guard.stream(["Too late."]))
    never.set()
    assert writer_in(guard).dropped == sum(dropped) == 8


def test_an_exit_waits_once_for_all_stores(tmp_path: Path) -> None:
    code = """
from guard.watch import writer
from guard.watch.store import Store
writer._CLOSE_S = 3.0
write = Store.write
Store.write = lambda self, *batch: write(self, *batch) if 'good' in self.name else time.sleep(60)
for name in ('bad1', 'bad2', 'good', 'bad3'):
    guard = Guard(Policy(), detector=Scripted(), events=sys.argv[1] + name)
    list(guard.stream(['Fine.']))
import atexit
ending = time.monotonic()
atexit._run_exitfuncs()
assert time.monotonic() - ending < 6, time.monotonic() - ending
"""
    run(MAKE + code, f"sqlite:///{tmp_path}/of-")
    assert len(events(f"sqlite:///{tmp_path}/of-good")) == 1
    assert len(responses(f"sqlite:///{tmp_path}/of-bad1")) == 0


@sqlite_often()
def test_a_fork_does_not_wait_for_a_slow_store(url: str, tmp_path: Path) -> None:
    code = """
from guard.watch.store import Store
write, parent = Store.write, os.getpid()
def slow(self, *batch):
    if os.getpid() == parent:
        time.sleep(3)
    write(self, *batch)
Store.write = slow
list(guard.stream(['Of the parent.']))
while not guard.recorder.writer.working.locked():
    time.sleep(0.01)
began = time.monotonic()
pid = os.fork()
if not pid:
    assert time.monotonic() - began < 1
    list(guard.stream(['Of the child.']))
    assert guard.recorder.writer.flush()
    # A copy of SQLite takes the locks of the process that it was copied from for its own.
    assert guard.recorder.writer.dropped == 2 * guard.recorder.writer.store.is_sqlite
    sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
"""
    run(MAKE + code, url)
    assert len(events(url)) == (1 if url.startswith("sqlite") else 2)


def test_a_fork_while_another_writes_loses_nothing(sqlite: str) -> None:
    code = """
import sqlite3
list(guard.stream(['Of the parent.']))
assert guard.recorder.writer.flush()
code = "import sqlite3, sys, time; c = sqlite3.connect(sys.argv[1], isolation_level=None);"
code += "c.execute('BEGIN IMMEDIATE'); print(1, flush=True); time.sleep(2)"
import subprocess
path = guard.recorder.writer.store.url.database
other = subprocess.Popen([sys.executable, '-c', code, path], stdout=subprocess.PIPE)
other.stdout.readline()
for _ in range(20):
    list(guard.stream(['Of the parent.']))
time.sleep(0.5)
pid = os.fork()
list(guard.stream(['Of both.']))
if not pid:
    sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
"""
    run(MAKE + code, sqlite)
    assert len(events(sqlite)) == 23
    assert rows(sqlite, schema.drops) == []


def test_a_child_inherits_no_connection_and_outlives_its_parent(url: str, tmp_path: Path) -> None:
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("there is no /proc")
    over = tmp_path / "over"
    code = f"""
def opened(fd):
    try:
        return os.readlink(f'/proc/self/fd/{{fd}}')
    except OSError:
        return ''
list(guard.stream(['Of the parent.']))
assert guard.recorder.writer.flush()
parent = os.getpid()
if not os.fork():
    assert not [fd for fd in os.listdir('/proc/self/fd') if 'guard.db' in opened(fd)]
    list(guard.stream(['Of the child.']))
    assert guard.recorder.writer.flush()
    while os.getppid() == parent:
        time.sleep(0.01)
    list(guard.stream(['Of the orphan.']))
    assert guard.recorder.writer.flush()
    open({str(over)!r}, 'w').close()
"""
    run(MAKE + code, url)
    end = time.monotonic() + 60
    while not over.exists():
        assert time.monotonic() < end
        time.sleep(0.05)
    assert len(events(url)) == 3


@pytest.mark.parametrize(
    "seconds", [2, pytest.param(8, marks=pytest.mark.slow("five threads change one store"))]
)
def test_deletion_and_writers_lock_rows_in_one_order(server: Server, seconds: int) -> None:
    """Two orders would deadlock, and PostgreSQL would end one of the two transactions."""
    url = server.database()
    Store(url).prepare()
    failed: list[str] = []
    over = threading.Event()

    def repeat(change: Callable[[Store, random.Random, int], object], seed: int) -> None:
        store, rng, turn = Store(url), random.Random(seed), 0
        while not over.is_set():
            turn += 1
            try:
                change(store, rng, turn)
            except (SQLAlchemyError, UsageError) as error:
                failed.append(str(error).partition("\n")[0])
                store.disconnect()

    def write(store: Store, rng: random.Random, turn: int) -> None:
        names = [f"{rng.random()}" for _ in range(20)]
        for outcome in ("running", "completed"):
            rng.shuffle(names)
            rows = [
                response_row(ResponseStart(name, "plain", None, "one", Policy()), time.time())
                for name in names
            ]
            hashes = [{"hash": f"{turn}-{n}", "policy": {}} for n in rng.sample(range(20), 20)]
            began, ended = rows[:10], [{**row, "outcome": outcome} for row in rows[5:]]
            store.write(hashes, began, [], ended)

    def forget(store: Store, rng: random.Random, turn: int) -> None:
        with store.changing() as changed:
            changed.forget("one")

    threads = [
        threading.Thread(target=repeat, args=(change, seed))
        for seed, change in enumerate((write, write, write, forget, forget))
    ]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    over.set()
    for thread in threads:
        thread.join(60)
    assert failed == []


@pytest.mark.parametrize("how", ["deleted", "moved", "replaced"])
def test_a_file_that_is_taken_away_is_opened_anew(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    path, other = tmp_path / "guard.db", tmp_path / "other.db"
    url = f"sqlite:///{path}"
    guard = guard_with(url, keep_text="hash")
    list(guard.stream(["Before."]))
    flushed(guard)
    if how == "deleted":
        path.unlink()
    elif how == "moved":
        path.rename(other)
    else:
        Store(str(other)).prepare()
        other.rename(path)
    for _ in range(2):
        list(guard.stream(["After."]))
        flushed(guard)
    assert len(events(url)) == 2
    assert len(rows(url, schema.settings)) == 1
    assert "guard.db was deleted, moved or replaced; it is opened anew" in caplog.text
    with Store(url).reading() as connection:
        assert connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"
    if how == "moved":
        assert len(events(f"sqlite:///{other}")) == 1


def test_a_file_taken_from_several_processes_loses_no_later_event(
    tmp_path: Path, sqlite: str
) -> None:
    code = """
list(guard.stream(['Before.']))
assert guard.recorder.writer.flush()
print('ready', flush=True)
for _ in range(8):
    sys.stdin.readline()
    list(guard.stream(['After.']))
    assert guard.recorder.writer.flush()
    print('done', flush=True)
"""
    command, environment = [sys.executable, "-c", MAKE + code, sqlite], dict(os.environ)
    environment["PYTHONPATH"] = str(ROOT)
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with ExitStack() as stack:
        processes = [
            stack.enter_context(subprocess.Popen(command, cwd=ROOT, env=environment, **pipes))
            for _ in range(2)
        ]
        assert [p.stdout.readline() for p in processes if p.stdout] == ["ready\n"] * 2
        (tmp_path / "guard.db").unlink()
        for process in processes * 8:
            assert process.stdin
            assert process.stdout
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "done\n"
        assert [process.wait(60) for process in processes] == [0, 0]
    assert len(events(sqlite)) == 16


def test_a_folder_that_is_gone_costs_no_event_until_the_queue_is_full(
    tmp_path: Path, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    folder, away = tmp_path / "stores", tmp_path / "away"
    folder.mkdir()
    url = f"sqlite:///{folder / 'guard.db'}"
    guard = guard_with(url)
    list(guard.stream(["Before."]))
    flushed(guard)
    folder.rename(away)
    list(guard.stream(["While it is gone."]))
    until(lambda: "events cannot be written" in caplog.text)
    away.rename(folder)
    flushed(guard)
    assert (len(events(url)), writer_in(guard).dropped) == (2, 0)


def test_what_is_forgotten_while_it_runs_stays_forgotten(url: str) -> None:
    guard = guard_with(url, policy=Policy(action="flag"), keep_text="full")
    for written_before in (True, False):
        session = replace(guard.session(), request_id=f"request {written_before}")
        stream = iter(TextStream(["A heron hums. ", "A heron sings. ", "Bye."], session))
        next(stream)
        if written_before:
            flushed(guard)
        with Store(url).changing() as changed:
            assert changed.forget(f"request {written_before}") == written_before
        list(stream)
        flushed(guard)
    list(guard.stream(["Another one."]))
    flushed(guard)
    assert [e["text"] for e in events(url)] == ["Another one."]
    assert [r["request_id"] for r in responses(url)] == [None]
    assert writer_in(guard).dropped == 0
    kept = rows(url, schema.forgotten)
    assert len(kept) == 2
    assert "request" not in "".join(row["request"] for row in kept)
    with Store(url).changing() as changed:
        changed.prune(time.time() + 1)
    assert rows(url, schema.forgotten) == []


def test_a_request_that_is_being_written_is_forgotten_whole(server: Server) -> None:
    """Forgetting waits for a transaction that does not know of it yet."""
    url = server.database()
    store = Store(url)
    store.prepare()
    start = ResponseStart("r", "plain", None, "one", Policy())
    forgetting = threading.Thread(target=lambda: _forget(url, "one"))
    with store._connected().begin():
        store._connected().exec_driver_sql(f"SELECT pg_advisory_xact_lock_shared({_FORGET_LOCK})")
        assert not store._forgotten(store._connected(), [response_row(start, time.time())])
        forgetting.start()
        forgetting.join(1)
        assert forgetting.is_alive()
        store._connected().execute(schema.responses.insert(), [response_row(start, time.time())])
    forgetting.join(30)
    assert responses(url) == []


def _forget(url: str, request_id: str) -> None:
    with Store(url).changing() as changed:
        changed.forget(request_id)
