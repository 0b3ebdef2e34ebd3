"""The dashboard's pages: what they show is what the store holds, and all of it is text."""

from __future__ import annotations

import csv
import html
import io
import json
import re
import socket
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from guard.cli import main
from guard.errors import UsageError
from guard.watch import schema, writer
from guard.watch.alerts import alerts
from guard.watch.compare import compare, points, sides
from guard.watch.dashboard.access import Rules
from guard.watch.dashboard.app import application
from guard.watch.dashboard.lists import DECISIONS, PAGE
from guard.watch.dashboard.tail import MAX_TAILS
from guard.watch.dashboard.view import CUSTOM, RANGES, view
from guard.watch.events import statement_id
from guard.watch.rates import rate_text, report
from guard.watch.store import Store
from tests.rows import rows
from tests.watch.conftest import Server, sqlite_often
from tests.watch.reading import events, flushed, guard_with, responses
from tests.watch.serving import SCRIPT, STATEMENT, fill, running
from tests.watch.test_alerts import MONDAY, weeks
from tests.watch.test_rates import stored
from tests.watch.test_store import change


def client(url: str) -> TestClient:
    known = {statement_id(STATEMENT): STATEMENT}
    app = application(Store(url), Rules(), known.get)
    return TestClient(app, base_url="http://127.0.0.1")


@pytest.fixture(params=["sqlite", "postgresql"], scope="module")
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('filled') / 'guard.db'}"
    else:
        started: Server = request.getfixturevalue("server")
        url = started.database()
    fill(url)
    return url


def plain(page: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())


def test_the_first_page_says_what_guard_rates_says(filled: str) -> None:
    page = client(filled).get("/").text
    with Store(filled).reading() as connection:
        (line,) = report(connection, time.time() - 86_400, time.time(), ["release"]).lines
    text = plain(page)
    assert f"Prevalence before the guard {rate_text(line.prevalence)}" in text
    assert f"Mitigation {rate_text(line.mitigation)}" in text
    assert f"Unjudged {rate_text(line.unjudged)}" in text
    assert line.mitigation.value == 0.5  # one tenant's are redacted, the other's flagged
    assert page.count("<svg") == 4
    for part in ("style=", "onclick", "onload", "javascript:", "http://", "https://"):
        assert part not in page


@sqlite_often("filled")
@pytest.mark.parametrize(
    "by", ["model", "bias_type", "group", "door", "release", "tenant", "label.x"]
)
def test_a_breakdown_has_the_lines_of_the_report(filled: str, by: str) -> None:
    page = client(filled).get("/", params={"by": by}).text
    with Store(filled).reading() as connection:
        lines = report(connection, time.time() - 86_400, time.time(), [by]).lines
    body = page.partition('<table id="lines"')[2].partition("</table>")[0]
    assert body.count("<tr ") == len(lines) + 1
    for line in lines:
        assert rate_text(line.prevalence) in body
    assert "<script>" not in body


@sqlite_often("filled")
def test_a_filter_keeps_what_it_names_over_time_too(filled: str) -> None:
    asked = client(filled)
    for only in ({"tenant": "quiet"}, {"bias_type": "age"}, {"bias_type": "age", "tenant": SCRIPT}):
        text = plain(asked.get("/", params=only).text)
        by = sorted(only)
        with Store(filled).reading() as connection:
            found = report(connection, time.time() - 86_400, time.time(), by)
        (line,) = (one for one in found.lines if one.by == only)
        assert f"Prevalence before the guard {rate_text(line.prevalence)}" in text
        assert f"Mitigation {rate_text(line.mitigation)}" in text
    none = asked.get("/", params={"tenant": "nobody"})
    assert "No response has ended in this time that matches the filters." in plain(none.text)
    assert none.status_code == 200


@sqlite_often("filled")
def test_a_filter_on_a_type_without_findings_is_a_rate_of_0(filled: str) -> None:
    text = plain(client(filled).get("/", params={"bias_type": "race"}).text)
    assert "Prevalence before the guard 0 %" in text
    assert "Mitigation nan" in text


def test_a_response_is_shown_with_its_decisions(filled: str) -> None:
    asked = client(filled)
    for row in responses(filled):
        page = asked.get(f"/responses/{row['id']}").text
        mine = [e for e in events(filled) if e["response_id"] == row["id"]]
        assert page.count('class="decision') == len(mine) + 1  # and their list
        for event in mine:
            if event["bias_type"]:
                assert "gender" in page  # of the reference
                assert "0.900 (threshold" in page
                assert "0.812" in page
                assert STATEMENT in page
            if event["unjudged"]:
                assert "unjudged: language" in page
        assert "<img" not in page
        assert page.count("<script") == 1
        if row["found"]:
            assert "&lt;img src=x" in page
            # Text is behind the button until it is asked for.
            assert re.search(r'class="text blurred" aria-hidden="true" inert>[^<]*BIAS', page)


def test_a_reference_that_no_index_knows_is_shown_by_its_name(sqlite: str) -> None:
    fill(sqlite, "never")
    found = next(row for row in responses(sqlite) if row["found"])
    app = application(Store(sqlite), Rules())
    page = TestClient(app, base_url="http://localhost").get(f"/responses/{found['id']}").text
    assert statement_id(STATEMENT) in page
    assert "BIAS here" not in page
    assert 'class="text' not in page


def test_the_list_is_turned_over_without_loss(url: str) -> None:
    made = [
        {"time": time.time() - 60 - i // 7, "findings": [("age", None, "flag")]} for i in range(120)
    ]
    stored(url, made)
    asked, seen, path = client(url), [], "/responses?show=found"
    while path:
        page = asked.get(path).text
        ids = re.findall(r'href="/responses/([0-9a-f]{32})"', page)
        assert 0 < len(ids) <= PAGE
        seen += ids
        older = re.search(r'<a href="([^"]*)">Older</a>', page)
        path = older[1].replace("&amp;", "&") if older else ""
    assert len(seen) == len(set(seen)) == 120


@sqlite_often("filled")
@pytest.mark.parametrize(
    ("show", "count"), [("found", 8), ("leaked", 4), ("unjudged", 16), ("all", 24)]
)
def test_the_list_shows_what_is_chosen(filled: str, show: str, count: int) -> None:
    page = client(filled).get("/responses", params={"show": show}).text
    assert len(re.findall(r'href="/responses/[0-9a-f]{32}"', page)) == count
    one = client(filled).get("/responses", params={"show": show, "bias_type": "age"}).text
    found = len(re.findall(r'href="/responses/[0-9a-f]{32}"', one))
    assert found == {"found": 8, "leaked": 4, "unjudged": 0, "all": 8}[show]


def test_many_decisions_come_in_parts(sqlite: str) -> None:
    guard = guard_with(sqlite)
    "".join(guard.stream([f"Number {n} is fine. " for n in range(DECISIONS + 30)]))
    flushed(guard)
    (row,) = responses(sqlite)
    asked = client(sqlite)
    first = asked.get(f"/responses/{row['id']}").text
    assert first.count("<li value=") == DECISIONS
    rest = asked.get(f"/responses/{row['id']}", params={"first": str(DECISIONS)}).text
    assert rest.count("<li value=") == row["judged"] - DECISIONS
    assert "Further decisions" in first
    assert "Further decisions" not in rest


def ids(page: str) -> list[str]:
    return re.findall(r'href="/responses/([0-9a-f]{32})"', page)


@sqlite_often("filled")
def test_a_response_is_looked_up_by_its_request_or_by_its_id(filled: str, url: str) -> None:
    old = time.time() - 300 * 86_400
    stored(url, [{"time": old, "door": "check"}, {"time": old}, {"time": time.time() - 60}])
    asked = client(url)
    for wanted in ("r1", f"{1:032x}", " r1 "):
        page = asked.get("/responses", params={"request": wanted})
        assert (page.status_code, ids(page.text)) == (200, [f"{1:032x}"])
    assert ids(asked.get("/responses?request=r0").text) == [f"{0:032x}"]  # of any door
    for unknown in ("r9", "%", "\0", "<b>x</b>", "x" * 5_000):
        page = asked.get("/responses", params={"request": unknown})
        assert "no response with this request id" in plain(page.text)
        assert "<b>x" not in page.text


def test_the_list_has_labels_and_the_time_of_the_verdicts(filled: str) -> None:
    row = next(r for r in responses(filled) if r["labels"]["tenant"] == SCRIPT)
    page = client(filled).get("/responses?show=all").text
    (line,) = (x for x in page.splitlines() if f"/responses/{row['id']}" in x)
    assert "<span>release: 7</span>" in line
    assert "<span>tenant: &lt;script&gt;" in line
    assert f"{row['judging_ms']:,.0f} ms" in line


def test_the_mean_time_of_a_verdict_is_that_of_the_store(tmp_path: Path) -> None:
    url = str(tmp_path / "guard.db")
    made = [{"time": time.time() - 60, "judged": 3, "unjudged": 1, "model": m} for m in "aab"]
    stored(url, made)
    change(url, "UPDATE guard_responses SET judging_ms = 20 WHERE model = 'a'")
    change(url, "UPDATE guard_responses SET judging_ms = 60 WHERE model = 'b'")
    page = client(url).get("/").text
    assert "Time of a verdict, mean 8.3 ms" in plain(page)  # 100 ms of 12 segments
    lines = json.loads(client(url).get("/?form=json").text)["rates"]
    assert {line["model"]: line["verdict_ms"] for line in lines} == {"a": 5.0, "b": 15.0}


def test_charts_have_a_line_for_each_release(tmp_path: Path) -> None:
    url = str(tmp_path / "guard.db")
    at = time.time() - 3600
    stored(
        url,
        [
            {"time": at, "judged": 10, "labels": {"release": name},
             "findings": [("age", None, "flag")] * (i < count)}
            for name, count, n in (("7", 2, 20), ("8", 8, 20), *((x, 0, 2) for x in "abc"))
            for i in range(n)
        ],
    )  # fmt: skip
    page = client(url).get("/?by=release&split=1").text
    table = page.partition("<caption>Prevalence before the guard</caption>")[2]
    cell = r'<td role="cell" data-label="{}"[^>]*><span>(.*?)</span></td>'
    rows = re.findall(cell.format("release") + cell.format("rate"), table.partition("</table>")[0])
    shown = {name: rate.partition(" ")[0] for name, rate in rows}
    assert shown == {"7": "1", "8": "4", "a": "0", "b": "0"}  # 2 and 8 of 200; the four largest
    figure = page.partition("Prevalence before the guard</figcaption>")[2].partition("</svg>")[0]
    assert {">7<", ">8<", ">a<", ">b<"} <= {f">{t}<" for t in re.findall(r">([^<>]+)<", figure)}
    assert "var(--c3)" in figure
    assert ">c<" not in figure


def sides_store(url: str, doubled: int) -> None:
    """Release 7 has findings in 40 of 400 responses, release 8 in as many or twice as many."""
    stored(
        url,
        [
            {"time": time.time() - since, "judged": 5, "labels": {"release": name},
             "model": "ab"[i % 2], "findings": [("age", "women", "redact")] * (i % 10 < of_ten)}
            for name, since, of_ten in (("7", 40_000, 1), ("8", 20_000, doubled))
            for i in range(400)
        ],
    )  # fmt: skip


@sqlite_often()
def test_two_releases_are_compared_on_a_page(url: str) -> None:
    sides_store(url, 2)
    asked = client(url)
    page = asked.get("/compare")  # the two that appeared last
    text = plain(page.text)
    assert "release 8 against release 7: shown to be worse: prevalence 2 % to 4 %" in text
    with Store(url).reading() as connection:
        now = time.time()
        result = compare(connection, *sides("release=7,8", now - 86_400, now))
    assert result.rows[0].difference.value == pytest.approx(0.02)
    for row in result.rows:
        assert points(row.difference) in text
    assert page.text.count('<tr class="worse">') == 1
    by = asked.get("/compare?compare=release&base=8&new=7&each=bias_type&model=b")
    assert "what is shown to differ is better" in plain(by.text)
    assert "1,000" in by.text  # segments of one model
    times = "range=custom&since={}&until={}"
    begin, end = (
        datetime.fromtimestamp(time.time() - s, timezone.utc).strftime("%Y-%m-%dT%H:%M")
        for s in (30_000, 10_000)
    )
    period = asked.get(f"/compare?compare=period&{times.format(begin, end)}").text
    assert "this time against the time before: shown to be worse" in plain(period)


def test_the_two_last_values_with_enough_responses_are_compared_by_default(tmp_path: Path) -> None:
    url = str(tmp_path / "guard.db")
    sides_store(url, 2)
    now = time.time()
    tiny = [
        # Four responses; and eight, of which one has almost all segments.
        *[{"labels": {"release": "9"}, "judged": 3, "time": now - 50}] * 4,
        *[{"labels": {"release": "10"}, "judged": 1, "time": now - 40}] * 7,
        {"labels": {"release": "10"}, "judged": 900, "time": now - 40},
        *[{"labels": {"release": "11"}, "judged": 3, "time": now - 30, "model": "z"}] * 9,
    ]
    stored(url, tiny[:-9], begin=10_000)
    asked = client(url)
    text = plain(asked.get("/compare").text)
    assert "release 8 against release 7: shown to be worse" in text
    assert "and responses are independent" in text
    stored(url, tiny[-9:], begin=20_000)
    assert "release 11 against release 8" in plain(asked.get("/compare").text)
    # A filter holds for the choice of the sides, too.
    assert "release 8 against release 7" in plain(asked.get("/compare?model=b").text)
    # Without two that have enough, the two that began last say that they have too few.
    few = plain(asked.get("/compare?model=m").text)
    assert "release 10 against release 9: too few responses" in few


def test_what_cannot_be_compared_is_said_with_the_form(tmp_path: Path) -> None:
    url = str(tmp_path / "guard.db")
    sides_store(url, 1)
    asked = client(url)
    for query, status, says in (
        ("base=7&new=9", 400, "has release '9'; there are"),
        ("base=7&new=7", 400, "give two different values"),
        ("base=7", 400, "two values of release are needed"),
        ("compare=tenant", 200, "two values of tenant are needed"),
        ("compare=bias_type&base=a&new=b", 400, "is one of findings"),
        ("compare=period", 200, "no response"),
    ):
        page = asked.get(f"/compare?{query}")
        assert (page.status_code, says in html.unescape(plain(page.text))) == (status, True), query
        assert 'name="base"' in page.text
    hostile = asked.get("/compare", params={"base": SCRIPT, "new": "7"})
    assert hostile.status_code == 400
    assert SCRIPT not in hostile.text
    for path, says in (
        ("/compare?compare=nothing", "--by knows"),
        ("/compare?form=xml", None),
        ("/alerts?each=group", "takes no group"),
        ("/alerts?weeks=0", "weeks is one of"),
        ("/?form=xml", "form is one of csv, json"),
    ):
        page = asked.get(path)
        assert page.status_code == 400, path
        assert (says or "") in plain(page.text)


@sqlite_often()
def test_alerts_are_those_of_the_command(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: MONDAY + 3 * 86_400)
    weeks(url, 120)
    asked = client(url)
    page = asked.get("/alerts").text
    assert "A rate has risen." in page
    with Store(url).reading() as connection:
        result = alerts(connection, time.time())
    assert points(result.results[0].difference) in page
    assert '<tr class="worse">' in page
    assert "2 more shares have no response" in page
    by_type = asked.get("/alerts?each=bias_type&weeks=2").text
    assert by_type.count("<tr") == 2  # the header and age
    assert "ALARM" in by_type


def test_what_is_shown_is_exported(tmp_path: Path) -> None:
    url = str(tmp_path / "guard.db")
    sides_store(url, 2)
    stored(url, [{"time": time.time() - 60, "model": "=1+1", "labels": {"x": "@y"},
                  "findings": [("age", None, "flag")]}], begin=10_000)  # fmt: skip
    asked = client(url)
    for path, name, rows_ in (
        ("/?by=model", "rates", 3),
        ("/responses?show=found", "responses", 121),
        ("/compare?each=model", "compare", 6),
        ("/compare?each=bias_type", "compare", 2),
        ("/responses?request=r10000", "responses", 1),
    ):
        page = asked.get(path).text
        for form, kind in (("csv", "text/csv"), ("json", "application/json")):
            link = re.search(rf'href="([^"]*form={form})"', page)
            assert link, path
            answer = asked.get(html.unescape(link[1]))
            assert answer.headers["content-type"].startswith(kind)
            assert f'attachment; filename="guard-{name}.{form}"' in answer.headers.values()
            if form == "csv":
                read = list(csv.DictReader(io.StringIO(answer.text)))
            else:
                values = json.loads(answer.text)
                read = values["rows" if name == "compare" else name]
            assert len(read) == rows_, (path, form)
    (row,) = csv.DictReader(io.StringIO(asked.get("/responses?request=r10000&form=csv").text))
    assert (row["model"], row["label.x"]) == ("'=1+1", "'@y")  # no formulas
    lines = json.loads(asked.get("/?by=model&form=json").text)["rates"]
    assert {line["model"]: line["findings"] for line in lines} == {"a": 80, "b": 40, "=1+1": 1}


WRONG = [
    ("/?range=1y", "range is one of"),
    ("/?range=custom", "since takes a time in UTC"),
    ("/?range=custom&since=2026-01-01T00:00&until=x", "until takes a time"),
    ("/?range=custom&since=2026-01-02T00:00&until=2026-01-01T00:00", "at least a minute"),
    ("/?range=custom&since=0001-01-01T00:00&until=9999-12-31T23:59%2B14:00", None),
    ("/?by=nothing", "--by knows"),
    ("/?by=model,door", "by takes one name"),
    ("/?mdel=x", "--by knows"),
    ("/responses?show=nothing", "show is one of"),
    ("/responses?before=nothing", "before is the key"),
    ("/responses?before=nan_1", None),
    ("/?tenant=%00", None),
]


@rows("path, says", WRONG)
def test_what_cannot_be_shown_is_said_in_a_sentence(
    filled: str, path: str, says: str | None
) -> None:
    answer = client(filled).get(path)
    assert answer.status_code == (400 if says else 200)
    if says:
        assert says in plain(answer.text)


@rows("path", ("/x", "/responses/none", "/responses/" + "a" * 99, "/static/", "/static",
               "/static/../access.py", "/responses/x?first=-1", "/favicon.ico",
               "/login"))  # fmt: skip
def test_what_is_not_there_is_not_found(filled: str, path: str) -> None:
    answer = client(filled).get(path)
    assert answer.status_code == 404
    assert "There is no such page." in answer.text


def test_a_null_character_in_a_url_is_no_outage(url: str) -> None:
    stored(url, [{"time": time.time() - 60}])
    asked = client(url)
    for path, status in {
        "/responses/%00": 404,
        "/responses?before=1_%00": 400,
        "/?label.a%00b=x": 400,
        "/?by=label.%00": 400,
        "/?%00=x": 400,
        "/?range=%00": 400,
        "/responses?show=%00": 400,
        "/review?item=%00-1&reviewer=a": 400,
        "/?tenant=%00": 200,
    }.items():
        assert asked.get(path).status_code == status, path


@sqlite_often("filled")
def test_pages_are_only_read(filled: str) -> None:
    asked, origin = client(filled), {"origin": "http://127.0.0.1"}
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        assert asked.request(method, "/", headers=origin).status_code == 405, method
    assert asked.head("/").content == b""


hostile = st.text(max_size=30).filter(lambda text: "\0" not in text)


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "range",
                "by",
                "since",
                "until",
                "model",
                "show",
                "tenant",
                "bias_type",
                "group",
                "before",
                "request",
                "compare",
                "base",
                "new",
                "each",
                "form",
                "label.<b>",
                "x",
            ]
        ),
        hostile,
    )
)
def test_no_query_breaks_a_page(asked: dict[str, str]) -> None:
    for path in ("/", "/responses", "/compare", "/alerts"):
        answer = client(EMPTY).get(path, params=asked)
        assert answer.status_code in (200, 400)
        assert "<b>" not in answer.text


EMPTY = ""


@pytest.fixture(autouse=True, scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> None:
    global EMPTY
    EMPTY = f"sqlite:///{tmp_path_factory.mktemp('empty') / 'guard.db'}"
    Store(EMPTY).prepare()


@given(
    st.floats(0, 4e9),
    st.one_of(st.floats(61, 4e9), st.sampled_from([w for _, w in RANGES.values()])),
)
def test_a_time_has_parts_that_cover_it(since: float, long: float) -> None:
    now = since + long
    span = next((n for n, (_, w) in RANGES.items() if w == long), None)
    if span is None:
        asked = view({"range": CUSTOM, "since": "2020-01-01", "until": "2020-06-01"}, now)
        from dataclasses import replace

        asked = replace(asked, since=since, until=now)
    else:
        asked = view({"range": span}, now)
    starts = asked.starts()
    assert starts[0] == asked.since
    assert starts == sorted(set(starts))
    assert starts[-1] < asked.until
    assert len(starts) <= 33


def test_a_query_asks_for_the_same_again() -> None:
    times = {"since": "2030-01-01T00:00", "until": "2030-02-01T12:30"}
    asked = {"range": CUSTOM, **times, "by": "tenant", "model": "a&b=c#", "label.x": SCRIPT}
    first = view(asked, 0)
    again = view(dict(httpx.QueryParams(first.query()[1:])), 0)
    assert again == first
    with pytest.raises(UsageError, match="--by knows"):
        view({"nobody": "x"}, 0)


# The live tail.


def server_events(lines: Iterator[str]) -> Iterator[tuple[str, Any]]:
    kind = ""
    for line in lines:
        name, _, value = line.partition(": ")
        if name == "event":
            kind = value
        elif name == "data":
            yield kind, json.loads(value)


def test_the_tail_tells_what_comes_and_outlives_a_dead_database(server: Server) -> None:
    url = server.database()
    guard = guard_with(url)
    "".join(guard.stream(["BIAS one. "]))
    flushed(guard)
    with running(url) as one, httpx.stream("GET", f"{one.url}live/events", timeout=60) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = server_events(answer.iter_lines())
        kind, first = next(lines)
        assert (kind, [row["found"] for row in first]) == ("responses", [1])
        "".join(guard.stream(["All is well. "]))
        flushed(guard)
        rows = next(value for kind, value in lines if value)
        assert [row["judged"] for row in rows] == [1]
        assert next(lines) == ("responses", [])  # nothing is sent twice
        server.stop()
        try:
            trouble = next(value for kind, value in lines if kind == "trouble")
            down = httpx.get(one.url, timeout=30)
        finally:
            server.start()
        assert "cannot be used" in trouble
        assert "check that the server runs" in trouble
        assert down.status_code == 503
        assert "The store cannot be read" in down.text
        kind = next(kind for kind, _ in lines if kind != "trouble")
        assert kind == "responses"
        assert httpx.get(one.url, timeout=30).status_code == 200


def test_tails_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("guard.watch.dashboard.tail.MAX_TAILS", 0)
    Store(str(tmp_path / "guard.db")).prepare()
    answer = client(str(tmp_path / "guard.db")).get("/live/events")
    assert (answer.status_code, "live pages are open" in answer.text) == (503, True)


def test_readers_that_leave_make_room_for_others(tmp_path: Path) -> None:
    store = str(tmp_path / "guard.db")
    Store(store).prepare()
    with running(store) as one:
        for _ in range(2 * MAX_TAILS):
            with httpx.stream("GET", f"{one.url}live/events", timeout=60) as answer:
                assert answer.status_code == 200
                next(answer.iter_lines())
            end = time.monotonic() + 30
        with ExitStack() as readers:
            for number in range(MAX_TAILS + 1):
                while True:
                    live = httpx.stream("GET", f"{one.url}live/events", timeout=60)
                    status = readers.enter_context(live).status_code
                    if status == 200 or number == MAX_TAILS or time.monotonic() > end:
                        break
                    time.sleep(0.2)
                assert status == (503 if number == MAX_TAILS else 200)


# The command.


def message(*arguments: str) -> str:
    run = CliRunner().invoke(main, ["dashboard", *arguments])
    assert run.exit_code == 2
    assert run.output.startswith("Error: ")
    assert run.output.count("\n") == 1
    return run.output


def test_what_cannot_be_served_is_said_in_a_sentence(tmp_path: Path) -> None:
    store = str(tmp_path / "guard.db")
    assert "There is no store at" in message(store, "--port", "0")
    assert not Path(store).exists()
    Store(store).prepare()
    assert "at least 16 characters" in message(store, "--token", "short")
    assert "no address of this machine" in message(store, "--host", "192.0.2.1", "--port", "0")
    assert "no address of this machine" in message(store, "--host", "no.such.name.invalid")
    for name in ("http://guard.example", "guard.example:80", "a b", ""):
        assert "--allow-host takes names" in message(store, "--allow-host", name, "--port", "0")
    assert "no statements file" in message(store, "--index", str(tmp_path))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert f"port {port} is in use" in message(store, "--port", port)
    change(store, "UPDATE guard_store SET value = '99' WHERE name = 'schema'")
    assert "by a newer guard" in message(store, "--port", "0")
    assert "hunter2" not in message("postgresql://guard:hunter2@127.0.0.1:1/none", "--port", "0")


def test_a_token_by_the_environment_is_asked_for_here_too(tmp_path: Path) -> None:
    store = str(tmp_path / "guard.db")
    Store(store).prepare()
    token = "a token-of-24-characters".replace(" ", "_")
    with running(store, environment={"GUARD_DASHBOARD_TOKEN": token}) as one:
        assert one.token is None  # nothing was made
        assert httpx.get(one.url).status_code == 401
        bears = {"authorization": f"Bearer {token}"}
        assert httpx.get(one.url, headers=bears).status_code == 200


def test_a_file_that_goes_while_it_is_shown_is_told_of(tmp_path: Path) -> None:
    path = tmp_path / "guard.db"
    fill(f"sqlite:///{path}", responses=3)
    asked = client(str(path))
    assert asked.get("/").status_code == 200
    for one in tmp_path.iterdir():
        one.unlink()
    answer = asked.get("/")
    assert answer.status_code == 503
    assert "There is no store at" in plain(answer.text)
    sqlite3.connect(path).close()
    path.write_bytes(b"no database at all" * 100)
    assert asked.get("/responses").status_code == 503
    # Or it would report each minute, to the log of other tests, that it cannot write.
    (of_path,) = (one for (url, _), one in writer._by_store.items() if str(path) in url)
    of_path.close()


def test_an_older_store_is_refused_in_a_sentence(tmp_path: Path) -> None:
    store = str(tmp_path / "guard.db")
    Store(store).prepare()
    change(store, "UPDATE guard_store SET value = '1' WHERE name = 'schema'")
    assert schema.VERSION > 1
    assert "let a guard of this version write to it once" in message(store)
