"""Changing a bias index in its folder while guards use it.

Embedding, which is slow, is done before the folder is locked. Under the lock the latest version is
read, the new files are written beside the old ones, and the manifest is replaced. So several
processes may write, no statements are lost, and a killed writer leaves the index unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from filelock import FileLock, Timeout

from guard.errors import BiasIndexError
from guard.retrieve.draft import Draft, Report, report_nothing
from guard.retrieve.embedder import StatementEmbedder
from guard.retrieve.folder import MANIFEST, Manifest, is_index, read_manifest
from guard.retrieve.index import BiasIndex, is_shipped
from guard.retrieve.resume import vector_cache
from guard.retrieve.statement import BiasStatement
from guard.retrieve.table import fold_key
from guard.retrieve.writing import index_errors

#: The step that is reported while another writer works.
WAITING = "waiting for another writer"


class IndexChange(NamedTuple):
    """The result of a change: counts of statements, and the index's new version.

    ``unmatched`` has the statements and groups to be removed that are not in the index.
    """

    added: int
    duplicates: int
    removed: int
    statements: int
    version: str
    unmatched: tuple[str, ...] = ()


def create_index(
    folder: Path,
    statements: Iterable[BiasStatement],
    embedder: StatementEmbedder,
    *,
    base: BiasIndex | None = None,
    replace: bool = False,
    report: Report = report_nothing,
) -> IndexChange:
    """Make an index of ``statements`` in ``folder``, after those of ``base`` if any.

    Near-copies (the same words) are stored once. With ``replace``, an existing index is replaced
    once the new one is complete. An interrupted build resumes when run again. The statements of a
    ``base`` of another embedder are embedded again.

    Raises:
        BiasIndexError: there is an index and ``replace`` is False, or another file named like its
            manifest; there is no statement; or ``folder`` cannot be written.

    """
    asked = list(statements)
    if base is not None and base.embedder != embedder.name:
        asked, base = [*base.statements, *asked], None
    new = _new_statements(asked, base)
    if not new and not base:
        raise BiasIndexError(f"There is no statement to build the bias index at {folder} from.")
    _check_own(folder)
    with index_errors(folder):
        _check_free(folder, replace)
    with _made_folder(folder), vector_cache(folder, embedder.name) as cache:
        texts = [s.statement for s in new]
        vectors = cache.vectors(texts, embedder, partial(report, "embedding"))
        with index_errors(folder), _locked_folder(folder, report):
            before = _check_free(folder, replace)
            rows = np.arange(0 if base is None else len(base))
            draft = Draft(folder, embedder.name, base, rows, new, vectors)
            version = draft.publish(before, report=report)
        cache.drop(all=True)
    return IndexChange(len(new), len(asked) - len(new), 0, len(rows) + len(new), version)


def add_statements(
    folder: Path,
    statements: Iterable[BiasStatement],
    embedder: StatementEmbedder,
    *,
    report: Report = report_nothing,
) -> IndexChange:
    """Add ``statements`` to the index in ``folder``; those that it already has are left out.

    An interrupted call resumes when run again.

    Raises:
        BiasIndexError: there is no index, another embedder made it, or it cannot be written.

    """
    _check_own(folder)
    asked = list(statements)
    new = _new_statements(asked, BiasIndex.load(folder, embedder.name))
    with vector_cache(folder, embedder.name) as cache:
        vectors_of_new = cache.vectors(
            [s.statement for s in new], embedder, partial(report, "embedding")
        )
        dim = vectors_of_new.shape[1] if new else None
        with index_errors(folder), _locked_folder(folder, report):
            # Another writer may have changed the index in the meantime. If it removed statements
            # that are to be added, these are embedded now.
            old = BiasIndex.load(folder, embedder.name, dim)
            new = _new_statements(asked, old)
            version = old.version
            if new:
                vectors = cache.vectors([s.statement for s in new], embedder)
                draft = Draft(folder, embedder.name, old, np.arange(len(old)), new, vectors)
                version = draft.publish(read_manifest(folder), grows=True, report=report)
        cache.drop()
    return IndexChange(len(new), len(asked) - len(new), 0, len(old) + len(new), version)


def remove_statements(
    folder: Path,
    *,
    statements: Iterable[str] = (),
    groups: Iterable[str] = (),
    report: Report = report_nothing,
) -> IndexChange:
    """Remove ``statements``, their near-copies, and every statement about one of ``groups``.

    Raises:
        BiasIndexError: there is no index, or it cannot be written.

    """
    _check_own(folder)
    asked = {"fold": _fold_keys(statements), "group": _fold_keys(groups)}
    read_manifest(folder)
    with index_errors(folder), _locked_folder(folder, report):
        old = BiasIndex.load(folder, None)
        gone = np.zeros(len(old), bool)
        unmatched: list[str] = []
        for column, keys in asked.items():
            gone |= np.isin(old.table[column], np.array([*keys], np.uint64))
            unmatched += [keys[k] for k in keys.keys() - set(old.table[column].tolist())]
        rows = np.flatnonzero(~gone)
        version = old.version
        if gone.any():
            nothing = np.zeros((0, old.dim), np.float32)
            draft = Draft(folder, old.embedder, old, rows, [], nothing)
            version = draft.publish(read_manifest(folder), grows=True, report=report)
    return IndexChange(0, 0, len(old) - len(rows), len(rows), version, tuple(sorted(unmatched)))


_LOCK = ".lock"


def _fold_keys(texts: Iterable[str]) -> dict[int, str]:
    return {fold_key(text): text for text in texts}


def _new_statements(
    statements: Iterable[BiasStatement], index: BiasIndex | None
) -> list[BiasStatement]:
    """Return the first of each set of near-copies that ``index`` does not have."""
    new: dict[int, BiasStatement] = {}
    for statement in statements:
        new.setdefault(fold_key(statement.statement), statement)
    held = set() if index is None else set(index.table["fold"].tolist())
    return [statement for fold, statement in new.items() if fold not in held]


def _check_own(folder: Path) -> None:
    if is_shipped(folder):
        raise BiasIndexError(
            f"{folder} is the index shipped with guard, which cannot be changed; make a copy to "
            "change: guard index build --with-shipped --to FOLDER."
        )


def _check_free(folder: Path, replace: bool) -> Manifest | None:
    """Return the manifest of the index to be replaced; None if it cannot be read."""
    if not (folder / MANIFEST).exists():
        return None
    if not is_index(folder):
        raise BiasIndexError(
            f"{folder / MANIFEST} does not belong to a bias index; choose another folder."
        )
    if not replace:
        raise BiasIndexError(
            f"There is a bias index at {folder} already; add to it (guard index add) or replace it "
            "(guard index build --replace)."
        )
    try:
        return read_manifest(folder)
    except BiasIndexError:
        return None  # damaged, or of a newer guard


@contextmanager
def _locked_folder(folder: Path, report: Report) -> Iterator[None]:
    """Lock the folder for other writers; the system releases the lock if this process is killed."""
    lock = FileLock(folder / _LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        report(WAITING, 0, 1)
        lock.acquire()
        report(WAITING, 1, 1)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _made_folder(folder: Path) -> Iterator[None]:
    """Create ``folder``; remove it after a failure if it is new."""
    with index_errors(folder):
        new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        if new:
            _remove_empty(folder)
        raise


def _remove_empty(folder: Path) -> None:
    # Locked, because another build may have begun in it; lock files do not count as content.
    with suppress(OSError), FileLock(folder / _LOCK, timeout=0):
        if all(path.suffix == _LOCK or path.name == _LOCK for path in folder.iterdir()):
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()
