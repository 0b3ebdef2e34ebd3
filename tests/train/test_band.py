"""Which band is chosen for a budget, what is measured of it, and what of a run is kept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.detect import band_files
from guard.detect.band_files import EMPTY, Band, read_band
from guard.detect.named import detector_named
from guard.errors import UsageError
from guard.policy import DEFAULT_POINTS
from guard.verdict import Scores, Window
from tests.cli.test_cli import sentence
from tests.cli.test_train import run
from tests.data import DATA, needs_data
from tests.detect.test_band import Giving, always, breaks, numbered, windows_of
from tests.rows import examples, rows


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Imports here, and not above, what would take seconds of every collection."""
    global \
        BandBudget, \
        GRID, \
        PairTable, \
        choose_band, \
        equal_weights, \
        measure_band, \
        pairs_of, \
        without_statements
    global CascadeCase, KeepingDetector, band_report, train_band
    pytest.importorskip("torch")
    from guard.train import band as train_band
    from guard.train.band import (
        GRID,
        BandBudget,
        PairTable,
        band_report,
        choose_band,
        equal_weights,
        measure_band,
        pairs_of,
        without_statements,
    )
    from guard.train.cascade import CascadeCase
    from guard.train.kept import KeepingDetector


def table_of(score: Sequence[float], right: Sequence[tuple[bool, bool]]) -> Any:
    """Return windows of harmless texts: the score, and whether first and later are right."""
    n = len(score)
    first, later = (np.repeat(~np.array(c, bool)[:, None], 3, axis=1) for c in zip(*right))  # noqa: B905
    source = np.array(["bold"] * n)
    false = np.zeros(n, bool)
    return PairTable(
        np.array(score, float), false, first, later, false, false, equal_weights(source),
        np.ones((n, 2)), source, np.arange(n) % 2 == 0,
    )  # fmt: skip


texts = st.lists(st.tuples(st.floats(0, 1), st.booleans(), st.booleans()), min_size=1, max_size=30)


def drawn(found: list[tuple[float, bool, bool]]) -> Any:
    return table_of([s for s, _, _ in found], [(a, b) for _, a, b in found])


@examples(100)
@given(texts, st.floats(0, 1))
def test_a_band_keeps_its_budget_and_none_within_it_gains_more(
    found: list[tuple[float, bool, bool]], share: float
) -> None:
    of = drawn(found)
    band = choose_band(of, BandBudget("escalated", share))
    assert of.inside(band).mean() <= share + 1e-9
    gained = measure_band(of, band).gained
    assert gained >= 0
    for low in GRID[::40]:
        for high in GRID[::40]:
            if low <= high:
                other = of.inside(Band(low, high))
                if other.mean() <= share:
                    assert measure_band(of, Band(low, high)).gained <= gained + 1e-6


@examples(50)
@given(texts)
def test_nothing_is_escalated_without_a_budget(found: list[tuple[float, bool, bool]]) -> None:
    of = drawn(found)
    assert choose_band(of, BandBudget("escalated", 0.0)) == EMPTY


def test_a_whole_budget_takes_the_whole_gain() -> None:
    of = table_of([0.0, 0.2, 0.6, 1.0], [(False, True)] * 4)
    band = choose_band(of, BandBudget("escalated", 1.0))
    assert (band.low, band.high) == (0.0, 1.0)
    assert measure_band(of, band).accuracy == 1.0
    assert choose_band(of, BandBudget("differ", 0.0)) == band


def test_a_later_that_is_no_better_gets_nothing() -> None:
    of = table_of([0.1, 0.5, 0.9], [(True, False), (False, False), (True, True)])
    assert choose_band(of, BandBudget("escalated", 1.0)) == EMPTY


@examples(100)
@given(texts, st.floats(0, 1))
def test_few_are_decided_otherwise_with_as_few_windows_as_can_be(
    found: list[tuple[float, bool, bool]], share: float
) -> None:
    of = drawn(found)
    band = choose_band(of, BandBudget("differ", share))
    assert measure_band(of, band).differ <= share + 1e-9
    mine = of.inside(band).sum()
    for low in GRID[::40]:
        for high in GRID[::40]:
            other = Band(low, high) if low <= high else EMPTY
            if measure_band(of, other).differ <= share:
                assert mine <= of.inside(other).sum()


def test_what_the_first_could_not_judge_counts_in_the_budget() -> None:
    of = table_of([0.0, 0.5, 0.5, 0.9], [(False, True)] * 4)
    of = of._replace(forced=np.array([True, False, False, False]))
    band = choose_band(of, BandBudget("escalated", 0.8))
    assert of.inside(band).tolist() == [True, True, True, False]
    assert choose_band(of, BandBudget("escalated", 0.2)) == EMPTY


def test_what_the_later_could_not_judge_is_never_right() -> None:
    of = table_of([0.5, 0.5], [(True, True), (False, True)])
    of = of._replace(unjudged=np.array([True, True]))
    assert not of.right(np.array([True, True])).any()
    found = measure_band(of, Band(0, 1))
    assert (found.accuracy, found.unjudged, found.first) == (0.0, 2, 0.5)
    assert "2 of them it could not judge" in words_of(found)


def words_of(measurement: Any) -> str:
    choice = train_band.BandChoice(
        Band(0, 1),
        BandBudget("escalated", 1.0),
        3,
        measurement,
        ((1.0, measurement),),
        {"bold": (2, 1)},
    )
    return str(band_report(choice))


def test_every_source_has_the_same_weight() -> None:
    weight = equal_weights(np.array(["a", "a", "a", "b"]))
    assert weight.tolist() == pytest.approx([1 / 6, 1 / 6, 1 / 6, 1 / 2])
    of = table_of([0.1, 0.2, 0.3, 0.4], [(True, True)] * 4)
    left = of.where(np.array([True, False, True, True]))
    assert left.weight.sum() == pytest.approx(1)


# Scores that are kept.


def test_a_window_is_asked_for_once_and_kept_without_its_text(tmp_path: Path) -> None:
    first = Giving("first-1", lambda w: Scores(0.25, "race"))
    secret = [Window("a secret"), Window("a secret", ("before",)), Window("a secret")]
    kept = KeepingDetector(first, tmp_path)
    assert [k.scores.score for k in kept.judged(secret)] == [0.25] * 3
    assert len(first.seen) == 2
    again = Giving("first-1", breaks)
    found = KeepingDetector(again, tmp_path).snapshot().score(secret)
    assert found == [Scores(0.25, "race")] * 3
    assert not again.seen
    (path,) = tmp_path.iterdir()
    assert b"secret" not in path.read_bytes()


@rows("cut", [1, 20, 60])
def test_a_file_cut_short_loses_its_last_line_alone(tmp_path: Path, cut: int) -> None:
    folder = tmp_path / str(cut)
    first = Giving("first-1", numbered)
    kept = KeepingDetector(first, folder)
    for window in windows_of([0.1, 0.2, 0.3]):
        kept.judged([window])
    (path,) = folder.iterdir()
    path.write_bytes(path.read_bytes()[:-cut])
    again = KeepingDetector(first, folder)
    before = len(first.seen)
    assert [k.scores.score for k in again.judged(windows_of([0.1, 0.2, 0.3]))] == [0.1, 0.2, 0.3]
    assert len(first.seen) - before == (cut > 1)
    third = Giving("first-1", breaks)
    assert [k.scores.score for k in KeepingDetector(third, folder).judged(windows_of([0.3]))] == [
        0.3
    ]


def test_another_detector_or_index_has_scores_of_its_own(tmp_path: Path) -> None:
    KeepingDetector(Giving("first-1", always(0.1)), tmp_path).judged([Window("x")])
    other = Giving("first-1", always(0.2))
    other.index_version = "another"
    for detector in (Giving("first-2", always(0.2)), other):
        (found,) = KeepingDetector(detector, tmp_path).judged([Window("x")])
        assert found.scores.score == 0.2


def test_what_fails_is_not_kept(tmp_path: Path) -> None:
    (found,) = KeepingDetector(Giving("first-1", breaks), tmp_path).judged([Window("x")])
    assert found.scores.unjudged == "failure"
    (found,) = KeepingDetector(Giving("first-1", always(0.2)), tmp_path).judged([Window("x")])
    assert found.scores.score == 0.2


def test_windows_are_decided_as_the_cascade_decides(tmp_path: Path) -> None:
    first = Giving("first-1", numbered, batch=2)
    later = Giving("later-1", always(0.5), batch=3)
    points = {p: dict.fromkeys(DEFAULT_POINTS["strict"], t) for p, t in
              (("strict", 0.4), ("balanced", 0.6), ("quiet", 0.8))}  # fmt: skip
    later.operating_points = points
    of = [CascadeCase(w, "bold", False, p) for w, p in
          zip(windows_of([0.1, 0.4, 0.6, 0.9]), ("fit", "choose") * 2, strict=True)]  # fmt: skip
    done: list[int] = []
    table = pairs_of(
        KeepingDetector(first, tmp_path), KeepingDetector(later, tmp_path), of,
        lambda at, total: done.append(at),
    )  # fmt: skip
    assert table.first.tolist() == [
        [False] * 3, [True, False, False], [True, True, False], [True] * 3,
    ]  # fmt: skip
    # .5 is above the later's strict and below its balanced.
    assert table.later.tolist() == [[True, False, False]] * 4
    assert table.score == pytest.approx([0.1, 0.4, 0.6, 0.9])
    assert table.chooses.tolist() == [False, True] * 2
    assert done[-1] == 4


def test_text_outside_the_languages_is_left_out(tmp_path: Path) -> None:
    first = Giving("first-1", lambda w: Scores(unjudged="language"))
    kept = KeepingDetector(first, tmp_path)
    with pytest.raises(UsageError, match="no validation text"):
        pairs_of(
            kept, kept, [CascadeCase(Window("x"), "bold", False, "fit")], lambda at, total: None
        )


def test_statements_of_the_validation_side_are_not_retrieved_meanwhile() -> None:
    small = detector_named("encoder-small", None, None)
    before = small.snapshot().index_version
    with without_statements([small]):
        assert small.snapshot().index_version != before
    assert small.snapshot().index_version == before


# The command.


@needs_data
@pytest.mark.slow("both detectors judge 200 windows")
def test_the_command_resumes_and_its_band_is_found_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(band_files, "cache_folder", lambda: tmp_path / "cache")
    command = (
        "band", "--first", "encoder-small", "--later", "encoder", "--data", str(DATA),
        "--work", str(tmp_path / "work"), "--windows", "200", "--escalate", ".3",
    )  # fmt: skip
    result = run(*command, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["measured"]["n"] + found["chosen_on"] <= 200
    kept = {path: path.read_bytes().strip() for path in (tmp_path / "work").iterdir()}
    again = json.loads(run(*command, "--json").stdout)
    assert again == found
    assert {path: path.read_bytes().strip() for path in kept} == kept
    members = [detector_named(name, None, None) for name in ("encoder-small", "encoder")]
    band = read_band(Path(found["file"]), *members)
    assert detector_named("cascade:encoder-small,encoder", None, None).name.endswith(
        f"@{band.low:g}-{band.high:g}"
    )
    shown = run(*command)
    assert "Accuracy at balanced" in shown.output
    assert found["file"] in shown.output


@rows(
    "options, said",
    [
        (("--escalate", ".2", "--differ", ".1"), "two budgets"),
        (("--later", "nothing"), "unknown detector 'nothing'"),
        (("--to", "."), "is a folder"),
    ],
)
def test_bad_options_are_one_sentence(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    usual = ("--first", "encoder-small", "--later", "encoder", "--work", str(tmp_path))
    result = run("band", *usual, "--data", str(tmp_path), *options)
    assert said in sentence(result)
