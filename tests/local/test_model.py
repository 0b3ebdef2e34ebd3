from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from guard.errors import GuardError, WeightsError
from guard.local import model


def test_a_model_is_loaded_once_however_many_ask(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "_loaded", {})
    found: list[Any] = []
    asking = [
        threading.Thread(target=lambda: found.append(model.load(str(folder)))) for _ in range(4)
    ]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert len(found) == 4
    assert len({id(x) for x in found}) == 1
    assert model.load(str(folder / "." / "")) is found[0]


def test_what_it_knows_of_a_model(folder: Path) -> None:
    loaded = model.load(str(folder))
    assert loaded.ends == {1}
    assert loaded.context == 1024
    assert not any(p.requires_grad for p in loaded.network.parameters())


def test_a_missing_extra_names_what_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "_loaded", {})
    monkeypatch.setitem(sys.modules, "accelerate", None)
    with pytest.raises(GuardError, match=r"need accelerate.*pip install 'biasguard\[local\]'"):
        model.load(str(folder))


def test_a_file_that_is_no_model_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"not GGUF at all")
    with pytest.raises(WeightsError, match=r"x\.gguf cannot be loaded"):
        model.load(str(tmp_path / "x.gguf"))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(WeightsError, match="cannot be loaded"):
        model.load(str(tmp_path))


def test_progress_bars_are_left_as_they_were(folder: Path, capfd: Any) -> None:
    from transformers.utils import logging

    before = logging.is_progress_bar_enabled()
    model._load(folder)
    assert logging.is_progress_bar_enabled() is before
    assert capfd.readouterr().err == ""
