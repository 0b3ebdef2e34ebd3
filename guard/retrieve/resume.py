"""A cache of vectors for an index that is not written yet, so that an interrupted build resumes.

Embedding 100,000 statements takes minutes. Finished vectors are in a hidden file of the index's
folder. One writer at a time has this file; another one that works at the same time starts from the
beginning if it is killed. Building an index or adding to it removes the files of other embedders,
which belong to an index that was replaced.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from guard.errors import BiasIndexError
from guard.retrieve.embedder import LENGTH_TOLERANCE, StatementEmbedder
from guard.retrieve.writing import index_errors, unwritable_folder

Floats = NDArray[np.float32]
Report = Callable[[int, int], None]

# Bounds an embedder's memory, and the work that is lost if it is killed.
BATCH = 256
_KEY_BYTES = 16
_FILE = ".embedded-"
_LOCK = ".lock"


class VectorCache:
    """The vectors of one embedder, by text; every batch is on disk before the next one."""

    def __init__(self, path: Path | None) -> None:
        """Read the file at ``path``; None: nothing is stored on disk."""
        self._path = path
        self._found: dict[bytes, Floats] = {}
        self._asked: set[bytes] = set()
        if path is not None and path.is_file():
            self._read_file(path)

    def vectors(
        self, texts: Sequence[str], embedder: StatementEmbedder, report: Report | None = None
    ) -> Floats:
        """Return the vectors of ``texts``, (n, dim), embedding those that are not in the cache.

        Raises:
            BiasIndexError: the embedder does not return one vector of length 1 for each text, or
                they cannot be stored.

        """
        keys = [_text_key(text) for text in texts]
        self._asked.update(keys)
        missing = [i for i, key in enumerate(keys) if key not in self._found]
        done = len(keys) - len(missing)
        report = report or (lambda done, total: None)
        for begin in range(0, len(missing), BATCH):
            report(done + begin, len(keys))
            rows = missing[begin : begin + BATCH]
            vectors = _checked_embeddings(embedder, [texts[i] for i in rows])
            self._store_vectors([keys[i] for i in rows], vectors)
        report(len(keys), len(keys))
        return np.stack([self._found[key] for key in keys]) if keys else np.zeros((0, 0), "f4")

    def drop(self, *, all: bool = False) -> None:
        """Remove the file; without ``all``, only if all of its vectors were used.

        Another command may use the others. The files of other embedders are removed, too, except
        those that are being written.
        """
        if self._path is None:
            return
        with index_errors(self._path.parent):
            if all or self._asked >= self._found.keys():
                self._path.unlink(missing_ok=True)
            for other in self._path.parent.glob(f"{_FILE}*"):
                if other.suffix != _LOCK and other != self._path:
                    _drop_unlocked(other)

    def _store_vectors(self, keys: Sequence[bytes], vectors: Floats) -> None:
        records = np.empty(len(keys), _record_type(vectors.shape[1]))
        records["key"] = [np.void(key) for key in keys]
        records["vector"] = vectors
        records["sum"] = [zlib.crc32(row.tobytes()) for row in vectors]
        self._found.update(zip(keys, vectors, strict=True))
        if self._path is None:
            return
        with index_errors(self._path.parent):
            new = not self._path.exists()
            with self._path.open("ab") as file:
                if new:
                    file.write(vectors.shape[1].to_bytes(_KEY_BYTES, "little"))
                file.write(records.tobytes())
                file.flush()
                os.fsync(file.fileno())

    def _read_file(self, path: Path) -> None:
        data = path.read_bytes()
        dim = int.from_bytes(data[:_KEY_BYTES], "little")
        record = _record_type(dim) if 0 < dim < 1 << 20 else np.dtype("V1")
        whole = (len(data) - _KEY_BYTES) // record.itemsize
        if record.names is None or whole < 1:
            path.unlink()
            return
        rows = np.frombuffer(data, record, whole, _KEY_BYTES)
        sound = [zlib.crc32(row["vector"].tobytes()) == row["sum"] for row in rows]
        # A kill or a power cut may leave an incomplete record at the end: cut the file before it.
        until = whole if all(sound) else sound.index(False)
        os.truncate(path, _KEY_BYTES + until * record.itemsize)
        for row in rows[:until]:
            self._found[row["key"].tobytes()] = row["vector"]


@contextmanager
def vector_cache(folder: Path, embedder: str) -> Iterator[VectorCache]:
    """Open the cache of ``embedder``'s vectors for the index in ``folder``."""
    path = folder / f"{_FILE}{hashlib.sha256(embedder.encode()).hexdigest()[:8]}"
    lock = FileLock(path.with_suffix(_LOCK))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        yield VectorCache(None)
        return
    except OSError as error:
        raise unwritable_folder(folder, error) from error
    try:
        with index_errors(folder):
            cache = VectorCache(path)
        yield cache
    finally:
        lock.release()


def _drop_unlocked(path: Path) -> None:
    lock = FileLock(path.with_suffix(_LOCK))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return
    try:
        path.unlink(missing_ok=True)
    finally:
        lock.release()


def _checked_embeddings(embedder: StatementEmbedder, texts: Sequence[str]) -> Floats:
    vectors = np.ascontiguousarray(embedder.embed(texts), np.float32)
    if vectors.ndim != 2 or len(vectors) != len(texts) or not vectors.shape[1]:
        wrong = f"shape {vectors.shape} for {len(texts)} texts"
    elif not (np.abs(np.linalg.norm(vectors, axis=1) - 1) <= LENGTH_TOLERANCE).all():
        wrong = "a vector that does not have length 1"
    else:
        return vectors
    raise BiasIndexError(f"The embedder '{embedder.name}' returned unusable vectors: {wrong}.")


def _text_key(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=_KEY_BYTES).digest()


def _record_type(dim: int) -> np.dtype[np.void]:
    return np.dtype([("key", f"V{_KEY_BYTES}"), ("vector", "<f4", (dim,)), ("sum", "<u4")])
