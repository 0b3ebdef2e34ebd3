"""A short run of the attacks; ``python -m tests.attacks`` is the long one."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from aiohttp import ClientSession

from guard.core import Guard
from guard.doors.driver import GuardedStream
from guard.policy import Policy
from tests.attacks.attacker import Attacker, Tally, attacking, report
from tests.scripted import Scripted

pytestmark = [
    # What is left open by providers that break off, and what LiteLLM says of its own types.
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.timeout(600),
]


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
        for number in range(60):
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
    for number in range(30):
        attacker.run(str(number), tally)
    assert {"leak", "missed"} <= set(tally.kinds())


@pytest.mark.parametrize("first", range(0, 400, 50))
def test_nothing_is_found(attacker: Attacker, first: int) -> None:
    tally = Tally()
    for number in range(first, first + 50):
        attacker.run(str(number), tally)
    assert tally.found == [], report(tally)
