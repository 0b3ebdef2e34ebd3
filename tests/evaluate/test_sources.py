"""Reading sets and CSV files: counts of the real files, and mistakes that name file and line."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from guard.datasets.groups import group_type, types_of_target
from guard.datasets.split import in_bold_share
from guard.errors import UsageError
from guard.evaluate.near import NEAR, far_from
from guard.evaluate.sources import FAR, SOURCES, UNSEEN, Dataset, load, present
from tests.data import digest


def table(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.csv"
    path.write_text(text, encoding="utf-8")
    return str(path)


def mistake(what: str, data_dir: Path = Path("nowhere")) -> str:
    with pytest.raises(UsageError) as caught:
        load(what, data_dir)
    return str(caught.value)


# --- the real files -------------------------------------------------------------------------


large = pytest.mark.slow("reads a large set, and what training knows of it")


@pytest.mark.parametrize(
    ("name", "biased", "texts", "read"),
    [
        pytest.param("redditbias", 992, 1728, "666ab9ae3bc80c5e", marks=large),
        ("crows_pairs", 683, 1582, "cf7c3e83372619c1"),
        ("toxicbias", 346, 432, "699d610f342a35ac"),
        pytest.param("emgsd", 1852, 5653, "b5cb073c0417d139", marks=large),
        pytest.param("stereobias", 1883, 3006, "ed1e6c1258b0701f", marks=large),
        ("stereoset", 1648, 5016, "c485fe6f7174082d"),
        ("hearts_seegull", 555, 1661, "8e112d7a363fdc67"),
        ("hearts_winoqueer", 883, 2557, "20b6b4c028f290b0"),
        ("toxigen_demos", 342, 627, "43394625e2a9b57e"),
        pytest.param("implicit_hate", 8187, 21477, "b1866a19683fdf4a", marks=large),
        ("implied", 6358, 6358, "7d7cee8577de0cbe"),
        pytest.param("bold", 0, 14282, "6949a86153791cbc", marks=large),
    ],
)
def test_real_sets(data: Path, name: str, biased: int, texts: int, read: str) -> None:
    dataset = load(name, data)
    assert dataset.total == texts
    assert sum(e.biased is True for e in dataset.examples) == biased
    assert dataset.skipped == []
    assert len({e.id for e in dataset.examples}) == texts
    # Hashed with all that is known of them, so that figures stay comparable.
    assert digest(dataset.examples) == (texts, read)


def test_every_set_is_present_where_the_data_is(data: Path) -> None:
    assert set(present(data)) == set(SOURCES)
    assert all(present(data).values())


@large
def test_real_redditbias_terms_are_found_in_nearly_all_biased_rows(data: Path) -> None:
    rows = [e for e in load("redditbias", data).examples if e.biased]
    assert len({e.axes["dimension"] for e in rows}) == 5
    for dimension in {e.axes["dimension"] for e in rows}:
        of = [e for e in rows if e.axes["dimension"] == dimension]
        assert sum(bool(e.groups and e.attributes) for e in of) / len(of) >= 0.98


@large
def test_real_crows_pairs(data: Path) -> None:
    examples = load("crows_pairs", data).examples
    assert len({e.unit for e in examples}) == 791
    assert sum(e.biased is None for e in examples) == 2 * 108
    assert sum(e.parts != () for e in examples) == 2 * 683


@large
def test_real_emgsd_parts_and_marks(data: Path) -> None:
    examples = load("emgsd", data).examples
    # The others share half of the 4-grams of a sentence with one training text.
    assert sum(FAR in e.parts for e in examples) == 1244
    assert sum(bool(e.attribute_spans) for e in examples if e.biased) >= 1655


@large
def test_real_bold_part_is_what_training_leaves_out(data: Path) -> None:
    for e in load("bold", data).examples:
        assert (UNSEEN in e.parts) is not in_bold_share(e.text)


def test_real_toxicbias_categories(data: Path) -> None:
    counts = Counter(e.axes["category"] for e in load("toxicbias", data).examples)
    assert counts["race"] == 153
    assert counts["none"] == 86


# --- near-duplicates ------------------------------------------------------------------------


def test_near_duplicates() -> None:
    training = ["the old pilot was late again today", "short one"]
    texts = [
        "The old pilot was late.",  # both of its two 4-grams
        "the old pilot was rude to us today",  # one of five
        "nothing alike stands there at all",
        "Short one!",
        "short two",
    ]
    assert far_from(texts, training) == [False, True, True, False, True]


# --- CSV ------------------------------------------------------------------------------------


def test_a_plain_csv(tmp_path: Path) -> None:
    path = table(tmp_path, 'text,label\n"Pilots, again.",1\n\nAll is well.,harmless\n')
    dataset = load(path, Path("nowhere"))
    assert [(e.text, e.biased, e.id) for e in dataset.examples] == [
        ("Pilots, again.", True, "mine.csv:2"),
        ("All is well.", False, "mine.csv:4"),
    ]
    assert dataset.name == "mine"
    assert len(dataset.sha256) == 64


def test_a_csv_with_every_column_and_others(tmp_path: Path) -> None:
    path = table(
        tmp_path,
        "\ufeffid,Label,Text,bias_type,group,attribute\n"
        "7,yes,Pilots are late.,social|age,pilots,late\n",
    )
    (example,) = load(path, Path("nowhere")).examples
    assert example.bias_types == ("social", "age")
    assert (example.groups, example.attributes) == (("pilots",), ("late",))


def test_lines_are_counted_where_rows_begin(tmp_path: Path) -> None:
    path = table(tmp_path, 'text,label\n"two\nlines",1\nfine,0\nbad,maybe\n')
    assert "mine.csv, line 5: label 'maybe' is not one of 1, biased" in mistake(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty."),
        ("text,label\n", "has no text with a label"),
        ("text\nfine\n", "line 1: the header lacks label"),
        ("a,b\nfine,1\n", "line 1: the header lacks text and label"),
        ("text,label\nfine,1,2\n", "line 2: the row has 3 fields, the header 2"),
        ("text,label\nfine,1\nfine\n", "line 3: the row has 1 fields, the header 2"),
        ("text,label\n ,1\n", "line 2: the field text is empty"),
        ("text,label\nfine,\n", "line 2: label '' is not one of"),
        (
            "text,label,bias_type\nfine,1,weather\n",
            "line 2: bias type 'weather' is not one of gender",
        ),
        ('text,label\n"open,1\nfine,0\n', "line 2: the table is broken"),
        ('text,label\n"a"b,1\n', "line 2: the table is broken"),
    ],
)
def test_mistakes_in_a_csv(tmp_path: Path, text: str, said: str) -> None:
    assert said in mistake(table(tmp_path, text))


def test_a_csv_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "latin.csv"
    path.write_bytes("text,label\nfine,0\ncafé,1\n".encode("latin-1"))
    assert "latin.csv, line 3: the field text is not UTF-8 text" in mistake(str(path))


def test_bad_rows_are_skipped_on_request_and_counted(tmp_path: Path) -> None:
    path = table(tmp_path, 'text,label\nfine,0\nbad,maybe\n"a"b,1\nshort\nalso fine,1\n')
    dataset = load(path, Path("nowhere"), skip_bad=True)
    assert [e.text for e in dataset.examples] == ["fine", "also fine"]
    assert [s.split(": ")[0].split(", ")[1] for s in dataset.skipped] == [
        "line 3",
        "line 4",
        "line 5",
    ]


def test_names_that_are_nothing(tmp_path: Path) -> None:
    said = mistake("redditbais")
    assert "neither a known set" in said
    assert "redditbias" in said
    (tmp_path / "rows.jsonl").write_text("{}")
    assert "is not a CSV file" in mistake(str(tmp_path / "rows.jsonl"))
    assert "no folder of evaluation data at nowhere; set --data-dir" in mistake("emgsd")
    assert "The set emgsd needs" in mistake("emgsd", tmp_path)


# --- JSON lines -----------------------------------------------------------------------------


def posts(tmp_path: Path, *lines: str) -> Path:
    folder = tmp_path / "implicit_hate"
    folder.mkdir()
    (folder / "posts.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path


FINE = json.dumps({"post": "fine\u2028here", "label": "not_hate"}, ensure_ascii=False)


def test_bad_json_lines(tmp_path: Path) -> None:
    folder = posts(tmp_path, FINE, "", "{broken", "[1]", FINE)
    assert "posts.jsonl, line 3: the line is not JSON. Correct the row" in mistake(
        "implicit_hate", folder
    )
    dataset = load("implicit_hate", folder, skip_bad=True)
    assert [e.id for e in dataset.examples] == [
        "implicit_hate/posts.jsonl:1",
        "implicit_hate/posts.jsonl:5",
    ]
    assert "line 4: the line is not a JSON object" in dataset.skipped[1]


def test_redditbias_without_its_lists(tmp_path: Path) -> None:
    folder = tmp_path / "redditbias"
    folder.mkdir()
    (folder / "eval.jsonl").write_text("{}\n")
    assert "term list" in mistake("redditbias", tmp_path)


# --- drawing --------------------------------------------------------------------------------


def drawn(tmp_path: Path, limit: int, seed: int = 0) -> Dataset:
    rows = "".join(f"text {i},{i % 2}\n" for i in range(50))
    return load(table(tmp_path, "text,label\n" + rows), Path("nowhere"), limit=limit, seed=seed)


def test_a_random_part(tmp_path: Path) -> None:
    some = drawn(tmp_path, 10)
    assert len(some.examples) == 10
    assert some.total == 50
    assert some.examples == drawn(tmp_path, 10).examples
    assert some.examples != drawn(tmp_path, 10, seed=1).examples
    assert len(drawn(tmp_path, 99).examples) == 50


def test_pairs_are_drawn_whole(part: Path) -> None:
    some = load("crows_pairs", part, limit=101)
    assert len(some.examples) == 100
    assert set(Counter(e.unit for e in some.examples).values()) == {2}


# --- implied statements ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "types"),
    [
        ("Black women", ("race", "gender")),
        ("non-white people", ("race",)),
        ("illegal immigrants", ("culture",)),
        ("white liberals", ("race", "social")),
        ("not specified", ()),
        ("", ()),
    ],
)
def test_types_of_a_target(target: str, types: tuple[str, ...]) -> None:
    assert types_of_target(target) == types


def test_real_implied_statements(data: Path) -> None:
    examples = load("implied", data).examples
    assert sum(bool(e.bias_types) for e in examples) / len(examples) > 0.9
    assert sum(bool(e.groups) for e in examples) / len(examples) > 0.95
    # Training names one type a group; where both know one, ours is nearly always among them.
    both = [
        (kind, e.bias_types)
        for e in examples
        if e.groups and e.bias_types and (kind := group_type(e.groups[0]))
    ]
    assert sum(kind in types for kind, types in both) / len(both) > 0.98


# --- near-duplicates of real sets -----------------------------------------------------------


def test_near_duplicates_of_a_few_training_texts_are_said_on_an_axis(part: Path) -> None:
    crows = load("crows_pairs", part).examples
    near = {e.unit for e in crows if e.axes[NEAR] == "yes"}
    assert len(near) >= 3
    assert {e.unit for e in crows if e.axes[NEAR] == "no"} == {e.unit for e in crows} - near
    examples = load("redditbias", part).examples
    assert sum(e.axes[NEAR] == "yes" for e in examples) >= 3
    assert all((FAR in e.parts) is (e.axes[NEAR] == "no") for e in examples)


@large
def test_near_duplicates_are_said_on_an_axis(data: Path) -> None:
    crows = load("crows_pairs", data).examples
    assert {e.axes[NEAR] for e in crows} == {"yes", "no"}
    for e, other in zip(crows[::2], crows[1::2], strict=True):
        assert e.unit == other.unit
        assert e.axes[NEAR] == other.axes[NEAR]
    for name in ("emgsd", "redditbias"):
        examples = load(name, data).examples
        assert {e.axes[NEAR] for e in examples} == {"yes", "no"}
        assert all((FAR in e.parts) is (e.axes[NEAR] == "no") for e in examples)


def test_without_training_texts_nothing_is_said_of_near_duplicates(tmp_path: Path) -> None:
    folder = tmp_path / "crows_pairs"
    folder.mkdir()
    row = {"sent_more": "a b", "sent_less": "a c", "direction": "stereo", "bias_type": "age"}
    (folder / "eval.jsonl").write_text(json.dumps(row) + "\n")
    assert all(NEAR not in e.axes for e in load("crows_pairs", tmp_path).examples)
