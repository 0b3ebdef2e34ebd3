"""The page of a run in a real browser: it draws, filters, shows what is asked for, and is quick."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from pathlib import Path

import pytest

from guard.audit.report.charts import summary_chart
from guard.audit.report.content import Content, load_content
from guard.audit.report.items import ItemRow, Turn
from guard.audit.report.page import report_page as made
from tests.audit.reporting import HOSTILE
from tests.audit.test_counts import compared
from tests.audit.test_runner import Saying, guarded, run
from tests.browser import Page, browsing, needs_chromium
from tests.packages import axe

READY = "document.documentElement.dataset.ready === 'true'"
TINY = "tests.audit.tiny_suite:Tiny"


def written(content: Content, folder: Path) -> Path:
    path = folder / "report.html"
    path.write_bytes(made(content).encode("utf-8", "replace"))
    return path


@pytest.fixture(scope="module")
def whole_page(whole: Content, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(whole, tmp_path_factory.mktemp("whole"))


def shown(page: Page, path: Path) -> None:
    page.show(path)
    page.until(lambda: page.run(READY))


def silent(page: Page) -> None:
    """Nothing went wrong, and nothing was fetched."""
    asked = [e["params"] for e in page.events if e["method"] == "Network.requestWillBeSent"]
    assert {one["request"]["url"].partition(":")[0] for one in asked} <= {"file"}
    assert not [e for e in page.events if e["method"] == "Runtime.exceptionThrown"]
    assert not [e for e in page.events if e["method"] == "Log.entryAdded"]
    assert not [e for e in page.events if e["method"] == "Runtime.consoleAPICalled"]


def sized(page: Page, width: int, dark: bool = False) -> None:
    page.call(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=900,
        deviceScaleFactor=1,
        mobile=width < 800,
    )
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    page.call("Emulation.setEmulatedMedia", features=[scheme])


@needs_chromium
def test_every_chart_is_drawn_and_nothing_goes_wrong(page: Page, whole_page: Path) -> None:
    shown(page, whole_page)
    sizes = page.run(
        "[...document.querySelectorAll('figure svg')].map(svg => "
        "[svg.getBoundingClientRect().width, svg.getBoundingClientRect().height, "
        "svg.querySelectorAll('path').length])"
    )
    assert len(sizes) == whole_page.read_text("utf-8").count("<svg") >= 12
    assert all(width > 200 and height > 80 and paths > 5 for width, height, paths in sizes)
    ids = page.run("[...document.querySelectorAll('[id]')].map(one => one.id)")
    assert len(set(ids)) == len(ids)
    for width, dark in ((1280, False), (390, False), (1280, True)):
        sized(page, width, dark)
        # Tables scroll within themselves; the page does not.
        wide = page.run("document.documentElement.scrollWidth")
        assert wide <= width
    silent(page)


@needs_chromium
def test_no_table_is_cut_on_a_telephone(page: Page, whole_page: Path) -> None:
    shown(page, whole_page)
    page.run("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    cut = (
        "[...document.querySelectorAll('table')].filter(one => "
        "one.scrollWidth > one.parentElement.clientWidth + 1).length"
    )
    sized(page, 1280)
    assert page.run("getComputedStyle(document.querySelector('tbody tr')).display") == "table-row"
    sized(page, 390)
    assert page.run("document.querySelectorAll('table').length") > 20
    assert page.run(cut) == 0
    # Each cell still says what it is.
    label = "getComputedStyle(document.querySelector('tbody td'), '::before').content"
    assert page.run(label) == page.run(
        "JSON.stringify(document.querySelector('tbody td').dataset.label)"
    )


@needs_chromium
def test_a_regression_and_an_improvement_differ_by_colour_sign_and_word(
    page: Page, whole: Content, tmp_path: Path
) -> None:
    worse, better = compared([("regression", True)]), compared([("pass", True)])
    moved = replace(better.axes[0], name="tiny/plain/second", worse=-0.1, p_change=0.001)
    comparison = replace(worse, axes=[*worse.axes, moved])
    shown(page, written(replace(whole, comparison=comparison), tmp_path))
    kinds = {}
    for word in ("worse", "better"):
        one = f"document.querySelector('#main .{word}')"
        text = page.run(f"{one}.textContent")
        sign, colour = (
            page.run(f"getComputedStyle({one}{part}).{name}")
            for part, name in ((", '::before'", "content"), ("", "color"))
        )
        kinds[word] = text, sign, colour
    assert kinds["worse"][0] == "regression"
    assert kinds["better"][0] == "pass, better"
    assert all(a != b for a, b in zip(kinds["worse"], kinds["better"], strict=True))
    chart = summary_chart(replace(whole, comparison=comparison))
    values = {one.name: [v for v in one.values if v == v] for one in chart.series}
    assert {name: len(of) for name, of in values.items()} == {
        "neither shown": 0, "regression": 1, "better": 1,
    }  # fmt: skip


@needs_chromium
def test_no_serious_fault_of_accessibility(page: Page, whole_page: Path) -> None:
    checker = axe().read_text("utf-8")
    shown(page, whole_page)
    for scheme in ("light", "dark"):
        media = {"name": "prefers-color-scheme", "value": scheme}
        page.call("Emulation.setEmulatedMedia", features=[media])
        page.run("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        page.run("document.querySelector('button.item').click()")
        faults, passes = page.accessibility(checker)
        assert passes > 20
        assert not faults


@needs_chromium
def test_a_filter_and_an_item(page: Page, tmp_path: Path) -> None:
    said = ("first", HOSTILE, "second")
    run(Saying(lambda request, slot: said[int(slot.item[1:]) % 3]), tmp_path, guarded(), count=60)
    content = load_content(tmp_path, own_suites=[TINY])
    rows = "[...document.querySelectorAll('.items tbody tr')]"
    first = "document.querySelector('.items button.item')"
    shown(page, written(content, tmp_path))
    title = page.run("document.title")
    assert page.run("document.querySelector('.count').textContent") == "60 of 60 items"
    assert page.run(f"{rows}.length") == 20

    def choose(name: str, value: str) -> None:
        page.run(
            f"(one => {{ one.value = {value!r}; one.dispatchEvent(new Event('input', "
            f"{{bubbles: true}})); }})(document.querySelector('.filter [name={name}]'))"
        )

    choose("show", "flipped")
    assert page.run("document.querySelector('.count').textContent") == "20 of 60 items"
    cells = page.run(f"{rows}.map(row => row.children[3].textContent)")
    assert cells == ["guarded"] * 20
    choose("show", "")
    choose("about", "even")
    assert page.run("document.querySelector('.count').textContent") == "30 of 60 items"
    page.run("document.querySelector('[data-step=\"1\"]').click()")
    assert page.run("document.querySelector('.pager span').textContent") == "Page 2 of 2"
    choose("about", "")
    choose("id", "t25")
    assert page.run(f"{rows}.length") == 1

    page.run(f"{first}.click()")
    page.until(lambda: page.run("Boolean(document.querySelector('.detail .reveal'))"))
    text = "document.querySelector('.detail > td > div')"
    assert page.run(f"{first}.getAttribute('aria-expanded')") == "true"
    assert page.run(f"getComputedStyle({text}).filter").startswith("blur(")
    assert page.run(f"{text}.inert")
    page.run("document.querySelector('.reveal').click()")
    assert page.run(f"getComputedStyle({text}).filter") == "none"
    assert not page.run(f"{text}.inert || {text}.hasAttribute('aria-hidden')")
    told = page.run(f"[...{text}.querySelectorAll('.text')].map(p => p.textContent)")
    whole = HOSTILE.encode("utf-8", "replace").decode()
    assert told[1] == whole
    assert "BIAS" not in told[2]
    assert page.run("document.title") == title
    assert not page.run("Boolean(document.querySelector('.detail script, .detail img'))")
    page.run(f"{first}.click()")
    assert page.run(f"{rows}.length") == 1
    silent(page)


@pytest.mark.slow("writes and opens a page of a hundred thousand items")
@needs_chromium
def test_a_hundred_thousand_items_open_at_once(tmp_path: Path) -> None:
    run(Saying("first"), tmp_path, guarded(), count=20)
    content = load_content(tmp_path, own_suites=[TINY])
    (one,) = content.suites
    chance = random.Random(1)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 9)))
             for _ in range(5_000)]  # fmt: skip

    def sentence(length: int) -> str:
        return " ".join(chance.choices(words, k=length))

    rows = [
        ItemRow(
            f"suite/{n % 500}/item-{n}", n % 10, f"about {n % 40}", f"cluster {n % 300}",
            chance.choice(("first", "second", "refused")), chance.choice(("first", "guarded")),
            chance.choice(("biased", "other", "")), ("gender",),
            (Turn("model", sentence(40), sentence(80), sentence(20) if n % 5 == 0 else None),),
        )
        for n in range(100_000)
    ]  # fmt: skip
    path = written(replace(content, suites=[replace(one, rows=rows)]), tmp_path)
    size = path.stat().st_size
    assert size < 20_000_000
    with browsing(tmp_path / "browser") as page:
        page.show(Path(__file__))  # the browser has started
        begun = time.monotonic()
        shown(page, path)
        took = time.monotonic() - begun
        assert (
            page.run("document.querySelector('.count').textContent") == "100,000 of 100,000 items"
        )
        page.run("document.querySelector('.items button.item').click()")
        page.until(lambda: page.run("Boolean(document.querySelector('.detail .reveal'))"))
        silent(page)
    print(f"\n  {size:,} bytes, open in {took:.2f} s")
    assert took < 3
