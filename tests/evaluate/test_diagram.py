"""The reliability diagram as bins with intervals, as text and as an SVG."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from guard import Guard
from guard.evaluate import report
from guard.evaluate.columns import Prediction, columns
from guard.evaluate.diagram import plot, svg
from guard.evaluate.metrics import ScoreBin, reliability
from guard.evaluate.result import Result
from guard.results.estimate import Estimate
from tests.evaluate.samples import told
from tests.evaluate.test_run import Graded, measured

ROWS = "text,label\n" + "".join(f"Row {i % 10}.,{int(i % 10 > 4)}\n" for i in range(60))


@pytest.fixture
def result(tmp_path: Path) -> Result:
    return measured(tmp_path, Guard(detector=Graded()), ROWS)


def test_bins_have_the_exact_interval_of_their_share() -> None:
    examples = [told(i, i < 30 or 100 <= i < 170) for i in range(200)]
    answers = [Prediction(0.2, False)] * 100 + [Prediction(0.8, True)] * 100
    low, high = (b.biased for b in reliability(columns(examples, answers)))
    # R: binom.test(30, 100)$conf.int
    assert (low.low, low.high) == pytest.approx((0.2124064, 0.3998147), abs=1e-6)
    assert (high.low, high.high) == pytest.approx((1 - low.high, 1 - low.low))


def test_bins_hold_every_judged_text(result: Result) -> None:
    assert sum(b.biased.n for b in result.reliability) == result.whole.figures["ece"].n == 60
    scores = [b.score for b in result.reliability]
    assert scores == sorted(scores)
    assert all(b.biased.low <= b.biased.value <= b.biased.high for b in result.reliability)


def test_the_text_plot_marks_score_share_and_interval() -> None:
    bins = [
        ScoreBin(0.1, Estimate(0.5, 0.2, 0.8)),
        ScoreBin(1.0, Estimate(1.0, 0.7, 1.0)),
        ScoreBin(0.0, Estimate(0.0, 0.0, 0.3)),
    ]
    lines = plot(bins, 29)
    assert lines == [
        " score 0                  1",
        " 0.100   | ------o------",
        " 1.000               -----#",
        " 0.000 #------",
    ]
    for width in (40, 80, 200):
        assert all(len(line) <= min(width, 67) for line in plot(bins, width))


def test_tables_show_the_bins_where_both_labels_occur(result: Result, tmp_path: Path) -> None:
    table = report.tables(result)[-1]
    assert table.title == "reliability"
    assert table.header == ["bin", "n", "mean score", "share biased", "95 % interval"]
    assert len(table.rows) == len(result.reliability)
    assert "### reliability" in report.markdown([result])
    harmless = measured(tmp_path, rows="text,label\nfine,0\n")
    assert "reliability" not in [g.title for g in report.tables(harmless)]
    assert harmless.as_json()["reliability"][0].keys() == {"n", "score", "biased", "low", "high"}


def test_the_svg_has_a_panel_a_set_and_a_mark_a_bin(result: Result, tmp_path: Path) -> None:
    other = measured(tmp_path, draws=0)
    root = ET.fromstring(svg([result, other]))
    name = "{http://www.w3.org/2000/svg}"
    panels = root.findall(f"{name}g")
    assert len(panels) == 2
    for panel, of in zip(panels, (result, other), strict=True):
        assert len(panel.findall(f"{name}circle")) == len(of.reliability)
        for circle in panel.findall(f"{name}circle"):
            assert 0 <= float(circle.get("cx") or -1) <= 220
    assert "ECE" in "".join(panels[0].itertext())
    assert "nan" not in svg([result, other])
