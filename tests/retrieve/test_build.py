import hashlib

import numpy as np
import pytest

from guard.errors import BiasIndexError
from guard.places import shipped
from guard.retrieve.build import build_index
from guard.retrieve.index import BiasIndex
from guard.retrieve.resume import BATCH
from guard.retrieve.statement import read_statements, statement_lines
from tests.retrieve.test_index import some


class Hashing:
    """An embedder that knows words by their hash."""

    name = "hashing-1"

    def __init__(self, scale: float = 1) -> None:
        self.scale = scale
        self.sizes: list[int] = []

    def embed(self, texts):
        self.sizes.append(len(texts))
        vectors = np.zeros((len(texts), 64), dtype=np.float32)
        for row, text in zip(vectors, texts, strict=True):
            for word in text.split():
                row[hashlib.sha256(word.encode()).digest()[0] % 64] += 1
        return self.scale * vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_build_saves_what_it_returns(tmp_path):
    source, embedder = tmp_path / "source.jsonl", Hashing()
    source.write_text(statement_lines(some(BATCH + 3)), encoding="utf-8")
    index = build_index(source, tmp_path / "index", embedder)
    assert embedder.sizes == [BATCH, 3]
    assert BiasIndex.load(tmp_path / "index", "hashing-1").version == index.version
    assert index.statements == tuple(some(BATCH + 3))
    query = embedder.embed([index.statements[7].statement])
    assert index.search(query, 1, 0.9)[0][0].row == 7


def test_vectors_are_rounded_and_change_no_similarity_by_a_thousandth(tmp_path):
    source, embedder = tmp_path / "source.jsonl", Hashing()
    source.write_text(statement_lines(some(40)), encoding="utf-8")
    index = build_index(source, tmp_path / "index", embedder)
    stored = np.load(tmp_path / "index" / "vectors.npy")
    assert stored.dtype == np.float16
    assert np.array_equal(stored, np.rint(stored.astype(np.float32) * 2048) / 2048)
    again = BiasIndex.load(tmp_path / "index", "hashing-1")
    assert again.version == index.version
    np.testing.assert_array_equal(again.vectors, stored)
    exact = embedder.embed([s.statement for s in index.statements])
    assert np.abs(exact @ index.vectors.T - exact @ exact.T).max() < 1e-3
    assert np.abs(exact - index.vectors).max() > 0


@pytest.mark.parametrize("scale", [1 - 9e-4, 1 + 9e-4])
def test_rounding_does_not_push_an_accepted_length_over_the_tolerance(tmp_path, scale):
    source = tmp_path / "source.jsonl"
    source.write_text(statement_lines(some(400)), encoding="utf-8")
    index = build_index(source, tmp_path / "index", Hashing(scale))
    assert np.abs(np.linalg.norm(index.vectors, axis=1) - 1).max() < 1e-3


def test_the_shipped_statements_can_be_built_in_place(tmp_path):
    source = tmp_path / "statements.jsonl"
    source.write_bytes((shipped("index") / "statements.jsonl").read_bytes())
    index = build_index(source, tmp_path, Hashing())
    assert source.read_bytes() == (shipped("index") / "statements.jsonl").read_bytes()
    assert BiasIndex.load(tmp_path, "hashing-1").statements == index.statements
    assert read_statements(source) == index.statements


def test_vectors_that_cannot_be_used_name_the_embedder(tmp_path):
    source = tmp_path / "source.jsonl"
    source.write_text(statement_lines(some(3)), encoding="utf-8")
    with pytest.raises(BiasIndexError, match="'hashing-1' returned unusable vectors"):
        build_index(source, tmp_path / "index", Hashing(scale=2))
    assert not (tmp_path / "index").exists()


def test_no_statement_makes_no_index(tmp_path):
    (tmp_path / "source.jsonl").write_text("\n", encoding="utf-8")
    with pytest.raises(BiasIndexError, match="has no statement"):
        build_index(tmp_path / "source.jsonl", tmp_path / "index", Hashing())
