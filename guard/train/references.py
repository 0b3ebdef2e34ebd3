"""The training-time bias index, subsampled for every batch."""

from __future__ import annotations

import hashlib
import random
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from guard.errors import UsageError
from guard.train import checkpoint
from guard.train.model import DIM
from guard.train.rows import Statement, TrainingRow
from guard.verdict import BIAS_TYPES

Vectors = NDArray[np.float32]
# A statement this close to a text is a copy of it.
TOO_CLOSE = 0.98
NEIGHBOURS = 64
NO_REFERENCES = 0.15
MOST_DROPPED = 0.95


class Hits(NamedTuple):
    """References of a batch: vectors (n, k, dim), type ids (n, k) and which slots are filled."""

    vectors: Vectors
    types: NDArray[np.int64]
    mask: NDArray[np.bool_]


def cached(path: Path, texts: Sequence[str], embed: Callable[[Sequence[str]], Vectors]) -> Vectors:
    """Return ``embed(texts)``, cached in ``path`` (npz) by the texts' hashes.

    Stored as float16 and returned as float32, also on the first call, so that runs agree.

    Raises UsageError if the cache is damaged or cannot be written.
    """
    keys = [hashlib.sha256(t.encode()).hexdigest()[:20] for t in texts]
    known: dict[str, NDArray[np.float16]] = {}
    if path.exists():
        try:
            with np.load(path) as stored:
                known = dict(zip(stored["keys"].tolist(), stored["vectors"], strict=True))
        except (ValueError, LookupError, EOFError, TypeError, zipfile.BadZipFile):
            raise UsageError(f"{path} is damaged; delete it and run the command again.") from None
    missing = {k: t for k, t in zip(keys, texts, strict=True) if k not in known}
    if missing:
        vectors = embed(list(missing.values())).astype(np.float16)
        known |= dict(zip(missing, vectors, strict=True))
        with checkpoint.replacing(path) as part, part.open("wb") as file:
            np.savez(file, keys=np.array(list(known)), vectors=np.stack(list(known.values())))
    return np.stack([known[k] for k in keys]).astype(np.float32) if keys else _NONE


_NONE: Vectors = np.zeros((0, DIM), np.float32)


class TrainIndex:
    """Finds references for rows by the teacher's vectors; partners come on top.

    ``vectors`` (rows, dim) are the teacher's embeddings of the rows' texts, and the targets of
    the embedding head.
    """

    def __init__(
        self,
        rows: Sequence[TrainingRow],
        statements: Sequence[Statement],
        embed: Callable[[Sequence[str]], Vectors],
        cache: Path,
        k: int,
        floor: float,
    ) -> None:
        self._rows, self._k, self._floor = rows, k, floor
        self.vectors = cached(cache, [r.text for r in rows], embed)
        self._index = cached(cache, [s.text for s in statements], embed)
        self._types = np.array([BIAS_TYPES.index(s.bias_type) for s in statements], np.int64)
        partners = [(i, p) for i, r in enumerate(rows) for p in r.partners]
        self._partner_vectors = cached(cache, [p.text for _, p in partners], embed)
        self._partner_types = [BIAS_TYPES.index(p.bias_type) for _, p in partners]
        self._partners: dict[int, list[int]] = {}
        for n, (i, _) in enumerate(partners):
            self._partners.setdefault(i, []).append(n)
        self._near, self._similarity = self._neighbours(statements)

    def reachable(self, row: int) -> bool:
        """Whether every partner of the row is near enough to be retrieved at all."""
        own = self._partners.get(row, [])
        return all(self._partner_vectors[n] @ self.vectors[row] > self._floor for n in own)

    def _neighbours(self, statements: Sequence[Statement]) -> tuple[NDArray[np.int64], Vectors]:
        count = min(NEIGHBOURS, len(statements))
        families: dict[str, list[int]] = {}
        for n, statement in enumerate(statements):
            families.setdefault(statement.family, []).append(n)
        near = np.zeros((len(self._rows), count), np.int64)
        similarity = np.zeros((len(self._rows), count), np.float32)
        for start in range(0, len(self._rows), 2048):
            block = self.vectors[start : start + 2048] @ self._index.T
            block[block >= TOO_CLOSE] = -1.0
            for i in range(len(block)):
                block[i, families.get(self._rows[start + i].family, [])] = -1.0
            top = np.argpartition(-block, count - 1, axis=1)[:, :count]
            values = np.take_along_axis(block, top, axis=1)
            order = np.argsort(-values, axis=1)
            near[start : start + 2048] = np.take_along_axis(top, order, axis=1)
            similarity[start : start + 2048] = np.take_along_axis(values, order, axis=1)
        return near, similarity

    def hits(self, batch: Sequence[int], rng: random.Random) -> Hits:
        """Return the references of a batch, from the index as subsampled for this batch."""
        out = self.no_hits(len(batch))
        draw = np.random.default_rng(rng.getrandbits(32))
        dropped = rng.random() * MOST_DROPPED
        used = draw.random(len(self._index)) >= dropped
        for slot, row in enumerate(batch):
            found: list[tuple[float, Vectors, int]] = []
            if rng.random() >= NO_REFERENCES:
                for n, s in zip(self._near[row], self._similarity[row], strict=True):
                    if s < self._floor or len(found) == self._k:
                        break
                    if used[n]:
                        found.append((float(s), self._index[n], int(self._types[n])))
            if rng.random() < self._rows[row].partner_share:
                for n in self._partners.get(row, []):
                    s = float(self._partner_vectors[n] @ self.vectors[row])
                    if s >= self._floor:
                        found.append((s, self._partner_vectors[n], self._partner_types[n]))
            found.sort(key=lambda hit: -hit[0])
            for j, (_, vector, kind) in enumerate(found[: self._k]):
                out.vectors[slot, j], out.types[slot, j] = vector, kind
                out.mask[slot, j] = True
        return out

    def no_hits(self, n: int) -> Hits:
        """Return empty slots for n rows."""
        return Hits(
            np.zeros((n, self._k, DIM), np.float32),
            np.zeros((n, self._k), np.int64),
            np.zeros((n, self._k), np.bool_),
        )
