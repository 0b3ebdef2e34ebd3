"""What LiteLLM's callbacks and cache get of an answer, by ``litellm_records``."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import litellm
import pytest
from litellm.caching.caching import Cache
from litellm.litellm_core_utils.litellm_logging import _get_traceback_str_for_error
from pydantic import BaseModel

from guard.core import Guard
from guard.doors.litellm import compat
from guard.errors import BiasFound, UsageError
from guard.policy import Policy
from tests.doors import replay as r
from tests.doors.log import WHOLE, Callback, quiet, tasks_end
from tests.doors.table import TABLE, Row, World, arun, guard_of
from tests.doors.versions import since
from tests.provider import Script
from tests.scripted import Scripted

# LiteLLM's own, when it counts a response: it puts the usage of a chat into it.
pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")

TEXT = "All is well. Quagmire BIAS zephyr. And so it goes. "
HARMLESS = "All is well. And so it goes on. Nothing more to say"
WITHHELD = ("Quagmire", "BIAS", "zephyr")
AFTER = ("And so it goes",)

# LiteLLM keeps records of its own of the Messages API, which cannot be held back.
MESSAGES = [row for row in TABLE if row.name.startswith("messages")]
MAIN = ("chat", "text", "responses")  # one of each door; the rest are slow
OTHER_ROW = pytest.mark.slow("other sources of the same doors, with a wait for the reports of each")
OTHER_CASE = pytest.mark.slow("all actions every way, with a wait for the reports of each")
ROWS = [row for row in TABLE if row not in MESSAGES]
every = pytest.mark.parametrize(
    "row",
    [pytest.param(r, id=r.name, marks=() if r.name in MAIN else OTHER_ROW) for r in ROWS],
)
WAYS = ("stream", "astream", "whole", "awhole")
ways = pytest.mark.parametrize("way", WAYS)


def each(*others: tuple[str, ...]) -> list[Any]:
    """Every row every way with each of the others: by default with one of them, in turns."""
    return [
        pytest.param(
            *(row, way, *other),
            id="-".join((row.name, way, *other)),
            marks=() if row.name in MAIN and (w + rank) % len(others) == o else OTHER_CASE,
        )
        for row in ROWS
        for rank in [MAIN.index(row.name) if row.name in MAIN else 0]
        for w, way in enumerate(WAYS)
        for o, other in enumerate(others)
    ]


class Keeper(Callback):
    """Keeps everything that LiteLLM reports to it, as text."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, Any, str]] = []

    def note(self, kind: str, kwargs: Any, response: Any) -> None:
        kind = kind.replace("async failure", "failure")
        self.calls.append((kind, response, reachable(kwargs, response)))

    def log_post_api_call(
        self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        self.note("post", kwargs, response_obj)

    def log_stream_event(
        self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        self.note("chunk", kwargs, response_obj)

    async def async_log_stream_event(
        self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        self.note("chunk", kwargs, response_obj)

    def logging_hook(self, kwargs: Any, result: Any, call_type: str) -> tuple[Any, Any]:
        self.note("hook", kwargs, result)
        return kwargs, result

    async def async_logging_hook(self, kwargs: Any, result: Any, call_type: str) -> tuple[Any, Any]:
        self.note("hook", kwargs, result)
        return kwargs, result

    def function(self, kwargs: Any, response: Any, start: Any, end: Any) -> None:
        self.note("function", kwargs, response)

    def settle(self) -> Keeper:
        quiet(lambda: len(self.calls) * any("success" in kind for kind, _, _ in self.calls), 6)
        return self

    @property
    def reports(self) -> list[Any]:
        """The reports on whole answers: one to the sync callbacks, or one to the async ones.

        Of a sync stream of responses LiteLLM tells both.
        """
        kinds = [kind for kind, _, _ in self.calls if "success" in kind]
        assert len(kinds) == len(set(kinds))
        return self.heard

    @property
    def heard(self) -> list[Any]:
        """All: of a call behind a call LiteLLM itself tells at times once, at times twice."""
        return [response for kind, response, _ in self.calls if "success" in kind]

    @property
    def everything(self) -> str:
        return "\n".join(text for _, _, text in self.calls)


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
    # LiteLLM keeps the traceback of the first call that it finds no price for, errors that were
    # being handled and all, and tells it with each later one.
    _get_traceback_str_for_error.cache_clear()
    keeper = Keeper()
    monkeypatch.setattr(litellm, "callbacks", [keeper])
    monkeypatch.setattr(litellm, "success_callback", [keeper.function])
    yield keeper
    quiet(lambda: len(keeper.calls) + 1)  # what still comes is not the next test's
    r.forget_callback(keeper)
    r.forget_callback(keeper.function)


@pytest.fixture(params=["local", "disk"])
def cache(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    if request.param == "disk":
        pytest.importorskip("diskcache")
        if "DISK" not in litellm.types.caching.LiteLLMCacheType.__members__:
            pytest.skip(f"LiteLLM {metadata.version('litellm')} has no cache on disk")
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
        try:
            if way == "astream":
                return await row.adrained(await answer(**call, stream=True))
            return row.answered(await answer(**call))
        finally:  # also of an answer that raised
            await tasks_end()  # LiteLLM reports in some of its own

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


@pytest.mark.parametrize(("row", "way", "action"), each(("terminate",), ("redact",), ("raise",)))
def test_callbacks_get_the_released_text_once(
    row: Row, world: World, keeper: Keeper, way: str, action: str
) -> None:
    row.play(world, [[("content", 0, TEXT)]], ([6], 0))
    run(row, world, guarded(action), way)
    keeper.settle()
    response = keeper.reports[0]
    assert len(keeper.reports) == 1 or way == "stream"
    assert isinstance(response, WHOLE)
    said = {
        "terminate": "All is well. " + Policy().message,
        "redact": "All is well. [removed] And so it goes. ",
        "raise": "All is well. ",
    }[action]
    assert told_by(row, response) == {r.Channel(): said}
    withheld = WITHHELD if action == "redact" else WITHHELD + AFTER
    assert [word for word in withheld if word in keeper.everything] == []


@pytest.mark.parametrize(
    ("row", "way", "action", "cache"),
    each(
        ("terminate", "local"),
        ("redact", "disk"),
        ("raise", "local"),
        ("terminate", "disk"),
        ("redact", "local"),
        ("raise", "disk"),
    ),
    indirect=["cache"],
)
def test_the_cache_gets_the_released_text_and_nothing_of_a_stopped_answer(
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
    if (row.name, way) == ("responses from chat", "whole"):
        return  # LiteLLM cannot read what it cached itself: it takes the id for a chat's
    again = run(row, world, guarded(action), way, caching=True)
    assert again.texts == outcome.texts == {r.Channel(): "All is well. [removed] And so it goes. "}


@every
@ways
def test_harmless_answers_are_reported_and_cached_as_without_the_guard(
    row: Row, world: World, keeper: Keeper, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(litellm, "cache", Cache(type="local"))
    row.play(world, [[("content", 0, HARMLESS)]], ([6], 0))
    own = run(row, world, guard_of(Policy(), Scripted()), way, caching=True)
    without = keeper.settle().calls[:]
    cached = litellm.cache.cache.cache_dict  # type: ignore[union-attr]
    quiet(lambda: len(cached))
    entries = len(cached)
    cached.clear()
    keeper.calls.clear()
    outcome = run(row, world, guarded(), way, caching=True)
    keeper.settle()
    quiet(lambda: len(cached))
    assert outcome.texts == own.texts
    assert len(cached) == entries > 0

    def heard(told: list[tuple[str, Any, str]]) -> list[tuple[str, Any]]:
        kept = [(kind, response) for kind, response, _ in told if "success" in kind]
        return sorted((kind, _usage(response)) for kind, response in kept)

    # Of a call behind a call LiteLLM tells at times once, at times twice.
    assert set(heard(keeper.calls)) == set(heard(without))
    assert told_by(row, keeper.heard[0]) == {r.Channel(): HARMLESS}
    keeper.calls.clear()
    again = run(row, world, guarded(), way, caching=True) if row.name != LITELLMS_OWN else outcome
    assert again.texts == outcome.texts


# LiteLLM cannot read the entry again that it makes here: it takes the id for a chat's.
LITELLMS_OWN = "responses from chat"


def _usage(response: Any) -> int:
    usage = getattr(response, "usage", None)
    usage = usage if isinstance(usage, dict) else getattr(usage, "__dict__", {})
    return int(usage.get("total_tokens") or 0)


@every
@ways
def test_usage_stays_the_providers(row: Row, world: World, keeper: Keeper, way: str) -> None:
    row.play(world, [[("content", 0, TEXT)]], ([6], 0))
    run(row, world, guard_of(Policy(), Scripted("$none")), way)
    whole = _usage(keeper.settle().heard[0])
    keeper.calls.clear()
    run(row, world, guarded("redact"), way)
    assert _usage(keeper.settle().reports[0]) == whole


def test_a_sync_chat_stream_reports_the_chunks_that_went_out(world: World, keeper: Keeper) -> None:
    row = TABLE[0]
    row.play(world, [[("content", 0, TEXT)]], ([6], 0))
    outcome = run(row, world, guarded("redact"), "stream")
    keeper.settle()
    chunks = [c for kind, c, _ in keeper.calls if kind == "chunk" and hasattr(c, "choices")]
    assert {id(c) for c in chunks} == {id(c) for c in outcome.chunks}


def test_a_detector_that_fails_leaves_nothing_in_the_cache(world: World, cache: Kept) -> None:
    row = TABLE[0]
    row.play(world, [[("content", 0, HARMLESS)]], ([6], 0))

    def fail(window: Any) -> None:
        raise RuntimeError("down")

    policy = Policy(litellm_records="guarded")
    for way in ("stream", "whole"):
        outcome = run(row, world, guard_of(policy, Scripted(before=fail)), way, caching=True)
        assert outcome.texts == {r.Channel(): policy.failure_message}
    assert "All is well" not in cache.everything
    again = run(row, world, guarded(), "whole", caching=True)
    assert again.texts == {r.Channel(): HARMLESS}


@every
@ways
def test_a_cached_answer_is_judged_again(
    row: Row, world: World, monkeypatch: pytest.MonkeyPatch, keeper: Keeper, way: str
) -> None:
    if row.name == LITELLMS_OWN:
        return
    monkeypatch.setattr(litellm, "cache", Cache(type="local"))
    row.play(world, [[("content", 0, TEXT)]], ([6], 0))
    plain = guard_of(Policy(litellm_records="guarded"), Scripted("$none"))
    assert run(row, world, plain, way, caching=True).texts == {r.Channel(): TEXT}
    keeper.settle()
    quiet(lambda: len(litellm.cache.cache.cache_dict))  # type: ignore[union-attr]
    keeper.calls.clear()
    outcome = run(row, world, guarded(), way, caching=True)
    assert outcome.texts == {r.Channel(): "All is well. " + Policy().message}
    keeper.settle()
    assert told_by(row, keeper.reports[0]) == outcome.texts
    assert [word for word in WITHHELD if word in keeper.everything] == []


def test_one_call_can_ask_for_it(world: World, keeper: Keeper) -> None:
    row = TABLE[0]
    row.play(world, [[("content", 0, TEXT)]], ([6], 0))
    guard = guard_of(Policy(), Scripted())
    response = guard.completion(**row.call(world), guard={"litellm_records": "guarded"})
    assert response.choices[0].message.content == "All is well. " + Policy().message
    assert "Quagmire" not in keeper.settle().everything


@pytest.mark.slow("LiteLLM leaves the clients of its threads to the garbage collector")
def test_every_answer_of_a_batch_is_reported(world: World, keeper: Keeper) -> None:
    world.provider.script = Script([["All is well. ", "Quagmire BIAS zephyr. "]])
    guard = guarded()
    call = {"model": "openai/x", "api_base": world.provider.openai, "api_key": "k"}
    several = [[{"role": "user", "content": f"Tell me {n}."}] for n in range(3)]
    answers = guard.batch_completion(messages=several, **call)
    said = "All is well. " + Policy().message
    assert [a.choices[0].message.content for a in answers] == [said] * 3
    deadline = time.monotonic() + 10
    while len([k for k, _, _ in keeper.calls if k == "success"]) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert [word for word in WITHHELD if word in keeper.everything] == []


@ways
def test_a_routers_answers_are_reported_once(world: World, keeper: Keeper, way: str) -> None:
    world.provider.script = Script([["All is well. ", "Quagmire BIAS zephyr. ", "More."]])
    params = {"model": "openai/x", "api_base": world.provider.openai, "api_key": "k"}
    router = litellm.Router(model_list=[{"model_name": "m", "litellm_params": params}])
    wrapped: Any = guarded("redact").wrap(router)
    call: Any = {"model": "m", "messages": r.MESSAGES}

    async def arun_() -> None:
        answer = await wrapped.acompletion(**call, stream=way == "astream")
        if way == "astream":
            await r.adrain(answer)
        await tasks_end()

    if way.startswith("a"):
        arun(arun_())
    else:
        answer = wrapped.completion(**call, stream=way == "stream")
        if way == "stream":
            r.drain(answer)
    (response,) = keeper.settle().reports
    assert told_by(TABLE[0], response) == {r.Channel(): "All is well. [removed] More."}
    assert [word for word in WITHHELD if word in keeper.everything] == []


@pytest.mark.parametrize(
    "sent",
    [("All is well. ", "Quagmire BIAS zephyr. ", "More"), ("All is well. ",), ()],
    ids=["sent", "never sent", "nothing sent"],
)
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_a_failure_quotes_no_withheld_text(
    world: World, keeper: Keeper, asynchronous: bool, sent: tuple[str, ...]
) -> None:
    def source() -> Iterator[Any]:
        for text in sent:
            yield r.chunk_of(r.Said(0, "content", text))
        raise ValueError("cannot parse 'Quagmire BIAS zephyr. More'")

    world.replay.source = source
    row, guard = TABLE[0], guarded("redact")
    outcome = run(row, world, guard, "astream" if asynchronous else "stream")
    assert outcome.error is not None
    quiet(lambda: sum(kind == "failure" for kind, _, _ in keeper.calls))
    assert [kind for kind, _, _ in keeper.calls if kind == "failure"] == ["failure"]
    assert keeper.reports == []
    assert [word for word in WITHHELD if word in keeper.everything] == []


def test_an_abandoned_stream_is_not_reported_as_in_litellm(world: World, keeper: Keeper) -> None:
    row = TABLE[0]
    row.play(world, [[("content", 0, TEXT)]], ([6], 0))
    stream = row.stream(world, guarded("redact"))
    next(stream)
    stream.close()
    quiet(lambda: len(keeper.calls) + 1, still=0.3)
    assert keeper.reports == []
    assert [word for word in WITHHELD if word in keeper.everything] == []


def test_switched_off_it_is_not_there(world: World) -> None:
    assert Policy().litellm_records == "raw"
    assert Guard(detector=Scripted()).session().deferred is None


# Without it, as docs/litellm.md states.


def test_without_it_a_whole_answer_is_reported_and_cached_as_the_provider_gave_it(
    world: World, keeper: Keeper, cache: Kept
) -> None:
    row = TABLE[0]
    row.play(world, [[("content", 0, TEXT)]], ([6], 0))
    outcome = run(row, world, guard_of(Policy(), Scripted()), "whole", caching=True)
    assert outcome.ends == {0: "content_filter"}
    assert told_by(row, keeper.settle().heard[0]) == {r.Channel(): TEXT}
    assert "Quagmire" in cache.everything


def test_without_it_a_stream_that_was_stopped_is_reported_as_it_went_out_and_not_cached(
    world: World, keeper: Keeper, cache: Kept
) -> None:
    row = TABLE[0]
    row.play(world, [[("content", 0, TEXT)]], ([6], 0))
    run(row, world, guard_of(Policy(), Scripted()), "stream", caching=True)
    said = "All is well. " + Policy().message
    assert told_by(row, keeper.settle().heard[0]) == {r.Channel(): said}
    assert "Quagmire" not in cache.everything


def test_without_it_a_stream_that_ran_to_its_end_is_reported_and_cached_raw(
    world: World, keeper: Keeper, cache: Kept
) -> None:
    row = TABLE[0]
    row.play(world, [[("content", 0, TEXT)]], ([6], 0))
    run(row, world, guard_of(Policy(action="redact"), Scripted()), "stream", caching=True)
    assert told_by(row, keeper.settle().heard[0]) == {r.Channel(): TEXT}
    assert "Quagmire" in cache.everything


@since(compat.ALL_DOORS)
def test_the_messages_door_refuses_deferred_records(world: World) -> None:
    g = Guard(detector=Scripted(), litellm_records="guarded")
    with pytest.raises(UsageError, match=r"litellm_records='guarded' does not work for anthropic"):
        g.messages(model="anthropic/x", max_tokens=8, messages=[{"role": "user", "content": "Hi"}])
