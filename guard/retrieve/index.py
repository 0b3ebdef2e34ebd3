"""The bias index: statements and their vectors, searched by cosine."""

from __future__ import annotations

import hashlib
import io
import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import faiss
import numpy as np
from numpy.typing import NDArray

from guard.errors import BiasIndexError, GuardError
from guard.places import ENCODERS, shipped_index
from guard.retrieve import graph as graphs
from guard.retrieve.embedder import LENGTH_TOLERANCE
from guard.retrieve.folder import (
    MANIFEST,
    Manifest,
    Version,
    manifest_json,
    read_manifest,
    read_whole,
)
from guard.retrieve.opening import damaged_index, open_index
from guard.retrieve.statement import BiasStatement, statement_lines
from guard.retrieve.table import Table, table_of
from guard.retrieve.writing import replace_all
from guard.verdict import BIAS_TYPES, Reference

STATEMENTS = "statements.jsonl"
VECTORS = "vectors.npy"

# A graph returns at most this many neighbours; for more, the search is exact.
_MOST_BY_GRAPH = 4 * graphs.SEARCH_WIDTH


class Hit(NamedTuple):
    """A search result: the statement's row in the index, and its cosine in [-1, 1]."""

    row: int
    similarity: float


class BiasIndex:
    """Statements with their vectors; immutable and safe to search from several threads.

    Adding statements makes a new index (:meth:`extended`), so that a running stream keeps the one
    it began with.
    """

    def __init__(
        self, statements: Sequence[BiasStatement], vectors: NDArray[np.float32], embedder: str
    ) -> None:
        """Make an index of ``statements`` and ``vectors``, one row of length 1 for each.

        ``vectors`` has shape ``(len(statements), dim)``; ``embedder`` is its embedder's name.

        Raises:
            ValueError: the shapes do not match, or a vector does not have length 1.

        """
        original = vectors
        vectors = np.ascontiguousarray(vectors, dtype=np.float32)
        if vectors.ndim != 2 or vectors.shape[1] == 0 or len(vectors) != len(statements):
            raise ValueError(
                f"vectors of shape {vectors.shape} given for {len(statements)} statements; "
                "it must be (statements, dim)"
            )
        wrong = ~(np.abs(np.linalg.norm(vectors, axis=1) - 1) <= LENGTH_TOLERANCE)
        if wrong.any():
            raise ValueError(f"the vector of row {int(wrong.argmax())} does not have length 1")
        # A copy, so that the caller cannot change it.
        vectors = vectors.copy() if vectors is original else vectors
        own = tuple(statements)
        version = _content_version(own, vectors, embedder)
        self._set_content(own, vectors, None, embedder, table_of(own), None, version)

    def _set_content(
        self,
        statements: Sequence[BiasStatement],
        vectors: NDArray[np.float32],
        places: NDArray[np.int32] | None,
        embedder: str,
        table: Table,
        graph: graphs.Graph | None,
        version: str,
    ) -> None:
        vectors.flags.writeable = False
        self._statements = statements
        # With a graph, these are all vectors of the graph, including removed ones; `places` has
        # the place of each row.
        self._vectors = vectors
        self._places = places
        self._embedder = embedder
        self._table = table
        self._graph = graph
        self._version = version
        self._first = table["first"]

    def __len__(self) -> int:
        return len(self._statements)

    def __repr__(self) -> str:
        return (
            f"BiasIndex({len(self)} statements, dim={self.dim}, "
            f"embedder={self.embedder!r}, version={self.version!r})"
        )

    @property
    def statements(self) -> Sequence[BiasStatement]:
        """The statements by row; those of a large index are parsed on access."""
        return self._statements

    @property
    def vectors(self) -> NDArray[np.float32]:
        """A copy of the vectors, shape ``(len(self), dim)``."""
        return self.vectors_of(range(len(self)))

    @property
    def table(self) -> Table:
        """Type, hashes and offset of each statement (:mod:`guard.retrieve.table`)."""
        return self._table

    @property
    def exact(self) -> bool:
        """Whether a search compares every vector; a large index in a folder has a graph instead."""
        return self._graph is None

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return int(self._vectors.shape[1])

    @property
    def embedder(self) -> str:
        """Name of the embedder that made the vectors."""
        return self._embedder

    @property
    def version(self) -> str:
        """Short hash of the content: embedder, statements, vectors, and the graph if any."""
        return self._version

    def search(self, vectors: NDArray[np.float32], k: int, floor: float) -> list[list[Hit]]:
        """Return the at most ``k`` nearest statements to each of ``vectors``, nearest first.

        ``vectors`` has shape ``(m, dim)``, rows of length 1. Statements below the cosine ``floor``
        are left out. Of near-copies (the same words) only the nearest is returned. The result of a
        query does not depend on the other queries.

        Raises:
            ValueError: the shape does not fit the index, or ``k`` is negative.

        """
        queries = np.ascontiguousarray(vectors, dtype=np.float32)
        if queries.ndim != 2 or queries.shape[1] != self.dim:
            raise ValueError(f"queries of shape {queries.shape} given; it must be (m, {self.dim})")
        if k < 0:
            raise ValueError(f"k must not be negative, not {k}")
        # One at a time: for larger blocks FAISS uses other code (other rounding, several threads).
        return [self._nearest_hits(queries[i : i + 1], k, floor) for i in range(len(queries))]

    def vectors_of(self, rows: Sequence[int] | NDArray[np.intp]) -> NDArray[np.float32]:
        """Return the vectors of ``rows``, shape ``(len(rows), dim)``."""
        chosen = np.asarray(rows, np.intp)
        return self._vectors[chosen if self._places is None else self._places[chosen]]

    def _by_row(self) -> NDArray[np.float32]:
        return self._vectors if self._places is None else self._vectors[self._places]

    def types_of(self, rows: Sequence[int]) -> NDArray[np.int64]:
        """Return ids into BIAS_TYPES, shape ``(len(rows),)``."""
        return self._table["type"][np.asarray(rows, np.intp)].astype(np.int64)

    def reference(self, hit: Hit) -> Reference:
        """Return the statement of ``hit`` as a Reference, for a verdict."""
        statement = self._statements[hit.row]
        return Reference(
            statement.statement,
            statement.bias_type,
            statement.group,
            statement.attribute,
            hit.similarity,
        )

    def extended(
        self, statements: Sequence[BiasStatement], vectors: NDArray[np.float32]
    ) -> BiasIndex:
        """Return a new index with ``statements`` after those of this one, which is unchanged.

        It is in memory and searched exactly. ``vectors`` has shape ``(len(statements), dim)`` and
        comes from the same embedder.

        Raises:
            ValueError: as for a new index.

        """
        more = np.ascontiguousarray(vectors, dtype=np.float32)
        if more.shape != (len(statements), self.dim):
            raise ValueError(
                f"vectors of shape {more.shape} given; it must be ({len(statements)}, {self.dim})"
            )
        together = np.concatenate([self._by_row(), more])
        return BiasIndex((*self._statements, *statements), together, self._embedder)

    def save(self, folder: Path) -> None:
        """Write the index to ``folder`` as a release; create the folder if it is missing.

        In a release, the files of every version have the same names. Vectors that 16-bit numbers
        represent exactly, as those of :func:`guard.retrieve.build.build_index`, are written with 16
        bits. Nothing is replaced before everything is written, so a failure leaves the older
        index unchanged. The manifest is replaced last; :meth:`load` refuses a folder whose files
        do not belong together. To change an index in use, see :mod:`guard.retrieve.store`.
        """
        array = io.BytesIO()
        vectors = self._by_row()
        half = vectors.astype("<f2")
        exact = np.array_equal(half, vectors)
        np.save(array, half if exact else vectors, allow_pickle=False)
        contents = {
            STATEMENTS: statement_lines(self._statements).encode(),
            VECTORS: array.getvalue(),
        }
        hashes = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
        # A release is searched exactly: its content has no graph.
        version = self._version
        if self._graph is not None:
            version = _content_version(self._statements, self._by_row(), self._embedder)
        contents[MANIFEST] = manifest_json(
            self._embedder, version, self.dim, statement_counts(self._table), hashes
        )
        replace_all(folder, contents)

    @classmethod
    def load(cls, folder: Path, embedder_name: str | None, dim: int | None = None) -> BiasIndex:
        """Open the index in ``folder``, to be searched with the embedder ``embedder_name``.

        None accepts an index of any embedder, for reading or copying; ``dim`` is the length of the
        embedder's vectors. The files are read into memory once; the statements of a large index
        are parsed on access.

        Raises:
            BiasIndexError: there is none, another embedder made it, or a file does not have the
                hash that the manifest records.

        """

        def read(manifest: Manifest) -> BiasIndex:
            if embedder_name is not None and manifest.embedder != embedder_name:
                raise BiasIndexError(
                    f"The bias index at {folder} was built with the embedder "
                    f"'{manifest.embedder}' and cannot be searched with '{embedder_name}'; "
                    f"{_rebuilding_advice(folder, manifest, embedder_name)}."
                )
            content = open_index(manifest)
            if dim is not None and content.vectors.shape[1] != dim:
                raise BiasIndexError(
                    f"The bias index at {folder} has vectors of {content.vectors.shape[1]} "
                    f"numbers; those of '{embedder_name}' have {dim}; "
                    f"{_rebuilding_advice(folder, manifest, embedder_name)}."
                )
            if content.table is None:
                try:
                    return cls(content.statements, content.vectors, manifest.embedder)
                except ValueError as error:
                    raise damaged_index(folder, error) from error
            index = cls.__new__(cls)
            index._set_content(
                content.statements,
                content.vectors,
                content.places,
                manifest.embedder,
                content.table,
                content.graph,
                manifest.version,
            )
            return index

        return read_whole(Path(folder), read)

    def _nearest_hits(self, query: NDArray[np.float32], k: int, floor: float) -> list[Hit]:
        asked = min(k, len(self))
        while asked:
            similarities, rows = self._nearest_rows(query, asked)
            hits = self._distinct_hits(similarities, rows, floor)
            # If near-copies took the places of others, search again for more.
            if len(hits) >= k or asked == len(self) or similarities[-1] < floor:
                return hits[:k]
            asked = min(2 * asked, len(self))
        return []

    def _nearest_rows(self, query: NDArray[np.float32], k: int) -> tuple[list[float], list[int]]:
        if self._graph is not None and k <= _MOST_BY_GRAPH and k < len(self):
            return self._graph.search(query, k)
        # On the array itself: a FAISS index would hold a second copy of the vectors.
        similarities, rows = faiss.knn(query, self._by_row(), k, faiss.METRIC_INNER_PRODUCT)
        return similarities[0].tolist(), rows[0].tolist()

    def _distinct_hits(self, similarities: list[float], rows: list[int], floor: float) -> list[Hit]:
        # Equal similarities are ordered by row; FAISS's order is arbitrary.
        nearest = sorted(
            (-similarity, row)
            for similarity, row in zip(similarities, rows, strict=True)
            if row >= 0 and similarity >= floor
        )
        seen: set[int] = set()
        hits = []
        for negative, row in nearest:
            if self._first[row] not in seen:
                seen.add(self._first[row])
                hits.append(Hit(row, max(-1.0, min(1.0, -negative))))
        return hits


def is_shipped(folder: Path) -> bool:
    """Whether ``folder`` is that of an index shipped with guard."""
    return folder.resolve() in [shipped_index(name).resolve() for name in ENCODERS]


def _rebuilding_advice(folder: Path, manifest: Manifest, embedder: str | None) -> str:
    """Return the advice that turns an index of another embedder into one of ``embedder``."""
    option = _embedder_option(embedder)
    if is_shipped(folder):
        return (
            "build one of your own with the embedder in use and name its folder as the index: "
            f"guard index build --with-shipped --to FOLDER{option}"
        )
    again = "build it again with the embedder in use"
    source = manifest.path("statements")
    if source is None or not source.is_file() or not source.stat().st_size:
        return again  # there is nothing to build it from
    file, place = shlex.quote(str(source)), shlex.quote(str(folder))
    return f"{again}: guard index build {file} --to {place} --replace{option}"


def _embedder_option(embedder: str | None) -> str:
    """Return the command line option for ``embedder``; empty if it is not a shipped one."""
    for name in ENCODERS:
        with suppress(GuardError):
            if read_manifest(shipped_index(name)).embedder == embedder:
                return f" --detector {name}"
    return ""


def statement_counts(table: Table) -> dict[str, Any]:
    """Return a manifest's counts of the statements in ``table``."""
    types = np.bincount(table["type"], minlength=len(BIAS_TYPES))
    return {
        "statements": len(table),
        "implicit": int(table["implicit"].sum()),
        "groups": len(np.unique(table["group"])),
        "types": {kind: int(n) for kind, n in zip(BIAS_TYPES, types, strict=True)},
    }


def _content_version(
    statements: Sequence[BiasStatement], vectors: NDArray[np.float32], embedder: str
) -> str:
    written = statement_lines(statements).encode()
    version = Version(embedder, len(written))
    version.update(written)
    version.shape(*vectors.shape)
    version.update(vectors.astype("<f4", copy=False).data)
    return str(version)
