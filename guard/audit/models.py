"""The model under audit: what it can do, and how it is asked."""

from __future__ import annotations

from typing import Protocol

from guard.audit.calls import Reply, Slot
from guard.audit.sending import Sending
from guard.errors import UsageError
from guard.suites import Capability, Request


class Model(Protocol):
    """Anything an audit can ask. ``name`` is what the report and the journal call it."""

    name: str
    most: int | None
    """So many calls at a time are of use; None where the user's limit is the only one."""

    async def capabilities(self, wanted: frozenset[Capability]) -> frozenset[Capability]:
        """Return which of ``wanted`` the model has; may ask it once."""
        ...

    async def ask(self, request: Request, key: str, slot: Slot) -> Reply:
        """Answer one request, once. Raises :class:`CallError`, or GuardError to end the audit."""
        ...

    async def aclose(self) -> None:
        """Let go of connections and threads."""
        ...


class CallError(Exception):
    """A call that gave no answer.

    ``again`` says whether another attempt may, ``pause_s`` after how long at the earliest;
    ``slower`` that the provider has too much to do. ``fatal`` means that every other call of the
    audit would fail alike, ``refused`` that it would if none has been answered yet; ``mendable``
    that the same command goes on once what it says is mended. The text is the provider's own.
    """

    def __init__(
        self,
        message: str,
        *,
        again: bool = False,
        slower: bool = False,
        fatal: bool = False,
        refused: bool = False,
        mendable: bool = False,
        pause_s: float = 0.0,
    ) -> None:
        super().__init__(message)
        self.again = again
        self.slower = slower
        self.fatal = fatal
        self.refused = refused
        self.mendable = mendable
        self.pause_s = pause_s


LOCAL = "local:"


def check_model(name: str) -> None:
    """Raise UsageError where nobody can be asked under ``name``; loads nothing of a local model."""
    if name.startswith(LOCAL):
        return
    import litellm

    litellm.suppress_debug_info = True
    try:
        litellm.get_llm_provider(name)
    except litellm.exceptions.BadRequestError:
        raise UsageError(
            f"LiteLLM knows no provider for {name!r}; give provider/model, such as "
            "openai/gpt-4o-mini, or local:smollm2."
        ) from None


def open_model(
    name: str, *, timeout_s: float, stream: bool = False, sending: Sending | None = None
) -> Model:
    """Return the model called ``name``: ``local:…`` in this process, any other by LiteLLM.

    Raises GuardError where a local model cannot be loaded.
    """
    sending = sending or Sending()
    if name.startswith(LOCAL):
        from guard.audit.local_model import LocalModel

        return LocalModel(name, timeout_s=timeout_s, sending=sending)
    from guard.audit.remote_model import RemoteModel

    return RemoteModel(name, timeout_s=timeout_s, stream=stream, sending=sending)
