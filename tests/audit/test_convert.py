from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from guard.audit.asked import AskedSuite, read_asked, write_asked
from guard.audit.calls import Call, Guarded, Line, Piece, Reply, Slot, Usage, line_of
from guard.audit.header import Header
from guard.cli import main
from guard.suites import TextScore
from tests.audit.written import read, recorded_suite

HEADER = Header("tiny", "1-A", "d" * 64, "p" * 64, "1", "openai/x", {"seed": 17})
SLOT = Slot("t1", 2, 1)
PIECES = (Piece("hm", True), Piece("fir"), Piece("st"))
ANSWERED = Call(
    "key 1", SLOT, Reply(PIECES, "length", {"a": -0.1}, (), Usage(7, 2, 0.01)), latency_s=1.5
)
SCORED = Call("key 2", SLOT, Reply(scores=(TextScore(-1.5, 3),), usage=Usage(7, 0)), by="scorer")
FAILED = Call("key 3", SLOT, None, "why", 6, kind="Timeout", status=504)
READINGS = (
    Guarded("key 1", "guarded", "No.", ("race",), 0.9, 0, 0.0, True, 0.1),
    Guarded("k", "same"),
)
RECORDS: tuple[Call | Guarded, ...] = (ANSWERED, SCORED, FAILED, *READINGS)


def journal(header: Line, records: Sequence[Call | Guarded]) -> list[bytes]:
    """Return the lines of a journal of format 2."""
    seed, lines = b"", []
    for line in (header, *map(line_of, records)):
        text = json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode()
        stored = hashlib.sha256(seed + text).hexdigest()[:12].encode()
        seed = seed or stored
        lines.append(text[:-1] + b',"sum":"' + stored + b'"}\n')
    return lines


def put(path: Path, lines: Sequence[bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    # A run was one gzip member, and the next run another one.
    members = (b"".join(lines[:3]), b"".join(lines[3:]))
    path.write_bytes(b"".join(gzip.compress(member, mtime=0) for member in members))
    return path


def call(*args: object) -> Result:
    return CliRunner().invoke(main, ["audit", *map(str, args)], catch_exceptions=False)


def test_a_journal_becomes_a_run_with_the_same_hash(tmp_path: Path) -> None:
    lines = journal(HEADER.line(), RECORDS)
    path = put(tmp_path / "run" / "tiny.jsonl.gz", lines)
    os.utime(path, (1e9, 1e9))
    done = call("convert", path.parent)
    assert done.exit_code == 0, done.output
    run = tmp_path / "run" / "run.db"
    assert done.output == f"{run}: 3 calls of {path}\n"
    assert read(run) == (HEADER, list(RECORDS))
    by_key: list[Call | Guarded] = [ANSWERED, SCORED, FAILED, READINGS[1], READINGS[0]]
    texts = [HEADER.line(), *map(line_of, by_key)]
    whole = b"\n".join(json.dumps(t, separators=(",", ":")).encode() for t in texts)
    assert recorded_suite(run).digest() == hashlib.sha256(whole).hexdigest()
    assert run.stat().st_mtime == 1e9  # the run's time, in a history
    again = call("convert", path.parent)
    assert again.exit_code == 2
    assert "has tiny already; give another folder: --to" in again.stderr


def test_an_answer_after_a_failure_counts(tmp_path: Path) -> None:
    earlier = Call("key 1", SLOT, None, "why")
    put(tmp_path / "tiny.jsonl.gz", journal(HEADER.line(), [earlier, ANSWERED]))
    assert call("convert", tmp_path).exit_code == 0
    assert read(tmp_path / "run.db")[1] == [ANSWERED]


def test_the_folders_of_models_and_what_they_asked_come_along(tmp_path: Path) -> None:
    for model in ("x", "y"):
        put(tmp_path / "out" / model / "tiny.jsonl.gz", journal(HEADER.line(), RECORDS))
        write_asked(tmp_path / "out" / model, [AskedSuite("tiny", model), AskedSuite("b", model)])
    done = call("convert", tmp_path / "out", "--to", tmp_path / "new")
    assert done.exit_code == 0, done.output
    for model in ("x", "y"):
        assert read(tmp_path / "new" / model / "run.db")[1] == list(RECORDS)
        assert [one.suite for one in read_asked(tmp_path / "new" / model)] == ["tiny", "b"]
        assert not (tmp_path / "out" / model / "run.db").exists()


def edited(lines: list[bytes]) -> list[bytes]:
    return [*lines[:1], lines[1].replace(b"fir", b"wor"), *lines[2:]]


@pytest.mark.parametrize("damage", [edited, lambda lines: [*lines[:1], b"{broken\n", *lines[2:]]])
def test_damaged_lines_are_left_out_and_counted(tmp_path: Path, damage: Any) -> None:
    put(tmp_path / "tiny.jsonl.gz", damage(journal(HEADER.line(), RECORDS)))
    done = call("convert", tmp_path)
    assert done.exit_code == 0
    assert done.output.endswith("; 1 damaged lines were left out\n")
    assert read(tmp_path / "run.db")[1] == list(RECORDS[1:])


def test_the_whole_lines_of_a_journal_that_was_cut_are_kept(tmp_path: Path) -> None:
    path = put(tmp_path / "tiny.jsonl.gz", journal(HEADER.line(), RECORDS))
    path.write_bytes(path.read_bytes()[:-60])
    assert call("convert", path, "--to", tmp_path / "new").exit_code == 0
    there = read(tmp_path / "new" / "run.db")[1]
    assert there == list(RECORDS[: len(there)])
    assert len(there) >= 2


def test_a_journal_without_checksums_is_converted(tmp_path: Path) -> None:
    header = {**HEADER.line(), "format": 1}
    del header["request"]
    lines = [json.dumps(line).encode() + b"\n" for line in (header, line_of(ANSWERED))]
    put(tmp_path / "tiny.jsonl.gz", lines)
    assert call("convert", tmp_path).exit_code == 0
    assert read(tmp_path / "run.db") == (HEADER, [ANSWERED])


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([], "is not a journal of an audit"),
        ([b"hello\n"], "is not a journal of an audit"),
        (journal({**HEADER.line(), "format": 9}, ()), "is a journal of format 9"),
        ([journal(HEADER.line(), ())[0].replace(b"openai/x", b"openai/y")], "was edited"),
    ],
)
def test_what_is_no_journal_is_one_sentence(tmp_path: Path, lines: list[bytes], told: str) -> None:
    put(tmp_path / "a.jsonl.gz", journal(HEADER.line(), RECORDS))
    put(tmp_path / "b.jsonl.gz", lines)
    done = call("convert", tmp_path)
    assert done.exit_code == 2
    assert told in done.stderr
    assert not (tmp_path / "run.db").exists()
    nothing = call("convert", tmp_path / "nowhere")
    assert nothing.exit_code == 2
    assert "has no journal (.jsonl.gz) of an earlier version" in nothing.stderr


def test_commands_that_meet_journals_say_how_to_convert_them(tmp_path: Path) -> None:
    path = put(tmp_path / "sai_asa.jsonl.gz", journal(HEADER.line(), RECORDS))
    for args in (
        ("report", tmp_path),
        ("report", path),
        ("score", "--suite", "sai_asa", "--answers", path),
        ("compare", tmp_path, tmp_path),
        ("baseline", tmp_path, "--out", tmp_path / "b.json"),
        ("review", tmp_path, "--out", tmp_path / "r"),
        ("run", "--suite", "sai_asa", "--replay", tmp_path, "--out", tmp_path / "new"),
        ("run", "--suite", "sai_asa", "--model", "openai/x", "--plain-only", "--out", tmp_path),
        ("history", "add", tmp_path, "--store", f"sqlite:///{tmp_path}/h.db"),
    ):
        done = call(*args)
        assert done.exit_code == 2, args
        assert f"make a run.db of it: guard audit convert {tmp_path}" in done.stderr, args
