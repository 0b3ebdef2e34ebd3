"""The dashboard in a real browser: drawn, clicked, reviewed by keyboard, light and dark."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from guard.watch.alerts import week_of
from guard.watch.review import all_marks, draw
from guard.watch.store import Store
from tests.browser import Page, needs_chromium
from tests.packages import axe
from tests.watch.reading import flushed, guard_with
from tests.watch.serving import Running, fill, running
from tests.watch.test_rates import stored

READY = "document.documentElement?.dataset.ready === 'true'"
PAGES = (
    *("/", "/?by=tenant&tenant=quiet", "/?by=tenant&split=1", "/responses?show=all", "/live"),
    *("/compare", "/compare?compare=tenant&each=bias_type", "/alerts?each=tenant"),
    *("/review", "/nothing"),
)


class Shown:
    """A dashboard with a store, and a page of a browser on it."""

    def __init__(self, url: str, page: Page, served: Running) -> None:
        self.url, self.page, self.served = url, page, served

    def go(self, path: str) -> None:
        self.page.go(self.served.url + path[1:])
        self.wait()

    def wait(self) -> None:
        self.page.until(lambda: self.page.run(READY))

    def click(self, selector: str) -> None:
        """Click what leads to another page."""
        self.page.run("document.documentElement.dataset.ready = 'left'")
        self.page.run(f"document.querySelector({selector!r}).click()")
        self.wait()

    def press(self, key: str, *, leaves: bool = True) -> None:
        if leaves:
            self.page.run("document.documentElement.dataset.ready = 'left'")
        code = {"Tab": 9, "Enter": 13}.get(key, ord(key[0].upper()))
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        named = {"key": key, "windowsVirtualKeyCode": code, "text": text}
        self.page.call("Input.dispatchKeyEvent", type="keyDown", **named)
        self.page.call("Input.dispatchKeyEvent", type="keyUp", key=key)
        if leaves:
            self.wait()

    def size(self, width: int, dark: bool = False) -> None:
        self.page.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=900, deviceScaleFactor=1, mobile=width < 800,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.page.call("Emulation.setEmulatedMedia", features=[scheme])

    def silent(self) -> None:
        """Nothing went wrong, and nobody else was asked for anything."""
        events = self.page.events
        asked = [e["params"] for e in events if e["method"] == "Network.requestWillBeSent"]
        assert all(one["request"]["url"].startswith((self.served.url, "data:")) for one in asked)
        assert not [e for e in events if e["method"] == "Runtime.exceptionThrown"]
        assert not [e for e in events if e["method"] == "Runtime.consoleAPICalled"]
        logged = [e["params"]["entry"] for e in events if e["method"] == "Log.entryAdded"]
        assert not [one for one in logged if "/nothing" not in one.get("url", "")]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Running]]:
    """A store and its dashboard."""
    url = f"sqlite:///{tmp_path_factory.mktemp('shown') / 'guard.db'}"
    fill(url)
    draw(Store(url), 0, time.time() + 1, 20)
    with running(url) as one:
        yield url, one


@pytest.fixture
def shown(served: tuple[str, Running], page: Page) -> Shown:
    url, one = served
    return Shown(url, page, one)


@needs_chromium
@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param(((390, False), (1280, True)), id="either"),
        pytest.param(
            ((1280, False), (390, True)),
            id="other",
            marks=pytest.mark.slow("loads every page in a browser again"),
        ),
    ],
)
@pytest.mark.parametrize("path", PAGES)
def test_no_page_is_wider_than_its_screen_or_logs_an_error(
    shown: Shown, path: str, sizes: tuple[tuple[int, bool], ...]
) -> None:
    for width, dark in sizes:
        shown.size(width, dark)
        shown.go(path)
        assert shown.page.run("document.documentElement.scrollWidth") <= width
        light = shown.page.run("getComputedStyle(document.body).backgroundColor")
        assert light == ("rgb(23, 23, 27)" if dark else "rgb(255, 255, 255)")
    shown.silent()


@pytest.fixture(scope="module")
def worse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Running]]:
    """A store in which release 8 has four times the bias of 7 since the week began, and others."""
    url = f"sqlite:///{tmp_path_factory.mktemp('worse') / 'guard.db'}"
    now = time.time()
    monday = week_of(now)
    spans = (("7", monday - 20 * 86_400, 2_000, 40), ("7", monday, 600, 12))
    spans = (*spans, ("8", (monday + now) / 2, 600, 48))
    stored(
        url,
        [
            {
                "labels": {"release": release},
                "judged": 4,
                "findings": [("age", None, "flag" if i % 2 else "redact")] * (i < found)
                + [("race", None, "redact")] * (i % 100 == 0),
                "time": at,
            }
            for release, at, responses, found in spans
            for i in range(responses)
        ],
    )
    with running(url) as one:
        yield url, one


_EDGES = """[...document.querySelectorAll('main table tr')].filter(row => row.children.length > 4)
  .map(row => [row.className, ...[...row.children].map(one => one.getBoundingClientRect().left)])"""


@needs_chromium
@pytest.mark.parametrize(
    "path",
    [
        "/compare?range=30d&compare=release&base=7&new=8",
        "/compare?range=30d&compare=release&base=7&new=8&each=bias_type",
        "/alerts",
        "/alerts?each=release",
        "/alerts?each=bias_type",
    ],
)
def test_the_cells_of_a_row_that_is_worse_stand_under_their_headings(
    worse: tuple[str, Running], page: Page, path: str
) -> None:
    shown = Shown(worse[0], page, worse[1])
    shown.size(1280)
    shown.go(path)
    heading, *rows = page.run(_EDGES)
    # Late in a week every share of the alerts may have risen.
    assert {"worse"} <= {row[0] for row in rows} <= {"", "worse"}
    assert all(row[1:] == pytest.approx(heading[1:], abs=1) for row in rows)
    box = "(one => [one.scrollWidth, one.clientWidth])(document.querySelector('main .scroll'))"
    wide, seen = page.run(box)
    assert wide <= seen
    sign = "getComputedStyle(document.querySelector({!r}), '::before').content"
    row, first = sign.format("tr.worse"), sign.format("tr.worse > :first-child")
    assert page.run(row) == "none"
    assert page.run(first) == '"✗\xa0"'
    shown.size(390)
    edges = page.run(_EDGES)[1:]
    assert all(len({round(left) for left in row[1:]}) == 1 for row in edges)
    name = page.run("document.querySelector('tr.worse > :first-child').dataset.name")
    assert page.run(first) in (f'"✗\xa0{name}"', f'"✗\xa0" "{name}"', '"✗\xa0" attr(data-name)')
    assert page.run(row) == "none"
    assert page.run("document.documentElement.scrollWidth") <= 390
    shown.silent()


@needs_chromium
def test_charts_are_drawn_in_the_colours_of_the_page(shown: Shown) -> None:
    shown.size(1280)
    shown.go("/")
    sizes = shown.page.run(
        "[...document.querySelectorAll('figure svg')].map(svg => "
        "[svg.getBoundingClientRect().width, svg.getBoundingClientRect().height, "
        "svg.querySelectorAll('path').length, svg.querySelectorAll('text').length])"
    )
    assert len(sizes) == 4
    assert all(width > 200 and height > 80 and paths > 5 for width, height, paths, _ in sizes)
    line = "document.querySelector('figure svg use[fill*=c0]')"
    assert shown.page.run(f"getComputedStyle({line}).fill") == "rgb(11, 92, 173)"
    shown.size(1280, dark=True)
    assert shown.page.run(f"getComputedStyle({line}).fill") == "rgb(109, 179, 255)"
    shown.silent()


@needs_chromium
def test_a_filter_and_a_drill_down(shown: Shown) -> None:
    shown.size(1280)
    shown.go("/")
    assert shown.page.run("document.querySelectorAll('#lines tbody tr').length") == 1
    shown.page.run("document.documentElement.dataset.ready = 'left'")
    shown.page.run(
        "(one => { one.value = 'tenant'; one.dispatchEvent(new Event('change')); })"
        "(document.querySelector('select[name=by]'))"
    )
    shown.wait()
    rows = "[...document.querySelectorAll('#lines tbody th')].map(one => one.textContent)"
    assert set(shown.page.run(rows)) == {"quiet", "<script>document.title='owned'</script>"}
    lines = "[...document.querySelectorAll('#lines tbody tr')]"
    hostile = f"{lines}.find(one => one.textContent.startsWith('<script>'))"
    shown.page.run("document.documentElement.dataset.ready = 'left'")
    shown.page.run(f"{hostile}.querySelector('a').click()")
    shown.wait()
    chosen = shown.page.run("document.querySelector('.chosen').textContent")
    assert "tenant: <script>document.title='owned'</script>" in chosen
    assert "0 %" in shown.page.run("document.querySelectorAll('.whole dd')[1].textContent")
    shown.click("#lines .figure a")
    assert shown.page.run("document.querySelectorAll('main tbody tr').length") == 4
    shown.click("main tbody a")
    text = "document.querySelector('.biased .text')"
    assert shown.page.run(f"getComputedStyle({text}).filter").startswith("blur(")
    assert shown.page.run(f"{text}.inert")
    shown.page.run("document.querySelector('.biased .reveal').click()")
    assert shown.page.run(f"getComputedStyle({text}).filter") == "none"
    assert not shown.page.run(f"{text}.inert || {text}.hasAttribute('aria-hidden')")
    assert "<img src=x" in shown.page.run(f"{text}.textContent")
    assert not shown.page.run("Boolean(document.querySelector('main img, main script'))")
    # The statement of the shipped index that the store names by its hash.
    assert not shown.page.run("Boolean(document.querySelector('.biased .blurred'))")
    cells = shown.page.run("document.querySelector('.biased table').textContent")
    assert "Put women in charge of a crisis room" in cells
    assert "0.812" in cells
    assert shown.page.run("document.title") == "Response · guard"
    shown.silent()


@needs_chromium
def test_what_is_written_comes_to_the_live_page(shown: Shown) -> None:
    shown.go("/live")
    rows = "document.querySelectorAll('#live tbody tr').length"
    shown.page.until(lambda: shown.page.run(rows) == 24)
    guard = guard_with(shown.url)
    "".join(guard.stream(["BIAS one. "]))
    flushed(guard)
    shown.page.until(lambda: shown.page.run(rows) == 25)
    first = "[...document.querySelector('#live tbody tr').children].map(one => one.textContent)"
    assert shown.page.run(first)[2:] == ["plain", "stopped", "gender", "1", "1", "1", "0"]
    state = "document.getElementById('state').textContent"
    assert shown.page.run(state) == "Up to date."
    shown.page.run("document.getElementById('pause').click()")
    assert shown.page.run(state) == "Paused."
    shown.silent()


@needs_chromium
def test_a_review_is_done_by_the_keyboard_alone(shown: Shown) -> None:
    page = shown.page
    shown.size(390)
    shown.go("/review")
    focus = "document.activeElement.name || document.activeElement.id"
    assert page.run(focus) == "reviewer"
    for letter in "ada":
        shown.press(letter, leaves=False)
    shown.press("Enter")
    item = "document.querySelector('#marks [name=item]').value"
    text = "document.getElementById('text')"
    assert page.run(f"getComputedStyle({text}).filter").startswith("blur(")
    shown.press("s", leaves=False)
    assert page.run(f"getComputedStyle({text}).filter") == "none"
    seen = []
    for key, verdict in (("1", "right"), ("w", "wrong"), ("3", "unclear"), ("r", "right")):
        seen.append((page.run(item), verdict))
        shown.press(key)
        assert page.run(f"getComputedStyle({text}).filter") == "none"  # it was asked for
    assert marks(shown) == dict(seen)
    shown.press("z")
    assert page.run(item) == seen[-1][0]
    assert marks(shown) == dict(seen[:-1])
    passed_over = page.run(item)
    shown.press("n")
    assert page.run(item) != passed_over
    # By the buttons too, with a focus that is seen.
    for _ in range(30):
        shown.press("Tab", leaves=False)
        if page.run("document.activeElement.value") == "unclear":
            break
    style = "getComputedStyle(document.activeElement)"
    assert page.run(f"{style}.outlineStyle") == "solid"
    assert page.run(f"parseFloat({style}.outlineWidth)") >= 2
    last = page.run(item)
    shown.press("Enter")
    assert marks(shown) == {**dict(seen[:-1]), last: "unclear"}
    # What is typed into a field is no key of the page.
    page.run("document.querySelector('[name=reviewer]').focus()")
    shown.press("w", leaves=False)
    assert page.run("document.querySelector('[name=reviewer]').value").count("w") == 1
    assert len(marks(shown)) == 4
    names = page.run(
        "[...document.querySelectorAll('[data-key]')].map(one => one.textContent.trim())"
    )
    assert all(names)
    assert page.run("document.documentElement.scrollWidth") <= 390
    shown.silent()


def marks(shown: Shown) -> dict[str, str]:
    with Store(shown.url).reading() as connection:
        given = all_marks(connection)
    return {f"{k.response_id}-{k.number}": of["ada"].verdict for k, of in given.items()}


@needs_chromium
def test_no_serious_fault_of_accessibility(shown: Shown) -> None:
    checker = axe().read_text("utf-8")
    for path in (*PAGES, "/review?reviewer=grace"):
        shown.go(path)
        faults, _ = shown.page.accessibility(checker)
        assert not faults, path


@needs_chromium
def test_a_reader_signs_in_by_the_form_and_the_token_is_in_no_address(
    page: Page, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path / 'guard.db'}"
    Store(store).prepare()
    token = "a-token-of-24-characters"
    with running(store, "--token", token) as served:
        page.go(served.url + "live")
        assert "needs its token" in page.run("document.body.textContent")
        for typed, says in (("wrong-token-entirely", "This token is wrong."), (token, "Rates")):
            page.run(f"document.querySelector('[name=token]').value = {typed!r}")
            page.run("document.querySelector('button').click()")
            page.until(lambda says=says: says in page.run("document.body?.textContent ?? ''"))
        assert page.run("location.href") == served.url
        assert page.run("document.cookie") == ""  # HttpOnly
        urls = [
            e["params"]["request"]["url"]
            for e in page.events
            if e["method"] == "Network.requestWillBeSent"
        ]
        assert urls
        assert not [url for url in urls if token in url]
