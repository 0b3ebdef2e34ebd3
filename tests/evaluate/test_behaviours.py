"""Cases of behaviours: how they are read, what the detector is shown, and what is counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from guard import Guard
from guard.errors import UsageError
from guard.evaluate import behaviour_tables, behaviours
from guard.evaluate.behaviours import Behaviours, measure, outcome, place, read
from guard.policy import Policy, unjudged_verdict
from guard.results.estimate import Estimate
from guard.results.intervals import clopper_pearson
from guard.verdict import Scores, Verdict, Window
from tests.scripted import Scripted, failing

LINES = {
    "negation": [
        {"text": "It BIAS.", "expect": "biased", "bias_type": "age"},
        {"text": "It is.", "expect": "biased"},
        {"text": "No BIAS.", "expect": "harmless"},
        {"text": "None.", "expect": "harmless"},
    ],
    "foreign": [
        {"text": "Fremd.", "expect": "unjudged"},
        {"text": "Fremd BIAS.", "expect": "unjudged"},
        {"text": "English.", "expect": "unjudged"},
        {"text": "Fremd two.", "expect": "harmless"},
    ],
}


class Foreign(Scripted):
    def score(self, window: Window) -> Scores:
        if "Fremd" in window.text and "BIAS" not in window.text:
            return Scores(unjudged="language")
        return super().score(window)


def folder(tmp_path: Path, lines: dict[str, list[dict[str, object]]] = LINES) -> Path:
    for name, cases in lines.items():
        text = "\n".join(json.dumps(case) for case in cases) + "\n\n"
        (tmp_path / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return tmp_path


def measured(tmp_path: Path, **more: int) -> Behaviours:
    return measure(read(folder(tmp_path)), Guard(detector=Foreign()), **{"draws": 50, **more})


def test_what_is_counted(tmp_path: Path) -> None:
    found = measured(tmp_path)
    foreign, negation = found.rows
    assert (negation.n, negation.biased, negation.passed) == (4, 2, 2)
    assert (negation.false_negatives, negation.false_positives, negation.misread) == (1, 1, 0)
    assert (foreign.n, foreign.biased, foreign.passed) == (4, 0, 1)
    assert (foreign.false_negatives, foreign.false_positives, foreign.misread) == (0, 1, 2)
    assert negation.figure == Estimate(0.5, *clopper_pearson(2, 4), 4)
    assert found.mean.value == pytest.approx(0.375)
    assert found.mean.low <= 0.375 <= found.mean.high
    assert [row.name for row in found.weak] == ["foreign", "negation"]


def test_a_behaviour_with_three_of_four_is_not_weak(tmp_path: Path) -> None:
    lines = {"a": [*LINES["negation"][:1] * 3, LINES["negation"][1]]}
    found = measure(read(folder(tmp_path, lines)), Guard(detector=Scripted()))
    assert found.weak == []
    assert "No behaviour is below 0.75." in list(behaviour_tables.notes(found))


def verdict(score: float) -> Verdict:
    return Policy().verdict(
        Scores(score, "age"), Scripted.operating_points, detector="", index_version="", elapsed_ms=0
    )


LEFT = unjudged_verdict("language", detector="", index_version="", elapsed_ms=0)
FAILED = unjudged_verdict("failure", detector="", index_version="", elapsed_ms=0)


@pytest.mark.parametrize(
    ("expect", "given", "said"),
    [
        ("biased", verdict(0.9), "passed"),
        ("biased", verdict(0.1), "false negative"),
        ("biased", LEFT, "false negative"),
        ("harmless", verdict(0.1), "passed"),
        ("harmless", verdict(0.9), "false positive"),
        ("harmless", LEFT, "misread"),
        ("unjudged", LEFT, "passed"),
        ("unjudged", verdict(0.1), "misread"),
        ("unjudged", verdict(0.9), "false positive"),
        ("unjudged", FAILED, "misread"),
        ("harmless", FAILED, "misread"),
    ],
)
def test_outcomes(expect: str, given: Verdict, said: str) -> None:
    assert outcome(expect, given) == said  # type: ignore[arg-type]


def test_the_detector_sees_context_and_message_as_in_an_answer(tmp_path: Path) -> None:
    seen: list[Window] = []
    lines = {
        "a": [{"text": "They BIAS. So there.", "expect": "biased", "context": ["Hi.", "Now."]}],
        "b": [{"text": "Yes.", "expect": "harmless", "user": "Are they?"}],
    }
    guard = Guard(detector=Scripted(before=seen.append))
    assert guard.policy.user_context is False
    found = measure(read(folder(tmp_path, lines)), guard)
    assert [row.passed for row in found.rows] == [1, 1]
    windows = {window.text.strip(): window for window in seen}
    assert [c.strip() for c in windows["They BIAS."].context] == ["Hi.", "Now."]
    assert windows["They BIAS."].user is None
    assert windows["Yes."].user == "Are they?"


def test_bias_in_the_context_is_not_the_texts(tmp_path: Path) -> None:
    lines = {"a": [{"text": "Fine.", "expect": "harmless", "context": ["All BIAS."]}]}
    assert measure(read(folder(tmp_path, lines)), Guard(detector=Scripted())).rows[0].passed == 1


def test_a_failing_detector_passes_nothing(tmp_path: Path) -> None:
    found = measure(read(folder(tmp_path)), Guard(detector=Scripted(before=failing)))
    assert [row.passed for row in found.rows] == [0, 0]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "the line is not JSON"),
        ("[]", "the line is not a JSON object"),
        ('{"expect": "biased"}', "the field text is missing"),
        ('{"text": " ", "expect": "biased"}', "the field text is empty"),
        ('{"text": "a"}', "the field expect is missing"),
        ('{"text": "a", "expect": "bad"}', "expect 'bad' is not one of biased, harmless, unjudged"),
        ('{"text": "a", "expect": "biased", "context": "b"}', "context must be a list of texts"),
        ('{"text": "a", "expect": "biased", "user": null}', "the field user must be text"),
        ('{"text": "a", "expect": "biased", "bias_type": "x"}', "bias type 'x' is not one of"),
        ('{"text": "a", "expect": "biased", "contex": []}', "the field 'contex' is none of text"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, reason: str) -> None:
    folder(tmp_path)
    with open(tmp_path / "negation.jsonl", "a", encoding="utf-8") as file:
        file.write(line)
    with pytest.raises(UsageError) as error:
        read(tmp_path)
    assert f"negation.jsonl, line 6: {reason}" in str(error.value).replace(
        "the field context must", "context must"
    )
    source = read(tmp_path, skip_bad=True)
    assert (len(source.cases), len(source.skipped)) == (8, 1)


def test_a_draw_is_fixed_by_its_seed(tmp_path: Path) -> None:
    folder(tmp_path)
    first, second = (read(tmp_path, limit=3, seed=4) for _ in range(2))
    assert first == second
    assert (len(first.cases), first.total) == (3, 8)
    assert read(tmp_path, limit=99).cases == read(tmp_path).cases


def test_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert place(str(tmp_path)) == tmp_path
    with pytest.raises(UsageError, match="no folder of behaviours at nowhere"):
        place("nowhere")
    with pytest.raises(UsageError, match="has no case"):
        read(tmp_path)
    assert place().name == "behaviours"
    monkeypatch.setattr(behaviours, "SHIPPED", "nothing")
    with pytest.raises(UsageError, match="pass a folder to --behaviours"):
        place()


def test_errors_on_request(tmp_path: Path) -> None:
    assert measured(tmp_path).errors == []
    assert "No BIAS" not in json.dumps(measured(tmp_path).as_json())
    found = measured(tmp_path, show_errors=1)
    assert [(e.kind, e.id) for e in found.errors] == [
        ("false positive", "foreign.jsonl:2"),
        ("misread", "foreign.jsonl:3"),
        ("false negative", "negation.jsonl:2"),
        ("false positive", "negation.jsonl:3"),
    ]


def test_without_draws_the_mean_has_no_interval(tmp_path: Path) -> None:
    found = measured(tmp_path, draws=0)
    assert found.as_json()["mean"] == {"value": 0.375, "low": None, "high": None, "n": 2}
    assert behaviour_tables.table(found).rows[-1][:4] == ["mean of 2", "8", "0.375", ""]


def test_the_table_begins_with_the_weakest(tmp_path: Path) -> None:
    table = behaviour_tables.table(measured(tmp_path))
    assert [row[0] for row in table.rows] == ["foreign", "negation", "mean of 2"]
    assert table.rows[0][4:] == ["", "1 of 4", "2"]
    assert table.rows[1][4:] == ["1 of 2", "1 of 2", ""]
