"""What LiteLLM's callbacks and cache get of an answer, by ``litellm_records``."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import litellm
import pytest
from litellm.caching.caching import Cache
from litellm.integrations.custom_logger import CustomLogger
from pydantic import BaseModel

from guard.core import Guard
from guard.doors.errors import cleaned
from guard.errors import BiasFound
from guard.policy import Policy
from tests.doors import replay as r
from tests.doors.log import WHOLE, Log
from tests.doors.replay import Replay
from tests.doors.table import TABLE, Row, World, arun, guard_of
from tests.provider import Script, serving
from tests.scripted import Scripted

# LiteLLM's own, when it counts a response: it puts the usage of a chat into it.
pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")

TEXT = "All is well. Quagmire BIAS zephyr. And so it goes. "
HARMLESS = "All is well. And so it goes on. Nothing more to say"
WITHHELD = ("Quagmire", "BIAS", "zephyr")
AFTER = ("And so it goes",)

every = pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
WAYS = ("stream", "astream", "whole", "awhole")
ways = pytest.mark.parametrize("way", WAYS)


@pytest.fixture(scope="module")
def world(replay: Replay) -> Iterator[World]:
    with serving() as provider:
        yield World(replay, provider)


class Keeper(CustomLogger):
    """A callback that keeps all that it is ever told, as text."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, Any, str]] = []

    def _keep(self, kind: str, kwargs: Any, response: Any) -> None:
        self.told.append((kind, response, reachable(kwargs, response)))

    def log_post_api_call(
        self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        self._keep("post", kwargs, response_obj)

    def log_stream_event(
        self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        self._keep("chunk", kwargs, response_obj)

    async def async_log_stream_event(
        self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        self._keep("chunk", kwargs, response_obj)

    def log_success_event(
        self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        self._keep("success", kwargs, response_obj)

    async def async_log_success_event(
        self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        self._keep("success", kwargs, response_obj)

    def log_failure_event(
        self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        self._keep("failure", kwargs, response_obj)

    async def async_log_failure_event(
        self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        self._keep("failure", kwargs, response_obj)

    def logging_hook(self, kwargs: Any, result: Any, call_type: str) -> tuple[Any, Any]:
        self._keep("hook", kwargs, result)
        return kwargs, result

    async def async_logging_hook(self, kwargs: Any, result: Any, call_type: str) -> tuple[Any, Any]:
        self._keep("hook", kwargs, result)
        return kwargs, result

    def function(self, kwargs: Any, response: Any, start: Any, end: Any) -> None:
        self._keep("function", kwargs, response)

    def settle(self) -> Keeper:
        seen = -1
        for _ in range(60):
            time.sleep(0.1)
            if self.reports and len(self.told) == seen:
                break
            seen = len(self.told)
        return self

    @property
    def reports(self) -> list[Any]:
        return [response for kind, response, _ in self.told if kind == "success"]

    @property
    def everything(self) -> str:
        return "\n".join(text for _, _, text in self.told)


def reachable(*things: Any) -> str:
    """All the text that ``things`` lead to, however deep, as JSON and as ``repr`` give it."""
    texts: list[str] = []
    seen: set[int] = set()
    waiting = list(things)
    while waiting:
        one = waiting.pop()
        if isinstance(one, (str, bytes)):
            texts.append(one if isinstance(one, str) else one.decode(errors="replace"))
            continue
        if id(one) in seen or isinstance(one, (type, Keeper)) or len(seen) > 20_000:
            continue
        seen.add(id(one))
        if isinstance(one, dict):
            waiting += [*one.keys(), *one.values()]
        elif isinstance(one, (list, tuple, set, frozenset)):
            waiting += list(one)
        elif isinstance(one, BaseModel):
            texts.append(json.dumps(one.model_dump(warnings=False), default=str))
            texts.append(repr(one))
            waiting += [one.__dict__, getattr(one, "_hidden_params", None)]
        elif type(one).__module__.startswith(("litellm", "guard")) or isinstance(one, Exception):
            texts.append(repr(one) + str(one))
            waiting.append(getattr(one, "__dict__", {}))
    assert len(seen) < 20_000
    return "\n".join(texts)


@pytest.fixture
def keeper(monkeypatch: pytest.MonkeyPatch) -> Iterator[Keeper]:
    keeper = Keeper()
    monkeypatch.setattr(litellm, "callbacks", [keeper])
    monkeypatch.setattr(litellm, "success_callback", [keeper.function])
    yield keeper
    r.forget_callback(keeper)
    r.forget_callback(keeper.function)


@pytest.fixture(params=["local", "disk"])
def cache(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    if request.param == "disk":
        pytest.importorskip("diskcache")
    made: Any = Cache(type=request.param, disk_cache_dir=str(tmp_path / "cache"))
    monkeypatch.setattr(litellm, "cache", made)
    yield Kept(made, tmp_path / "cache")
    if request.param == "disk":
        made.cache.disk_cache.close()


class Kept:
    """What a cache of LiteLLM's holds."""

    def __init__(self, cache: Any, folder: Path) -> None:
        self.cache = cache
        self.folder = folder

    @property
    def everything(self) -> str:
        memory = getattr(self.cache.cache, "cache_dict", {})
        files = [p for p in self.folder.rglob("*") if p.is_file()]
        found = "".join(p.read_bytes().decode("utf-8", "replace") for p in files)
        # What SQLite stores as UTF-16 would pass unseen, were there any.
        return reachable(memory) + found + found.replace("\0", "")

    def wait(self, text: str) -> str:
        for _ in range(50):
            if text in self.everything:
                break
            time.sleep(0.05)
        return self.everything


def run(row: Row, world: World, guard: Guard, way: str, **more: Any) -> r.Outcome:
    """Ask for an answer and read it to its end."""
    function = row.door.function
    call = {**row.call(world), **more}

    async def arun_() -> r.Outcome:
        answer = getattr(guard, "a" + function)
        if way == "astream":
            outcome = await row.adrained(await answer(**call, stream=True))
        else:
            outcome = row.answered(await answer(**call))
        await asyncio.sleep(0.3)  # LiteLLM reports in tasks of its own
        return outcome

    try:
        if way.startswith("a"):
            return arun(arun_())
        if way == "stream":
            return row.drained(getattr(guard, function)(**call, stream=True))
        return row.answered(getattr(guard, function)(**call))
    except BiasFound as error:
        return r.Outcome(error=error)


def guarded(action: str = "terminate", **more: Any) -> Guard:
    policy = Policy(action=action, litellm_records="guarded", **more)  # type: ignore[arg-type]
    return guard_of(policy, Scripted())


def told_by(row: Row, response: Any) -> dict[Any, str]:
    """What a report says, whichever of LiteLLM's shapes it has."""
    outcome = r.Outcome()
    if isinstance(response, litellm.ModelResponse):
        r.read_answer(outcome, response)
    else:
        row.door.read(outcome, response)
    return outcome.texts


# The option.


@every
@ways
@pytest.mark.parametrize("action", ["terminate", "redact", "raise"])
def test_callbacks_hear_once_of_what_went_out(
    row: Row, world: World, keeper: Keeper, way: str, action: str
) -> None:
    row.play(world, [[("content", 0, TEXT)]], ([6], 0))
    run(row, world, guarded(action), way)
    keeper.settle()
    (response,) = keeper.reports
    assert isinstance(response, WHOLE)
    said = {
        "terminate": "All is well. " + Policy().message,
        "redact": "All is well. [removed] And so it goes. ",
        "raise": "All is well. ",
    }[action]
    assert told_by(row, response) == {r.Channel(): said}
    withheld = WITHHELD if action == "redact" else WITHHELD + AFTER
    assert [word for word in withheld if word in keeper.everything] == []


@every
@ways
@pytest.mark.parametrize("action", ["terminate", "redact", "raise"])
def test_the_cache_holds_what_went_out_and_nothing_of_an_answer_that_was_stopped(
    row: Row, world: World, cache: Kept, way: str, action: str
) -> None:
    row.play(world, [[("content", 0, TEXT)]], ([6], 0))
    outcome = run(row, world, guarded(action), way, caching=True)
    kept = cache.wait("[removed]") if action == "redact" else cache.everything
    assert [word for word in WITHHELD if word in kept] == []
    if action != "redact":
        assert "All is well" not in kept
        assert Policy().message not in kept
        return
    again = run(row, world, guarded(action), way, caching=True)
    assert again.texts == outcome.texts == {r.Channel(): "All is well. [removed] And so it goes. "}
