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
from guard.results.intervals import clopper_pearson
from guard.verdict import BIAS_TYPES
from guard.watch.alerts import (
    BASE,
    LEAST_BASELINE,
    LEVEL,
    alerts,
    evidence,
    rate_limits,
    sees_double_after,
    week_of,
)
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
        limit = clopper_pearson(rng.binomial(before, rate), before, 1 - 2 * BASE / tests)[1]
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
        limit = clopper_pearson(marked, before, 1 - 2 * BASE / tests)[1]
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
        "few before": [{"model": "m", "judged": 1, "time": at} for at in (before, this_week)],
        "both": [
            *[{"model": "m", "judged": 1, "time": before}] * LEAST_BASELINE,
            {"model": "m", "judged": 1, "time": this_week},
        ],
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
    assert (
        f"baseline has fewer than {LEAST_BASELINE} responses: m (1)." in runs["few before"].output
    )


def test_a_share_of_all_responses_cannot_rise_which_is_not_for_want_of_responses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: MONDAY + 3 * DAY)
    response = {"judged": 1, "findings": [("age", None, "redact")]}
    url = str(tmp_path / "guard.db")
    before = [{**response, "time": MONDAY - 2 * DAY}] * LEAST_BASELINE
    stored(url, [*before, {**response, "time": MONDAY + DAY}])
    output = " ".join(CliRunner().invoke(main, ["rates", url, "--alert"]).output.split())
    assert "every response of the baseline is in the share: all responses (biased)." in output
    assert "fewer than" not in output


def test_a_group_without_a_baseline_is_named_and_not_tested(tmp_path: Path) -> None:
    url = str(tmp_path / "guard.db")
    weeks(url, 40)
    stored(url, [{"model": "new", "judged": 1, "time": MONDAY + DAY}] * 5, begin=100_000)
    with Store(url).reading() as connection:
        found = alerts(connection, MONDAY + 3 * DAY, by=["model"])
    assert found.new == ("new",)
    assert {a.by["model"] for a in found.results} == {"m"}


# What an alert says, and against what.


def test_a_limit_of_the_rate_is_the_inverted_test_and_holds_at_all_times() -> None:
    rng = np.random.default_rng(9)
    rate, an_hour, needed, missed = 0.03, 20, 1 / (LEVEL - BASE), 0
    of_day = np.eye(7)[np.arange(HOURS) // 24]
    runs = 60
    for _ in range(runs):
        n = np.full(HOURS, an_hour)
        count = rng.binomial(n, rate)
        ends = []
        for hour in range(6, HOURS, 18):
            days = of_day[:hour]
            of_days = (n[:hour] @ days, count[:hour] @ days)
            low, high = rate_limits(*of_days, needed)
            assert low <= count[:hour].sum() / n[:hour].sum() <= high
            for limit in (0.5 * low, 0.999 * low, 1.001 * low, 0.9):
                if 0 < limit < 1:
                    assert (evidence(*of_days, limit) >= needed) == (limit < low)
            ends.append((low, high))
        missed += not all(low <= rate <= high for low, high in ends)
    assert missed <= 0.08 * runs + 4  # each end may miss in 4 % of the runs


def test_a_doubled_rate_of_few_responses_is_not_called_steady(tmp_path: Path) -> None:
    """6.40 % of this week's responses against 2.87 %: not shown to differ, with the interval."""
    made = [
        {"judged": 5, "findings": [("age", None, "redact")] * (i < count), "time": at}
        for responses, count, at in ((1_500, 43, MONDAY - 5 * DAY), (125, 8, MONDAY + DAY))
        for i in range(responses)
    ]
    url = str(tmp_path / "guard.db")
    stored(url, made)
    with Store(url).reading() as connection:
        biased, leaked, _ = alerts(connection, MONDAY + 2 * DAY).results
    assert (biased.count, biased.responses) == (8, 125)
    assert biased.state == "not shown to differ"
    assert biased.difference.value == pytest.approx(0.064 - 43 / 1_500)
    assert biased.difference.low < 0 < 0.05 < biased.difference.high
    assert not leaked.happened


def test_the_interval_leaves_out_0_if_and_only_if_there_is_an_alarm(tmp_path: Path) -> None:
    states = {}
    for count in (2, 40, 120):
        url = str(tmp_path / f"{count}.db")
        weeks(url, count)
        with Store(url).reading() as connection:
            biased = alerts(connection, MONDAY + 3 * DAY).results[0]
        states[count] = biased.state
        assert (biased.difference.low > 0) == biased.alarm == (count == 120)
    assert states == {2: "lower", 40: "not shown to differ", 120: "ALARM"}


def test_types_that_never_occur_cost_the_others_little(tmp_path: Path) -> None:
    """By type a rise is seen almost as soon as without: eight of nine types never occur."""
    url = str(tmp_path / "guard.db")
    weeks(url, 90)
    with Store(url).reading() as connection:
        (whole, *_) = alerts(connection, MONDAY + 3 * DAY).results
        by_type = alerts(connection, MONDAY + 3 * DAY, by=["bias_type"]).results
    (age,) = (a for a in by_type if (a.by["bias_type"], a.share) == ("age", "biased"))
    assert whole.alarm
    assert age.alarm
    assert age.needed == pytest.approx(1 / (0.8 * (LEVEL - BASE)))
    assert sum(1 / a.needed for a in by_type) == pytest.approx(LEVEL - BASE)


def test_a_table_names_no_share_in_which_nothing_can_happen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: MONDAY + 3 * DAY)
    url = str(tmp_path / "guard.db")
    weeks(url, 44)
    run = CliRunner().invoke(main, ["rates", url, "--alert", "--by", "bias_type"])
    table, *notes = run.output.split("If no rate has risen")
    assert len(table.strip().splitlines()) == 2  # the header and age
    assert "not shown to differ" in table
    assert "steady" not in run.output
    assert "17 more shares have no response" in notes[0]


def releases(
    *spans: tuple[str, float, float, float], an_hour: int = 12, first: int = 0, **others: Any
) -> list[dict[str, Any]]:
    """Return responses of (release, from day, to day, share that is biased), days after Monday."""
    made = []
    for release, since, until, share in spans:
        n = int((until - since) * 24 * an_hour)
        for i in range(n):
            found = int((i + 1) * share) > int(i * share)
            made.append(
                {
                    "labels": {"release": release},
                    "judged": 5,
                    "findings": [("age", None, "redact")] * found,
                    "time": MONDAY + DAY * (since + (until - since) * i / n),
                    **others,
                }
            )
    return made


@sqlite_often()
def test_a_new_release_is_compared_with_the_last_one(url: str) -> None:
    """Release 7 has 2 %; 8 came on Saturday with as many; 9 on Tuesday, with six times as many."""
    stored(
        url,
        [
            *releases(("6", -28, -14, 0.06), ("7", -14, -2, 0.02), ("8", -2, 1, 0.02)),
            *releases(("9", 1, 5, 0.12)),
        ],
    )
    with Store(url).reading() as connection:
        result = alerts(connection, MONDAY + 5 * DAY, by=["release"])
        early = alerts(connection, MONDAY + 0.5 * DAY, by=["release"])
    biased = {a.by["release"]: a for a in result.results if a.share == "biased"}
    assert {name: (a.against, a.state) for name, a in biased.items()} == {
        "6": ("", "not tested"),
        "7": ("", "not tested"),
        "8": ("7", "not shown to differ"),
        "9": ("8", "ALARM"),
    }
    assert result.new == ()
    assert biased["9"].baseline_responses == 3 * 24 * 12  # those of 8 until 9 began
    assert biased["8"].baseline_responses == 12 * 24 * 12
    assert sum(1 / a.needed for a in result.results) <= (LEVEL - BASE) + 1e-12
    assert {a.by["release"] for a in early.results} == {"6", "7", "8"}


def test_a_new_release_is_compared_within_its_model_and_by_type(tmp_path: Path) -> None:
    url = str(tmp_path / "guard.db")
    stored(url, releases(("7", -28, 1, 0.02), ("8", 1, 5, 0.02), model="a"))
    stored(url, releases(("7", -28, 1, 0.02), ("8", 1, 5, 0.08), model="b"), begin=100_000)
    stored(url, releases(("8", 1, 5, 0.08), model="c"), begin=200_000)
    with Store(url).reading() as connection:
        by = ["model", "bias_type", "label.release"]
        result = alerts(connection, MONDAY + 5 * DAY, by=by)
    alarms = [(tuple(a.by.values()), a.share, a.against) for a in result.results if a.alarm]
    assert alarms == [(("b", "age", "8"), "biased", "7")]
    assert result.new == ("c, 8",)  # which has no release before it


CANARIES = {
    # 8 was taken back after two minutes; 8.1 has three times the bias of 7.
    "taken back": [(("7", -28, 1, 0.02), 6), (("8", 0.998, 0.9994, 0.0), 150)],
    # 8.0 and 8.1 began in the same minute.
    "side by side": [(("7", -28, 1, 0.02), 6), (("8.0", 0.9999, 4, 0.02), 9)],
    # 6 was taken back as well, 8 had no response before 8.1 but one.
    "twice": [(("6", -28, 0.5, 0.02), 6), (("7", 0.5, 0.51, 0.0), 30), (("8", 0.98, 1.01, 0), 1)],
}


@pytest.mark.parametrize("case", CANARIES)
def test_a_release_of_a_few_responses_hides_no_rise_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.setattr(time, "time", lambda: MONDAY + 4 * DAY)
    url = str(tmp_path / "guard.db")
    made = [one for span, an_hour in CANARIES[case] for one in releases(span, an_hour=an_hour)]
    stored(url, [*made, *releases(("8.1", 1, 4, 0.06), an_hour=14)])
    whole = CANARIES[case][0][0][0]
    run = CliRunner().invoke(main, ["rates", url, "--alert", "--by", "release", "--json"])
    (biased,) = (
        a
        for a in json.loads(run.output)["alerts"]
        if (a["release"], a["share"]) == ("8.1", "biased")
    )
    assert (run.exit_code, biased["state"], biased["against"]) == (1, "ALARM", whole)
    assert biased["baseline_responses"] > 3_000
    text = CliRunner().invoke(main, ["rates", url, "--alert", "--by", "release"]).output
    assert f"of release {whole}" in text
    assert f"8.1 with {whole}" in text


@pytest.mark.parametrize(("share", "code"), [(0.1, 3), (0.9, 1)])
def test_a_small_baseline_is_no_test_unless_it_alarms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float, code: int
) -> None:
    """Of two earlier releases with few responses the larger one is taken, and it is said."""
    monkeypatch.setattr(time, "time", lambda: MONDAY + 4 * DAY)
    url = str(tmp_path / "guard.db")
    before = [*releases(("6", 0, 0.5, 0.05), an_hour=10), *releases(("7", 0.5, 1, 0.0), an_hour=5)]
    stored(url, [*before, *releases(("8", 1, 4, share), an_hour=10)])
    run = CliRunner().invoke(main, ["rates", url, "--alert", "--by", "release"])
    assert run.exit_code == code
    (line,) = (x for x in run.output.splitlines() if x.startswith("8\tbiased"))
    assert "of 120 (5.00 %) of release 6" in line
    assert line.split("\t")[2] == {3: "not tested", 1: "ALARM"}[code]
    assert (
        f"no alarm, because the baseline has fewer than {LEAST_BASELINE} responses: " in run.output
    )
    assert "not shown to differ" not in run.output.split("If no rate")[0]


@pytest.mark.parametrize("count", [10, pytest.param(400, marks=pytest.mark.slow("400 stores"))])
def test_a_fair_new_release_raises_no_alarm(tmp_path: Path, count: int) -> None:
    rng = np.random.default_rng(2)
    alarms = 0
    for number in range(count):
        spans = [("7", -14.0, 1.0), ("8", 1.0, 2.0), ("9", 2.0, 4.0)]
        made = []
        for release, since, until in spans:
            n = int((until - since) * 60)
            for i, found in enumerate(rng.random(n) < 0.05):
                at = MONDAY + DAY * (since + (until - since) * i / n)
                findings = [("age", None, "flag")] * int(found)
                labels = {"release": release}
                made.append({"labels": labels, "judged": 3, "findings": findings, "time": at})
        url = str(tmp_path / f"{number}.db")
        stored(url, made)
        with Store(url).reading() as connection:
            alarms += alerts(connection, MONDAY + 4 * DAY, by=["release"]).alarm
    assert alarms <= 0.05 * count
