from __future__ import annotations

from pathlib import Path

import pytest

from guard.errors import WeightsError
from guard.local import memory, model
from guard.local.model import load_model

NUMBERS = 2 * 258 * 16 + 2 * (4 * 16 * 16 + 3 * 16 * 32 + 2 * 16) + 16
BESIDE = 500 * 2**20


@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("bfloat16", 4)])
def test_a_folder_takes_what_is_stored_or_what_it_becomes(
    folder: Path, dtype: str, size: int
) -> None:
    stored = (folder / "model.safetensors").stat().st_size
    assert memory.bytes_needed(folder, dtype) == pytest.approx(stored + BESIDE, abs=1)
    assert size * NUMBERS <= stored < size * NUMBERS + 4096


def test_shards_count_together(folder: Path, tmp_path: Path) -> None:
    whole = (folder / "model.safetensors").read_bytes()
    for part in ("model-00001-of-00002", "model-00002-of-00002"):
        (tmp_path / f"{part}.safetensors").write_bytes(whole)
    one = memory.bytes_needed(folder, "float32") - BESIDE
    assert memory.bytes_needed(tmp_path, "float32") - BESIDE == 2 * one


def test_too_little_memory_is_one_sentence_with_both_amounts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "_loaded", {})
    monkeypatch.setattr(memory, "bytes_available", lambda: 2**28)
    with pytest.raises(WeightsError, match=r"about 0\.5 GiB of memory .* 0\.2 GiB are free"):
        load_model(str(folder))
    assert model._loaded == {}


def test_what_is_available_is_no_more_than_the_machine_has() -> None:
    import psutil

    assert 0 < memory.bytes_available() <= psutil.virtual_memory().total


def test_the_limit_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "max").write_text("1000000\n")
    (tmp_path / "current").write_text("400000\n")
    files = ((str(tmp_path / "max"), str(tmp_path / "current")),)
    monkeypatch.setattr(memory, "_LIMITS", files)
    assert memory.bytes_available() == 600_000
    (tmp_path / "max").write_text("max\n")
    assert memory.bytes_available() > 600_000
