"""What a comparison concludes, refuses and says to do next."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from guard.audit.audit import Audit
from guard.audit.compare import ALLOWED, ComparisonSettings, compare
from guard.audit.comparison import Comparison
from guard.audit.header import PARTS, Header
from guard.audit.outcomes import Records
from guard.audit.sides import Axis, Side, from_records, read_side, split_arms
from guard.audit.tolerances import Tolerances, load_tolerances
from guard.core import Guard
from guard.errors import ConfigError, UsageError
from guard.results.paired import Aim
from guard.suites import Outcome, Record, registry
from guard.suites.contract import Suite
from tests.audit.gated_suite import NAME, Gated, GatedOptions, Says, half, more, recorded
from tests.scripted import Scripted

HEADER = Header("gated", "1-A", "data", "prompt", "1", "openai/unpriced", {"seed": 17})


def side(
    says: Says = half,
    *,
    header: Header = HEADER,
    name: str = "x",
    guard: str = "",
    **options: int,
) -> Side:
    """The side of a run, without a journal; ``guard`` is the answer that a guard stops."""
    suite = Gated(GatedOptions(**options))
    records = Records()
    for item in suite.items():
        for sample in range(item.samples):
            said = says(int(item.id[1:]), sample)
            outcome = Outcome(said if said in suite.outcomes else "refused")
            records.plain.append(Record(item, sample, outcome))
            if guard:
                after = Outcome("guarded") if said == guard else outcome
                records.guarded.append(Record(item, sample, after))
    return Side(name, {"gated": from_records(suite, header, records)})


def verdicts(found: Comparison) -> dict[str, str]:
    return {axis.name.removeprefix("gated/"): axis.verdict for axis in found.axes}


def test_equal_runs_pass() -> None:
    found = compare(side(), side())
    assert (found.outcome, found.exit_code) == ("pass", 0)
    assert set(verdicts(found).values()) == {"pass"}
    assert all(axis.q == 1 and not axis.flips for axis in found.axes)


def test_a_regression_leads_with_the_difference_and_its_items() -> None:
    found = compare(side(), side(more))
    assert (found.outcome, found.exit_code) == ("regression", 1)
    first = found.axes[0]
    assert first.name == "gated/plain/first"
    assert first.difference == pytest.approx(0.2)
    assert first.low < 0.2 < first.high
    assert first.q < 0.05
    assert len(first.flips) == 24
    assert {(flip.base, flip.new) for flip in first.flips} == {("second", "first")}
    assert sum(flip.moves for flip in first.flips) == pytest.approx(0.2)
    assert verdicts(found)["plain/coverage"] == "pass"
    told = [*found.lines()]
    assert told[0].startswith("  worse      +0.200 [")
    assert told[-3].startswith(f"Of {len(found.axes)} axes ")
    assert told[-2] == "REGRESSION: x is worse than x."
    assert "In gated/plain/first these got worse: g0 (second → first)" in told[-1]


def test_correcting_too_far_is_a_regression_too() -> None:
    fewer = compare(side(), side(lambda n, _: "second" if more(n) == "first" else "first"))
    assert fewer.axes[0].difference == pytest.approx(-0.2)
    assert fewer.outcome == "regression"
    mirrored = compare(side(more), side(lambda n, _: "second" if more(n) == "first" else "first"))
    assert mirrored.axes[0].difference == pytest.approx(-0.4)
    assert mirrored.axes[0].worse == pytest.approx(0)
    assert mirrored.outcome != "regression"


def test_silence_is_gated_like_any_other_axis() -> None:
    silent = compare(side(), side(lambda n, _: "" if n % 4 == 0 else half(n)))
    assert verdicts(silent)["plain/coverage"] == "regression"
    assert silent.exit_code == 1


def test_below_its_floor_a_suite_says_nothing() -> None:
    def quiet(n: int, sample: int) -> str:
        return half(n) if n % 10 < 7 else ""

    found = compare(side(quiet), side(quiet))
    assert (found.outcome, found.exit_code) == ("inconclusive", 3)
    assert "only 70% of the answers could be read; the floor is 80%" in found.axes[0].reason
    lower = ComparisonSettings(tolerances=Tolerances(floors={"gated": 0.7}))
    assert compare(side(quiet), side(quiet), lower).outcome == "pass"


def test_what_a_guard_stops_is_gated_both_ways() -> None:
    base = side(guard="first")
    names = verdicts(compare(base, base))
    assert {"guarded/stopped_biased", "guarded/stopped_others", "guarded/coverage"} <= names.keys()
    blocked = verdicts(compare(base, side(guard="second")))
    assert blocked["guarded/stopped_biased"] == blocked["guarded/stopped_others"] == "regression"


def test_a_guard_that_has_nothing_to_stop_leaves_nothing_undecided() -> None:
    fair = side(lambda n, _: "second", guard="first")
    found = compare(fair, fair)
    by_name = {axis.name: axis for axis in found.axes}
    stopped = by_name["gated/guarded/stopped_biased"]
    assert (stopped.verdict, stopped.n, stopped.decides) == ("inconclusive", 0, False)
    assert "both sides have no answer for it" in stopped.reason
    # Of what the guard let through no score decides; whether it stops what it should not does.
    assert [a.name for a in found.axes if a.decides] == [
        "gated/plain/first",
        "gated/plain/coverage",
        "gated/guarded/coverage",
        "gated/guarded/stopped_others",
    ]
    assert found.outcome == "pass"


def test_axes_of_one_side_alone_are_told() -> None:
    guarded = side(guard="first", header=CHANGES["guard"])
    found = compare(side(), guarded, ComparisonSettings(frozenset({"guard"})))
    assert len(found.about["one_side_only"]) == 6
    assert found.outcome == "pass"
    assert any("6 axes are on one side only" in line for line in found.lines())


def test_too_few_items_are_inconclusive_and_say_how_many_would_do() -> None:
    shown = side(lambda n, _: "first" if n % 2 or n < 4 else "second", count=60)
    found = compare(side(count=60), shown)
    assert (found.outcome, found.exit_code) == ("inconclusive", 3)
    first = found.axes[0]
    assert first.at_most > first.tolerance
    assert first.more_items
    (step,) = (step for step in found.next if "gated/plain/first" in step)
    assert "gated is too small to decide" in step
    larger = {"gated": replace(shown.suites["gated"], available=10_000_000)}
    (step,) = compare(side(count=60), Side("x", larger)).next
    assert f"About {first.more_items:,} more items on each side would decide" in step
    assert f"--sample {60 + first.more_items}" in step
    assert "LiteLLM has no price of openai/unpriced" in step


@pytest.mark.parametrize(
    ("spent", "told"),
    [
        (
            {"cost_usd": 4.0, "prompt_tokens": 1, "completion_tokens": 1},
            r"\(about \$[\d,]+\.\d\d a",
        ),
        (
            {"cost_usd": None, "prompt_tokens": 40_000, "completion_tokens": 4_000},
            r"\(about \$[\d,]+\.\d\d a side\)",
        ),
    ],
)
def test_what_a_decision_costs_is_told(spent: dict[str, float], told: str) -> None:
    header = replace(HEADER, model="gpt-4o-mini")
    shown = side(lambda n, _: "first" if n % 2 or n < 4 else "second", count=40, header=header)
    one = replace(shown.suites["gated"], available=10_000_000, usage=spent)
    (step,) = compare(side(count=40, header=header), Side("x", {"gated": one})).next
    assert re.search(told, step), step


def test_few_clusters_decide_nothing() -> None:
    found = compare(side(each=30), side(more, each=30))
    assert found.outcome == "inconclusive"
    assert "its 4 clusters are too few" in found.axes[0].reason
    assert any("its 4 clusters are too few" in step for step in found.next)


def test_repeats_of_an_item_are_averaged_and_count_once() -> None:
    def noisy(n: int, sample: int) -> str:
        return "first" if (n + sample) % 2 else "second"

    once, often = side(noisy), side(noisy, samples=4)
    (first, *_) = compare(often, often).axes
    assert first.n == 120
    changed = side(lambda n, s: "first" if s < 3 else "second", samples=4)
    found = compare(often, changed).axes[0]
    assert found.n == 120
    assert found.new == pytest.approx(0.75)
    assert found.flips[0].base == "first 2, second 2"
    assert found.flips[0].new == "first 3, second 1"
    assert once.suites["gated"].items == often.suites["gated"].items


def test_items_that_one_side_could_not_read_are_no_pair() -> None:
    found = compare(side(lambda n, _: "" if n < 10 else half(n)), side())
    assert found.axes[0].n == 110
    assert found.axes[-1].name.endswith("coverage")
    assert found.axes[-1].n == 120


CHANGES: dict[str, Header] = {
    "version": replace(HEADER, version="2-A"),
    "data": replace(HEADER, data_hash="other"),
    "prompt": replace(HEADER, prompt_hash="other"),
    "parser": replace(HEADER, parser_version="2"),
    "options": replace(HEADER, options={"seed": 18}),
    "model": replace(HEADER, model="openai/y"),
    "sample": replace(HEADER, sampling={"size": 10, "seed": 17}),
    "guard": replace(HEADER, guard={"detector": "encoder@1", "policy": {"action": "flag"}}),
    "request": replace(HEADER, request={"settings": {"temperature": 1}}),
    "others": replace(HEADER, others={"scorer": {"model": "encoder-small"}}),
}


@pytest.mark.parametrize("part", PARTS)
def test_every_part_of_the_key_is_checked_and_may_be_allowed(part: str) -> None:
    other = side(header=CHANGES[part])
    found = compare(side(), other)
    assert (found.outcome, found.exit_code, found.axes) == ("not comparable", 5, ())
    (one,) = found.differences
    assert (one.name, one.allowed) == (part, False)
    assert f"--allow {part}" in found.next[0]
    assert any(one.new in line for line in found.lines())
    allowed = compare(side(), other, ComparisonSettings(frozenset({part})))
    assert allowed.outcome == "pass"
    assert [d.allowed for d in allowed.differences] == [True]
    rest = ComparisonSettings(frozenset(ALLOWED) - {part})
    assert compare(side(), other, rest).exit_code == 5


def test_all_that_differs_is_told_at_once() -> None:
    found = compare(side(), side(header=replace(CHANGES["model"], parser_version="2")))
    assert {one.name for one in found.differences} == {"model", "parser"}
    assert "--allow parser --allow model" in found.next[0]


def test_suites_that_one_side_lacks_are_told() -> None:
    two = Side("x", {**side().suites, "other": side().suites["gated"]})
    for sides in ((two, side()), (side(), two)):
        found = compare(*sides)
        assert found.exit_code == 5
        assert [d.name for d in found.differences] == ["suites"]
        assert compare(*sides, ComparisonSettings(frozenset({"suites"}))).outcome == "pass"
        assert compare(*sides, ComparisonSettings(suites=["gated"])).outcome == "pass"


def test_sides_without_a_common_suite_are_not_comparable_at_all() -> None:
    other = Side("x", {"other": side().suites["gated"]})
    found = compare(side(), other, ComparisonSettings(frozenset(ALLOWED)))
    assert found.exit_code == 5
    assert found.next == ["They have no suite in common; give runs of the same suites."]


def test_items_that_are_missing_are_told() -> None:
    found = compare(side(), side(count=110))
    assert found.exit_code == 5
    (one,) = found.differences
    assert one.name == "items"
    assert one.base.startswith("10 others: g110, g111, g112, …")
    assert (
        compare(side(), side(count=110), ComparisonSettings(frozenset({"items"}))).outcome == "pass"
    )


def test_a_selector_that_matches_nothing_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match=r"--axis 'x\*' matches none of 4 axes, such as gated"):
        compare(side(), side(), ComparisonSettings(axes=["gated/*", "x*"]))
    with pytest.raises(UsageError, match="Neither side has a suite 'mist'; they have gated"):
        compare(side(), side(), ComparisonSettings(suites=["mist"]))


def test_an_axis_that_is_asked_for_decides() -> None:
    few = side(lambda n, _: "first" if n % 2 or n < 2 else "second")
    narrow = "gated/plain/first/half=low"
    whole = compare(
        side(), few, ComparisonSettings(tolerances=Tolerances({"gated/plain/first": 0.2}))
    )
    by_name = {axis.name: axis for axis in whole.axes}
    assert (by_name[narrow].verdict, by_name[narrow].decides) == ("inconclusive", False)
    assert whole.outcome == "pass"
    asked = compare(side(), few, ComparisonSettings(axes=[narrow]))
    assert [axis.name for axis in asked.axes] == [narrow]
    assert asked.outcome == "inconclusive"


def test_an_incomplete_run_is_no_verdict() -> None:
    one = replace(side(more).suites["gated"], missing=3)
    found = compare(side(), Side("run", {"gated": one}))
    assert (found.outcome, found.exit_code) == ("incomplete", 4)
    assert "run is incomplete: 3 samples have no outcome" in found.next[0]


def test_one_correction_is_over_all_axes() -> None:
    found = compare(side(), side(more))
    p = np.sort([axis.p for axis in found.axes])
    want = np.minimum.accumulate((p * len(p) / np.arange(1, len(p) + 1))[::-1])[::-1]
    assert np.sort([axis.q for axis in found.axes]) == pytest.approx(np.minimum(want, 1))


def test_the_json_has_everything_and_no_nan() -> None:
    told = compare(side(each=30), side(more, each=30)).to_dict()
    text = json.dumps(told, allow_nan=False)
    assert json.loads(text) == told
    assert told["exit_code"] == 3
    assert told["axes"][0]["flips"][0] == {
        "item": "g0", "base": "second", "new": "first", "moves": pytest.approx(1 / 120),
    }  # fmt: skip


def test_the_arms_of_a_run_are_two_sides() -> None:
    plain, guarded = split_arms(side(guard="first"))
    found = compare(plain, guarded)
    assert found.outcome == "pass"
    by_name = {axis.name: axis for axis in found.axes}
    stopped = by_name["gated/effect/stopped_biased"]
    assert (stopped.base, stopped.new, stopped.worse) == (0, 1, -1)
    assert "gated/effect/coverage" not in by_name
    assert by_name["gated/effect/first"].n == 60  # of the answers that are left
    blocked = verdicts(compare(*split_arms(side(guard="second"))))
    assert blocked["effect/stopped_others"] == "regression"
    assert {axis.arm for axis in found.axes} == {"effect"}
    with pytest.raises(UsageError, match="x has no guarded arm of gated"):
        split_arms(side())


def test_a_run_is_read_with_both_arms_as_its_result_has_them(tmp_path: Path) -> None:
    guard = Guard(detector=Scripted("first"))
    run = recorded(tmp_path / "run", half, guard=guard, options=GatedOptions(count=24))
    (one,) = read_side(run, [NAME]).suites.values()
    assert set(one.outcomes) == {"plain", "guarded"}
    assert list(one.outcomes["guarded"].values()).count("guarded") == 12
    assert one.coverage == 1
    assert one.axes["gated/guarded/stopped_biased"].samples.rows[:, 0].tolist() == [1.0] * 12
    with pytest.raises(UsageError, match="of the suite 'gated', which guard does not know"):
        read_side(run)
    with pytest.raises(UsageError, match="There is no run and no baseline at"):
        read_side(tmp_path / "nothing")
    with pytest.raises(UsageError, match="runs of several models; give one of run"):
        read_side(tmp_path, [NAME])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"has no run\.db"):
        read_side(tmp_path / "empty")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("tolerance = 1", "tolerance must be a table"),
        ("[tolerances]", "unknown table 'tolerances'; known are run, tolerance, floor and better"),
        ("[tolerance]\nx = -1", "tolerance 'x' takes a number from 0 to 1,000,000,000, got -1"),
        ("[tolerance]\nx = true", "takes a number from 0 to 1,000,000,000, got True"),
        ("[tolerance]\nx = 1e308", r"takes a number from 0 to 1,000,000,000, got 1e\+308"),
        ("[floor]\nx = 1.5", "floor 'x' takes a number from 0 to 1, got 1.5"),
        ("[tolerance", "not valid TOML"),
        ("[tolerance]\nx = " + "9" * 5000, r"not valid TOML \(Exceeds the limit"),
        ("[better]\nx = 0x" + "f" * 5000, r"not valid TOML \(a whole number has more than 64 bits"),
        ("[run]\nsample = [-9223372036854775809]", "a whole number has more than 64 bits"),
    ],
)
def test_a_wrong_audit_toml_is_named(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "audit.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=told) as caught:
        load_tolerances(path)
    assert "set_int_max_str_digits" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"none\.toml: cannot be read"):
        load_tolerances(tmp_path / "none.toml")


def test_an_audit_toml_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "audit.toml"
    path.write_text("[floor]\nmist = 0.5\n", encoding="utf-8-sig")
    assert load_tolerances(path).floor("mist") == 0.5


def test_the_last_tolerance_that_matches_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    aim = Aim(0.0, (-1.0, 1.0))
    assert load_tolerances(None).of("mist/plain/mean", aim) == 0.05
    assert load_tolerances(None).of("x", Aim(0.5, (0.0, 1.0))) == 0.025
    assert load_tolerances(None).of("x", Aim(0.0, (-100.0, 100.0))) == 5
    assert load_tolerances(None).of("x", Aim(0.0)) == 0.05
    text = '[tolerance]\n"*" = 0.1\n"mist/*/mean*" = 0.02\n[floor]\nmist = 0.5\n'
    Path("audit.toml").write_text(text)
    found = load_tolerances(None)
    assert found.of("mist/plain/mean/task=WABT", aim) == 0.02
    assert found.of("mist/plain/coverage", aim) == 0.1
    assert (found.floor("mist"), found.floor("hbb")) == (0.5, 0.8)


def test_a_tolerance_of_a_compared_suite_that_matches_nothing_is_a_mistake() -> None:
    wrong = Tolerances({"gated/plain/frist": 0.1}, where="audit.toml")
    with pytest.raises(ConfigError, match="the tolerance 'gated/plain/frist' matches"):
        compare(side(), side(), ComparisonSettings(tolerances=wrong))
    others = Tolerances({"mist/plain/nothing": 0.1}, where="audit.toml")
    assert compare(side(), side(), ComparisonSettings(tolerances=others)).outcome == "pass"


def axis_of(suite: Suite, said: Callable[[int], str], name: str) -> Axis:
    records = [Record(item, 0, Outcome(said(n))) for n, item in enumerate(suite.items())]
    header = Audit.of(suite).header("m", None)
    return from_records(suite, header, Records(plain=records)).axes[name]


def test_items_of_sai_asa_are_paired_one_by_one() -> None:
    suite = registry.make("sai_asa", {})
    axis = axis_of(
        suite, lambda n: ("positive", "negative")[n % 2], "sai_asa/plain/tau_c/direction=SAI"
    )
    assert axis.unit == "item"
    assert len(axis.ids) == len(set(axis.ids)) > 5000
    assert axis.samples.rows.sum() == len(axis.ids)
    assert math.isfinite(float(axis.value(axis.samples.rows.sum(axis=0))))  # type: ignore[misc]


def test_a_side_without_answers_is_named_and_no_smaller_sample_is_advised(tmp_path: Path) -> None:
    """One run is whole, the other was interrupted before it reached half of the axis."""
    whole = read_side(recorded(tmp_path / "whole"), [NAME])
    cut = read_side(recorded(tmp_path / "cut", most=16), [NAME])
    result = compare(whole, cut)
    assert result.outcome == "incomplete"
    (high,) = (a for a in result.axes if a.name == "gated/plain/first/half=high")
    assert high.reason == "only the old side has answers for it (60)"
    assert not any("--sample" in step for step in result.next)
