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
from guard.audit.files import write_whole
from guard.audit.header import Header
from guard.audit.paired import Aim
from guard.audit.sides import Axis, Side, SuiteSide
from guard.errors import UsageError
from guard.suites import registry
from guard.suites.reading import share

KIND = "guard audit baseline"
_GZIP = b"\x1f\x8b"
FORMAT = 1
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ANEW = "make it anew: guard audit baseline RUN --out FILE."
_DEEP = 3
"""So many levels of the file have a line for each entry, the rest stands in one."""


def read_side(place: Path, own_suites: Iterable[str] = (), data: Path | None = None) -> Side:
    """Return the side that a baseline, a journal, the folder of a run or another's log is.

    ``own`` and ``data`` are those of :func:`guard.audit.sides.read`. Raises UsageError where it is
    none of them, or cannot be used.
    """
    log = harnesses.read(place)
    if log is not None:
        return log
    if place.is_file() and not _is_journal(place):
        return _with_suites(load(place), own_suites)
    # Where suites were asked for by name, a journal of another is not there to be compared.
    return sides.read(place, own_suites, data, known=bool(list(own_suites)))


def read_run(place: Path, own_suites: Iterable[str] = (), data: Path | None = None) -> Side:
    """Return the side of a journal, of the folder of a run, or of logs of another harness.

    ``own`` and ``data`` are those of :func:`guard.audit.sides.read`, and so is what it raises.
    """
    log = harnesses.read(place)
    return sides.read(place, own_suites, data) if log is None else log


def _is_journal(place: Path) -> bool:
    with place.open("rb") as file:
        return file.read(2) == _GZIP


def _with_suites(side: Side, own_suites: Iterable[str]) -> Side:
    """Return ``side`` with the suites that are not registered, named by module:Class."""
    suites = dict(side.suites)
    for place in own_suites:
        name = registry.find(place).name if ":" in place else ""
        if name in suites:
            suite = registry.make(place, suites[name].header.options)
            suites[name] = replace_(suites[name], suite=suite)
    return Side(side.name, suites)


def write(side: Side, path: Path, *, replace: bool = False) -> None:
    """Write the baseline of ``side``: all of it appears under its name, or nothing.

    Raises UsageError where something is there that ``replace`` does not allow to go, or where it
    cannot be written. Only a baseline is ever replaced.
    """
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
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read as a baseline ({error}).") from None
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        problem = "is cut off" if KIND in text[:200] else "is no baseline"
        raise UsageError(f"{path} {problem}; {_ANEW}") from None
    if not isinstance(body, dict) or body.get("kind") != KIND:
        raise UsageError(f"{path} is no baseline; {_ANEW}")
    if body.get("format") != FORMAT:
        raise UsageError(
            f"{path} is a baseline of format {body.get('format')!r}, this guard reads {FORMAT}; "
            f"{_ANEW}"
        )
    if body.pop("checksum", None) != _checksum(body):
        raise UsageError(
            f"{path} was changed after it was made: its checksum is another. Restore it, or {_ANEW}"
        )
    try:
        return Side(
            str(path), {name: _suite_from_json(one) for name, one in body["suites"].items()}
        )
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        raise UsageError(f"{path} is no whole baseline; {_ANEW}") from None


def _text(side: Side) -> str:
    body: dict[str, Any] = {
        "kind": KIND,
        "format": FORMAT,
        "guard": __version__,
        "suites": {name: _suite_to_json(one) for name, one in side.suites.items()},
    }
    return _format_json({**body, "checksum": _checksum(body)}) + "\n"


def identity(one: SuiteSide) -> str:
    """Return the SHA-256 that names a run of a suite: of its journal, or of all that it found."""
    return one.run or _checksum(_suite_to_json(one))


def _checksum(body: Mapping[str, Any]) -> str:
    """Return the SHA-256 of what a file says, however it is laid out."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _format_json(value: Any, depth: int = 0) -> str:
    """Return JSON with a line for each entry of the first levels: a change shows as few lines."""
    inner, space = depth + 1, " " * (depth + 1)
    if isinstance(value, dict) and value and depth < _DEEP:
        lines = [f"{space}{json.dumps(k)}: {_format_json(v, inner)}" for k, v in value.items()]
        return "{\n" + ",\n".join(lines) + "\n" + " " * depth + "}"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        lines = [space + _format_json(v, _DEEP) for v in value]
        return "[\n" + ",\n".join(lines) + "\n" + " " * depth + "]"
    return json.dumps(value, separators=(",", ":"))


def _suite_to_json(one: SuiteSide) -> dict[str, Any]:
    axes = list(one.axes.values())
    cluster_of_item = {
        i: c for a in axes if a.unit == "item" for i, c in zip(a.ids, a.clusters, strict=True)
    }
    ids = list(cluster_of_item)
    names = list(dict.fromkeys([*cluster_of_item.values(), *(c for a in axes for c in a.clusters)]))
    places = {
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
        "cluster_of_item": _run_lengths([places["cluster"][cluster_of_item[item]] for item in ids]),
        "outcomes": {arm: _outcomes_to_json(told, ids) for arm, told in one.outcomes.items()},
        "axes": [_axis_to_json(axis, places[axis.unit]) for axis in axes],
    } | (
        {"contents": [one.contents[item] for item in ids], "left_out": list(one.left_out)}
        if one.harness
        else {}
    )


def _outcomes_to_json(outcomes: Mapping[str, str], ids: Sequence[str]) -> dict[str, Any]:
    kinds = list(dict.fromkeys(outcomes.values()))
    places = {name: place for place, name in enumerate(kinds)}
    # Where an item has no outcome in an arm, one more than there are stands for it.
    return {
        "kinds": kinds,
        "of": _pack([places.get(outcomes.get(i, ""), len(kinds)) for i in ids], len(kinds) + 1),
    }


def _axis_to_json(axis: Axis, places: Mapping[str, int]) -> dict[str, Any]:
    kinds, kind_of_pair = np.unique(axis.rows, axis=0, return_inverse=True)
    return {
        "arm": axis.arm,
        "measure": axis.measure,
        "labels": dict(axis.labels),
        "ideal": axis.aim.ideal if math.isfinite(axis.aim.ideal) else None,
        "better": axis.better,
        "bounds": [b if math.isfinite(b) else None for b in axis.aim.bounds],
        "above": axis.aim.above,
        "unit": axis.unit,
        "pairs": _runs([places[name] for name in axis.ids]),
        "columns": axis.rows.shape[1],
        "kinds": [[_int_if_whole(x) for x in row] for row in kinds.tolist()],
        "of": _pack(kind_of_pair.reshape(-1).tolist(), len(kinds)),
    }


def _int_if_whole(value: float) -> float | int:
    return int(value) if value == int(value) else value


def _pack(places: Sequence[int], kinds: int) -> str | list[int]:
    """Return places below ``kinds`` as a text with a character each, where characters suffice."""
    return "".join(_DIGITS[p] for p in places) if kinds <= len(_DIGITS) else list(places)


def _unpack(packed: str | list[int]) -> list[int]:
    return [_DIGITS.index(c) for c in packed] if isinstance(packed, str) else list(packed)


def _runs(places: Sequence[int]) -> list[list[int]]:
    """Return places as runs: the first of each, and how many follow one another from there."""
    runs = groupby(enumerate(places), key=lambda pair: pair[1] - pair[0])
    listed = [[place for _, place in run] for _, run in runs]
    return [[run[0], len(run)] for run in listed]


def _expand_runs(runs: Iterable[Sequence[int]]) -> list[int]:
    return [place for first, size in runs for place in range(first, first + size)]


def _run_lengths(values: Sequence[int]) -> list[list[int]]:
    """Return values as runs of the same: each with how often it comes."""
    return [[value, len(list(run))] for value, run in groupby(values)]


def _suite_from_json(one: Mapping[str, Any]) -> SuiteSide:
    header = Header(**one["key"])
    ids, names = one["items"], one["clusters"]
    cluster = [names[value] for value, size in one["cluster_of_item"] for _ in range(size)]
    axes: dict[str, Axis] = {}
    for told in one["axes"]:
        at = _expand_runs(told["pairs"])
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
            kinds[np.array(_unpack(told["of"]), dtype=np.int64)],
            share if item and ":" in header.suite else None,
            better=told.get("better", ""),
        )
        axes[axis.name(header.suite)] = axis
    outcomes = {}
    for arm, told in one["outcomes"].items():
        names = told["kinds"]
        places = zip(ids, _unpack(told["of"]), strict=True)
        outcomes[arm] = {item: names[p] for item, p in places if p < len(names)}
    asked = one["asked"]
    return SuiteSide(
        header, axes, outcomes, asked["items"], asked["available"], 0, asked["coverage"],
        one["spent"], run=one.get("run", ""),
        contents=dict(zip(ids, one.get("contents", ()), strict=False)),
        left_out=one.get("left_out", ()),
    )  # fmt: skip
