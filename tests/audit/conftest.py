from __future__ import annotations

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

from collections.abc import Iterator

import pytest

from tests.audit.answering import Answering, answering


def pytest_configure(config: pytest.Config) -> None:
    # LiteLLM's own types make pydantic say so while they are imported.
    config.addinivalue_line(
        "filterwarnings", "ignore:Items? .* on TypedDict class .* `ReadOnly`:UserWarning"
    )


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answering]:
    with answering() as found:
        monkeypatch.setenv("OPENAI_API_BASE", found.base)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        yield found
