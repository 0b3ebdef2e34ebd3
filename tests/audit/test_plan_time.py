"""A plan's time has the guard's own work and models in this process, which are measured."""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from guard.audit import plan as plans
from guard.audit import timing
from guard.audit.audit import Audit
from guard.audit.calls import Piece, Reply, Slot, Usage
from guard.audit.cassette import Cassette
from guard.audit.models import CallError
from guard.audit.plan import CALLS, make_plan
from guard.cli import main
from guard.core import Guard
from guard.errors import UsageError
from guard.suites import Chat, Request
from tests.audit.test_runner import QUICK, Saying
from tests.audit.tiny_suite import Tiny, TinyOptions
from tests.scripted import Scripted

SUITE = "tests.audit.tiny_suite:Tiny"
SLOW_S = 0.02


def recorded(folder: Path) -> Path:
    """The journal of 60 answers."""
    path = folder / "run.db"
    audit = Audit.of(Tiny(TinyOptions()))
    asyncio.run(audit.run(Saying(), path, None, QUICK))
    return path


def test_a_replay_takes_what_the_guard_takes(tmp_path: Path) -> None:
    """The guard's planted time is slept, one answer after the other."""
    slow = Scripted(before=lambda window: time.sleep(SLOW_S))
    audit = Audit.of(Tiny(TinyOptions()))
    cassette = Cassette(recorded(tmp_path), audit)
    found = make_plan(
        audit, None, concurrency=8, latency_s=1.0, measure=True,
        guard=Guard(detector=slow, events="none"), replay=cassette,
    )  # fmt: skip
    assert found.parts[CALLS] == 0
    assert found.parts["guard"] >= 60 * SLOW_S / timing.GUARDED_AT_ONCE
    assert found.seconds >= found.parts["guard"]
    assert found.as_json()["seconds_by_part"]["guard"] == found.parts["guard"]
    # The probe judges the recorded answers, not all of them twice.
    assert slow.calls <= 65


def test_other_work_goes_on_while_providers_answer() -> None:
    slow = Guard(detector=Scripted(before=lambda window: time.sleep(SLOW_S)), events="none")
    audit = Audit.of(Tiny(TinyOptions()))
    asked = {"concurrency": 8, "guard": slow, "measure": True}
    waiting = make_plan(audit, "openai/gpt-4o-mini", latency_s=10.0, **asked)  # type: ignore[arg-type]
    assert waiting.seconds == waiting.parts[CALLS] == 60 / 8 * 10
    instant = make_plan(audit, "openai/gpt-4o-mini", latency_s=0.001, **asked)  # type: ignore[arg-type]
    assert instant.parts["guard"] > instant.parts[CALLS]
    assert instant.seconds == instant.parts["guard"] + instant.parts["runner"]


class Slow(Saying):
    """A local model: a tenth of a second for the prompt, a hundredth for each token."""

    async def ask(self, request: Request, key: str, slot: Slot) -> Reply:
        assert isinstance(request, Chat)
        written = min(request.settings["max_tokens"], 5)  # it ends early
        await asyncio.sleep(0.1 + 0.01 * written)
        return Reply((Piece("x " * written),), usage=Usage(9, written))


def test_a_local_models_time_is_that_of_its_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "open_model", lambda *_, **__: Slow())
    chats = [Chat(({"role": "user", "content": "Hi"},), {"max_tokens": 100}) for _ in range(9)]
    found = timing.local_speed("local:slow", timing.Sending(), chats, 50)
    assert isinstance(found, float)
    assert found >= 0.1 + 0.3
    audit = Audit.of(Tiny(TinyOptions()))
    planned = make_plan(audit, "local:slow", concurrency=8, latency_s=1.0, measure=True)
    assert planned.parts[CALLS] == 0
    assert planned.parts["local model"] >= 60 * (0.1 + 0.05)


def test_a_local_model_that_cannot_be_measured_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(Saying):
        async def ask(self, request: Request, key: str, slot: Slot) -> Reply:
            raise CallError("no")

    audit = Audit.of(Tiny(TinyOptions()))
    monkeypatch.setattr(timing, "open_model", lambda *_, **__: Silent())
    silent = make_plan(audit, "local:x", concurrency=8, latency_s=1.0, measure=True)
    assert "The time of local:x is not known" in silent.notes[-1]
    assert silent.seconds == 60  # as assumed, one at a time

    def missing(*_: object, **__: object) -> None:
        raise UsageError("local:x is not installed.")

    monkeypatch.setattr(timing, "open_model", missing)
    absent = make_plan(audit, "local:x", concurrency=8, latency_s=1.0, measure=True)
    assert absent.notes[-1].endswith("local:x is not installed.")


def test_the_command_plans_a_replay_and_prints_hours(tmp_path: Path) -> None:
    recorded(tmp_path)
    fixed = ["audit", "plan", "--suite", SUITE]
    replay = CliRunner().invoke(main, [*fixed, "--replay", str(tmp_path), "--json"])
    assert replay.exit_code == 0, replay.output
    (suite,) = json.loads(replay.stdout)["suites"]
    assert suite["replay_of"] == "saying"
    assert suite["cost_usd_estimate"] == suite["seconds_by_part"][CALLS] == 0
    assert suite["seconds_by_part"]["guard"] > 0
    shown = CliRunner().invoke(main, [*fixed, "--replay", str(tmp_path), "--plain-only"]).stdout
    assert "replay of saying" in shown
    assert "guard" not in shown.partition("of it")[2]
    slow = ["--model", "openai/gpt-4o-mini", "--plain-only", "--latency", "600"]
    assert "about 1 h 15 min" in CliRunner().invoke(main, [*fixed, *slow]).stdout
    both = CliRunner().invoke(main, [*fixed, "--replay", str(tmp_path), "--model", "openai/x"])
    assert both.exit_code == 2
    assert "Give --model or --replay, not both" in both.output


def test_a_time_for_answers_as_long_as_their_limit_is_said_to_be_an_upper_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers are one word, and a word takes guard a small part of what the limit would."""
    audit = Audit.of(Tiny(TinyOptions()))
    slow = Scripted(before=lambda window: time.sleep(len(window.text) * 1e-4))
    asked = {"concurrency": 8, "latency_s": 0.0, "measure": True}
    asked["guard"] = Guard(detector=slow, events="none")
    planned = make_plan(audit, "openai/gpt-4o-mini", **asked)  # type: ignore[arg-type]
    cassette = Cassette(recorded(tmp_path), audit)
    taken = make_plan(audit, None, replay=cassette, **asked)  # type: ignore[arg-type]
    assert planned.parts["guard"] > taken.parts["guard"]
    assert (planned.assumes_longest_answers, taken.assumes_longest_answers) == (True, False)
    rows = dict(plans._plan_rows(planned))
    assert rows["wall time"].startswith("at most about ")
    assert re.search(r"guard \S+ s at most; .*a word takes far less", rows["of it"])
    replayed = dict(plans._plan_rows(taken))["of it"]
    assert "at most" not in replayed
    assert "a word takes far less" not in replayed
    # Without a limit answers may be longer than assumed.
    unlimited = Audit.of(Tiny(TinyOptions()))
    monkeypatch.setattr(plans, "answer_limit", lambda request: math.nan)
    longer = make_plan(unlimited, "openai/gpt-4o-mini", **asked)  # type: ignore[arg-type]
    assert not longer.assumes_longest_answers
    said = dict(plans._plan_rows(longer))["of it"]
    assert "at most" not in said
    assert said.endswith("if an answer has 256 tokens; a word takes far less")
