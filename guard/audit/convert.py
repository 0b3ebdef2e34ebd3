"""``guard audit convert``: makes a run's file of the journals that earlier versions wrote.

A journal was a file of compressed JSON lines a suite, each with a checksum; the first was the
header. This module goes with the next release.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import re
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from guard.audit.calls import Call, Guarded, Line, Piece, Reply, Slot, Usage
from guard.audit.files import ASKED_FILE, GZIP, JOURNAL, RUN_FILE
from guard.audit.header import FORMAT, Header
from guard.audit.run_file import RunWriter
from guard.errors import UsageError
from guard.suites import TextScore

_GZIP_BITS = 16 + zlib.MAX_WBITS
_BLOCK = 1 << 16
_WITHOUT_CHECKSUMS = 1
_SUM = re.compile(rb',"sum":"([0-9a-f]{12})"\}$')


class ConvertedJournal(NamedTuple):
    """What was made of a journal; ``damaged`` counts the lines that were left out."""

    path: Path
    run_file: Path
    calls: int
    damaged: int


def convert_journals(place: Path, to: Path | None = None) -> Iterator[ConvertedJournal]:
    """Write the journals at ``place``, a journal or a folder, into the run's file beside them.

    The journals of a folder's folders, one for each model, are converted, too. ``to`` is another
    folder for the files. The journals stay as they are. Raises UsageError where there is none, or
    one cannot be read.
    """
    folder = place if place.is_dir() else place.parent
    paths = [place] if place.is_file() else sorted(_journals_in(place))
    if not paths:
        raise UsageError(f"{place} has no journal ({JOURNAL}) of an earlier version to convert.")
    for journal in [Journal(path) for path in paths]:  # every header before the first is written
        path = journal.path
        run_file = (to or folder) / path.parent.relative_to(folder) / RUN_FILE
        records = journal.records()
        with RunWriter(run_file) as run:
            if journal.header.suite in run.headers:
                raise UsageError(
                    f"{run_file} has {journal.header.suite} already; give another folder: --to."
                )
            run.replace_suite(journal.header, records)
        _copy_times_and_asked(path, run_file)
        calls = sum(isinstance(record, Call) for record in records)
        yield ConvertedJournal(path, run_file, calls, journal.damaged)


def _journals_in(folder: Path) -> Iterator[Path]:
    yield from folder.glob(f"*{JOURNAL}")
    yield from folder.glob(f"*/*{JOURNAL}")


def _copy_times_and_asked(path: Path, run_file: Path) -> None:
    """Keep what reports and history know of a run: its time, and what it was to ask."""
    newest = max(journal.stat().st_mtime for journal in path.parent.glob(f"*{JOURNAL}"))
    os.utime(run_file, (newest, newest))
    asked = path.parent / ASKED_FILE
    if asked.exists() and asked.parent != run_file.parent:
        shutil.copyfile(asked, run_file.parent / ASKED_FILE)


class Journal:
    """The header and the records of a journal. ``damaged`` counts lines without their checksum."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damaged = 0
        line = next(_whole_lines(path), b"")
        try:
            first = json.loads(line)
            form = first["format"]
        except (ValueError, TypeError, LookupError, RecursionError):
            raise UsageError(f"{path} is not a journal of an audit.") from None
        if form not in (FORMAT, _WITHOUT_CHECKSUMS):
            raise UsageError(
                f"{path} is a journal of format {form!r}; convert it with the version of guard "
                "that wrote it."
            )
        seed = _line_checksum(b"", _without_sum(line)[0])
        if form == FORMAT and _without_sum(line)[1] != seed:
            raise UsageError(f"The first line of {path} was edited, so none can be relied on.")
        self.header = Header.of(first, path)
        self._seed = seed if form == FORMAT else None

    def records(self) -> list[Call | Guarded]:
        """Return the records whose line is whole, in their order; an answer replaces a failure."""
        calls: dict[str, Call] = {}
        readings: dict[str, Guarded] = {}
        self.damaged = 0
        for line in itertools.islice(_whole_lines(self.path), 1, None):
            text, stored = _without_sum(line)
            if self._seed is not None and stored != _line_checksum(self._seed, text):
                self.damaged += 1
                continue
            try:
                record = record_of(json.loads(text))
            except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
                self.damaged += 1
                continue
            if isinstance(record, Guarded):
                readings.setdefault(record.key, record)
            elif record.key not in calls or calls[record.key].reply is None:
                calls[record.key] = record
        return [*calls.values(), *readings.values()]


def _whole_lines(path: Path) -> Iterator[bytes]:
    """Yield the whole lines of a journal, up to the end or to bytes that cannot be decompressed."""
    rest = b""
    inflate = zlib.decompressobj(_GZIP_BITS)
    with path.open("rb") as file:
        if file.read(len(GZIP)) != GZIP:
            return
        file.seek(0)
        while data := file.read(_BLOCK):
            while data:
                try:
                    text = inflate.decompress(data)
                except zlib.error:
                    return
                *whole, rest = (rest + text).split(b"\n")
                yield from whole
                data = inflate.unused_data
                if inflate.eof:
                    inflate = zlib.decompressobj(_GZIP_BITS)


def _without_sum(line: bytes) -> tuple[bytes, bytes]:
    """Return the text of a line, and its checksum, empty where it has none."""
    match = _SUM.search(line)
    return (line[: match.start()] + b"}", match[1]) if match else (line, b"")


def _line_checksum(seed: bytes, text: bytes) -> bytes:
    return hashlib.sha256(seed + text).hexdigest()[:12].encode()


def record_of(line: Line) -> Call | Guarded:
    """Return the record of a journal's line; raises KeyError on another line."""
    if line["k"] == "guarded":
        return Guarded(
            line["key"],
            line["as"],
            line.get("text", ""),
            tuple(line.get("types", ())),
            line.get("score", math.nan),
            line.get("own", 0),
            line.get("kept", 1.0),
            line.get("stopped", False),
            line.get("s", math.nan),
        )
    if line["k"] != "call":
        raise KeyError(line["k"])
    reply = None
    if "error" not in line:
        chunks = line.get("chunks", ())
        prompt_tokens, completion_tokens = line["tokens"]
        reply = Reply(
            tuple(Piece(c["r"], True) if isinstance(c, dict) else Piece(c) for c in chunks),
            line.get("finish", "stop"),
            line.get("first", {}),
            tuple(TextScore(*score) for score in line.get("scores", ())),
            Usage(prompt_tokens, completion_tokens, line.get("cost", math.nan)),
        )
    return Call(
        line["key"],
        Slot(line["id"], line["sample"], line["turn"]),
        reply,
        line.get("error", ""),
        line.get("attempts", 1),
        line["s"],
        line.get("by", "model"),
        line.get("kind", ""),
        line.get("status"),
    )
