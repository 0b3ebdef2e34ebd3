"""Reads logs of inspect_ai, schema version 2: ``.eval`` (a zip) and ``.json``.

The layout is that of ``inspect_ai.log.EvalLog`` in inspect_ai 0.3.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from guard.audit.harnesses.task import (
    Score,
    ScoredAnswer,
    Task,
    digest,
    hashed_values,
    without_empty,
)
from guard.audit.header import Header
from guard.errors import UsageError
from guard.installed import install_command

PREFIX = "inspect:"
VERSION = 2
_SECRET = ("extra_headers", "extra_body")
# Settings that affect how a model is called, not what it answers.
_CALLING = frozenset(
    "max_retries timeout attempt_timeout max_connections adaptive_connections batch cache".split()
)
_LIMITS = ("message_limit", "token_limit", "turn_limit", "time_limit", "working_limit",
           "cost_limit")  # fmt: skip
_SAMPLING = ("epochs", "limit", "sample_id", "sample_shuffle")


def is_log(found: object) -> bool:
    """Return whether the JSON of a file is a log."""
    return isinstance(found, Mapping) and {"version", "status", "eval"} <= found.keys()


def parse(path: Path, found: Mapping[str, Any]) -> Task:
    """Return the task of a log in JSON; ``found`` is the parsed file."""
    return _task(path, found, found.get("samples") or ())


def read_zip(path: Path) -> Task | None:
    """Return the task of the zip at ``path``; None if it is not a log.

    Raises UsageError where it cannot be read.
    """
    zipfile = _zipfile()
    with _reading(path):
        found = zipfile.ZipFile(path)
    with found:
        names = found.namelist()
        # The header is written last; an unfinished log has only the start.
        first = next((n for n in ("header.json", "_journal/start.json") if n in names), None)
        if first is None:
            return None

        def part(name: str) -> Any:
            with _reading(path):
                return json.loads(found.read(name))

        head = {"status": "started", **part(first)}
        return _task(path, head, (part(name) for name in names if name.startswith("samples/")))


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn what reading a damaged zip raises into UsageError: each compression has its own."""
    try:
        yield
    except RecursionError:
        raise UsageError(
            f"{path} cannot be read as an inspect log (its JSON is nested too deeply)."
        ) from None
    except Exception as error:
        problem = str(error) or type(error).__name__
        raise UsageError(
            f"{path} cannot be read as an inspect log ({problem.rstrip('.')}); restore it, or run "
            "the evaluation again."
        ) from None


def _zipfile() -> Any:
    """Return a ``zipfile`` module that reads Zstandard, which inspect_ai compresses with."""
    if sys.version_info >= (3, 14):
        import zipfile
    else:
        try:
            from backports.zstd import zipfile
        except ImportError:
            raise UsageError(
                f"A log of inspect (.eval) needs backports.zstd: {install_command('audit')}"
            ) from None
    return zipfile


def _task(path: Path, head: Mapping[str, Any], samples: Iterable[Mapping[str, Any]]) -> Task:
    version = head.get("version")
    if version != VERSION:
        raise UsageError(
            f"{path} is an inspect log of version {version!r}, and guard reads version {VERSION}; "
            "convert it with inspect log convert."
        )
    spec = head["eval"]
    broken = head["status"] != "success" or bool(head.get("invalidated"))
    config, dataset = spec["config"], spec["dataset"]
    seen: set[str] = set()
    asked: set[tuple[str, int]] = set()
    readings: dict[tuple[str, int], ScoredAnswer] = {}
    for sample in samples:
        item = str(sample["id"])
        seen.add(item)
        key = item, int(sample["epoch"])
        if key in asked:
            raise UsageError(f"{path} has the sample {item} twice in epoch {key[1]}.")
        asked.add(key)
        if not sample.get("error") and not sample.get("invalidation"):
            readings[key] = _scored(item, sample)
    if not seen and not broken:
        raise UsageError(
            f"{path} was written without its samples; run it again with --log-samples."
        )
    expected = len({str(one) for one in dataset.get("sample_ids") or ()} or seen)
    return Task(
        _header(head),
        list(readings.values()),
        expected,
        int(config.get("epochs") or 1),
        int(dataset.get("samples") or expected),
        broken,
    )


def _scored(item: str, sample: Mapping[str, Any]) -> ScoredAnswer:
    asked = [sample.get(name) for name in ("input", "choices", "target")]
    return ScoredAnswer(item, digest(asked), list(_scores(sample.get("scores") or {})))


def _scores(scores: Mapping[str, Any]) -> Iterator[Score]:
    for scorer, score in scores.items():
        value = score["value"]
        if isinstance(value, Mapping):
            for name, part in value.items():
                yield Score(scorer, (("value", str(name)),), part)
        else:
            yield Score(scorer, (), value)


def _header(head: Mapping[str, Any]) -> Header:
    spec = head["eval"]
    plan = head.get("plan") or {}
    config, dataset = spec["config"], spec["dataset"]
    packages = spec.get("packages") or {}
    asked = {**(spec.get("model_generate_config") or {}), **(plan.get("config") or {})}
    asked = {name: value for name, value in without_empty(asked).items() if name not in _CALLING}
    secret = {name: asked.pop(name) for name in _SECRET if name in asked}
    place = without_empty({"model_base_url": spec.get("model_base_url")})
    return Header(
        suite=PREFIX + spec["task"].replace("/", "."),
        version=str(spec.get("task_version", 0)),
        data_hash=f"{dataset.get('name') or 'unnamed'}, {dataset.get('samples')} samples",
        prompt_hash=digest([plan.get("steps"), plan.get("finish")]),
        parser_version=", ".join(f"{name} {packages[name]}" for name in sorted(packages)),
        model=spec["model"],
        options=without_empty({**(spec.get("task_args") or {}), **(spec.get("solver_args") or {})}),
        sampling=without_empty({name: config.get(name) for name in _SAMPLING}),
        request=asked
        | without_empty({name: config.get(name) for name in _LIMITS})
        | hashed_values({**secret, **place, **(spec.get("model_args") or {})}),
        others=_others(spec),
    )


def _others(spec: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the scorers with their options, and the other models that were asked."""
    scorers = {one["name"]: one.get("options") or {} for one in spec.get("scorers") or ()}
    others: dict[str, Mapping[str, Any]] = {"scorers": scorers} if scorers else {}
    for role, models in (spec.get("model_roles") or {}).items():
        several = models if isinstance(models, list) else [models]
        asked = {"model": ", ".join(one["model"] for one in several)}
        others[role] = asked | {"settings": digest([one.get("config") for one in several])}
    return others
