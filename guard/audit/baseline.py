"""Baselines: the axes of a run in one small JSON file, to be committed.

The file has the comparability key of each suite, the outcome of each item in each arm, and the rows
of each axis: all that a comparison needs, and nothing that the model said. Equal rows are written
once. A checksum detects edits.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace as replace_
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from guard import __version__
from guard.audit import harnesses, sides
from guard.audit.audit import judged_as_sentences
from guard.audit.files import BASELINE, GZIP, SQLITE, write_whole
from guard.audit.header import Header
from guard.audit.score import plain_json
from guard.audit.sides import Axis, Side, SuiteSide
from guard.errors import UsageError
from guard.results.measure import Value, share
from guard.results.paired import UNKNOWN, Aim
from guard.results.samples import Samples
from guard.suites import registry

FORMAT = 1
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_REMEDY = "make it again with guard audit baseline RUN --out FILE."
_DEEP = 3
"""Levels of the JSON with one line for each entry; deeper ones are on a single line."""


def read_side(
    place: Path,
    own_suites: Sequence[str] = (),
    data: Path | None = None,
    *,
    baselines: bool = True,
) -> Side:
    """Return the side at ``place``: a baseline, a run's file or folder, or another harness' log.

    ``own_suites`` and ``data`` are as in :func:`guard.audit.sides.read_side`. Raises UsageError
    where ``place`` is none of these, cannot be used, or is a baseline and ``baselines`` is False.
    """
    log = harnesses.read(place)
    if log is not None:
        return log
    if not baselines:
        return sides.read_side(place, own_suites, data)
    if place.is_file():
        with place.open("rb") as file:
            is_run = file.read(len(SQLITE)).startswith((GZIP, SQLITE))
        if not is_run:
            return _with_suites(load(place), own_suites)
    # If suites are selected by name, unknown suites of the run are skipped.
    return sides.read_side(place, own_suites, data, known=bool(own_suites))


def _with_suites(side: Side, own_suites: Iterable[str]) -> Side:
    """Return ``side`` with its unregistered suites attached, which ``module:Class`` names."""
    suites = dict(side.suites)
    for place in own_suites:
        own_class = ":" in place and not place.startswith(harnesses.SUITES)
        name = registry.find(place).name if own_class else ""
        if name in suites:
            suite = registry.make(place, suites[name].header.options)
            suites[name] = replace_(suites[name], suite=suite)
    return Side(side.name, suites)


def write(side: Side, path: Path, *, replace: bool = False) -> None:
    """Write the baseline of ``side`` to ``path``, atomically.

    Raises UsageError where the file exists and ``replace`` is not set, where it is not a baseline,
    or where it cannot be written.
    """
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is not a file; give another --out.")
    if path.exists():
        if not replace:
            raise UsageError(f"{path} exists already; give another --out, or --replace.")
        load(path)
    try:
        write_whole(path, _baseline_text(side))
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}.") from None


def load(path: Path) -> Side:
    """Return the side in the baseline at ``path``; its axes have no functions.

    Raises UsageError where the file is not a baseline, has another format, is truncated, or was
    edited.
    """
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read as a baseline ({error}).") from None
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        problem = "is truncated" if BASELINE in text[:200] else "is not a baseline"
        raise UsageError(f"{path} {problem}; {_REMEDY}") from None
    if not isinstance(body, dict) or body.get("kind") != BASELINE:
        raise UsageError(f"{path} is not a baseline; {_REMEDY}")
    if body.get("format") != FORMAT:
        raise UsageError(
            f"{path} is a baseline of format {body.get('format')!r}, and this version of guard "
            f"reads format {FORMAT}; {_REMEDY}"
        )
    if body.pop("checksum", None) != _checksum(body):
        raise UsageError(
            f"{path} was edited: its checksum does not match. Restore it, or {_REMEDY}"
        )
    try:
        return Side(
            str(path), {name: _suite_from_json(one) for name, one in body["suites"].items()}
        )
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        raise UsageError(f"{path} is an incomplete baseline; {_REMEDY}") from None


def _baseline_text(side: Side) -> str:
    body: dict[str, Any] = {
        "kind": BASELINE,
        "format": FORMAT,
        "guard": __version__,
        "suites": {name: _suite_to_json(one) for name, one in side.suites.items()},
    }
    text = _format_json({**body, "checksum": _checksum(body)}) + "\n"
    return text.replace("\x7f", "\\u007f")  # the one control character that JSON leaves as it is


def run_identity(suite_side: SuiteSide) -> str:
    """Return the SHA-256 that identifies a run of a suite: of its answers, else of its results."""
    return suite_side.run or _checksum(_suite_to_json(suite_side))


def _checksum(body: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a file's content, independent of its layout."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _format_json(value: Any, depth: int = 0) -> str:
    """Return JSON with one line for each entry of the first levels, for short diffs."""
    inner, space = depth + 1, " " * (depth + 1)
    if isinstance(value, dict) and value and depth < _DEEP:
        lines = [f"{space}{json.dumps(k)}: {_format_json(v, inner)}" for k, v in value.items()]
        return "{\n" + ",\n".join(lines) + "\n" + " " * depth + "}"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        lines = [space + _format_json(v, _DEEP) for v in value]
        return "[\n" + ",\n".join(lines) + "\n" + " " * depth + "]"
    return json.dumps(value, separators=(",", ":"))


def _suite_to_json(suite_side: SuiteSide) -> dict[str, Any]:
    axes = list(suite_side.axes.values())
    cluster_of_item = {
        i: c
        for a in axes
        if a.unit == "item"
        for i, c in zip(a.ids, a.samples.clusters, strict=True)
    }
    ids = list(cluster_of_item)
    names = list(
        dict.fromkeys([*cluster_of_item.values(), *(c for a in axes for c in a.samples.clusters)])
    )
    places = {
        "item": {item: at for at, item in enumerate(ids)},
        "cluster": {name: at for at, name in enumerate(names)},
    }
    clusters = [places["cluster"][cluster] for cluster in cluster_of_item.values()]
    return {
        "key": _key_to_json(suite_side.header),
        "run": suite_side.run,
        "asked": {
            "items": suite_side.items,
            "available": suite_side.available,
            "coverage": suite_side.coverage,
        },
        "spent": dict(suite_side.usage),
        "items": ids,
        "clusters": names,
        # Run lengths: [cluster, number of items] each.
        "cluster_of_item": [[at, len(list(run))] for at, run in groupby(clusters)],
        "outcomes": {
            arm: _outcomes_to_json(outcomes, ids) for arm, outcomes in suite_side.outcomes.items()
        },
        "axes": [_axis_to_json(axis, places[axis.unit]) for axis in axes],
    } | (
        {
            "contents": [suite_side.contents[item] for item in ids],
            "left_out": list(suite_side.left_out),
        }
        if suite_side.harness
        else {}
    )


def _key_to_json(header: Header) -> dict[str, Any]:
    return {name: value for name, value in header.line().items() if name not in ("k", "format")}


def _outcomes_to_json(outcomes: Mapping[str, str], ids: Sequence[str]) -> dict[str, Any]:
    kinds = list(dict.fromkeys(outcomes.values()))
    places = {name: place for place, name in enumerate(kinds)}
    # An index one past the last kind marks an item without an outcome in this arm.
    return {
        "kinds": kinds,
        "of": _pack_places(
            [places.get(outcomes.get(i, ""), len(kinds)) for i in ids], len(kinds) + 1
        ),
    }


def _axis_to_json(axis: Axis, places: Mapping[str, int]) -> dict[str, Any]:
    kinds, kind_of_pair = np.unique(axis.samples.rows, axis=0, return_inverse=True)
    return {
        "arm": axis.arm,
        "measure": axis.measure,
        "labels": dict(axis.labels),
        "ideal": axis.aim.ideal if math.isfinite(axis.aim.ideal) else None,
        "better": axis.better,
        "bounds": [b if math.isfinite(b) else None for b in axis.aim.bounds],
        "above": axis.aim.above,
        "unit": axis.unit,
        "pairs": _consecutive_runs([places[name] for name in axis.ids]),
        "columns": axis.samples.rows.shape[1],
        "kinds": plain_json(kinds.tolist()),
        "of": _pack_places(kind_of_pair.reshape(-1).tolist(), len(kinds)),
    }


def _pack_places(places: Sequence[int], kinds: int) -> str | list[int]:
    """Return indices below ``kinds`` as text, one digit each; a list where digits run out."""
    return "".join(_DIGITS[p] for p in places) if kinds <= len(_DIGITS) else list(places)


def _unpack_places(packed: str | list[int]) -> list[int]:
    return [_DIGITS.index(c) for c in packed] if isinstance(packed, str) else list(packed)


def _consecutive_runs(places: Sequence[int]) -> list[list[int]]:
    """Return indices as runs of consecutive numbers: [first, length] each."""
    runs = groupby(enumerate(places), key=lambda pair: pair[1] - pair[0])
    listed = [[place for _, place in run] for _, run in runs]
    return [[run[0], len(run)] for run in listed]


def _suite_from_json(stored: Mapping[str, Any]) -> SuiteSide:
    header = Header(**stored["key"])
    ids, names = stored["items"], stored["clusters"]
    cluster_of_item = [names[i] for i, size in stored["cluster_of_item"] for _ in range(size)]
    axes: dict[str, Axis] = {}
    for axis_stored in stored["axes"]:
        # Functions cannot be stored; those of another harness' scores are always a mean.
        is_score = axis_stored["unit"] == "item" and ":" in header.suite
        function = share if is_score else None
        axis = _axis_from_json(axis_stored, ids, names, cluster_of_item, function)
        axes[axis.name(header.suite)] = axis
    outcomes = {
        arm: {
            item: of_arm["kinds"][kind]
            for item, kind in zip(ids, _unpack_places(of_arm["of"]), strict=True)
            if kind < len(of_arm["kinds"])
        }
        for arm, of_arm in stored["outcomes"].items()
    }
    if _judged_as_sentences(header):
        axes = {name: axis for name, axis in axes.items() if axis.arm != "guarded"}
        outcomes.pop("guarded", None)
    asked = stored["asked"]
    return SuiteSide(
        header=header,
        axes=axes,
        outcomes=outcomes,
        items=asked["items"],
        available=asked["available"],
        missing=0,
        coverage=asked["coverage"],
        usage=stored["spent"],
        run=stored.get("run", ""),
        contents=dict(zip(ids, stored.get("contents", ()), strict=False)),
        left_out=stored.get("left_out", ()),
    )


def _judged_as_sentences(header: Header) -> bool:
    """Return whether the guarded arm is of sentences that no user gets; False for other suites."""
    if header.suite not in registry.names():
        return False
    return judged_as_sentences(header, registry.find(header.suite))


def _axis_from_json(
    stored: Mapping[str, Any],
    ids: Sequence[str],
    clusters: Sequence[str],
    cluster_of_item: Sequence[str],
    function: Value | None,
) -> Axis:
    by_item = stored["unit"] == "item"
    pairs = [at for first, size in stored["pairs"] for at in range(first, first + size)]
    least, most = stored["bounds"]
    bounds = (-math.inf if least is None else least, math.inf if most is None else most)
    ideal = UNKNOWN if stored["ideal"] is None else stored["ideal"]
    kinds = np.array(stored["kinds"], dtype=np.float64).reshape(-1, stored["columns"])
    return Axis(
        arm=stored["arm"],
        measure=stored["measure"],
        labels=stored["labels"],
        aim=Aim(ideal, bounds, stored["above"]),
        unit=stored["unit"],
        samples=Samples(
            kinds[np.array(_unpack_places(stored["of"]), dtype=np.int64)],
            [cluster_of_item[i] if by_item else clusters[i] for i in pairs],
            [ids[i] if by_item else clusters[i] for i in pairs],
        ),
        value=function,
        better=stored.get("better", ""),
    )
