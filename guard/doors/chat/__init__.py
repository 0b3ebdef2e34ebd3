"""Chats: ``litellm.completion``, ``acompletion`` and ``batch_completion``."""

from guard.doors.chat.batch import batch_completion
from guard.doors.chat.door import DOOR, acompletion, aguard, completion, created, guard

__all__ = ["DOOR", "acompletion", "aguard", "batch_completion", "completion", "created", "guard"]
