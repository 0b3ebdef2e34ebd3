"""The Responses API: ``litellm.responses`` and ``aresponses``."""

from guard.doors.responses.door import DOOR

__all__ = ["DOOR"]
