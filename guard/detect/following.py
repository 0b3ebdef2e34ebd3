"""Follows a bias index in its folder, so that what writers change there is soon in use."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from functools import partial
from pathlib import Path

from guard.detect.shutdown import leaves_at_exit
from guard.errors import BiasIndexError
from guard.forks import Lock
from guard.retrieve.folder import state
from guard.retrieve.index import BiasIndex

_log = logging.getLogger("guard")

# Seconds between looks at the manifest, a file of 1 KB, and at the sizes of what it names. With the
# loading of 100,000 statements a change is in use within a second of the manifest's replacement.
INTERVAL = 0.2
# An index that cannot be used is tried again, in case its files are still being copied; at most
# this many looks lie between two tries.
_LONGEST_PAUSE = 120


class Follower:
    """Keeps the newest usable index of a folder at hand. Thread-safe.

    A daemon thread looks at the folder and loads what is new, so nobody waits for it; nobody
    asks the folder while text is judged, but for the first to ask after a fork. The thread ends
    with this object.

    Raises:
        BiasIndexError: the folder holds no index that can be used; later ones that cannot be are
            logged once, and the index before stays in use.

    """

    def __init__(self, folder: Path, embedder: str, dim: int | None = None) -> None:
        self._folder = folder
        self._load = partial(BiasIndex.load, folder, embedder, dim)
        # Read first: a change while the index is loaded is then a change.
        self._seen = state(folder)
        #: The index in use.
        self.index = self._load()
        self._failed: bytes | None = None
        self._fails = self._pause = 0
        self._start()

    def current(self) -> BiasIndex:
        """Return the index in use, and go on following."""
        if self._owner != os.getpid():  # a fork has left the thread behind
            with _forked:
                if self._owner != os.getpid():
                    # The only look that somebody waits for: the fork may be long ago.
                    self.look()
                    self._start()
        return self.index

    def stop(self) -> None:
        """Follow no longer."""
        self._stop.set()

    def leave(self) -> list[threading.Thread]:
        """Follow no longer; return the thread, which may not be done yet."""
        self.stop()
        return [self._thread]

    def look(self) -> None:
        """Load the index if its manifest, or a file that it names, is another than before."""
        manifest = b""
        try:
            found = state(self._folder)
            manifest = found[0]
            if found == self._seen:
                self._failed = None
                return
            if manifest == self._failed and self._pause:
                self._pause -= 1
                return
            index = self._load()
        except Exception as error:
            self._note(manifest, error)
            return
        self._seen, self._failed = found, None
        if index.version != self.index.version:
            self.index = index
            _log.info("the bias index at %s has the version %s now", self._folder, index.version)

    def _note(self, manifest: bytes, error: Exception) -> None:
        if manifest != self._failed:
            self._fails = 0
            # Errors of an index quote its files and no passage; of others the type is enough.
            what = str(error) if isinstance(error, BiasIndexError) else type(error).__name__
            _log.error("version %s of the bias index stays in use: %s", self.index.version, what)
        self._failed = manifest
        self._fails += 1
        self._pause = min(2**self._fails, _LONGEST_PAUSE)

    def _start(self) -> None:
        self._owner = os.getpid()
        # A forked event may have been copied while somebody held its lock.
        self._stop = threading.Event()
        weakref.finalize(self, self._stop.set).atexit = False
        args = (weakref.ref(self), self._stop)
        self._thread = threading.Thread(target=_follow, args=args, name="guard-index", daemon=True)
        self._thread.start()
        leaves_at_exit(self)


# Threads of a forked process that ask first wait for one look.
_forked = Lock()


def _follow(reference: weakref.ref[Follower], stop: threading.Event) -> None:
    while not stop.wait(INTERVAL):
        follower = reference()
        if follower is None:
            return
        follower.look()
        del follower  # or it would never end
