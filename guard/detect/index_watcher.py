"""Watches a bias index in its folder and loads new versions.

Why: docs/decisions/followed-index-by-a-thread.md.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import weakref
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue

from guard.detect.shutdown import leaves_at_exit
from guard.errors import BiasIndexError
from guard.forks import Lock
from guard.retrieve.folder import folder_state
from guard.retrieve.index import BiasIndex

_log = logging.getLogger("guard")

# Seconds between checks of the manifest (1 KB) and the sizes of its files. With 100,000 statements
# to load, a new version is in use within a second after its manifest was replaced.
INTERVAL = 0.2
# An unusable index is tried again, as its files may still be being copied; with at most this many
# checks between two tries.
_LONGEST_PAUSE = 120


class IndexWatcher:
    """Holds the newest usable index of a folder. Thread-safe.

    A daemon thread checks the folder and loads new versions, so that judging never waits for it
    (except the first call after a fork). The thread ends with this object.

    Raises:
        BiasIndexError: the folder has no usable index. A later unusable version is logged once,
            and the previous one stays in use.

    """

    def __init__(self, folder: Path, embedder: str, dim: int | None = None) -> None:
        self._folder = folder
        self._load = partial(BiasIndex.load, folder, embedder, dim)
        # Read before loading, so that a change during loading is noticed.
        self._seen = folder_state(folder)
        #: The index in use.
        self.index = self._load()
        self._failed: bytes | None = None
        self._fails = self._pause = 0
        self._start_thread()

    def current(self) -> BiasIndex:
        """Return the index in use; restart the watching thread after a fork."""
        if self._owner != os.getpid():  # a fork has left the thread behind
            with _forked:
                if self._owner != os.getpid():
                    # The caller waits for this check: the fork may be long ago.
                    self.check()
                    self._start_thread()
        return self.index

    def stop(self) -> None:
        """Stop watching."""
        self._stop.put(None)

    def leave(self) -> list[threading.Thread]:
        """Stop watching; return the thread, which may still run."""
        self.stop()
        return [self._thread]

    def check(self) -> None:
        """Load the index if its manifest, or a file that it names, has changed."""
        manifest = b""
        try:
            state = folder_state(self._folder)
            manifest = state[0]
            if state == self._seen:
                self._failed = None
                return
            if manifest == self._failed and self._pause:
                self._pause -= 1
                return
            index = self._load()
        except Exception as error:
            self._failed_with(manifest, error)
            return
        self._seen, self._failed = state, None
        if index.version != self.index.version:
            self.index = index
            _log.info("the bias index at %s has the version %s now", self._folder, index.version)

    def _failed_with(self, manifest: bytes, error: Exception) -> None:
        if manifest != self._failed:
            self._fails = 0
            # A BiasIndexError quotes file names only; of other errors only the type is logged.
            what = str(error) if isinstance(error, BiasIndexError) else type(error).__name__
            _log.error("version %s of the bias index stays in use: %s", self.index.version, what)
        self._failed = manifest
        self._fails += 1
        self._pause = min(2**self._fails, _LONGEST_PAUSE)

    def _start_thread(self) -> None:
        self._owner = os.getpid()
        # A new one: a forked copy's lock may be held for ever. A queue, because the garbage
        # collector may find this object in the thread that waits, where an Event would deadlock.
        self._stop: SimpleQueue[None] = SimpleQueue()
        weakref.finalize(self, self._stop.put, None).atexit = False
        args = (weakref.ref(self), self._stop)
        self._thread = threading.Thread(
            target=_watch_folder, args=args, name="guard-index", daemon=True
        )
        self._thread.start()
        leaves_at_exit(self)


# In a forked process, one thread makes the first check and the others wait for it.
_forked = Lock()


def _watch_folder(reference: weakref.ref[IndexWatcher], stop: SimpleQueue[None]) -> None:
    while True:
        with contextlib.suppress(Empty):
            return stop.get(timeout=INTERVAL)
        watcher = reference()
        if watcher is None:
            return None
        watcher.check()
        del watcher  # otherwise the object would never be collected
