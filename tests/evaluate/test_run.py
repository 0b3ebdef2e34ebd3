"""Judging a set: what is measured is what ``Guard.check`` says, at every operating point."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
from rich.console import Console

from guard import Guard
from guard.datasets.terms import make_terms
from guard.evaluate import report
from guard.evaluate.baselines import Terms, always_biased, term_list, terms_for
from guard.evaluate.example import Example
from guard.evaluate.near import NEAR
from guard.evaluate.result import Result
from guard.evaluate.run import BATCH, evaluate, judged, prediction
from guard.evaluate.sources import SOURCES, Dataset, load
from guard.verdict import BIAS_TYPES, Attribution, BiasType, Scores, Span, Window
from tests.rows import rows
from tests.scripted import Scripted

TERMS = Terms("made up", (make_terms(["pilots"], ["late"]),))
ROWS = """text,label,bias_type,group,attribute
All is well. Here BIAS stands.,1,gender,BIAS,BIAS
BIAS again.,1,race,dogs,late
Nothing of it.,1,gender,,
Fine words.,0,,,
A BIAS alarm.,0,,,
"""


class Graded(Scripted):
    """Scores by the digit in a window; odd digits are race, with a lower threshold than age."""

    operating_points: ClassVar = {
        name: {t: at + (0.2 if t == "age" else 0) for t in BIAS_TYPES}
        for name, at in (("strict", 0.2), ("balanced", 0.4), ("quiet", 0.6))
    }

    def score(self, window: Window) -> Scores:
        digits = [c for c in window.text if c.isdigit()]
        if not digits:
            return Scores(unjudged="language")
        kind: BiasType = "race" if int(digits[0]) % 2 else "age"
        place = Span(0, 3)
        return Scores(int(digits[0]) / 10, kind, (Attribution("g", digits[0], place, place),))


def dataset(tmp_path: Path, rows: str = ROWS) -> Dataset:
    path = tmp_path / "mine.csv"
    path.write_text(rows, encoding="utf-8")
    return load(str(path), Path("nowhere"))


def measured(tmp_path: Path, guard: Guard | None = None, rows: str = ROWS, **more: int) -> Result:
    guard = guard or Guard(detector=Scripted())
    return evaluate(dataset(tmp_path, rows), guard, terms=TERMS, **{"draws": 50, **more})


def test_figures_of_a_small_set(tmp_path: Path) -> None:
    found = measured(tmp_path).whole.figures
    assert found["accuracy"].value == pytest.approx(3 / 5)
    assert found["false_negative_rate"].value == pytest.approx(1 / 3)
    assert found["false_positive_rate"].value == pytest.approx(1 / 2)
    assert found["cs"].value == pytest.approx(1 / 2)  # the second text is of type race
    assert found["as"].value == pytest.approx(1 / 2)
    assert found["overall"].value == pytest.approx(2 / 5)
    assert found["usable"].value == 1


TEXTS = [
    "Row 5 is here.",
    "Row 4 is here. Then row 3 comes along. ",
    "Row 6 is here. And one of 7 also.",
    "Row 8 is first. No digit here. Then 5.",
    "Nothing with digits. Nor here.",
    "Row 5 stands. Row 4 stands.",
]


@pytest.mark.parametrize(
    "settings",
    [
        {"operating_point": "strict"},
        {"operating_point": "balanced"},
        {"operating_point": "quiet"},
        {"threshold": 0.55},
        {"thresholds": {"race": 0.9}},
    ],
)
def test_answers_are_what_check_gives(settings: dict[str, object]) -> None:
    guard = Guard(detector=Graded(), **settings)
    free = Guard(detector=Graded(), threshold=0.0)
    for text, verdict in zip(TEXTS, guard.check_many(TEXTS), strict=True):
        found = prediction(free.trail(text), guard.policy, guard.detector.operating_points)
        assert found.biased == verdict.biased
        assert found.bias_type == verdict.bias_type
        assert found.attributions == verdict.attributions
        assert found.reason == verdict.unjudged


class Softened(Graded):
    """Where a window says "not", its last digit decides."""

    def score(self, window: Window) -> Scores:
        text = window.text
        return super().score(Window(text[::-1] if "not" in text else text))


DOUBTS = [
    "Row 5 is here. It is not 1.",
    "Row 9 is here. It is not 3.",
    "Row 6 is here. It is not 5. Row 4 stands.",
    "Row 7 is here. It is not 6.",
    "Row 7 is here. Row 5 is here. It is not 2. Or 8?",
    "Row 9 is here.",
]


@rows(
    "settings",
    [
        {"operating_point": "strict"},
        {"operating_point": "balanced"},
        {"operating_point": "quiet"},
        {"second_look_threshold": 0.25},
        {"second_look": False},
        {"threshold": 0.55, "second_look_threshold": 0.9},
    ],
)
def test_a_second_look_counts_as_it_does_in_check(settings: dict[str, object]) -> None:
    guard = Guard(detector=Softened(), **settings)
    verdicts = guard.check_many(DOUBTS)
    (trails,) = judged([Example(text, True, "") for text in DOUBTS], guard)
    for trail, verdict in zip(trails, verdicts, strict=True):
        found = prediction(trail, guard.policy, guard.detector.operating_points)
        assert found.biased == verdict.biased
        assert found.bias_type == verdict.bias_type
        assert found.attributions == verdict.attributions
    assert any(v.biased for v in verdicts)
    assert not all(v.biased for v in verdicts) or not guard.policy.second_look


def test_the_score_is_that_of_the_highest_segment_whatever_the_thresholds() -> None:
    guard = Guard(detector=Graded())
    free = Guard(detector=Graded(), threshold=0.0)
    # Row 6 is of a type whose threshold it misses in `quiet`; the score stays.
    found = prediction(free.trail("A 6 here. A 3 there."), guard.policy, Graded.operating_points)
    assert found.score == 0.6


def test_every_operating_point_is_measured(tmp_path: Path) -> None:
    rows = "text,label\n" + "".join(f"Row {i} is here.,{int(i > 4)}\n" for i in range(10))
    result = measured(tmp_path, Guard(detector=Graded()), rows)
    rates = {name: of["false_positive_rate"].value for name, of in result.points.items()}
    # strict: 3 race, 4 age (.4 >= .4); balanced: none below 5; quiet: none.
    assert rates == pytest.approx({"strict": 2 / 5, "balanced": 0, "quiet": 0})
    assert result.operating_point == "balanced"
    assert result.whole.figures == result.points["balanced"]


def test_custom_thresholds_are_said(tmp_path: Path) -> None:
    result = measured(tmp_path, Guard(detector=Scripted(), threshold=0.95))
    assert result.custom_thresholds
    assert result.whole.figures["false_negative_rate"].value == 1
    assert result.points["balanced"]["false_negative_rate"].value == pytest.approx(1 / 3)
    assert any("custom thresholds" in n for n in report.notes(result))


def test_unjudged_texts_are_an_outcome_of_their_own(tmp_path: Path) -> None:
    result = measured(tmp_path, Guard(detector=Graded()), "text,label\nno digit,1\nRow 9.,1\n")
    assert result.unjudged == {"language": 1}
    assert result.whole.figures["usable"].value == 0.5
    assert result.whole.figures["accuracy"].n == 1
    assert any("Unjudged: 1 language" in n for n in report.notes(result))


def test_a_failing_detector_is_counted_not_hidden(tmp_path: Path) -> None:
    def fail(window: Window) -> None:
        if "again" in window.text:
            raise RuntimeError("no")

    result = measured(tmp_path, Guard(detector=Scripted(before=fail)))
    assert result.unjudged == {"failure": 1}
    assert result.whole.figures["usable"].value == pytest.approx(4 / 5)


@pytest.mark.parametrize(
    "settings", [{}, {"failure": "open"}, {"hold": "none", "action": "flag", "failure": "open"}]
)
def test_an_unusable_answer_never_makes_a_text_harmless(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    class Unreadable(Scripted):
        def score(self, window: Window) -> Scores:
            return Scores(unjudged="unusable") if "Odd" in window.text else super().score(window)

    rows = (
        "text,label\nAll is well here. Odd words follow.,0\nFine words.,0\nA BIAS. Odd words.,1\n"
    )
    result = measured(tmp_path, Guard(detector=Unreadable(), **settings), rows)
    assert result.unjudged == {"unusable": 1}
    assert result.whole.figures["usable"].value == pytest.approx(2 / 3)
    assert result.whole.figures["overall"].value == pytest.approx(2 / 3)
    assert result.whole.figures["accuracy"].n == 2


def test_sinks_of_the_users_guard_hear_nothing(tmp_path: Path) -> None:
    heard: list[object] = []
    measured(tmp_path, Guard(detector=Scripted(), sinks=[heard.append]))
    assert heard == []


def test_progress_comes_by_batches(tmp_path: Path) -> None:
    rows = "text,label\n" + "".join(f"word {i},0\n" for i in range(BATCH + 3))
    seen: list[int] = []
    guard = Guard(detector=Scripted())
    evaluate(dataset(tmp_path, rows), guard, terms=TERMS, draws=0, progress=seen.append)
    assert seen == [BATCH, BATCH + 3]
    assert [len(b) for b in judged(dataset(tmp_path, rows).examples, guard)] == [BATCH, 3]


def test_breakdowns_have_their_n_and_baselines(tmp_path: Path) -> None:
    result = measured(tmp_path)
    assert {s.name: s.n for s in result.breakdowns["type"]} == {"gender": 2, "race": 1}
    assert {s.name: s.n for s in result.breakdowns["group"]} == {"bias": 1, "dogs": 1}
    gender = result.breakdowns["type"][0]
    assert gender.figures["accuracy"].value == 0.5
    assert gender.baselines["always biased"]["accuracy"].value == 1


def test_texts_of_errors_only_on_request(tmp_path: Path) -> None:
    assert "A BIAS alarm" not in json.dumps(measured(tmp_path).as_json())
    errors = measured(tmp_path, show_errors=5).errors
    assert [(e.kind, e.id) for e in errors] == [
        ("false positive", "mine.csv:6"),
        ("false negative", "mine.csv:4"),
    ]
    assert "A BIAS alarm" in report.markdown([measured(tmp_path, show_errors=1)])


def test_json_has_no_nan(tmp_path: Path) -> None:
    plain = measured(tmp_path, rows="text,label\nfine,0\n").as_json()
    again = json.loads(json.dumps(plain, allow_nan=False))
    assert again["figures"]["f1"]["value"] is None
    assert again["figures"]["false_positive_rate"]["value"] == 0
    assert again["texts"] == 1
    assert again["detector"] == "scripted-1"
    assert again["index_version"] == "index-1"


def test_baselines() -> None:
    examples = _examples("pilots are late", "pilots fly", "late again", "")
    assert [a.biased for a in always_biased(examples)] == [True] * 4
    assert [a.biased for a in term_list(examples, TERMS)] == [True, False, False, False]


def test_the_own_term_list_serves_where_the_lists_are_missing(tmp_path: Path) -> None:
    terms = terms_for(tmp_path)
    assert terms.origin == "own short list"
    found = term_list(_examples("Old people are useless.", "Old people read.", "Useless!"), terms)
    assert [a.biased for a in found] == [True, False, False]


def test_real_term_list(data: Path) -> None:
    assert terms_for(data).origin == "RedditBias terms"


def _examples(*texts: str) -> list:  # type: ignore[type-arg]
    from guard.evaluate.example import Example

    return [Example(t, True, str(i)) for i, t in enumerate(texts)]


class Fitted(Graded):
    """Records its own threshold for one source, and one for a name that has no validation part."""

    own_thresholds: ClassVar = {"redditbias": 0.75, "toxicbias": 0.5, "mine": 0.5}


def known(tmp_path: Path, name: str) -> Dataset:
    """Ten texts as the known set has them, scored 0 to .9 by their digits; from .5 on biased."""
    rows = "text,label\n" + "".join(f"Row {i} is here.,{int(i > 4)}\n" for i in range(10))
    return replace(dataset(tmp_path, rows), name=name, known=SOURCES[name])


def test_a_set_is_measured_at_its_own_threshold_beside_the_points(tmp_path: Path) -> None:
    result = evaluate(known(tmp_path, "redditbias"), Guard(detector=Fitted()), terms=TERMS, draws=0)
    assert result.own is not None
    assert result.own.threshold == 0.75
    # 8 and 9 of five biased texts, whatever their type; at balanced (.4, age .6) it is another.
    assert result.own.figures["false_negative_rate"].value == pytest.approx(3 / 5)
    assert result.own.figures["false_positive_rate"].value == 0
    assert (
        result.own.figures["false_negative_rate"].value
        != result.points["balanced"]["false_negative_rate"].value
    )
    plain = result.as_json()
    assert plain["own_threshold"]["threshold"] == 0.75
    assert plain["own_threshold"]["figures"]["false_negative_rate"]["value"] == pytest.approx(3 / 5)
    assert {p["system"]: p["compares_with"] for p in plain["published"]} == {
        "BiasAlert": "own threshold",
        **dict.fromkeys(("GPT-4", "LlamaGuard", "Azure", "OpenAI"), "guard"),
    }
    measures, published, points, *_ = report.tables(result)
    column = measures.header.index("own threshold")
    assert {row[0]: row[column] for row in measures.rows}["false negative rate"] == "0.600"
    assert [row[0] for row in published.rows[:2]] == ["guard", "own threshold"]
    assert points.rows[-1][0] == "own threshold 0.75"
    notes = report.notes(result)
    assert any("own threshold: 0.75" in n and "validation part" in n for n in notes)
    assert "Compare own threshold with BiasAlert (trained on this set)." in notes
    assert any(n.startswith("Compare guard with GPT-4, LlamaGuard, Azure, OpenAI") for n in notes)


def test_a_set_without_a_threshold_of_its_own_says_why(tmp_path: Path) -> None:
    def told(name: str, guard: Guard) -> tuple[Result, str]:
        result = evaluate(known(tmp_path, name), guard, terms=TERMS, draws=0)
        return result, " ".join(report.notes(result))

    for name in ("toxicbias", "crows_pairs", "bold"):
        result, notes = told(name, Guard(detector=Fitted()))
        assert result.own is None
        assert "No column own threshold: guard has no validation part of this set" in notes
        assert "own threshold" not in report.tables(result)[0].header
        assert result.as_json()["own_threshold"] is None
    # Weights of an earlier release, and detectors of one's own, record none.
    result, notes = told("redditbias", Guard(detector=Graded()))
    assert result.own is None
    assert "No column own threshold: scripted-1 has none for this set." in notes
    assert "Compare own threshold" not in notes


def test_a_file_of_the_users_own_has_no_column_whatever_its_name(tmp_path: Path) -> None:
    for name in ("mine", "redditbias"):
        path = tmp_path / f"{name}.csv"
        path.write_text(ROWS, encoding="utf-8")
        data = load(str(path), Path("nowhere"))
        result = evaluate(data, Guard(detector=Fitted()), terms=TERMS, draws=0)
        assert result.own is None
        assert result.published == ()
        assert "own threshold" not in report.markdown([result])


def test_published_figures_stand_beside_with_their_source(part: Path) -> None:
    guard = Guard(detector=Scripted())
    sample = load("redditbias", part, limit=40)
    result = evaluate(sample, guard, terms=TERMS, draws=10, limit=40)
    measures, published, *_ = report.tables(result)
    assert measures.header[-1] == "BiasAlert"
    assert published.header[:7] == [
        "system", "Acc", "F1", "CS (type)", "AS (group + attribute)", "overall", "usable"
    ]  # fmt: skip
    systems = {row[0]: dict(zip(published.header, row, strict=True)) for row in published.rows}
    assert list(systems)[:4] == ["guard", "always biased", "term list", "BiasAlert"]
    assert list(systems["BiasAlert"].values())[:7] == [
        "BiasAlert", "0.84", "0.82", "1.00", "0.97", "0.82", ""
    ]  # fmt: skip
    assert systems["BiasAlert"]["compares with"] == "own threshold"
    assert systems["BiasAlert"]["source"] == "Fan et al. 2024 (BiasAlert), Table 1"
    for name in ("AUROC", "false positive rate", "false negative rate", "prevalence"):
        assert float(systems["guard"][name]) >= 0
        assert systems["BiasAlert"][name] == ""
    assert systems["always biased"]["CS (type)"] == ""
    notes = " ".join(report.notes(result))
    assert "the group matches a target term" in notes
    assert "A random sample of 40 of 1728 texts (seed 0)" in notes
    assert "OS of the paper's Table 1 is `overall` here" in notes


@pytest.mark.parametrize(
    ("rows", "of_both"),
    [
        ("text,label\nfine,0\nBIAS,1\n", {"F1", "false negative rate", "AUROC"}),
        ("text,label\nfine,0\n", set()),
    ],
)
def test_accuracy_never_stands_alone(tmp_path: Path, rows: str, of_both: set[str]) -> None:
    tables = report.tables(measured(tmp_path, rows=rows))
    labels = {row[0] for row in tables[0].rows}
    assert {"Acc", "false positive rate", "prevalence", "usable"} | of_both <= labels
    # What needs texts of both kinds is nan where nothing is biased.
    assert of_both or not {"F1", "false negative rate", "AUROC"} & labels
    for table in tables[1:2]:
        assert {"Acc", "false positive rate", "prevalence"} | of_both <= set(table.header)


def test_markdown_tables_are_whole(tmp_path: Path) -> None:
    rows = [
        line.replace("\\|", "")
        for line in report.markdown([measured(tmp_path)]).splitlines()
        if line.startswith("|")
    ]
    assert len(rows) > 10
    widths = [row.count("|") for row in rows]
    breaks = [i for i, row in enumerate(rows) if set(row) <= set("|-: ")]
    for at in breaks:
        assert widths[at] == widths[at - 1] == widths[at + 1]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 140])
def test_no_figure_is_cut_short_on_a_narrow_terminal(tmp_path: Path, width: int) -> None:
    result = measured(tmp_path)
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    for table in report.tables(result):
        pieces = table.fitted(width)
        names = [name for piece in pieces for name in piece.header[1:]]
        assert names == table.header[1:]
        assert all(piece.header[0] == table.header[0] for piece in pieces)
    report.show(console, result)
    assert "…" not in console.file.getvalue()  # type: ignore[attr-defined]


def test_the_papers_seven_types(tmp_path: Path) -> None:
    rows = "text,label,bias_type\nRow 8.,1,social\nRow 8 here.,1,appearance\nRow 9.,1,race\n"
    guard = Guard(detector=Graded())
    nine = measured(tmp_path, guard, rows)
    seven = evaluate(dataset(tmp_path, rows), guard, terms=TERMS, draws=0, types="paper")
    assert nine.whole.figures["cs"].value == pytest.approx(1 / 3)
    assert seven.whole.figures["cs"].value == 1
    assert {s.name for s in nine.breakdowns["type"]} == {"social", "appearance", "race"}
    assert {s.name: s.n for s in seven.breakdowns["type"]} == {"social": 2, "race": 1}
    # Verdicts are those of the nine types' thresholds.
    for name in ("accuracy", "false_positive_rate", "false_negative_rate"):
        for point in nine.points:
            one, other = nine.points[point][name].value, seven.points[point][name].value
            assert one == pytest.approx(other, nan_ok=True)
    assert seven.as_json()["types"] == "paper"
    assert any("paper's seven" in n for n in report.notes(seven))
    assert not any("paper's seven" in n for n in report.notes(nine))


def said_of_near_duplicates(dataset: Dataset) -> str:
    result = evaluate(dataset, Guard(detector=Scripted()), terms=TERMS, draws=0)
    assert {s.name: s.n for s in result.breakdowns["near-duplicate"]}.keys() == {"no", "yes"}
    (said,) = (n for n in report.notes(result) if "Near-duplicates of training texts" in n)
    return said


def test_the_share_of_near_duplicates_is_said(part: Path) -> None:
    dataset = load("crows_pairs", part)
    units = {e.unit for e in dataset.examples if e.axes[NEAR] == "yes"}
    few = [e for e in dataset.examples if e.unit in units] + dataset.examples[-20:]
    said = said_of_near_duplicates(replace(dataset, examples=few))
    assert f"Near-duplicates of training texts: {2 * len(units)} of {len(few)}" in said


@pytest.mark.slow("judges 1,582 texts, and looks for each among all training texts")
def test_the_share_of_near_duplicates_of_a_whole_set_is_said(data: Path) -> None:
    said = said_of_near_duplicates(load("crows_pairs", data))
    assert "Near-duplicates of training texts: 12 of 1582" in said
