"""The settings of a server: the variables that name them, and its limits."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass

from guard.errors import ConfigError

TOKEN = "GUARD_SERVE_TOKEN"
HOSTS = "GUARD_SERVE_HOSTS"
QUEUE = "GUARD_SERVE_QUEUE"
TIMEOUT = "GUARD_SERVE_TIMEOUT"

MOST_QUEUE = 1_000_000
MOST_WINDOWS = 64  # of a request
#: Characters of a window with its context; guard's own have some thousand.
MOST_CHARACTERS = 50_000
MOST_BYTES = 4 * 1024 * 1024  # of a request
#: Seconds that a request without a deadline waits, and the longest that one may wait.
LONGEST_WAIT_S = 60.0
MOST_VERSIONS = 4  # of the index, which are kept for running streams


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits of a server.

    ``queue`` is the most windows that are accepted and not answered yet, ``windows`` those of a
    request; ``timeout_s`` is the time limit of one call of the detector, in seconds.
    """

    queue: int = 512
    windows: int = MOST_WINDOWS
    timeout_s: float = 5.0


USUAL_LIMITS = ServerLimits()


def limits_of(queue: int, timeout_s: float) -> ServerLimits:
    """Return the limits of a server with such a queue: no request may be longer than it."""
    return ServerLimits(queue, min(queue, MOST_WINDOWS), timeout_s)


def read_limits(environment: Mapping[str, str] = os.environ) -> ServerLimits:
    """Return the limits that the variables set; raises ConfigError if one is wrong."""
    queue = environment.get(QUEUE, str(USUAL_LIMITS.queue))
    if not (queue.isdecimal() and len(queue) < 10 and 1 <= int(queue) <= MOST_QUEUE):
        raise ConfigError(
            f"{QUEUE} takes a whole number of windows from 1 to {MOST_QUEUE:,}, got {queue[:80]!r}."
        )
    timeout = environment.get(TIMEOUT, str(USUAL_LIMITS.timeout_s))
    try:
        seconds = float(timeout)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= LONGEST_WAIT_S:  # nan is not
        raise ConfigError(
            f"{TIMEOUT} takes seconds above 0 and up to {LONGEST_WAIT_S:g}, got {timeout[:80]!r}."
        )
    return limits_of(int(queue), seconds)
