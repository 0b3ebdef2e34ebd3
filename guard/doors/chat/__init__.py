"""Chats: ``litellm.completion``, ``acompletion`` and ``batch_completion``."""

from guard.doors.chat.batch import batch_completion
from guard.doors.chat.door import DOOR, acompletion, aguard, call_arguments, completion, guard

__all__ = [
    "DOOR",
    "acompletion",
    "aguard",
    "batch_completion",
    "call_arguments",
    "completion",
    "guard",
]
