"""The action ``raise``: nothing that an error leads to has the withheld text."""

from __future__ import annotations

import gc
import traceback
from itertools import product
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import litellm
import pytest

import guard
from guard import BiasFound
from guard.doors import chat
from guard.errors import DetectorError, GuardError
from guard.policy import Policy
from tests.doors import replay as r
from tests.doors.table import TABLE, Row, World, arun, guard_of
from tests.rows import rows
from tests.scripted import Scripted

SECRET = "the withheld BIAS of the model"
SAID = f"All is well. Here is {SECRET}. "
OURS = str(Path(guard.__file__).parent), str(Path(litellm.__file__).parent)


def led_to(error: BaseException) -> list[str]:
    """Return the texts with the secret that an error reporter could find from ``error``."""
    waiting: list[Any] = [error.args, error.__dict__]
    chain: list[BaseException | None] = [error]
    while chain:
        if (one := chain.pop()) is not None:
            chain += [one.__cause__, one.__context__]
            waiting += [str(one), one.args]
            frames = [frame for frame, _ in traceback.walk_tb(one.__traceback__)]
            waiting += [f.f_locals for f in frames if f.f_code.co_filename.startswith(OURS)]
    found, seen = [], set()
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            found += [one] if SECRET in one else []
        elif id(one) not in seen and not isinstance(one, (type, ModuleType, FunctionType)):
            seen.add(id(one))
            assert len(seen) < 500_000
            waiting += gc.get_referents(one)
    return found


@rows("asynchronous, row", product([False, True], TABLE))
def test_the_error_of_a_whole_answer_leads_to_nothing(
    world: World, row: Row, asynchronous: bool
) -> None:
    guarding = guard_of(Policy(action="raise"), Scripted())
    row.play(world, [[("content", 0, SAID)]], ([5], 0))
    assert SECRET not in repr(row.call(world))
    with pytest.raises(BiasFound) as caught:
        arun(row.awhole(world, guarding)) if asynchronous else row.whole(world, guarding)
    assert caught.value.trail.stopped
    caught.value.trail = None  # type: ignore[assignment]  # its words are the finding's
    assert led_to(caught.value) == []


def test_nor_does_that_of_a_judge_that_fails(world: World) -> None:
    def fail(window: Any) -> None:
        raise OSError(window.text)

    guarding = guard_of(Policy(action="raise"), Scripted(before=fail))
    row = TABLE[0]
    row.play(world, [[("content", 0, SAID)]], ([5], 0))
    with pytest.raises(DetectorError) as caught:
        row.whole(world, guarding)
    assert led_to(caught.value) == []


def test_nor_do_those_of_a_batch() -> None:
    guarding = guard_of(Policy(action="raise"), Scripted())
    (error,) = guarding.batch_completion(
        model="openai/x", messages=[r.MESSAGES], mock_response=SAID
    )
    error.trail = None
    assert led_to(error) == []


def test_nor_does_that_of_an_answer_that_was_given(world: World) -> None:
    answers = [r.answer_of([r.Said(0, "content", SAID)])]
    with pytest.raises(GuardError) as caught:
        chat.guard(r.session(Policy(action="raise"), Scripted()), answers.pop())
    caught.value.trail = None  # type: ignore[attr-defined]
    assert led_to(caught.value) == []
