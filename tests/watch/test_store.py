"""The store: what it refuses in one sentence, and what is deleted from it is gone."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError

from guard.cli import main
from guard.doors.plain import TextStream
from guard.errors import ConfigError, UsageError
from guard.policy import Policy
from guard.watch import schema
from guard.watch.store import Store
from tests.watch.conftest import Server
from tests.watch.older import downgrade
from tests.watch.reading import events, flushed, guard_with, responses


def change(url: str, statement: str) -> None:
    store = Store(url)
    with store._connected().begin():
        store._connected().exec_driver_sql(statement)
    store.disconnect()


def test_a_newer_store_is_refused_at_set_up_and_by_reports(url: str) -> None:
    Store(url).prepare()
    newer = schema.VERSION + 1
    change(url, f"UPDATE guard_store SET value = '{newer}' WHERE name = 'schema'")
    with pytest.raises(ConfigError, match=rf"by a newer guard \(its tables have version {newer}"):
        guard_with(url)
    with pytest.raises(ConfigError, match="use that guard or a newer one"), Store(url).reading():
        pass


def test_every_version_has_a_step_to_the_next() -> None:
    assert len(schema.MIGRATIONS) == schema.VERSION - 1


@pytest.mark.parametrize("version", range(1, schema.VERSION))
def test_an_older_store_is_brought_up_to_date_with_what_it_holds(url: str, version: int) -> None:
    guard = guard_with(url)
    list(guard.stream(["BIAS one. "]))
    flushed(guard)
    downgrade(url, version)
    with pytest.raises(ConfigError, match="by an older guard"), Store(url).reading():
        pass
    Store(url).prepare()
    (event,) = events(url)
    references = None if version < 4 else []
    assert (event["bias_type"], event["index_references"]) == ("gender", references)


def test_tables_are_made_once_and_key_and_rows_stay(url: str) -> None:
    first, second = Store(url), Store(url)
    first.prepare()
    second.prepare()
    assert first.key == second.key
    assert len(first.key) == 32


def test_a_new_file_that_another_process_writes_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "guard.db"
    store, impatient = Store(str(path)), Store(str(path))
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    with contextlib.closing(other), ThreadPoolExecutor(1) as pool:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(OperationalError, match="locked"):
            impatient.open(wait=False)
        prepared = pool.submit(store.prepare)
        time.sleep(0.2)
        assert not prepared.done()
        other.execute("ROLLBACK")
        prepared.result()
    assert len(store.key) == 32


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("Some notes. " * 100)
    with pytest.raises(ConfigError, match="file is not a database"):
        guard_with(f"sqlite:///{text}")
    assert text.read_text() == "Some notes. " * 100
    with pytest.raises(ConfigError, match="unable to open database file"):
        guard_with(f"sqlite:///{tmp_path / 'no' / 'folder' / 'guard.db'}")
    other = tmp_path / "other.db"
    engine = create_engine(f"sqlite:///{other}")
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE mine (a INTEGER)")
    engine.dispose()
    with pytest.raises(ConfigError, match="is not a guard store"), Store(str(other)).reading():
        pass
    with (
        pytest.raises(UsageError, match="There is no store at"),
        Store(str(tmp_path / "x")).reading(),
    ):
        pass
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    "command",
    ["rates", "rates --alert", "events stats", "events prune --days 3", "events forget 1",
     "dashboard", "review next", "review draw", "review status", "review mark 1 right",
     "audit history --store"],
)  # fmt: skip
@pytest.mark.parametrize("name", ["typo.db", "no/folder/typo.db"])
def test_a_command_that_finds_no_store_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    run = CliRunner().invoke(main, [*command.split(), name])
    assert run.exit_code == 2
    assert f"There is no store at {tmp_path / name}; " in run.output
    assert run.output.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def immutable(tmp_path: Path) -> Any:
    """Make a file read-only, for root too."""
    made: list[Path] = []

    def make(path: Path) -> None:
        path.chmod(0o444)
        if os.geteuid() == 0:
            if shutil.which("chattr") is None:
                pytest.skip("root writes to any file, and chattr is not installed")
            if subprocess.run(["chattr", "+i", path], capture_output=True).returncode:
                pytest.skip("root writes to any file, and this file system has no immutable ones")
            made.append(path)

    yield make
    for path in made:
        subprocess.run(["chattr", "-i", path], check=True)


def test_a_file_that_may_not_be_written_is_refused_at_set_up(
    tmp_path: Path, immutable: Any
) -> None:
    path = tmp_path / "guard.db"
    Store(str(path)).prepare()
    immutable(path)
    with pytest.raises(ConfigError, match=r"cannot be used \(.*(readonly|read-only|unable)"):
        guard_with(f"sqlite:///{path}")


def test_a_dead_server_is_told_of_at_set_up_without_the_password() -> None:
    url = "postgresql://guard:hunter2@127.0.0.1:1/none"
    with pytest.raises(ConfigError, match="check that the server runs") as caught:
        guard_with(url)
    assert "hunter2" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["password", "sslpassword", "passfile"])
def test_no_password_of_a_query_is_shown(name: str) -> None:
    url = f"postgresql://guard@127.0.0.1:1/none?{name}=hunter2"
    assert "hunter2" not in Store(url).name
    with pytest.raises(ConfigError, match="check that the server runs") as caught:
        guard_with(url)
    assert "hunter2" not in str(caught.value)
    for wrong in (f"mysql://host/none?{name}=a@hunter2", f"sqlite:///a?{name}=hunter2"):
        with pytest.raises(ConfigError, match="a store is") as caught:
            Store(wrong)
        assert "hunter2" not in str(caught.value)


def test_a_table_that_stays_locked_ends_in_a_sentence(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    url = server.database()
    Store(url).prepare()
    monkeypatch.setattr("guard.watch.engines._BUSY_S", 0.2)
    with psycopg.connect(url) as other:
        other.execute("LOCK TABLE guard_store, guard_responses IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(ConfigError, match="another session locks its tables; try again"):
            guard_with(url)
        run = CliRunner().invoke(main, ["events", "stats", url])
    assert (run.exit_code, "another session locks its tables" in run.output) == (2, True)


def test_a_locked_or_damaged_file_is_named_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "guard.db"
    Store(str(path)).prepare()
    monkeypatch.setattr("guard.watch.engines._BUSY_S", 0.2)
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(ConfigError, match="another process writes to it; try again"):
            guard_with(str(path))
    sentence = "has free space, and that it is a file"
    with pytest.raises(UsageError, match=sentence), Store(str(tmp_path)).reading():
        pass
    path.write_bytes(path.read_bytes()[:4096] + b"x" * 90_000)
    with pytest.raises(UsageError, match="is damaged"), Store(str(path)).changing() as changed:
        changed.forget("one")


def test_the_schemes_that_people_write_mean_postgresql(server: Server) -> None:
    url = server.database().replace("postgresql://", "postgres://")
    guard = guard_with(url)
    list(guard.stream(["Fine."]))
    flushed(guard)
    assert len(events(url)) == 1


def test_what_is_forgotten_is_in_no_byte(tmp_path: Path, sqlite: str) -> None:
    guard = guard_with(sqlite, policy=Policy(action="flag"), keep_text="full")
    session = guard.session()
    for request, word in (("one", "walrus"), ("two", "heron"), ("x" * 5000, "magpie")):
        mine = replace(session, request_id=request)
        list(TextStream([f"A quiet {word} hums. "] * 40, mine))
    flushed(guard)
    recorder: Any = guard.recorder
    recorder.writer.close()
    run = CliRunner().invoke(main, ["events", "forget", "one", str(tmp_path / "guard.db")])
    assert (run.exit_code, run.output) == (0, "1 response deleted.\n")
    run = CliRunner().invoke(main, ["events", "forget", "x" * 5000, sqlite, "--json"])
    assert (run.exit_code, run.output) == (0, '{"deleted": 1}\n')
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"walrus" not in kept
    assert b"magpie" not in kept
    assert b"heron" in kept
    assert [r["request_id"] for r in responses(sqlite)] == ["two"]


@pytest.mark.parametrize("remover", ["the writer", "another command"])
def test_what_is_forgotten_under_a_reader_leaves_the_journal_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: Any, remover: str
) -> None:
    monkeypatch.setattr("guard.watch.engines._BUSY_S", 0.2)
    monkeypatch.setattr("guard.watch.writer._UPKEEP_S", 0.2)
    path = tmp_path / "guard.db"
    guard = guard_with(f"sqlite:///{path}", keep_text="full")
    list(TextStream(["A quiet walrus hums. "] * 40, replace(guard.session(), request_id="one")))
    flushed(guard)
    recorder: Any = guard.recorder
    if remover != "the writer":
        recorder.writer.close()

    def kept() -> bool:
        return any(b"walrus" in file.read_bytes() for file in tmp_path.iterdir())

    store = Store(str(path))
    with store.reading() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM guard_events").fetchall()
        run = CliRunner().invoke(main, ["events", "forget", "one", str(path)])
        assert run.exit_code == 0
        assert run.output.startswith("1 response deleted.\nAnother process reads the store, so")
        assert kept()
    if remover != "the writer":
        run = CliRunner().invoke(main, ["events", "forget", "one", str(path)])
        assert (run.exit_code, run.output) == (0, "0 responses deleted.\n")
        assert not kept()
    until(lambda: not kept())


def test_prune_deletes_what_is_older(url: str) -> None:
    guard = guard_with(url)
    for _ in range(3):
        list(guard.stream(["Fine. Fine too."]))
    flushed(guard)
    ids = [r["id"] for r in responses(url)]
    change(url, f"UPDATE guard_responses SET time = {time.time() - 90_000} WHERE id = '{ids[0]}'")
    run = CliRunner().invoke(main, ["events", "prune", "--days", "1", url])
    assert run.output == "1 response deleted.\n"
    assert [r["id"] for r in responses(url)] == ids[1:]
    assert {e["response_id"] for e in events(url)} == set(ids[1:])


def test_stats_say_what_there_is(url: str) -> None:
    guard = guard_with(url)
    list(guard.stream(["Fine. Fine too."]))
    flushed(guard)
    run = CliRunner().invoke(main, ["events", "stats", url])
    assert run.exit_code == 0
    values = dict(line.split("\t") for line in run.output.splitlines())
    assert (values["responses"], values["events"], values["dropped"]) == ("1", "2", "0")
    assert values["schema"] == str(schema.VERSION)
