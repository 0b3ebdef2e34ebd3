"""``guard train`` from the shell: a short real run, stopped and resumed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from guard.cli import main
from guard.cli.train_options import check_folder


def run(*args: str) -> Result:
    return CliRunner().invoke(main, ["train", *args])


@pytest.mark.slow("reads the whole corpus and trains on it")
def test_a_short_run_on_own_texts_ends_with_weights(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    work = tmp_path / "run"
    small = ("--base", "minilm", "--max-steps", "2", "--no-context")
    result = run("encoder", "--work", str(work), *small)
    assert result.exit_code == 0, result.output
    final = work / "final.pt"
    assert str(final) in result.output
    settings = torch.load(final, weights_only=True)["settings"]
    assert (settings["steps"], settings["context"]) == (2, False)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["encoder", "--work", "w", "--data", "nowhere"], "--data nowhere is not a folder"),
        (["encoder"], "Missing option '--work'"),
        (["release", "--work", "w", "--to", "t", "--index", "i"], "--data is missing"),
        (["release", "--work", "w", "--data", ".", "--to", "t", "--index", "i"], "does not exist"),
        (["embedder", "--work", "w"], "--data is missing"),
        (["all", "--work", "w"], "--data is missing"),
        (["encoder", "--work", "w", "--references", "text"], "is not one of"),
        (["encoder", "--work", "w", "--threads", "0"], "not in the range"),
        (["encoder", "--work", "w", "--statements", "no.jsonl"], "does not exist"),
        (
            ["encoder", "--work", "w", "--quotas", "q.json"],
            "'reddit' is wrong; it needs whole numbers",
        ),
        (["encoder", "--work", "w", "--quotas", "e.json"], "it is not a JSON object"),
        (["encoder", "--work", "w", "--quotas", "deep.json"], "it is not a JSON object"),
        (["encoder", "--work", "w", "--quotas", "none.json"], "it gives no source a row"),
        (["all", "--work", "w", "--data", ".", "--references", "none"], "cannot be released"),
        (["references", "--work", "w", "--method", "lora"], "No such option"),
    ],
)
def test_mistakes(
    args: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("q.json").write_text('{"reddit": 5}', encoding="utf-8")
    Path("e.json").write_text("[]", encoding="utf-8")
    Path("deep.json").write_text("[" * 100_000, encoding="utf-8")
    Path("none.json").write_text('{"own": 0}', encoding="utf-8")
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
        ["all", "--work", "w", "--data", "."],
        ["release", "--work", "w", "--data", ".", "--to", "t", "--index", "i"],
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
        ["all", "--data", "."],
        ["restore"],
    ],
)
def test_a_folder_that_cannot_be_made_is_refused_before_the_work(
    args: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    result = run(*args, "--work", "file/w")
    assert result.exit_code == 2
    assert "--work file/w cannot be written: Not a directory; name another" in result.stderr


def test_looking_for_a_folder_leaves_none(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for folder in ("there", "there/a/b", "new/c"):
        check_folder(tmp_path / folder, "--work")
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]
