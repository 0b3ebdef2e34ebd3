"""Every layout in which a source is published, written anew here; and the real files, where had."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.errors import UsageError
from guard.retrieve.importers import FORMATS, read_dataset
from guard.retrieve.importers.frame import group_in, people_sentence
from guard.retrieve.importers.named import find_named, find_predicate
from guard.retrieve.statement import BiasStatement, read_statements, statement_lines
from guard.verdict import BIAS_TYPES, BiasType
from tests.data import DATA, digest, needs_data
from tests.retrieve.test_statement import statements
from tests.rows import examples

# Words with whatever a table has to quote.
words = st.text(
    st.characters(categories=("L", "N", "P", "S")) | st.sampled_from(' ,;|"'), max_size=9
)
word = words.map(lambda text: f"w{text}w")
statement = statements(word)

SBIC = (
    "whoTarget intentYN sexYN sexReason offensiveYN annotatorGender annotatorMinority sexPhrase "
    "speakerMinorityYN WorkerId HITId annotatorPolitics annotatorRace annotatorAge post "
    "targetMinority targetCategory targetStereotype dataSource"
).split()
SBIC_AGG = (
    "post targetMinority targetCategory targetStereotype whoTarget intentYN sexYN offensiveYN "
    "dataSource hasBiasedImplication"
).split()


def table(path: Path, header: Sequence[str], *rows: dict[str, str], delimiter: str = ",") -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, header, restval="", delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return path


def objects(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def facts(found: Iterable[BiasStatement]) -> list[tuple[str, BiasType, str, str]]:
    return [(s.statement, s.bias_type, s.group, s.attribute) for s in found]


# --- SBIC ------------------------------------------------------------------------------------


def sbic(group: str, category: str, said: str) -> dict[str, str]:
    return {
        "HITId": "h",
        "post": "A post, with a comma.",
        "targetMinority": group,
        "targetCategory": category,
        "targetStereotype": said,
    }


def agg(groups: list[str], categories: list[str], said: list[str]) -> dict[str, str]:
    columns = SBIC_AGG[1:4]
    values = dict(zip(columns, map(json.dumps, (groups, categories, said)), strict=True))
    return {"post": "A post.", "hasBiasedImplication": str(int(not said)), **values}


def test_sbic_annotations(tmp_path: Path) -> None:
    path = table(
        tmp_path / "SBIC.v2.trn.csv",
        SBIC,
        sbic("ruritanian folks", "culture", "ruritanian people are thieves"),
        sbic("", "", ""),
        sbic("women", "gender", "women can't park"),
        sbic("gay men", "gender", "gay men spread gossip"),
        sbic("jewish folks", "culture", "jews hide money"),
        sbic("deaf people", "disabled", "are a burden"),
        sbic("old folks", "body", "old people are slow"),
        sbic("storm victims", "victim", "this is a joke about storms"),
        sbic("black folks, latino folks", "race", "latino people cannot be trusted"),
    )
    found = list(read_dataset(path))
    assert facts(found) == [
        ("ruritanian people are thieves", "culture", "ruritanian people", "thieves"),
        ("women can't park", "gender", "women", "can't park"),
        ("gay men spread gossip", "orientation", "gay men", "spread gossip"),
        ("jews hide money", "religion", "jews", "hide money"),
        ("Deaf people are a burden", "disability", "Deaf people", "burden"),
        ("old people are slow", "age", "old people", "slow"),
        ("this is a joke about storms", "social", "storms", "this is a joke about"),
        ("latino people cannot be trusted", "race", "latino people", "cannot be trusted"),
    ]
    assert {s.note for s in found} == {"SBIC"}


def test_an_implied_statement_without_its_group_is_implicit(tmp_path: Path) -> None:
    path = table(
        tmp_path / "s.csv", SBIC, sbic("ruritanians", "culture", "nobody wants them around.")
    )
    (found,) = read_dataset(path)
    assert found.implicit
    assert (found.group, found.attribute) == ("ruritanians", "nobody wants them around")


def test_sbic_aggregated(tmp_path: Path) -> None:
    path = table(
        tmp_path / "SBIC.v2.agg.trn.csv",
        ["", *SBIC_AGG],
        agg(["women"], ["gender"], ["women are weak", "women cannot lead"]),
        agg([], [], []),
        agg(["black folks", "women"], ["gender", "race"], ["women are loud", "they are loud"]),
        agg(["ruritanians"], [], ["ruritanians are loud"]),
    )
    told: list[str] = []
    assert facts(read_dataset(path, skipped=told.append)) == [
        ("women are weak", "gender", "women", "weak"),
        ("women cannot lead", "gender", "women", "cannot lead"),
        ("women are loud", "gender", "women", "loud"),
    ]
    assert told == [
        f"{path}: 1 of its statements left out: several groups are targeted, and the statement "
        "names none of them",
        f"{path}: 1 of its statements left out: unknown bias type",
    ]


def test_a_lone_surrogate_in_a_list_of_sbic_is_named(tmp_path: Path) -> None:
    row = agg(["old folks"], ["body"], ["old folks are \ud800 slow"])
    path = table(tmp_path / "SBIC.v2.agg.trn.csv", SBIC_AGG, row)
    with pytest.raises(UsageError, match=r"line 2: .*lone surrogate"):
        list(read_dataset(path))
    row["targetStereotype"] = "[" * 100_000
    table(path, SBIC_AGG, row)
    with pytest.raises(UsageError, match=r"line 2: 'targetstereotype' is not a JSON list"):
        list(read_dataset(path))


def test_a_stereoset_item_nested_too_deeply_is_named(tmp_path: Path) -> None:
    path = tmp_path / "dev.json"
    path.write_text('{"data": {"intrasentence": [' + "[" * 200_000, encoding="utf-8")
    with pytest.raises(UsageError, match="item 1 of 'intrasentence' is nested too deeply"):
        list(read_dataset(path))


def test_a_broken_list_of_sbic_is_named(tmp_path: Path) -> None:
    row = agg(["women"], ["gender"], ["women are weak"]) | {"targetStereotype": "[weak"}
    path = table(tmp_path / "agg.csv", SBIC_AGG, row)
    with pytest.raises(
        UsageError, match=r"agg\.csv, line 2: 'targetstereotype' is not a JSON list"
    ):
        list(read_dataset(path))


# --- implicit-hate ---------------------------------------------------------------------------

IMPLIED = [
    {"post": "p", "target": "Immigrants", "implied_statement": "Immigrants take all jobs."},
    {"post": "p", "target": "Muslims", "implied_statement": "We must watch all Muslims"},
    {"post": "p", "target": "Nobody", "implied_statement": "Nobody is good"},
    {"post": "p", "target": "", "implied_statement": ""},
]
FROM_IMPLIED = [
    ("Immigrants take all jobs.", "culture", "Immigrants", "take all jobs"),
    ("We must watch all Muslims", "religion", "Muslims", "We must watch"),
]


@pytest.mark.parametrize("form", ["tsv", "jsonl"])
def test_implicit_hate(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"implicit_hate_v1_stg3_posts.{form}"
    if form == "tsv":
        table(path, list(IMPLIED[0]), *IMPLIED, delimiter="\t")
    else:
        objects(path, *IMPLIED)
    told: list[str] = []
    found = list(read_dataset(path, skipped=told.append))
    assert facts(found) == FROM_IMPLIED
    assert {s.note for s in found} == {"implicit-hate"}
    assert told == [f"{path}: 1 of its statements left out: unknown bias type"]


# --- SeeGULL ---------------------------------------------------------------------------------

SEEGULL = (
    "identity,attribute,region_stereo,region_nonstereo,region_unsure,NA_stereo,NA_nonstereo,"
    "us_unsure,Annotation1,Annotation2,Annotation3,mean offensiveness_score"
).split(",")


def test_seegull(tmp_path: Path) -> None:
    def pair(identity: str, attribute: str, votes: int) -> dict[str, str]:
        return {"identity": identity, "attribute": attribute, "region_stereo": str(votes)}

    path = table(
        tmp_path / "stereotypes_global_v2.csv",
        SEEGULL,
        pair("Ruritanian", "lazy", 2),
        pair("Ruritanian", "late", 1),
        pair(".Ruritanian", "love_tea", 3),
        pair("Ruritanian", "ruritanian", 3),
    )
    found = list(read_dataset(path))
    assert facts(found) == [
        ("Ruritanian people are lazy.", "culture", "Ruritanian people", "lazy"),
        ("Ruritanian people love tea.", "culture", "Ruritanian people", "love tea"),
    ]
    assert {s.note for s in found} == {"SeeGULL"}
    again = objects(
        tmp_path / "pairs.jsonl",
        {"identity": "Ruritanian", "attribute": "lazy", "region_votes": 2, "na_votes": 0},
    )
    assert list(read_dataset(again)) == found[:1]


@pytest.mark.parametrize(
    ("attribute", "made"),
    [
        ("rude", "are rude"),
        ("thief", "are thieves"),
        ("businessman", "are businessmen"),
        ("drug dealer", "are drug dealers"),
        ("eat cabbage", "eat cabbage"),
        ("likes cabbage", "like cabbage"),
        ("who love cabbage", "love cabbage"),
        ("corruption", "are known for corruption"),
        ("good at soccer", "are good at soccer"),
        ("educate", "are educated"),
        ("self center", "are self centered"),
        ("passionate", "are passionate"),
        ("bad teeth", "have bad teeth"),
        ("lot of sheep", "have a lot of sheep"),
        ("cabbage love", "are cabbage loving"),
        ("anti-gun control", "are anti-gun control"),
        ("clever", "are clever"),
        ("gypsy", "are gypsies"),
        ("witch", "are witches"),
        ("terrify", "are terrified"),
    ],
)
def test_a_frame_fits_the_word(attribute: str, made: str) -> None:
    text, span = people_sentence("Ruritanian people", attribute)
    assert text == f"Ruritanian people {made}."
    assert text[slice(*span)] in made


@pytest.mark.parametrize(
    ("identity", "group"),
    [
        ("Ruritanian", "Ruritanian people"),
        ("Ruritanians", "Ruritanians"),
        ("Swiss", "Swiss people"),
        ("New Yorker", "New Yorkers"),
        ("New Zealand", "People from New Zealand"),
        ("United States", "People from the United States"),
    ],
)
def test_a_people_as_a_sentence_begins(identity: str, group: str) -> None:
    assert group_in(identity) == group


# --- EMGSD -----------------------------------------------------------------------------------

EMGSD = "text text_with_marker category stereotype_type data_source label".split()


def emgsd(marked: str, category: str, kind: str) -> dict[str, str]:
    label = category if category == "unrelated" else f"{category}_{kind}"
    return {
        "text": marked.replace("===", ""),
        "text_with_marker": marked,
        "category": category,
        "stereotype_type": kind,
        "data_source": "somewhere",
        "label": label,
    }


def test_emgsd_as_published(tmp_path: Path) -> None:
    path = table(
        tmp_path / "train.csv",
        EMGSD,
        emgsd("The nurse is ===bossy=== at work.", "stereotype", "profession"),
        emgsd("The nurse is at work.", "neutral", "profession"),
        emgsd("The nurse is a lamp.", "unrelated", "profession"),
        emgsd("My Peruvian uncle is here. ===He is always late.===", "stereotype", "nationality"),
        emgsd("Gay people are ===vain===.", "stereotype", "lgbtq+"),
        emgsd("Something is ===vain===.", "stereotype", "gender"),
    )
    told: list[str] = []
    found = list(read_dataset(path, skipped=told.append))
    assert facts(found) == [
        ("The nurse is bossy at work.", "social", "nurse", "bossy"),
        (
            "My Peruvian uncle is here. He is always late.",
            "culture",
            "Peruvian",
            "He is always late.",
        ),
        ("Gay people are vain.", "orientation", "Gay people", "vain"),
    ]
    assert {s.note for s in found} == {"EMGSD"}
    assert told == [f"{path}: 1 of its statements left out: no group is named"]


def test_emgsd_of_a_text_and_a_label(tmp_path: Path) -> None:
    path = objects(
        tmp_path / "train.jsonl",
        {"text": "The Peruvian woman came in. She was very loud.", "label": 1},
        {"text": "The Peruvian woman came in.", "label": 0},
    )
    with pytest.raises(UsageError, match="not recognised by the columns"):
        read_dataset(path)
    assert facts(read_dataset(path, "emgsd")) == [
        ("The Peruvian woman came in. She was very loud.", "culture", "Peruvian woman", "loud")
    ]


def test_emgsd_takes_the_group_that_a_row_states(tmp_path: Path) -> None:
    row = {"text": "All queer folk are vain.", "label": "stereotype", "group": "Queer"}
    unlisted = {"text": "The Ruritanian man is vain.", "label": 1, "group": "Ruritanian"}
    path = objects(tmp_path / "train.jsonl", row, unlisted)
    told: list[str] = []
    assert facts(read_dataset(path, "emgsd", skipped=told.append)) == [
        ("All queer folk are vain.", "orientation", "queer folk", "vain")
    ]
    assert told == [f"{path}: 1 of its statements left out: unknown bias type"]


@pytest.mark.parametrize(
    ("text", "kind", "group", "attribute"),
    [
        ("The policemen's wives were bored.", "social", "policemen", "wives were bored"),
        ("I saw a Bengali woman. She was shy.", "culture", "Bengali woman", "shy"),
        ("My Sri Lankan maid is slow.", "culture", "Sri Lankan", "maid is slow"),
        ("The actresses cried.", "social", "actresses", "cried"),
        ("We went to Peru. The food was bad.", "culture", "Peru", "The food was bad"),
        ("The black dress was short.", None, "", ""),
    ],
)
def test_groups_in_running_text(text: str, kind: str | None, group: str, attribute: str) -> None:
    found = find_named(text)
    if kind is None:
        assert found is None
        return
    assert found is not None
    assert (found.bias_type, text[slice(*found.group)]) == (kind, group)
    span = find_predicate(text, found.group)
    assert span is not None
    assert text[slice(*span)] == attribute


# --- StereoSet -------------------------------------------------------------------------------

ITEM = {
    "id": "1",
    "target": "Ruritanian",
    "bias_type": "race",
    "context": "The Ruritanian is BLANK.",
    "sentences": [
        {"id": "a", "sentence": "The Ruritanian is lazy.", "gold_label": "stereotype"},
        {"id": "b", "sentence": "The Ruritanian is keen.", "gold_label": "anti-stereotype"},
        {"id": "c", "sentence": "The Ruritanian is lamp.", "gold_label": "unrelated"},
    ],
}
NATION = ITEM | {
    "target": "Peru",
    "sentences": [
        {"sentence": "People of Peru like to steal.", "gold_label": "stereotype"},
        {"sentence": "People of Peru like to learn.", "gold_label": "anti-stereotype"},
    ],
}
FROM_ITEMS = [
    ("The Ruritanian is lazy.", "race", "Ruritanian", "lazy"),
    ("People of Peru like to steal.", "culture", "Peru", "steal"),
]


@pytest.mark.parametrize("indent", [None, 2])
def test_stereoset_as_published(tmp_path: Path, indent: int | None) -> None:
    path = tmp_path / "dev.json"
    other = ITEM | {"context": 'A "quoted" [bracket] and "intrasentence": [word.'}
    data = {"intersentence": [other] * 200, "intrasentence": [ITEM, NATION]}
    whole = {"version": "1.1", "data": data}
    path.write_text(json.dumps(whole, indent=indent), encoding="utf-8")
    found = list(read_dataset(path))
    assert facts(found) == FROM_ITEMS
    assert {s.note for s in found} == {"StereoSet"}


def variants(*items: dict[str, object]) -> list[dict[str, object]]:
    return [
        {
            "text": one["sentence"],
            "label": one["gold_label"],
            "target": item["target"],
            "bias_type": item["bias_type"],
            "item": str(number),
        }
        for number, item in enumerate(items)
        for one in item["sentences"]  # type: ignore[attr-defined]
    ]


def test_stereoset_one_variant_a_line(tmp_path: Path) -> None:
    path = objects(tmp_path / "intrasentence.jsonl", *variants(ITEM, NATION))
    assert facts(read_dataset(path)) == FROM_ITEMS


def test_a_cut_stereoset_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "dev.json"
    whole = json.dumps({"version": "1.1", "data": {"intrasentence": [ITEM, NATION]}}, indent=1)
    path.write_text(whole[: whole.index("People of Peru like to learn")], encoding="utf-8")
    # What follows a broken item cannot be found again: skip_bad does not help.
    found = read_dataset(path, skip_bad=True)
    assert facts([next(found)]) == FROM_ITEMS[:1]
    with pytest.raises(UsageError, match=r"dev\.json, line \d+: item 2 of 'intrasentence'"):
        next(found)


def test_a_stereoset_file_without_its_list_is_named(tmp_path: Path) -> None:
    path = tmp_path / "dev.json"
    path.write_text('{"version": "1.1", "data": {"intersentence": []}}', encoding="utf-8")
    with pytest.raises(UsageError, match="no list named 'intrasentence'"):
        list(read_dataset(path))


def test_an_unknown_label_of_stereoset_is_named(tmp_path: Path) -> None:
    rows = variants(ITEM, NATION)
    rows[1]["label"] = "funny"
    path = objects(tmp_path / "s.jsonl", *rows)
    with pytest.raises(UsageError, match=r"line 1: a label is not one of stereotype"):
        list(read_dataset(path))
    assert facts(read_dataset(path, skip_bad=True)) == FROM_ITEMS[1:]


# --- one's own files -------------------------------------------------------------------------

OWN = BiasStatement(
    "Those Ruritanians never pay.", "culture", "Ruritanians", "never pay", note="mine"
)
HEADER = ("statement", "bias_type", "group", "attribute", "implicit", "note")


@examples(40)
@given(st.lists(statement, max_size=4), st.sampled_from(",;\t|"), st.booleans())
def test_statements_written_as_csv_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, many: list[BiasStatement], delimiter: str, bom: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "own.csv"
    text = io.StringIO()
    writer = csv.DictWriter(text, HEADER, delimiter=delimiter)
    writer.writeheader()
    writer.writerows(asdict(s) for s in many)
    path.write_bytes(text.getvalue().encode("utf-8-sig" if bom else "utf-8"))
    assert list(read_dataset(path)) == many
    assert list(read_dataset(path, "csv")) == many


@examples(40)
@given(st.lists(statement, min_size=1, max_size=4))
def test_statements_written_as_json_lines_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, many: list[BiasStatement]
) -> None:
    path = tmp_path_factory.getbasetemp() / "own.jsonl"
    path.write_text(statement_lines(many), encoding="utf-8")
    assert list(read_dataset(path)) == many
    assert tuple(read_dataset(path, "jsonl")) == read_statements(path)


@pytest.mark.parametrize(("flag", "implicit"), [("Yes", True), ("1", True), ("", False)])
def test_implicit_in_a_table(tmp_path: Path, flag: str, implicit: bool) -> None:
    path = table(tmp_path / "own.csv", HEADER, asdict(OWN) | {"implicit": flag})
    (found,) = read_dataset(path)
    assert found.implicit is implicit


# --- what is wrong is named ------------------------------------------------------------------

GOOD = "statement,bias_type,group,attribute\nThose Ruritanians never pay.,culture,Ruritanians,pay\n"


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        (b"Rude.,culture,They", "the row has 3 fields, the header 4"),
        (b'"Rude"y.,culture,They,rude', "the table is broken"),
        (b"Rude.,manners,They,rude", "unknown bias type 'manners'"),
        (b"Rude.,culture,,rude", "'group' is empty"),
        (b"R\xfcde.,culture,They,rude", "'statement' is not UTF-8 text; convert the file"),
        (b'"Ru\nde.",culture,They,rude', "'statement' has a line break"),
    ],
)
def test_a_broken_row_is_named_or_skipped(tmp_path: Path, row: bytes, wrong: str) -> None:
    path = tmp_path / "own.csv"
    path.write_bytes(GOOD.encode() + row + b"\n" + GOOD.encode().split(b"\n")[1] + b"\n")
    with pytest.raises(UsageError) as caught:
        list(read_dataset(path))
    assert str(caught.value).startswith(f"{path}, line 3: ")
    assert wrong in str(caught.value)
    assert "--skip-bad" in str(caught.value)
    told: list[str] = []
    assert len(list(read_dataset(path, skip_bad=True, skipped=told.append))) == 2
    (reason,) = told
    assert reason.startswith(f"{path}, line 3: ")
    assert wrong in reason


def test_a_broken_first_row_is_named(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text(GOOD.replace(",pay", ""), encoding="utf-8")
    with pytest.raises(UsageError, match="line 2: the row has 3 fields"):
        list(read_dataset(path))
    path.write_text(f'{{"statement":\n{statement_lines([OWN])}', encoding="utf-8")
    assert list(read_dataset(path, skip_bad=True)) == [OWN]
    with pytest.raises(UsageError, match="line 1: the line is not JSON"):
        list(read_dataset(path))


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("{", "the line is not JSON"),
        ("7", "not a JSON object"),
        (json.dumps(asdict(OWN) | {"note": "\ud800"}), "'note' is not UTF-8 text"),
        ("[" * 200_000, "nested too deeply"),
        (json.dumps(asdict(OWN) | {"implicit": "perhaps"}), "'implicit' must be true or false"),
        (json.dumps(asdict(OWN) | {"group": 7}), "'group' must be a string"),
        (json.dumps({"statement": "They are rude."}), "'bias_type' is missing"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: str, wrong: str) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text(f"{statement_lines([OWN])}\n{line}\n", encoding="utf-8")
    with pytest.raises(UsageError, match="line 3: ") as caught:
        list(read_dataset(path))
    assert wrong in str(caught.value)


def test_a_quote_left_open_is_named_by_the_line_it_opens_in(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text(f'{GOOD}"They are rude.,culture,They,rude\n\n\n', encoding="utf-8")
    with pytest.raises(UsageError, match="line 3: the table is broken"):
        list(read_dataset(path))


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"colour,size\nred,2\n", "the format is not recognised by the columns (colour, size)"),
        (b'[{"statement": "x"}]', "is a JSON list"),
        (GOOD.encode("utf-16"), "is UTF-16; save it as UTF-8"),
        (GOOD.encode("utf-16-be"), "is UTF-16; save it as UTF-8"),
        (GOOD.encode().replace(b"\n", b"\r"), "ends its lines with CR alone"),
        (b"statement,bias_type,group\n", "has no column attribute; a file of statements"),
        (b"statement,type\n", "has no column bias_type, no column group, no column attribute;"),
    ],
)
def test_a_file_that_is_no_source_is_named(tmp_path: Path, content: bytes, wrong: str) -> None:
    path = tmp_path / "some.csv"
    path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        read_dataset(path)
    assert wrong in str(caught.value)


def test_a_missing_file_and_a_wrong_format_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent\.csv cannot be read"):
        read_dataset(tmp_path / "absent.csv")
    path = tmp_path / "own.csv"
    path.write_text(GOOD, encoding="utf-8")
    with pytest.raises(UsageError, match=f"formats are {', '.join(FORMATS)}"):
        read_dataset(path, "xml")
    with pytest.raises(UsageError, match="is not seegull: it has no identity, no region_stereo"):
        read_dataset(path, "seegull")


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_unused_columns_are_reported_once(tmp_path: Path, form: str) -> None:
    path, told = tmp_path / f"own.{form}", list[str]()
    rows = [{**asdict(OWN), "implicit": "no", "id": str(n), "source": "x"} for n in range(3)]
    if form == "csv":
        table(path, (*HEADER, "id", "source"), *rows)
    else:
        objects(path, *rows)
    assert list(read_dataset(path, skipped=told.append)) == [OWN] * 3
    (reason,) = told
    assert "unused columns: id, source; the columns in use are statement" in reason


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
def test_a_pipe_is_refused_with_the_reason(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match=r"is a pipe or a device.*write it to a file first"):
        read_dataset(tmp_path / "pipe")


def test_a_file_is_read_as_it_is_needed(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text(GOOD + "broken\n", encoding="utf-8")
    found = read_dataset(path)
    assert next(found).group == "Ruritanians"
    with pytest.raises(UsageError):
        next(found)


# --- the real files --------------------------------------------------------------------------


@needs_data
@pytest.mark.parametrize(
    ("file", "form", "statements"),
    [
        ("implicit_hate/implied.jsonl", None, (6075, "f1faeefdbabe2d19")),
        ("seegull/pairs.jsonl", None, (3152, "5d7b05129b128782")),
        ("stereoset/intrasentence.jsonl", None, (1648, "9537661bb75611c3")),
        ("emgsd/eval.jsonl", None, (1770, "37e5f8694932b95e")),
        pytest.param(
            "emgsd/train.jsonl",
            "emgsd",
            (14584, "649a4d74ac32c417"),
            marks=pytest.mark.slow("reads a large source whole"),
        ),
        ("hearts/winoqueer_gpt.jsonl", "emgsd", (882, "8ef5817979777514")),
    ],
)
def test_real_sources(file: str, form: str | None, statements: tuple[int, str]) -> None:
    found = list(read_dataset(DATA / file, form))
    assert digest(found) == statements
    assert len({s.note for s in found}) == 1
    assert {s.bias_type for s in found} <= set(BIAS_TYPES)
    for one in found:
        if not one.implicit:
            assert one.group in one.statement
            assert one.attribute in one.statement
