"""The addresses of a served detector: which to ask next, and which answer well.

A daemon thread for each address asks it what it serves, :data:`INTERVAL` after the last answer. So
an address that failed is used again soon after it answers well, at no stream's cost and whichever
others hang, and a new version of the index is in use within that time. Which addresses fail is a
preference alone: where none answers well, all are asked as before, and the policy's breaker limits
how often.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import random
import ssl
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

from guard.detect.description import DetectorDescription
from guard.detect.served_http import HttpConnections, HttpReply, ServedFailure
from guard.detect.shutdown import leaves_at_exit
from guard.detect.wire import DEADLINE, DETECTOR_PATH, SCORES_PATH, MalformedMessage
from guard.forks import Lock
from guard.served_settings import ServedSettings, ServerAddress

_log = logging.getLogger("guard")
#: Seconds between two looks at an address; one that failed is skipped as long.
INTERVAL = 1.0
_LOOK_S = 2.0  # that a look may take
_LONGEST_REST = 5.0  # seconds, of what an overloaded server asks for


class ServedAddress:
    """One address, with its connections and what is known of it."""

    def __init__(
        self, address: ServerAddress, settings: ServedSettings, context: ssl.SSLContext | None
    ) -> None:
        self.address = address
        self.works = True
        self._reason = ""  # why it is skipped
        self.lacks: str | None = None  # the version of the index that it last had no session of
        self._rests_until = 0.0
        headers = {"Content-Type": "application/json"}
        if settings.token is not None:
            headers["Authorization"] = f"Bearer {settings.token}"
        self._http = HttpConnections(address, settings.concurrency, context, headers)

    def __str__(self) -> str:
        return str(self.address)

    @property
    def rests(self) -> bool:
        """Whether it is overloaded and asked to be left alone for a while."""
        return time.monotonic() < self._rests_until

    def rest(self, seconds: float) -> None:
        """Prefer other addresses for so long."""
        self._rests_until = time.monotonic() + min(max(seconds, 0.1), _LONGEST_REST)

    def ask(self, body: bytes, until: float) -> HttpReply:
        """Return the answer to a request for scores; raises ServedFailure if there is none."""
        left = until - time.monotonic()
        return self._http.ask(
            "POST", SCORES_PATH, body, until, f"{DEADLINE}: {left * 1000:.0f}\r\n"
        )

    def describe(self, until: float) -> DetectorDescription:
        """Return what the address serves; raises ServedFailure if it does not tell."""
        reply = self._http.ask("GET", DETECTOR_PATH, b"", until)
        if reply.status != 200:
            raise ServedFailure(refusal_of(reply))
        try:
            return DetectorDescription.read(json.loads(reply.body))
        except MalformedMessage as error:
            raise ServedFailure(str(error)) from None
        except (ValueError, RecursionError):
            raise ServedFailure("its answer is no JSON") from None

    def failed(self, reason: str) -> None:
        """Skip it from now on; log why, once until the reason changes."""
        if self._reason != reason:
            _log.warning("the served detector at %s is skipped: %s", self, reason)
        self.works, self._reason = False, reason

    def recovered(self) -> None:
        """Use it again."""
        if not self.works:
            _log.warning("the served detector at %s answers again", self)
        self.works, self._reason = True, ""


def refusal_of(reply: HttpReply) -> str:
    """Return in words why a server refused; never what it said."""
    known = {
        301: "it redirects, which is not followed",
        302: "it redirects, which is not followed",
        307: "it redirects, which is not followed",
        308: "it redirects, which is not followed",
        401: "it wants another token: set served.token",
        403: "it wants a token: set served.token",
        404: "it has no served detector at this address",
        421: "it does not answer to this host name: start it with --allow-host",
    }
    return known.get(reply.status, f"it answered with the status {reply.status}")


class AddressBook:
    """The addresses, in turn; begins at a random one, so that many clients spread."""

    def __init__(
        self,
        addresses: Sequence[ServedAddress],
        look: Callable[[ServedAddress], None],
        index_version: str | None,
    ) -> None:
        #: The version of the index that new sessions use.
        self.index_version = index_version
        self._addresses = list(addresses)
        self._turn = itertools.count(random.randrange(len(addresses)))
        self._watches = [_AddressWatch(address, look) for address in addresses]
        self._ensure_watched()

    def newest_version(self) -> str | None:
        """Return the version of the index that a new session uses."""
        self._ensure_watched()
        return self.index_version

    def _ensure_watched(self) -> None:
        for watch in self._watches:
            watch.ensure()  # a fork leaves the threads behind

    def in_order(self, version: str | None) -> list[ServedAddress]:
        """Return all addresses, the next one to ask for a version of the index first.

        Those that work, have the version and are not overloaded come before the others.
        """
        count, turn = len(self._addresses), next(self._turn)
        turned = [self._addresses[(turn + i) % count] for i in range(count)]
        if count == 1:
            return turned
        return sorted(
            turned,
            key=lambda a: (not a.works, version is not None and a.lacks == version, a.rests),
        )


class _AddressWatch:
    """The thread that looks at an address; it ends with this object."""

    def __init__(self, address: ServedAddress, look: Callable[[ServedAddress], None]) -> None:
        self._address = address
        self._look = look
        self._lock = Lock()
        self._owner = 0

    def ensure(self) -> None:
        """Start the thread, unless this process has."""
        if self._owner == os.getpid():
            return
        with self._lock:
            if self._owner == os.getpid():
                return
            # A queue, because the garbage collector may find this object in the thread that waits.
            self._stop: SimpleQueue[None] = SimpleQueue()
            weakref.finalize(self, self._stop.put, None).atexit = False
            args = (weakref.ref(self), self._stop)
            threading.Thread(
                target=_watch_address, args=args, name="guard-served", daemon=True
            ).start()
            leaves_at_exit(self)
            self._owner = os.getpid()

    def leave(self) -> list[threading.Thread]:
        """Stop looking; the thread calls no native code, so nothing waits for it."""
        self._stop.put(None)
        return []

    def look(self) -> None:
        """Look at the address, once."""
        self._look(self._address)


def _watch_address(reference: weakref.ref[_AddressWatch], stop: SimpleQueue[None]) -> None:
    while True:
        with contextlib.suppress(Empty):
            return stop.get(timeout=INTERVAL)
        watch = reference()
        if watch is None:
            return None
        watch.look()
        del watch  # otherwise the object would never be collected


def look_deadline() -> float:
    """Return until when a look may take."""
    return time.monotonic() + _LOOK_S
