"""Keeps a provider's error out of what LiteLLM tells of a price that it does not know."""

from __future__ import annotations

from functools import cache
from typing import Any


class Untraced:
    """A logging object of LiteLLM's that tells no trace of why there is no price.

    LiteLLM takes it while it handles the provider's error, which may quote what was withheld, and
    keeps it for later calls.
    """

    model_call_details: dict[str, Any]

    def response_cost_calculator(self, *args: Any, **kwargs: Any) -> Any:
        """Return LiteLLM's price of an answer."""
        cost = super().response_cost_calculator(*args, **kwargs)  # type: ignore[misc]
        name = "response_cost_failure_debug_information"
        if info := self.model_call_details.get(name):
            self.model_call_details[name] = {**info, "traceback_str": ""}
        return cost

    _response_cost_calculator = response_cost_calculator


@cache
def untraced(kind: Any) -> Any:
    """Return ``kind``, a class of LiteLLM's logging objects, without these traces."""
    if issubclass(kind, Untraced):
        return kind
    return type(kind.__name__, (Untraced, kind), {"__doc__": kind.__doc__})
