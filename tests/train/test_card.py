"""The card says what the figures beside it say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from click.testing import CliRunner, Result

from guard.cli import main
from guard.detect.weights import SHIPPED
from guard.policy import OperatingPoint


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Imports here, and not above, what would take seconds of every collection."""
    global card_text
    pytest.importorskip("torch")
    from guard.train.card import card_text


SHARE = {"hits": 2, "n": 100, "bound": 0.061}
POINTS = get_args(OperatingPoint)
MEASURES = "accuracy f1 auroc false_positive_rate false_negative_rate cs as ece prevalence".split()
AT = {m: [0.5, 0.4, 0.6] for m in MEASURES} | {"as": [None, None, None]}
SET = {"n": 1234} | dict.fromkeys(POINTS, AT)
RUN = {
    "method": "full", "base": "mpnet", "layers": None, "frozen": 4, "steps": 2688,
    "batch_size": 48, "epochs": 1.0, "lr": 3e-5, "head_lr": 3e-4, "seed": 17,
    "teachers": ["0123456789ab", "ba9876543210"],
}  # fmt: skip
FIGURES: dict[str, Any] = {
    "version": "0",
    "training": [RUN],
    "rows": {"redditbias": 7000, "redditbias_rest": 333, "emgsd": 22000},
    "retrieval": {"n": 50, "own": 0.4, "bias_type": 0.75, "floor": 0.5},
    "network": {
        "parameters": 109_700_000, "layers": 12, "bytes": 111_000_000, "ms": 14.6, "n": 400,
        "logit": 0.11, "signs_changed": 0.01, "table": True,
    },
    "points": {
        "temperature": 1.5,
        "offset": 0.4,
        "n": {"RedditBias": 600, "own": 1500},
        "calibration": {"ece": 0.021, "low": 0.015, "high": 0.03},
        "reliability": [{"weight": 0.5, "score": s, "biased": s} for s in (0.1, 0.9)],
        "measured": {
            point: {"accuracy": 0.81, "recall": 0.7, "harmless": SHARE, "pools": {"unseen": SHARE}}
            for point in POINTS
        },
    },
    "added_statement": {"n": 84, "before": 1.0, "after": 0.94, "neutral": 1.0, "opposed": 0.99},
    "measured": {
        "redditbias": {"title": "RedditBias comments", "references": SET, "alone": SET},
        "bold": {"title": "BOLD", "references": SET, "alone": SET},
    },
}  # fmt: skip


def written(tmp_path: Path, *args: str) -> Result:
    return CliRunner().invoke(main, ["train", "card", "--to", str(tmp_path), *args])


def test_the_shipped_card_is_made_of_the_shipped_figures() -> None:
    figures = json.loads((SHIPPED / "figures.json").read_text("utf-8"))
    assert card_text(figures) == (SHIPPED / "CARD.md").read_text("utf-8")


def test_a_card_has_a_page_of_figures(tmp_path: Path) -> None:
    (tmp_path / "figures.json").write_text(json.dumps(FIGURES), encoding="utf-8")
    result = written(tmp_path, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {"card": str(tmp_path / "CARD.md")}
    text = (tmp_path / "CARD.md").read_text("utf-8")
    assert "sentence-transformers/all-mpnet-base-v2" in text
    assert "| size | 110 million parameters, 12 layers; 111 MB as int8 |" in text
    assert "| RedditBias comments | 1,234 | 0.500 | 0.500 [0.400, 0.600] | 0.500 |" in text
    assert "| 0.500 | – | 0.500 | 0.500, 0.500 |" in text  # no attribution is known
    assert "| balanced | 2.00% | 2 of 100 | 6.10% | 2 of 100, 6.10% | 0.810 | 0.700 |" in text
    assert "| RedditBias, training part (Barikeri et al. 2021) | MIT | 7,333 |" in text
    assert "| 1 | the network | 2,688 | 48 | 3e-05 | 0.0003 | 4 | 2 | 17 |" in text
    assert "any training text (RedditBias 600, own 1,500)" in text
    assert len(text.split()) < 1620
    assert max(map(len, text.splitlines())) < 400


def test_a_card_lists_every_run() -> None:
    last = RUN | {"method": "references", "steps": 611, "teachers": []}
    text = card_text(FIGURES | {"training": [RUN, last]})
    assert "| 1 | the network | 2,688 |" in text
    assert "| 2 | the fusion | 611 | 48 | – | 0.0003 | all | 0 | 17 |" in text


def test_without_figures_there_is_no_card(tmp_path: Path) -> None:
    result = written(tmp_path)
    assert result.exit_code == 2
    assert "does not exist" in result.stderr


OLDER = json.dumps(FIGURES).replace("false_positive_rate", "alarm")


@pytest.mark.parametrize(
    "content",
    ["", "none", "[]", '{"training": []}', json.dumps(FIGURES)[:2000], OLDER,
     json.dumps(FIGURES | {"training": []}), json.dumps(FIGURES | {"rows": None})],
)  # fmt: skip
def test_figures_of_another_kind_make_no_card(content: str, tmp_path: Path) -> None:
    (tmp_path / "figures.json").write_text(content, encoding="utf-8")
    result = written(tmp_path)
    assert result.exit_code == 2, result.exception
    assert "was not written by this version's `guard train release`" in result.stderr
    assert not (tmp_path / "CARD.md").exists()


def test_a_file_that_the_system_refuses_is_named(tmp_path: Path) -> None:
    (tmp_path / "figures.json").write_text(json.dumps(FIGURES), encoding="utf-8")
    (tmp_path / "CARD.md").mkdir()
    result = written(tmp_path)
    assert result.exit_code == 2
    assert f"{tmp_path / 'CARD.md'} cannot be written (Is a directory)." in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["CARD.md", "figures.json"]
