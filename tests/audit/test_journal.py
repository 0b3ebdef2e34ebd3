from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
from guard.audit.journal import Journal
from hypothesis import given
from hypothesis import strategies as st

from guard.audit import journal
from guard.audit.calls import Call, Guarded, Piece, Reply, Slot, Usage, line_of, record_of
from guard.audit.header import Header
from guard.errors import UsageError
from guard.suites import TextScore
from tests.audit.written import read
from tests.rows import examples

HEADER = Header("tiny", "1-A", "d" * 64, "p" * 64, "1", "openai/x", {"seed": 17})


def call(n: int, text: str = "first") -> Call:
    return Call(f"key {n}", Slot(f"t{n}", 0, 0), Reply((Piece(text),), usage=Usage(7, 2, 0.01)))


TEXTS = st.text(max_size=40)
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


@given(REPLIES)
def test_a_record_is_read_as_it_was_written(reply: Reply) -> None:
    wrote = Call("key", Slot("id", 1, 2), reply, attempts=3, latency_s=0.25)
    assert record_of(json.loads(json.dumps(line_of(wrote)))) == wrote


def test_a_reading_is_read_as_it_was_written() -> None:
    for wrote in (Guarded("k", "guarded", "x", ("race",), 0.9), Guarded("k", "same", score=1.0)):
        again = record_of(json.loads(json.dumps(line_of(wrote))))
        assert isinstance(again, Guarded)
        assert (again.key, again.reading, again.text) == (wrote.key, wrote.reading, wrote.text)


def test_what_was_written_is_there_before_the_journal_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    with Journal(path, HEADER) as open_one:
        for n in range(5):
            open_one.add(call(n))
            assert read(path)[1] == [call(i) for i in range(n + 1)]
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    assert len(lines) == 6


def test_a_second_run_goes_on_in_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    for n in range(3):
        with Journal(path, HEADER) as one:
            assert list(one.calls) == [f"key {i}" for i in range(n)]
            one.add(call(n))
    assert len(gzip.decompress(path.read_bytes()).splitlines()) == 4


@examples(60)
@given(data=st.data())
def test_cut_at_any_byte_it_keeps_every_whole_line_and_goes_on(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("cut") / "a.jsonl.gz"
    ends = []
    with Journal(path, HEADER) as one:
        for n in range(6):
            one.add(call(n, "answer " * n))
            ends.append(path.stat().st_size)
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    kept = sum(end <= cut for end in ends)
    with Journal(path, HEADER) as again:
        assert len(again.calls) >= kept
        assert again.calls == {f"key {n}": call(n, "answer " * n) for n in range(len(again.calls))}
        for n in range(len(again.calls), 6):
            again.add(call(n, "answer " * n))
    gzip.decompress(path.read_bytes())
    assert read(path)[1] == [call(n, "answer " * n) for n in range(6)]


def test_what_follows_damage_is_kept_beside(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    with Journal(path, HEADER) as one:
        one.add(call(1))
        middle = path.stat().st_size
        one.add(call(2, "x" * 500))
    broken = path.read_bytes()
    path.write_bytes(broken[:middle] + b"\xff" * 40 + broken[middle + 40 :])
    with Journal(path, HEADER) as again:
        assert list(again.calls) == ["key 1"]
    assert path.with_name("a.jsonl.gz.damaged").is_file()


# Without the time of compression: its bytes name the test, the same one in every worker.
@pytest.mark.parametrize(
    "content", [b"hello\n", b'{"k": "x"}\n', gzip.compress(b"hello\n", mtime=0)]
)
def test_another_file_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="is not a journal"):
        Journal(path, HEADER)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("change", "told"),
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
def test_a_journal_of_another_audit_is_refused_with_the_difference(
    tmp_path: Path, change: dict[str, object], told: str
) -> None:
    Journal(tmp_path / "a.jsonl.gz", HEADER).close()
    with pytest.raises(UsageError, match=told):
        Journal(tmp_path / "a.jsonl.gz", replace(HEADER, **change))


def test_two_audits_do_not_share_a_journal(tmp_path: Path) -> None:
    with (
        Journal(tmp_path / "a.jsonl.gz", HEADER),
        pytest.raises(UsageError, match="written by another audit"),
    ):
        Journal(tmp_path / "a.jsonl.gz", HEADER)


def test_an_answer_counts_more_than_the_failure_before_it(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    with Journal(path, HEADER) as one:
        one.add(Call("key 1", Slot("t1", 0, 0), None, "Timeout"))
        one.add(call(1))
    assert journal.load(path).calls == {"key 1": call(1)}


def test_one_bad_line_costs_that_line_only(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    with Journal(path, HEADER) as one:
        for n in range(5):
            one.add(call(n))
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    lines[2] = b"{broken\n"
    path.write_bytes(gzip.compress(b"".join(lines), mtime=0))
    found = journal.load(path)
    assert list(found.calls) == ["key 0", "key 2", "key 3", "key 4"]
    assert found.damaged == 1
    with Journal(path, HEADER) as again:
        assert list(again.calls) == ["key 0", "key 2", "key 3", "key 4"]
        again.add(call(1))
    assert journal.load(path).damaged == 0
    assert path.with_name("a.jsonl.gz.damaged").is_file()


@pytest.mark.parametrize(
    ("old", "new"), [(b"first", b"worst"), (b"0.01", b"0.02"), (b'"key 2"', b'"key 7"')]
)
def test_an_edited_line_is_seen_and_left_out(tmp_path: Path, old: bytes, new: bytes) -> None:
    path = tmp_path / "a.jsonl.gz"
    with Journal(path, HEADER) as one:
        for n in range(4):
            one.add(call(n))
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    lines[3] = lines[3].replace(old, new)
    path.write_bytes(gzip.compress(b"".join(lines), mtime=0))
    found = journal.load(path)
    assert list(found.calls) == ["key 0", "key 1", "key 3"]
    assert found.damaged == 1


def test_an_edited_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    Journal(path, HEADER).close()
    text = gzip.decompress(path.read_bytes()).replace(b"openai/x", b"openai/y")
    path.write_bytes(gzip.compress(text, mtime=0))
    with pytest.raises(UsageError, match=r"The first line of .* is damaged"):
        journal.load(path)


def test_a_line_of_another_journal_is_left_out(tmp_path: Path) -> None:
    paths = [tmp_path / "a.jsonl.gz", tmp_path / "b.jsonl.gz"]
    for path, header in zip(paths, (HEADER, replace(HEADER, model="openai/y")), strict=True):
        with Journal(path, header) as one:
            one.add(call(int(path.name[0] == "b")))
    mine, other = (gzip.decompress(p.read_bytes()).splitlines(keepends=True) for p in paths)
    paths[0].write_bytes(gzip.compress(b"".join([*mine, other[1]]), mtime=0))
    found = journal.load(paths[0])
    assert list(found.calls) == ["key 0"]
    assert found.damaged == 1


def test_damaged_bytes_cost_no_more_than_a_stretch(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    with Journal(path, HEADER) as one:
        for n in range(1000):
            one.add(call(n, f"answer {n * 7919} {n * 104729}"))
    for n in range(1000, 1010):  # another run: a member of its own
        with Journal(path, HEADER) as one:
            one.add(call(n, "late"))
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 8] = b"\xff" * 8
    path.write_bytes(bytes(data))
    found = journal.load(path)
    assert found.damaged >= 1
    assert len(found.calls) >= 1010 - 130
    assert all(found.calls[f"key {n}"] == call(n, "late") for n in range(1000, 1010))


def test_a_larger_sample_goes_on_in_the_journal_of_a_smaller(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    small = replace(HEADER, sampling={"size": 10, "seed": 17})
    with Journal(path, small) as one:
        one.add(call(1))
    larger = replace(HEADER, sampling={"size": 30, "seed": 17})
    with Journal(path, larger) as one:
        assert list(one.calls) == ["key 1"]
        one.add(call(2))
    assert journal.load(path).header == larger
    with Journal(path, HEADER) as one:
        assert list(one.calls) == ["key 1", "key 2"]
    assert journal.load(path).damaged == 0
    with pytest.raises(UsageError, match="another sample: size was None, now 10"):
        Journal(path, small)
    assert journal.resumed_header(path, small) == HEADER
    other = replace(HEADER, sampling={"size": 30, "seed": 18})
    Journal(tmp_path / "b.jsonl.gz", larger).close()
    with pytest.raises(UsageError, match="another sample: seed was 17, now 18"):
        Journal(tmp_path / "b.jsonl.gz", other)


def test_a_journal_without_checksums_is_read_and_not_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    header = {**HEADER.line(), "format": 1}
    del header["request"]
    lines = [header, line_of(call(1))]
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))
    assert journal.load(path).calls == {"key 1": call(1)}
    with pytest.raises(UsageError, match="format 1, without checksums"):
        Journal(path, HEADER)


def test_the_disk_is_told_to_keep_what_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    now = [0.0]
    monkeypatch.setattr(journal.os, "fsync", synced.append)
    monkeypatch.setattr(journal.time, "monotonic", lambda: now[0])
    with Journal(tmp_path / "a.jsonl.gz", HEADER) as one:
        for n in range(10):
            now[0] += 1.0
            one.add(call(n))
    assert len(synced) == 1 + 1  # once in journal.SYNC_S seconds, and at the end


def test_a_second_answer_to_a_request_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    journal.write(path, [HEADER.line(), line_of(call(1)), line_of(call(1, "second"))])
    with pytest.raises(UsageError, match="two answers to the request"):
        Journal(path, HEADER)


def test_a_detectors_name_with_colons_slashes_and_commas_is_kept_and_compared(
    tmp_path: Path,
) -> None:
    name = "cascade:encoder-2.2+26b9b42e,judge:openai/gpt-4.1,x+0a1b@0.3-0.7"
    made = replace(HEADER, guard={"detector": name, "index": "", "policy": {"language": "judge"}})
    line = json.loads(json.dumps(made.line()))
    again = Header.of(line, tmp_path / "j")
    assert again == made
    again.check(made, tmp_path / "j")
    other = replace(made, guard={**made.guard, "detector": name.replace("0.7", "0.6")})
    assert list(again.differences(other)) == ["guard"]
    with pytest.raises(UsageError, match="another guard settings: detector was") as caught:
        again.check(other, tmp_path / "j")
    assert "judge:openai/gpt-4.1,x" in str(caught.value)
