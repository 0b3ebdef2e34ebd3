"""``guard.counts()``: each response that guard gets counts once, whichever way it came."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from typing import Any

import litellm
import pytest
from litellm.caching.caching import Cache

import guard
from guard import BiasFound, Guard, Policy
from tests.doors import replay as r
from tests.doors.table import TABLE, Row, World, arun, guard_of
from tests.doors.test_recorder import DOORS
from tests.doors.test_rewrite import BIASED, ON, REWRITE
from tests.doors.test_router import ROUTED, asked, router  # noqa: F401
from tests.provider import Provider, Script
from tests.rows import rows
from tests.scripted import Scripted

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")

HARMLESS, STOPPED = "All is well. And so it goes on.", "All is well. BIAS is here. "


def door_of(row: Row) -> str:
    return DOORS.get(row.door.function, row.door.function)


def counted(run: Callable[[], Any]) -> Counter[str]:
    """Return what counts of a run, which may raise what guard raises."""
    before = guard.counts()
    with suppress(BiasFound):
        run()
    return guard.counts() - before


@rows("said, row", product([HARMLESS, STOPPED], TABLE))
def test_a_response_counts_once_by_every_door(world: World, row: Row, said: str) -> None:
    g = guard_of(Policy(), Scripted())
    row.play(world, [[("content", 0, said)]], ([7], 0))
    assert counted(lambda: row.ways(world, g)) == {door_of(row): 4}


@rows("row", TABLE)
def test_so_does_one_that_ends_in_an_error_of_guards(world: World, row: Row) -> None:
    g = guard_of(Policy(action="raise"), Scripted())
    row.play(world, [[("content", 0, STOPPED)]], ([7], 0))
    assert counted(lambda: row.whole(world, g)) == {door_of(row): 1}
    assert counted(lambda: row.drained(row.stream(world, g))) == {door_of(row): 1}


@rows("row", TABLE)
def test_a_stream_counts_before_it_is_read(world: World, row: Row) -> None:
    g = guard_of(Policy(), Scripted())
    row.play(world, [[("content", 0, HARMLESS)]], ([7], 0))
    before = guard.counts()
    stream = row.stream(world, g)
    assert guard.counts() - before == {door_of(row): 1}
    row.drained(stream)
    assert guard.counts() - before == {door_of(row): 1}


@rows("row", ROUTED)
def test_a_router_counts_once(provider: Provider, router: Any, row: Row) -> None:  # noqa: F811
    """Wrapped, or reached by interception: the calls below it are not counted again."""
    provider.script = Script([["All is well.", " BIAS is here."]])
    g = guard_of(Policy(), Scripted())
    call, acall = row.door.function, "a" + row.door.function

    def run(owner: Any) -> None:
        row.answered(getattr(owner, call)(**asked(row)))
        row.drained(getattr(owner, call)(**asked(row), stream=True))

        async def later() -> None:
            row.answered(await getattr(owner, acall)(**asked(row)))
            await row.adrained(await getattr(owner, acall)(**asked(row), stream=True))

        arun(later())

    assert counted(lambda: run(g.wrap(router))) == {door_of(row): 4}
    with g.intercept():
        assert counted(lambda: run(router)) == {door_of(row): 4}
    assert not counted(lambda: run_unguarded(router, row))


def run_unguarded(router: Any, row: Row) -> None:  # noqa: F811
    getattr(router, row.door.function)(**asked(row))


@pytest.fixture
def call(provider: Provider) -> dict[str, Any]:
    provider.script = Script([["All is well.", " BIAS is here."]])
    return {
        "model": "openai/x",
        "messages": r.MESSAGES,
        "api_base": provider.openai,
        "api_key": "k",
        "max_retries": 0,
    }


def test_calls_of_litellm_itself_count_once_guard_is_installed(call: dict[str, Any]) -> None:
    async def later() -> None:
        await litellm.acompletion(**call)
        async for _ in await litellm.acompletion(**call, stream=True):
            pass

    def run() -> None:
        litellm.completion(**call)
        list(litellm.completion(**call, stream=True))
        r.arun(later())

    assert counted(run) == {}
    guard.install(guard_of(Policy(), Scripted()))
    try:
        assert counted(run) == {"chat": 4}
    finally:
        guard.uninstall()
    assert counted(run) == {}


def test_an_answer_of_litellms_cache_counts_too(
    provider: Provider, call: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(litellm, "cache", Cache(type="local"))
    provider.script = Script([["All is well."]])
    g = guard_of(Policy(), Scripted())
    assert counted(lambda: [g.completion(**call, caching=True) for _ in range(3)]) == {"chat": 3}
    assert len(provider.served) == 1


@rows("stream", [True, False])
def test_a_rewritten_answer_counts_once(
    provider: Provider, call: dict[str, Any], stream: bool
) -> None:
    provider.served.clear()
    provider.scripts, provider.script = [Script([BIASED])], Script([ON])
    g = guard_of(REWRITE, Scripted())
    assert counted(lambda: [*g.completion(**call, stream=stream)]) == {"chat": 1}
    assert len(provider.served) == 2


def test_each_answer_of_a_batch_each_text_and_each_plain_stream_counts() -> None:
    g = guard_of(Policy(), Scripted())
    said = {"model": "openai/x", "messages": [r.MESSAGES] * 3, "mock_response": "All is well."}
    assert counted(lambda: g.batch_completion(**said)) == {"chat": 3}
    with g.intercept():
        assert counted(lambda: litellm.batch_completion(**said)) == {"chat": 3}
    assert counted(lambda: g.check_many(["One.", "Two."])) == {"check": 2}
    assert counted(lambda: "".join(g.stream(["All is well. ", "BIAS is."]))) == {"plain": 1}


def test_a_call_without_an_answer_does_not_count(provider: Provider, call: dict[str, Any]) -> None:
    provider.script = Script(status=500)
    g = guard_of(Policy(), Scripted())
    before = guard.counts()
    with pytest.raises(litellm.InternalServerError):
        g.completion(**call)
    assert guard.counts() == before


def test_no_count_is_lost_between_threads_and_the_counter_is_a_copy() -> None:
    g = guard_of(Policy(), Scripted())
    before = guard.counts()

    def streams() -> None:
        for _ in range(500):
            g.stream([]).close()

    threads = [threading.Thread(target=streams) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    guard.counts()["plain"] += 1000
    assert guard.counts() - before == {"plain": 4000}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_process_has_guarded_nothing_yet() -> None:
    g = Guard(Policy(), detector=Scripted())
    g.check("All is well.")
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        told = [dict(guard.counts())]
        g.stream([]).close()
        os.write(writing, repr([*told, dict(guard.counts())]).encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as pipe:
        assert pipe.read() == "[{}, {'plain': 1}]"
    assert guard.counts()["check"] > 0
