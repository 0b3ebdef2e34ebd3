"""A short run of the attacks; ``python -m tests.attacks`` is the long one."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import ClientSession

from guard.core import Guard
from guard.doors.driver import GuardedStream
from guard.policy import Policy
from tests.attacks import running
from tests.attacks.attacker import Attacker, Tally, attacking, report
from tests.attacks.case import make
from tests.attacks.oracle import judge
from tests.attacks.reading import Emitted, ProxyAnswered
from tests.scripted import Scripted

# What is left open by providers that break off, and what LiteLLM says of its own types.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def attacker() -> Iterator[Attacker]:
    with attacking() as attacker:
        yield attacker


def test_the_guard_is_as_it_was_behind_the_attacks() -> None:
    take = GuardedStream._take
    attacks = attacking()
    attacks.__enter__()
    assert GuardedStream._take is not take
    attacks.__exit__(ValueError, ValueError("broken off"), None)
    assert GuardedStream._take is take


def open_sessions() -> list[ClientSession]:
    sessions = [each for each in gc.get_objects() if type(each) is ClientSession]
    return [each for each in sessions if not each.closed]


def test_what_the_attacks_open_they_close() -> None:
    before = open_sessions()
    with attacking() as attacker:
        for number in range(20):
            attacker.run(str(number), Tally())
    assert [each for each in open_sessions() if each not in before] == []


def test_what_a_blind_detector_lets_pass_is_found(
    attacker: Attacker, monkeypatch: pytest.MonkeyPatch
) -> None:
    detector = Scripted("nothing has this")
    blind = {"_guard": Guard(Policy(), detector=detector), "_guards": {}}
    for name, value in blind.items():
        monkeypatch.setattr(attacker.doors, name, value)
    tally = Tally()
    for number in range(4):  # none of them makes the provider wait to be left
        attacker.run(str(number), tally)
    assert {"leak", "missed"} <= set(tally.kinds())


def test_nothing_is_found_at_any_door(attacker: Attacker) -> None:
    """Of the first 400 cases the first of each door, way and source, streamed and whole."""
    first: dict[Any, int] = {}
    for number, case in enumerate(make(str(number)) for number in range(400)):
        first.setdefault((case.door, case.route, case.streamed, case.asynchronous), number)
    tally = Tally()
    for number in first.values():
        attacker.run(str(number), tally)
    assert tally.runs > 60
    assert tally.found == [], report(tally)


@pytest.mark.slow("400 answers, many over sockets")
@pytest.mark.parametrize("first", range(0, 400, 50))
def test_nothing_is_found(attacker: Attacker, first: int) -> None:
    tally = Tally()
    for number in range(first, first + 50):
        attacker.run(str(number), tally)
    assert tally.found == [], report(tally)


@pytest.mark.slow("starts a proxy")
def test_nothing_is_found_on_the_proxy() -> None:
    pytest.importorskip("fastapi", reason="the proxy of LiteLLM is not installed (extra 'proxy')")
    tally = Tally()
    with running.proxied() as (url, port), attacking(url, port) as attacker:
        for number in range(40):
            attacker.run(f"{number}p", tally)
    assert tally.ways == {"proxy": 40}
    assert tally.found == [], report(tally)


@pytest.mark.parametrize(
    ("text", "excused"),
    [
        ('{"error": {"message": "litellm.APIConnectionError: gone"}}', True),
        ('{"error": {"message": "{\'error\': \'guard: chats have no ...\'}"}}', False),
        ('{"error": {"message": "guardrail \'bias\': LiteLLM answered"}}', False),
        ('{"error": {"message": "left out, as it quotes text that the guard withheld."}}', True),
    ],
)
def test_what_the_guard_itself_says_is_no_error_of_the_provider(text: str, excused: bool) -> None:
    numbers = map(str, range(1000))
    case = next(c for c in map(make, numbers) if c.streamed and c.answer.ending == "error")
    emitted = Emitted(error=ProxyAnswered(500, text))
    found = [f.kind for f in judge(case, emitted, Emitted) if f.kind == "crash"]
    assert found == ([] if excused else ["crash"])
    socket = case.route.socket
    own = Emitted(error=RuntimeError("made here"))
    assert ("crash" in [f.kind for f in judge(case, own, Emitted)]) == socket
