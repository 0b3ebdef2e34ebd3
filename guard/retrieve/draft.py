"""Writing the next version of a bias index beside the one in use.

Why: docs/decisions/manifest-last.md.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from guard.errors import BiasIndexError
from guard.retrieve import graph as graphs
from guard.retrieve.folder import MANIFEST, Manifest, Version, manifest_json, read_manifest
from guard.retrieve.index import BiasIndex, statement_counts
from guard.retrieve.opening import damaged_index
from guard.retrieve.statement import BiasStatement, statement_lines
from guard.retrieve.table import StatementLines, table_of, with_first
from guard.retrieve.writing import (
    Written,
    replace_all,
    sweep_folder,
    sync_folder,
    write_part,
    write_part_by,
)

Floats = NDArray[np.float32]
#: Called with the name of a step, how much of it is done, and its total.
Report = Callable[[str, int, int], None]

_STEP = 4096


def report_nothing(_doing: str, _done: int, _total: int) -> None:
    """Report nothing."""


class _Graph(NamedTuple):
    """A graph file in the folder, and the row of each node in the older index."""

    file: Written
    nodes: NDArray[np.int32]


class Draft:
    """An index to be written: ``rows`` of an older one, then ``new`` statements."""

    def __init__(
        self,
        folder: Path,
        embedder: str,
        old: BiasIndex | None,
        rows: NDArray[np.intp],
        new: Sequence[BiasStatement],
        vectors: Floats,
    ) -> None:
        """``vectors`` has one row for each of ``new``."""
        self._folder = folder
        self._embedder = embedder
        self._old = old
        self._rows = rows
        self._new = new
        self._vectors = np.ascontiguousarray(vectors, "<f4")
        dim = vectors.shape[1] if old is None else old.dim
        self._shape = (len(rows) + len(new), dim)

    def publish(
        self, before: Manifest | None, *, grows: bool = False, report: Report = report_nothing
    ) -> str:
        """Write the files, then the manifest that names them; return the version.

        ``before`` is the index that is replaced; None if there is none or its manifest cannot be
        read. Its files stay until the next write, for readers that have just read its manifest.
        ``grows``: the rows are those of ``before``, so that its graph can be extended.
        """
        # An unreadable manifest may name any of the files: keep all of them.
        existing = {path.name for path in self._folder.iterdir()}
        keep = existing if before is None else set(before.sha256)
        try:
            written = list(self._statement_lines())
            content = b"".join(written)
            version = Version(self._embedder, len(content))
            version.update(content)
            version.shape(*self._shape)
            table = self._whole_table([len(line) for line in written])
            vectors = self._write_part("vectors", self._vector_bytes(version))
            parts = [
                self._write_part("statements", [content]),
                vectors,
                self._write_array("table", table),
            ]
            if self._shape[0] >= graphs.GRAPH_FROM:
                older = _older_graph(before) if grows else None
                walk = self._write_graph(older, vectors, partial(report, "indexing"))
                parts += walk
                for part in walk:
                    version.add(part.sha256.encode())
            hashes = {part.name: part.sha256 for part in parts}
            manifest = manifest_json(
                self._embedder, str(version), self._shape[1], statement_counts(table), hashes
            )
            # The names of the files are on disk before the manifest's is.
            sync_folder(self._folder)
            replace_all(self._folder, {MANIFEST: manifest})
        except BaseException:
            # Free the space: the disk may be full.
            self._sweep_failed(keep, existing)
            raise
        # Published: files that cannot be removed are left for the next writer.
        with suppress(OSError):
            sweep_folder(self._folder, {*keep, *hashes})
        return str(version)

    def _sweep_failed(self, keep: set[str], existing: set[str]) -> None:
        """Remove unused files after a failure.

        The manifest may be the older one or, if only the last sync failed, the newer one.
        """
        # The caller raises the original error.
        with suppress(BiasIndexError, OSError):
            if any(path.name == MANIFEST for path in self._folder.iterdir()):
                keep = {*keep, *read_manifest(self._folder).sha256}
            else:
                keep = existing
            sweep_folder(self._folder, keep)

    def _statement_lines(self) -> Iterator[bytes]:
        if self._old is not None:
            held = self._old.statements
            for row in self._rows.tolist():
                if isinstance(held, StatementLines):
                    yield held.line(row)
                else:
                    yield statement_lines([held[row]]).encode()
        for statement in self._new:
            yield statement_lines([statement]).encode()

    def _whole_table(self, lengths: Sequence[int]) -> NDArray[np.void]:
        table = table_of(self._new)
        if self._old is not None:
            table = np.concatenate([self._old.table[self._rows], table])
        ends = np.cumsum(lengths, dtype=np.uint64)
        table["offset"][:1] = 0
        table["offset"][1:] = ends[:-1]
        return with_first(table)

    def _vector_bytes(self, version: Version) -> Iterator[Any]:
        yield _array_header(self._vectors.dtype, self._shape)
        for begin in range(0, len(self._rows), _STEP):
            assert self._old is not None
            some = self._old.vectors_of(self._rows[begin : begin + _STEP])
            version.update(some.data)
            yield some.data
        if len(self._new):
            version.update(self._vectors.data)
            yield self._vectors.data

    def _write_graph(
        self, older: _Graph | None, vectors: Written, report: Callable[[int, int], None]
    ) -> list[Written]:
        """Write graph and nodes: extend the older graph if most of it is in use, else make one."""
        rows = np.arange(self._shape[0], dtype=np.int32)
        if older is not None and self._old is not None:
            # The new row of each old row; a node of -1 indexes the last entry and stays -1.
            moved = np.full(len(self._old) + 1, -1, np.int32)
            moved[self._rows] = rows[: len(self._rows)]
            nodes = moved[older.nodes]
            if np.mean(nodes < 0) <= graphs.MOST_DEAD:
                graph = older.file
                if self._new:
                    at = self._folder / graph.name, len(nodes)
                    graph = self._write_walk(graphs.write_graph, self._vectors, at, report)
                nodes = np.concatenate([nodes, rows[len(self._rows) :]])
                return [graph, self._write_array("nodes", nodes)]
        every = np.load(self._folder / vectors.name, allow_pickle=False)
        graph = self._write_walk(graphs.write_graph, every, None, report)
        return [graph, self._write_array("nodes", rows)]

    def _write_walk(self, write: Callable[..., None], *args: Any) -> Written:
        try:
            return write_part_by(self._folder, "graph", lambda path: write(path, *args))
        except ValueError as error:
            raise damaged_index(self._folder, error) from error

    def _write_array(self, role: str, array: NDArray[Any]) -> Written:
        return self._write_part(role, [_array_header(array.dtype, array.shape), array.tobytes()])

    def _write_part(self, role: str, chunks: Any) -> Written:
        return write_part(self._folder, role, chunks)


def _older_graph(manifest: Manifest | None) -> _Graph | None:
    """Return the graph of an index in its folder; None if it has none."""
    path = None if manifest is None else manifest.path("graph")
    nodes = None if manifest is None else manifest.path("nodes")
    if manifest is None or path is None or nodes is None:
        return None
    file = Written(path.name, manifest.sha256[path.name])
    return _Graph(file, np.load(nodes, allow_pickle=False))


def _array_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Return the header of a file in NumPy's format."""
    file = io.BytesIO()
    described = {
        "descr": np.lib.format.dtype_to_descr(dtype),
        "fortran_order": False,
        "shape": shape,
    }
    np.lib.format.write_array_header_1_0(file, described)
    return file.getvalue()
