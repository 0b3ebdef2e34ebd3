"""Measure the bias index: ``python benchmarks/speed/search.py --data FOLDER [--at FOLDER]``.

``--data`` holds the published datasets that the importers read (emgsd, implicit_hate, seegull,
stereoset) and RedditBias, whose comments are searched for. An index of 41,000 statements is built
in the folder ``--at``, where the next run finds it; without it the index is temporary.
Embedding takes some minutes. Where the importers find fewer statements, posts of implicit_hate fill
the index up: for its speed it makes no difference who a post is about.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from guard.datasets.rows import json_lines
from guard.detect.encoder import Encoder
from guard.detect.index_watcher import IndexWatcher
from guard.places import shipped
from guard.retrieve import store
from guard.retrieve.graph import GRAPH_FROM
from guard.retrieve.importers import read_dataset
from guard.retrieve.index import BiasIndex
from guard.retrieve.statement import BiasStatement, fold_words

COUNT = 41_000
QUERIES = 1_000
K = 5
# Files of the published datasets, with their format where their columns do not tell it.
FILES = (
    ("emgsd/train.jsonl", "emgsd"),
    ("emgsd/eval.jsonl", "emgsd"),
    ("implicit_hate/implied.jsonl", None),
    ("seegull/pairs.jsonl", None),
    ("stereoset/intrasentence.jsonl", None),
)
POSTS = "implicit_hate/posts.jsonl"
COMMENTS = "redditbias"


class Figure(NamedTuple):
    """One measured value beside its bound."""

    name: str
    value: float
    unit: str
    bound: str


def statements(data: Path, known: set[str]) -> Iterator[BiasStatement]:
    """Yield statements of the datasets whose words are not ``known``, then posts."""
    for file, kind in FILES:
        for statement in read_dataset(data / file, kind, skip_bad=True):
            words = fold_words(statement.statement)
            if words not in known:
                known.add(words)
                yield statement
    for row in json_lines(data / POSTS):
        post = " ".join(row["post"].split())
        if (words := fold_words(post)) and words not in known:
            known.add(words)
            yield BiasStatement(post, "social", "unknown", "unknown")


def comments(data: Path) -> list[str]:
    """Return comments to search for, spread over all files."""
    found = []
    for file in sorted((data / COMMENTS).rglob("*.jsonl")):
        texts = (str(row.get("comment") or "").strip() for row in json_lines(file))
        found += [text for text in texts if text]
    unique = list(dict.fromkeys(found))
    return unique[:: max(1, len(unique) // QUERIES)][:QUERIES]


def built(folder: Path, data: Path, encoder: Encoder) -> None:
    """Build the index where it is not there yet: the shipped statements, and those of the data."""
    if (folder / "manifest.json").is_file():
        return
    base = BiasIndex.load(shipped("index"), encoder.name)
    known = {fold_words(s.statement) for s in base.statements}
    every = list(statements(data, known))[: COUNT - len(base)]

    def report(doing: str, done: int, total: int) -> None:
        print(f"\r{doing} {done} of {total}   ", end="", file=sys.stderr)

    store.create_index(folder, every, encoder, base=base, report=report)
    print(file=sys.stderr)


def timed(run: Callable[[], Any]) -> float:
    """Return the seconds that ``run`` takes, the best of three."""
    best = float("inf")
    for _ in range(3):
        begin = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - begin)
    return best


def searched(index: BiasIndex, queries: Any) -> tuple[list[float], list[set[int]]]:
    """Return the milliseconds each query took, sorted, and the rows it found."""
    times, rows = [], []
    index.search(queries[:50], K, -1.0)
    for i in range(len(queries)):
        begin = time.perf_counter()
        [hits] = index.search(queries[i : i + 1], K, -1.0)
        times.append((time.perf_counter() - begin) * 1000)
        rows.append({hit.row for hit in hits})
    return sorted(times), rows


def searches(index: BiasIndex, queries: Any) -> list[Figure]:
    """Time the search by the graph beside that of every vector, in one thread."""
    exact = BiasIndex(index.statements, index.vectors, index.embedder)
    slow, right = searched(exact, queries)
    fast, found = searched(index, queries)
    recall = sum(len(a & b) for a, b in zip(right, found, strict=True)) / (K * len(right))

    def at(times: list[float], share: float) -> float:
        return times[min(len(times) - 1, int(len(times) * share))]

    return [
        Figure(f"search in {len(index)}, median", at(fast, 0.5), "ms", "<= 0.3"),
        Figure("search, 99th percentile", at(fast, 0.99), "ms", ""),
        Figure(f"recall@{K} of exact", recall, "share", ">= 0.99"),
        Figure("every vector, median", at(slow, 0.5), "ms", "for comparison"),
        Figure("every vector, 99th percentile", at(slow, 0.99), "ms", "for comparison"),
        Figure("graph : every vector", at(fast, 0.5) / at(slow, 0.5), "ratio", "< 0.2"),
    ]


def small(index: BiasIndex, queries: Any) -> list[Figure]:
    """Time the search of an index that is just too small for a graph."""
    rows = np.arange(min(len(index), GRAPH_FROM - 1))
    head = [index.statements[i] for i in rows.tolist()]
    times, _ = searched(BiasIndex(head, index.vectors_of(rows), index.embedder), queries)
    name = f"every vector of {len(head)}, median"
    return [Figure(name, times[len(times) // 2], "ms", "<= 0.3")]


def changes(folder: Path, encoder: Encoder) -> list[Figure]:
    """Time changes of a copy of the index, and how soon a guard that follows it sees one."""
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / "index"
        shutil.copytree(folder, copy)
        watcher = IndexWatcher(copy, encoder.name)
        row = BiasStatement(
            "Velmorians swap price tags.", "culture", "Velmorians", "swap price tags"
        )
        begin = time.perf_counter()
        change = store.add_statements(copy, [row], encoder)
        added = time.perf_counter()
        replaced = (copy / "manifest.json").stat().st_mtime
        while watcher.current().version != change.version:
            time.sleep(0.001)
        serves = time.time() - replaced
        seen = time.perf_counter()
        store.remove_statements(copy, groups=["Velmorians"])
        removed = time.perf_counter()
        watcher.stop()
    return [
        Figure("a statement added, on disk", added - begin, "s", ""),
        Figure("manifest replaced until it serves", serves, "s", "< 1"),
        Figure("a statement removed, on disk", removed - seen, "s", ""),
    ]


def main() -> None:
    """Measure everything and print a table."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--at", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = options.at or Path(place) / "index"
        encoder = Encoder(use_references=False)
        built(folder, options.data, encoder)
        index = BiasIndex.load(folder, encoder.name)
        queries = encoder.embed(comments(options.data))
        figures = [
            Figure("opening", timed(lambda: BiasIndex.load(folder, encoder.name)), "s", ""),
            *searches(index, queries),
            *small(index, queries),
            *changes(folder, encoder),
        ]
    if options.json:
        print(json.dumps([f._asdict() for f in figures]))
        return
    for figure in figures:
        print(f"{figure.name:38} {figure.value:9.3f} {figure.unit:6} {figure.bound}")


if __name__ == "__main__":
    main()
