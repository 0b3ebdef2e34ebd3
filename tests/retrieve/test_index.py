import dataclasses
import json
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.errors import BiasIndexError
from guard.retrieve.index import BiasIndex, Hit
from guard.retrieve.statement import BiasStatement, fold_words
from guard.verdict import Reference

DIM = 8


def unit(rows: int, seed: int = 0, dim: int = DIM) -> np.ndarray:
    vectors = np.random.default_rng(seed).standard_normal((rows, dim)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def some(count: int, start: int = 0) -> list[BiasStatement]:
    return [
        BiasStatement(
            f"Ruritanian number {i} never pays.", "culture", f"Ruritanian {i}", "never pays"
        )
        for i in range(start, start + count)
    ]


def make(count: int = 20, seed: int = 0) -> BiasIndex:
    return BiasIndex(some(count), unit(count, seed), "test-1")


def brute_force(index: BiasIndex, query: np.ndarray, k: int, floor: float) -> list[Hit]:
    """All cosines, sorted; the nearest of each set of near-copies; the first k above the floor."""
    similarities = index.vectors.astype(np.float64) @ query.astype(np.float64)
    hits, seen = [], set()
    for row in sorted(range(len(index)), key=lambda r: (-similarities[r], r)):
        key = fold_words(index.statements[row].statement)
        if similarities[row] >= floor and key not in seen:
            seen.add(key)
            hits.append(Hit(row, float(similarities[row])))
    return hits[:k]


@given(
    texts=st.lists(st.sampled_from("abcdefgh"), min_size=0, max_size=40),
    queries=st.integers(0, 5),
    k=st.integers(0, 12),
    # In steps that no random cosine meets to a float's rounding.
    floor=st.sampled_from([-1.1, -0.5, 0.0, 0.3, 0.6, 1.1]),
    seed=st.integers(0, 10_000),
)
def test_search_is_brute_force(texts, queries, k, floor, seed):
    # Letters repeat, in other case and punctuation: near-copies, with vectors of their own.
    statements = [
        BiasStatement(t.upper() + "!" * (i % 3), "age", "g", "a") for i, t in enumerate(texts)
    ]
    index = BiasIndex(statements, unit(len(texts), seed), "test-1")
    asked = unit(queries, seed + 1)
    found = index.search(asked, k, floor)
    assert len(found) == queries
    for query, hits in zip(asked, found, strict=True):
        expected = brute_force(index, query, k, floor)
        assert [h.row for h in hits] == [h.row for h in expected]
        assert [h.similarity for h in hits] == pytest.approx(
            [h.similarity for h in expected], abs=1e-5
        )


def test_equal_vectors_come_in_order_of_rows():
    index = BiasIndex(some(5), np.repeat(unit(1), 5, axis=0), "test-1")
    assert [h.row for h in index.search(unit(1), 5, 0.0)[0]] == [0, 1, 2, 3, 4]


def test_a_query_has_the_same_result_alone_and_in_a_batch():
    index, asked = make(300), unit(64, seed=5)
    together = index.search(asked, 5, -1.0)
    assert together == [index.search(asked[i : i + 1], 5, -1.0)[0] for i in range(64)]


def test_near_copies_do_not_crowd_out_others():
    copies = [BiasStatement("They never pay" + "." * i, "age", "g", "a") for i in range(30)]
    other = BiasStatement("They never tip", "age", "g", "a")
    near = np.zeros((31, DIM), dtype=np.float32)
    near[:, 0] = 1
    near[30] = unit(1)[0]
    hits = BiasIndex([*copies, other], near, "test-1").search(near[:1], 2, -1.0)[0]
    assert [h.row for h in hits] == [0, 30]


def test_the_floor_is_included_and_nothing_below_it():
    vectors = np.eye(3, DIM, dtype=np.float32)
    index = BiasIndex(some(3), vectors, "test-1")
    assert index.search(vectors[:1], 3, 1.0) == [[Hit(0, 1.0)]]
    assert len(index.search(vectors[:1], 3, 0.0)[0]) == 3
    assert index.search(vectors[:1], 3, 1.1) == [[]]


def test_a_reference_carries_the_statement():
    index = make()
    [[hit]] = index.search(index.vectors[3:4], 1, 0.0)
    reference = index.reference(hit)
    found = index.statements[3]
    assert hit.row == 3
    assert reference == Reference(
        found.statement, "culture", found.group, "never pays", hit.similarity
    )
    assert reference.similarity == pytest.approx(1, abs=1e-6)
    assert reference.similarity <= 1


def test_search_from_many_threads():
    index, asked = make(200), unit(50, seed=3)
    expected = index.search(asked, 5, -1.0)
    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(lambda _: index.search(asked, 5, -1.0), range(40)):
            assert found == expected


@pytest.mark.parametrize(
    ("statements", "vectors", "wrong"),
    [
        (some(2), unit(3), "given for 2 statements"),
        (some(2), np.ones(2, dtype=np.float32), "must be"),
        (some(0), np.ones((0, 0), dtype=np.float32), "must be"),
        (some(2), 2 * unit(2), "row 0 does not have length 1"),
        (some(2), np.array([[1, 0], [np.nan, 0]], dtype=np.float32), "row 1 does not have length"),
    ],
)
def test_vectors_that_do_not_fit_are_refused(statements, vectors, wrong):
    with pytest.raises(ValueError, match=wrong):
        BiasIndex(statements, vectors, "test-1")


def test_queries_that_do_not_fit_are_refused():
    index = make()
    with pytest.raises(ValueError, match=r"\(m, 8\)"):
        index.search(unit(1, dim=4), 1, 0.0)
    with pytest.raises(ValueError, match=r"\(m, 8\)"):
        index.search(unit(1)[0], 1, 0.0)
    with pytest.raises(ValueError, match="negative"):
        index.search(unit(1), -1, 0.0)


def test_the_version_follows_the_content():
    index = make()
    assert index.version == make().version
    other = [dataclasses.replace(s, note="new") for s in some(20)]
    versions = {
        index.version,
        make(19).version,
        make(20, seed=1).version,
        BiasIndex(some(20), unit(20), "test-2").version,
        BiasIndex(other, unit(20), "test-1").version,
    }
    assert len(versions) == 5


def test_an_index_does_not_change_under_its_maker():
    statements, vectors = some(4), unit(4)
    index = BiasIndex(statements, vectors, "test-1")
    before = index.search(unit(1, seed=9), 4, -1.0)
    vectors[:] = 0
    statements.clear()
    index.vectors[:] = 0
    assert len(index) == 4
    assert index.search(unit(1, seed=9), 4, -1.0) == before


def test_extended_is_a_new_index_and_leaves_the_old_one():
    old = make()
    version, vectors = old.version, old.vectors
    asked = unit(1, seed=77)
    before = old.search(asked, 20, -1.0)
    new = old.extended(some(1, start=100), asked)
    assert (len(old), old.version, old.search(asked, 20, -1.0)) == (20, version, before)
    np.testing.assert_array_equal(old.vectors, vectors)
    assert len(new) == 21
    assert new.version != version
    assert new.embedder == old.embedder
    assert new.search(asked, 1, 0.0)[0][0].row == 20


def test_extending_by_nothing_changes_nothing():
    assert make().extended([], unit(0)).version == make().version


def test_extended_refuses_another_dimension():
    with pytest.raises(ValueError, match=r"it must be \(1, 8\)"):
        make().extended(some(1), unit(1, dim=4))


@given(count=st.integers(0, 30), seed=st.integers(0, 100))
def test_a_saved_index_is_loaded_unchanged(tmp_path_factory, count, seed):
    folder = tmp_path_factory.getbasetemp() / "saved"
    index = make(count, seed)
    index.save(folder)
    again = BiasIndex.load(folder, "test-1")
    assert (again.version, again.statements) == (index.version, index.statements)
    np.testing.assert_array_equal(again.vectors, index.vectors)
    assert sorted(os.listdir(folder)) == ["manifest.json", "statements.jsonl", "vectors.npy"]


def test_16_bits_are_written_where_they_hold_every_number(tmp_path):
    exact = make(20)
    exact.save(tmp_path / "exact")
    assert np.load(tmp_path / "exact" / "vectors.npy").dtype == np.float32
    halved = exact.vectors.astype(np.float16).astype(np.float32)
    rounded = BiasIndex(exact.statements, halved, exact.embedder)
    rounded.save(tmp_path / "rounded")
    assert np.load(tmp_path / "rounded" / "vectors.npy").dtype == np.float16
    again = BiasIndex.load(tmp_path / "rounded", exact.embedder)
    assert again.version == rounded.version
    np.testing.assert_array_equal(again.vectors, halved)


def test_saving_twice_gives_the_same_bytes(tmp_path):
    make().save(tmp_path / "a")
    make().save(tmp_path / "b")
    for name in os.listdir(tmp_path / "a"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_the_manifest_counts(tmp_path):
    index = BiasIndex(
        [
            BiasStatement("They never pay.", "age", "They", "never pay"),
            BiasStatement("Count your change.", "age", "they", "cheats", implicit=True),
            BiasStatement("The Ruritanians cheat.", "culture", "Ruritanians", "cheat"),
        ],
        unit(3),
        "test-1",
    )
    index.save(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text("utf-8"))
    assert manifest["embedder"] == "test-1"
    assert manifest["version"] == index.version
    assert manifest["counts"]["statements"] == 3
    assert manifest["counts"]["implicit"] == 1
    assert manifest["counts"]["groups"] == 2
    assert manifest["counts"]["types"]["age"] == 2
    assert manifest["counts"]["types"]["race"] == 0


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_failed_save_leaves_the_older_index(tmp_path, monkeypatch, at):
    make(5).save(tmp_path)
    calls, fsync = [], os.fsync

    def full(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == at:
            raise OSError("no space left")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        make(6).save(tmp_path)
    assert BiasIndex.load(tmp_path, "test-1").version == make(5).version
    assert sorted(os.listdir(tmp_path)) == ["manifest.json", "statements.jsonl", "vectors.npy"]


def test_a_save_cut_between_files_is_refused_not_misread(tmp_path, monkeypatch):
    make(5).save(tmp_path)
    replace = os.replace

    def cut(source, target) -> None:
        if str(target).endswith("vectors.npy"):
            raise OSError("power cut")
        replace(source, target)

    monkeypatch.setattr(os, "replace", cut)
    with pytest.raises(OSError, match="power cut"):
        make(6).save(tmp_path)
    with pytest.raises(BiasIndexError, match=r"statements\.jsonl is not the file"):
        BiasIndex.load(tmp_path, "test-1")


def test_save_leaves_other_files_alone(tmp_path):
    (tmp_path / "README.md").write_text("datasheet", encoding="utf-8")
    make().save(tmp_path)
    assert (tmp_path / "README.md").read_text("utf-8") == "datasheet"


def test_another_embedder_is_refused_with_both_names(tmp_path):
    make().save(tmp_path)
    with pytest.raises(BiasIndexError, match="'test-1' and cannot be searched with 'other-2'"):
        BiasIndex.load(tmp_path, "other-2")


@pytest.mark.parametrize("name", ["statements.jsonl", "vectors.npy"])
def test_a_changed_file_is_refused(tmp_path, name):
    make().save(tmp_path)
    data = bytearray((tmp_path / name).read_bytes())
    data[-2] ^= 1
    (tmp_path / name).write_bytes(data)
    with pytest.raises(BiasIndexError, match=f"{name} is not the file"):
        BiasIndex.load(tmp_path, "test-1")


@pytest.mark.parametrize("name", ["statements.jsonl", "vectors.npy", "manifest.json"])
def test_a_missing_file_is_named(tmp_path, name):
    make().save(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(BiasIndexError, match=str(tmp_path)):
        BiasIndex.load(tmp_path, "test-1")


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"version": "0" * 12}, "its manifest says 000000000000"),
        ({"format": 2}, "format 2"),
        ({"sha256": None}, "not the manifest"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(tmp_path, change, wrong):
    make().save(tmp_path)
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | change), encoding="utf-8")
    with pytest.raises(BiasIndexError, match=wrong):
        BiasIndex.load(tmp_path, "test-1")


@pytest.mark.parametrize("content", ["", "[]", "{", '"x"'])
def test_a_file_that_is_no_manifest_is_refused(tmp_path, content):
    (tmp_path / "manifest.json").write_text(content, encoding="utf-8")
    with pytest.raises(BiasIndexError, match="manifest"):
        BiasIndex.load(tmp_path, "test-1")
