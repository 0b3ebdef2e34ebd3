from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.audit import run_file
from guard.audit.calls import Call, Guarded, Piece, Reply, Slot, Usage
from guard.audit.header import Header
from guard.audit.run_file import RunFile, RunWriter, header_at, resumed_header
from guard.errors import UsageError
from guard.suites import TextScore
from tests.audit.written import read, recorded_suite, write
from tests.rows import rows

HEADER = Header("tiny", "1-A", "d" * 64, "p" * 64, "1", "openai/x", {"seed": 17})
OTHER = replace(HEADER, suite="other")
PAGE = Path(__file__).parents[2] / "docs" / "run-file.md"


def call(n: int, text: str = "first") -> Call:
    return Call(f"key {n}", Slot(f"t{n}", 0, 0), Reply((Piece(text),), usage=Usage(7, 2, 0.01)))


def failed(n: int, item: str = "t1") -> Call:
    return Call(f"key {n}", Slot(item, 0, 0), None, "no answer", 6, kind="Timeout", status=504)


READING = Guarded("key 1", "guarded", "Stopped.", ("race",), 0.9, 3, 0.5, True, 0.01)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.db"


TEXTS = st.text(st.characters(), max_size=40)  # half surrogate pairs and NUL, too
REPLIES = st.one_of(
    st.builds(
        Reply,
        st.lists(st.builds(Piece, TEXTS, st.booleans()), max_size=4).map(tuple),
        st.sampled_from(["stop", "length", "content_filter"]),
        st.dictionaries(TEXTS, st.floats(-20, 0), max_size=3),
        usage=st.builds(Usage, st.integers(0, 9), st.integers(0, 9), st.floats(0, 1)),
    ),
    st.builds(
        lambda scores: Reply(scores=scores, usage=Usage(1, 0, 0.0)),
        st.lists(st.builds(TextScore, st.floats(-99, 0), st.integers(1, 9)), min_size=1).map(tuple),
    ),
)


@given(reply=REPLIES, text=TEXTS)
def test_a_record_is_read_as_it_was_written(
    reply: Reply, text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("run") / "run.db"
    records: list[Call | Guarded] = [
        Call("key", Slot("id", 1, 2), reply, attempts=3, latency_s=0.25, by="analyst"),
        Call("failed", Slot("id", 1, 2), None, "why", 6, 0.5, kind="Timeout", status=504),
        Guarded("key", "guarded", text, ("race",), 0.9, 3, 0.5, True, 0.01),
    ]
    with RunWriter(path) as run:
        recorded = run.begin(HEADER)
        for record in records:
            recorded.add(record)
    assert read(path) == (HEADER, records)


def test_an_answer_is_there_before_the_next_call_and_readers_never_wait(path: Path) -> None:
    with RunWriter(path) as run:
        recorded = run.begin(HEADER)
        early = RunFile(path).suite("tiny")
        for n in range(5):
            recorded.add(call(n))
            there = recorded_suite(path)
            assert list(there.calls.values()) == [call(i) for i in range(n + 1)]
            assert there.unfinished
        assert not early.calls  # a reader sees one state of the file
    assert not recorded_suite(path).unfinished
    del early


def test_a_closed_file_has_no_log_beside_it(path: Path) -> None:
    write(path, HEADER, [call(1)])
    assert {file.name for file in path.parent.iterdir()} == {"run.db", "run.db.lock"}
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_a_second_run_goes_on_in_the_same_file(path: Path) -> None:
    for n in range(3):
        with RunWriter(path) as run:
            recorded = run.begin(HEADER)
            assert list(recorded.calls) == [f"key {i}" for i in range(n)]
            assert recorded.count_answers() == n
            recorded.add(call(n))


def test_suites_share_a_file_and_keys_without_meeting(path: Path) -> None:
    write(path, HEADER, [call(1), READING])
    write(path, OTHER, [call(1, "second"), call(2)])
    run = RunFile(path)
    assert list(run.headers) == ["other", "tiny"]
    assert list(run.suite("tiny").calls.values()) == [call(1)]
    assert list(run.suite("other").calls.values()) == [call(1, "second"), call(2)]
    assert not run.suite("other").readings
    write(path, OTHER, [call(3)])
    assert list(RunFile(path).suite("other").calls.values()) == [call(3)]
    assert read_tiny(path) == [call(1)]
    with pytest.raises(UsageError, match="has no answers of mist: it has other, tiny"):
        RunFile(path).suite("mist")


def read_tiny(path: Path) -> list[Call]:
    return list(RunFile(path).suite("tiny").calls.values())


def test_an_answer_replaces_a_failure_and_nothing_replaces_an_answer(path: Path) -> None:
    with RunWriter(path) as run:
        recorded = run.begin(HEADER)
        for record in (failed(1, "t9"), failed(2), call(1), call(1, "second"), failed(1)):
            recorded.add(record)
        assert recorded.count_answers() == 1
        recorded.add(READING)
        recorded.add(replace(READING, text="Another."))
    assert read(path) == (HEADER, [call(1), failed(2), READING])


def test_what_cannot_be_written_is_still_counted(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full disk, when answers that were paid for are on their way."""
    with RunWriter(path) as run:
        recorded = run.begin(HEADER)
        recorded.add(call(1))

        def full(*_: object) -> None:
            raise UsageError("no space")

        with monkeypatch.context() as patched:
            patched.setattr(RunWriter, "commit", full)
            with pytest.raises(UsageError, match="no space"):
                recorded.add(call(2))
        assert {key: recorded.calls[key] for key in recorded.calls} == {
            "key 1": call(1),
            "key 2": call(2),
        }
    assert read(path)[1] == [call(1)]


def test_the_disk_is_told_to_keep_what_was_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    statements: list[str] = []
    with RunWriter(path) as run:
        recorded = run.begin(HEADER)
        run._connection.set_trace_callback(statements.append)
        for n in range(10):
            now[0] += 1.0
            recorded.add(call(n))
    # Once in run_file.SYNC_S seconds; closing copies all of it into the file.
    assert statements.count("PRAGMA synchronous = FULL") == 1
    assert "PRAGMA wal_checkpoint(PASSIVE)" in statements


# Of another audit.


@rows(
    "change, told",
    [
        ({"model": "openai/y"}, "another model: 'openai/x', not 'openai/y'"),
        ({"data_hash": "e" * 64}, "another data"),
        ({"prompt_hash": "e" * 64}, "another prompt"),
        ({"parser_version": "2"}, "another parser version: '1', not '2'"),
        ({"options": {"seed": 18}}, "another suite options: seed was 17, now 18"),
        ({"sampling": {"size": 3}}, "another sample: size was None, now 3"),
        ({"guard": {"policy": "x"}}, "another guard settings"),
    ],
)
def test_a_run_of_another_audit_is_refused_with_the_difference(
    tmp_path: Path, change: dict[str, object], told: str
) -> None:
    path = tmp_path / "run.db"
    write(path, HEADER, [call(1)])
    with RunWriter(path) as run, pytest.raises(UsageError, match=told):
        run.begin(replace(HEADER, **change))  # type: ignore[arg-type]
    assert read(path) == (HEADER, [call(1)])


def test_a_larger_sample_goes_on_in_the_run_of_a_smaller(path: Path) -> None:
    small = replace(HEADER, sampling={"size": 10, "seed": 17})
    larger = replace(HEADER, sampling={"size": 30, "seed": 17})
    for n, header in enumerate((small, larger, HEADER)):
        with RunWriter(path) as run:
            recorded = run.begin(header)
            assert len(recorded.calls) == n
            recorded.add(call(n))
        assert header_at(path, "tiny") == header
    with RunWriter(path) as run, pytest.raises(UsageError, match="size was None, now 10"):
        run.begin(small)
    assert resumed_header(header_at(path, "tiny"), small) == HEADER
    write(path, larger, [])
    other = replace(HEADER, sampling={"size": 30, "seed": 18})
    with RunWriter(path) as run, pytest.raises(UsageError, match="seed was 17, now 18"):
        run.begin(other)


def test_a_detectors_name_with_colons_slashes_and_commas_is_kept_and_compared(path: Path) -> None:
    name = "cascade:encoder-2.2+26b9b42e,judge:openai/gpt-4.1,x+0a1b@0.3-0.7"
    guarded = replace(HEADER, guard={"detector": name, "index": "", "policy": {"language": "x"}})
    write(path, guarded, [])
    stored = header_at(path, "tiny")
    assert stored == guarded
    stored.check(guarded, path)
    other = replace(guarded, guard={**guarded.guard, "detector": name.replace("0.7", "0.6")})
    assert list(stored.differences(other)) == ["guard"]
    with pytest.raises(UsageError, match="another guard settings: detector was") as caught:
        stored.check(other, path)
    assert "judge:openai/gpt-4.1,x" in str(caught.value)


# Damage and edits.


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as file, file:
        for statement in statements:
            file.execute(statement)


def columns(path: Path) -> Iterator[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as file:
        for table in ("request", "reply", "reading"):
            for _, name, *_ in file.execute(f"PRAGMA table_info({table})").fetchall():
                if name not in ("id", "suite"):
                    yield table, name


def test_every_edit_of_a_row_is_noticed(path: Path) -> None:
    """Each column of each table in turn."""
    records: list[Call | Guarded] = [call(1), failed(2), READING]
    write(path, HEADER, records)
    for table, column in list(columns(path)):
        for value in ("'edited'", "CAST(x'80' AS TEXT)", "x'80'"):
            write(path, HEADER, records)
            execute(path, f"UPDATE {table} SET {column} = {value} WHERE id = 1")
            with pytest.raises(UsageError, match="was edited"):
                read(path)
    write(path, HEADER, records)
    for edit in ("key = replace(key, 'openai/x', 'openai/y')", "model = 'openai/y'"):
        path.unlink()
        write(path, HEADER, records)
        execute(path, f"UPDATE header SET {edit}")
        with pytest.raises(UsageError, match=r"The header of tiny in .* was edited"):
            read(path)


def test_a_row_of_another_run_is_noticed(path: Path, tmp_path: Path) -> None:
    write(path, HEADER, [call(1)])
    write(tmp_path / "other.db", replace(HEADER, model="openai/y"), [call(1, "second")])
    execute(
        path,
        f"ATTACH '{tmp_path / 'other.db'}' AS other",
        "UPDATE reply SET (pieces, sum) = (SELECT pieces, sum FROM other.reply)",
    )
    with pytest.raises(UsageError, match="the reply key 1 of tiny does not match its checksum"):
        read(path)


def truncated(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "nothing": (Path.unlink, "There is no run at"),
    "words": (lambda p: p.write_text("hello " * 99), "is not the file of a run"),
    "truncated": (truncated, "cannot be read: database disk image is malformed; restore it"),
    "another database": (
        lambda p: execute(p, "PRAGMA application_id = 7"),
        "is not the file of a run",
    ),
    "a later schema": (
        lambda p: execute(p, "PRAGMA user_version = 99"),
        "has schema version 99, and this version of guard reads 1",
    ),
    "a lost table": (lambda p: execute(p, "DROP TABLE reply"), "cannot be read: no such table"),
    "a header without its parts": (
        lambda p: execute(p, "UPDATE header SET key = '{}'"),
        "was edited",
    ),
    "a journal": (
        lambda p: p.write_bytes(b"\x1f\x8b" * 9),
        "a run.db of it: guard audit convert",
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_file_is_one_sentence_and_left_as_it_is(path: Path, kind: str) -> None:
    write(path, HEADER, [call(n, "first " * 50) for n in range(200)])
    damage, told = DAMAGE[kind]
    damage(path)
    before = path.read_bytes() if path.exists() else b""
    with pytest.raises(UsageError, match=told):
        read(path)
    if kind not in ("nothing", "a journal"):  # a run begins there, and looks before it writes
        with pytest.raises(UsageError, match=told), RunWriter(path) as run:
            list(run.begin(HEADER).calls.values())
    assert kind in ("truncated", "a lost table") or not before or path.read_bytes() == before


def killed(path: Path, calls: int) -> None:
    """Leave the files of a process that was killed: a copy of those of one that still writes."""
    folder = path.parent / "running"
    with RunWriter(folder / "run.db") as run:
        recorded = run.begin(HEADER)
        for n in range(calls):
            recorded.add(call(n))
        for name in ("run.db", "run.db-wal"):
            path.with_name(name).write_bytes((folder / name).read_bytes())


@pytest.mark.parametrize("calls", [1, run_file._CHECKPOINT_EVERY + 3])
def test_a_file_without_its_log_is_refused_and_nothing_is_lost(path: Path, calls: int) -> None:
    killed(path, calls)
    log = Path(f"{path}-wal")
    kept = log.read_bytes()
    log.unlink()
    for opening in (RunFile, RunFile, RunWriter):  # the first leaves an empty log
        with pytest.raises(UsageError, match="was copied without") as caught:
            opening(path)
    log.write_bytes(kept)
    there = recorded_suite(path)
    assert len(there.calls) == calls
    assert there.unfinished
    del there
    # Without the log, as the sentence says; the rest is asked again.
    log.unlink()
    (command,) = re.findall(r'"(UPDATE .*)"', str(caught.value))
    execute(path, command)
    assert len(recorded_suite(path).calls) <= calls


def test_another_program_may_fold_the_log_into_the_file(path: Path) -> None:
    killed(path, 3)
    execute(path, "SELECT 1 FROM header")  # sqlite3 does it when it closes
    assert not Path(f"{path}-wal").exists()
    assert len(recorded_suite(path).calls) == 3


def test_a_file_has_one_writer(path: Path) -> None:
    with RunWriter(path), pytest.raises(UsageError, match="is being written by another audit"):
        RunWriter(path)


def test_a_writer_that_was_killed_before_its_first_commit_left_nothing(path: Path) -> None:
    path.touch()
    assert header_at(path, "tiny") is None
    with RunWriter(path) as run:
        run.begin(HEADER).add(call(1))
    assert read(path)[1] == [call(1)]


# The questions of the page.


def test_the_queries_of_the_page_answer_their_questions(path: Path) -> None:
    shown = replace(READING, key="key 2", text="Stop", own=0)
    calls = [call(0), call(1), call(2, "biased"), replace(call(3), by="analyst"), failed(4, "t4")]
    same = [Guarded(f"key {n}", "same") for n in (0, 1)]
    write(path, HEADER, [*calls, *same, shown])
    queries = re.findall(r"^```sql\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as file:
        stopped, cost, failures = (file.execute(query).fetchall() for query in queries)
    assert stopped == [("tiny", "t2", "biased", "Stop", '["race"]', 0.9)]
    assert cost == [("tiny", "analyst", 1, 7, 2, 0.01), ("tiny", "model", 3, 21, 6, 0.03)]
    assert failures == [("tiny", "Timeout", 504, "no answer", 1, "t4")]


def test_the_page_has_the_schema() -> None:
    schema = Path(run_file.__file__).with_name("run_file.sql").read_text("utf-8")
    page = PAGE.read_text("utf-8")
    for table, body in re.findall(r"CREATE TABLE (\w+) \((.*?)\n\);", schema, re.DOTALL):
        for column in re.findall(r"^    ([a-z_]+) ", body, re.MULTILINE):
            assert f"`{column}`" in page.split(f"`{table}`", 1)[1], (table, column)
    assert f"{run_file.SYNC_S:g} seconds" in page
    assert json.dumps(run_file.SCHEMA_VERSION) in page


def test_a_file_with_a_damaged_index_is_not_written_to(path: Path) -> None:
    write(path, HEADER, [call(n) for n in range(40)])
    with closing(sqlite3.connect(path)) as file:
        (page,) = file.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_request_1'"
        ).fetchone()
        (size,) = file.execute("PRAGMA page_size").fetchone()
    damaged = bytearray(path.read_bytes())
    damaged[size * page - 1] ^= 1  # the end of a key in the index
    path.write_bytes(damaged)
    with pytest.raises(UsageError, match=r"is damaged: .*; restore it from a copy"):
        RunWriter(path)
    assert path.read_bytes() == damaged
