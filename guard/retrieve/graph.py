"""Approximate search in a large index: a small-world graph (HNSW) of FAISS.

Malkov and Yashunin, "Efficient and robust approximate nearest neighbor search using Hierarchical
Navigable Small World graphs", 2016. A search moves from vector to nearer vector and visits a few
hundred of them, whatever the size of the index.
Why: docs/decisions/exact-search-below-8000.md.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

# An index has a graph from this many statements on. Below, an exact search takes less than 0.3 ms
# (one thread, 384 dimensions), so that an approximate one gains nothing.
GRAPH_FROM = 8_000
# HNSW's M, efConstruction and efSearch. With these, recall@5 for RedditBias comments among 41,000
# statements of published datasets is 99.3 % (benchmarks/speed/search.py); with a search width of
# 48 it is 98.6 %, with 64 99.1 % and with 128 99.7 %.
NEIGHBOURS = 32
BUILD_WIDTH = 200
SEARCH_WIDTH = 80
# Above this share of removed vectors, which slow a search down, the graph is rebuilt.
MOST_DEAD = 0.2
_STEP = 500


class Graph:
    """A graph over the vectors of an index. Searches are thread-safe.

    ``nodes`` has the row of each node, -1 for one that was removed since the graph was built.
    """

    def __init__(self, walk: Any, nodes: NDArray[np.int32]) -> None:
        self._walk = walk
        self._walk.hnsw.efSearch = SEARCH_WIDTH
        self.nodes = nodes

    @property
    def vectors(self) -> Floats:
        """The vectors of its nodes: a view of FAISS's memory, valid as long as the graph."""
        flat: Any = faiss.downcast_index(self._walk.storage)
        view: Floats = faiss.rev_swig_ptr(flat.get_xb(), flat.ntotal * flat.d)
        return view.reshape(flat.ntotal, flat.d)

    def places(self, vectors: Floats) -> NDArray[np.int32] | None:
        """Return the node of each row of ``vectors``, so that these need not be stored twice.

        Returns None unless the graph holds exactly these vectors.
        """
        alive = np.flatnonzero(self.nodes >= 0).astype(np.int32)
        places = np.full(len(vectors), -1, np.int32)
        places[self.nodes[alive]] = alive
        if (places < 0).any():
            return None
        own = self.vectors
        steps = range(0, len(vectors), _STEP)  # avoids a copy of all vectors
        same = (np.array_equal(own[places[i : i + _STEP]], vectors[i : i + _STEP]) for i in steps)
        return places if all(same) else None

    def search(self, query: Floats, k: int) -> tuple[list[float], list[int]]:
        """Return cosines and rows of about the ``k`` nearest vectors to ``query``, (1, dim).

        A row of -1 means a removed vector, or none.
        """
        similarities, nodes = self._walk.search(query, k)
        rows = np.where(nodes[0] < 0, -1, self.nodes[nodes[0]])
        return similarities[0].tolist(), rows.tolist()


def load_graph(
    name: str, read: Callable[[int], bytes], nodes: NDArray[np.int32], dim: int
) -> Graph:
    """Read the graph in the file ``name``; ``read(n)`` returns its next n bytes.

    Raises:
        ValueError: it has not ``len(nodes)`` nodes of ``dim`` dimensions, or cannot be read.

    """
    reader: Any = faiss.PyCallbackIOReader  # type: ignore[attr-defined]  # not in its stubs
    return Graph(_read_graph(name, reader(read), len(nodes), dim), nodes)


def write_graph(
    path: Path,
    vectors: Floats,
    older: tuple[Path, int] | None = None,
    report: Callable[[int, int], None] | None = None,
) -> None:
    """Write a graph over ``vectors`` to ``path``.

    ``older`` is a graph and the number of its nodes, to which ``vectors`` are added. One thread
    does the work, so that the same vectors in the same steps give the same bytes.

    Raises:
        ValueError: ``older`` is not such a graph, or cannot be read.
        OSError: the graph cannot be written.

    """
    if older is None:
        walk = faiss.IndexHNSWFlat(vectors.shape[1], NEIGHBOURS, faiss.METRIC_INNER_PRODUCT)
        walk.hnsw.efConstruction = BUILD_WIDTH
    else:
        path_before, count = older
        walk = _read_graph(path_before.name, str(path_before), count, vectors.shape[1])
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        for begin in range(0, len(vectors), _STEP):
            walk.add(np.ascontiguousarray(vectors[begin : begin + _STEP]))
            if report is not None:
                report(min(begin + _STEP, len(vectors)), len(vectors))
    finally:
        faiss.omp_set_num_threads(threads)
    try:
        faiss.write_index(walk, str(path))
    except RuntimeError as error:
        # FAISS's message, for a full disk for example, quotes its source code.
        raise OSError(f"FAISS {faiss.__version__} could not write its graph") from error


def _read_graph(name: str, source: Any, count: int, dim: int) -> Any:
    try:
        walk = faiss.read_index(source)
    except RuntimeError as error:
        raise ValueError(f"{name} cannot be read by FAISS {faiss.__version__}") from error
    if not isinstance(walk, faiss.IndexHNSWFlat) or (walk.ntotal, walk.d) != (count, dim):
        raise ValueError(f"{name} is not a graph of {count} vectors of {dim} numbers")
    return walk
