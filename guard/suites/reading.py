"""What suites read: answers without the model's thoughts."""

from __future__ import annotations

import re

_TAG = r"(?:think(?:ing)?|reasoning)"
_THOUGHT = re.compile(rf"<{_TAG}>.*?(?:</{_TAG}>|\Z)", re.DOTALL | re.IGNORECASE)


def without_thought(text: str) -> str:
    """Return an answer without the reasoning that a model wrote in tags."""
    return _THOUGHT.sub("", text)
