"""The models that an audit asks: the audited one, alone or combined with those of other roles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Protocol

from guard.audit.calls import Reply, Slot
from guard.errors import UsageError
from guard.suites import Capability, Request, Role


class Model(Protocol):
    """Anything an audit can ask; reports and recorded runs show its ``name``."""

    name: str
    max_concurrency: int | None
    """The largest useful number of concurrent calls; None where only the user's limit applies."""

    async def capabilities(self, wanted: frozenset[Capability]) -> frozenset[Capability]:
        """Return which of ``wanted`` the model has; may call it once."""
        ...

    async def ask(self, request: Request, key: str, slot: Slot) -> Reply:
        """Answer one request, once. Raises :class:`CallError`, or GuardError to end the audit."""
        ...

    async def aclose(self) -> None:
        """Close connections and threads."""
        ...


@dataclass(eq=False)
class CallError(Exception):
    """A call that gave no answer, with a message that is printed and not recorded.

    ``kind`` is the type of its exception, ``status`` the HTTP status, ``cause`` what is recorded of
    the message, in guard's words; by default found in it.
    ``retryable``: another attempt may succeed, after ``retry_after_s`` at the earliest.
    ``throttled``: the provider is overloaded. ``fatal``: every other call of the audit would fail,
    too. ``refused``: the same, unless one has been answered already. ``fixable``: once the user has
    fixed the problem, the same command resumes.
    """

    message: str
    _: KW_ONLY
    retryable: bool = False
    throttled: bool = False
    fatal: bool = False
    refused: bool = False
    fixable: bool = False
    retry_after_s: float = 0.0
    kind: str = "CallError"
    status: int | None = None
    cause: str | None = None

    def __str__(self) -> str:
        return self.message


class CallLost(Exception):
    """A call that was lost with the process that made it: it is asked again, and is no attempt.

    It may have been paid for.
    """


class CombinedModel:
    """The audited model and those of other roles; sends each request to the model of its role."""

    def __init__(self, model: Model, others: Mapping[Role, Model]) -> None:
        self.name = model.name
        self.by_role: Mapping[Role, Model] = {"model": model, **others}
        limits = [one.max_concurrency for one in self.by_role.values()]
        known = [limit for limit in limits if limit is not None]
        self.max_concurrency = max(known) if len(known) == len(limits) else None

    async def capabilities(self, wanted: frozenset[Capability]) -> frozenset[Capability]:
        """Return which of ``wanted`` the audited model has.

        Raises UsageError where the analyst answers no chats.
        """
        analyst = self.by_role.get("analyst")
        if analyst is not None and not await analyst.capabilities(frozenset({"chat"})):
            raise UsageError(f"{analyst.name} answers no chats; give another --analyst.")
        return await self.by_role["model"].capabilities(wanted)

    async def ask(self, request: Request, key: str, slot: Slot) -> Reply:
        """Return the answer of the model that the request is for."""
        try:
            return await self.by_role[request.by].ask(request, key, slot)
        except CallError as error:
            if error.fatal and request.by != "model":
                error.message = f"The {request.by}: {error}"
            raise

    async def aclose(self) -> None:
        """Close all of them."""
        for model in self.by_role.values():
            await model.aclose()


LOCAL = "local:"


def check_model(name: str) -> None:
    """Raise UsageError where LiteLLM knows no provider for a model that is not local."""
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
