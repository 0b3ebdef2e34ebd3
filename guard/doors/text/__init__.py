"""Text completions: ``litellm.text_completion`` and ``atext_completion``."""

from guard.doors.text.door import DOOR

__all__ = ["DOOR"]
