"""Which tests a change needs: those of its room and of what imports it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import grimp
import pytest

from tests import changed
from tests.changed import READERS, changed_files, import_graph, main
from tests.data import ROOT
from tests.rows import rows


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return import_graph()


NEEDED = [
    ("guard/gate/segmenter.py", "tests/gate"),
    ("guard/gate/segmenter.py", "tests/doors"),  # by way of the gate
    ("guard/gate/__init__.py", "tests/doors"),
    ("guard/watch/rates.py", "tests/watch"),
    ("guard/watch/rates.py", "tests/cli"),
    ("guard/verdict.py", "tests/test_verdict.py"),
    ("guard/detect/protocol.py", "tests/test_api.py"),  # guard loads its names on first use
    ("guard/doors/chat/codec.py", "tests/doors"),
    ("guard/gone/away.py", "tests"),
    ("tests/gone.py", "tests"),
    ("tests/scripted.py", "tests/test_core.py"),
    ("tests/gate/test_linear.py", "tests/gate/test_linear.py"),
    ("tests/watch/conftest.py", "tests/watch"),
    ("tests/watch/conftest.py", "tests/audit"),  # whose conftest imports it
    ("tests/conftest.py", "tests"),
    ("tests/doors/proxy_side.py", "tests/doors/test_proxy.py"),
    ("tests/page.py", "tests/test_docs.py"),
    ("docs/audit.md", "tests/test_docs.py"),
    ("guard/models/encoder/encoder.onnx", "tests/detect"),
    ("pyproject.toml", "tests"),
    ("something/new.bin", "tests"),
]


@rows("path, needed", NEEDED)
def test_a_change_needs(graph: grimp.ImportGraph, path: str, needed: str) -> None:
    found = changed.tests_of([path], graph)
    assert any(needed == one or needed.startswith(f"{one}/") for one in found), found


def test_a_change_needs_no_more(graph: grimp.ImportGraph) -> None:
    assert changed.tests_of([], graph) == []
    assert changed.tests_of(["tests/gate/test_linear.py"], graph) == ["tests/gate/test_linear.py"]
    assert "tests/doors" not in changed.tests_of(["guard/watch/rates.py"], graph)


WITHOUT_TESTS = {"tests/attacks/__main__.py"}  # a program that a person runs


def test_every_file_of_the_repository_has_tests(graph: grimp.ImportGraph) -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    paths = [path for path in listed.stdout.decode().split("\0") if path]
    assert {path for path in paths if not changed.tests_of([path], graph)} == WITHOUT_TESTS
    for tests in READERS.values():
        assert all((ROOT / one).exists() for one in tests)


def test_new_and_changed_files_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*words: str) -> None:
        own = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *own, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q")
    for name in ("kept", "changed", "deleted", "moved"):
        (tmp_path / name).write_text(name)
    git("add", "-A")
    git("commit", "-qm", "one")
    monkeypatch.setattr(changed, "ROOT", tmp_path)
    (tmp_path / "changed").write_text("more")
    (tmp_path / "deleted").unlink()
    (tmp_path / "moved").rename(tmp_path / "to a name with ä")
    (tmp_path / "new").write_text("")
    expected = ["changed", "deleted", "moved", "new", "to a name with ä"]
    assert changed_files("HEAD") == expected
    git("add", "-A")
    git("commit", "-qm", "two")
    assert changed_files("HEAD") == []
    assert changed_files("HEAD~1") == expected


@pytest.mark.parametrize("since", ["no-such-thing", "--stat", "HEAD:README.md", ""])
def test_what_is_no_commit_is_one_sentence(capsys: pytest.CaptureFixture[str], since: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main([f"--since={since}"])
    assert ended.value.code == 2
    assert f"git knows no commit {since!r} here" in capsys.readouterr().err


def test_a_module_that_is_being_written_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "half_written").mkdir()
    (tmp_path / "half_written" / "__init__.py").write_text("def (\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(changed, "PACKAGES", ("half_written",))
    with pytest.raises(SystemExit) as ended:
        main(["--list"])
    assert ended.value.code == 2
    assert "a module cannot be read: " in capsys.readouterr().err
