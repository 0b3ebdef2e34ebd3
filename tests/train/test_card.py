"""The card says what the figures beside it say."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from guard.cli import main
from guard.detect.weights import SHIPPED

pytest.importorskip("torch")


def test_the_card_is_made_of_the_shipped_figures() -> None:
    from guard.train.card import card

    figures = json.loads((SHIPPED / "figures.json").read_text("utf-8"))
    assert card(figures) == (SHIPPED / "CARD.md").read_text("utf-8")


def test_the_command_writes_it_anew(tmp_path) -> None:  # type: ignore[no-untyped-def]
    figures = json.loads((SHIPPED / "figures.json").read_text("utf-8"))
    figures["studies"] = figures["runs"] = {}
    (tmp_path / "figures.json").write_text(json.dumps(figures), encoding="utf-8")
    result = CliRunner().invoke(main, ["train", "card", "--to", str(tmp_path)])
    assert result.exit_code == 0, result.output
    text = (tmp_path / "CARD.md").read_text("utf-8")
    assert "## What was tried" not in text
    assert "# Model card: encoder" in text


def test_without_figures_there_is_no_card(tmp_path) -> None:  # type: ignore[no-untyped-def]
    result = CliRunner().invoke(main, ["train", "card", "--to", str(tmp_path)])
    assert result.exit_code == 2
    assert "is not there" in result.stderr


def test_weak_behaviours_are_in_the_card(tmp_path) -> None:  # type: ignore[no-untyped-def]
    figures = json.loads((SHIPPED / "figures.json").read_text("utf-8"))
    figures.pop("behaviours", None)
    (tmp_path / "figures.json").write_text(json.dumps(figures), encoding="utf-8")
    row = {"n": 4, "low": 0.1, "high": 0.9, "biased": 2, "misses": 2, "false_alarms": 0}
    rows = [
        {**row, "name": "told_twice", "value": 0.5, "misread": 0},
        {**row, "name": "plain", "value": 0.75, "misread": 1},
    ]
    mean = {"value": 0.625, "low": 0.5, "high": 0.7, "n": 2}
    found = {"detector": "d", "index_version": "i", "cases": 8, "mean": mean, "behaviours": rows}
    (tmp_path / "b.json").write_text(json.dumps({"behaviours": found}), encoding="utf-8")
    args = ["train", "card", "--to", str(tmp_path), "--behaviours"]
    assert CliRunner().invoke(main, [*args, str(tmp_path / "b.json")]).exit_code == 0
    text = (tmp_path / "CARD.md").read_text("utf-8")
    assert "2 named behaviours with 8 own-written cases" in text
    assert "1 pass less than 0.75 of their cases; the mean is 0.625 [0.500, 0.700]" in text
    assert "| told twice | 4 | 0.500 [0.100, 0.900] | 2 of 2 | 0 of 2 |  |" in text
    assert "| plain |" not in text
    (tmp_path / "other.json").write_text('{"sets": []}', encoding="utf-8")
    result = CliRunner().invoke(main, [*args, str(tmp_path / "other.json")])
    assert "is not what `guard eval --behaviours --json` prints" in result.stderr
