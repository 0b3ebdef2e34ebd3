"""Weights whose files are apart, and those of older versions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from guard.detect.encoder import Encoder
from guard.detect.weights import CONFIG, LEXICAL, SHIPPED, TABLE, open_weights, write_manifest
from guard.errors import WeightsError
from tests.small import WEIGHTS


def test_a_damaged_table_of_tokens_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "encoder"
    shutil.copytree(SHIPPED, folder)
    (folder / TABLE).write_bytes((folder / TABLE).read_bytes()[:-1])
    with pytest.raises(WeightsError, match=f"{folder / TABLE} is not the recorded one"):
        Encoder(folder, use_references=False)
    (folder / TABLE).unlink()
    with pytest.raises(WeightsError, match=f"{folder / TABLE} is missing"):
        Encoder(folder, use_references=False)


def test_weights_that_judged_with_a_second_network_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "older"
    shutil.copytree(WEIGHTS, folder)
    config = json.loads((folder / CONFIG).read_bytes())
    (folder / CONFIG).write_text(json.dumps(config | {"mean_with": "encoder-small-1.1"}), "utf-8")
    write_manifest(folder)
    for use in (lambda: Encoder(folder, use_references=False), lambda: open_weights(folder)):
        with pytest.raises(WeightsError, match="together with a second network") as caught:
            use()
        assert "\n" not in str(caught.value)


def test_weights_whose_n_grams_are_not_recorded_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "without"
    shutil.copytree(WEIGHTS, folder)
    (folder / LEXICAL).unlink()
    write_manifest(folder)
    with pytest.raises(WeightsError, match=f"does not name {LEXICAL}"):
        Encoder(folder, use_references=False)
