"""Files of reports: all are written or none, in folders that need not be there."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import guard.core
from guard.audit.files import write_all
from guard.cli import main
from guard.watch.store import Store
from tests.scripted import Scripted


def test_missing_folders_are_created_for_every_file(tmp_path: Path) -> None:
    write_all({tmp_path / "a" / "b" / "page.html": "x", tmp_path / "c" / "table.csv": "y"})
    assert (tmp_path / "a" / "b" / "page.html").read_text() == "x"
    assert (tmp_path / "c" / "table.csv").read_text() == "y"


def test_a_file_in_place_of_a_folder_leaves_nothing_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    with pytest.raises(OSError, match="file") as caught:
        write_all({tmp_path / "page.html": "x", tmp_path / "file" / "table.csv": "y"})
    assert caught.value.filename == str(tmp_path / "file" / "table.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    "args",
    [
        ("rates", "store.db", "--html", "new/folder/file"),
        ("rates", "store.db", "--csv", "new/folder/file"),
        ("eval", "--data", "set.csv", "--markdown", "new/folder/file"),
    ],
)
def test_a_command_creates_the_folders_of_its_file(
    args: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store("sqlite:///store.db")
    store.open()
    store.disconnect()
    Path("set.csv").write_text("text,label\nBIAS,1\nTrain,0\n")
    monkeypatch.setattr(guard.core, "detector_named", lambda *given: Scripted())
    ran = CliRunner().invoke(main, args, catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    assert Path("new/folder/file").is_file()
