"""Review in the dashboard: what is marked there is in the store, by whom, and can be taken back."""

from __future__ import annotations

import re
import time

import pytest
from starlette.testclient import TestClient

from guard.watch.dashboard.access import Rules
from guard.watch.dashboard.app import application
from guard.watch.review import all_marks, draw, mark, next_item
from guard.watch.review_rates import estimates
from guard.watch.store import Store
from tests.watch.serving import SCRIPT, fill

ORIGIN = {"origin": "http://127.0.0.1"}


def drawn(url: str, size: int = 20) -> TestClient:
    fill(url)
    draw(Store(url), 0, time.time() + 1, size)
    return TestClient(application(Store(url), Rules()), base_url="http://127.0.0.1")


def item_on(page: str) -> str:
    found = re.search(r'name="item" value="([^"]*)"', page)
    return found[1] if found else ""


def test_every_item_is_marked_once_and_the_queue_ends(url: str) -> None:
    asked, seen = drawn(url), []
    page = asked.get("/review", params={"reviewer": SCRIPT}).text
    while name := item_on(page):
        assert "<script>document" not in page
        assert 'class="text blurred" aria-hidden="true" inert' in page
        biased = re.search("<mark>[^<]*All BIAS", page)
        assert ("<strong>Passed" in page) == (biased is None)
        seen.append(name)
        verdict = ("right", "wrong", "unclear")[len(seen) % 3]
        fields = {"item": name, "reviewer": SCRIPT, "do": verdict, "bias_type": "age"}
        page = asked.post("/review", data=fields, headers=ORIGIN).text
    assert "No decision of this kind is left" in page
    with Store(url).reading() as connection:
        given = all_marks(connection)
    assert len(seen) == len(set(seen)) == len(given) > 10
    assert {f"{key.response_id}-{key.number}" for key in given} == set(seen)
    verdicts = {one.verdict for of in given.values() for one in of.values()}
    assert verdicts == {"right", "wrong", "unclear"}
    assert {name for of in given.values() for name in of} == {SCRIPT}
    assert {one.correction.bias_type for of in given.values() for one in of.values()} == {"age"}


def test_a_mark_is_taken_back_and_its_item_comes_again(sqlite: str) -> None:
    asked = drawn(sqlite)
    first = item_on(asked.get("/review", params={"reviewer": "ada"}).text)
    fields = {"item": first, "reviewer": "ada", "do": "wrong", "shown": "1"}
    second = asked.post("/review", data=fields, headers=ORIGIN).text
    assert item_on(second) != first
    assert "blurred" not in second  # asked for once
    undone = {"reviewer": "ada", "do": "undo"}
    assert item_on(asked.post("/review", data=undone, headers=ORIGIN).text) == first
    with Store(sqlite).reading() as connection:
        assert all_marks(connection) == {}
    assert asked.post("/review", data=undone, headers=ORIGIN).status_code == 200


def test_next_passes_items_over_without_a_mark(sqlite: str) -> None:
    asked, seen = drawn(sqlite), []
    page = asked.get("/review", params={"reviewer": "ada"}).text
    for _ in range(5):
        seen.append(item_on(page))
        skipped = re.search(r'name="skipped" value="([^"]*)"', page)
        assert skipped
        page = asked.get("/review", params={"reviewer": "ada", "skipped": skipped[1]}).text
    assert len(set(seen)) == 5


def test_a_second_reviewer_sees_what_one_has_marked(sqlite: str) -> None:
    asked = drawn(sqlite)
    with Store(sqlite).writing() as connection:
        one = next_item(connection, "ada")
        assert one is not None
        mark(connection, one.id, "ada", "right")
    page = asked.get("/review", params={"reviewer": "grace", "wanted": "second"}).text
    assert item_on(page) == one.id
    own = asked.get("/review", params={"reviewer": "ada", "wanted": "second"}).text
    assert "No decision of this kind is left" in own


def test_the_first_page_has_what_was_reviewed(sqlite: str) -> None:
    asked = drawn(sqlite, 40)
    assert "as reviewed" not in asked.get("/").text
    with Store(sqlite).writing() as connection:
        while one := next_item(connection, "ada"):
            mark(connection, one.id, "ada", "wrong" if "rain" in one.text.casefold() else "right")
    page = asked.get("/").text
    with Store(sqlite).reading() as connection:
        (whole,) = estimates(connection, time.time() - 86_400, time.time()).values()
    assert 0 < whole.missed.value < 1
    assert whole.over_blocking.value == 0
    for title, of in (("Missed", whole.missed), ("Over-blocking", whole.over_blocking)):
        found = re.search(rf"<dt>{title}, as reviewed</dt><dd>([^<]*)</dd>", page)
        assert found
        value = f"{100 * of.value:.3g} %" if of.value < 0.1 else f"{100 * of.value:.1f} %"
        assert found[1].startswith(value)
        assert f"({of.n} marked)" in found[1]
    assert page.count("<svg") == 6
    by_tenant = asked.get("/", params={"by": "tenant"}).text
    with Store(sqlite).reading() as connection:
        lines = estimates(connection, time.time() - 86_400, time.time(), ["tenant"])
    body = by_tenant.partition('<table id="lines"')[2].partition("</table>")[0]
    for line in lines.values():
        assert f"({line.missed.n} marked)" in body
        assert f"({line.over_blocking.n} marked)" in body
    filtered = asked.get("/", params={"tenant": "nobody"}).text
    assert "as reviewed" not in filtered


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"do": "maybe"}, "A mark is right, wrong or unclear"),
        ({"do": "right", "item": "none-1"}, "no item"),
        ({"do": "right", "reviewer": " "}, "needs its reviewer&#39;s name"),
        ({"do": "right", "bias_type": "<b>"}, "A bias type is one of"),
        ({"do": "right", "reviewer": "x" * 101}, "at most 100 characters"),
    ],
)
def test_a_wrong_mark_is_refused_in_a_sentence(
    sqlite: str, fields: dict[str, str], says: str
) -> None:
    asked = drawn(sqlite)
    name = item_on(asked.get("/review", params={"reviewer": "ada"}).text)
    answer = asked.post("/review", data={"item": name, "reviewer": "ada", **fields}, headers=ORIGIN)
    assert answer.status_code == 400
    assert says in answer.text
    with Store(sqlite).reading() as connection:
        assert all_marks(connection) == {}


def test_a_body_of_a_megabyte_is_refused(sqlite: str) -> None:
    asked = drawn(sqlite)
    answer = asked.post("/review", content=b"x" * 1_000_000, headers=ORIGIN)
    assert answer.status_code == 413


def test_an_empty_queue_and_a_nameless_reviewer_are_told_what_to_do(sqlite: str) -> None:
    fill(sqlite)
    asked = TestClient(application(Store(sqlite), Rules()), base_url="http://127.0.0.1")
    assert (
        "Nothing has been drawn for review yet; run guard review draw." in asked.get("/review").text
    )
    draw(Store(sqlite), 0, time.time() + 1, 5)
    page = asked.get("/review").text
    assert "Marks are stored with your name." in page
    assert item_on(page) == ""
    assert asked.get("/review", params={"wanted": "x"}).status_code == 400
    assert asked.get("/review", params={"reviewer": "a", "item": "x"}).status_code == 400
