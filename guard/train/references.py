"""The training-time bias index, subsampled for every batch."""

from __future__ import annotations

import hashlib
import random
import zipfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from guard.errors import UsageError
from guard.train import checkpoint
from guard.train.base import Embed
from guard.train.config import TrainConfig
from guard.train.corpus import Corpus
from guard.train.model import DIM
from guard.train.rows import Statement
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


# Texts that are embedded before the cache is written.
_AT_ONCE = 10_000


def cached_vectors(path: Path, texts: Sequence[str], embed: Embed, width: int = DIM) -> Vectors:
    """Return ``embed(texts)``, (n, width), cached in ``path`` (npz) by the texts' hashes.

    They are saved as they are made. The numbers are rounded to float16, also on the first call, so
    that runs agree. Raises UsageError if the cache is damaged or cannot be written.
    """
    keys = [hashlib.sha256(t.encode()).hexdigest()[:20] for t in texts]
    known: dict[str, NDArray[np.float16]] = {}
    if path.exists():
        try:
            with np.load(path) as stored:
                known = dict(zip(stored["keys"].tolist(), stored["vectors"], strict=True))
        except (ValueError, LookupError, EOFError, TypeError, zipfile.BadZipFile):
            raise UsageError(f"{path} is damaged; delete it and run the command again.") from None
    if not all(key in known for key in keys):
        with checkpoint.alone_at(path):
            _add_vectors(known, path, dict(zip(keys, texts, strict=True)), embed)
    return np.array([known[k] for k in keys], np.float32).reshape(-1, width)


def _add_vectors(
    known: dict[str, NDArray[np.float16]], path: Path, texts: Mapping[str, str], embed: Embed
) -> None:
    """Add the vectors of ``texts``, by hash, and write all to ``path`` after each few."""
    unique = list(texts.items())
    for begin in range(0, len(unique), _AT_ONCE):
        missing = {k: t for k, t in unique[begin : begin + _AT_ONCE] if k not in known}
        if not missing:
            continue
        vectors = embed(list(missing.values())).astype(np.float16)
        known |= dict(zip(missing, vectors, strict=True))
        with checkpoint.replacing_file(path) as part, part.open("wb") as file:
            np.savez(file, keys=np.array(list(known)), vectors=np.stack(list(known.values())))


class TrainIndex:
    """Finds references for training rows by the embedder's vectors; partners come on top.

    ``vectors`` (rows, dim) are the embedder's vectors of the rows' texts, and the targets of
    the embedding head.
    """

    def __init__(self, corpus: Corpus, embed: Embed, config: TrainConfig) -> None:
        def vectors(texts: Sequence[str]) -> Vectors:
            return cached_vectors(config.vectors(), texts, embed)

        self._rows, self._k, self._floor = corpus.train, config.k, config.floor
        self.vectors = vectors([r.text for r in corpus.train])
        self._index = vectors([s.text for s in corpus.statements])
        self._types = [BIAS_TYPES.index(s.bias_type) for s in corpus.statements]
        partners = [(i, p) for i, r in enumerate(corpus.train) for p in r.partners]
        self._partners: dict[int, list[tuple[Vectors, int]]] = defaultdict(list)
        for (i, p), vector in zip(partners, vectors([p.text for _, p in partners]), strict=True):
            self._partners[i].append((vector, BIAS_TYPES.index(p.bias_type)))
        self._near, self._similarity = self._find_neighbours(corpus.statements, config.device)

    def reachable(self, row: int) -> bool:
        """Whether every partner of the row is near enough to be retrieved at all."""
        own = self._partners.get(row, ())
        return all(vector @ self.vectors[row] > self._floor for vector, _ in own)

    def _find_neighbours(
        self, statements: Sequence[Statement], device: str
    ) -> tuple[NDArray[np.int64], Vectors]:
        count = min(NEIGHBOURS, len(statements))
        families = defaultdict(list)
        for n, statement in enumerate(statements):
            families[statement.family].append(n)
        index = torch.from_numpy(self._index).to(device)
        near, similarity = [np.zeros((0, count), np.int64)], [np.zeros((0, count), np.float32)]
        for start in range(0, len(self._rows), 2048):
            block = torch.from_numpy(self.vectors[start : start + 2048]).to(device) @ index.T
            block[block >= TOO_CLOSE] = -1.0
            for i in range(len(block)):
                if own := families.get(self._rows[start + i].family):
                    block[i, own] = -1.0
            top = block.topk(count, dim=1)
            near.append(top.indices.cpu().numpy())
            similarity.append(top.values.cpu().numpy())
        return np.concatenate(near), np.concatenate(similarity)

    def hits(self, batch: Sequence[int], rng: random.Random) -> Hits:
        """Return the references of a batch, from the index as subsampled for this batch."""
        out = self.no_hits(len(batch))
        draw = np.random.default_rng(rng.getrandbits(32))
        dropped = rng.random() * MOST_DROPPED
        used = draw.random(len(self._index)) >= dropped
        for slot, row in enumerate(batch):
            candidates: list[tuple[float, Vectors, int]] = []
            if rng.random() >= NO_REFERENCES:
                for n, s in zip(self._near[row], self._similarity[row], strict=True):
                    if s < self._floor or len(candidates) == self._k:
                        break
                    if used[n]:
                        candidates.append((float(s), self._index[n], self._types[n]))
            if rng.random() < self._rows[row].partner_share:
                for vector, kind in self._partners.get(row, ()):
                    s = float(vector @ self.vectors[row])
                    if s >= self._floor:
                        candidates.append((s, vector, kind))
            candidates.sort(key=lambda hit: -hit[0])
            for j, (_, vector, kind) in enumerate(candidates[: self._k]):
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
