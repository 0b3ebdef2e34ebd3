"""Anthropic's Messages API: ``litellm.anthropic.messages``."""

from guard.doors.messages.door import DOOR

__all__ = ["DOOR"]
