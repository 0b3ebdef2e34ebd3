"""Alerts: a steady week is let be however often one looks, and a doubled rate is seen in time."""

from __future__ import annotations

import json
import math
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from guard.cli import main
from guard.errors import UsageError
from guard.intervals import exact
from guard.verdict import BIAS_TYPES
from guard.watch.alerts import BASE, LEVEL, alerts, evidence, sees_double_after, week_of
from guard.watch.store import Store
from tests.watch.conftest import sqlite_often
from tests.watch.test_rates import stored

HOURS = 168
DAY = 86_400.0
MONDAY = 1_799_625_600.0  # 2027-01-11, 00:00 UTC


def looks(n: Any, count: Any, limit: float) -> Any:
    """Return the evidence after each hour."""
    of_day = np.eye(7)[np.arange(HOURS) // 24]
    return evidence(np.cumsum(n[:, None] * of_day, 0), np.cumsum(count[:, None] * of_day, 0), limit)


@pytest.mark.parametrize(("rate", "an_hour"), [(0.02, 60), (0.002, 300), (0.3, 4)])
@pytest.mark.parametrize("tests", [1, 30])
def test_at_most_one_steady_week_in_twenty_alarms_when_looked_at_hourly(
    rate: float, an_hour: int, tests: int
) -> None:
    rng = np.random.default_rng(3)
    needed = tests / (LEVEL - BASE)
    alarms = 0
    for _ in range(1_000):
        before = an_hour * HOURS * 4
        limit = exact(rng.binomial(before, rate), before, 1 - 2 * BASE / tests)[1]
        n = rng.poisson(an_hour, HOURS)
        alarms += bool((looks(n, rng.binomial(n, rate), limit) >= needed).any())
    # Over all tests together 50 of 1,000 are allowed; one test of thirty has its part of them.
    assert alarms <= 50 / tests + 3 * math.sqrt(50 / tests)


@given(st.floats(0.01, 0.9), st.floats(0, 1), st.lists(st.booleans(), min_size=7, max_size=7))
def test_evidence_is_one_in_the_mean_at_the_limit_and_less_below_it(
    limit: float, below: float, begun: list[bool]
) -> None:
    marked = np.array(list(product((0.0, 1.0), repeat=7)))  # of one response a day
    n = np.broadcast_to(np.array(begun, float), marked.shape)
    found = evidence(n, marked * n, limit)

    def mean(rate: float) -> float:
        chances = np.where(marked == 1, rate, 1 - rate).prod(axis=1)
        return float(chances @ found)

    assert mean(limit) == pytest.approx(1, rel=1e-9)
    assert mean(limit * below) <= 1 + 1e-9


@pytest.mark.parametrize("rise", [0, 3])
def test_a_doubled_rate_is_seen_within_the_stated_responses(rise: int) -> None:
    rng = np.random.default_rng(5)
    rate, an_hour, tests, seen, runs = 0.02, 60, 3, 0, 300
    needed = tests / (LEVEL - BASE)
    for _ in range(runs):
        before = an_hour * HOURS * 4
        marked = rng.binomial(before, rate)
        limit = exact(marked, before, 1 - 2 * BASE / tests)[1]
        stated = sees_double_after(marked / before, limit, needed)
        assert 1_500 < stated < 4_000
        n = np.full(HOURS, an_hour)
        rates = np.where(np.arange(HOURS) // 24 >= rise, 2 * rate, rate)
        alarm = looks(n, rng.binomial(n, rates), limit) >= needed
        seen += bool(alarm[: rise * 24 + math.ceil(stated / an_hour)].any())
    assert seen >= 0.86 * runs  # 0.9 is stated; four standard errors are 0.07


def test_a_week_begins_on_monday() -> None:
    assert week_of(MONDAY) == MONDAY
    assert week_of(MONDAY + 7 * DAY - 1) == MONDAY
    assert week_of(MONDAY - 1) == MONDAY - 7 * DAY


def weeks(url: str, this_week: int, *, of: str = "age") -> None:
    """Write four weeks of 2,000 responses, 40 of them biased, and 2,000 of this week."""
    made = []
    for week in range(4):
        for i in range(2_000):
            found = [("age", None, "terminate")] * (i < 40)
            made.append({"judged": 5, "findings": found, "time": MONDAY - (week + 0.5) * 7 * DAY})
    for i in range(2_000):
        found = [(of, None, "terminate")] * (i < this_week)
        made.append({"judged": 5, "findings": found, "time": MONDAY + DAY * 1.5 + i})
    stored(url, made)


@sqlite_often()
def test_a_store_with_a_rise_alarms_and_a_steady_one_does_not(url: str) -> None:
    weeks(url, 44)
    with Store(url).reading() as connection:
        steady = alerts(connection, MONDAY + 3 * DAY)
        by_model = alerts(connection, MONDAY + 3 * DAY, by=["model"])
    assert not steady.alarm
    assert [(a.share, a.responses, a.count, a.baseline_count) for a in steady.results] == [
        ("biased", 2000, 44, 160),
        ("leaked", 2000, 0, 0),
        ("unjudged", 2000, 0, 0),
    ]
    assert by_model.results[0].by == {"model": "m"}


def test_a_rise_is_told_by_type(tmp_path: Path) -> None:
    url = str(tmp_path / "guard.db")
    weeks(url, 120, of="race")
    with Store(url).reading() as connection:
        found = alerts(connection, MONDAY + 3 * DAY, by=["bias_type"])
        with pytest.raises(UsageError, match="--alert takes no group"):
            alerts(connection, MONDAY, by=["group"])
    assert [(a.by["bias_type"], a.share) for a in found.results if a.alarm] == [("race", "biased")]
    assert len(found.results) == 2 * len(BIAS_TYPES)


def test_the_command_says_an_alarm_by_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: MONDAY + 3 * DAY)
    codes = {}
    for count in (40, 120):
        url = str(tmp_path / f"{count}.db")
        weeks(url, count)
        run = CliRunner().invoke(main, ["rates", url, "--alert", "--json"])
        codes[count] = run.exit_code
        assert json.loads(run.output)["alarm"] == (count == 120)
    assert codes == {40: 0, 120: 1}
    run = CliRunner().invoke(main, ["rates", url, "--alert", "--baseline", "10d"])
    assert (run.exit_code, "whole weeks" in run.output) == (2, True)


def test_the_command_says_by_its_exit_code_that_nothing_could_be_tested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: MONDAY + 3 * DAY)
    this_week, before = MONDAY + DAY, MONDAY - 2 * DAY
    sides = {
        "no response": [],
        "no baseline": [{"model": "m", "judged": 1, "time": this_week}],
        "none this week": [{"model": "m", "judged": 1, "time": before}],
        "others this week": [
            {"model": "m", "judged": 1, "time": before},
            {"model": "n", "judged": 1, "time": this_week},
        ],
        "both": [{"model": "m", "judged": 1, "time": at} for at in (before, this_week)],
    }
    runs = {}
    for name, made in sides.items():
        url = str(tmp_path / f"{name}.db")
        stored(url, made)
        runs[name] = CliRunner().invoke(main, ["rates", url, "--alert", "--by", "model"])
    codes = {name: run.exit_code for name, run in runs.items()}
    assert codes == {**dict.fromkeys(sides, 3), "both": 0}
    assert "there is no baseline" in runs["no baseline"].output
    assert "Nothing could be tested" in runs["none this week"].output
    assert "No baseline yet: n." in runs["others this week"].output
    assert "not tested" in runs["others this week"].output
    assert "steady" not in runs["others this week"].output


def test_a_group_without_a_baseline_is_named_and_not_tested(tmp_path: Path) -> None:
    url = str(tmp_path / "guard.db")
    weeks(url, 40)
    stored(url, [{"model": "new", "judged": 1, "time": MONDAY + DAY}] * 5, begin=100_000)
    with Store(url).reading() as connection:
        found = alerts(connection, MONDAY + 3 * DAY, by=["model"])
    assert found.new == ("new",)
    assert {a.by["model"] for a in found.results} == {"m"}
