"""Changing a bias index in its folder while guards are serving from it.

Embedding, which takes long, is done before the folder is locked. Under the lock the index is read
as the last writer left it, the new files are written beside the old ones, and the manifest is
replaced. So writers of several processes follow each other, nobody's statements are lost, and a
writer that is killed leaves the index as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from filelock import FileLock, Timeout

from guard.errors import BiasIndexError
from guard.places import shipped
from guard.retrieve.draft import Draft, Report, quiet
from guard.retrieve.embedder import Embedder
from guard.retrieve.folder import MANIFEST, Manifest, is_index, read_manifest
from guard.retrieve.index import BiasIndex
from guard.retrieve.resume import kept
from guard.retrieve.statement import Statement
from guard.retrieve.table import key


class Change(NamedTuple):
    """What a writer did: counts of statements, and the index's content hash from then on."""

    added: int
    duplicates: int
    removed: int
    statements: int
    version: str


def create(
    folder: Path,
    statements: Iterable[Statement],
    embedder: Embedder,
    *,
    base: BiasIndex | None = None,
    replace: bool = False,
    report: Report = quiet,
) -> Change:
    """Make an index of ``statements`` in ``folder``, after those of ``base`` if any.

    Near-copies (the same words) are kept once. With ``replace`` an index that is there gives way
    when the new one is whole. Run again after a kill, it embeds only what was left.

    Raises:
        BiasIndexError: there is an index and ``replace`` is not given, there is no statement,
            ``base`` has another embedder, or ``folder`` cannot be written.

    """
    if base is not None and base.embedder != embedder.name:
        raise BiasIndexError(
            f"The bias index to begin with was built with '{base.embedder}' and cannot be searched "
            f"with '{embedder.name}'; build it again with the embedder in use."
        )
    asked = list(statements)
    new = _unlike(asked, base)
    if not new and not base:
        raise BiasIndexError(f"There is no statement to build the bias index at {folder} of.")
    _check_own(folder)
    with _written(folder):
        folder.mkdir(parents=True, exist_ok=True)
        _check_free(folder, replace)
        with kept(folder, embedder.name) as done:
            texts = [s.statement for s in new]
            vectors = done.vectors(texts, embedder, partial(report, "embedding"))
            with _locked(folder, report):
                before = _check_free(folder, replace)
                rows = np.arange(0 if base is None else len(base))
                draft = Draft(folder, embedder.name, base, rows, new, vectors)
                version = draft.publish(before, report=report)
            done.drop()
    return Change(len(new), len(asked) - len(new), 0, len(rows) + len(new), version)


def add(
    folder: Path,
    statements: Iterable[Statement],
    embedder: Embedder,
    *,
    report: Report = quiet,
) -> Change:
    """Add ``statements`` to the index in ``folder``; those that it holds already are left out.

    Run again after a kill, it embeds only what was left.

    Raises:
        BiasIndexError: there is no index, another embedder made it, or it cannot be written.

    """
    _check_own(folder)
    asked = list(statements)
    new = _unlike(asked, BiasIndex.load(folder, embedder.name))
    with _written(folder), kept(folder, embedder.name) as done:
        vectors = done.vectors([s.statement for s in new], embedder, partial(report, "embedding"))
        with _locked(folder, report):
            # Another writer may have been here while these were embedded.
            old = BiasIndex.load(folder, embedder.name)
            held = _folds(old)
            fresh = [i for i, s in enumerate(new) if key(s.statement) not in held]
            version = old.version
            if fresh:
                new, vectors = [new[i] for i in fresh], vectors[fresh]
                draft = Draft(folder, embedder.name, old, np.arange(len(old)), new, vectors)
                version = draft.publish(read_manifest(folder), grows=True, report=report)
        done.drop()
    return Change(len(fresh), len(asked) - len(fresh), 0, len(old) + len(fresh), version)


def remove(
    folder: Path,
    *,
    statements: Iterable[str] = (),
    groups: Iterable[str] = (),
    report: Report = quiet,
) -> Change:
    """Remove ``statements``, their near-copies, and every statement about one of ``groups``.

    Raises:
        BiasIndexError: there is no index, or it cannot be written.

    """
    _check_own(folder)
    words, about = [key(s) for s in statements], [key(g) for g in groups]
    read_manifest(folder)
    with _written(folder), _locked(folder, report):
        old = BiasIndex.load(folder, None)
        gone = np.isin(old.table["fold"], np.array(words, np.uint64))
        gone |= np.isin(old.table["group"], np.array(about, np.uint64))
        rows = np.flatnonzero(~gone)
        version = old.version
        if gone.any():
            nothing = np.zeros((0, old.dim), np.float32)
            draft = Draft(folder, old.embedder, old, rows, [], nothing)
            version = draft.publish(read_manifest(folder), grows=True, report=report)
    return Change(0, 0, len(old) - len(rows), len(rows), version)


_LOCK = ".lock"


def _unlike(statements: Iterable[Statement], index: BiasIndex | None) -> list[Statement]:
    """Return the first of each set of near-copies that ``index`` does not hold."""
    found: dict[int, Statement] = {}
    for statement in statements:
        found.setdefault(key(statement.statement), statement)
    held = set() if index is None else _folds(index)
    return [statement for fold, statement in found.items() if fold not in held]


def _folds(index: BiasIndex) -> set[int]:
    return set(index.table["fold"].tolist())


def _check_own(folder: Path) -> None:
    if folder.resolve() == shipped("index").resolve():
        raise BiasIndexError(
            f"{folder} is the index that guard ships, which stays as it is; make one of your own "
            "that begins with it: guard index build --with-shipped --to FOLDER."
        )


def _check_free(folder: Path, replace: bool) -> Manifest | None:
    """Return the manifest of the index that gives way, None where it cannot be read."""
    if not (folder / MANIFEST).exists():
        return None
    if not is_index(folder):
        raise BiasIndexError(
            f"{folder / MANIFEST} belongs to something else than a bias index; give another folder."
        )
    if not replace:
        raise BiasIndexError(
            f"There is a bias index at {folder} already; add to it (guard index add) or have it "
            "replaced (guard index build --replace)."
        )
    try:
        return read_manifest(folder)
    except BiasIndexError:
        return None  # damaged, or of a newer guard


@contextmanager
def _locked(folder: Path, report: Report) -> Iterator[None]:
    """Keep other writers out; the system lets them in again when this process is killed."""
    lock = FileLock(folder / _LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        report("waiting for another writer", 0, 1)
        lock.acquire()
        report("waiting for another writer", 1, 1)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _written(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BiasIndexError(
            f"The bias index at {folder} cannot be written: {error.strerror or error}."
        ) from error
