"""Chats: ``litellm.completion``, ``acompletion`` and ``batch_completion``."""

from guard.doors.chat.batch import batch_completion
from guard.doors.chat.door import DOOR, acompletion, aguard, arguments_of_create, completion, guard

__all__ = [
    "DOOR",
    "acompletion",
    "aguard",
    "arguments_of_create",
    "batch_completion",
    "completion",
    "guard",
]
