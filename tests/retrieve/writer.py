"""A process that changes a bias index, for tests: ``python -m tests.retrieve.writer``."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

from guard.retrieve import graph, store
from guard.retrieve.index import BiasIndex
from guard.retrieve.statement import BiasStatement


class Drawn:
    """An embedder whose vectors are drawn by the text; it counts what it embeds."""

    name = "drawn-1"

    def __init__(self, dim: int = 16) -> None:
        self.dim = dim
        self.texts: list[str] = []

    def embed(self, texts):
        self.texts += texts
        rows = [np.random.default_rng(list(t.encode())).standard_normal(self.dim) for t in texts]
        vectors = np.array(rows, np.float32).reshape(len(texts), self.dim)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def batch(name: str, number: int, size: int = 3) -> list[BiasStatement]:
    """The statements of one ``add``: all of them are in an index, or none."""
    return [
        BiasStatement(
            f"Ruritanians of {name} {number} {i} never pay.", "culture", "they", "never pay"
        )
        for i in range(size)
    ]


def add_batches(folder: Path, name: str, count: int) -> None:
    for number in range(count):
        store.add_statements(folder, batch(name, number), Drawn())


def kill_often(folder: Path, times: int, seed: int) -> None:
    """Kill a process that adds batches, again and again; check the index after each kill."""
    draw = random.Random(seed)
    begin = time.perf_counter()
    add_batches(folder, "timed", 3)
    longest = 2 * (time.perf_counter() - begin)
    before = set(BiasIndex.load(folder, "drawn-1").statements)
    grew = 0
    for round_ in range(times):
        child = os.fork()
        if not child:
            add_batches(folder, f"round{round_}", 1000)
            os._exit(0)
        time.sleep(draw.uniform(0, longest))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        index = BiasIndex.load(folder, "drawn-1")
        whole = set(index.statements)
        new = whole - before
        assert before <= whole, "a statement was lost"
        count = len(new) // 3
        every = {s for n in range(count) for s in batch(f"round{round_}", n)}
        assert new == every, "an add is there by half"
        np.testing.assert_array_equal(
            index.vectors, Drawn().embed([s.statement for s in index.statements])
        )
        assert index.search(index.vectors[-1:], 1, 0.9)[0][0].row == len(index) - 1
        grew += bool(new)
        before = whole
    # Or the kills came too early to show anything.
    assert grew >= times // 5, f"only {grew} of {times} writers added anything"
    last = store.add_statements(folder, batch("last", 0), Drawn())
    assert last.added == 3
    left = [n for n in os.listdir(folder) if n.startswith(".writing")]
    assert not left, f"{left} were not swept"


if __name__ == "__main__":
    what, place, *rest = sys.argv[1:]
    graph.GRAPH_FROM = 10
    if what == "add":
        add_batches(Path(place), rest[0], int(rest[1]))
    else:
        kill_often(Path(place), int(rest[0]), int(rest[1]))
