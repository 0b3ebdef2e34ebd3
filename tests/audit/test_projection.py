"""What limits an audit is named where it is planted, and in a run it is what took the time."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from guard.audit.audit import Audit
from guard.audit.plan import CALLS, make_plan
from guard.audit.projection import ADVICE, START_S, Projection
from guard.audit.run_file import RunFile
from guard.cli import main
from guard.core import Guard
from tests.audit.answering import Answering
from tests.audit.tiny_suite import Tiny, TinyOptions
from tests.rows import rows
from tests.scripted import Scripted

SUITE = "tests.audit.tiny_suite:Tiny"
HOUR = 3600.0


@rows(
    "planted, place",
    [
        ({"waiting_s": HOUR}, "waiting"),
        ({"waiting_s": 1.0, "rate_s": HOUR}, "rate"),
        ({"waiting_s": 1.0, "judging_s": HOUR}, "judging"),
        ({"waiting_s": 1.0, "local_s": 9 * HOUR}, "workers"),
        ({"waiting_s": 1.0, "calls": 10**7, "workers": 1000}, "driver"),
        ({"waiting_s": 1.0, "calls": 10**7, "workers": 1}, "workers"),
    ],
)
def test_what_limits_it_is_named(planted: dict[str, Any], place: str) -> None:
    projection = Projection.on_workers(**{"calls": 1000, "workers": 4, **planted})
    assert projection.bottleneck == place
    assert place in ADVICE


def test_without_workers_the_one_process_is_the_driver() -> None:
    assert Projection(1.0, driver_s=HOUR).bottleneck == "driver"
    assert Projection(1.0, driver_s=HOUR, judging_s=2 * HOUR).bottleneck == "judging"


def test_workers_divide_what_is_theirs_and_nothing_else() -> None:
    def seconds(workers: int, **parts: float) -> float:
        return Projection.on_workers(workers, 1000, **parts).seconds - START_S

    assert seconds(4, waiting_s=0.0, local_s=HOUR) < 0.26 * seconds(1, waiting_s=0.0, local_s=HOUR)
    for parts in ({"judging_s": HOUR}, {"rate_s": HOUR}):
        assert seconds(4, waiting_s=0.0, **parts) == seconds(1, waiting_s=0.0, **parts)


def planned(*args: str) -> Any:
    suite = ("--suite", SUITE, "--set", f"{SUITE}.count=400")
    asked = ("plan", *suite, "--model", "openai/x", "--plain-only", *args)
    done = CliRunner().invoke(main, ["audit", *asked, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    shown = CliRunner().invoke(main, ["audit", *asked], catch_exceptions=False)
    (plan,) = json.loads(done.stdout)["suites"]
    assert ADVICE[plan["bottleneck"]].split(",")[0].split(";")[0] in " ".join(shown.output.split())
    return plan


def test_a_plan_says_how_long_workers_take_and_what_limits_them() -> None:
    on_ray = ("--on", "ray", "--workers", "4")
    alone, four = planned("--latency", "20"), planned("--latency", "20", *on_ray)
    assert (alone["workers"], four["workers"]) == (0, 4)
    assert four["concurrency"] == 4 * alone["concurrency"]
    assert four["seconds_by_part"][CALLS] * 4 == alone["seconds_by_part"][CALLS]
    assert four["seconds"] == pytest.approx(alone["seconds"] / 4 + START_S)
    assert alone["bottleneck"] == four["bottleneck"] == "waiting"
    limited = planned("--rate", "6", *on_ray)
    assert limited["bottleneck"] == "rate"
    assert limited["seconds"] >= limited["calls"] * 10
    assert planned("--on", "ray=10.0.0.7:6379")["workers"] == 2  # of a run; nobody is asked
    part = planned("--shard", "1/4", "--latency", "20")
    assert part["seconds"] < alone["seconds"]


@pytest.mark.parametrize("command", ["plan", "run"])
def test_workers_without_ray_are_refused(command: str) -> None:
    asked = ("--suite", SUITE, "--model", "openai/x", "--workers", "4")
    done = CliRunner().invoke(main, ["audit", command, *asked], catch_exceptions=False)
    assert done.exit_code == 2
    assert "--workers belongs to --on; give --on ray." in done.output


class Measured:
    """A run of 60 answers in both arms, and where its time went."""

    def __init__(self, folder: Path, concurrency: int = 4) -> None:
        options = ["--suite", SUITE, "--model", "openai/x", "--out", str(folder)]
        options += ["--concurrency", f"{concurrency}"]
        done = CliRunner().invoke(main, ["audit", "run", *options], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        recorded = RunFile(folder / "run.db").suite("tiny")
        # Calls wait side by side, as many as are allowed; the guard judges in this process.
        self.waited = sum(call.latency_s for call in recorded.calls.values()) / concurrency
        self.judged = sum(reading.seconds for reading in recorded.readings.values())


@pytest.mark.slow("compares measured times, for which the machine must be quiet", limit_s=120)
def test_a_run_spends_its_time_where_the_plan_says(
    provider: Answering, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the recorded times of calls and of judging, not by the clock."""
    init = Guard.__init__
    slow_s = 0.0

    def made(self: Guard, policy: Any = None, **rest: Any) -> None:
        rest = {name: value for name, value in rest.items() if name not in ("index", "detector")}
        init(self, policy, detector=Scripted(before=lambda _: time.sleep(slow_s)), **rest)

    monkeypatch.setattr(Guard, "__init__", made)

    def bottleneck(latency_s: float) -> str:
        audit = Audit.of(Tiny(TinyOptions()))
        guard = Guard(events="none")
        options = {"concurrency": 4, "latency_s": latency_s, "guard": guard, "measure": True}
        return make_plan(audit, "openai/x", **options).projection.bottleneck  # type: ignore[arg-type]

    provider.delay_s = 0.1
    waiting = Measured(tmp_path / "waiting")
    assert bottleneck(0.1) == "waiting"
    assert waiting.waited > waiting.judged
    provider.delay_s, slow_s = 0.0, 0.1
    judging = Measured(tmp_path / "judging")
    assert bottleneck(0.001) == "judging"
    assert judging.judged > judging.waited
