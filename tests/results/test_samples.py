"""Rows of additive numbers: chosen by their items' data, averaged by item, summed by cluster."""

from __future__ import annotations

import numpy as np
import pytest

from guard.results.jackknife import Jackknife, Jeffreys, interval_of
from guard.results.measure import Measure, column, share
from guard.results.samples import Samples
from guard.suites import Item

ITEMS = [
    Item("b1", "s", "beta", {"group": "x"}, words=("w1", "v1")),
    Item("a1", "s", "alpha", {"group": "y"}, words=("w2", "v1")),
    Item("b1", "s", "beta", {"group": "x"}, words=("w1", "v1")),
    Item("b2", "s", "beta", {"group": "y"}, words=("w1", "v2")),
]
SAMPLES = Samples.of(ITEMS, [1, 0, 0, 1], [True, False, True, True])


def test_a_row_is_about_an_item() -> None:
    assert SAMPLES.rows.tolist() == [[1, 1], [0, 0], [0, 1], [1, 1]]
    assert SAMPLES.clusters == ["beta", "alpha", "beta", "beta"]
    assert SAMPLES.words == [("w1", "w2", "w1", "w1"), ("v1", "v1", "v1", "v2")]
    assert Samples.of([], [], []).rows.shape == (0, 2)


def test_rows_are_chosen_by_their_labels() -> None:
    some = SAMPLES.where(group="y")
    assert some.items == ["a1", "b2"]
    assert some.rows.tolist() == [[0, 0], [1, 1]]
    assert some.words == [["w2", "w1"], ["v1", "v2"]]
    assert some.where(group="y").items == some.items
    none = SAMPLES.where(group="z")
    assert none.rows.shape == (0, 2)
    assert not none.words  # else its intervals would be over words that nobody said


def test_an_item_is_the_mean_of_its_readable_repeats() -> None:
    by_item = SAMPLES.by_item()
    assert by_item.items == ["b1", "b2"]  # that of a1 has zeros: it could not be read
    assert by_item.rows.tolist() == [[0.5, 1], [1, 1]]
    assert by_item.clusters == ["beta", "beta"]


def test_sums_by_cluster() -> None:
    by_cluster = SAMPLES.by_cluster()
    assert (by_cluster.items, by_cluster.rows.tolist()) == (["beta", "alpha"], [[2, 3], [0, 0]])
    assert SAMPLES.cluster_names == ["alpha", "beta"]
    assert SAMPLES.cluster_totals.tolist() == [[0, 0], [2, 3]]
    assert SAMPLES.totals_of(["alpha", "aside", "beta"]).tolist() == [[0, 0], [0, 0], [2, 3]]
    assert SAMPLES.totals.tolist() == [2, 3]


def test_all_items_of_a_measure_have_as_many_words() -> None:
    with pytest.raises(ValueError, match="different numbers of words"):
        Samples.of([ITEMS[0], Item("c", "s", "alpha")], [1, 1])


@pytest.mark.parametrize(
    ("null", "bounds", "usual"),
    [
        (None, (0.0, 1.0), Jeffreys()),
        (None, (-1.0, 1.0), Jackknife()),
        (None, (0.0, np.inf), Jackknife()),
        (0.5, (0.0, 1.0), Jackknife()),
    ],
)
def test_a_measure_that_names_no_interval_has_the_usual_one(
    null: float | None, bounds: tuple[float, float], usual: object
) -> None:
    measure = Measure("m", {}, SAMPLES, share, column(1), null=null, bounds=bounds)
    assert interval_of(measure) == usual
