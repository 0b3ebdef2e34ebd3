"""Opening the files of a bias index: read into memory, and checked before they are used.

Why: docs/decisions/index-in-memory.md.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from guard.errors import BiasIndexError
from guard.retrieve import graph as graphs
from guard.retrieve.embedder import LENGTH_TOLERANCE
from guard.retrieve.folder import Manifest, Version
from guard.retrieve.statement import BiasStatement, read_statements
from guard.retrieve.table import ROW, StatementLines, Table
from guard.verdict import BIAS_TYPES


class Opened(NamedTuple):
    """The content of an index's files. Without a table all statements are parsed.

    The vector of the statement in row i is ``vectors[places[i]]``; ``places`` None means
    ``vectors[i]``.
    """

    statements: Sequence[BiasStatement]
    vectors: NDArray[np.float32]
    places: NDArray[np.int32] | None
    table: Table | None
    graph: graphs.Graph | None


def open_index(manifest: Manifest) -> Opened:
    """Open the files that ``manifest`` names, after comparing their hashes.

    The folder is not read again afterwards.

    Raises:
        BiasIndexError: a file is missing, is not the recorded one or cannot be used.

    """
    try:
        return _open_files(manifest)
    except BiasIndexError:
        raise
    except Exception as error:  # NumPy raises various errors on a malformed file
        raise damaged_index(manifest.folder, error) from error


def damaged_index(folder: Path, error: Exception) -> BiasIndexError:
    """Return the error for an index whose files have the recorded hashes but are unusable."""
    return BiasIndexError(f"The bias index at {folder} is damaged: {error}. Build it again.")


def _open_files(manifest: Manifest) -> Opened:
    lines_at, vectors_at = manifest.path("statements"), manifest.path("vectors")
    assert lines_at is not None
    assert vectors_at is not None
    lines = manifest.read(lines_at)
    version = Version(manifest.embedder, len(lines))
    version.update(lines)
    vectors = _checked_vectors(vectors_at.name, manifest.read(vectors_at))
    version.shape(*vectors.shape)
    version.update(vectors.data)
    graph = _opened_graph(manifest, vectors, version)
    if str(version) != manifest.version:
        raise BiasIndexError(
            f"The bias index at {manifest.folder} has the version {version}, but its manifest "
            f"says {manifest.version}; build it again."
        )
    table = _role_array(manifest, "table")
    if table is None:
        return Opened(read_statements(lines_at, lines), vectors, None, None, graph)
    _check_table(table, len(vectors), len(lines))
    places = None if graph is None else graph.places(vectors)
    if graph is not None and places is not None:
        vectors = graph.vectors
    return Opened(StatementLines(lines, table["offset"]), vectors, places, table, graph)


def _opened_graph(
    manifest: Manifest, vectors: NDArray[np.float32], version: Version
) -> graphs.Graph | None:
    path, nodes = manifest.path("graph"), _role_array(manifest, "nodes")
    if path is None or nodes is None:
        return None
    for role in ("graph", "nodes"):
        version.add(manifest.recorded(role).encode())
    if nodes.dtype != np.int32 or nodes.ndim != 1 or nodes.max(initial=-1) >= len(vectors):
        raise ValueError(f"its graph does not belong to {len(vectors)} statements")
    with manifest.reading(path) as read:
        return graphs.load_graph(path.name, read, nodes, vectors.shape[1])


def _role_array(manifest: Manifest, role: str) -> Any:
    path = manifest.path(role)
    return None if path is None else _read_array(manifest.read(path))


def _checked_vectors(name: str, data: bytes) -> NDArray[np.float32]:
    stored: NDArray[Any] = _read_array(data)
    if stored.dtype not in (np.dtype("<f4"), np.dtype("<f2")) or stored.ndim != 2:
        raise ValueError(f"{name} does not hold rows of 32-bit or 16-bit numbers")
    if not stored.flags.c_contiguous:
        raise ValueError(f"{name} does not hold its numbers row by row")
    array: NDArray[np.float32] = stored.astype("<f4", copy=False)
    length = np.einsum("ij,ij->i", array, array)
    wrong = ~(np.abs(np.sqrt(length) - 1) <= LENGTH_TOLERANCE)
    if wrong.any():
        raise ValueError(f"the vector of row {int(wrong.argmax())} does not have length 1")
    return array


def _read_array(data: bytes) -> Any:
    """Return the array of a file in NumPy's format, over ``data`` itself."""
    file = io.BytesIO(data)
    major, _ = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if major == 1 else _header_2_0
    shape, fortran, dtype = read(file)
    if fortran or dtype.hasobject:
        raise ValueError("it holds an array of a kind that no index has")
    return np.ndarray(shape, dtype, data, file.tell())


_header_2_0 = np.lib.format.read_array_header_2_0


def _check_table(table: Table, rows: int, size: int) -> None:
    if table.dtype != ROW or table.shape != (rows,):
        raise ValueError(f"its table does not describe {rows} statements")
    if not rows:
        return
    offsets = table["offset"].astype(np.int64)
    within = offsets[0] == 0 and offsets[-1] < size and (np.diff(offsets) > 0).all()
    if not within or table["type"].max() >= len(BIAS_TYPES) or table["first"].max() >= rows:
        raise ValueError("its table does not describe its statements")
