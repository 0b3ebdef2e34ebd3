"""The bias index: statements and their vectors, searched exactly by cosine.

In a folder it is three files: ``statements.jsonl``, ``vectors.npy`` (float32, one row a statement)
and ``manifest.json``, which names the embedder and holds a hash of each of the other two.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import faiss
import numpy as np
from numpy.typing import NDArray

from guard.errors import BiasIndexError
from guard.retrieve.statement import Statement, fold, lines, read_statements
from guard.verdict import BIAS_TYPES, Reference

FORMAT = 1
STATEMENTS = "statements.jsonl"
VECTORS = "vectors.npy"
MANIFEST = "manifest.json"

# How far a vector's length may be from 1: float32 rounding, and 16-bit vectors read back.
_LENGTH_TOLERANCE = 1e-3
_VERSION_DIGITS = 12


class Hit(NamedTuple):
    """A statement found by a search: its row in the index, and its cosine in [-1, 1]."""

    row: int
    similarity: float


class BiasIndex:
    """Statements with their vectors, never changed once made.

    A running stream keeps the index it began with: whoever adds statements makes a new one with
    :meth:`extended`. Safe to search from several threads.
    """

    def __init__(
        self, statements: Sequence[Statement], vectors: NDArray[np.float32], embedder: str
    ) -> None:
        """Make an index of ``statements`` and ``vectors``, one row of length 1 a statement.

        ``vectors`` has shape ``(len(statements), dim)``; ``embedder`` names what made them.

        Raises:
            ValueError: the shapes do not match, or a vector does not have length 1.

        """
        vectors = np.ascontiguousarray(vectors, dtype=np.float32)
        if vectors.ndim != 2 or vectors.shape[1] == 0 or len(vectors) != len(statements):
            raise ValueError(
                f"vectors of shape {vectors.shape} given for {len(statements)} statements; "
                "it must be (statements, dim)"
            )
        wrong = ~(np.abs(np.linalg.norm(vectors, axis=1) - 1) <= _LENGTH_TOLERANCE)
        if wrong.any():
            raise ValueError(f"the vector of row {int(wrong.argmax())} does not have length 1")
        self._statements = tuple(statements)
        self._embedder = embedder
        self._version = _version(self._statements, vectors, embedder)
        # FAISS keeps the only copy of the vectors.
        self._faiss = faiss.IndexFlatIP(vectors.shape[1])
        self._faiss.add(vectors)
        # For each row, the first row with the same folded statement.
        first: dict[str, int] = {}
        self._first = [first.setdefault(fold(s.statement), row) for row, s in enumerate(statements)]

    def __len__(self) -> int:
        return len(self._statements)

    def __repr__(self) -> str:
        return (
            f"BiasIndex({len(self)} statements, dim={self.dim}, "
            f"embedder={self.embedder!r}, version={self.version!r})"
        )

    @property
    def statements(self) -> tuple[Statement, ...]:
        """The statements, by row."""
        return self._statements

    @property
    def vectors(self) -> NDArray[np.float32]:
        """A copy of the vectors, shape ``(len(self), dim)``."""
        vectors: NDArray[np.float32] = self._faiss.reconstruct_n(0, len(self))
        return vectors.reshape(len(self), self.dim)

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return int(self._faiss.d)

    @property
    def embedder(self) -> str:
        """Name of the embedder that made the vectors."""
        return self._embedder

    @property
    def version(self) -> str:
        """Short hash of the statements, the vectors and the embedder's name."""
        return self._version

    def search(self, vectors: NDArray[np.float32], k: int, floor: float) -> list[list[Hit]]:
        """Return the at most ``k`` nearest statements to each of ``vectors``, nearest first.

        ``vectors`` has shape ``(m, dim)``, rows of length 1. Statements below the cosine ``floor``
        are left out. Of near-copies (the same words) only the nearest is counted. What a query
        finds does not depend on the other queries.

        Raises:
            ValueError: the shape does not fit the index, or ``k`` is negative.

        """
        queries = np.ascontiguousarray(vectors, dtype=np.float32)
        if queries.ndim != 2 or queries.shape[1] != self.dim:
            raise ValueError(f"queries of shape {queries.shape} given; it must be (m, {self.dim})")
        if k < 0:
            raise ValueError(f"k must not be negative, not {k}")
        # One at a time: larger blocks go another way through FAISS (other rounding, and more
        # threads than one).
        return [self._nearest(queries[i : i + 1], k, floor) for i in range(len(queries))]

    def reference(self, hit: Hit) -> Reference:
        """Return the statement of ``hit`` as a verdict carries it."""
        found = self._statements[hit.row]
        return Reference(
            found.statement, found.bias_type, found.group, found.attribute, hit.similarity
        )

    def extended(self, statements: Sequence[Statement], vectors: NDArray[np.float32]) -> BiasIndex:
        """Return a new index with ``statements`` after those of this one, which stays as it is.

        ``vectors`` has shape ``(len(statements), dim)`` and comes from the same embedder.

        Raises:
            ValueError: as for a new index.

        """
        more = np.ascontiguousarray(vectors, dtype=np.float32)
        if more.shape != (len(statements), self.dim):
            raise ValueError(
                f"vectors of shape {more.shape} given; it must be ({len(statements)}, {self.dim})"
            )
        together = np.concatenate([self.vectors, more])
        return BiasIndex((*self._statements, *statements), together, self._embedder)

    def save(self, folder: Path) -> None:
        """Write the index to ``folder``, which is made where it is missing.

        Nothing is replaced before everything is written, so a failure leaves the older index as
        it was; the manifest comes last, and a folder whose files do not belong together is
        refused by :meth:`load`.
        """
        array = io.BytesIO()
        np.save(array, self.vectors, allow_pickle=False)
        contents = {STATEMENTS: lines(self._statements).encode(), VECTORS: array.getvalue()}
        manifest = self._manifest({name: _sha256(data) for name, data in contents.items()})
        contents[MANIFEST] = (json.dumps(manifest, indent=2) + "\n").encode()
        _replace(folder, contents)

    @classmethod
    def load(cls, folder: Path, embedder_name: str) -> BiasIndex:
        """Read the index in ``folder``, to be searched with the embedder ``embedder_name``.

        Raises:
            BiasIndexError: there is none, another embedder made it, or a file is not the one the
                manifest was written for.

        """
        manifest = _read_manifest(folder / MANIFEST)
        if manifest.get("embedder") != embedder_name:
            raise BiasIndexError(
                f"The bias index at {folder} was built with the embedder "
                f"'{manifest.get('embedder')}' and cannot be searched with '{embedder_name}'; "
                "build it again with the embedder in use."
            )
        for name in (STATEMENTS, VECTORS):
            _check(folder / name, manifest)
        try:
            vectors = np.load(folder / VECTORS, allow_pickle=False)
            index = cls(read_statements(folder / STATEMENTS), vectors, embedder_name)
        except ValueError as error:
            raise BiasIndexError(f"The bias index at {folder} is damaged: {error}.") from error
        if index.version != manifest.get("version"):
            raise BiasIndexError(
                f"The bias index at {folder} has the version {index.version}, but its manifest "
                f"says {manifest.get('version')}; build it again."
            )
        return index

    def _nearest(self, query: NDArray[np.float32], k: int, floor: float) -> list[Hit]:
        asked = min(k, len(self))
        while asked:
            similarities, rows = self._faiss.search(query, asked)
            hits = self._kept(similarities[0].tolist(), rows[0].tolist(), floor)
            # Near-copies took places of others: ask for more, as long as there is more.
            if len(hits) >= k or asked == len(self) or similarities[0, -1] < floor:
                return hits[:k]
            asked = min(2 * asked, len(self))
        return []

    def _kept(self, similarities: list[float], rows: list[int], floor: float) -> list[Hit]:
        # Equal similarities are ordered by row, whatever order FAISS met them in.
        found = sorted(
            (-similarity, row)
            for similarity, row in zip(similarities, rows, strict=True)
            if row >= 0 and similarity >= floor
        )
        seen: set[int] = set()
        hits = []
        for negative, row in found:
            if self._first[row] not in seen:
                seen.add(self._first[row])
                hits.append(Hit(row, max(-1.0, min(1.0, -negative))))
        return hits

    def _manifest(self, hashes: Mapping[str, str]) -> dict[str, Any]:
        types = Counter(s.bias_type for s in self._statements)
        return {
            "format": FORMAT,
            "version": self._version,
            "embedder": self._embedder,
            "dim": self.dim,
            "counts": {
                "statements": len(self),
                "implicit": sum(s.implicit for s in self._statements),
                "groups": len({fold(s.group) for s in self._statements}),
                "types": {kind: types[kind] for kind in BIAS_TYPES},
            },
            "sha256": dict(hashes),
        }


def _version(statements: Sequence[Statement], vectors: NDArray[np.float32], embedder: str) -> str:
    digest = hashlib.sha256()
    # The length of each part comes first, so that no two indexes spell the same bytes.
    for part in (embedder.encode(), lines(statements).encode(), str(vectors.shape).encode()):
        digest.update(f"{len(part)}:".encode() + part)
    digest.update(vectors.astype("<f4", copy=False).data)
    return digest.hexdigest()[:_VERSION_DIGITS]


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest: Any = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise BiasIndexError(f"There is no bias index at {path.parent}.") from None
    except (OSError, ValueError) as error:
        raise BiasIndexError(f"{path} cannot be read: {error}.") from error
    if not isinstance(manifest, dict) or not isinstance(manifest.get("sha256"), dict):
        raise BiasIndexError(f"{path} is not the manifest of a bias index.")
    if manifest.get("format") != FORMAT:
        raise BiasIndexError(
            f"{path} has the format {manifest.get('format')!r}; this version of guard reads "
            f"{FORMAT}. Build the index again."
        )
    return manifest


def _check(path: Path, manifest: Mapping[str, Any]) -> None:
    try:
        found = _sha256(path.read_bytes())
    except OSError as error:
        raise BiasIndexError(f"{path} cannot be read: {error}.") from error
    recorded = manifest["sha256"].get(path.name)
    if found != recorded:
        raise BiasIndexError(
            f"{path} is not the file its manifest was written for (sha256 {found}, recorded "
            f"{recorded}); build the index again."
        )


def _replace(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write all of ``contents`` beside their names in ``folder``, then rename them in order."""
    folder.mkdir(parents=True, exist_ok=True)
    mark = uuid4().hex
    waiting = {folder / name: folder / f".{name}.{mark}" for name in contents}
    try:
        for beside, data in zip(waiting.values(), contents.values(), strict=True):
            with beside.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        for path, beside in waiting.items():
            os.replace(beside, path)
    finally:
        for beside in waiting.values():
            beside.unlink(missing_ok=True)
