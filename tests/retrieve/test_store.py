import dataclasses
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock
from hypothesis import given
from hypothesis import strategies as st

from guard.detect.weights import SHIPPED
from guard.errors import BiasIndexError
from guard.places import ENCODERS, shipped, shipped_index
from guard.retrieve import draft, graph, resume, store, table
from guard.retrieve.folder import manifest_bytes, read_manifest
from guard.retrieve.index import BiasIndex
from guard.retrieve.statement import BiasStatement, fold_words
from tests.retrieve.test_index import brute_force, some
from tests.retrieve.writer import Drawn, batch
from tests.rows import examples

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "index"


@pytest.fixture
def small_graphs(monkeypatch):
    monkeypatch.setattr(graph, "GRAPH_FROM", 10)


def load(folder: Path) -> BiasIndex:
    return BiasIndex.load(folder, "drawn-1")


def files(folder: Path) -> list[str]:
    return sorted(name for name in os.listdir(folder) if not name.startswith("."))


def test_a_created_index_is_loaded_unchanged(folder):
    change = store.create_index(folder, some(5), Drawn())
    index = load(folder)
    assert change == store.IndexChange(5, 0, 0, 5, index.version)
    assert tuple(index.statements) == tuple(some(5))
    assert index.statements == tuple(some(5))
    assert index.statements[-1] == some(5)[-1]
    assert index.statements[1:3] == tuple(some(5)[1:3])
    np.testing.assert_array_equal(index.vectors, Drawn().embed([s.statement for s in some(5)]))
    with pytest.raises(IndexError):
        index.statements[5]


def test_it_has_the_version_of_an_index_made_in_memory(folder):
    store.create_index(folder, some(5), Drawn())
    vectors = Drawn().embed([s.statement for s in some(5)])
    assert load(folder).version == BiasIndex(some(5), vectors, "drawn-1").version


def test_near_copies_are_kept_once(folder):
    first, copy = BiasStatement("They never pay", "age", "g", "a"), BiasStatement(
        "they NEVER pay!", "race", "h", "b"
    )  # fmt: skip
    change = store.create_index(folder, [first, copy, *some(2)], Drawn())
    assert (change.added, change.duplicates) == (3, 1)
    assert load(folder).statements[0] == first
    change = store.add_statements(folder, [copy, *some(3)], Drawn())
    assert (change.added, change.duplicates, change.statements) == (1, 3, 4)


def test_adding_what_is_there_changes_nothing(folder):
    store.create_index(folder, some(5), Drawn())
    before, embedder = manifest_bytes(folder), Drawn()
    change = store.add_statements(folder, some(5), embedder)
    assert (change.added, change.duplicates) == (0, 5)
    assert change.version == load(folder).version
    assert manifest_bytes(folder) == before
    assert embedder.texts == []


def test_removal_by_words_and_by_group(folder):
    store.create_index(folder, some(10), Drawn())
    change = store.remove_statements(
        folder, statements=["ruritanian NUMBER 3 never pays"], groups=["RURITANIAN 7"]
    )
    index = load(folder)
    assert change == store.IndexChange(0, 0, 2, 8, index.version)
    assert tuple(index.statements) == tuple(s for i, s in enumerate(some(10)) if i not in (3, 7))
    before = manifest_bytes(folder)
    assert store.remove_statements(folder, statements=["never heard of"]).removed == 0
    assert manifest_bytes(folder) == before
    change = store.remove_statements(
        folder, statements=["Unheard of", some(1)[0].statement], groups=["Nobody", "ruritanian 1"]
    )
    assert (change.removed, change.unmatched) == (2, ("Nobody", "Unheard of"))


def test_an_index_can_be_emptied_and_filled(folder):
    store.create_index(folder, some(3), Drawn())
    store.remove_statements(folder, groups=[s.group for s in some(3)])
    assert load(folder).search(Drawn().embed(["x"]), 3, -1.0) == [[]]
    store.add_statements(folder, some(2), Drawn())
    assert tuple(load(folder).statements) == tuple(some(2))


def test_adding_and_removing_returns_to_the_version(folder):
    store.create_index(folder, some(5), Drawn())
    before = load(folder).version
    store.add_statements(folder, some(2, start=50), Drawn())
    assert load(folder).version != before
    store.remove_statements(folder, statements=[s.statement for s in some(2, start=50)])
    assert load(folder).version == before


CHANGES = st.lists(
    st.tuples(st.booleans(), st.sets(st.integers(0, 25), min_size=1, max_size=8)), max_size=6
)


@examples(25)
@given(changes=CHANGES, graph_from=st.sampled_from([1, 8, 1000]), seed=st.integers(0, 99))
def test_any_sequence_of_changes_gives_its_reported_result(
    tmp_path_factory, changes, graph_from, seed
):
    folder = tmp_path_factory.mktemp("changed")
    expected = {fold_words(s.statement): s for s in some(4)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph, "GRAPH_FROM", graph_from)
        store.create_index(folder, some(4), Drawn())
        for adding, numbers in changes:
            named = [some(1, start=n)[0] for n in sorted(numbers)]
            if adding:
                store.add_statements(folder, named, Drawn())
                for s in named:
                    expected.setdefault(fold_words(s.statement), s)
            else:
                store.remove_statements(folder, statements=[s.statement for s in named])
                for s in named:
                    expected.pop(fold_words(s.statement), None)
        index = load(folder)
        assert index.exact == (len(expected) < graph_from)
    assert tuple(index.statements) == tuple(expected.values())
    rebuilt = BiasIndex(index.statements, index.vectors, index.embedder)
    for name in ("fold", "group", "type", "implicit", "first"):
        np.testing.assert_array_equal(index.table[name], rebuilt.table[name])
    query = Drawn().embed([str(seed)])
    # So small a graph is walked to its end, or nearly: the nearest is always met.
    for k in (3 if index.exact else 1, len(index)):
        found = [h.row for h in index.search(query, k, -1.0)[0]]
        assert found == [h.row for h in brute_force(index, query[0], k, -1.0)]


@pytest.mark.parametrize("detector", ENCODERS)
def test_the_shipped_index_is_never_changed(detector):
    folder = shipped_index(detector)
    before = manifest_bytes(folder)
    for change in (
        lambda: store.add_statements(folder, some(1), Drawn()),
        lambda: store.remove_statements(folder, groups=["women"]),
        lambda: store.create_index(folder, some(1), Drawn(), replace=True),
    ):
        with pytest.raises(BiasIndexError, match="shipped with guard"):
            change()
    assert manifest_bytes(folder) == before


def test_another_embedder_is_refused_with_both_names(folder):
    store.create_index(folder, some(2), Drawn())
    other = Drawn()
    other.name = "other-2"
    with pytest.raises(BiasIndexError, match=r"'drawn-1' and cannot be searched with 'other-2'"):
        store.add_statements(folder, some(3), other)
    assert other.texts == []


def test_a_base_of_another_embedder_is_embedded_anew(folder, tmp_path):
    store.create_index(tmp_path / "base", some(3), Drawn())
    other = Drawn(dim=8)
    other.name = "other-2"
    change = store.create_index(folder, some(3, start=2), other, base=load(tmp_path / "base"))
    assert (change.added, change.duplicates, change.statements) == (5, 1, 5)
    index = BiasIndex.load(folder, "other-2")
    assert tuple(index.statements) == tuple(some(5))
    np.testing.assert_array_equal(index.vectors, other.embed([s.statement for s in some(5)]))


@pytest.mark.parametrize("name", ["own", "my own; index"])
def test_the_command_that_builds_an_index_again_can_be_typed(tmp_path, name):
    folder = tmp_path / name
    store.create_index(folder, some(3), Drawn())
    with pytest.raises(BiasIndexError) as caught:
        BiasIndex.load(folder, "other-2")
    command = str(caught.value).rpartition(": ")[2].removesuffix(".")
    assert shlex.split(command) == [
        *("guard", "index", "build", str(read_manifest(folder).path("statements"))),
        *("--to", str(folder), "--replace"),
    ]
    store.remove_statements(folder, groups=[s.group for s in some(3)])
    with pytest.raises(BiasIndexError, match=r"with the embedder in use\.$"):
        BiasIndex.load(folder, "other-2")


def test_the_shipped_index_is_not_advised_to_be_replaced():
    with pytest.raises(BiasIndexError, match="guard index build --with-shipped --to FOLDER"):
        BiasIndex.load(shipped("index"), "other-2")


def test_an_index_is_replaced_only_if_asked(folder):
    store.create_index(folder, some(2), Drawn())
    with pytest.raises(BiasIndexError, match="already"):
        store.create_index(folder, some(3), Drawn())
    assert len(load(folder)) == 2
    store.create_index(folder, some(3, start=10), Drawn(), replace=True)
    assert tuple(load(folder).statements) == tuple(some(3, start=10))
    (folder / "manifest.json").write_text("half", "utf-8")
    store.create_index(folder, some(4), Drawn(), replace=True)
    assert len(load(folder)) == 4


def test_there_must_be_something_to_build_or_change(folder):
    with pytest.raises(BiasIndexError, match="no statement"):
        store.create_index(folder, [], Drawn())
    with pytest.raises(BiasIndexError, match="no bias index"):
        store.add_statements(folder, some(1), Drawn())
    with pytest.raises(BiasIndexError, match="no bias index"):
        store.remove_statements(folder, groups=["g"])
    assert not folder.exists()


def test_a_base_comes_first_and_is_not_embedded_again(folder, tmp_path):
    store.create_index(tmp_path / "base", some(5), Drawn())
    embedder = Drawn()
    change = store.create_index(folder, some(4, start=3), embedder, base=load(tmp_path / "base"))
    assert (change.added, change.duplicates, change.statements) == (2, 2, 7)
    assert tuple(load(folder).statements) == tuple(some(7))
    assert len(embedder.texts) == 2


def test_a_copy_of_a_release_can_be_changed(folder):
    vectors = Drawn().embed([s.statement for s in some(5)])
    BiasIndex(some(5), vectors, "drawn-1").save(folder)
    assert load(folder).statements == tuple(some(5))
    store.add_statements(folder, some(1, start=5), Drawn())
    assert tuple(load(folder).statements) == tuple(some(6))
    # Files that a person may have put there stay; they no longer count.
    assert (folder / "statements.jsonl").is_file()


def test_files_of_others_stay_and_old_ones_go(folder):
    store.create_index(folder, some(2), Drawn())
    for name in ("README.md", "statements-mine.jsonl", ".writing-0"):
        (folder / name).write_text("mine", "utf-8")
    generations = []
    for number in range(3):
        generations.append(set(read_manifest(folder).sha256))
        store.add_statements(folder, batch("a", number), Drawn())
    generations.append(set(read_manifest(folder).sha256))
    # A reader of the manifest before still finds its files.
    assert set(files(folder)) == {
        "README.md",
        "manifest.json",
        "statements-mine.jsonl",
        *generations[-1],
        *generations[-2],
    }
    assert not (folder / ".writing-0").exists()


@pytest.mark.parametrize("role", ["statements", "vectors", "table", "graph", "nodes"])
def test_a_changed_file_is_refused_by_its_name(folder, role, small_graphs):
    store.create_index(folder, some(12), Drawn())
    path = read_manifest(folder).path(role)
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)
    with pytest.raises(BiasIndexError, match=f"{path.name} is not the file"):
        load(folder)
    path.unlink()
    with pytest.raises(BiasIndexError, match=path.name):
        load(folder)


@pytest.mark.parametrize(
    ("before", "after", "wrong"),
    [
        (r'"version": "\w+"', '"version": "0000"', "its manifest says 0000"),
        (r'"vectors-', '"../vectors-', "outside its folder"),
        (r'"statements-\w+.jsonl"', '"other.jsonl"', "no file with statements"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(folder, before, after, wrong):
    store.create_index(folder, some(2), Drawn())
    path = folder / "manifest.json"
    path.write_text(re.sub(before, after, path.read_text("utf-8")), "utf-8")
    with pytest.raises(BiasIndexError, match=wrong):
        load(folder)


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(BiasIndexError, match=r"cannot be written"):
        store.create_index(tmp_path / "file" / "index", some(1), Drawn())


# Vectors kept for resuming, five files, the folder, the manifest, the folder.
SYNCS = 9


@pytest.mark.parametrize("at", range(1, SYNCS + 1))
def test_a_write_that_fails_leaves_the_older_index(folder, monkeypatch, small_graphs, at):
    store.create_index(folder, some(12), Drawn())
    before = load(folder).version
    calls, fsync = [], os.fsync

    def full(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == at:
            raise OSError(28, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BiasIndexError, match="No space left"):
        store.add_statements(folder, batch("a", 0), Drawn())
    monkeypatch.setattr(os, "fsync", fsync)
    index = load(folder)
    # Only the last call comes when the newer index is in its place.
    assert len(index) == (15 if at == SYNCS else 12)
    assert (index.version == before) == (at < SYNCS)
    store.add_statements(folder, batch("a", 0), Drawn())
    assert len(load(folder)) == 15


@pytest.mark.parametrize("content", ["half", '{"format": 2, "embedder": "drawn-2", "sha256": %s}'])
def test_a_failed_replacement_leaves_the_files_of_an_unreadable_index(folder, monkeypatch, content):
    store.create_index(folder, some(5), Drawn())
    path = folder / "manifest.json"
    names = json.dumps(dict(read_manifest(folder).sha256))
    path.write_text(content.replace("%s", names), "utf-8")
    before = files(folder)
    monkeypatch.setattr(draft, "replace_all", _full)
    with pytest.raises(BiasIndexError, match="No space left"):
        store.create_index(folder, some(3, start=20), Drawn(), replace=True)
    assert set(files(folder)) >= set(before)
    monkeypatch.undo()
    store.create_index(folder, some(3, start=20), Drawn(), replace=True)
    assert set(files(folder)) >= set(before)
    assert len(load(folder)) == 3
    store.add_statements(folder, some(1), Drawn())
    assert not set(files(folder)) & (set(before) - {"manifest.json"})


def _full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_an_index_outlives_a_manifest_that_cannot_be_read_back(folder, monkeypatch):
    store.create_index(folder, some(5), Drawn())
    replace_all = draft.replace_all

    def replaced(*args) -> None:
        replace_all(*args)
        monkeypatch.setattr(draft, "read_manifest", _unreadable)

    monkeypatch.setattr(draft, "replace_all", replaced)
    store.add_statements(folder, batch("a", 0), Drawn())
    assert len(load(folder)) == 8


def _unreadable(*_: object) -> None:
    raise BiasIndexError("Input/output error")


def test_a_folder_that_is_no_index_is_not_replaced(folder):
    folder.mkdir()
    for content in (
        '{"name": "an app"}',
        "[]",
        "half",
        (SHIPPED / "manifest.json").read_text("utf-8"),
    ):
        (folder / "manifest.json").write_text(content, "utf-8")
        for replace in (False, True):
            with pytest.raises(BiasIndexError, match="does not belong to a bias index"):
                store.create_index(folder, some(2), Drawn(), replace=replace)
        assert (folder / "manifest.json").read_text("utf-8") == content
        assert os.listdir(folder) == ["manifest.json"]


@pytest.mark.parametrize("error", [RuntimeError("fwrite"), ValueError("no graph of 12 vectors")])
def test_a_graph_that_cannot_be_written_is_one_sentence(folder, monkeypatch, small_graphs, error):
    store.create_index(folder, some(12), Drawn())

    def fails(*_: object) -> None:
        raise error

    where = "write_index" if isinstance(error, RuntimeError) else "omp_get_max_threads"
    monkeypatch.setattr(graph.faiss, where, fails)
    with pytest.raises(BiasIndexError, match=r"index at .*(could not write its graph|damaged)"):
        store.add_statements(folder, batch("a", 0), Drawn())
    monkeypatch.undo()
    assert len(load(folder)) == 12


def test_loading_reads_no_statement(folder, monkeypatch):
    store.create_index(folder, some(20), Drawn())
    read = []
    monkeypatch.setattr(
        table,
        "parse_statement",
        lambda line, parsed=table.parse_statement: read.append(line) or parsed(line),
    )
    index = load(folder)
    [hits] = index.search(index.vectors[4:5], 1, 0.9)
    assert read == []
    assert index.reference(hits[0]).statement == some(5)[4].statement
    assert len(read) == 1


# --- resuming


class Stopping(Drawn):
    """An embedder that is interrupted after so many batches."""

    def __init__(self, batches: int) -> None:
        super().__init__()
        self.left = batches

    def embed(self, texts):
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        return super().embed(texts)


@pytest.mark.parametrize("command", ["create_index", "add_statements"])
def test_finished_vectors_are_not_computed_again(folder, monkeypatch, command):
    monkeypatch.setattr(resume, "BATCH", 4)
    if command == "add_statements":
        store.create_index(folder, batch("a", 0), Drawn())
    change = getattr(store, command)
    stopped, again = Stopping(2), Drawn()
    with pytest.raises(KeyboardInterrupt):
        change(folder, some(10), stopped)
    told = []
    change(folder, some(10), again, report=lambda *at: told.append(at))
    assert len(stopped.texts) == 8
    assert again.texts == [s.statement for s in some(10)[8:]]
    assert told[0] == ("embedding", 8, 10)
    assert told[-1] == ("embedding", 10, 10)
    index = load(folder)
    np.testing.assert_array_equal(
        index.vectors, Drawn().embed([s.statement for s in index.statements])
    )
    # Done: nothing is kept.
    assert not [n for n in os.listdir(folder) if re.fullmatch(r"\.embedded-\w+", n)]


def test_another_command_keeps_the_vectors_of_an_interrupted_build(folder, monkeypatch):
    monkeypatch.setattr(resume, "BATCH", 4)
    store.create_index(folder, batch("a", 0), Drawn())
    with pytest.raises(KeyboardInterrupt):
        store.add_statements(folder, some(10), Stopping(2))
    store.add_statements(folder, batch("b", 0), Drawn())
    again = Drawn()
    store.add_statements(folder, some(10), again)
    assert len(again.texts) == 2


@pytest.mark.parametrize("cut", [1, 50, 84, 85, 1000])
def test_half_a_record_is_embedded_again(folder, monkeypatch, cut):
    monkeypatch.setattr(resume, "BATCH", 4)
    folder.mkdir()
    with pytest.raises(KeyboardInterrupt):
        store.create_index(folder, some(10), Stopping(2))
    (kept,) = [p for p in folder.iterdir() if re.fullmatch(r"\.embedded-\w+", p.name)]
    data = kept.read_bytes()
    kept.write_bytes(data[: max(0, len(data) - cut)])
    store.create_index(folder, some(10), Drawn())
    index = load(folder)
    np.testing.assert_array_equal(index.vectors, Drawn().embed([s.statement for s in some(10)]))


def test_a_damaged_record_is_embedded_again(folder, monkeypatch):
    monkeypatch.setattr(resume, "BATCH", 4)
    with pytest.raises(KeyboardInterrupt):
        store.create_index(folder, some(10), Stopping(2))
    (kept,) = [p for p in folder.iterdir() if re.fullmatch(r"\.embedded-\w+", p.name)]
    data = bytearray(kept.read_bytes())
    data[16 + 3 * 84 + 20] ^= 1  # the fourth record
    kept.write_bytes(data)
    again = Drawn()
    store.create_index(folder, some(10), again)
    assert len(again.texts) == 7


def test_a_build_that_ends_leaves_nothing_to_resume(folder, monkeypatch):
    monkeypatch.setattr(resume, "BATCH", 4)
    with pytest.raises(KeyboardInterrupt):
        store.create_index(folder, some(10), Stopping(2))
    store.create_index(folder, batch("b", 0), Drawn())
    assert not kept_in(folder)


def test_a_writer_removes_other_embedders_finished_but_not_open_files(folder, monkeypatch):
    monkeypatch.setattr(resume, "BATCH", 4)
    other = Stopping(2)
    other.name = "other-2"
    store.create_index(folder, batch("a", 0), Drawn())
    with pytest.raises(KeyboardInterrupt):
        store.create_index(folder, some(10), other, replace=True)
    with resume.vector_cache(folder, "other-2"):
        store.add_statements(folder, batch("b", 0), Drawn())
        assert len(kept_in(folder)) == 1
    store.add_statements(folder, batch("c", 0), Drawn())
    assert not kept_in(folder)


def kept_in(folder: Path) -> list[str]:
    return [n for n in os.listdir(folder) if re.fullmatch(r"\.embedded-\w+", n)]


def test_a_statement_removed_while_it_is_asked_for_is_added(folder):
    store.create_index(folder, some(5), Drawn())

    class Meanwhile(Drawn):
        def embed(self, texts):
            if not self.texts:
                store.remove_statements(folder, statements=[some(1)[0].statement])
                store.add_statements(folder, some(1, start=6), Drawn())
            return super().embed(texts)

    change = store.add_statements(folder, some(7), Meanwhile())
    assert (change.added, change.duplicates, change.statements) == (2, 5, 7)
    index = load(folder)
    assert {s.statement for s in index.statements} == {s.statement for s in some(7)}
    np.testing.assert_array_equal(
        index.vectors, Drawn().embed([s.statement for s in index.statements])
    )


class Odd(Drawn):
    def __init__(self, change) -> None:
        super().__init__()
        self.change = change

    def embed(self, texts):
        return self.change(super().embed(texts))


@pytest.mark.parametrize("change", [lambda v: 2 * v, lambda v: v[1:], lambda v: v[0]])
def test_vectors_that_cannot_be_used_name_the_embedder(folder, change):
    with pytest.raises(BiasIndexError, match="'drawn-1' returned unusable vectors"):
        store.create_index(folder, some(3), Odd(change))
    # Nothing came of it, so the folder that it made is gone.
    assert not folder.exists()


def test_a_folder_that_was_there_outlives_a_failed_build(folder):
    folder.mkdir()
    with pytest.raises(BiasIndexError):
        store.create_index(folder, some(3), Odd(lambda v: v[1:]))
    assert folder.is_dir()


def test_an_embedders_error_is_not_reported_as_one_of_the_folder(folder):
    def unreachable(_: object) -> None:
        raise ConnectionError("no route")

    with pytest.raises(ConnectionError, match="no route"):
        store.create_index(folder, some(3), Odd(unreachable))


# --- graphs


def clustered(count: int, seed: int, dim: int = 32) -> np.ndarray:
    draw = np.random.default_rng(seed)
    centres = np.random.default_rng(0).standard_normal((60, dim))
    vectors = centres[draw.integers(0, 60, count)] + 0.6 * draw.standard_normal((count, dim))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


class Given(Drawn):
    """An embedder of statements that carry the row of their vector."""

    def __init__(self, vectors: np.ndarray) -> None:
        super().__init__()
        self.vectors = vectors

    def embed(self, texts):
        self.texts += texts
        return self.vectors[[int(t.split()[2]) for t in texts]]


def recall(index: BiasIndex, queries: np.ndarray, k: int = 5) -> float:
    found = index.search(queries, k, -1.0)
    near = np.argsort(-(queries @ index.vectors.T), axis=1)[:, :k]
    both = (
        len({h.row for h in hits} & set(rows.tolist()))
        for hits, rows in zip(found, near, strict=True)
    )
    return sum(both) / (k * len(queries))


def test_a_graph_finds_what_is_near_after_every_change(folder, monkeypatch):
    monkeypatch.setattr(graph, "GRAPH_FROM", 1000)
    vectors, queries = clustered(3000, seed=1), clustered(200, seed=2)
    embedder = Given(vectors)
    store.create_index(folder, some(2000), embedder)
    assert not load(folder).exact
    assert recall(load(folder), queries) >= 0.99
    store.add_statements(folder, some(1000, start=2000), embedder)
    assert recall(load(folder), queries) >= 0.99
    before = read_manifest(folder).path("graph")
    store.remove_statements(folder, groups=[f"Ruritanian {i}" for i in range(0, 3000, 10)])
    # The graph still serves: what was removed is walked over, and not found.
    assert read_manifest(folder).path("graph") == before
    index = load(folder)
    assert recall(index, queries) >= 0.99
    assert index.search(vectors[10:11], 1, -1.0) != [[]]
    assert index.search(vectors[10:11], 1, 0.9999) == [[]]
    store.add_statements(folder, some(1, start=10), embedder)
    assert load(folder).search(vectors[10:11], 1, 0.9999)[0][0].row == 2700
    store.remove_statements(folder, groups=[f"Ruritanian {i}" for i in range(0, 3000, 3)])
    assert read_manifest(folder).path("graph") != before
    assert recall(load(folder), queries) >= 0.99
    store.remove_statements(folder, groups=[f"Ruritanian {i}" for i in range(1500)])
    assert load(folder).exact
    assert recall(load(folder), queries) == 1


def test_the_same_statements_give_the_same_files(tmp_path, small_graphs):
    for name in ("a", "b"):
        store.create_index(tmp_path / name, some(700), Drawn())
    assert files(tmp_path / "a") == files(tmp_path / "b")
    assert manifest_bytes(tmp_path / "a") == manifest_bytes(tmp_path / "b")


def test_many_are_searched_exactly_beside_a_graph(folder, small_graphs):
    store.create_index(folder, some(400), Drawn())
    index = load(folder)
    query = Drawn().embed(["anything"])
    found = [h.row for h in index.search(query, 390, -1.0)[0]]
    assert found == [h.row for h in brute_force(index, query[0], 390, -1.0)]


def test_an_index_with_a_graph_holds_each_vector_once_after_removals_too(folder, small_graphs):
    store.create_index(folder, some(400), Drawn())
    store.remove_statements(folder, groups=[f"Ruritanian {i}" for i in range(0, 400, 10)])
    store.add_statements(folder, some(5, start=400), Drawn())
    index = load(folder)
    assert np.shares_memory(index._vectors, index._graph.vectors)
    assert np.array_equal(index.vectors, Drawn().embed([s.statement for s in index.statements]))
    assert np.array_equal(index.vectors_of([0, 364]), index.vectors[[0, 364]])
    query = Drawn().embed(["anything"])
    found = [h.row for h in index.search(query, 350, -1.0)[0]]
    assert found == [h.row for h in brute_force(index, query[0], 350, -1.0)]


def test_a_release_of_an_index_with_a_graph_has_none(folder, tmp_path, small_graphs):
    store.create_index(folder, some(30), Drawn())
    load(folder).save(tmp_path / "release")
    released = load(tmp_path / "release")
    assert released.exact
    assert tuple(released.statements) == tuple(some(30))
    assert released.version != load(folder).version


def test_a_graph_that_faiss_cannot_read_is_refused(folder, small_graphs, monkeypatch):
    store.create_index(folder, some(20), Drawn())
    monkeypatch.setattr(graph.faiss, "read_index", _cannot)
    with pytest.raises(BiasIndexError, match=r"damaged: graph-\w+\.faiss cannot be read by FAISS"):
        load(folder)


def _cannot(*_: object) -> None:
    raise RuntimeError("fourcc")


# --- several processes


def writer(*args: object) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.retrieve.writer", *map(str, args)], cwd=ROOT
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a forked process")
@pytest.mark.parametrize(
    "times", [12, pytest.param(50, marks=pytest.mark.slow("starts and kills fifty writers"))]
)
def test_killed_writers_leave_a_whole_index(folder, times):
    store.create_index(folder, batch("first", 0), Drawn())
    assert writer("kill", folder, times, 17).wait() == 0


def test_two_writers_at_once_both_land(folder):
    store.create_index(folder, batch("first", 0), Drawn())
    writers = [writer("add", folder, name, 8) for name in ("a", "b")]
    assert [w.wait() for w in writers] == [0, 0]
    expected = {s for name in ("a", "b") for n in range(8) for s in batch(name, n)}
    assert set(load(folder).statements) == expected | set(batch("first", 0))


def test_a_writer_reports_that_it_waits_for_another(folder):
    store.create_index(folder, batch("first", 0), Drawn())
    told, other = [], FileLock(folder / ".lock")
    other.acquire()

    def report(*at: object) -> None:
        told.append(at)
        other.release()

    store.remove_statements(folder, statements=[batch("first", 0)[0].statement], report=report)
    assert told[0] == ("waiting for another writer", 0, 1)
    assert len(load(folder)) == 2


def test_readers_meet_whole_indexes_while_a_writer_works(folder):
    store.create_index(folder, batch("a", 0), Drawn())
    done, failures, seen = threading.Event(), [], set()

    def read() -> None:
        try:
            while not done.is_set():
                index = load(folder)
                seen.add(len(index))
                assert len(index) % 3 == 0
                assert index.statements[-1] in batch("a", len(index) // 3 - 1)
        except BaseException as error:
            failures.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(1, 30):
        store.add_statements(folder, batch("a", number), Drawn())
    done.set()
    for reader in readers:
        reader.join()
    assert not failures
    assert len(seen) > 1


def test_an_open_index_outlives_its_files(folder):
    store.create_index(folder, some(20), Drawn())
    index = load(folder)
    query = Drawn().embed(["anything"])
    before = index.search(query, 5, -1.0)
    store.remove_statements(folder, groups=["Ruritanian 3"])
    store.add_statements(
        folder, [dataclasses.replace(some(1)[0], statement="Another one.")], Drawn()
    )
    if os.name != "nt":
        shutil.rmtree(folder)
    assert index.search(query, 5, -1.0) == before
    assert tuple(index.statements) == tuple(some(20))
