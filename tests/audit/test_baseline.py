"""Baselines: what is written is read again, and a file that is not whole is named."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.audit import baseline
from guard.audit.compare import compare
from guard.audit.header import Header
from guard.audit.sides import Axis, Side, SuiteSide, read_side
from guard.errors import UsageError
from guard.results.measure import share
from guard.results.paired import Aim
from guard.results.samples import Samples
from tests.audit.gated_suite import NAME, GatedOptions, half, more, recorded
from tests.rows import examples

OWN = (NAME,)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    few = GatedOptions(count=24)
    return {
        "base": recorded(folder / "base", half, options=few),
        "new": recorded(folder / "new", more, options=few),
    }


@pytest.fixture
def file(runs: dict[str, Path], tmp_path: Path) -> Path:
    path = tmp_path / "base.json"
    baseline.write(read_side(runs["base"], OWN), path)
    return path


def test_a_baseline_compares_as_the_run_that_it_is_of(runs: dict[str, Path], file: Path) -> None:
    new = read_side(runs["new"], OWN)
    from_run, from_file = (
        compare(read_side(runs["base"], OWN), new),
        compare(baseline.load(file), new),
    )
    assert from_file.outcome == from_run.outcome
    assert str(from_file.axes) == str(from_run.axes)
    assert from_file.axes[0].flips[0].base == "second"


def test_two_baselines_compare_without_their_runs(runs: dict[str, Path], file: Path) -> None:
    other = file.with_name("new.json")
    baseline.write(read_side(runs["new"], OWN), other)
    found = compare(*(baseline.read_side(path, OWN) for path in (file, other)))
    want = compare(*(read_side(runs[name], OWN) for name in ("base", "new")))
    assert found.outcome == want.outcome
    assert str(found.axes) == str(want.axes)


def test_a_baseline_holds_no_word_that_was_asked_or_said(file: Path) -> None:
    text = file.read_text("utf-8")
    assert "Who" not in text
    assert '"chunks"' not in text
    assert len(text) < 4000


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
NUMBERS = st.floats(-1, 1) | st.integers(0, 1).map(float)


@examples(60)
@given(
    st.lists(st.tuples(NAMES, NAMES, NUMBERS, NUMBERS), max_size=90, unique_by=lambda r: r[0]),
    st.sampled_from(["item", "cluster"]),
)
def test_what_is_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, str, float, float]],
    unit: str,
) -> None:
    ids = [row[0] for row in rows]
    clusters = [row[1] if unit == "item" else row[0] for row in rows]
    table = np.array([row[2:] for row in rows], dtype=float).reshape(len(rows), 2)
    aim = Aim(0.0, (-math.inf, 1.0), above=True)
    samples = Samples(table, clusters, ids)
    axis = Axis("plain", "m", {"a/b": "c"}, aim, unit, samples, share)  # type: ignore[arg-type]
    header = Header("s", "1-A", "d", "p", "1", "m", sampling={"size": 3, "seed": 17})
    outcomes = {"plain": dict(zip(ids, clusters, strict=True))}
    one = SuiteSide(header, {axis.name("s"): axis}, outcomes, 7, 9, 0, 0.5, {"cost_usd": 0.1})
    path = tmp_path_factory.mktemp("one") / "b.json"
    baseline.write(Side("x", {"s": one}), path)
    (again,) = baseline.load(path).suites.values()
    (found,) = again.axes.values()
    assert [*found.ids] == ids
    assert [*found.samples.clusters] == clusters
    assert found.samples.rows.tolist() == table.tolist()
    assert (found.aim, found.labels, found.unit) == (aim, axis.labels, unit)
    assert again.header == header
    assert (again.items, again.available, again.coverage) == (7, 9, 0.5)
    if unit == "item":
        assert again.outcomes == outcomes


@pytest.mark.parametrize("cut", [0, 10, 200, 1500, -3])
def test_a_file_that_was_cut_off_is_named(file: Path, cut: int) -> None:
    file.write_text(file.read_text("utf-8")[:cut])
    with pytest.raises(
        UsageError, match=r"base\.json is (truncated|not a baseline); make it again"
    ):
        baseline.load(file)


@pytest.mark.parametrize(
    ("old", "new"),
    [('"coverage":1.0', '"coverage":0.9'), ('"g3"', '"g33"'), ('"of":"0', '"of":"1')],
)
def test_an_edit_by_hand_shows(file: Path, old: str, new: str) -> None:
    text = file.read_text("utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1))
    with pytest.raises(UsageError, match="was edited: its checksum"):
        baseline.load(file)


def test_an_item_taken_out_shows(file: Path) -> None:
    told = json.loads(file.read_text("utf-8"))
    del told["suites"]["gated"]["items"][5]
    file.write_text(json.dumps(told))
    with pytest.raises(UsageError, match="was edited: its checksum"):
        baseline.load(file)


def test_how_a_file_is_laid_out_does_not_matter(file: Path) -> None:
    """A formatter of a repository may touch it."""
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")), indent=4))
    assert baseline.load(file).suites["gated"].items == 24


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{}", "is not a baseline"),
        ("[]", "is not a baseline"),
        ("not json", "is not a baseline"),
        (
            '{"kind": "guard audit baseline", "format": 9}',
            "of format 9, and this version of",
        ),
    ],
)
def test_another_file_is_named(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=told):
        baseline.load(path)


def test_nothing_is_overwritten_but_a_baseline_on_demand(
    runs: dict[str, Path], file: Path, tmp_path: Path
) -> None:
    side = read_side(runs["new"], OWN)
    before = file.read_bytes()
    with pytest.raises(UsageError, match="exists already"):
        baseline.write(side, file)
    assert file.read_bytes() == before
    baseline.write(side, file, replace=True)
    assert file.read_bytes() != before
    other = tmp_path / "mine.json"
    other.write_text("{}")
    with pytest.raises(UsageError, match="is not a baseline"):
        baseline.write(side, other, replace=True)
    assert other.read_text() == "{}"
    with pytest.raises(UsageError, match="cannot be written"):
        baseline.write(side, other / "below.json")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base.json", "mine.json"]
