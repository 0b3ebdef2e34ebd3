"""The files of a bias index in a folder, and checks that they belong together.

``manifest.json`` names the other files with their hashes and is replaced last. So a folder always
holds one whole index: the older one before that moment, the newer one after it. The beginning of
a file's name is its role:

``statements``  JSON lines, one for each statement
``vectors``     float32, or float16 in a release; one row of length 1 for each statement
``table``       type, hashes and offset of each statement (:mod:`guard.retrieve.table`)
``graph``       HNSW over the vectors of a large index (:mod:`guard.retrieve.graph`)
``nodes``       the row of each node of the graph

The last three are optional. A release names the first two ``statements.jsonl`` and
``vectors.npy``. An index that changes while it is in use has a hash in every name, so that a
reader never opens a file of another version.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from guard.errors import BiasIndexError
from guard.places import check_regular, regular_bytes

FORMAT = 1
MANIFEST = "manifest.json"
ROLES = {
    "statements": ".jsonl",
    "vectors": ".npy",
    "table": ".npy",
    "graph": ".faiss",
    "nodes": ".npy",
}
_NEEDED = ("statements", "vectors")
_CHUNK = 1 << 20
_VERSION_DIGITS = 12
# How often a reader starts again because a writer replaced the index.
_TRIES = 10

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Manifest:
    """``manifest.json``: the embedder, the content's version, and file -> SHA-256."""

    folder: Path
    embedder: str
    version: str
    sha256: Mapping[str, str]

    def path(self, role: str) -> Path | None:
        """Return the file with the role ``role``; None if the index has none."""
        return next((self.folder / n for n in self.sha256 if role_of(n) == role), None)

    def recorded(self, role: str) -> str:
        """Return the recorded SHA-256 of the file with the role ``role``; empty if it has none."""
        return next((h for name, h in self.sha256.items() if role_of(name) == role), "")

    def read(self, path: Path) -> bytes:
        """Return the bytes of ``path`` after comparing their hash with the recorded one.

        They are read, never memory-mapped: truncating a mapped file kills the processes that read
        it, and its content may change after the check.

        Raises:
            BiasIndexError: the file is missing, too large for memory or not the recorded one.

        """
        try:
            data = regular_bytes(path)
        except (OSError, MemoryError) as error:
            raise BiasIndexError(f"{path} cannot be read: {_error_reason(error)}.") from error
        self.check(path, hashlib.sha256(data).hexdigest())
        return data

    def check(self, path: Path, digest: str) -> None:
        """Compare the hash ``found`` of ``path`` with the recorded one.

        Raises:
            BiasIndexError: they differ.

        """
        recorded = self.sha256[path.name]
        if digest != recorded:
            raise BiasIndexError(
                f"{path} is not the file that its manifest records (sha256 {digest}, recorded "
                f"{recorded}); build the index again."
            )

    @contextmanager
    def reading(self, path: Path) -> Iterator[Callable[[int], bytes]]:
        """Yield a function that reads the next bytes of ``path``, for a large file.

        Its hash is compared with the recorded one before, and again after all of it was read.

        Raises:
            BiasIndexError: as :meth:`read`.

        """
        try:
            self.check(path, sha256_of_file(path))
            with path.open("rb") as file:
                digest = hashlib.sha256()

                def read(size: int) -> bytes:
                    data = file.read(size)
                    digest.update(data)
                    return data

                yield read
                while read(_CHUNK):
                    pass
        except OSError as error:
            raise BiasIndexError(f"{path} cannot be read: {_error_reason(error)}.") from error
        self.check(path, digest.hexdigest())


def _error_reason(error: OSError | MemoryError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or "it is too large for memory"


def manifest_bytes(folder: Path) -> bytes:
    """Return the manifest's bytes; the index is unchanged as long as these are.

    Raises:
        BiasIndexError: there is none, or it cannot be read.

    """
    path = folder / MANIFEST
    try:
        return regular_bytes(path)
    except (FileNotFoundError, NotADirectoryError):
        raise BiasIndexError(f"There is no bias index at {folder}.") from None
    except OSError as error:
        raise BiasIndexError(f"{path} cannot be read: {error}.") from error


def folder_state(folder: Path) -> tuple[bytes, tuple[tuple[int, int] | None, ...]]:
    """Return the manifest's bytes, and size and modification time of each file that it names.

    The index is unchanged as long as these are.

    Raises:
        BiasIndexError: there is no manifest, or it cannot be read.

    """
    data = manifest_bytes(folder)
    with suppress(BiasIndexError):
        return data, tuple(
            _file_stamp(folder / name) for name in read_manifest(folder, data).sha256
        )
    return data, ()


def _file_stamp(path: Path) -> tuple[int, int] | None:
    try:
        stat = path.stat()
    except (OSError, ValueError):
        return None
    return stat.st_size, stat.st_mtime_ns


def read_manifest(folder: Path, data: bytes | None = None) -> Manifest:
    """Parse the manifest of ``folder``, or its bytes ``data``.

    Raises:
        BiasIndexError: there is none, or this version of guard cannot read it.

    """
    path = folder / MANIFEST
    data = manifest_bytes(folder) if data is None else data
    try:
        content: Any = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BiasIndexError(f"{path} cannot be read: {error}.") from error
    hashes = content.get("sha256") if isinstance(content, dict) else None
    if not isinstance(hashes, dict):
        raise BiasIndexError(f"{path} is not the manifest of a bias index.")
    if content.get("format") != FORMAT:
        raise BiasIndexError(
            f"{path} has the format {content.get('format')!r}; this version of guard reads "
            f"{FORMAT}. Build the index again."
        )
    if any(Path(name).name != name or "\0" in name for name in hashes):
        raise BiasIndexError(f"{path} names a file outside its folder; build the index again.")
    roles = [role_of(name) for name in hashes]
    if missing := [role for role in _NEEDED if role not in roles]:
        raise BiasIndexError(f"{path} names no file with {missing[0]}; build the index again.")
    return Manifest(folder, str(content.get("embedder")), str(content.get("version")), hashes)


def is_index(folder: Path) -> bool:
    """Whether the manifest in ``folder`` is that of a bias index, also of a damaged or newer one.

    Raises:
        BiasIndexError: there is none, or it cannot be read.

    """
    data = manifest_bytes(folder)
    try:
        content: Any = json.loads(data)
    except (ValueError, RecursionError):
        # The manifest is unreadable: judge by the files beside it.
        names: list[str] = os.listdir(folder)
    else:
        hashes = content.get("sha256") if isinstance(content, dict) else None
        if not isinstance(hashes, dict) or "embedder" not in content:
            return False
        names = list(hashes)
    return {role_of(name) for name in names}.issuperset(_NEEDED)


def read_whole(folder: Path, read: Callable[[Manifest], T]) -> T:
    """Return ``read`` of the folder's manifest; safe while writers are at work.

    If ``read`` fails because a writer has replaced the index, it is called with the newer
    manifest.

    Raises:
        BiasIndexError: ``read`` failed on an index that was not replaced.

    """
    for left in reversed(range(_TRIES)):
        data = manifest_bytes(folder)
        try:
            return read(read_manifest(folder, data))
        except BiasIndexError:
            if not left or manifest_bytes(folder) == data:
                raise
    raise AssertionError("unreachable")


def manifest_json(
    embedder: str, version: str, dim: int, counts: Mapping[str, Any], hashes: Mapping[str, str]
) -> bytes:
    """Return the bytes of a manifest."""
    content = {
        "format": FORMAT,
        "version": version,
        "embedder": embedder,
        "dim": dim,
        "counts": dict(counts),
        "sha256": dict(hashes),
    }
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()


class Version:
    """The hash of an index's content: its embedder, statements, vectors, and graph if any.

    The graph counts as content, because its search finds other neighbours than an exact one.
    """

    def __init__(self, embedder: str, statement_bytes: int) -> None:
        self._digest = hashlib.sha256()
        self.add(embedder.encode())
        # Each part is preceded by its length, so that different indexes give different bytes.
        self._digest.update(f"{statement_bytes}:".encode())

    def update(self, data: Any, /) -> None:
        """Add the statements' lines, then after :meth:`shape` the vectors' bytes."""
        self._digest.update(data)

    def shape(self, rows: int, dim: int) -> None:
        """Add the shape of the vectors."""
        self.add(str((rows, dim)).encode())

    def add(self, data: bytes) -> None:
        """Add another part of the content."""
        self._digest.update(f"{len(data)}:".encode() + data)

    def __str__(self) -> str:
        return self._digest.hexdigest()[:_VERSION_DIGITS]


def sha256_of_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, read in pieces."""
    digest = hashlib.sha256()
    check_regular(path)
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def role_of(name: str) -> str:
    """Return the role of the file called ``name``; empty if it belongs to no index."""
    role = name.split(".")[0].split("-")[0]
    return role if ROLES.get(role) == Path(name).suffix else ""
