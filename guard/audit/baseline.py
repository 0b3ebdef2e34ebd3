"""Baselines: what a run says of each axis, in one small file that is made to be committed.

A file of JSON with the comparability key of each suite, the outcome of each item in each arm, and
each axis' rows pair by pair: all that the tests of a comparison need, and no word of what a model
said. Rows that are alike are written once. A checksum over the rest shows a file that was edited.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from dataclasses import replace as replace_
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from guard import __version__
from guard.audit import harnesses, sides
from guard.audit.directions import UNKNOWN
from guard.audit.files import BASELINE, GZIP, write_whole
from guard.audit.header import Header
from guard.audit.paired import Aim
from guard.audit.sides import Axis, Side, SuiteSide
from guard.errors import UsageError
from guard.suites import registry
from guard.suites.reading import share

FORMAT = 1
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ANEW = "make it anew: guard audit baseline RUN --out FILE."
_DEEP = 3
"""So many levels of the file have a line for each entry, the rest stands in one."""


def opened(place: Path, own: Iterable[str] = (), data: Path | None = None) -> Side:
    """Return the side that a baseline, a journal, the folder of a run or another's log is.

    ``own`` and ``data`` are those of :func:`guard.audit.sides.read`. Raises UsageError where it is
    none of them, or cannot be used.
    """
    log = harnesses.read(place)
    if log is not None:
        return log
    if place.is_file() and not _is_journal(place):
        return _with_suites(load(place), own)
    # Where suites were asked for by name, a journal of another is not there to be compared.
    return sides.read(place, own, data, known=bool(list(own)))


def run(place: Path, own: Iterable[str] = (), data: Path | None = None) -> Side:
    """Return the side of a journal, of the folder of a run, or of logs of another harness.

    ``own`` and ``data`` are those of :func:`guard.audit.sides.read`, and so is what it raises.
    """
    log = harnesses.read(place)
    return sides.read(place, own, data) if log is None else log


def _is_journal(place: Path) -> bool:
    with place.open("rb") as file:
        return file.read(2) == GZIP


def _with_suites(side: Side, own: Iterable[str]) -> Side:
    """Return ``side`` with the suites that are not registered, named by module:Class."""
    suites = dict(side.suites)
    for place in own:
        own_class = ":" in place and not place.startswith(harnesses.SUITES)
        name = registry.find(place).name if own_class else ""
        if name in suites:
            suite = registry.make(place, suites[name].header.options)
            suites[name] = replace_(suites[name], suite=suite)
    return Side(side.name, suites)


def write(side: Side, path: Path, *, replace: bool = False) -> None:
    """Write the baseline of ``side``: all of it appears under its name, or nothing.

    Raises UsageError where something is there that ``replace`` does not allow to go, or where it
    cannot be written. Only a baseline is ever replaced.
    """
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is no file; give another --out.")
    if path.exists():
        if not replace:
            raise UsageError(f"{path} is there already; give another --out, or --replace.")
        load(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, _text(side))
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}.") from None


def load(path: Path) -> Side:
    """Return the side that the baseline at ``path`` holds; its axes have no functions.

    Raises UsageError where it is none, of another format, cut off, or was edited.
    """
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read as a baseline ({error}).") from None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        told = "is cut off" if BASELINE in text[:200] else "is no baseline"
        raise UsageError(f"{path} {told}; {_ANEW}") from None
    if not isinstance(found, dict) or found.get("kind") != BASELINE:
        raise UsageError(f"{path} is no baseline; {_ANEW}")
    if found.get("format") != FORMAT:
        raise UsageError(
            f"{path} is a baseline of format {found.get('format')!r}, this guard reads {FORMAT}; "
            f"{_ANEW}"
        )
    if found.pop("checksum", None) != _checksum(found):
        raise UsageError(
            f"{path} was changed after it was made: its checksum is another. Restore it, or {_ANEW}"
        )
    try:
        return Side(str(path), {name: _suite(one) for name, one in found["suites"].items()})
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        raise UsageError(f"{path} is no whole baseline; {_ANEW}") from None


def _text(side: Side) -> str:
    body: dict[str, Any] = {
        "kind": BASELINE,
        "format": FORMAT,
        "guard": __version__,
        "suites": {name: _written(one) for name, one in side.suites.items()},
    }
    return _laid_out({**body, "checksum": _checksum(body)}) + "\n"


def identity(one: SuiteSide) -> str:
    """Return the SHA-256 that names a run of a suite: of its journal, or of all that it found."""
    return one.run or _checksum(_written(one))


def _checksum(body: Mapping[str, Any]) -> str:
    """Return the SHA-256 of what a file says, however it is laid out."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _laid_out(value: Any, depth: int = 0) -> str:
    """Return JSON with a line for each entry of the first levels: a change shows as few lines."""
    inner, space = depth + 1, " " * (depth + 1)
    if isinstance(value, dict) and value and depth < _DEEP:
        lines = [f"{space}{json.dumps(k)}: {_laid_out(v, inner)}" for k, v in value.items()]
        return "{\n" + ",\n".join(lines) + "\n" + " " * depth + "}"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        lines = [space + _laid_out(v, _DEEP) for v in value]
        return "[\n" + ",\n".join(lines) + "\n" + " " * depth + "]"
    return json.dumps(value, separators=(",", ":"))


def _written(one: SuiteSide) -> dict[str, Any]:
    axes = list(one.axes.values())
    cluster = {
        i: c for a in axes if a.unit == "item" for i, c in zip(a.ids, a.clusters, strict=True)
    }
    ids = list(cluster)
    names = list(dict.fromkeys([*cluster.values(), *(c for a in axes for c in a.clusters)]))
    place = {
        "item": {item: at for at, item in enumerate(ids)},
        "cluster": {name: at for at, name in enumerate(names)},
    }
    return {
        "key": asdict(one.header),
        "run": one.run,
        "asked": {"items": one.items, "available": one.available, "coverage": one.coverage},
        "spent": dict(one.spent),
        "items": ids,
        "clusters": names,
        "cluster_of_item": _runs_of_values([place["cluster"][cluster[item]] for item in ids]),
        "outcomes": {arm: _outcomes(told, ids) for arm, told in one.outcomes.items()},
        "axes": [_axis(axis, place[axis.unit]) for axis in axes],
    } | (
        {"contents": [one.contents[item] for item in ids], "left_out": list(one.left_out)}
        if one.harness
        else {}
    )


def _outcomes(told: Mapping[str, str], ids: Sequence[str]) -> dict[str, Any]:
    kinds = list(dict.fromkeys(told.values()))
    at = {name: place for place, name in enumerate(kinds)}
    # Where an item has no outcome in an arm, one more than there are stands for it.
    return {
        "kinds": kinds,
        "of": _packed([at.get(told.get(i, ""), len(kinds)) for i in ids], len(kinds) + 1),
    }


def _axis(axis: Axis, place: Mapping[str, int]) -> dict[str, Any]:
    kinds, of = np.unique(axis.rows, axis=0, return_inverse=True)
    return {
        "arm": axis.arm,
        "measure": axis.measure,
        "labels": dict(axis.labels),
        "ideal": axis.aim.ideal if math.isfinite(axis.aim.ideal) else None,
        "better": axis.better,
        "bounds": [b if math.isfinite(b) else None for b in axis.aim.bounds],
        "above": axis.aim.above,
        "unit": axis.unit,
        "pairs": _runs([place[name] for name in axis.ids]),
        "columns": axis.rows.shape[1],
        "kinds": [[_short(x) for x in row] for row in kinds.tolist()],
        "of": _packed(of.reshape(-1).tolist(), len(kinds)),
    }


def _short(value: float) -> float | int | None:
    if not math.isfinite(value):
        return None  # JSON has no nan
    return int(value) if value == int(value) else value


def _packed(places: Sequence[int], kinds: int) -> str | list[int]:
    """Return places below ``kinds`` as a text with a character each, where characters suffice."""
    return "".join(_DIGITS[p] for p in places) if kinds <= len(_DIGITS) else list(places)


def _unpacked(of: str | list[int]) -> list[int]:
    return [_DIGITS.index(c) for c in of] if isinstance(of, str) else list(of)


def _runs(places: Sequence[int]) -> list[list[int]]:
    """Return places as runs: the first of each, and how many follow one another from there."""
    runs = groupby(enumerate(places), key=lambda pair: pair[1] - pair[0])
    listed = [[place for _, place in run] for _, run in runs]
    return [[run[0], len(run)] for run in listed]


def _of_runs(runs: Iterable[Sequence[int]]) -> list[int]:
    return [place for first, size in runs for place in range(first, first + size)]


def _runs_of_values(values: Sequence[int]) -> list[list[int]]:
    """Return values as runs of the same: each with how often it comes."""
    return [[value, len(list(run))] for value, run in groupby(values)]


def _suite(one: Mapping[str, Any]) -> SuiteSide:
    header = Header(**one["key"])
    ids, names = one["items"], one["clusters"]
    cluster = [names[value] for value, size in one["cluster_of_item"] for _ in range(size)]
    axes: dict[str, Axis] = {}
    for told in one["axes"]:
        at = _of_runs(told["pairs"])
        item = told["unit"] == "item"
        least, most = told["bounds"]
        bounds = (-math.inf if least is None else least, math.inf if most is None else most)
        kinds = np.array(told["kinds"], dtype=np.float64).reshape(-1, told["columns"])
        axis = Axis(
            told["arm"],
            told["measure"],
            told["labels"],
            Aim(UNKNOWN if told["ideal"] is None else told["ideal"], bounds, told["above"]),
            told["unit"],
            [ids[i] if item else names[i] for i in at],
            [cluster[i] if item else names[i] for i in at],
            kinds[np.array(_unpacked(told["of"]), dtype=np.int64)],
            share if item and ":" in header.suite else None,
            better=told.get("better", ""),
        )
        axes[axis.name(header.suite)] = axis
    outcomes = {}
    for arm, told in one["outcomes"].items():
        names = told["kinds"]
        places = zip(ids, _unpacked(told["of"]), strict=True)
        outcomes[arm] = {item: names[p] for item, p in places if p < len(names)}
    asked = one["asked"]
    return SuiteSide(
        header, axes, outcomes, asked["items"], asked["available"], 0, asked["coverage"],
        one["spent"], run=one.get("run", ""),
        contents=dict(zip(ids, one.get("contents", ()), strict=False)),
        left_out=one.get("left_out", ()),
    )  # fmt: skip
