"""One chart: it is drawn in the page's colours, named, and has its values as a table."""

from __future__ import annotations

import math
import re

import pytest
from lxml import etree

from guard.results.chart import Chart, ChartKind, ChartSeries
from guard.results.estimate import Estimate

HOSTILE = "</title><script>alert(1)</script> $x^2$ \x00\ud800 <b>&"
NAN = math.nan
KINDS: list[ChartKind] = ["dots", "bars", "stacked", "radar", "trend", "time"]


def chart(kind: ChartKind, categories: tuple[str, ...] = ("one", "two", "three")) -> Chart:
    values = ((0.1, 0.2, 0.3), (0.0, 0.1, 0.2), (0.2, 0.3, NAN))
    times = {"times": (0.0, 3600.0, 7200.0), "n": (7, 8, 9)} if kind == "time" else {}
    series = [ChartSeries(name, *values, **times) for name in ("plain", "guarded")]  # type: ignore[arg-type]
    return Chart(
        f"x-{kind}", "Title & more", "What it shows.", kind, categories, series, "share",
        (0.0, 1.0), 0.1, (0.0, 10_000.0), "arm",
    )  # fmt: skip


def drawn(shown: Chart) -> etree._Element:
    return etree.fromstring(shown.svg().replace("xlink:href", "href").encode())


@pytest.mark.parametrize("kind", KINDS)
def test_a_chart_is_named_for_who_cannot_see_it(kind: ChartKind) -> None:
    shown = chart(kind)
    root = drawn(shown)
    title, desc = root.get("aria-labelledby").split()
    assert root.get("role") == "img"
    assert root.find(f"title[@id='{title}']").text == shown.title
    assert root.find(f"desc[@id='{desc}']").text == shown.text
    texts = {text.text for text in root.iter("text")}
    assert {"plain", "guarded"} <= texts
    assert all(id_.startswith(f"x-{kind}-") for id_ in root.xpath("//@id"))


@pytest.mark.parametrize("kind", KINDS)
def test_every_colour_is_the_pages_and_a_chart_is_drawn_alike_twice(kind: ChartKind) -> None:
    svg = chart(kind).svg()
    assert "#0" not in re.sub(r'(href="|url\()#\S+', "", svg)
    assert {"var(--c0)", "var(--c1)"} <= set(re.findall(r"var\(--c\d\)", svg))
    assert 'style="' not in svg  # which a strict content security policy refuses
    assert chart(kind).svg() == svg


def test_labels_of_others_do_no_harm_in_a_chart() -> None:
    shown = Chart(
        "x", "t", "d", "bars", [HOSTILE, "中文 $x^2$"], [ChartSeries("plain", [1.0, 2.0])]
    )
    root = drawn(shown)
    assert not root.findall(".//script")
    assert any("$x^2$" in (text.text or "") for text in root.iter("text"))


def test_the_table_has_the_values_of_every_panel_and_series() -> None:
    estimates = [Estimate(0.1, 0.05, 0.2, 9), None]
    series = [ChartSeries.of_estimates("plain", estimates, panel) for panel in ("a", "b")]
    series.append(ChartSeries("guarded", [0.5, 0.6], panel="b"))
    table = Chart("x", "t", "d", "dots", ["one", "two"], series).table()
    assert table.title == "t"
    assert table.header == ["panel", "of", "plain", "guarded"]
    assert [column.figures for column in table.columns] == [False, False, True, True]
    assert table.rows == [
        ["a", "one", "0.100 [0.050, 0.200]", "–"],
        ["a", "two", "–", "–"],
        ["b", "one", "0.100 [0.050, 0.200]", "0.500"],
        ["b", "two", "–", "0.600"],
    ]


def test_a_table_over_time_has_a_row_for_each_part() -> None:
    table = chart("time").table()
    assert table.header == ["from", "arm", "mean", "of"]
    assert table.texts()[1] == ["1970-01-01 01:00", "plain", "0.200 [0.100, 0.300]", "8"]
    assert len(table.rows) == 6


def test_a_chart_over_time_spans_it_however_few_values_it_has() -> None:
    from matplotlib.dates import num2date
    from matplotlib.figure import Figure

    from guard.results.chart import _over_time

    figure = Figure()
    one_value = ChartSeries("", [0.5], [0.4], [0.6], times=[3600.0], n=[9])
    _over_time(Chart("x", "t", "d", "time", (), [one_value], "%", span=(0.0, 86_400.0)), figure)
    low, high = (end.timestamp() for end in num2date(figure.axes[0].get_xlim()))
    assert (low, high) == pytest.approx((0.0, 86_400.0), abs=1)


def test_a_page_has_the_chart_its_explanation_and_its_values() -> None:
    shown = chart("dots")
    page = shown.html()
    assert page.count("<svg") == page.count("<table") == 1
    assert "<figcaption>Title &amp; more</figcaption>" in page
    assert '<p class="note">What it shows.</p>' in page


def test_without_a_value_there_is_nothing_to_draw() -> None:
    assert not Chart("x", "t", "d", "dots", ["one"], [ChartSeries("plain", [NAN])]).has_data
    assert not Chart("x", "t", "d", "dots", [], []).has_data
