"""The action ``rewrite``: the model is asked to continue without the withheld passage.

The same function is called with the same arguments and a longer conversation: the released part
of the answer, and the policy's instruction. The new answer is judged as any other.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Any

from guard.doors.context import inside
from guard.doors.sync_or_async import SyncOrAsync, call_async, call_sync, run_without_loop
from guard.errors import UsageError
from guard.policy import Policy
from guard.verdict import GuardTrail, Verdict

Arguments = Mapping[str, Any]
Continuation = Callable[[Arguments, str, str], dict[str, Any]]
"""Returns the arguments of the call that continues an answer; takes the first call's arguments,
the released part of its answer and the instruction."""

_log = logging.getLogger("guard")


class Asker:
    """Asks the model again, for one response, as often as its policy allows."""

    def __init__(
        self,
        function: Callable[..., Any],
        call: Arguments,
        continuation: Continuation,
        policy: Policy,
    ) -> None:
        self.left = policy.rewrite_tries
        self._function = function
        self._asynchronous = inspect.iscoroutinefunction(function)
        self._call = call
        self._continuation = continuation
        self._instruction = policy.rewrite_instruction

    def ask(self, released: str, trail: GuardTrail) -> Any:
        """Return the model's answer that continues ``released``; None if the call failed."""
        return run_without_loop(self._ask(call_sync, released, trail))

    async def aask(self, released: str, trail: GuardTrail) -> Any:
        """Do the same as :meth:`ask` without blocking the event loop."""
        if not self._asynchronous:
            return await asyncio.to_thread(self.ask, released, trail)
        return await self._ask(call_async, released, trail)

    async def _ask(self, call: SyncOrAsync, released: str, trail: GuardTrail) -> Any:
        try:
            if self._asynchronous and call is call_sync:
                raise UsageError("a stream of an async call was read by synchronous code")
            arguments = self._arguments(released, trail)
            with inside():
                answer = await call(self._function, self._function, **arguments)
        except Exception as error:
            # Only the type: the error's message may quote the request.
            name = type(error).__name__
            _log.error("asking the model to continue failed with %s; the answer ends here", name)
            return None
        trail.rewrites += 1
        return answer

    def _arguments(self, released: str, trail: GuardTrail) -> dict[str, Any]:
        self.left -= 1
        pairs = association_phrase(trail.decisions[-1].verdict)
        instruction = self._instruction.replace("{association}", pairs)
        return self._continuation(self._call, released.rstrip(), instruction)


def association_phrase(verdict: Verdict) -> str:
    """Return a verdict's pairs of group and attribute as a phrase.

    >>> from guard.policy import unjudged_verdict
    >>> association_phrase(unjudged_verdict("failure", detector="", index_version="", elapsed_ms=0))
    'a social group to a stereotype'
    """
    pairs = dict.fromkeys(f'"{a.group}" to "{a.attribute}"' for a in verdict.attributions)
    return " and ".join(pairs) or "a social group to a stereotype"


def cannot_rewrite(function: str) -> UsageError:
    """Return the error for a call of ``function`` under the action ``rewrite``."""
    return UsageError(
        f"The action 'rewrite' works for completion and acompletion, not for {function}; set "
        'another action for this call, for example guard={"action": "terminate"}.'
    )
