"""``guard train`` from the shell: a short real run, stopped and resumed."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from guard.cli import main


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
