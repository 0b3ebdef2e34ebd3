"""The mean of several runs' weights, and what it says of the runs behind it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")

import torch

from guard.cli import main
from guard.errors import UsageError
from guard.train.average import average
from guard.train.stages import stages


def settings(seed: int, **more: Any) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "seed": seed, "embedder": "e", "method": "full", "steps": 10, "batch_size": 8, "epochs": 2,
        "lr": 0.1, "head_lr": 0.2, "distill": 1.0, "quotas": {"own": 5}, "weight_decay": 0.05,
        "warmup": 0.06, "dropout": 0.1, "bf16": False, "references": "fused", "contrast": True,
    }  # fmt: skip
    return shown | more


def final(path: Path, weights: list[float], *chain: dict[str, Any]) -> Path:
    nets = {"w": torch.tensor(weights), "ids": torch.tensor([3, 4])}
    content = {"nets": nets, "settings": chain[-1], "before": list(chain[:-1]), "rows": {"own": 5}}
    path.mkdir()
    torch.save(content | {"quotas": {"own": 5}}, path / "final.pt")
    return path / "final.pt"


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = torch.load(path, weights_only=True)
    return found


numbers = st.floats(-5, 5, width=32)


@given(st.lists(st.tuples(numbers, numbers), min_size=2, max_size=5))
def test_every_weight_is_the_mean(
    tmp_path_factory: pytest.TempPathFactory, weights: list[tuple[float, float]]
) -> None:
    folder = tmp_path_factory.mktemp("runs")
    finals = [final(folder / str(i), list(w), settings(i)) for i, w in enumerate(weights)]
    nets = read(average(finals, folder / "mean"))["nets"]
    expected = [sum(column) / len(weights) for column in zip(*weights, strict=True)]
    assert nets["w"].tolist() == pytest.approx(expected, abs=1e-5)
    assert nets["ids"].tolist() == [3, 4]


def test_the_runs_behind_a_mean_are_told_once_each(tmp_path: Path) -> None:
    first = final(tmp_path / "a", [0, 0], settings(1))
    other = final(tmp_path / "b", [1, 1], settings(2))
    later = final(tmp_path / "c", [2, 2], settings(2), settings(3, start="b"))
    mean = read(average([first, other, later], tmp_path / "mean"))
    assert [(s["seed"], s["begins"]) for s in mean["before"]] == [(1, 0), (2, 0), (3, 2)]
    assert mean["settings"]["averaged"] == [1, 2, 3]

    # A run that begins with the mean, as the trainer writes it down, and a mean of that.
    chain = (*mean["before"], mean["settings"], settings(4, start="mean"))
    last = final(tmp_path / "d", [5, 5], *chain)
    again = read(average([first, last], tmp_path / "again"))
    shown = [(s["seed"], s["begins"], s.get("averaged")) for s in again["before"]]
    assert shown == [(1, 0, None), (2, 0, None), (3, 2, None), (3, 3, [1, 2, 3]), (4, 4, None)]
    assert again["settings"]["averaged"] == [1, 5]

    table = stages([*again["before"], again["settings"]])
    assert "| 1 | the embedder | every weight |  | 10 x 8 |" in table
    assert "| 3 | 2 | every weight |" in table
    assert "| 4 | the mean of the weights of 1, 2, 3 |" in table
    assert "| 5 | 4 | every weight |" in table
    assert "| 6 | the mean of the weights of 1, 5 |" in table


def test_a_stage_says_what_it_left_out() -> None:
    plain, bare = settings(1), settings(2, whole=True, references="none", contrast=False)
    table = stages([plain, {**bare, "bags": False}])
    assert "| 1 | the embedder | every weight |  | 10 x 8 |" in table
    assert "| 2 | 1 | every weight | cuts, references, order of pairs | 10 x 8 |" in table


def test_what_has_no_mean_is_refused(tmp_path: Path) -> None:
    one = final(tmp_path / "a", [0, 0], settings(1))
    other = final(tmp_path / "b", [0, 0], settings(1, embedder="another"))
    with pytest.raises(UsageError, match="two runs"):
        average([one], tmp_path / "mean")
    with pytest.raises(UsageError, match="different embedders"):
        average([one, other], tmp_path / "mean")
    called = CliRunner().invoke(
        main, ["train", "average", str(tmp_path / "none"), "--work", str(tmp_path / "mean")]
    )
    assert called.exit_code == 2
    assert "finish the run" in called.output
    assert not (tmp_path / "mean").exists()


def test_runs_of_one_beginning_may_read_other_vectors(tmp_path: Path) -> None:
    first = final(tmp_path / "a", [0.0, 0.0], settings(1))
    later = final(tmp_path / "b", [1.0, 1.0], settings(1), settings(2, embedder="f", begins=1))
    mean = read(average([first, later], tmp_path / "mean"))
    assert mean["nets"]["w"].tolist() == [0.5, 0.5]
    other = final(tmp_path / "c", [1.0, 1.0], settings(3, embedder="f"))
    with pytest.raises(UsageError, match="began with different embedders"):
        average([first, other], tmp_path / "none")
