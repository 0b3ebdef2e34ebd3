"""``guard index`` as a user meets it, with the shipped detector."""

from __future__ import annotations

import json
import os
import shlex
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from guard import places
from guard.cli.index import FORMATS
from guard.places import ENCODERS, shipped_index
from guard.retrieve import importers
from guard.retrieve.folder import manifest_bytes
from guard.retrieve.index import BiasIndex
from tests.cli.test_cli import run, sentence
from tests.retrieve.test_index import make
from tests.small import INDEX

ROWS = [
    ("Velmorians swap the price tags in shops.", "culture", "Velmorians", "swap the price tags"),
    ("velmorians swap the price tags, in shops", "culture", "Velmorians", "swap the price tags"),
    ("Tarkandians never pay back a loan.", "culture", "Tarkandians", "never pay back a loan"),
    ("Brimonians only talk about the harvest.", "culture", "Brimonians", "talk of the harvest"),
]
pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.fixture
def file(tmp_path: Path) -> str:
    keys = ("statement", "bias_type", "group", "attribute")
    lines = [json.dumps(dict(zip(keys, row, strict=True))) for row in ROWS]
    (tmp_path / "mine.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return "mine.jsonl"


def ok(*args: str) -> Any:
    result = run("index", *args, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_whole_life_of_an_index(file: str, tmp_path: Path) -> None:
    made = ok("build", file, "--to", "own")
    assert (made["added"], made["duplicates"], made["statements"]) == (3, 1, 3)
    assert made["version"] == BiasIndex.load(tmp_path / "own", None).version
    found = ok("search", "They do not return what they borrow", "--index", "own", "-k", "2")
    assert found["version"] == made["version"]
    assert len(found["references"]) == 2
    assert found["references"][0]["group"] == "Tarkandians"
    again = ok("add", file, "--index", "own")
    assert (again["added"], again["duplicates"], again["version"]) == (0, 4, made["version"])
    gone = ok("remove", "--index", "own", "--group", "velmorians")
    assert (gone["removed"], gone["statements"]) == (1, 2)
    ok("remove", "--index", "own", "--statement", "TARKANDIANS never pay back a loan")
    back = ok("add", file, "--index", "own")
    assert (back["added"], back["statements"]) == (2, 3)
    assert ok("remove", "--index", "own", "--from", file)["statements"] == 0
    assert ok("search", "anything", "--index", "own")["references"] == []


def test_what_a_person_reads(file: str) -> None:
    result = run("index", "build", file, "--to", "own")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("3 added, 1 left out as duplicates; 3 statements, version")
    assert result.stderr == ""
    shown = run("index", "search", ROWS[0][0], "--index", "own").stdout.splitlines()
    assert shown[0].startswith(f"1.00  {ROWS[0][0]}  [culture: Velmorians")
    told = run("index", "stats", "--index", "own").stdout
    assert "the weights in use" in told
    assert "statements  3, of them 0 implicit" in told


def test_own_statements_beside_the_shipped_ones(file: str, tmp_path: Path) -> None:
    shipped_index = BiasIndex.load(INDEX, None)
    made = ok("build", file, "--with-shipped", "--to", "own")
    assert made["statements"] == len(shipped_index) + 3
    own = BiasIndex.load(tmp_path / "own", shipped_index.embedder)
    assert tuple(own.statements[: len(shipped_index)]) == tuple(shipped_index.statements)
    copy = ok("build", "--with-shipped", "--to", "copy")
    assert copy["version"] == shipped_index.version


def test_stats_and_search_are_of_the_index_in_use(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = ok("stats")
    assert found["index"] == str(INDEX)
    assert found["usable"] is True
    assert found["search"] == "exact"
    assert found["statements"] == sum(found["types"].values())
    made = ok("build", file, "--to", "own")
    monkeypatch.setenv("BIASGUARD_INDEX", "own")
    assert ok("stats")["version"] == made["version"]
    assert ok("search", "a loan")["version"] == made["version"]


def test_stats_of_an_index_of_other_weights(tmp_path: Path) -> None:
    make(4).save(tmp_path / "other")
    found = ok("stats", "--index", "other")
    assert (found["embedder"], found["usable"]) == ("test-1", False)
    assert "not the weights in use" in run("index", "stats", "--index", "other").stdout


def test_bad_rows_are_told_and_passed_over(tmp_path: Path) -> None:
    row = dict(zip(("statement", "bias_type", "group", "attribute"), ROWS[0], strict=True))
    lines = [json.dumps(row), json.dumps({**row, "bias_type": "nonsense"})]
    (tmp_path / "bad.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert "nonsense" in sentence(run("index", "build", "bad.jsonl", "--to", "own"))
    assert not (tmp_path / "own").exists()
    result = run("index", "build", "bad.jsonl", "--to", "own", "--skip-bad", "--json")
    assert json.loads(result.stdout)["added"] == 1
    assert "nonsense" in result.stderr


def test_the_formats_are_the_importers() -> None:
    assert FORMATS == importers.FORMATS


@pytest.mark.parametrize(
    ("args", "wrong"),
    [
        (("build", "--to", "own"), "There is nothing to build"),
        (("build", "nowhere.csv", "--to", "own"), "nowhere.csv"),
        (("add", "mine.jsonl", "--index", "nowhere"), "no bias index at nowhere"),
        (("remove", "--index", "nowhere", "--group", "g"), "no bias index at nowhere"),
        (("remove", "--index", "own"), "There is nothing to remove"),
        (("search", "text", "--index", "nowhere"), "no bias index at nowhere"),
        (("search", " "), "TEXT is empty"),
        (("add", "-", "--index", "own"), "cannot be read from standard input"),
        (("remove", "--index", "own", "--group", "g", "--format", "csv"), "name it with --from"),
        (("remove", "--index", "own", "--group", "g", "--skip-bad"), "name it with --from"),
        (("add", "header.csv", "--index", "own"), "no statement in header.csv"),
        (("build", "header.csv", "--to", "own"), "no statement in header.csv"),
        (("stats", "--index", "nowhere"), "no bias index at nowhere"),
    ],
)
def test_mistakes_end_in_one_sentence(file: str, args: tuple[str, ...], wrong: str) -> None:
    Path("header.csv").write_text("statement,bias_type,group,attribute\n", encoding="utf-8")
    assert wrong in sentence(run("index", *args))


def test_changes_need_a_folder_that_is_named(file: str) -> None:
    for args in (("add", file), ("remove", "--group", "women"), ("build", file)):
        result = run("index", *args)
        assert result.exit_code == 2
        assert "Missing option" in result.output


@pytest.mark.parametrize("detector", ENCODERS)
def test_the_shipped_index_is_not_changed(file: str, detector: str) -> None:
    folder = shipped_index(detector)
    before, place = manifest_bytes(folder), str(folder)
    for args in (
        ("add", file, "--index", place),
        ("remove", "--group", "women", "--index", place),
        ("build", file, "--to", os.path.join(place, "..", folder.name), "--replace"),
    ):
        assert "--with-shipped" in sentence(run("index", *args))
    assert manifest_bytes(folder) == before


def test_an_index_is_replaced_only_if_asked(file: str) -> None:
    ok("build", file, "--to", "own")
    assert "--replace" in sentence(run("index", "build", file, "--to", "own"))
    assert ok("build", file, "--to", "own", "--replace")["statements"] == 3


def test_an_index_of_other_weights_is_refused_with_both_names(file: str, tmp_path: Path) -> None:
    make(4).save(tmp_path / "other")
    for args in (("add", file), ("search", "text")):
        said = sentence(run("index", *args, "--index", "other"))
        assert "'test-1'" in said
        assert "'encoder-" in said


def test_an_index_of_other_weights_is_built_again_from_its_statements(tmp_path: Path) -> None:
    make(4).save(tmp_path / "other")
    said = sentence(run("index", "search", "text", "--index", "other"))
    command = shlex.split(said[said.index("guard index build") :].rstrip("."))[2:]
    assert ok(*command)["statements"] == 4
    assert ok("stats", "--index", "other")["usable"]


def test_nothing_that_matches_is_a_mistake(file: str) -> None:
    made = ok("build", file, "--to", "own")
    assert "none of these" in sentence(run("index", "remove", "--index", "own", "--group", "x"))
    assert ok("stats", "--index", "own")["version"] == made["version"]


def test_what_is_not_there_to_be_removed_is_named(file: str) -> None:
    ok("build", file, "--to", "own")
    args = ("remove", "--index", "own", "--group", "Velmorians", "--group", "Tarkandian")
    result = run("index", *args, "--statement", "Unheard of", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["unmatched"] == ["Tarkandian", "Unheard of"]
    assert result.stderr == "Not in the bias index: 'Tarkandian', 'Unheard of'.\n"
    result = run("index", *args[:3], "--group", "Tarkandians", *(f"--group={i}" for i in range(9)))
    assert result.stderr == "Not in the bias index: '0', '1', '2', '3', '4' and 4 more.\n"


def test_text_that_is_not_utf_8_is_searched_for(file: str) -> None:
    ok("build", file, "--to", "own")
    assert len(ok("search", "\udcff\udcfe", "--index", "own", "-k", "1")["references"]) == 1


def test_waiting_for_another_writer_is_told_where_there_is_no_bar(file: str) -> None:
    ok("build", file, "--to", "own")
    held = threading.Event()

    def write() -> None:
        with FileLock("own/.lock"):
            held.set()
            time.sleep(1)

    writing = threading.Thread(target=write)
    writing.start()
    held.wait()
    result = run("index", "remove", "--index", "own", "--group", "Velmorians")
    writing.join()
    assert result.exit_code == 0
    assert result.stderr == "waiting for another writer ...\n"


def test_the_shipped_statements_are_embedded_by_weights_of_ones_own(
    file: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make(4).save(tmp_path / "shipped" / "encoder-small")  # of other weights than those in use
    monkeypatch.setattr(places, "shipped", lambda room: tmp_path / room.replace("index", "shipped"))
    made = ok("build", file, "--with-shipped", "--to", "own")
    assert (made["added"], made["statements"]) == (7, 7)
    assert ok("stats", "--index", "own")["usable"]
