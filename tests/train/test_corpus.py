"""The corpus holds no evaluation text, and its spans point at what they name."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from guard.datasets.groups import group_type
from guard.datasets.split import BOLD_SHARE
from guard.errors import UsageError
from guard.retrieve.phrases import (
    changed_part,
    find_phrase,
    find_stem,
    predicate_after,
    pronoun_and_predicate,
)
from guard.train import own, sources, stance
from guard.train.config import TrainConfig
from guard.train.corpus import (
    Sampler,
    _without_repeats,
    build_corpus,
    eval_folds,
    licensed_rows,
    says_any,
)
from guard.train.own import invented_group
from guard.train.rows import TrainingRow, fold, in_validation, share
from tests.data import DATA, digest, needs_data
from tests.train.own_rows import STATEMENTS, own_rows


def test_lines_are_read_as_objects(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "one\u2028two"}\r\n\n{"text": "three"}', encoding="utf-8")
    assert [r["text"] for r in sources.read_jsonl(path)] == ["one\u2028two", "three"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"rows\.jsonl cannot be read: .+\."),
        (b'{"text": "one"}\n{"text"', r"rows\.jsonl, line 2: the line is not JSON"),
        (b"\n[]", r"rows\.jsonl, line 2: the line is not a JSON object"),
        (b'{"text": "\xff"}', r"rows\.jsonl, line 1: the line is not UTF-8"),
    ],
)
def test_a_file_that_is_no_source_is_named(
    content: bytes | None, message: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "rows.jsonl").write_bytes(content)
    with pytest.raises(UsageError, match=message):
        list(sources.read_jsonl(tmp_path / "rows.jsonl"))


def no_text_crosses(data: Path, work: Path, least: int) -> None:
    """Build a corpus, and check that it holds no text that measures or validates."""
    corpus = build_corpus(TrainConfig(work=work, data=data, statements=STATEMENTS, invented=300))
    forbidden = eval_folds(data)
    assert len(forbidden) > least
    texts = {t for r in corpus.train for t in (r.text, *(p.text for p in r.partners))}
    assert not any(says_any(t, forbidden) for t in texts)
    contexts = {c for r in corpus.train for c in r.context}
    assert contexts
    assert not any(says_any(t, forbidden) for t in contexts)
    for row in corpus.train:
        assert row.source in ("invented", "renamed", "bare") or not in_validation(row.family)
    assert not {fold(s.text) for s in corpus.statements} & forbidden


@needs_data
@pytest.mark.slow("builds the whole corpus")
def test_no_text_crosses_from_evaluation_or_validation_into_training(tmp_path: Path) -> None:
    no_text_crosses(DATA, tmp_path, least=7000)


@pytest.fixture
def part(tmp_path: Path) -> Path:
    """The first lines of each file of the data; RedditBias also learns what measures."""
    folder = tmp_path / "data"
    for path in (p for p in DATA.rglob("*") if p.is_file()):
        to = folder / path.relative_to(DATA)
        to.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix != ".jsonl":
            shutil.copyfile(path, to)
            continue
        with path.open(encoding="utf-8") as lines:
            to.write_text("".join(islice(lines, 150)), encoding="utf-8")
    train, measuring = (folder / "redditbias" / f"{part}.jsonl" for part in ("train", "eval"))
    with train.open("a", encoding="utf-8") as file:
        file.write(measuring.read_text(encoding="utf-8"))
    return folder


@needs_data
def test_no_text_crosses_where_a_training_file_holds_evaluation_texts(
    part: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few_own_texts(monkeypatch)
    read, measuring = list(licensed_rows(part)), eval_folds(part)
    assert sum(says_any(row.text, measuring) for row in read) > 100
    for row in read:
        for span in (row.group, row.attribute):
            assert span is None or 0 <= span.start < span.end <= len(row.text)
    no_text_crosses(part, tmp_path / "work", least=500)


def few_own_texts(monkeypatch: pytest.MonkeyPatch, most: int = 300) -> None:
    """Of each file of own texts only the first lines are read."""
    for module in (own, stance):
        monkeypatch.setattr(
            module, "read_jsonl", lambda path: islice(sources.read_jsonl(path), most)
        )


def test_a_quota_takes_whole_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few_own_texts(monkeypatch)
    config = TrainConfig(
        work=tmp_path, data=None, statements=STATEMENTS, invented=6, epochs=1,
        quotas={"pairs": 201},
    )  # fmt: skip
    few, many = (
        Counter(r.family for r in rows if r.source == "pairs")
        for rows in (build_corpus(config).train, list(own.own_rows(STATEMENTS)))
    )
    assert many.total() > 400
    assert few.total() == 201
    assert sum(few[family] < many[family] for family in few) <= 1


large = pytest.mark.slow("reads a large source whole")


@needs_data
@pytest.mark.parametrize(
    ("rows", "read"),
    [
        pytest.param(sources.redditbias_rows, (18088, "e37bf32b02ba7268"), marks=large),
        (sources.stereoset_rows, (5016, "63c0b44643bef762")),
        (sources.hearts_rows, (4218, "7a89917cbb3d8d63")),
        pytest.param(sources.emgsd_rows, (56716, "177159b6009fa55a"), marks=large),
        (sources.toxigen_rows, (627, "ceaaddaeb2d93444")),
        (sources.bold_rows, (2867, "3e25ff572568e652")),
        pytest.param(sources.implicit_hate_rows, (33679, "8833751965b6bf6a"), marks=large),
        (sources.seegull_rows, (3164, "436ec4a2e7127989")),
        pytest.param(sources.licensed_texts, (92655, "dd2f26f60c208752"), marks=large),
    ],
)
def test_real_sources(rows: Callable[[Path], Iterable[object]], read: tuple[int, str]) -> None:
    assert digest(rows(DATA)) == read


@needs_data
@pytest.mark.slow("reads all sources whole")
def test_spans_stay_in_their_text() -> None:
    for row in licensed_rows(DATA):
        for span in (row.group, row.attribute):
            assert span is None or 0 <= span.start < span.end <= len(row.text)


def test_a_text_says_what_any_of_its_sentences_says() -> None:
    assert says_any("Stand Back, please!", {"stand back please"})
    text = "We had a long day. Stand back there, all of you!"
    assert says_any(text, {"stand back there all of you"})
    assert not says_any(text, {"stand back there"})


@needs_data
def test_measured_encyclopaedic_sentences_are_not_trained_on() -> None:
    rows = list(sources.bold_rows(DATA))
    assert rows
    assert all(share(r.text, "bold") < BOLD_SHARE for r in rows)


def test_own_texts_give_rows_of_both_labels() -> None:
    rows = own_rows()
    assert {r.biased for r in rows} == {True, False}
    assert all(r.text.strip() for r in rows)


def test_invented_rows_need_their_reference() -> None:
    predicates = own.predicate_pairs(held_back=False)
    rows = list(own.invented_rows(random.Random(1), own_rows(), predicates, 120))
    biased = [r for r in rows if r.biased and r.source == "invented"]
    assert biased
    for row in biased:
        assert row.alone is None
        assert row.partner_share == 1.0
        assert row.group is not None
        name = row.text[row.group.start : row.group.end]
        assert name.lower() in row.partners[0].text.lower()


def test_invented_groups_are_plural_names() -> None:
    names = {invented_group(random.Random(i)) for i in range(50)}
    assert len(names) > 40
    assert all(n[0].isupper() and n.isalpha() for n in names)


@pytest.mark.parametrize(
    ("group", "kind"),
    [
        ("gay Muslims", "orientation"),
        ("Black women", "race"),
        ("women", "gender"),
        ("old people", "age"),
        ("Mexicans", "culture"),
        ("liberals", "social"),
        ("the moon", None),
    ],
)
def test_group_types(group: str, kind: str | None) -> None:
    assert group_type(group) == kind


def test_span_finders() -> None:
    text = "All gay people are just weak."
    group = find_phrase(text, "gay people")
    assert group is not None
    said = predicate_after(text, group)
    assert said is not None
    assert text[slice(*said)] == "weak"
    deceit = find_stem("They are deceitful.", "deceit")
    assert deceit is not None
    assert "They are deceitful."[slice(*deceit)] == "deceitful"
    changed = changed_part("The poet can rhyme", ["The poet can rap", "The poet can fish"])
    assert changed is not None
    assert "The poet can rhyme"[slice(*changed)] == "rhyme"
    assert find_phrase("manners", "man") is None


def test_own_texts_of_several_segments_are_read_as_they_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = {
        "biased": "Should we hire Danes? Sure, if you like people who sulk. Ask anyone.",
        "harmless": "Should we hire Danes? Sure, if they like the job.",
        "bias_type": "culture",
        "group": "Danes",
        "attribute": "sulk",
    }
    harmless = {"text": "Who are they? Danes. They live here.", "kind": "x", "bias_type": "culture"}
    (tmp_path / "pairs.jsonl").write_text(json.dumps(pair) + "\n")
    (tmp_path / "negatives.jsonl").write_text(json.dumps(harmless) + "\n")
    (tmp_path / "statements.jsonl").write_text("")
    monkeypatch.setattr(own, "corpus_folder", lambda: tmp_path)
    first, second, third, biased, fair = own.own_rows(tmp_path / "statements.jsonl")
    assert [first.context, second.context, third.context] == [
        (),
        ("Who are they?",),
        ("Who are they?", "Danes."),
    ]
    assert third.text == "They live here."
    assert biased.text == "Sure, if you like people who sulk."
    assert biased.context == fair.context == ("Should we hire Danes?",)
    assert biased.family == fair.family
    assert fair.text == "Sure, if they like the job."
    # The group stands in another segment: what this one's spans are is not known.
    assert not biased.spans


def test_epochs_depend_on_the_seed_alone(tmp_path: Path) -> None:
    rows = own_rows()[:400]
    config = TrainConfig(work=tmp_path, data=None)
    first, again = Sampler(rows, config), Sampler(rows, config)
    assert first.epoch(3) == again.epoch(3)
    assert first.epoch(3) != first.epoch(4)
    drawn = [p.row for batch in first.epoch(0) for p in batch]
    assert len(drawn) == first.epoch_rows


def test_a_part_of_a_source_is_whole_pairs_and_other_ones_each_epoch(tmp_path: Path) -> None:
    rows = [r for r in own_rows() if r.source == "pairs"]
    config = TrainConfig(work=tmp_path, data=None, quotas={"pairs": len(rows) // 4}, foreign=0)
    sampler = Sampler(rows, config)
    drawn = [[rows[p.row] for batch in sampler.epoch(n) for p in batch] for n in range(2)]
    for picked in drawn:
        sizes = Counter(row.family for row in picked)
        assert len(picked) == len(rows) // 4
        assert sum(size == 1 for size in sizes.values()) <= 1
    common = {r.family for r in drawn[0]} & {r.family for r in drawn[1]}
    assert len(common) < len({r.family for r in drawn[0]}) / 2


def test_a_known_label_is_kept_before_an_unknown_one() -> None:
    unknown = TrainingRow("I agree!", True, "redditbias_rest", "a", known=False)
    known = TrainingRow("i agree", False, "redditbias_rest", "b")
    later = TrainingRow("I agree.", True, "not_hate", "c")
    elsewhere = replace(unknown, context=("They work.",))
    found = _without_repeats([unknown, known, later, elsewhere])
    assert sorted(found, key=lambda row: row.context) == [known, elsewhere]


def test_foreign_context_can_be_left_out(tmp_path: Path) -> None:
    rows = own_rows()[:6000]
    shares = {}
    for foreign in (0.0, 0.25, 1.0):
        sampler = Sampler(rows, TrainConfig(work=tmp_path, data=None, foreign=foreign))
        lone = [p for b in sampler.epoch(0) for p in b if not rows[p.row].context]
        shares[foreign] = sum(bool(p.context) for p in lone) / len(lone)
    assert (shares[0.0], shares[1.0]) == (0, 1)
    assert 0.2 < shares[0.25] < 0.3


def test_without_context_none_is_shown(tmp_path: Path) -> None:
    rows = own_rows()[:400]
    sampler = Sampler(rows, TrainConfig(work=tmp_path, data=None, context=False))
    assert not any(p.context for batch in sampler.epoch(0) for p in batch)


def test_pronoun_and_its_predicate_are_found() -> None:
    text = "She is as loud as ever."
    group, predicate = pronoun_and_predicate(text)
    assert group is not None
    assert predicate is not None
    assert (text[slice(*group)], text[slice(*predicate)]) == ("She", "is as loud as ever")
    assert pronoun_and_predicate("The whole street could hear it all night") == (None, None)
