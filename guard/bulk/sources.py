"""Opens inputs: local files, and those of any file system that fsspec knows (``s3://``)."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, cast

from guard.errors import UsageError
from guard.installed import install_command

FormatName = Literal["jsonl", "csv", "tsv", "text", "parquet"]
_SUFFIXES: dict[str, FormatName] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".txt": "text",
    ".text": "text",
    ".log": "text",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip", ".lz4")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file to judge: an absolute path or a URL, and its format."""

    path: str
    format: FormatName

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rstrip("/").rpartition("/")[2]

    @property
    def delimiter(self) -> str:
        """What separates fields, in CSV and TSV."""
        return "\t" if self.format == "tsv" else ","


def is_url(path: str) -> bool:
    """Whether a path is one of fsspec's: ``s3://bucket/name``."""
    return _URL.match(path) is not None


def input_file(path: str, wanted: FormatName | None) -> InputFile:
    """Return a file with its format, which its suffix tells unless one is ``wanted``.

    Raises:
        UsageError: the format is unknown, or the file is compressed.

    """
    suffix = Path(path).suffix.lower()
    if suffix in _COMPRESSED:
        raise UsageError(f"{path} is compressed; unpack it first, and judge what comes out.")
    if wanted is None and suffix not in _SUFFIXES:
        raise UsageError(
            f"{path} has no suffix of a format; name it with --format (jsonl, csv, tsv, text or "
            "parquet)."
        )
    return InputFile(path if is_url(path) else os.path.abspath(path), wanted or _SUFFIXES[suffix])


def output_format(path: Path) -> FormatName | None:
    """Return the format that an output's suffix names; None if it names none."""
    return _SUFFIXES.get(path.suffix.lower())


def file_system(url: str) -> tuple[Any, str]:
    """Return fsspec's file system of a URL, and the path in it.

    Raises:
        UsageError: fsspec or what it needs for this URL is not installed, or knows no such URL.

    """
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise UsageError(f"{url} is read with fsspec: {install_command('scale')}") from None
    try:
        system, path = url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise UsageError(f"{url} cannot be opened: {error}") from None
    return system, str(path)


def open_input(path: str) -> IO[bytes]:
    """Open a file for reading, at its beginning; raises UsageError if that is not possible."""
    try:
        if is_url(path):
            system, inner = file_system(path)
            return cast(IO[bytes], system.open(inner, "rb"))
        return open(path, "rb")
    except UsageError:
        raise
    except Exception as error:  # each file system has exceptions of its own
        raise unreadable_input(path, error) from None


def unreadable_input(path: str, error: Exception) -> UsageError:
    """Return the error of an input that cannot be read."""
    told = " ".join(str(error).split()).rstrip(".")  # Arrow's has several lines
    reason = getattr(error, "strerror", None) or told or type(error).__name__
    return UsageError(f"{path} cannot be read: {reason}.")


def input_state(path: str) -> tuple[int, str]:
    """Return a file's size and what changes when it does: its time, or what its store calls so."""
    try:
        if is_url(path):
            system, inner = file_system(path)
            return int(system.info(inner)["size"]), str(system.ukey(inner))
        status = os.stat(path)
        return status.st_size, str(status.st_mtime_ns)
    except UsageError:
        raise
    except Exception as error:
        raise unreadable_input(path, error) from None


def arrow_modules() -> tuple[Any, Any]:
    """Return ``pyarrow`` and ``pyarrow.parquet``; raises UsageError if they are not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UsageError(f"Parquet files need pyarrow: {install_command('scale')}") from None
    return pyarrow, pyarrow.parquet
