"""Which LiteLLM the tests run on, and what an older one cannot do without guard either."""

from __future__ import annotations

from importlib import metadata

import pytest
from litellm.exceptions import APIConnectionError, MidStreamFallbackError
from packaging.version import Version

LITELLM = Version(metadata.version("litellm"))


def since(version: str, what: str) -> pytest.MarkDecorator:
    """Skip a test below ``version``, for want of ``what`` in LiteLLM itself."""
    before = f"LiteLLM {LITELLM} has no {what}; {version} has"
    return pytest.mark.skipif(Version(version) > LITELLM, reason=before)


# How LiteLLM reports a provider that fails in the middle of a synchronous stream.
MID_STREAM: type[Exception] = (
    MidStreamFallbackError if Version("1.83") <= LITELLM else APIConnectionError
)
