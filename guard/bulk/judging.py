"""Judges a block: the same function in this process, in others, and in Ray's actors."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from guard import judge_settings, served_settings
from guard.bulk.arrow_rows import ParquetInput
from guard.bulk.line_formats import is_blank, line_format, raw_rows
from guard.bulk.planning import InputBlock
from guard.bulk.rows import RowText, VerdictLines
from guard.bulk.sources import InputFile, open_input, unreadable_input
from guard.config import merge_settings, own_value, policy_from, read_settings
from guard.core import Guard, highest_verdict
from guard.errors import GuardError, UsageError
from guard.places import DEFAULT, DETECTORS
from guard.policy import Policy
from guard.verdict import GuardTrail

_LOADING = ("index", "weights", "device", "judge", "served")
# Seconds before texts are judged again that a detector behind an address, or a model, failed on.
_PAUSES_S = (1.0, 2.0, 4.0, 8.0)
_SERVED_TIMEOUT_S = 60.0
_TRIAL = "A trial."
# Rows and characters that are judged, and stored, together.
_SLICE_ROWS, _SLICE_CHARACTERS = 16, 20_000


class JudgedRows(NamedTuple):
    """Verdicts on rows of a block that follow each other, from its row ``start`` on."""

    block: int
    start: int
    lines: list[bytes]


class JudgeIdentity(NamedTuple):
    """Who judges: the detector with its weights' hash, and the version of its index."""

    detector: str
    index_version: str | None


@dataclass(frozen=True)
class JudgeSpec:
    """What a process needs to judge as the others do; it may be sent to another machine."""

    policy: Policy
    detector: str
    loading: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of :class:`guard.Guard` that say how the detector is loaded or asked."""

    @classmethod
    def read(cls, operating_point: str | None, detector: str | None) -> JudgeSpec:
        """Return what the settings of file and environment, and these two options, ask for.

        Nobody waits for a verdict of a job, so a loaded machine changes none: there is no time
        limit, and no failure skips the next rows.

        Raises:
            ConfigError: a setting is unknown or out of range.

        """
        configured = read_settings()
        own = {key: configured.pop(key) for key in ("detector", *_LOADING) if key in configured}
        policy = {key: value for key, value in configured.items() if key in Policy.model_fields}
        if operating_point:
            policy = merge_settings(policy, {"operating_point": operating_point})
        patient = dict.fromkeys(("timeout_ms", "queue_ms", "breaker_failures"))
        if detector:
            own = merge_settings(own, {"detector": own_value("detector", detector, "--detector")})
        if any(scheme in str(own.get("detector")) for scheme in served_settings.SCHEMES):
            own["served"] = {"timeout_s": _SERVED_TIMEOUT_S, **own.get("served", {})}
        for key in {"index", "weights"} & own.keys():
            own[key] = str(Path(own[key]).absolute())
        return cls(policy_from({**policy, **patient}), str(own.pop("detector", DEFAULT)), own)

    def make_guard(self) -> Guard:
        """Return the guard; in a process that has loaded the detector it is not loaded again."""
        return Guard(self.policy, detector=self.detector, events="none", **self.loading)

    @property
    def secret_setting(self) -> str:
        """The setting that holds a secret, such as a key for a judge's provider; or empty."""
        printable = {
            "judge": judge_settings.printable_settings,
            "served": served_settings.printable_settings,
        }
        for name, shown in printable.items():
            values = self.loading.get(name, {})
            if shown(values) != values:
                return name
        return ""

    @property
    def embedded(self) -> bool:
        """Whether only shipped networks judge, one window at a time: these fill one core each."""
        return self.detector in DETECTORS


def identity_of(guard: Guard) -> JudgeIdentity:
    """Return who judges."""
    return JudgeIdentity(guard.detector.name, guard.detector.snapshot().index_version)


class BlockReader:
    """Reads the texts of blocks."""

    def __init__(self, inputs: Sequence[InputFile], column: str, prefix: str) -> None:
        self._inputs, self._column, self._prefix = inputs, column, prefix
        self._parquet: tuple[int, ParquetInput] | None = None

    def texts(self, block: InputBlock) -> list[RowText]:
        """Return the texts of a block's rows; raises UsageError if it has other rows by now."""
        file = self._inputs[block.file]
        try:
            texts = self._read(file, block)
        except GuardError:
            raise
        except Exception as error:  # of a file system or of Arrow: no row's fault
            raise unreadable_input(file.path, error) from None
        if len(texts) != block.rows:
            raise UsageError(f"{file.path} was changed while it was judged; judge it anew.")
        return texts

    def close(self) -> None:
        """Close what was read last."""
        if self._parquet is not None:
            self._parquet[1].close()
            self._parquet = None

    def _read(self, file: InputFile, block: InputBlock) -> list[RowText]:
        if file.format == "parquet":
            return self._parquet_input(file, block.file).texts(block.group, block.begin, block.end)
        form = line_format(file, self._column, self._prefix)
        with open_input(file.path) as source:
            form.read_header(source)
            source.seek(block.begin)
            lines = raw_rows(source, form, file.name, block.end)
            return [form.read_row(raw) for raw in lines if not is_blank(raw, form)]

    def _parquet_input(self, file: InputFile, number: int) -> ParquetInput:
        if self._parquet is None or self._parquet[0] != number:
            self.close()
            self._parquet = number, ParquetInput(file, self._column)
        return self._parquet[1]


class BlockJudge:
    """Reads and judges blocks.

    Raises UsageError if the judge here is not ``expected``: another machine has other weights.
    """

    def __init__(
        self, spec: JudgeSpec, reader: BlockReader, prefix: str, expected: JudgeIdentity
    ) -> None:
        self._guard = spec.make_guard()
        self._embedded = spec.embedded
        self._reader, self._expected = reader, expected
        self._lines = VerdictLines(prefix, *expected)
        self._check(identity_of(self._guard))

    def _check(self, found_here: JudgeIdentity) -> None:
        if found_here != self._expected:
            raise UsageError(
                f"The judge is {found_here.detector} with the index {found_here.index_version} "
                f"here, but the job's is {self._expected.detector} with the index "
                f"{self._expected.index_version}: make them the same, or start with another --to."
            )

    def judged(self, block: InputBlock, start: int, careful: bool) -> Iterator[JudgedRows]:
        """Yield the verdicts on a block's rows from its row ``start`` on, some rows at a time.

        ``careful``: each row by itself, since one of them may end the process.
        """
        texts = self._reader.texts(block)
        while start < len(texts):
            rows = _slice_size(texts, start, 1 if careful else _SLICE_ROWS)
            yield JudgedRows(block.number, start, self.verdicts(texts[start : start + rows]))
            start += rows

    def verdicts(self, texts: Sequence[RowText]) -> list[bytes]:
        """Return a line for each row: its verdict, or the reason why there is none."""
        asked = [row.text for row in texts if row.reason is None]
        trails = iter(self._trails(asked))
        lines = []
        for row in texts:
            if row.reason is not None:
                lines.append(self._lines.of_reason(row.reason))
                continue
            trail = next(trails)
            verdict = highest_verdict(trail, self._guard.policy)
            self._check(JudgeIdentity(verdict.detector, verdict.index_version))
            lines.append(self._lines.of_trail(trail, verdict))
        return lines

    def _trails(self, texts: Sequence[str]) -> list[GuardTrail]:
        """Return the decisions on each text.

        Where the detector is in another process, what it failed on is judged again. Raises
        UsageError where it then fails on a harmless text as well: it is the detector that fails.
        """
        trails = self._guard.trails(texts)
        for pause_s in () if self._embedded else _PAUSES_S:
            failed = [number for number, trail in enumerate(trails) if _is_failed(trail)]
            if not failed:
                return trails
            time.sleep(pause_s)
            for number, trail in zip(
                failed, self._guard.trails([texts[n] for n in failed]), strict=True
            ):
                trails[number] = trail
        if (
            not self._embedded
            and any(map(_is_failed, trails))
            and _is_failed(self._guard.trail(_TRIAL))
        ):
            raise UsageError(
                f"The detector {self._guard.detector.name} fails; what it judged is kept, and the "
                "same command goes on once it works."
            )
        return trails


def _is_failed(trail: GuardTrail) -> bool:
    return any(decision.verdict.unjudged in ("failure", "overload") for decision in trail)


def _slice_size(texts: Sequence[RowText], start: int, most: int) -> int:
    """Return how many rows from ``start`` on are judged together: at least one."""
    characters = 0
    for number, row in enumerate(texts[start : start + most]):
        characters += len(row.text)
        if characters > _SLICE_CHARACTERS:
            return max(1, number)
    return min(most, len(texts) - start)
