"""``guard review`` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from guard.policy import Policy
from guard.retrieve.statement import read_statements
from guard.train.own import corpus_folder
from guard.watch import review, schema
from guard.watch.store import Store
from tests.cli.test_cli import run, sentence
from tests.watch.reading import flushed, guard_with, queue, rows

MISSED = "Velmorians swap\nthe price tags (number 9)."


@pytest.fixture(autouse=True)
def store(tmp_path: Path, sqlite: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Make a store with 12 findings, one of them harmless, and 36 that passed, one missed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BIASGUARD_EVENTS", sqlite)
    guard = guard_with(sqlite, policy=Policy(action="redact"), keep_text="full")
    for number in range(12):
        last = MISSED if number == 3 else "\x1b[31mThat is all."
        middle = "A harmless BIAS" if number == 5 else "They are BIAS"
        list(guard.stream([f"All is well {number}. {middle} at home. So it goes. {last}"]))
    flushed(guard)
    return sqlite


def ok(*args: str, keys: str | None = None) -> str:
    result = run("review", *args, said=keys)
    assert result.exit_code == 0, result.output
    return str(result.stdout)


def mark_all(store: str, **correction: str) -> None:
    """Mark the whole queue as a person would."""
    with Store(store).writing() as connection:
        for item, _ in queue(connection):
            miss = "Velmorians" in item.text
            biased = miss or "They are" in item.text
            verdict = "right" if biased == (item.action != "pass") else "wrong"
            bias = review.Correction(**correction) if miss else None
            review.mark(connection, item.id, "ann", verdict, bias)


def test_a_draw_that_is_marked_has_rates(store: str) -> None:
    assert json.loads(ok("draw", "--size", "48", "--json"))["size"] == 48
    mark_all(store)
    status = json.loads(ok("status", "--json"))
    assert (status["drawn"], status["marked"]) == (48, 48)
    assert status["rates"]["over_blocking"]["value"] == pytest.approx(1 / 12)
    assert status["rates"]["missed"]["value"] == pytest.approx(1 / 12)
    assert status["rates"]["harmless_stopped"]["value"] == pytest.approx(1 / 36)


def test_items_are_shown_marked_and_taken_back(store: str) -> None:
    ok("draw", "--size", "48")
    item = json.loads(ok("next", "--json"))
    assert item["id"] in ok("next")
    ok("mark", item["id"], "unclear", "--reviewer", "ann")
    assert json.loads(ok("next", "--reviewer", "bob", "--of", "second", "--json")) == item
    ok("mark", item["id"], "right", "--reviewer", "bob")
    [dispute] = json.loads(ok("disputes", "--json"))
    assert dispute["marks"] == {"ann": "unclear", "bob": "right"}
    assert item["id"] in ok("disputes")
    assert "ann and bob: 0 % of 1 alike" in ok("status")
    assert ok("undo", "--reviewer", "bob").strip() == item["id"]
    assert "bob has no mark" in sentence(run("review", "undo", "--reviewer", "bob"))
    assert "\x1b" not in ok("next", "--of", "new")


def test_keys_mark_items_one_after_another(store: str) -> None:
    ok("draw", "--size", "48")
    ok("start", "--reviewer", "ann", keys="rxubuq")
    assert sorted(row["verdict"] for row in rows(store, schema.marks)) == ["right", "unclear"]
    refused = run("review")
    assert refused.exit_code == 2
    assert "needs a terminal" in refused.stderr


def test_a_miss_that_is_marked_by_key_is_asked_for_its_type(store: str) -> None:
    ok("draw", "--size", "48")
    with Store(store).writing() as connection:
        for item, _ in queue(connection):
            if "Velmorians" not in item.text:
                review.mark(connection, item.id, "bob", "right")
    answers = "w" + "sexism\nculture\nVelmorians\nswap the price tags\n"
    ok("start", "--reviewer", "ann", keys=answers)
    [mark] = [row for row in rows(store, schema.marks) if row["reviewer"] == "ann"]
    named = (mark["bias_type"], mark["group_name"], mark["attribute_name"])
    assert named == ("culture", "Velmorians", "swap the price tags")


def test_confirmed_misses_and_false_alarms_are_exported_once(store: str, tmp_path: Path) -> None:
    ok("draw", "--size", "48")
    mark_all(store, bias_type="culture")
    lacking = run("review", "export", "--train", "corpus", "--json")
    assert json.loads(lacking.stdout)["statements"] == 0
    assert "has no type, group or attribute: guard review mark" in lacking.stderr
    mark_all(store, bias_type="culture", group="Velmorians", attribute="swap the price tags")
    assert run("index", "build", "--with-shipped", "--to", "own").exit_code == 0
    before = json.loads(run("index", "stats", "--index", "own", "--json").stdout)["statements"]
    for added in (1, 0):
        result = json.loads(ok("export", "--train", "corpus", "--index", "own", "--json"))
        assert (result["missed"], result["statements"], result["false_alarms"]) == (1, 1, 1)
        assert (result["index"]["added"], result["index"]["duplicates"]) == (added, 1 - added)
        assert result["index"]["statements"] == before + 1
    [statement] = read_statements(tmp_path / "corpus" / "statements.jsonl")
    assert statement.statement == MISSED.replace("\n", " ")
    assert (statement.bias_type, statement.group) == ("culture", "Velmorians")
    assert not statement.implicit
    [negative] = map(json.loads, (tmp_path / "corpus/negatives.jsonl").read_text().splitlines())
    assert negative["text"] == "A harmless BIAS at home."
    with (corpus_folder() / "negatives.jsonl").open() as shipped:
        assert set(json.loads(next(shipped))) == set(negative)
    assert "There is nowhere to write to" in sentence(run("review", "export"))


def test_rates_have_what_reviewed_samples_say(store: str) -> None:
    before = run("rates")
    assert before.stdout.splitlines()[1].split("\t")[6:] == ["n/a"] * 3
    assert "n/a: nothing is reviewed." in before.stderr
    ok("draw", "--size", "48")
    mark_all(store, bias_type="race", group="Velmorians", attribute="swap")
    shown = run("rates", "--by", "door")
    assert shown.stdout.splitlines()[0].split("\t")[-3:] == [
        "over blocking",
        "harmless stopped",
        "missed",
    ]
    assert shown.stdout.splitlines()[1].split("\t")[7].startswith("8.33 % [")
    by_type = run("rates", "--by", "bias_type", "--json")
    [line] = json.loads(by_type.stdout)["lines"]
    assert (line["bias_type"], line["missed"]["value"]) == ("gender", 0.0)
    assert "Reviewed, with no finding: race." in run("rates", "--by", "bias_type").stderr


def test_a_draw_of_nothing_is_one_sentence() -> None:
    ok("draw")
    assert "No segment was judged" in sentence(run("review", "draw"))
    assert "--since takes a time" in sentence(run("review", "draw", "--since", "soon"))
