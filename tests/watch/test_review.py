"""The review queue: what is drawn, who marks it, and what becomes of the marks."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import func, select

from guard.errors import ConfigError, UsageError
from guard.policy import Policy
from guard.results.agreement import agreement_of
from guard.results.estimate import Estimate
from guard.results.intervals import clopper_pearson
from guard.watch import draw, review, schema
from guard.watch.review import Correction, ReviewerMark, verdict_of
from guard.watch.review_rates import estimates, unreviewable
from guard.watch.store import Store
from tests.scripted import Scripted
from tests.watch.conftest import sqlite_often
from tests.watch.deployments import Deployment, deployment, truth
from tests.watch.older import downgrade
from tests.watch.reading import events, flushed, guard_with, queue, rows
from tests.watch.test_store import change

NOW = 1_800_000_000.0
DAY = 86_400.0


def filled(url: str, made: Deployment, at: float = NOW - 3600) -> Store:
    """Write a deployment to a store; a text says whether it is biased."""
    store = Store(url)
    store.prepare()
    responses: dict[str, dict[str, Any]] = {}
    found = []
    for name, number, action, kind, score, threshold, share, kept, model in made.rows:
        responses[name] = {
            **{"id": name, "time": at, "door": "chat", "model": model, "request_id": name[-4:]},
            **{"settings": "s", "detector": "d", "index_version": None, "outcome": "completed"},
            "labels": {"tenant": "a" if int(name, 16) % 2 else "b"},
        }
        text = "biased" if made.biased[name, number] else "harmless"
        found.append(
            {
                **{"response_id": name, "number": number, "time": at + number / 100},
                **{"action": action, "unjudged": None, "bias_type": kind, "score": score},
                **{"group_name": kind and "women", "attribute_name": None, "counted": True},
                **{"threshold": threshold, "channel": "content", "choice": 0, "tool": 0},
                **{"start": 0, "end": 1, "judging_ms": 0.0, "text": text if kept else None},
                "text_share": share,
            }
        )
    store.write([], list(responses.values()), found, [])
    store.disconnect()
    return store


def marked(store: Store, reviewer: str = "ann", **corrections: Any) -> int:
    """Mark all of the queue as its texts say; return how many there were."""
    count = 0
    with store.writing() as connection:
        while (item := review.next_item(connection, reviewer)) is not None:
            right = (item.text == "biased") == (item.action != "pass")
            bias = Correction(**corrections) if item.text == "biased" else None
            review.mark(connection, item.id, reviewer, "right" if right else "wrong", bias)
            count += 1
    return count


@pytest.fixture
def made() -> Deployment:
    return deployment(np.random.default_rng(0), responses=150, biased=0.1, false_alarms=0.03)


def test_a_draw_stands_for_all_segments_and_both_databases_draw_the_same(
    tmp_path: Path, url: str, made: Deployment
) -> None:
    drawn = []
    for one in (url, str(tmp_path / "other.db")):
        store = filled(one, made)
        sample = review.draw(store, NOW - DAY, NOW, 100, seed=5)
        assert (sample.segments, sample.unread) == (len(made.rows), 0)
        assert sample.size == 100
        found = rows(one, schema.items)
        assert sum(item["weight"] for item in found) == pytest.approx(len(made.rows))
        sizes: dict[str, int] = defaultdict(int)
        for item in found:
            assert item["probability"] == item["stratum_drawn"] / item["stratum_size"]
            assert item["weight"] == pytest.approx(1 / item["probability"])
            sizes[item["stratum"]] += 1
        assert all(sizes[item["stratum"]] == item["stratum_drawn"] for item in found)
        assert sorted(item["position"] for item in found) == list(range(100))
        actions = {(e["response_id"], e["number"]): e["action"] for e in events(one)}
        passed = [actions[i["response_id"], i["number"]] == "pass" for i in found]
        assert sum(passed) == 50
        drawn.append([(i["response_id"], i["number"], i["stratum"], i["position"]) for i in found])
    assert drawn[0] == drawn[1]


def test_the_first_of_a_queue_are_of_every_stratum(tmp_path: Path, made: Deployment) -> None:
    store = filled(str(tmp_path / "guard.db"), made)
    review.draw(store, NOW - DAY, NOW, 100)
    found = sorted(rows(store.url.database or "", schema.items), key=lambda i: i["position"])
    strata = {item["stratum"] for item in found}
    assert {item["stratum"] for item in found[: 100 // 3]} == strata


def test_a_segment_is_stood_for_once(tmp_path: Path, made: Deployment) -> None:
    url = str(tmp_path / "guard.db")
    store = filled(url, made)
    first = review.draw(store, NOW - DAY, NOW - 3600 + 0.05, 40)
    second = review.draw(store, NOW - DAY, NOW, 40)
    assert first.segments + second.segments == len(made.rows)
    found = rows(url, schema.items)
    assert len({(i["response_id"], i["number"]) for i in found}) == len(found)
    with pytest.raises(UsageError, match="No segment was judged in this time"):
        review.draw(store, NOW - DAY, NOW, 40)
    assert len(rows(url, schema.draws)) == 2


def test_a_draw_that_is_enlarged_keeps_its_items_and_their_marks(
    tmp_path: Path, made: Deployment
) -> None:
    url = str(tmp_path / "guard.db")
    store = filled(url, made)
    with pytest.raises(UsageError, match="Nothing has been drawn yet"):
        review.enlarge(store, 10)
    review.draw(store, NOW - DAY, NOW, 100)
    before = {(i["response_id"], i["number"]) for i in rows(url, schema.items)}
    marked(store)
    sample = review.enlarge(store, 60)
    after = {(i["response_id"], i["number"]) for i in rows(url, schema.items)}
    assert (sample.size, sample.segments) == (160, len(made.rows))
    assert before <= after
    with store.reading() as connection:
        assert review.progress(connection).marked == 100


@sqlite_often()
def test_estimates_from_a_store_are_those_of_its_segments(url: str) -> None:
    made = deployment(
        np.random.default_rng(1), responses=400, biased=0.1, missed=0.3, false_alarms=0.03
    )
    store = filled(url, made)
    review.draw(store, NOW - DAY, NOW, 300)
    assert marked(store, group="Women", bias_type="race") == 300
    true = truth(made)
    with store.reading() as connection:
        everything = estimates(connection, NOW - DAY, NOW)[()]
        by_tenant = estimates(connection, NOW - DAY, NOW, ["tenant"])
        by_type = estimates(connection, NOW - DAY, NOW, ["bias_type", "model"])
        by_group = estimates(connection, NOW - DAY, NOW, ["group"])
        nothing = estimates(connection, NOW, NOW + DAY)[()]
    for name, estimate in everything._asdict().items():
        assert estimate.low <= true[name] <= estimate.high
        assert estimate.high - estimate.low < 0.5
    assert set(by_tenant) == {("a",), ("b",)}
    assert {kind for kind, _ in by_type} == {"gender", "race", "religion"}
    # All misses were marked as of race; those of a group that was found are of this group.
    assert all((rates.missed.value > 0) == (kind == "race") for (kind, _), rates in by_type.items())
    assert set(by_group) == {("women",)}
    assert by_group["women",].missed.value == pytest.approx(everything.missed.value)
    assert nothing.missed.reason == "nothing is reviewed"


def test_misses_without_a_type_are_in_no_rate_by_type(tmp_path: Path) -> None:
    made = deployment(np.random.default_rng(2), biased=0.1, missed=0.5)
    store = filled(str(tmp_path / "guard.db"), made)
    review.draw(store, NOW - DAY, NOW, 200)
    marked(store)
    with store.reading() as connection:
        found = estimates(connection, NOW - DAY, NOW, ["bias_type"])
        assert not math.isnan(estimates(connection, NOW - DAY, NOW)[()].missed.value)
    for rates in found.values():
        assert "missed segments have no type or group" in rates.missed.reason
        assert not math.isnan(rates.false_alarms.value)


def test_an_undone_mark_gives_way_to_the_one_before(tmp_path: Path, made: Deployment) -> None:
    store = filled(str(tmp_path / "guard.db"), made)
    review.draw(store, NOW - DAY, NOW, 20)
    with store.writing() as connection:
        item = review.next_item(connection, "ann")
        assert item is not None
        review.mark(connection, item.id, "ann", "right")
        review.mark(connection, item.id, " ann ", "wrong", Correction("race", "x", None))
        [one] = review.all_marks(connection)[item.key].values()
        assert (one.verdict, one.correction) == ("wrong", Correction("race", "x", None))
        assert review.undo(connection, "bob") is None
        assert review.undo(connection, "ann") == item
        assert review.all_marks(connection)[item.key]["ann"].verdict == "right"
        review.undo(connection, "ann")
        assert review.all_marks(connection) == {}
        assert review.undo(connection, "ann") is None


def test_a_clock_that_is_set_back_changes_no_order(
    tmp_path: Path, made: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(str(tmp_path / "guard.db"), made)
    review.draw(store, NOW - DAY, NOW - 3600 + 0.05, 20)
    with store.writing() as connection:
        item = review.next_item(connection, "ann")
        assert item is not None
        review.mark(connection, item.id, "ann", "right")
    monkeypatch.setattr("guard.watch.draw.time.time_ns", lambda: 1_000)
    with store.writing() as connection:
        review.mark(connection, item.id, "ann", "wrong")
        assert review.all_marks(connection)[item.key]["ann"].verdict == "wrong"
        review.undo(connection, "ann")
        assert review.all_marks(connection)[item.key]["ann"].verdict == "right"
    second = review.draw(store, NOW - DAY, NOW, 20)
    found = rows(str(store.url.database), schema.items)
    assert len({(i["response_id"], i["number"]) for i in found}) == len(found)
    assert review.enlarge(store, 10).id == second.id


def test_a_draw_during_which_its_segments_are_forgotten_leaves_a_queue(
    url: str, made: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(url, made)
    sampled = draw.sampled

    def forget_first(*args: Any) -> Any:
        found = sampled(*args)
        with Store(url).changing() as changed:
            assert changed.forget(found[0]["response_id"][-4:]) == 1
        return found

    monkeypatch.setattr(draw, "sampled", forget_first)
    size = review.draw(store, NOW - DAY, NOW, 20).size
    kept = {row["id"] for row in rows(url, schema.responses)}
    assert {row["response_id"] for row in rows(url, schema.items)} <= kept
    with store.reading() as connection:
        assert 0 < len(queue(connection)) == size < 20
        assert review.next_item(connection, "ann") is not None
        assert review.progress(connection).drawn == len(queue(connection))


def test_an_item_whose_event_is_gone_is_left_out(url: str, made: Deployment) -> None:
    store = filled(url, made)
    review.draw(store, NOW - DAY, NOW, 20)
    with store.writing() as connection:
        first, *others = (item for item, _ in queue(connection))
        second = next(i for i in others if i.key.response_id != first.key.response_id)
        for item in (second, first):
            review.mark(connection, item.id, "ann", "right")
    change(url, f"DELETE FROM guard_events WHERE response_id = '{first.key.response_id}'")
    with store.writing() as connection:
        assert all(item.key != first.key for item, _ in queue(connection))
        with pytest.raises(UsageError, match="The review queue has no item"):
            review.item(connection, first.id)
        assert review.undo(connection, "ann") == second


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("nothing-1", "ann", "right"), "The review queue has no item 'nothing-1'"),
        ((None, "ann", "good"), "A mark is right, wrong or unclear"),
        ((None, " ", "right"), "A mark needs its reviewer's name"),
        ((None, "ann", "wrong", Correction("sexism")), "A bias type is one of gender"),
    ],
)
def test_a_mark_that_is_none_is_refused(
    tmp_path: Path, made: Deployment, given: Any, sentence: str
) -> None:
    store = filled(str(tmp_path / "guard.db"), made)
    review.draw(store, NOW - DAY, NOW, 20)
    with store.reading() as connection:
        item = review.next_item(connection, "ann")
    assert item is not None
    with pytest.raises(UsageError, match=sentence), store.writing() as connection:
        review.mark(connection, given[0] or item.id, *given[1:])
    with store.reading() as connection:
        assert review.all_marks(connection) == {}


def test_a_third_mark_settles_what_two_disagree_on(tmp_path: Path, made: Deployment) -> None:
    store = filled(str(tmp_path / "guard.db"), made)
    review.draw(store, NOW - DAY, NOW, 20)
    marked(store)
    with store.writing() as connection:
        assert review.next_item(connection, "ann", "second") is None
        for number in range(20):
            item = review.next_item(connection, "bob", "second")
            assert item is not None
            own = review.all_marks(connection)[item.key]["ann"].verdict
            other = "right" if own == "wrong" else "wrong"
            review.mark(connection, item.id, "bob", own if number % 2 else other)
        assert review.progress(connection) == (20, 20, 20, 10)
        [agreed] = review.agreement(connection)
        assert (agreed.first, agreed.second, agreed.n) == ("ann", "bob", 20)
        assert agreed.agreed == Estimate(0.5, *clopper_pearson(10, 20), 20)
        item, marks = review.disputes(connection)[0]
        assert verdict_of(marks) == "unclear"
        assert review.next_item(connection, "ann", "disputed") is None
        third = review.next_item(connection, "cat", "disputed")
        assert third is not None
        review.mark(connection, third.id, "cat", "wrong")
        assert len(review.disputes(connection)) == 9
        assert verdict_of(review.all_marks(connection)[third.key]) == "wrong"


def _verdicts(*verdicts: str) -> dict[str, ReviewerMark]:
    return {str(n): ReviewerMark(str(n), v, Correction(), 0.0) for n, v in enumerate(verdicts)}  # type: ignore[arg-type]


def test_a_verdict_is_that_of_most_reviewers() -> None:
    assert verdict_of(_verdicts("right")) == "right"
    assert verdict_of(_verdicts("right", "wrong")) == "unclear"
    assert verdict_of(_verdicts("right", "unclear")) == "unclear"
    assert verdict_of(_verdicts("right", "wrong", "wrong")) == "wrong"
    assert verdict_of(_verdicts("right", "wrong", "unclear")) == "unclear"


def test_kappa_is_cohens_and_its_interval_covers() -> None:
    # Cohen's example of 1960 as frequencies of 200: observed .70, by chance .41, kappa .492.
    table = {("right", "right"): 88, ("right", "wrong"): 14, ("right", "unclear"): 18}
    table |= {("wrong", "right"): 10, ("wrong", "wrong"): 40, ("wrong", "unclear"): 10}
    table |= {("unclear", "right"): 2, ("unclear", "wrong"): 6, ("unclear", "unclear"): 12}
    pairs: Any = [pair for pair, count in table.items() for _ in range(count)]
    found = agreement_of("a", "b", pairs)
    assert found.kappa.value == pytest.approx((0.7 - 0.41) / 0.59, abs=1e-9)
    rng = random.Random(0)
    covered = 0
    for _ in range(400):
        drawn = rng.choices(pairs, k=80)
        kappa = agreement_of("a", "b", drawn).kappa
        covered += kappa.low <= found.kappa.value <= kappa.high
    assert covered >= 0.92 * 400
    assert math.isnan(agreement_of("a", "b", [("right", "right")] * 9).kappa.value)


def test_what_is_forgotten_leaves_the_queue(url: str, made: Deployment) -> None:
    store = filled(url, made)
    review.draw(store, NOW - DAY, NOW, 60)
    marked(store)
    gone = rows(url, schema.items)[0]["response_id"]
    with store.changing() as changed:
        assert changed.forget(gone[-4:]) == 1
    for table in (schema.items, schema.marks, schema.events):
        assert all(row["response_id"] != gone for row in rows(url, table))
    with store.reading() as connection:
        left = review.progress(connection)
        assert left.drawn == left.marked < 60
        assert not math.isnan(estimates(connection, NOW - DAY, NOW)[()].over_blocking.value)


@pytest.mark.parametrize("keep_text", ["never", "hash"])
def test_without_text_nothing_can_be_reviewed_and_it_says_how(sqlite: str, keep_text: str) -> None:
    guard = guard_with(sqlite, policy=Policy(action="flag"), keep_text=keep_text)
    list(guard.stream(["All is well. BIAS is here."]))
    flushed(guard)
    with pytest.raises(UsageError, match=r"kept of the 2 segments .* Set keep_text = 'redacted'"):
        review.draw(Store(sqlite), 0, NOW * 2, 10)
    assert rows(sqlite, schema.draws) == []
    with pytest.raises(ConfigError, match=f"keep_text = '{keep_text}' forbids it"):
        guard_with(sqlite, keep_text=keep_text, review_share=0.1)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_share_of_what_passes_keeps_its_text(sqlite: str, share: float) -> None:
    guard = guard_with(
        sqlite, policy=Policy(action="flag"), keep_text="redacted", review_share=share
    )
    for number in range(100):
        random.seed(0)  # an application's own
        list(guard.stream([f"All is well {number}. So it is. BIAS is here."]))
    flushed(guard)
    passed = [e for e in events(sqlite) if e["action"] == "pass"]
    kept = [e for e in passed if e["text"] is not None]
    assert len(passed) == 200
    low, high = (200 * end for end in clopper_pearson(len(kept), 200, 0.999_999))
    assert low <= 200 * share <= high
    assert {e["text_share"] for e in passed} == {share or None}
    assert {e["text_share"] for e in events(sqlite) if e["action"] == "flag"} == {1.0}
    assert all("[number]" in e["text"] for e in kept if "well" in e["text"])
    sample = review.draw(Store(sqlite), 0, NOW * 2, 40)
    assert (sample.segments, sample.unread) == ((300, 0) if share else (100, 200))
    with Store(sqlite).reading() as connection:
        assert unreviewable(connection, 0, NOW * 2) == sample.unread


@pytest.mark.parametrize("share", ["much", 2, -0.1, math.nan, True, [1]])
def test_a_share_that_is_none_is_refused(tmp_path: Path, share: Any) -> None:
    with pytest.raises(ConfigError, match="review_share takes a share from 0 to 1"):
        guard_with(str(tmp_path / "guard.db"), keep_text="full", review_share=share)


def test_unjudged_segments_and_other_doors_are_not_drawn(sqlite: str) -> None:
    failing: list[int] = []

    def fails(window: Any) -> None:
        if "now" in window.text:
            failing.append(1)
            raise RuntimeError

    guard = guard_with(sqlite, Scripted(before=fails), Policy(failure="open"), keep_text="full")
    list(guard.stream(["All is well. It fails now. "]))
    guard.check("A text that was only checked.")
    flushed(guard)
    sample = review.draw(Store(sqlite), 0, NOW * 2, 10)
    assert failing
    assert (sample.size, sample.segments, sample.unread) == (1, 1, 0)


def test_a_store_of_the_version_before_is_brought_up_with_its_texts(url: str) -> None:
    guard = guard_with(url, policy=Policy(action="flag"), keep_text="full")
    list(guard.stream(["All is well. BIAS is here."]))
    flushed(guard)
    guard.recorder.writer.close()  # type: ignore[union-attr]
    change(url, "UPDATE guard_events SET text = 'hmac:1' WHERE number = 0")
    downgrade(url, 2)
    with pytest.raises(ConfigError, match="by an older guard"), Store(url).reading():
        pass
    Store(url).prepare()
    assert [e["text_share"] for e in events(url)] == [None, 1.0]
    sample = review.draw(Store(url), 0, NOW * 2, 10)
    assert (sample.size, sample.unread) == (1, 1)
    with Store(url).reading() as connection:
        assert connection.scalar(select(func.count()).select_from(schema.items)) == 1
