"""The part that all models in the test's own process share."""

from __future__ import annotations

from guard.suites import Capability


class InProcess:
    """A model that can do whatever a suite wants of it, and has nothing to close."""

    max_concurrency: int | None = None

    async def capabilities(self, wanted: frozenset[Capability]) -> frozenset[Capability]:
        return wanted

    async def aclose(self) -> None:
        pass
