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
    figures["studies"] = {}
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
