"""The action ``rewrite``: the model is asked to go on without what was withheld.

It is asked through the function that was called, with the same arguments and a longer conversation:
what was let out of its answer, and the policy's instruction. What it then says is judged like
anything else.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Any

from guard.doors.context import inside
from guard.errors import UsageError
from guard.policy import Policy
from guard.verdict import GuardTrail, Verdict

Arguments = Mapping[str, Any]
GoOn = Callable[[Arguments, str, str], dict[str, Any]]
"""Returns the arguments of a call that goes on: from the call's own, what was let out of its answer
and the instruction."""

_log = logging.getLogger("guard")


class Asker:
    """Asks the model again, for one response, as often as its policy allows."""

    def __init__(
        self, function: Callable[..., Any], call: Arguments, go_on: GoOn, policy: Policy
    ) -> None:
        self.left = policy.rewrite_tries
        self._function = function
        self._asynchronous = inspect.iscoroutinefunction(function)
        self._call = call
        self._go_on = go_on
        self._instruction = policy.rewrite_instruction

    def ask(self, said: str, trail: GuardTrail) -> Any:
        """Return the answer of the model that goes on from ``said``; None where there is none."""
        try:
            if self._asynchronous:
                raise UsageError("a stream of an async call was read by synchronous code")
            with inside():
                answer = self._function(**self._asked(said, trail))
        except Exception as error:
            return _failed(error)
        trail.rewrites += 1
        return answer

    async def aask(self, said: str, trail: GuardTrail) -> Any:
        """Return the same without blocking the event loop."""
        if not self._asynchronous:
            return await asyncio.to_thread(self.ask, said, trail)
        try:
            with inside():
                answer = await self._function(**self._asked(said, trail))
        except Exception as error:
            return _failed(error)
        trail.rewrites += 1
        return answer

    def _asked(self, said: str, trail: GuardTrail) -> dict[str, Any]:
        self.left -= 1
        tie = association(trail.decisions[-1].verdict)
        instruction = self._instruction.replace("{association}", tie)
        return self._go_on(self._call, said.rstrip(), instruction)


def association(verdict: Verdict) -> str:
    """Return the groups and attributes of a verdict as words of a sentence.

    >>> from guard.policy import unjudged_verdict
    >>> association(unjudged_verdict("failure", detector="", index_version="", elapsed_ms=0))
    'a social group to a stereotype'
    """
    pairs = dict.fromkeys(f'"{a.group}" to "{a.attribute}"' for a in verdict.attributions)
    return " and ".join(pairs) or "a social group to a stereotype"


def cannot_rewrite(function: str) -> UsageError:
    """Return the error for a call of ``function`` under the action ``rewrite``."""
    return UsageError(
        f"The action 'rewrite' works for completion and acompletion, not for {function}; give "
        'another for this call, for example guard={"action": "terminate"}.'
    )


def _failed(error: Exception) -> None:
    # The error's own text may quote what was sent.
    _log.error("asking the model to go on failed with %s: its answer ends", type(error).__name__)
