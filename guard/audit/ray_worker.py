"""What runs in a worker on Ray: asks models for the driver, which owns the run's file.

Ray keeps the text of an exception in its state and in its log files, which may quote an answer or a
key. So errors are returned, not raised, and nothing is written to the worker's log.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from importlib.metadata import version

from guard import __version__
from guard.audit.calls import Reply, Slot
from guard.audit.models import CallError, Model
from guard.audit.sending import Sending
from guard.errors import GuardError
from guard.suites import Capability, Request


def versions() -> dict[str, str]:
    """Return what decides how a request is sent and its answer is read."""
    return {
        "guard": __version__,
        "litellm": version("litellm"),
        "Python": platform.python_version(),
    }


class AskingWorker:
    """Models by number, each with its own client; an actor class of Ray with async methods."""

    def __init__(self) -> None:
        self._models: dict[int, Model] = {}
        # LiteLLM may log a request.
        sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115

    async def begin(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Take the driver's environment variables; return :func:`versions`."""
        os.environ.update(variables)
        return versions()

    async def open(
        self, number: int, name: str, timeout_s: float, stream: bool, sending: Sending
    ) -> Exception | None:
        """Open the model ``name``; return the error if that fails."""
        from guard.audit.others import open_model

        try:
            self._models[number] = open_model(
                name, timeout_s=timeout_s, stream=stream, sending=sending
            )
        except Exception as error:
            return _portable_error(error)
        return None

    async def capabilities(
        self, number: int, wanted: frozenset[Capability]
    ) -> frozenset[Capability] | Exception:
        """Return which of ``wanted`` a model has, or the error."""
        try:
            return await self._models[number].capabilities(wanted)
        except Exception as error:
            return _portable_error(error)

    async def ask(self, number: int, request: Request, key: str, slot: Slot) -> Reply | Exception:
        """Return the answer to one request, or the error."""
        try:
            return await self._models[number].ask(request, key, slot)
        except Exception as error:
            return _portable_error(error)

    async def close(self, number: int) -> None:
        """Close a model, if it was opened."""
        model = self._models.pop(number, None)
        if model is not None:
            await model.aclose()


def _portable_error(error: Exception) -> Exception:
    """Return ``error`` without what cannot travel, or of a bug its type alone."""
    if isinstance(error, GuardError | CallError):
        error.__cause__ = error.__context__ = error.__traceback__ = None
        return error
    return RuntimeError(f"a worker failed: {type(error).__name__}")
