"""The folder ``OUT.partial``: the verdicts so far, owned by one driver.

``verdicts.jsonl`` holds the verdicts of all rows up to some row, in order. The first block that is
not complete is the head: its verdicts are added there as they come. Those of later blocks wait in a
file of their own, ``block-N.jsonl``, until theirs is the head. Processes begin no more blocks where
512 wait; Ray, which has no such limit, may leave more files. A line that was cut when the process
or the machine ended is dropped when the folder is opened again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from guard.bulk.planning import BlockPlan, InputBlock
from guard.errors import UsageError

#: Says that the outputs are whole, and holds their counts.
DONE = "done.json"
#: The folder of the outputs until they get their names.
OUTPUTS = "out"
_VERDICTS, _MANIFEST, _LOCK = "verdicts.jsonl", "manifest.json", "lock"


class VerdictStore:
    """The verdicts of a job on disk.

    ``rows`` is the number of rows whose verdicts are stored without a gap.
    """

    def __init__(self, folder: Path, plan: BlockPlan) -> None:
        self._folder, self._plan = folder, plan
        path = folder / _VERDICTS
        path.touch()
        self.rows = _whole_lines(path, plan.rows)
        self._file: IO[bytes] = open(path, "ab")  # noqa: SIM115  (closed by close())
        self._waiting = dict(self._waiting_blocks())
        self._move_up()

    def _waiting_blocks(self) -> Iterator[tuple[int, int]]:
        """Yield the blocks that wait, and how many of their rows are stored."""
        for path in self._folder.glob("block-*.jsonl"):
            number = path.stem.removeprefix("block-")
            if number.isdecimal() and int(number) < len(self._plan):
                yield int(number), _whole_lines(path, self._plan[int(number)].rows)

    @property
    def stored(self) -> int:
        """The number of rows that have a verdict."""
        return self.rows + sum(self._waiting.values())

    @property
    def waiting(self) -> int:
        """The number of blocks that wait for an earlier one."""
        return len(self._waiting)

    def remaining(self) -> Iterator[tuple[InputBlock, int]]:
        """Yield each block that is not complete, and the first of its rows without a verdict."""
        for number in range(self._head, len(self._plan)):
            block, start = self._plan[number], self.rows_of(number)
            if start < block.rows:
                yield block, start

    @property
    def _head(self) -> int:
        return self._plan.block_of(self.rows) if self.rows < self._plan.rows else len(self._plan)

    def rows_of(self, number: int) -> int:
        """Return how many rows of a block have a verdict."""
        block = self._plan[number]
        if self.rows >= block.first:
            return min(block.rows, self.rows - block.first)
        return self._waiting.get(number, 0)

    def add(self, number: int, start: int, lines: list[bytes]) -> int:
        """Store verdicts on a block's rows from ``start`` on; return how many of them are new."""
        stored = self.rows_of(number)
        assert start <= stored  # rows come in order
        lines = lines[stored - start :]
        if not lines:
            return 0
        content = b"".join(line + b"\n" for line in lines)
        if number == self._head:
            self._append(content, len(lines))
            self._move_up()
        else:
            with open(self._path_of(number), "ab") as file:
                file.write(content)
            self._waiting[number] = self._waiting.get(number, 0) + len(lines)
        return len(lines)

    def _append(self, content: bytes, rows: int) -> None:
        self._file.write(content)
        self._file.flush()  # to the system: the end of this process loses nothing
        self.rows += rows

    def _move_up(self) -> None:
        """Add what waits and is next to the verdicts in order; forget what is there already."""
        for number in sorted(self._waiting):
            if number > self._head:
                return
            block, stored = self._plan[number], self._waiting.pop(number)
            path = self._path_of(number)
            if more := stored - (self.rows - block.first):
                lines = path.read_bytes().splitlines(keepends=True)[-more:] if more > 0 else []
                self._append(b"".join(lines), len(lines))
            path.unlink()

    def _path_of(self, number: int) -> Path:
        return self._folder / f"block-{number}.jsonl"

    def fields(self) -> Iterator[tuple[bytes, dict[str, Any]]]:
        """Yield each row's verdict in order: its line, and the same as values.

        Raises UsageError, and keeps the rows before, if a line is damaged.
        """
        self._file.flush()
        with open(self._folder / _VERDICTS, "rb") as file:
            begin = 0
            for number, line in enumerate(file):
                try:
                    fields = json.loads(line)
                except ValueError:
                    os.truncate(file.name, begin)
                    raise UsageError(
                        f"The verdicts in {self._folder} are damaged from row {number + 1:,} on, "
                        "and were dropped; run the same command again to judge these rows again."
                    ) from None
                begin += len(line)
                yield line.rstrip(b"\n"), fields

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):  # a full disk: what is not there is judged again
            self._file.close()


def _whole_lines(path: Path, most: int) -> int:
    """Cut a file after its last whole line, or after ``most`` lines; return how many are left."""
    count = length = 0
    with open(path, "rb") as file:
        while count < most and (line := file.readline()):
            if not line.endswith(b"\n"):
                break
            count, length, last = count + 1, length + len(line), line
    if count and not _is_object(last):
        count, length = count - 1, length - len(last)
    os.truncate(path, length)
    return count


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


class JobFolder:
    """The folder of a job, its manifest, and the lock of its driver.

    Raises UsageError if another driver has it, if it cannot be written, or if it belongs to a job
    with other inputs or settings.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock: IO[bytes] = open(path / _LOCK, "ab")  # noqa: SIM115
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}.") from None
        if not _locked(self._lock):
            self._lock.close()
            raise UsageError(
                f"Another command is writing {path}; wait for it, or choose another --to."
            )

    def check_manifest(self, manifest: dict[str, Any]) -> None:
        """Write the job's manifest, or compare it with that of the verdicts that are there.

        Raises UsageError naming what differs.
        """
        path = self.path / _MANIFEST
        try:
            earlier = json.loads(path.read_bytes()) if self._has_verdicts() else manifest
            if earlier is manifest:
                temporary = path.with_suffix(".new")
                temporary.write_text(json.dumps(manifest, indent=1), "utf-8")
                os.replace(temporary, path)
        except FileNotFoundError:
            raise UsageError(f"{path} is gone; remove {self.path} to begin anew.") from None
        except ValueError:
            raise UsageError(f"{path} is damaged; remove {self.path} to begin anew.") from None
        for key in manifest:
            if earlier.get(key) != manifest[key]:
                what = _changed_input(earlier.get(key), manifest[key]) if key == "inputs" else key
                raise UsageError(
                    f"{self.path} holds verdicts of a job with another {what}; run the command as "
                    "it was to finish that, choose another --to, or remove the folder."
                )

    def _has_verdicts(self) -> bool:
        files = [self.path / _VERDICTS, *self.path.glob("block-*.jsonl")]
        stored = any(file.exists() and file.stat().st_size for file in files)
        return stored or (self.path / DONE).exists()

    def remove(self) -> None:
        """Remove the folder, what makes it a finished job last; leave what is not the job's."""
        for path in [*self.path.glob("block-*.jsonl"), self.path / _VERDICTS]:
            path.unlink(missing_ok=True)
        with suppress(OSError):  # it is the output by now
            (self.path / OUTPUTS).rmdir()
        for name in (DONE, _MANIFEST, _LOCK):
            (self.path / name).unlink(missing_ok=True)
        with suppress(OSError):  # not empty
            self.path.rmdir()

    def close(self) -> None:
        """Give the folder up."""
        self._lock.close()


def _changed_input(earlier: Any, now: Any) -> str:
    """Name the input that differs."""
    before = {i["path"]: i for i in earlier or ()}
    names = [i["path"] for i in now if before.get(i["path"]) != i]
    return f"input: {names[0]} was changed or added" if names else "list of inputs"


def _locked(file: IO[bytes]) -> bool:
    """Lock a file for this process; return False if another has the lock."""
    try:
        import fcntl
    except ImportError:  # Windows has no fork, so that no child keeps the file open
        import msvcrt

        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        except OSError:
            return False
        return True
    try:
        # Not flock: forked workers that outlive a killed driver for a moment would keep it.
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
