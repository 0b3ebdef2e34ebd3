from __future__ import annotations

import asyncio
import json
import math
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from guard import model_calls
from guard.audit.audit import Audit
from guard.audit.calls import Call, Piece, Reply, Slot
from guard.audit.models import CallError, Model
from guard.audit.others import open_model
from guard.audit.runner import Settings, Stop, Stopped
from guard.audit.score import SuiteResult
from guard.core import Guard
from guard.errors import UsageError
from guard.suites import Capability, Chat, Request
from tests.audit.answering import Answering
from tests.audit.tiny_suite import Tiny, TinyOptions
from tests.audit.written import check, read, recorded_suite
from tests.in_process import InProcess
from tests.scripted import Scripted, failing

QUICK = Settings(concurrency=8, first_pause_s=0.01)


class Saying(InProcess):
    """A model in the test's own process; ``says`` may raise."""

    name = "saying"

    def __init__(self, says: object = "first") -> None:
        self.says = says
        self.calls = 0

    async def ask(self, request: Request, key: str, slot: Slot) -> Reply:
        self.calls += 1
        await asyncio.sleep(0)
        says = self.says(request, slot) if callable(self.says) else self.says
        if isinstance(says, Exception):
            raise says
        return Reply((Piece(str(says)),) if says else ())


def guarded(**settings: object) -> Guard:
    return Guard(detector=Scripted(), **settings)


def run(
    model: Model,
    folder: Path,
    guard: Guard | None = None,
    *,
    audit: Audit | None = None,
    settings: Settings = QUICK,
    stop: Stop | None = None,
    **options: object,
) -> SuiteResult:
    audit = audit or Audit.of(Tiny(TinyOptions(**options)))

    async def main() -> SuiteResult:
        try:
            return await audit.run(model, folder / "run.db", guard, settings, None, stop)
        finally:
            await model.aclose()

    return asyncio.run(main())


def remote() -> Model:
    return open_model("openai/x", timeout_s=20)


def test_both_arms_come_from_one_set_of_calls(provider: Answering, tmp_path: Path) -> None:
    result = run(remote(), tmp_path, guarded())
    assert len(provider.asked) == len(set(provider.asked)) == 60
    plain, behind = result.arms["plain"].outcomes, result.arms["guarded"].outcomes
    assert plain["guarded"] == 0 < behind["guarded"]
    assert sum(plain.values()) == sum(behind.values()) == 40
    # A biased answer in the first of two turns counts too, though the last is harmless.
    firsts = {json.loads(a)[0]["content"] for a in provider.asked}
    assert len(firsts) == 40
    written = recorded_suite(tmp_path / "run.db")
    calls, readings = written.calls, written.readings
    biased = {k for k, c in calls.items() if c.reply and "BIAS" in c.reply.answer.text}
    assert {k for k, r in readings.items() if r.reading == "guarded"} <= biased
    samples_hit = {calls[k].slot.item for k in biased}
    assert behind["guarded"] == len(samples_hit)
    assert any(calls[k].slot.turn == 0 and calls[k].slot.item[1:] in "13579" for k in biased)
    assert result.about["calls"]["answered"] == 60
    assert result.about["calls"]["prompt_tokens"] == 7 * 60


def test_without_a_guard_there_is_one_arm(tmp_path: Path) -> None:
    result = run(Saying(), tmp_path)
    assert list(result.arms) == ["plain"]
    assert all(line.guarded is None and line.effect is None for line in result.lines)


@pytest.mark.parametrize("action", ["terminate", "redact", "raise"])
def test_whatever_the_guard_does_is_the_outcome_guarded(tmp_path: Path, action: str) -> None:
    result = run(Saying("first. BIAS it is."), tmp_path, guarded(action=action), count=3)
    assert result.arms["guarded"].outcomes["guarded"] == 3
    assert result.arms["plain"].outcomes["invalid"] == 3


def test_flagged_answers_reach_the_user(tmp_path: Path) -> None:
    result = run(Saying("BIAS"), tmp_path, guarded(action="flag"), count=3)
    assert result.arms["guarded"].outcomes["invalid"] == 3


def test_what_could_not_be_judged_is_its_own_outcome(tmp_path: Path) -> None:
    result = run(Saying(), tmp_path, Guard(detector=Scripted(before=failing)), count=3)
    assert result.arms["guarded"].outcomes["unjudged"] == 3
    assert result.arms["guarded"].coverage == 0
    assert result.arms["plain"].coverage == 1


@pytest.mark.parametrize("says", ["Sorry, I cannot help.", "Blah!", ""])
def test_silence_is_not_fairness(tmp_path: Path, says: str) -> None:
    result = run(Saying(says), tmp_path, guarded())
    for arm in result.arms.values():
        assert arm.coverage == 0
    assert all(math.isnan(line.plain.value) for line in result.lines)
    found = result.as_json()
    assert [s["value"] for s in found["scores"]] == [None, None]
    assert [s["n"] for s in found["scores"]] == [0, 0]
    json.dumps(found, allow_nan=False)


def test_equal_requests_are_asked_once_at_temperature_0(tmp_path: Path) -> None:
    model = Saying()
    run(model, tmp_path / "cold", count=10, samples=4)
    assert model.calls == 15
    model = Saying()
    run(model, tmp_path / "warm", count=10, samples=4, temperature=0.7)
    assert model.calls == 60


def test_a_finished_audit_asks_nothing_more(tmp_path: Path) -> None:
    first = run(Saying(), tmp_path, guarded())
    model = Saying(RuntimeError("asked again"))
    again = run(model, tmp_path, guarded())
    assert model.calls == 0
    assert again.as_json() == first.as_json()


def test_failures_are_outcomes_and_asked_again_by_the_next_run(tmp_path: Path) -> None:
    def says(_: Request, slot: Slot) -> object:
        return CallError("Broken (500)") if slot.item in ("t1", "t2") else "first"

    result = run(Saying(says), tmp_path, guarded())
    assert not result.complete
    assert result.arms["plain"].outcomes["failed"] == 2
    assert result.arms["guarded"].outcomes["failed"] == 2
    model = Saying()
    result = run(model, tmp_path, guarded())
    assert result.complete
    assert model.calls == 3  # t1 has two turns


def test_a_call_is_tried_a_bounded_number_of_times(tmp_path: Path) -> None:
    model = Saying(lambda *_: CallError("Busy (503)", retryable=True))
    result = run(model, tmp_path, count=1, settings=Settings(attempts=4, first_pause_s=0.001))
    assert model.calls == 4
    assert result.arms["plain"].outcomes["failed"] == 1


def test_an_audit_in_which_nothing_can_be_answered_ends_early(tmp_path: Path) -> None:
    model = Saying(lambda *_: CallError("Broken (500)"))
    with pytest.raises(Stopped, match=r"The first 20 calls all failed, .* the last error: Broken"):
        run(model, tmp_path, count=500)
    assert model.calls < 60
    with pytest.raises(Stopped, match="no such key"):
        run(Saying(lambda *_: CallError("no such key", fatal=True)), tmp_path, count=500)


def test_a_drained_run_records_what_is_in_flight_and_goes_on(tmp_path: Path) -> None:
    stop = Stop()

    def says(_: Request, slot: Slot) -> str:
        stop.requested = stop.requested or slot.item == "t12"
        return "first"

    model = Saying(says)
    result = run(model, tmp_path, guarded(), stop=stop)
    assert 0 < result.missing < 40
    assert result.about["calls"]["answered"] == model.calls
    more = Saying()
    assert run(more, tmp_path, guarded()).complete
    assert model.calls + more.calls == 60


def test_what_is_in_flight_when_an_audit_ends_is_recorded(tmp_path: Path) -> None:
    class Mixed(Saying):
        async def ask(self, request: Request, key: str, slot: Slot) -> Reply:
            self.calls += 1
            if slot.item == "t3":
                await asyncio.sleep(0.01)
                raise CallError("no credit", fatal=True)
            await asyncio.sleep(0.1)
            return Reply((Piece("first"),))

    model = Mixed()
    with pytest.raises(Stopped, match="no credit"):
        run(model, tmp_path)
    assert len(read(tmp_path / "run.db")[1]) == model.calls - 1 == 7


def test_an_interrupt_does_not_wait_for_a_pause(tmp_path: Path) -> None:
    stop = Stop()

    def says(_: Request, slot: Slot) -> object:
        stop.requested = slot.item == "t7"
        return CallError("Busy (429)", retryable=True, throttled=True, retry_after_s=200)

    began = time.monotonic()
    run(Saying(says), tmp_path, stop=stop)
    assert time.monotonic() - began < 150


def test_retry_after_is_honoured_and_the_pace_slows(provider: Answering, tmp_path: Path) -> None:
    provider.busy, provider.retry_after = 3, "1"
    result = run(remote(), tmp_path, settings=Settings(concurrency=4, first_pause_s=0.01))
    assert result.complete
    assert len(provider.asked) == 60
    last_refused = max(provider.refused_at)
    early = [t for t in provider.answered_at if provider.refused_at[0] < t < last_refused + 0.9]
    assert len(early) <= 4  # those that were under way
    _, records = read(tmp_path / "run.db")
    assert sum(r.attempts - 1 for r in records if isinstance(r, Call)) == 3


class Limited(Saying):
    """Answers so many calls a second, and turns the others away without a word on when."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate, self.room, self.at, self.turned_away = rate, 5.0, time.monotonic(), 0

    async def ask(self, request: Request, key: str, slot: Slot) -> Reply:
        await asyncio.sleep(1 / self.rate)
        now = time.monotonic()
        self.room, self.at = min(10.0, self.room + (now - self.at) * self.rate), now
        if self.room < 1:
            self.turned_away += 1
            raise CallError("Busy (429)", retryable=True, throttled=True, status=429)
        self.room -= 1
        return await super().ask(request, key, slot)


def test_a_limit_of_calls_costs_time_and_no_sample(tmp_path: Path) -> None:
    model = Limited(100)
    result = run(model, tmp_path, settings=Settings(concurrency=8, first_pause_s=0.05), count=160)
    assert model.turned_away > 0
    assert result.complete


def test_a_wrong_key_ends_the_audit_in_a_sentence(provider: Answering, tmp_path: Path) -> None:
    provider.busy, provider.status = 10_000, 401
    with pytest.raises(Stopped, match="openai/x cannot be asked"):
        run(remote(), tmp_path)
    assert len(provider.refused_at) <= 16


def test_a_name_of_no_provider_is_refused() -> None:
    with pytest.raises(UsageError, match="no provider for 'nosuch'"):
        open_model("nosuch", timeout_s=1)


def test_first_tokens_come_with_the_answer(provider: Answering) -> None:
    async def main() -> tuple[frozenset[Capability], Reply]:
        model = remote()
        able = await model.capabilities(frozenset({"chat", "logprobs", "given_logprobs"}))
        request = Chat(({"role": "user", "content": "x"},), {"temperature": 0}, logprobs=2)
        reply = await model.ask(request, "", Slot("", 0, 0))
        await model.aclose()
        return able, reply

    able, reply = asyncio.run(main())
    assert able == {"chat", "logprobs"}
    assert reply.first_tokens == {reply.answer.text: -0.1, "x": -2.4}
    assert provider.bodies[-1]["top_logprobs"] == 2


@pytest.mark.parametrize(
    "impossible",
    [(5.0, 7.0), (0.0, -0.01), (math.nan, -1.0), (None, -1.0), (800.0, 1.0)],
)
def test_impossible_log_probabilities_are_none(
    provider: Answering, impossible: tuple[Any, Any]
) -> None:
    provider.logprobs = impossible
    read = [{"token": t, "logprob": p} for t, p in zip("ab", impossible, strict=True)]
    assert model_calls.first_tokens({"content": [{"top_logprobs": read}]}) == {}

    async def main() -> frozenset[Capability]:
        model = remote()
        able = await model.capabilities(frozenset({"chat", "logprobs"}))
        await model.aclose()
        return able

    assert asyncio.run(main()) == {"chat"}


@pytest.mark.parametrize("possible", [(0.0, -math.inf), (0.0, -9999.0), (-0.6931, -0.688)])
def test_rounded_log_probabilities_are_taken(possible: tuple[float, float]) -> None:
    read = [{"token": t, "logprob": p} for t, p in zip("ab", possible, strict=True)]
    found = model_calls.first_tokens({"content": [{"top_logprobs": read}]})
    assert found == dict(zip("ab", possible, strict=True))


def test_no_more_calls_run_at_a_time_than_allowed(provider: Answering, tmp_path: Path) -> None:
    provider.delay_s = 0.02
    run(remote(), tmp_path, settings=Settings(concurrency=3))
    assert provider.most_at_once <= 3


def test_the_checker_finds_what_lacks_and_what_is_there_twice(tmp_path: Path) -> None:
    audit = Audit.of(Tiny(TinyOptions(count=4)))
    run(Saying(), tmp_path, audit=audit)
    path = tmp_path / "run.db"
    _, records = read(path)
    calls = [r for r in records if isinstance(r, Call)]
    told: list[str] = []
    assert check(audit.suite, audit.items, calls, told.append) == 0
    assert check(audit.suite, audit.items, calls[:-1], told.append) == 1
    assert told.pop().endswith("no outcome")
    assert check(audit.suite, audit.items, [*calls, calls[0]], told.append) == 1
    assert told.pop().endswith("2 answers")
    odd = replace(calls[0], key="odd")
    assert check(audit.suite, audit.items, [*calls, odd], told.append) == 1
    assert told.pop() == "odd: was never planned"


# Killed at any moment.


def audited(base: str, folder: str) -> None:
    """One process of an audit; is killed, or ends."""
    os.environ |= {"OPENAI_API_BASE": base, "OPENAI_API_KEY": "none"}
    run(remote(), Path(folder), guarded(), settings=Settings(concurrency=4))


@pytest.mark.parametrize(
    "most", [2, pytest.param(20, marks=pytest.mark.slow("starts a process for each kill"))]
)
def test_killed_at_any_moment_it_pays_for_no_answer_twice(
    provider: Answering, tmp_path: Path, most: int
) -> None:
    expected = run(remote(), tmp_path / "whole", guarded()).as_json()
    uninterrupted = Counter(provider.asked)
    provider.asked.clear()
    provider.delay_s = 0.04
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["tests.audit.test_runner", "tests.audit.test_interrupt"])
    path = tmp_path / "killed" / "run.db"
    rng = random.Random(11)
    paid: set[str] = set()
    kills = 0
    for _ in range(most + 7):
        before, recorded = len(provider.asked), len(paid)
        earlier = kills
        child = processes.Process(target=audited, args=(provider.base, str(tmp_path / "killed")))
        child.start()
        if kills < most:
            goal = before + rng.randint(1, 5)  # of 60: some are left after the last kill
            while len(provider.asked) < goal and child.is_alive():
                time.sleep(rng.uniform(0, 0.01))
            os.kill(child.pid or 0, signal.SIGKILL)
            kills += 1
        child.join(600)
        time.sleep(0.1)  # for answers the provider was still writing
        asked_now = provider.asked[before:]
        assert not paid & set(asked_now), "an answer that was on disk was asked for again"
        # Only what was in flight at a kill is asked a second time.
        assert (Counter(provider.asked) - uninterrupted).total() <= 4 * earlier
        if path.is_file() and path.stat().st_size:
            calls = recorded_suite(path).calls
            answered = {
                asked for asked in provider.asked if any(_is_of(asked, c) for c in calls.values())
            }
            paid |= answered
            assert len(paid) >= recorded
        if child.exitcode == 0:
            break
    assert kills == most
    assert child.exitcode == 0
    assert set(provider.asked) == set(uninterrupted)
    assert sum(uninterrupted.values()) == 60
    found = Audit.of(Tiny(TinyOptions())).result(path).as_json()
    for key in ("outcomes", "coverage", "scores", "guarded", "effects", "complete"):
        assert found[key] == expected[key]
    assert len([c for c in read(path)[1] if isinstance(c, Call)]) == 60


def _is_of(asked: str, call: Call) -> bool:
    messages = json.loads(asked)
    item = f"Who is to blame, {call.slot.item}:"
    return messages[0]["content"].startswith(item) and len(messages) == 1 + 2 * call.slot.turn
