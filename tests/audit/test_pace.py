from __future__ import annotations

import asyncio
import time

import pytest

from guard.audit.pace import Pace
from guard.audit.remote_model import retry_after


class Answer:
    def __init__(self, **headers: str) -> None:
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class Busy(Exception):
    def __init__(self, **headers: str) -> None:
        self.response = Answer(**headers)


async def calls(pace: Pace, count: int, seconds: float = 0.0) -> int:
    most = 0

    async def call() -> None:
        nonlocal most
        async with pace:
            most = max(most, pace.running)
            await asyncio.sleep(seconds)

    await asyncio.gather(*(call() for _ in range(count)))
    return most


def test_it_doubles_up_to_the_most_allowed() -> None:
    async def main() -> None:
        pace = Pace(50)
        assert await calls(pace, 8) == 8
        assert pace.limit == 16
        assert await calls(pace, 200, 0.001) == 50
        assert pace.running == 0

    asyncio.run(main())


def test_it_halves_once_for_calls_that_began_together_and_grows_slowly() -> None:
    async def main() -> None:
        pace = Pace(64, first=64)
        began = time.monotonic()
        for _ in range(10):
            pace.reduce(began)
        assert pace.limit == 32
        pace.reduce(time.monotonic())
        assert pace.limit == 16
        await calls(pace, 16)
        assert 16.9 < pace.limit < 17.1
        for _ in range(20):
            pace.reduce(time.monotonic())
        assert pace.limit == 1

    asyncio.run(main())


def test_nothing_begins_while_the_provider_wants_a_pause() -> None:
    async def main() -> float:
        pace = Pace(4)
        pace.reduce(time.monotonic(), 0.2)
        begin = time.monotonic()
        await calls(pace, 4)
        return time.monotonic() - begin

    assert asyncio.run(main()) >= 0.2


def test_a_cancelled_call_leaves_its_place() -> None:
    async def main() -> None:
        pace = Pace(1)
        running = asyncio.create_task(calls(pace, 1, 60))
        waiting = asyncio.create_task(calls(pace, 1))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait_for(waiting, 5)
        waiting = asyncio.create_task(calls(pace, 1, 60))
        await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await asyncio.wait_for(calls(pace, 3), 5)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("told", "seconds"),
    [("7", 7), ("0.5", 0.5), ("-3", 0), ("9999", 300), ("soon", 0), ("nan", 0), ("inf", 0)],
)
def test_retry_after_in_seconds(told: str, seconds: float) -> None:
    assert retry_after(Busy(retry_after=told)) == seconds


def test_retry_after_as_a_date() -> None:
    from email.utils import formatdate

    assert 50 < retry_after(Busy(retry_after=formatdate(time.time() + 60, usegmt=True))) <= 60
    assert retry_after(Busy(retry_after=formatdate(0, usegmt=True))) == 0
    assert retry_after(Busy()) == 0
    assert retry_after(ValueError()) == 0
