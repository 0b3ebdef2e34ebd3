from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.audit.sample import stratified_sample
from guard.errors import UsageError
from guard.suites import Item
from guard.suites.hbb.suite import Hbb, McqOptions

ITEMS = [
    Item(f"{stratum}{n}", stratum, f"c{n}", unit=f"u{n // size}")
    for stratum, count, size in (("a", 60, 1), ("b", 30, 3), ("c", 10, 1))
    for n in range(count)
]


def test_strata_keep_their_shares_and_units_stay_whole() -> None:
    found = stratified_sample(ITEMS, 50, 17)
    assert Counter(i.stratum for i in found) == {"a": 30, "b": 15, "c": 5}
    units = Counter(i.unit for i in found if i.stratum == "b")
    assert set(units.values()) == {3}
    order = {item.id: n for n, item in enumerate(ITEMS)}
    assert [order[i.id] for i in found] == sorted(order[i.id] for i in found)


@given(st.integers(1, 110), st.integers(0, 5))
def test_the_size_is_met_within_a_unit_a_stratum(size: int, seed: int) -> None:
    found = stratified_sample(ITEMS, size, seed)
    assert abs(len(found) - min(size, 100)) <= 3
    assert len({i.id for i in found}) == len(found)
    assert [i.id for i in found] == [i.id for i in stratified_sample(ITEMS, size, seed)]
    if size >= 3:
        assert {i.stratum for i in found} == {"a", "b", "c"}


def test_a_larger_sample_holds_the_smaller() -> None:
    small = {i.id for i in stratified_sample(ITEMS, 20, 17)}
    assert small < {i.id for i in stratified_sample(ITEMS, 60, 17)}
    assert small != {i.id for i in stratified_sample(ITEMS, 20, 18)}


def test_none_takes_all_and_nothing_is_no_sample() -> None:
    assert stratified_sample(ITEMS, None, 17) == ITEMS
    assert stratified_sample(ITEMS, 100, 17) == ITEMS
    with pytest.raises(UsageError, match="at least one item"):
        stratified_sample(ITEMS, 0, 17)


@given(st.integers(1, 60), st.integers(1, 12), st.integers(1, 30), st.integers(0, 3))
def test_a_sample_is_never_more_than_twice_what_was_asked_for(
    size: int, unit: int, strata: int, seed: int
) -> None:
    items = [
        Item(f"{s} {n}", f"s{s}", "c", unit=f"{s} {n // unit}")
        for s in range(strata)
        for n in range(3 * unit)
    ]
    found = stratified_sample(items, size, seed)
    assert len(found) <= max(2 * size, unit)
    assert found


@pytest.mark.parametrize(
    "seed",
    [
        0,
        *(
            pytest.param(
                n, marks=pytest.mark.slow("lists all items and samples them for another seed")
            )
            for n in range(1, 5)
        ),
    ],
)
def test_a_small_sample_covers_every_subject_that_it_has_room_for(seed: int) -> None:
    suite = Hbb(McqOptions(seed=seed))
    items = list(suite.items())
    before: set[str] = set()
    for size, categories in ((2, 1), (5, 3), (10, 4), (15, 5), (30, 5), (60, 5)):
        found = stratified_sample(items, size, seed)
        assert len({i.subject or i.stratum for i in found}) == categories
        assert len(found) <= 2 * size
        assert before <= {i.id for i in found}
        before = {i.id for i in found}


def test_a_quick_run_is_a_preset_that_its_key_names() -> None:
    from guard.audit.audit import Audit
    from guard.suites import registry

    for name, options, items in (("mist", {}, 300), ("hbb", {"probabilities": "sample"}, 150)):
        suite = registry.make(name, options)
        audit = Audit.of(suite, quick=True)
        again = Audit.of(registry.make(name, options), quick=True)
        assert [item.id for item in audit.items] == [item.id for item in again.items]
        # Whole units: of about so many items, and of as many strata as there is room for.
        assert items / 2 <= len(audit.items) <= 2 * items
        assert audit.sampling["preset"] == "quick"
        plain = Audit.of(audit.suite, audit.size)
        assert [item.id for item in plain.items] == [item.id for item in audit.items]
        one, other = audit.header("m", None), plain.header("m", None)
        assert one.differences(other) == {"sample": ("preset 'quick'", "preset None")}
        assert not one.contains_sample(other)
        assert not other.contains_sample(one)


def test_a_quick_run_is_the_same_after_it_is_fitted_to_a_model() -> None:
    from guard.audit.audit import Audit
    from guard.suites import registry

    audit = Audit.of(registry.make("hbb", {}), quick=True)
    adapted = audit.adapted(frozenset({"chat"}))
    assert adapted.sampling["preset"] == "quick"
    assert sum(item.samples for item in adapted.items) <= 1200
    with_logprobs = audit.adapted(frozenset({"chat", "logprobs"}))
    assert len(with_logprobs.items) > len(adapted.items)


def test_a_quick_run_of_hbb_asks_more_questions_less_often() -> None:
    from guard.audit.audit import Audit
    from guard.suites import registry

    def asked(**options: Any) -> tuple[int, set[int]]:
        items = Audit.of(
            registry.make("hbb", {"probabilities": "sample", **options}), quick=True
        ).items
        return len(items), {item.samples for item in items}

    assert asked() == (150, {4})
    few, ten = asked(repeats=10)  # as given
    assert 60 <= few < 80
    assert ten == {10}
    assert asked(protocol="paper")[1] == {10}
