"""What a recorder is told: each decision, and each response once, through every door."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from guard.core import Guard
from guard.policy import Policy
from guard.verdict import Decision, GuardTrail
from tests.doors import replay as r
from tests.doors.table import TABLE, Row, World, guard_of
from tests.doors.test_rewrite import BIASED, ON, REWRITE
from tests.provider import Provider, Script
from tests.rows import rows
from tests.scripted import Scripted

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")

DOORS = {"completion": "chat", "text_completion": "text"}


class Heard:
    """A recorder that keeps what it is told."""

    def __init__(self) -> None:
        self.decisions: list[tuple[str, str, Decision, str]] = []
        self.ends: list[tuple[str, str, str, int]] = []

    def decided(self, session: Any, trail: GuardTrail, decision: Decision, text: str) -> None:
        assert trail.decisions[-1] is decision
        self.decisions.append((trail.id, session.door, decision, text))

    def ended(self, session: Any, trail: GuardTrail, outcome: str) -> None:
        self.ends.append((trail.id, session.door, outcome, len(trail)))


def heard_by(guard: Guard) -> Heard:
    heard = Heard()
    guard.recorder = heard
    return heard


@rows(
    "said, outcome, row",
    [
        (said, outcome, row)
        for said, outcome in [
            ("All is well. And so it goes on.", "completed"),
            ("All is well. BIAS is here. ", "stopped"),
        ]
        for row in TABLE
    ],
)
def test_each_response_ends_once_with_all_its_decisions(
    world: World, row: Row, said: str, outcome: str
) -> None:
    guard = guard_of(Policy(), Scripted())
    heard = heard_by(guard)
    row.play(world, [[("content", 0, said)]], ([7], 0))
    trails = [way.trail for way in row.ways(world, guard)]
    door = DOORS.get(row.door.function, row.door.function)
    assert sorted(heard.ends) == sorted((t.id, door, outcome, len(t)) for t in trails)
    assert len({t.id for t in trails}) == 4
    for trail in trails:
        assert [d for id_, _, d, _ in heard.decisions if id_ == trail.id] == list(trail)
    assert {d for _, d, _, _ in heard.decisions} == {door}
    assert {text.strip() for *_, text in heard.decisions} >= {"All is well."}


@rows("row", TABLE[:2])
def test_a_reader_who_leaves_ends_the_response_too(world: World, row: Row) -> None:
    guard = guard_of(Policy(), Scripted())
    heard = heard_by(guard)
    row.play(world, [[("content", 0, "All is well. " * 40)]], ([5], 0))
    stream = row.stream(world, guard)
    next(iter(stream))
    stream.close()
    stream.close()
    assert [outcome for _, _, outcome, _ in heard.ends] == ["left"]


@rows("stream", [True, False])
def test_an_answer_that_is_rewritten_is_one_response(provider: Provider, stream: bool) -> None:
    guard = guard_of(REWRITE, Scripted())
    heard = heard_by(guard)
    provider.scripts = [Script([BIASED])]
    provider.script = Script([ON])
    call = {"model": "openai/x", "messages": r.MESSAGES, "api_base": provider.openai}
    answer = guard.completion(**call, api_key="k", stream=stream)
    if stream:
        list(answer)
    ((id_, _, _, count),) = heard.ends
    assert id_ == answer.guard.id
    assert count == len(heard.decisions) == len(answer.guard)
    assert "rewrite" in [d.action for _, _, d, _ in heard.decisions]


def test_each_answer_of_a_batch_is_a_response() -> None:
    guard = guard_of(Policy(), Scripted())
    heard = heard_by(guard)
    answers = guard.batch_completion(
        model="openai/x", messages=[r.MESSAGES] * 3, mock_response="All is well."
    )
    assert sorted(end[0] for end in heard.ends) == sorted(a.guard.id for a in answers)


def test_an_error_that_is_judged_is_no_response_of_the_door() -> None:
    guard = guard_of(Policy(), Scripted())
    heard = heard_by(guard)

    def failing() -> Any:
        yield "All is well. "
        raise OSError("the answer was BIAS here")

    with pytest.raises(OSError, match="left out"):
        list(guard.stream(failing()))
    assert sorted((door, outcome) for _, door, outcome, _ in heard.ends) == [
        ("error", "stopped"),
        ("plain", "failed"),
    ]


def test_checks_are_responses_of_their_own_door() -> None:
    guard = guard_of(Policy(), Scripted())
    heard = heard_by(guard)
    guard.check_many(["All is well.", "BIAS. And more."])
    assert [(door, outcome, n) for _, door, outcome, n in heard.ends] == [
        ("check", "completed", 1),
        ("check", "completed", 2),
    ]


def test_an_async_stream_tells_its_end_once() -> None:
    guard = guard_of(Policy(), Scripted())
    heard = heard_by(guard)

    async def read() -> None:
        async def texts() -> Any:
            yield "All is well. "
            yield "And so on."

        async for _ in guard.astream(texts()):
            pass

    asyncio.run(read())
    assert [outcome for _, _, outcome, _ in heard.ends] == ["completed"]
