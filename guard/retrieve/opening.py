"""Opening the files of a bias index: checked, and mapped into memory instead of read."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from guard.errors import BiasIndexError
from guard.retrieve import graph as graphs
from guard.retrieve.folder import Manifest, Tail, Version
from guard.retrieve.statement import Statement, read_statements
from guard.retrieve.table import ROW, StatementLines, Table


class Opened(NamedTuple):
    """What the files of an index hold. Without a table the statements are read whole."""

    statements: Sequence[Statement]
    vectors: NDArray[np.float32]
    table: Table | None
    graph: graphs.Graph | None


def opened(manifest: Manifest) -> Opened:
    """Open the files that ``manifest`` names, after all of their hashes were held against it.

    Each file is read through once for that, which takes a quarter of a second for 100,000
    statements; what is mapped then takes memory only where it is looked at.

    Raises:
        BiasIndexError: a file is missing, is not the recorded one or cannot be used.

    """
    try:
        return _opened(manifest)
    except OSError as error:
        raise BiasIndexError(f"{error.filename} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise damaged(manifest.folder, error) from error


def damaged(folder: Path, error: Exception) -> BiasIndexError:
    """Return the error of an index whose files are the recorded ones and yet of no use."""
    return BiasIndexError(f"The bias index at {folder} is damaged: {error}. Build it again.")


def _opened(manifest: Manifest) -> Opened:
    # A graph is as large as the vectors: hashes are taken side by side, outside of Python's lock.
    with ThreadPoolExecutor(1) as pool:
        graph_at = manifest.path("graph")
        checking = None if graph_at is None else pool.submit(manifest.checked, graph_at)
        return _checked(manifest, lambda: checking is None or checking.result())


def _checked(manifest: Manifest, check_graph: Callable[[], object]) -> Opened:
    lines_at, vectors_at = manifest.path("statements"), manifest.path("vectors")
    assert lines_at is not None
    assert vectors_at is not None
    version = Version(manifest.embedder, lines_at.stat().st_size)
    manifest.checked(lines_at, version)
    try:
        vectors, offset = _vectors(vectors_at)
    except ValueError:
        manifest.checked(vectors_at)  # most likely it is not the recorded file
        raise
    version.shape(*vectors.shape)
    manifest.checked(vectors_at, Tail(version, offset))
    graph = _graph(manifest, version, check_graph)
    if str(version) != manifest.version:
        raise BiasIndexError(
            f"The bias index at {manifest.folder} has the version {version}, but its manifest "
            f"says {manifest.version}; build it again."
        )
    table = _array(manifest, "table")
    if table is None:
        return Opened(read_statements(lines_at), vectors, None, graph)
    if table.dtype != ROW or len(table) != len(vectors):
        raise ValueError(f"its table does not describe {len(vectors)} statements")
    return Opened(StatementLines(_mapped(lines_at), table["offset"]), vectors, table, graph)


def _graph(
    manifest: Manifest, version: Version, check: Callable[[], object]
) -> graphs.Graph | None:
    path, nodes = manifest.path("graph"), _array(manifest, "nodes")
    if path is None or nodes is None:
        return None
    check()
    for role in ("graph", "nodes"):
        version.part(manifest.recorded(role).encode())
    return graphs.load(path, nodes)


def _array(manifest: Manifest, role: str) -> Any:
    path = manifest.path(role)
    if path is None:
        return None
    manifest.checked(path)
    return np.load(path, allow_pickle=False)


def _vectors(path: Path) -> tuple[NDArray[np.float32], int]:
    """Return the vectors of a file and where they begin in it."""
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.dtype != np.dtype("<f4") or array.ndim != 2 or not array.flags.c_contiguous:
        raise ValueError(f"{path.name} does not hold rows of 32-bit numbers")
    return np.asarray(array), int(array.offset)


def _mapped(path: Path) -> bytes | mmap.mmap:
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return b""  # nothing cannot be mapped
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
