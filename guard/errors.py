"""Every error a user of guard can meet, each carrying one sentence that says how to mend it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from guard.verdict import GuardTrail


class GuardError(Exception):
    """Base of all errors raised by guard."""


class UsageError(GuardError, ValueError):
    """The caller gave something that cannot be used; the command line exits with code 2."""


class ConfigError(UsageError):
    """A setting is unknown or out of range, in a file, a variable or a keyword argument."""


class WeightsError(GuardError):
    """Shipped or downloaded weights are missing, or their hash is not the recorded one."""


class BiasIndexError(GuardError):
    """A bias index cannot be read, or was built with another embedder."""


class DetectorError(GuardError):
    """A detector failed or ran out of time; the policy's failure mode says what follows."""


class BiasFound(GuardError):
    """Raised by the action ``raise``. Carries the trail; its text quotes nothing of the passage."""

    def __init__(self, message: str, trail: GuardTrail) -> None:
        super().__init__(message)
        self.trail = trail

    def __reduce__(self) -> tuple[type[BiasFound], tuple[str, GuardTrail]]:
        # The trail is no argument of the exception: its repr would quote the passage.
        return type(self), (str(self), self.trail)
