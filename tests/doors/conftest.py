from __future__ import annotations

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

from collections.abc import Iterator

import litellm
import pytest

from tests.doors.replay import Replay
from tests.provider import Provider, serving

litellm.suppress_debug_info = True


@pytest.fixture
def provider() -> Iterator[Provider]:
    with serving() as provider:
        yield provider


@pytest.fixture(scope="session", autouse=True)
def replay() -> Iterator[Replay]:
    handler = Replay()
    litellm.custom_provider_map = [{"provider": "replay", "custom_handler": handler}]
    yield handler
    litellm.custom_provider_map = []
