"""Guards that serve from a bias index which others change."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from guard.core import Guard
from guard.detect.encoder import Encoder
from guard.detect.index_watcher import IndexWatcher
from guard.errors import BiasIndexError
from guard.retrieve import store
from guard.retrieve.folder import MANIFEST, read_manifest
from guard.retrieve.index import BiasIndex
from guard.retrieve.statement import BiasStatement
from tests.retrieve.test_index import some
from tests.retrieve.writer import Drawn
from tests.small import INDEX, WEIGHTS

TEXT = "Velmorians swap the price tags in shops."
ADDED = BiasStatement(TEXT, "culture", "Velmorians", "swap the price tags")
# A change is to be in use within a second; loading shares the processor with other tests.
PATIENCE = 10.0


def soon(reached: Callable[[], bool]) -> bool:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if reached():
            return True
        time.sleep(0.02)
    return False


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    store.create_index(tmp_path / "index", some(5), Drawn())
    return tmp_path / "index"


@pytest.fixture
def watcher(folder: Path) -> Iterator[IndexWatcher]:
    watcher = IndexWatcher(folder, "drawn-1")
    yield watcher
    watcher.stop()


@pytest.fixture
def still(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[IndexWatcher]:
    """A watcher that looks only when it is told to."""
    monkeypatch.setattr(
        IndexWatcher, "_start_thread", lambda self: setattr(self, "_owner", os.getpid())
    )
    return IndexWatcher(folder, "drawn-1")


def test_new_streams_see_a_change_and_a_running_one_keeps_its_version(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    shutil.copytree(INDEX, folder)
    guard = Guard(index=folder, action="flag")
    embedder = Encoder(WEIGHTS, use_references=False)
    before = guard.check("The library opens at nine.").index_version
    running = guard.stream(iter([f"{TEXT} ", f"{TEXT} ", "It is so."]))
    next(running)
    change = store.add_statements(folder, [ADDED], embedder)
    assert change.version != before
    assert soon(lambda: guard.check(TEXT).index_version == change.version)
    found = guard.check(TEXT)
    assert found.references[0].statement == TEXT
    list(running)
    assert {d.verdict.index_version for d in running.guard} == {before}
    assert all(r.statement != TEXT for d in running.guard for r in d.verdict.references)
    # The shipped index, which other guards share, is as it was.
    assert Guard().check(TEXT).index_version == BiasIndex.load(INDEX, None).version
    store.remove_statements(folder, groups=["Velmorians"])
    assert soon(lambda: guard.check(TEXT).index_version == before)


def test_an_encoder_follows_the_folder_it_was_last_given(tmp_path: Path) -> None:
    encoder = Encoder(WEIGHTS)
    for name in ("a", "b"):
        shutil.copytree(INDEX, tmp_path / name)
    encoder.use_index(tmp_path / "a")
    encoder.use_index(tmp_path / "b")
    store.add_statements(tmp_path / "a", [ADDED], encoder)
    change = store.remove_statements(tmp_path / "b", groups=["women"])
    assert soon(lambda: encoder.snapshot().index_version == change.version)
    assert encoder.index is not None
    encoder.use_index(encoder.index)
    kept = encoder.index.version
    store.add_statements(tmp_path / "b", [ADDED], encoder)
    time.sleep(0.6)
    assert encoder.snapshot().index_version == kept


def test_a_watcher_serves_the_newest_index(folder: Path, watcher: IndexWatcher) -> None:
    first = watcher.current()
    assert len(first) == 5
    store.add_statements(folder, some(1, start=5), Drawn())
    assert soon(lambda: len(watcher.current()) == 6)
    assert len(first) == 5
    np.testing.assert_array_equal(first.vectors, watcher.current().vectors[:5])


def test_nothing_is_loaded_while_nothing_changes(
    still: IndexWatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, loaded = still.index, []
    monkeypatch.setattr(BiasIndex, "load", lambda *args: loaded.append(args))
    for _ in range(3):
        still.check()
    assert loaded == []
    assert still.index is before


def _damage(folder: Path) -> None:
    path = read_manifest(folder).path("vectors")
    assert path is not None
    path.write_bytes(b"half")


def _other(folder: Path) -> None:
    embedder = Drawn()
    embedder.name = "other-2"
    store.create_index(folder, some(3), embedder, replace=True)


def _gone(folder: Path) -> None:
    (folder / MANIFEST).unlink()


@pytest.mark.parametrize(
    ("change", "wrong"),
    [(_damage, "is not the file"), (_other, "'other-2'"), (_gone, "no bias index")],
)
def test_an_index_that_cannot_be_used_is_logged_once(
    folder: Path,
    still: IndexWatcher,
    caplog: pytest.LogCaptureFixture,
    change: Callable[[Path], None],
    wrong: str,
) -> None:
    before = still.index
    store.add_statements(folder, some(1, start=5), Drawn())
    change(folder)
    for _ in range(40):
        still.check()
    assert still.index is before
    (record,) = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert wrong in record.getMessage()
    assert before.version in record.getMessage()
    # And once it is mended, it serves.
    store.create_index(folder, some(9), Drawn(), replace=True)
    still.check()
    assert len(still.index) == 9


def test_files_that_arrive_late_are_waited_for(folder: Path, still: IndexWatcher) -> None:
    store.add_statements(folder, some(1, start=5), Drawn())
    path = read_manifest(folder).path("vectors")
    assert path is not None
    path.rename(path.with_suffix(".late"))
    still.check()
    path.with_suffix(".late").rename(path)
    for _ in range(10):
        still.check()
    assert len(still.index) == 6


def test_a_watcher_begins_with_a_usable_index(tmp_path: Path) -> None:
    with pytest.raises(BiasIndexError, match="no bias index"):
        IndexWatcher(tmp_path, "drawn-1")


def test_its_thread_ends_with_it(folder: Path) -> None:
    before = set(threading.enumerate())
    watcher = IndexWatcher(folder, "drawn-1")
    reference = weakref.ref(watcher)
    assert set(threading.enumerate()) > before
    del watcher
    assert soon(lambda: gc.collect() is not None and reference() is None)
    assert soon(lambda: set(threading.enumerate()) <= before)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_watches_too(folder: Path, watcher: IndexWatcher) -> None:
    told, tell = os.pipe()
    answered, answer = os.pipe()
    child = os.fork()
    if not child:
        os.read(told, 1)
        # The change came after the fork: the first to ask has it already.
        first = len(watcher.current())
        os.write(answer, b"!")
        later = soon(lambda: len(watcher.current()) == 7)
        os._exit(0 if first == 6 and later else 1)
    store.add_statements(folder, some(1, start=5), Drawn())
    os.write(tell, b"!")
    os.read(answered, 1)
    store.add_statements(folder, some(1, start=6), Drawn())
    assert os.waitpid(child, 0)[1] == 0
    for end in (told, tell, answered, answer):
        os.close(end)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_threads_that_ask_first_after_a_fork_start_one_watcher(
    still: IndexWatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []

    def start(self: IndexWatcher) -> None:
        started.append(os.getpid())
        self._owner = os.getpid()

    def slow(self: IndexWatcher) -> None:
        time.sleep(0.05)

    monkeypatch.setattr(IndexWatcher, "_start_thread", start)
    monkeypatch.setattr(IndexWatcher, "check", slow)
    child = os.fork()
    if not child:
        asking = [threading.Thread(target=still.current) for _ in range(6)]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
        os._exit(0 if len(started) == 1 else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_relative_folder_is_that_of_the_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedder, versions = Encoder(WEIGHTS, use_references=False), []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        store.create_index(Path("own"), [ADDED, *some(1, start=len(versions))], embedder)
        guard = Guard(index="own")
        versions.append(guard.check(TEXT).index_version)
        assert versions[-1] == BiasIndex.load(Path("own"), None).version
    assert versions[0] != versions[1]
