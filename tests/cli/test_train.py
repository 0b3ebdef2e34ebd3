"""``guard train`` from the shell: a short real run, stopped and resumed."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from guard.cli import main
from guard.cli.train_options import check_folder
from guard.detect.weights import SHIPPED
from guard.evaluate.terms import DIMENSIONS


def run(*args: str) -> Result:
    return CliRunner().invoke(main, ["train", *args])


@pytest.mark.slow
def test_a_short_run_on_own_texts_ends_with_weights(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    work = tmp_path / "run"
    result = run("encoder", "--work", str(work), "--rows", "64", "--max-steps", "2")
    assert result.exit_code == 0, result.output
    final = work / "final.pt"
    assert str(final) in result.output
    assert torch.load(final, weights_only=True)["settings"]["steps"] == 2


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["encoder", "--work", "w", "--data", "nowhere"], "--data nowhere is no folder"),
        (["encoder"], "Missing option '--work'"),
        (["release", "--work", "w", "--to", "t", "--index", "i"], "--data is missing"),
        (["release", "--work", "w", "--data", ".", "--to", "t", "--index", "i"], "is not there"),
        (["release", "--work", "w", "--to", "t", "--index", "i", "--studies", "no"], "not exist"),
        (["encoder", "--work", "w", "--without", "race_black"], "--without needs --data"),
        (
            ["encoder", "--work", "w", "--method", "fusion", "--references", "none"],
            "this run fuses none",
        ),
        (["encoder", "--work", "w", "--learn", "verdict"], "by their types: add --references none"),
        (["encoder", "--work", "w", "--without", "race"], "is not one of"),
        (["encoder", "--work", "w", "--threads", "0"], "not in the range"),
        (["encoder", "--work", "w", "--statements", "no.jsonl"], "does not exist"),
        (["encoder", "--work", "w", "--quotas", "q.json"], "'reddit' is wrong; give whole numbers"),
        (["encoder", "--work", "w", "--quotas", "e.json"], "it holds none"),
        (["studies", "--work", "w"], "--data is missing"),
        (["studies", "--work", "w", "--rows", "20000"], "not in the range"),
    ],
)
def test_mistakes(
    args: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("q.json").write_text('{"reddit": 5}', encoding="utf-8")
    Path("e.json").write_text("[]", encoding="utf-8")
    result = run(*args)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("missing", ["torch", "onnx"])
@pytest.mark.parametrize(
    "args",
    [
        ["encoder", "--work", "w"],
        ["embedder", "--work", "w", "--data", "."],
        ["average", "a", "--work", "w"],
        ["restore", "--work", "w"],
        ["card", "--to", "."],
    ],
)
def test_a_missing_extra_is_the_users_mistake(
    args: list[str], missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, missing, None)
    result = run(*args)
    assert result.exit_code == 2
    assert f"{missing} is not installed; training needs: pip install" in result.stderr


@pytest.mark.parametrize(
    "args",
    [
        ["encoder"],
        ["embedder", "--data", "."],
        ["average", "run"],
        ["restore"],
    ],
)
def test_a_folder_that_cannot_be_made_is_refused_before_the_work(
    args: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    Path("run").mkdir()
    Path("run", "final.pt").write_text("")
    result = run(*args, "--work", "file/w")
    assert result.exit_code == 2
    assert "--work file/w cannot be written: Not a directory; name another" in result.stderr


def test_looking_for_a_folder_leaves_none(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for folder in ("there", "there/a/b", "new/c"):
        check_folder(tmp_path / folder, "--work")
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]


def test_a_file_that_the_system_refuses_is_named(tmp_path: Path) -> None:
    shutil.copy(SHIPPED / "figures.json", tmp_path)
    (tmp_path / "CARD.md").mkdir()
    result = run("card", "--to", str(tmp_path))
    assert result.exit_code == 2
    assert f"{tmp_path / 'CARD.md'}: Is a directory." in result.stderr


def test_sources_that_lack_a_file_are_the_users_mistake(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    terms = tmp_path / "data" / "redditbias" / "terms"
    terms.mkdir(parents=True)
    for dimension in DIMENSIONS:
        (terms / f"{dimension}.txt").write_text("rude\n", encoding="utf-8")
        (terms / f"{dimension.split('_')[0]}_opposites.txt").write_text("drummers,pipers\n")
    result = run("encoder", "--work", str(tmp_path / "w"), "--data", str(tmp_path / "data"))
    assert result.exit_code == 2, result.exception
    file = Path("data", "redditbias", "train.jsonl")
    assert f"{file} cannot be read (No such file or directory); name the folder" in result.stderr


STUDY: dict[str, Any] = {"rows": 1, "epochs": 1, "redditbias": {}, "validation": {}}
RUN: dict[str, Any] = {"stages": 1, "left_out": "", "drawn": 1, "redditbias": {}, "validation": {}}


@pytest.mark.parametrize(
    ("option", "content", "message"),
    [
        ("--behaviours", {"behaviours": {}}, "is not what `guard eval --behaviours --json`"),
        ("--behaviours", {"behaviours": {"behaviours": []}}, "is not what `guard eval"),
        ("--behaviours", {"sets": []}, "is not what `guard eval"),
        ("--behaviours", [], "is not what `guard eval"),
        ("--studies", {"behaviours": {}}, "is not what `guard train studies` writes"),
        ("--studies", {"one run": RUN}, "is not what `guard train studies` writes"),
        ("--studies", {}, "is not what `guard train studies` writes"),
        ("--runs", {"as shipped": STUDY}, "is not what `guard train compare` writes"),
        ("--runs", {"one run": {"stages": 1}}, "is not what `guard train compare` writes"),
    ],
)
def test_figures_of_another_kind_are_not_shown(
    option: str, content: Any, message: str, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "figures.json").write_bytes((SHIPPED / "figures.json").read_bytes())
    (tmp_path / "other.json").write_text(json.dumps(content), encoding="utf-8")
    result = run("card", "--to", str(tmp_path), option, str(tmp_path / "other.json"))
    assert result.exit_code == 2, result.exception
    assert message in result.stderr
    assert not (tmp_path / "CARD.md").exists()


def test_figures_that_are_none_make_no_card(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "figures.json").write_text("none", encoding="utf-8")
    result = run("card", "--to", str(tmp_path))
    assert result.exit_code == 2, result.exception
    assert "is not what `guard train release` writes" in result.stderr


def test_the_card_is_named_as_json(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "figures.json").write_bytes((SHIPPED / "figures.json").read_bytes())
    result = run("card", "--to", str(tmp_path), "--json")
    assert result.exit_code == 0, result.exception
    assert json.loads(result.stdout) == {"card": str(tmp_path / "CARD.md")}
    assert (tmp_path / "CARD.md").is_file()
