"""What stands in a journal line by line, repeats included."""

from __future__ import annotations

from pathlib import Path

from guard.audit.calls import Call, Guarded
from guard.audit.header import Header
from guard.audit.lines import Reader
from guard.audit.records import record_of


def read(path: Path) -> tuple[Header, list[Call | Guarded]]:
    lines = iter(Reader(path))
    return Header.of(next(lines), path), [record_of(line) for line in lines]
