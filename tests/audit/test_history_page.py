"""The page of a history in a real browser: drawn, silent, accessible, on a telephone too."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from guard.audit import sides
from guard.audit.history import add_runs
from guard.audit.report.history import history_page as made
from guard.audit.trends import Query, read_series
from guard.watch.store import Store
from tests.audit.gated_suite import NAME, recorded
from tests.audit.reporting import HOSTILE
from tests.audit.test_report_page import silent, sized
from tests.browser import Page, needs_chromium
from tests.packages import axe

DAY = 86_400.0


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of fourteen audits, two of them of a model with a hostile name."""
    folder = tmp_path_factory.mktemp("history")
    store = Store(str(folder / "h.db"))
    for n in range(14):
        chance, share = random.Random(n), 0.5 if n < 6 else 0.75
        model = "openai/drawn" if n < 12 else HOSTILE
        of = recorded(
            folder / f"{n}",
            lambda _, __, c=chance, s=share: "first" if c.random() < s else "second",  # type: ignore[misc]
            model=model,
        )
        release = f"v{n}" if n < 12 else HOSTILE
        add_runs(store, [(sides.read_side(of, [NAME]), 1.7e9 + n * DAY)], release)
    with store.reading() as connection:
        series = read_series(connection, Query())
    written = folder / "history.html"
    written.write_bytes(made(series, store.name, 1.7e9).encode("utf-8", "replace"))
    return written


@needs_chromium
def test_every_axis_is_drawn_and_nothing_goes_wrong(page: Page, path: Path) -> None:
    page.show(path)
    drawn = page.run(
        "[...document.querySelectorAll('figure svg')].map(svg => "
        "[svg.getBoundingClientRect().width, svg.getBoundingClientRect().height, "
        "svg.querySelectorAll('path').length])"
    )
    assert len(drawn) == 2  # the widest axes of each measure
    assert all(width > 200 and height > 80 and paths > 20 for width, height, paths in drawn)
    assert "8 series of 14 audits." in page.run("document.querySelector('main').textContent")
    first = "document.querySelector('figure')"
    assert "Not joined with audits before" in page.run(f"{first}.textContent")
    page.run("document.querySelector('#points details summary').click()")
    rows = "document.querySelectorAll('#points details[open] tbody tr').length"
    assert page.run(rows) == 12
    assert page.run("document.title") == "Audit history since 2023-11-14T22:13Z"
    assert not page.run("Boolean(document.querySelector('main script, main img'))")
    for width, dark in ((1280, False), (390, False), (1280, True)):
        sized(page, width, dark)
        assert page.run("document.documentElement.scrollWidth") <= width
    ids = page.run("[...document.querySelectorAll('[id]')].map(one => one.id)")
    assert len(set(ids)) == len(ids)
    silent(page)


@needs_chromium
def test_no_serious_fault_of_accessibility(page: Page, path: Path) -> None:
    checker = axe().read_text("utf-8")
    page.show(path)
    for scheme in ("light", "dark"):
        media = {"name": "prefers-color-scheme", "value": scheme}
        page.call("Emulation.setEmulatedMedia", features=[media])
        page.run("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        faults, passes = page.accessibility(checker)
        assert passes > 15
        assert not faults


def test_a_history_without_audits_is_a_page_too() -> None:
    assert "There is no audit in this time." in made([], "sqlite:///h.db", 1.7e9)
