"""The statements of an index with the vectors of other weights, made while guards serve."""

from __future__ import annotations

import logging
import os
import threading

import numpy as np

from guard.detect.encoder import Encoder
from guard.detect.shutdown import leaves_at_exit
from guard.forks import Lock
from guard.retrieve.index import BiasIndex

_log = logging.getLogger("guard")
#: An index of more statements is not mirrored: it would be searched exactly, in 2 ms and more.
MOST = 20_000


class Mirror:
    """Holds the latest index that was asked for, with vectors of ``embedder``. Thread-safe.

    The vectors are computed in a daemon thread, 4 ms a statement; those of ``known`` (an index of
    ``embedder``) and of the mirror before are taken over.
    """

    def __init__(self, embedder: Encoder, known: BiasIndex) -> None:
        self._embedder = embedder
        self._known = known
        self._lock = Lock()
        self._made: tuple[str, BiasIndex] | None = None
        self._wanted: BiasIndex | None = None
        self._refused = ""  # the version that has no mirror
        self._thread: threading.Thread | None = None
        self._owner = 0
        leaves_at_exit(self)

    def of(self, index: BiasIndex) -> BiasIndex | None:
        """Return the mirror of an index; None until it is made, if ever. Does not wait."""
        with self._lock:
            if self._made is not None and self._made[0] == index.version:
                return self._made[1]
            if index.version == self._refused:
                return None
            if _same_statements(index, self._known):
                self._made = index.version, self._known
                return self._known
            if len(index) > MOST:
                self._refused = index.version
                _log.warning(
                    "the bias index has %d statements, more than %d: the cascade's last detector "
                    "judges every segment", len(index), MOST
                )  # fmt: skip
                return None
            self._wanted = index
            # A fork leaves the thread behind.
            if self._thread is None or self._owner != os.getpid() or not self._thread.is_alive():
                self._owner = os.getpid()
                self._thread = threading.Thread(
                    target=self._make_mirrors, name="guard-mirror", daemon=True
                )
                self._thread.start()
            return None

    def wait(self, index: BiasIndex, seconds: float) -> BiasIndex | None:
        """Return the mirror of an index; wait until it is made, at most so long."""
        mirror, thread = self.of(index), self._thread
        if mirror is None and thread is not None:
            thread.join(seconds)
            mirror = self.of(index)
        return mirror

    def leave(self) -> list[threading.Thread]:
        """Stop the work; return the thread, which may still run."""
        self._wanted = None
        return [] if self._thread is None else [self._thread]

    def _make_mirrors(self) -> None:
        while True:
            with self._lock:
                index = self._wanted
                if index is None:
                    self._thread = None
                    return
            try:
                mirror = self._make_mirror(index)
            except Exception as error:
                # Only the type: a message might quote a statement.
                _log.error("no vectors of a bias index for a cascade: %s", type(error).__name__)
                mirror = None
                self._refused = index.version
            with self._lock:
                if mirror is not None:
                    self._made = index.version, mirror
                if self._wanted is index:
                    self._wanted = None

    def _make_mirror(self, index: BiasIndex) -> BiasIndex | None:
        """Return the mirror of an index; None if another one is wanted meanwhile."""
        indexes = [self._known] if self._made is None else [self._known, self._made[1]]
        rows = {s.statement: (of, row) for of in indexes for row, s in enumerate(of.statements)}
        vectors = np.empty((len(index), self._known.dim), np.float32)
        for vector, statement in zip(vectors, index.statements, strict=True):
            if self._wanted is not index:
                return None
            if (known := rows.get(statement.statement)) is not None:
                vector[:] = known[0].vectors_of([known[1]])[0]
            else:
                vector[:] = self._embedder.embed([statement.statement])[0]
        return BiasIndex(index.statements, vectors, self._embedder.name)


def _same_statements(first: BiasIndex, other: BiasIndex) -> bool:
    """Whether two indexes have the same statements in the same order."""
    return len(first) == len(other) and list(first.statements) == list(other.statements)
