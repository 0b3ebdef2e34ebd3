"""Who an audit asks: the model under audit, alone or together with others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from guard.audit.calls import Reply, Slot
from guard.errors import UsageError
from guard.suites import Capability, Request, Role


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


class Together:
    """A model and the others of an audit; each request goes to the one that it is for."""

    def __init__(self, model: Model, others: Mapping[Role, Model]) -> None:
        self.name = model.name
        self.asked: Mapping[Role, Model] = {"model": model, **others}
        most = [one.most for one in self.asked.values()]
        self.most = None if None in most else max(n for n in most if n is not None)

    async def capabilities(self, wanted: frozenset[Capability]) -> frozenset[Capability]:
        """Return which of ``wanted`` the audited model has.

        Raises UsageError where the analyst answers no chats.
        """
        analyst = self.asked.get("analyst")
        if analyst is not None and not await analyst.capabilities(frozenset({"chat"})):
            raise UsageError(f"{analyst.name} answers no chats; give another --analyst.")
        return await self.asked["model"].capabilities(wanted)

    async def ask(self, request: Request, key: str, slot: Slot) -> Reply:
        """Return the answer of the one that is asked."""
        try:
            return await self.asked[request.by].ask(request, key, slot)
        except CallError as error:
            if error.fatal and request.by != "model":
                error.args = (f"The {request.by}: {error}",)
            raise

    async def aclose(self) -> None:
        """Let go of all of them."""
        for one in self.asked.values():
            await one.aclose()


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
