from __future__ import annotations

import asyncio
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import litellm
import pytest
from litellm.litellm_core_utils.litellm_logging import _get_traceback_str_for_error
from litellm.litellm_core_utils.logging_worker import GLOBAL_LOGGING_WORKER
from packaging.version import Version

from guard.doors.litellm import compat
from tests.doors.log import Log
from tests.doors.proxy_process import Proxy, configured, running
from tests.doors.replay import Replay, forget_callback, forget_clients
from tests.doors.table import World, end_tasks
from tests.doors.versions import ALL_DOORS, LITELLM, since
from tests.provider import Provider, serving

litellm.suppress_debug_info = True


def pytest_configure(config: pytest.Config) -> None:
    # LiteLLM's own types make pydantic say so while they are imported.
    config.addinivalue_line(
        "filterwarnings", "ignore:Items? .* on TypedDict class .* `ReadOnly`:UserWarning"
    )
    # LiteLLM's own, when it counts a response: it puts the usage of a chat into it.
    config.addinivalue_line("filterwarnings", "ignore:Pydantic serializer warnings")
    if not ALL_DOORS:  # it drops reports at the end of a loop
        for category in ("RuntimeWarning", "pytest.PytestUnraisableExceptionWarning"):
            config.addinivalue_line("filterwarnings", f"ignore:.*coroutine.*Logging:{category}")


# Modules about what guard refuses with an older LiteLLM.
PROXY = "test_proxy test_proxy_routes test_proxy_traces test_four_proxies".split()
NEWER = ["test_responses", "test_messages", "test_fields", "test_codec", *PROXY]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    without = Version("1.110") <= LITELLM and find_spec("litellm_proxy") is None
    for item in items:
        if item.path.parent != Path(__file__).parent:
            continue
        if item.path.stem in NEWER:
            item.add_marker(since(compat.ALL_DOORS))
        if item.path.stem in PROXY and without:
            reason = f"the proxy of LiteLLM {LITELLM} is a package that is not published"
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(autouse=True)
def loop() -> Iterator[None]:
    """Own the loop that LiteLLM otherwise makes in synchronous calls and never closes."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


@pytest.fixture(autouse=True)
def reported() -> None:
    """Have LiteLLM report what an earlier test left to be reported: the next loop would do it."""

    async def flush() -> None:
        GLOBAL_LOGGING_WORKER.start()  # an older one flushes a queue of the loop before
        await GLOBAL_LOGGING_WORKER.flush()
        await GLOBAL_LOGGING_WORKER.stop()

    asyncio.run(flush())


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
    asyncio.run(forget_clients())


@pytest.fixture(scope="module")
def world(replay: Replay) -> Iterator[World]:
    own = asyncio.new_event_loop()
    with serving() as provider:
        yield World(replay, provider, own)
    own.run_until_complete(end_tasks())
    own.close()


@pytest.fixture(scope="session")
def behind_the_proxy() -> Iterator[Provider]:
    with serving() as provider:
        yield provider


@pytest.fixture(scope="session")
def events_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('events') / 'guard.db'}"


@pytest.fixture(scope="session")
def proxy(
    behind_the_proxy: Provider, tmp_path_factory: pytest.TempPathFactory, events_url: str
) -> Iterator[Proxy]:
    """The one proxy of all tests that only ask it: LiteLLM takes many seconds to start."""
    callbacks = ["tests.doors.proxy_side.reports"]
    with suppress(ImportError):
        import prometheus_client  # noqa: F401

        callbacks.append("prometheus")
    text = configured(behind_the_proxy, callbacks, events_url)
    with running(tmp_path_factory.mktemp("proxy"), text) as proxy:
        yield proxy


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    # LiteLLM keeps the traceback of the first call that it finds no price for, errors that were
    # being handled and all, and tells it with each later one.
    _get_traceback_str_for_error.cache_clear()
    log = Log()
    monkeypatch.setattr(litellm, "callbacks", [log])
    yield log
    forget_callback(log)
