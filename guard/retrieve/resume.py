"""Vectors that were embedded for an index which is not written yet.

Embedding 100,000 statements takes minutes. What is done lies in a hidden file of the index's
folder, so that the same command goes on where a killed one stopped. One writer at a time keeps
such a file; another that works meanwhile begins anew when it is killed. Whoever builds an index or
adds to it removes the files of other embedders, whose work was for an index that gave way.
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
from guard.retrieve.embedder import LENGTH_TOLERANCE, Embedder
from guard.retrieve.writing import told, unwritable

Floats = NDArray[np.float32]
Report = Callable[[int, int], None]

# Bounds what an embedder holds at once, and what is lost when it is killed.
BATCH = 256
_KEY_BYTES = 16
_FILE = ".embedded-"
_LOCK = ".lock"


class Kept:
    """The vectors of one embedder, by text; every batch is on disk before the next one."""

    def __init__(self, path: Path | None) -> None:
        """Read what is at ``path``; None keeps nothing."""
        self._path = path
        self._found: dict[bytes, Floats] = {}
        self._asked: set[bytes] = set()
        if path is not None and path.is_file():
            self._read(path)

    def vectors(
        self, texts: Sequence[str], embedder: Embedder, report: Report | None = None
    ) -> Floats:
        """Return the vectors of ``texts``, (n, dim), embedding those that are not kept.

        Raises:
            BiasIndexError: the embedder does not give one vector of length 1 a text, or they
                cannot be kept.

        """
        keys = [_key(text) for text in texts]
        self._asked.update(keys)
        missing = [i for i, key in enumerate(keys) if key not in self._found]
        done = len(keys) - len(missing)
        report = report or (lambda done, total: None)
        for begin in range(0, len(missing), BATCH):
            report(done + begin, len(keys))
            rows = missing[begin : begin + BATCH]
            made = _embedded(embedder, [texts[i] for i in rows])
            self._keep([keys[i] for i in rows], made)
        report(len(keys), len(keys))
        return np.stack([self._found[key] for key in keys]) if keys else np.zeros((0, 0), "f4")

    def drop(self, *, all: bool = False) -> None:
        """Remove the file; without ``all``, not where it has vectors that nobody asked for yet.

        Another command will ask for those. The files of other embedders go in any case, but for
        those that are being written.
        """
        if self._path is None:
            return
        with told(self._path.parent):
            if all or self._asked >= self._found.keys():
                self._path.unlink(missing_ok=True)
            for other in self._path.parent.glob(f"{_FILE}*"):
                if other.suffix != _LOCK and other != self._path:
                    _drop(other)

    def _keep(self, keys: Sequence[bytes], vectors: Floats) -> None:
        records = np.empty(len(keys), _record(vectors.shape[1]))
        records["key"] = [np.void(key) for key in keys]
        records["vector"] = vectors
        records["sum"] = [zlib.crc32(row.tobytes()) for row in vectors]
        self._found.update(zip(keys, vectors, strict=True))
        if self._path is None:
            return
        with told(self._path.parent):
            new = not self._path.exists()
            with self._path.open("ab") as file:
                if new:
                    file.write(vectors.shape[1].to_bytes(_KEY_BYTES, "little"))
                file.write(records.tobytes())
                file.flush()
                os.fsync(file.fileno())

    def _read(self, path: Path) -> None:
        data = path.read_bytes()
        dim = int.from_bytes(data[:_KEY_BYTES], "little")
        record = _record(dim) if 0 < dim < 1 << 20 else np.dtype("V1")
        whole = (len(data) - _KEY_BYTES) // record.itemsize
        if record.names is None or whole < 1:
            path.unlink()
            return
        rows = np.frombuffer(data, record, whole, _KEY_BYTES)
        sound = [zlib.crc32(row["vector"].tobytes()) == row["sum"] for row in rows]
        # A kill or a power cut may leave half a record at the end: nothing is written after it.
        until = whole if all(sound) else sound.index(False)
        os.truncate(path, _KEY_BYTES + until * record.itemsize)
        for row in rows[:until]:
            self._found[row["key"].tobytes()] = row["vector"]


@contextmanager
def kept(folder: Path, embedder: str) -> Iterator[Kept]:
    """Give the vectors that were embedded by ``embedder`` for the index in ``folder``."""
    path = folder / f"{_FILE}{hashlib.sha256(embedder.encode()).hexdigest()[:8]}"
    lock = FileLock(path.with_suffix(_LOCK))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        yield Kept(None)
        return
    except OSError as error:
        raise unwritable(folder, error) from error
    try:
        with told(folder):
            found = Kept(path)
        yield found
    finally:
        lock.release()


def _drop(path: Path) -> None:
    lock = FileLock(path.with_suffix(_LOCK))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return
    try:
        path.unlink(missing_ok=True)
    finally:
        lock.release()


def _embedded(embedder: Embedder, texts: Sequence[str]) -> Floats:
    made = np.ascontiguousarray(embedder.embed(texts), np.float32)
    if made.ndim != 2 or len(made) != len(texts) or not made.shape[1]:
        wrong = f"shape {made.shape} for {len(texts)} texts"
    elif not (np.abs(np.linalg.norm(made, axis=1) - 1) <= LENGTH_TOLERANCE).all():
        wrong = "a vector that does not have length 1"
    else:
        return made
    raise BiasIndexError(
        f"The embedder '{embedder.name}' gave vectors that cannot be used: {wrong}."
    )


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=_KEY_BYTES).digest()


def _record(dim: int) -> np.dtype[np.void]:
    return np.dtype([("key", f"V{_KEY_BYTES}"), ("vector", "<f4", (dim,)), ("sum", "<u4")])
