"""Results of threads reach the loops that wait for them, each its own."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from guard.detect import loop_bridge


async def test_every_waiter_gets_its_own_result() -> None:
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(lambda n=n: n) for n in range(500)]
        assert await asyncio.gather(*(loop_bridge.Bridge(f).result(60) for f in futures)) == list(
            range(500)
        )


async def test_what_is_done_already_is_returned() -> None:
    future: Future[int] = Future()
    future.set_result(7)
    assert await loop_bridge.Bridge(future).result(None) == 7


async def test_an_error_is_raised() -> None:
    future: Future[int] = Future()
    threading.Timer(0.01, future.set_exception, [KeyError("x")]).start()
    with pytest.raises(KeyError):
        await loop_bridge.Bridge(future).result(60)


async def test_what_is_late_is_left_alone() -> None:
    future: Future[int] = Future()
    with pytest.raises(asyncio.TimeoutError):
        await loop_bridge.Bridge(future).result(0.01)
    assert not future.cancelled()
    future.set_result(1)  # nobody waits any more
    await asyncio.sleep(0.01)


async def test_a_future_hears_once_of_who_waits_many_times() -> None:
    class Counting(Future[int]):
        heard = 0

        def add_done_callback(self, fn: Any) -> None:
            self.heard += 1
            super().add_done_callback(fn)

    future = Counting()
    bridge = loop_bridge.Bridge(future)
    for _ in range(5):
        with pytest.raises(asyncio.TimeoutError):
            await bridge.result(0.001)
    asyncio.get_running_loop().call_later(0.01, future.set_result, 7)
    assert await bridge.result(60) == 7
    assert future.heard == 1


@pytest.mark.parametrize("cancelled", ["waiter", "future"])
async def test_a_wait_ends_with_its_waiter_and_with_its_future(cancelled: str) -> None:
    future: Future[int] = Future()
    task = asyncio.create_task(loop_bridge.Bridge(future).result(60))
    await asyncio.sleep(0)
    task.cancel() if cancelled == "waiter" else future.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    if cancelled == "waiter":
        future.set_result(1)
        await asyncio.sleep(0.01)  # an error of the callback would end the loop


def test_loops_of_several_threads_do_not_mix() -> None:
    with ThreadPoolExecutor(4) as pool:

        def loop(base: int) -> list[int]:
            async def wait() -> list[int]:
                futures = [pool.submit(lambda n=n: n) for n in range(base, base + 100)]
                return await asyncio.gather(*(loop_bridge.Bridge(f).result(60) for f in futures))

            return asyncio.run(wait())

        with ThreadPoolExecutor(3) as loops:
            bases = [0, 1000, 2000]
            assert [x[:1] for x in loops.map(loop, bases)] == [[0], [1000], [2000]]


def test_a_result_for_a_loop_that_has_ended_is_dropped() -> None:
    future: Future[int] = Future()

    async def give_up() -> None:
        task = asyncio.create_task(loop_bridge.Bridge(future).result(60))
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(give_up())
    future.set_result(1)
