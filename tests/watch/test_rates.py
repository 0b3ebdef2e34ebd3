"""Rates: what the database adds up is what was written, and intervals cover."""

from __future__ import annotations

import csv
import io
import json
import math
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guard.cli import main
from guard.errors import UsageError
from guard.results.intervals import clustered_share
from guard.watch.alerts import alerts
from guard.watch.rates import NON_ANSWER_DOORS, NONE, Sums, dimensions, line_of, report, span_s
from guard.watch.store import Store

NOW = 1_800_000_000.0


def stored(url: str, made: list[dict[str, Any]], *, begin: int = 0) -> None:
    """Write responses; each has ``findings``, a list of (bias type, group, action)."""
    store = Store(url)
    store.prepare()
    ended, events = [], []
    for number, one in enumerate(made, start=begin):
        findings = one.get("findings", [])
        row = {
            "id": f"{number:032x}",
            "time": one.get("time", NOW - 3600),
            "door": one.get("door", "chat"),
            "model": one.get("model", "m"),
            "request_id": f"r{number}",
            "settings": "s",
            "detector": "d",
            "index_version": None,
            "labels": one.get("labels", {}),
            "outcome": one.get("outcome", "completed"),
            "judged": one.get("judged", len(findings)),
            "passed": 0,
            "found": len(findings),
            "mitigated": sum(action != "flag" for _, _, action in findings),
            "unjudged": one.get("unjudged", 0),
            "rewrites": 0,
            "characters_seen": 0,
            "characters_withheld": 0,
            "judging_ms": 0.0,
        }
        ended.append(row)
        for place, (kind, group, action) in enumerate(findings):
            events.append(
                {
                    "response_id": row["id"],
                    "number": place,
                    "time": row["time"],
                    "action": action,
                    "unjudged": None,
                    "bias_type": kind,
                    "group_name": group,
                    "attribute_name": None,
                    "score": 0.9,
                    "threshold": 0.5,
                    "counted": True,
                    "channel": "content",
                    "choice": 0,
                    "tool": 0,
                    "start": 0,
                    "end": 1,
                    "judging_ms": 0.0,
                    "text": None,
                }
            )
    store.write([], [], events, ended)
    store.disconnect()


def test_the_share_of_unjudged_segments_has_the_interval_of_all_segments() -> None:
    rng = np.random.default_rng(3)
    j, u = rng.integers(0, 9, 40), rng.integers(0, 4, 40)
    of_counts = ((j**k * u**m).sum() for k, m in ((1, 0), (2, 0), (0, 1), (0, 2), (1, 1)))
    line = line_of(Sums({}, 0, 40, *map(float, of_counts), int((u > 0).sum())))
    every = j + u
    expected = clustered_share(
        every.sum(), (every**2).sum(), u.sum(), (u**2).sum(), (every * u).sum()
    )  # fmt: skip
    assert line.unjudged.value == pytest.approx(u.sum() / every.sum())
    assert (line.unjudged.low, line.unjudged.high) == pytest.approx(expected)


finding = st.tuples(
    st.sampled_from(["age", "race"]),
    st.sampled_from(["women", None]),
    st.sampled_from(["flag", "terminate"]),
)
response = st.fixed_dictionaries(
    {
        "model": st.sampled_from(["a", "b", None]),
        "door": st.sampled_from(["chat", "plain", "check"]),
        "labels": st.sampled_from([{}, {"tenant": "t"}, {"tenant": "u", "x": "1"}]),
        "findings": st.lists(finding, max_size=3),
        "unjudged": st.integers(0, 2),
        "time": st.sampled_from([NOW - 3600, NOW - 90_000, NOW + 10]),
        "outcome": st.sampled_from(["completed", "stopped", "running"]),
    }
)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(response, max_size=12),
    st.lists(
        st.sampled_from(["model", "bias_type", "group", "door", "tenant", "label.x"]),
        max_size=3,
        unique=True,
    ),
)
def test_the_database_counts_as_python_does(
    tmp_path_factory: pytest.TempPathFactory, made: list[dict[str, Any]], by: list[str]
) -> None:
    url = f"sqlite:///{tmp_path_factory.mktemp('rates') / 'guard.db'}"
    for one in made:
        one["judged"] = len(one["findings"]) + 1
    stored(url, made)
    with Store(url).reading() as connection:
        found = report(connection, NOW - 86_400, NOW, by)
    counted = [
        one
        for one in made
        if one["time"] == NOW - 3600
        and one["outcome"] != "running"
        and ("door" in by or one["door"] not in NON_ANSWER_DOORS)
    ]
    whole: dict[Any, list[Any]] = defaultdict(list)
    for one in counted:
        whole[_key(one, by)].append(one)
    expected = {}
    for key, ones in whole.items():
        apart: dict[Any, list[str]] = defaultdict(list)
        for one in ones:
            for kind, group, action in one["findings"]:
                apart[_named(key, by, kind, group)].append(action)
        base = (len(ones), sum(o["judged"] for o in ones), sum(o["unjudged"] for o in ones))
        for name, actions in (apart or {_named(key, by, NONE, NONE): []}).items():
            expected[name] = (*base, len(actions), sum(a != "flag" for a in actions))
    assert {
        tuple(line.by.values()): (
            line.responses,
            line.segments,
            line.unjudged_segments,
            line.findings,
            line.mitigated,
        )
        for line in found.lines
    } == expected
    for line in found.lines:
        assert line.prevalence.value == line.findings / line.segments
        mitigation = line.mitigation.value
        assert math.isnan(mitigation) if not line.findings else 0 <= mitigation <= 1
    assert found.future == sum(one["time"] > NOW for one in made)


def _key(one: dict[str, Any], by: list[str]) -> tuple[str, ...]:
    labels = one["labels"]
    values = {
        "model": one["model"],
        "door": one["door"],
        "tenant": labels.get("tenant"),
        "label.x": labels.get("x"),
    }
    return tuple(values.get(name) or NONE for name in by)


def _named(key: tuple[str, ...], by: list[str], kind: str, group: str | None) -> tuple[str, ...]:
    named = {"bias_type": kind, "group": group or NONE}
    return tuple(named.get(name, value) for name, value in zip(by, key, strict=True))


def test_both_databases_report_the_same(url: str) -> None:
    rng = np.random.default_rng(0)
    made = [
        {
            "model": "ab"[rng.integers(2)],
            "labels": {"release": str(rng.integers(2))},
            "judged": 9,
            "unjudged": int(rng.integers(2)),
            "findings": [("age", "women", str(rng.choice(["flag", "redact"])))]
            * int(rng.integers(4)),
        }
        for _ in range(300)
    ]
    stored(url, made)
    with Store(url).reading() as connection:
        found = report(connection, NOW - 86_400, NOW, ["model", "release", "bias_type"])
    assert len(found.lines) == 4
    findings = sum(len(one["findings"]) for one in made)
    assert sum(line.findings for line in found.lines) == findings
    for line in found.lines:
        assert line.prevalence.low < line.prevalence.value < line.prevalence.high


def test_any_name_of_a_label_has_its_values_in_both_databases(url: str) -> None:
    names = ["é", 'a"b', "a\\b", "a\tb", "a.b", "日本", "😀", "$", "[0]", "0", "x'y", "\\u00e9"]
    stored(url, [{"labels": {name: f"of {name}" for name in names}, "judged": 1}])
    with Store(url).reading() as connection:
        for name in names:
            by, value = dimensions(f"label.{name}"), f"of {name}"
            (line,) = report(connection, NOW - 86_400, NOW, by).lines
            assert line.by == {f"label.{name}": value}
            for given, count in ((value, 1), (NONE, 0)):
                only = {f"label.{name}": given}
                assert len(report(connection, NOW - 86_400, NOW, only=only).lines) == count
            tested = alerts(connection, NOW + 7 * 86_400, by=by).results
            assert {alert.by[by[0]] for alert in tested} == {value}


def test_an_empty_denominator_is_nan(tmp_path: Path) -> None:
    path = tmp_path / "guard.db"
    stored(str(path), [{"judged": 0, "unjudged": 3, "time": time.time() - 60}])
    run = CliRunner().invoke(main, ["rates", str(path), "--json"])
    (line,) = json.loads(run.output)["lines"]
    assert line["prevalence"] == {"value": None, "low": None, "high": None}
    assert line["mitigation"]["value"] is None
    assert line["unjudged"]["value"] == 1.0
    shown = CliRunner().invoke(main, ["rates", str(path)]).output
    assert shown.splitlines()[1].split("\t") == [
        "1",
        "0",
        "0",
        "nan of 0",
        "nan of 0",
        "100.0 % of 3",
        "n/a",
        "n/a",
        "n/a",
    ]


@pytest.mark.parametrize("form", ["--json", "--csv", "--html"])
def test_a_report_comes_in_every_form_with_names_as_data(tmp_path: Path, form: str) -> None:
    path = tmp_path / "guard.db"
    model = '=cmd|"<script>'
    made = [{"model": model, "judged": 4, "findings": [("age", None, "flag")]}] * 8
    stored(str(path), [{**one, "time": time.time() - 60} for one in made])
    target = [] if form == "--json" else ["-"]
    run = CliRunner().invoke(main, ["rates", str(path), "--by", "model", form, *target])
    assert run.exit_code == 0
    if form == "--json":
        (line,) = json.loads(run.output)["lines"]
        assert (line["model"], line["segments"], line["findings"]) == (model, 32, 8)
    elif form == "--csv":
        (row,) = csv.DictReader(io.StringIO(run.output))
        assert (row["model"], row["segments"], row["prevalence"]) == (f"'{model}", "32", "0.25")
    else:
        assert "<script>" not in run.output
        assert "&lt;script&gt;" in run.output
    if target:  # FILE gets what - prints
        file = tmp_path / "rates"
        args = ["rates", str(path), "--by", "model", form, str(file)]
        written = CliRunner().invoke(main, args)
        assert (written.exit_code, written.stdout) == (0, "")
        assert len(file.read_text().splitlines()) == len(run.output.splitlines())


def test_a_file_for_a_form_is_no_store_and_no_second_form(tmp_path: Path) -> None:
    path = tmp_path / "guard.db"
    stored(str(path), [])
    before = path.read_bytes()
    for args in (["--csv", str(path)], ["--csv", "-", "--json"]):
        run = CliRunner().invoke(main, ["rates", str(path), *args])
        assert run.exit_code == 2, run.output
    assert path.read_bytes() == before


@pytest.mark.parametrize("text", ["", "7", "0d", "1y", "-1d", "1.5d", "d"])
def test_a_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--since takes a time such as"):
        span_s(text, "--since")


def test_times_and_names_are_read() -> None:
    assert [span_s(t, "") for t in ("90m", "12h", "7d", "2w")] == [5400, 43200, 604800, 1209600]
    assert dimensions("model, bias_type,model,label.a b") == ("model", "bias_type", "label.a b")
    with pytest.raises(UsageError, match="--by knows"):
        dimensions("label.")


@pytest.mark.parametrize(
    ("share", "alike", "least", "responses"),
    [(0.02, 0.0, 1, 400), (0.05, 0.3, 1, 300), (0.2, 0.1, 3, 60), (0.5, 0.6, 1, 80)],
)
def test_intervals_cover_the_share_of_clustered_segments(
    share: float, alike: float, least: int, responses: int
) -> None:
    rng = np.random.default_rng(7)
    covered, runs = 0, 1_500
    for _ in range(runs):
        x = rng.integers(least, 20, responses)
        p = share
        if alike:  # beta-binomial, of this correlation within a response
            a, b = share * (1 - alike) / alike, (1 - share) * (1 - alike) / alike
            p = rng.beta(a, b, responses)
        y = rng.binomial(x, p)
        low, high = clustered_share(x.sum(), (x * x).sum(), y.sum(), (y * y).sum(), (x * y).sum())
        covered += low <= share <= high
    # 95 % of 1,500 is 1,425; promise 12 of the design allows 92 to 98 %.
    assert 0.92 * runs <= covered <= 0.98 * runs


def test_an_interval_of_single_segments_is_near_jeffreys() -> None:
    from scipy.stats import beta

    low, high = clustered_share(500, 500, 25, 25, 25)
    assert low == pytest.approx(beta.ppf(0.025, 25.5, 475.5), abs=5e-4)
    assert high == pytest.approx(beta.ppf(0.975, 25.5, 475.5), abs=5e-4)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=40))
def test_an_interval_holds_its_share_and_lies_between_0_and_1(pairs: list[tuple[int, int]]) -> None:
    x = np.array([n for n, _ in pairs], float)
    y = np.minimum([k for _, k in pairs], x)
    low, high = clustered_share(x.sum(), (x * x).sum(), y.sum(), (y * y).sum(), (x * y).sum())
    if math.isnan(low):
        assert x.sum() ** 2 / (x * x).sum() < 6
    else:
        assert 0 <= low <= y.sum() / x.sum() <= high <= 1
