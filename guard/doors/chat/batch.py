"""The batch door: ``litellm.batch_completion``, with each of its answers guarded separately."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import litellm

from guard.doors.chat.door import DOOR
from guard.doors.context import guarded, inside
from guard.doors.door import number_of_choices
from guard.doors.errors import judged_error
from guard.doors.rewrite import cannot_rewrite
from guard.doors.session import DoorSession
from guard.errors import GuardError

_WORKERS = 100  # as in LiteLLM


def batch_completion(
    session: DoorSession,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    intercepted: bool = False,
) -> list[Any]:
    """Call ``litellm.batch_completion`` and guard each answer, whole or streamed.

    As in LiteLLM, the list holds an error in place of an answer that failed; this includes
    the guard's own errors. Raises UsageError under the action ``rewrite``.
    """
    if guarded():
        return list(litellm.batch_completion(*args, **kwargs))
    if session.policy.rewrites:
        raise cannot_rewrite("batch_completion")
    call = DOOR.arguments(litellm.batch_completion, args, kwargs)
    # LiteLLM calls `completion` in threads of its own, where an interception would guard it, too.
    if session.policy.litellm_records == "guarded" or intercepted:
        return _each(session, call)
    n = number_of_choices(call)
    several = call.get("messages") or ()
    users = [DOOR.user_shown(session, {"messages": messages}) for messages in several]
    failed: Exception | None = None
    try:
        with inside():
            answers = litellm.batch_completion(*args, **kwargs)
    except Exception as error:
        failed = error
    if failed is not None:  # raised outside `except`, so that it does not chain the original
        raise judged_error(failed, session)
    return [_guarded(session, a, user, n) for a, user in zip(answers, users, strict=True)]


def _each(session: DoorSession, call: Mapping[str, Any]) -> list[Any]:
    """Make the calls that LiteLLM would make, each with its own records."""
    asked = dict(call)
    several, workers = asked.pop("messages", None) or (), asked.pop("max_workers", _WORKERS)

    def answer_to(messages: Any) -> Any:
        try:
            return DOOR.call(session, (), {**asked, "messages": messages})
        except Exception as error:
            return error

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(answer_to, several))


def _guarded(session: DoorSession, answer: Any, user: str, n: int) -> Any:
    if isinstance(answer, Exception):
        return judged_error(answer, session)
    try:
        return DOOR.guard(session, answer, user=user, n=n)
    except GuardError as error:
        return error.with_traceback(None)  # which leads to the answer
