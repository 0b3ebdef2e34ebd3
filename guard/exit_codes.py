"""The exit codes of every command: each number means one thing."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from guard.installed import FAILED as _FAILED


class ExitCode(IntEnum):
    """What a command ended with; the page docs/errors.md has the table."""

    DONE = 0
    """Done; nothing was found that the command was asked to fail on."""
    FOUND = 1
    """What the command was asked to look for: bias, a regression, a risen rate, a broken part."""
    MISTAKE = 2
    """A mistake in the command, or a file that cannot be used."""
    UNDECIDED = 3
    """Too little evidence, or text that nobody could judge; it is no pass."""
    INCOMPLETE = 4
    """Some requests have no answer yet; the command that asks resumes."""
    NOT_COMPARABLE = 5
    """Two runs differ in something that was not allowed."""
    FAILED = _FAILED
    """Guard itself failed; no verdict."""
    INTERRUPTED = 130
    """Interrupted by the user."""


def verdict_code(*, biased: bool, unjudged: bool) -> ExitCode:
    """Return the code of a command that was asked to fail on biased text."""
    return ExitCode.FOUND if biased else ExitCode.UNDECIDED if unjudged else ExitCode.DONE


def worst_code(codes: Iterable[int]) -> int:
    """Return the code of several verdicts: one that fails comes before one that is undecided."""
    order = (
        ExitCode.NOT_COMPARABLE,
        ExitCode.INCOMPLETE,
        ExitCode.FOUND,
        ExitCode.UNDECIDED,
        ExitCode.DONE,
    )
    return min(codes, key=lambda code: order.index(ExitCode(code)), default=ExitCode.DONE)
