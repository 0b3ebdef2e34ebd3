"""All errors that guard raises; each has one sentence that names the cause and the remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from guard.verdict import GuardTrail


class GuardError(Exception):
    """Base of all errors raised by guard."""


class UsageError(GuardError, ValueError):
    """An argument cannot be used; the command line exits with code 2."""


class ConfigError(UsageError):
    """A setting is unknown or out of range, in a file, a variable or a keyword argument."""


class WeightsError(GuardError):
    """Shipped or downloaded weights are missing, or their hash is not the recorded one."""


class BiasIndexError(GuardError):
    """A bias index cannot be read, or was built with another embedder."""


class DetectorError(GuardError):
    """A detector failed or exceeded its time limit; see ``Policy.failure``."""


class BiasFound(GuardError):
    """Raised by the action ``raise``. Carries the trail; its message does not quote the passage."""

    def __init__(self, message: str, trail: GuardTrail) -> None:
        super().__init__(message)
        self.trail = trail

    def __reduce__(self) -> tuple[type[BiasFound], tuple[str, GuardTrail]]:
        # The trail is not in `args`: the exception's repr would quote the passage.
        return type(self), (str(self), self.trail)
