"""What a run was to ask, for reports: a suite that it skipped or did not reach has no record.

The file ``asked.json`` lies beside the run's file and holds suites, models and reasons, no answer.
It is of the last command that wrote into the folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from guard.audit.files import ASKED_FILE, write_whole
from guard.errors import UsageError


@dataclass(frozen=True, slots=True)
class AskedSuite:
    """A suite that a model was to be asked; ``skipped`` says why it could not be, else is empty."""

    suite: str
    model: str
    skipped: str = ""

    @property
    def name(self) -> str:
        """The suite with its model, as reports of several models name it."""
        return with_model(self.suite, self.model)

    @property
    def no_answer_sentence(self) -> str:
        """The sentence of a report on a suite without any answer."""
        return (
            f"{self.name} has no answer yet: it was not reached, or the model could not be asked; "
            "run the command again, which says why."
        )


def with_model(suite: str, model: str) -> str:
    """Return a suite's name or title with the model that is asked; without one, as it is."""
    return f"{suite} · {model}" if model else suite


def write_asked(folder: Path, asked: Iterable[AskedSuite]) -> None:
    """Write ``asked`` beside the run's file in ``folder``; raises UsageError where that fails."""
    text = json.dumps([asdict(suite) for suite in asked], indent=1) + "\n"
    try:
        write_whole(folder / ASKED_FILE, text)
    except OSError as error:
        raise UsageError(f"{folder / ASKED_FILE} cannot be written: {error.strerror}.") from None


def read_asked(folder: Path) -> list[AskedSuite]:
    """Return what the last run in ``folder`` was to ask; empty where no run says so.

    Raises UsageError where the file is damaged.
    """
    path = folder / ASKED_FILE
    if not path.exists():
        return []
    try:
        return [AskedSuite(**entry) for entry in json.loads(path.read_text("utf-8"))]
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(
            f"{path} cannot be read ({error}), so what the run left out is not known; run its "
            "command again."
        ) from None
