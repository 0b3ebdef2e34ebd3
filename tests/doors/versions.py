"""Which LiteLLM the tests run on, and what is not run on an older one."""

from __future__ import annotations

from importlib import metadata

import pytest
from litellm.exceptions import APIConnectionError, MidStreamFallbackError
from packaging.version import Version

from guard.doors.litellm import compat

LITELLM = Version(metadata.version("litellm"))
ALL_DOORS = Version(compat.ALL_DOORS) <= LITELLM


def since(version: str) -> pytest.MarkDecorator:
    """Skip a test of what guard refuses, or LiteLLM cannot do, below ``version``."""
    reason = f"needs LiteLLM {version}, runs with {LITELLM}"
    return pytest.mark.skipif(Version(version) > LITELLM, reason=reason)


# How LiteLLM reports a provider that fails in the middle of a synchronous stream.
MID_STREAM: type[Exception] = (
    MidStreamFallbackError if Version("1.83") <= LITELLM else APIConnectionError
)
