"""People check the scorer: what they are shown, what is refused, and what their labels say."""

from __future__ import annotations

import csv
import json
import math
import random
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from click.testing import CliRunner

from guard.audit.review import (
    ReviewRun,
    StratumCount,
    Text,
    check_labels,
    load_run,
    read_labels,
    sample_texts,
    stratified_share,
    write_sample,
)
from guard.cli import main
from guard.errors import UsageError
from guard.results.intervals import clopper_pearson
from tests.audit.written import read as read_run
from tests.audit.written import write as write_run
from tests.suites.test_open_text import HARMLESS, MISSED, SEEN, audit, run

RUNS, LEAST = 200, 180


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of which a third is stopped, and of another third users see bias."""
    folder = tmp_path_factory.mktemp("run")
    texts = [HARMLESS + SEEN + HARMLESS, HARMLESS + MISSED, HARMLESS, "=1+1 is <b>two</b>. "]
    numbers = {item.id: n for n, item in enumerate(audit().items)}
    run(lambda name: texts[numbers[name] % 4], folder)
    return folder


def test_the_sample_says_neither_arm_nor_verdict(journal: Path, tmp_path: Path) -> None:
    found = load_run(journal)
    strata = Counter(one.stratum for one in found.texts)
    assert {(s.arm, s.biased) for s in strata} == {
        ("both", True),
        ("both", False),
        ("plain", True),
        ("guarded", False),
    }
    texts = sample_texts(found, 16, 17)
    assert len({one.id for one in texts}) == len(texts) == 16
    assert {one.stratum for one in texts} == set(strata)
    assert sample_texts(found, 16, 17) == texts != sample_texts(found, 16, 18)
    assert len(sample_texts(found, 10**6, 17)) == len(found.texts)
    table, page = write_sample(texts, tmp_path)
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == [one.id for one in texts]
    assert {row["label"] for row in rows} == {""}
    assert set(rows[0]) == {"id", "prompt", "text", "label"}
    said = page.read_text("utf-8") + table.read_text("utf-8")
    for told in ("guarded", "plain", "scripted", "Stopped here"):
        assert not re.search(rf"\b{told}\b", said)
    # What a model wrote is neither markup in a page nor a formula in a spreadsheet.
    assert "<b>two" not in page.read_text("utf-8")
    assert not any(row["text"].startswith("=") for row in rows)
    with pytest.raises(UsageError, match="exists already"):
        write_sample(texts, tmp_path)


def test_the_page_is_whole_and_blurred(journal: Path, tmp_path: Path) -> None:
    texts = sample_texts(load_run(journal), 12, 17)
    page = write_sample(texts, tmp_path)[1].read_text("utf-8")
    assert page.count('<div class="blurred"') == page.count("data-show=") == 12
    assert page.count('value="biased"') == page.count('value="not biased"') == 12
    assert not re.search(r"""(?:src|href)\s*=\s*["']""", page)
    assert "default-src 'none'" in page


def _table(folder: Path, rows: list[tuple[str, ...]], header: str = "id,label") -> Path:
    path = folder / "labels.csv"
    path.write_text("\n".join([header, *(",".join(row) for row in rows)]) + "\n", "utf-8")
    return path


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([("a", "biased"), ("x", "biased")], r"row 2 \(line 3\): this run has no text 'x'"),
        ([("a", "biased"), ("b", "biased"), ("a", "not biased")], "row 3 .*a has a label already"),
        ([("a", "biased"), ("b", "")], "row 2 .*b has no label"),
        ([("a", "biased / not biased")], "row 1 .*is not a label of a"),
        ([("a",)], "row 1 .*the row has 1 fields, the header 2"),
        ([], "has no labels"),
    ],
)
def test_bad_labels_are_refused_by_row(
    tmp_path: Path, rows: list[tuple[str, ...]], told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        read_labels(_table(tmp_path, rows), ["a", "b"])


def test_two_columns_of_labels_are_no_label(tmp_path: Path) -> None:
    """Two people's, or a comma too many: which one counts nobody can say."""
    twice = _table(tmp_path, [("a", "biased", "not biased")], "id,label,label")
    with pytest.raises(UsageError, match="has 2 columns 'label'"):
        read_labels(twice, ["a"])
    with pytest.raises(UsageError, match=r"row 1 .*the row has 3 fields, the header 2"):
        read_labels(_table(tmp_path, [("a", "biased", "not biased")]), ["a"])


def test_a_label_is_of_one_text(journal: Path, tmp_path: Path) -> None:
    """A run that asked the same prompts again has other texts, whose labels these are not."""
    run(lambda name: HARMLESS + MISSED, tmp_path)
    here, there = load_run(journal), load_run(tmp_path)
    words = {one.id: one.text for one in here.texts}
    assert all(words.get(one.id, one.text) == one.text for one in there.texts)
    # What a spreadsheet takes for a number comes back as another.
    assert all(one.id[0].isalpha() for one in here.texts)
    assert not [one.id for one in here.texts if re.fullmatch(r"\d+(e\d+)?", one.id)]


def test_a_review_of_part_of_a_run_says_so(journal: Path, tmp_path: Path) -> None:
    assert not load_run(journal).incomplete
    header, records = read_run(journal / "run.db")
    write_run(tmp_path / "run.db", header, records[:-30])
    assert "The run is incomplete" in load_run(tmp_path).incomplete


def test_a_text_with_half_a_character_is_written(tmp_path: Path) -> None:
    text = Text("t1", "Say \ud83d", "\ud83d there", _stratum("both", False))
    table, page = write_sample([text], tmp_path)
    assert "? there" in table.read_text("utf-8")
    assert "? there" in page.read_text("utf-8")


def test_a_text_with_a_nul_is_read_back(tmp_path: Path) -> None:
    text = Text("t1", "Say", "a\0b\x1b\ttab", _stratum("both", False))
    table, page = write_sample([text], tmp_path)
    for path in (table, page):
        assert "a\ufffdb\ufffd\ttab" in path.read_text("utf-8")
    table.write_text(table.read_text("utf-8").replace("tab,", "tab,biased"), "utf-8")
    assert read_labels(table, ["t1"]) == {"t1": True}
    # As earlier versions wrote it.
    table.write_bytes(b"id,text,label\r\nt1,a\0b,biased\r\n")
    if sys.version_info >= (3, 11):  # csv reads no NUL before
        assert read_labels(table, ["t1"]) == {"t1": True}
    table.write_bytes("id,label\r\nt1,biased\r\n".encode("utf-16-le"))
    with pytest.raises(UsageError, match="is UTF-16; save it as UTF-8"):
        read_labels(table, ["t1"])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full device")
def test_a_review_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a table would be taken for the review that is there already."""
    texts = [Text(f"t{n}", "Say", HARMLESS, _stratum("both", False)) for n in range(9)]
    monkeypatch.setattr("guard.audit.files.uuid4", lambda: UUID(int=0))
    (tmp_path / f".review.csv.{'0' * 8}.new").symlink_to("/dev/full")
    with pytest.raises(UsageError, match="cannot be written: No space left"):
        write_sample(texts, tmp_path)
    assert not (tmp_path / "review.csv").exists()
    assert all(path.is_file() for path in write_sample(texts, tmp_path))


def test_labels_are_read_as_people_write_them(tmp_path: Path) -> None:
    path = _table(tmp_path, [("a", "Biased"), ("b", " not  biased ")])
    assert read_labels(path, ["a", "b", "c"]) == {"a": True, "b": False}
    with pytest.raises(UsageError, match="needs the columns"):
        read_labels(_table(tmp_path, [("a", "x")], "name,label"), ["a"])
    with pytest.raises(UsageError, match="cannot be read"):
        read_labels(tmp_path / "none.csv", ["a"])


def test_labels_that_are_all_right_correct_nothing(journal: Path) -> None:
    found = load_run(journal)
    checked = check_labels(found, {one.id: one.stratum.biased for one in found.texts})
    assert checked.agreement.value == checked.agreement.high == 1.0
    for arm, share in checked.corrected.items():
        assert share.value == pytest.approx(checked.scored[arm])
        # Other answers of the same model would have been labelled otherwise.
        n = found.effective[arm]
        assert (share.low, share.high) == pytest.approx(clopper_pearson(share.value * n, n))
        assert share.low < share.value < share.high
    assert checked.scored["guarded"] < checked.scored["plain"]


def test_a_part_without_labels_leaves_nothing_known(journal: Path) -> None:
    found = load_run(journal)
    given = {one.id: True for one in found.texts if one.stratum.arm != "both"}
    checked = check_labels(found, given)
    assert checked.corrected["plain"].value != checked.corrected["plain"].value
    assert "not known" in checked.sentences()[0]


@pytest.mark.parametrize("size", [120, 600], ids=["a sample is labelled", "all is labelled"])
@pytest.mark.parametrize(
    ("runs", "least"),
    [
        (50, 43),  # at 95 % fewer come in 0.3 % of cases
        pytest.param(RUNS, LEAST, marks=pytest.mark.slow("simulates two hundred reviews")),
    ],
)
def test_the_corrected_level_covers_what_people_would_say_of_all_the_models_answers(
    size: int, runs: int, least: int
) -> None:
    """The scorer misses a fifth of what people find biased, and finds 4 % of the rest so."""
    chance = random.Random(17)
    truth = {"plain": 0.1, "guarded": 0.1 * (0.2 + 0.8 * (0.3 + 0.7 * 0.1))}
    held = Counter[str]()
    for _ in range(runs):
        texts, people = [], {}
        for n in range(600):
            biased = chance.random() < 0.1
            scored = chance.random() < (0.8 if biased else 0.04)
            stopped = scored and chance.random() < 0.7
            parts: list[tuple[Any, bool, bool]] = [("plain" if stopped else "both", scored, biased)]
            if stopped:
                parts.append(("guarded", False, biased and chance.random() < 0.1))
            for which, says, true in parts:
                name = f"{n} {which}"
                texts.append(Text(name, "", "", _stratum(which, says)))
                people[name] = true
        whole = ReviewRun("scripted", texts, 0, True, {"plain": 600, "guarded": 600})
        drawn = sample_texts(whole, size, chance.randrange(10**6))
        sample = {one.id: people[one.id] for one in drawn}
        found = check_labels(whole, sample)
        for arm in ("plain", "guarded"):
            share = found.corrected[arm]
            held[arm] += share.low <= truth[arm] <= share.high
    assert min(held.values()) >= least, held


def _stratum(which: Any, biased: bool) -> Any:
    from guard.audit.review import AnswerStratum

    return AnswerStratum(which, biased)


def test_a_stratum_without_hits_still_widens_the_interval() -> None:
    """No bias among 50 of 1,000 does not mean none among the 1,000."""
    share = stratified_share([StratumCount(50, 40, 50), StratumCount(950, 0, 50)], 1000)
    assert share.value == pytest.approx(0.04)
    # The 50 were all labelled, so below there is only the chance of which answers were asked.
    assert share.low == pytest.approx(clopper_pearson(40, 1000)[0])
    assert share.high > 0.09
    assert stratified_share([StratumCount(50, 5, 50)], 100, empty=50).value == pytest.approx(0.05)


def test_a_guard_that_lets_nothing_out_shows_nothing_biased() -> None:
    """Every answer was stopped at its beginning: there is nothing to label, and nothing unknown."""
    texts = [Text(str(n), "", "", _stratum("plain", n < 3)) for n in range(8)]
    whole = ReviewRun("scripted", texts, 8, True, {"plain": 8, "guarded": 8})
    checked = check_labels(whole, {one.id: False for one in texts})
    level = checked.corrected["guarded"]
    assert (level.value, level.low, level.n) == (0.0, 0.0, 0)
    assert level.high == pytest.approx(clopper_pearson(0, 8)[1])
    assert "guarded: 0.0% by the scorer, corrected 0.0%" in checked.sentences()[-1]
    assert math.isnan(stratified_share([], 0).value)


def test_the_command_writes_a_sample_and_reads_it_back(journal: Path, tmp_path: Path) -> None:
    out = tmp_path / "review"
    ran = CliRunner().invoke(
        main, ["audit", "review", str(journal), "--sample", "24", "--out", str(out)]
    )
    assert ran.exit_code == 0, ran.output
    assert "24 texts to label" in ran.output
    with (out / "review.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["label"] = "biased" if "against a group" in row["text"] else "not biased"
    with (out / "review.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    again = ["audit", "review", str(journal), "--labels", str(out / "review.csv")]
    told = CliRunner().invoke(main, again)
    assert "Agreement with scripted: 100.0%" in told.output
    assert "Bias level, guarded" in told.output
    found = json.loads(CliRunner().invoke(main, [*again, "--json"]).output)
    assert found["agreement"]["n"] == 24
    level = found["bias_level"]["plain"]
    assert level["corrected"]["value"] == pytest.approx(level["scored"])
    nothing = CliRunner().invoke(main, ["audit", "review", str(tmp_path)])
    assert nothing.exit_code == 2
    assert "has no run.db" in nothing.output
