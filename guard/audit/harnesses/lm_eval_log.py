"""Reads logs of lm-eval: ``results_*.json`` and, beside it, ``samples_*.jsonl`` of each task.

The layout is that of ``lm_eval.loggers.EvaluationTracker`` in lm_eval 0.4: the files of a run have
its time in their names, and the results a hash of the samples, so truncated or edited ones are
detected.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from glob import escape
from itertools import chain
from pathlib import Path
from typing import Any

from guard.audit.harnesses.task import (
    Score,
    ScoredAnswer,
    Task,
    hashed_values,
    json_digest,
    number_of,
    without_empty,
)
from guard.audit.header import Header
from guard.errors import UsageError

PREFIX = "lm-eval:"
_HASHES = ("doc_hash", "prompt_hash", "target_hash")
_TIME = re.compile(r"_(\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(?:\.\d+)?)$")
_NO_PROMPT = frozenset(
    "task dataset_path dataset_name dataset_kwargs test_split validation_split training_split "
    "metadata repeats generation_kwargs filter_list metric_list num_fewshot".split()
)


def is_log(content: object) -> bool:
    """Return whether the JSON of a file is the results of an evaluation."""
    return isinstance(content, Mapping) and {"results", "configs", "versions"} <= content.keys()


def is_samples(path: Path) -> bool:
    """Return whether a file holds the samples of an evaluation."""
    try:
        with path.open("rb") as file:
            first = json.loads(file.readline())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(first, Mapping) and {"doc_id", "metrics", *_HASHES} <= first.keys()


def read_tasks(path: Path, log: Mapping[str, Any]) -> Iterator[Task]:
    """Yield the tasks of the results at ``path``.

    Raises UsageError where their samples are missing, or belong to another run.
    """
    for key in ("lm_eval_version", "task_hashes", "n-samples", "config"):
        if key not in log:
            raise UsageError(
                f"{path} is not a log of lm_eval 0.4, which guard reads: it has no {key}. Run the "
                "evaluation with that version."
            )
    hashes = log["task_hashes"]
    if not hashes:
        raise UsageError(
            f"{path} was written without its samples; run lm_eval again with --log_samples."
        )
    for name, wanted in hashes.items():
        yield _task_of(
            name, log, _task_samples(path, name, wanted), _metric_directions(path, name, log)
        )


def _metric_directions(path: Path, name: str, log: Mapping[str, Any]) -> dict[str, str]:
    """Return which way each metric of a task is better, as far as the results say so."""
    higher = dict(log.get("higher_is_better", {}).get(name, {}))
    for metric, up in higher.items():
        if up is not None and not isinstance(up, bool):
            raise UsageError(
                f"{path}: higher_is_better of {name}, {metric!r}, is {up!r:.60}; it must be true, "
                "false or null. Correct the metric in the task's YAML and run lm_eval again."
            )
    return {m: "higher" if up else "lower" for m, up in higher.items() if up is not None}


def _task_samples(results: Path, name: str, wanted: str) -> list[dict[str, Any]]:
    """Return the samples of a task, which have the time in the results' name in their own.

    Only names tell the runs of a task apart: the hash ``wanted`` covers the questions, so all have
    the same.
    """
    time = _time_of(results)
    path = results.parent / f"samples_{name}_{time}.jsonl"
    if not path.is_file():
        named = sorted(results.parent.glob(f"samples_{escape(name)}_*.jsonl"))
        others = [p for p in named if _TIME.fullmatch(p.stem.removeprefix(f"samples_{name}"))]
        beside = f" ({others[-1].name} is of another run)" if others else ""
        raise UsageError(
            f"The samples of {name}, {path.name}, are not beside {results}{beside}; copy them "
            "there, under the names that lm_eval gave."
        )
    try:
        # Not splitlines(): it also splits at characters that JSON allows inside a string.
        lines = path.read_bytes().split(b"\n")
        samples = [json.loads(line) for line in lines if line.strip()]
        hashed = "".join(sample[key] for sample in samples for key in _HASHES)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        samples, hashed = [], ""
    if hashlib.sha256(hashed.encode()).hexdigest() != wanted:
        raise UsageError(
            f"{path} does not match the hash of {name} in {results.name}: it was truncated or "
            "edited. Restore it, or run lm_eval again."
        )
    return samples


def _time_of(results: Path) -> str:
    """Return the time in a results' name: lm_eval puts the stem of ``--output_path`` before it."""
    match = _TIME.search(results.stem)
    return match[1] if match else results.stem.removeprefix("results_")


def _task_of(
    name: str, log: Mapping[str, Any], samples: list[dict[str, Any]], better: Mapping[str, str]
) -> Task:
    counts = log["n-samples"][name]
    scores: dict[str, list[Score]] = {}
    content: dict[str, str] = {}
    for sample in samples:
        item = str(sample["doc_id"])
        filter_name = sample.get("filter", "none")
        labels = () if filter_name == "none" else (("filter", str(filter_name)),)
        content[item] = json_digest([sample[key] for key in _HASHES])
        for metric in sample["metrics"]:
            scores.setdefault(item, []).append(Score(metric, labels, sample[metric]))
    whole = len(content) >= counts["effective"]
    odd = _no_means(log["results"].get(name, {}), scores) if whole else set()
    scores = {item: [s for s in some if s.axis not in odd] for item, some in scores.items()}
    return Task(
        _header_of(name, log),
        [ScoredAnswer(item, content[item], scores.get(item, ())) for item in content],
        counts["effective"],
        1,
        counts["original"],
        better=better,
        left_out=[
            f"{metric} (not the mean of its samples, or these were edited)" for metric, _ in odd
        ],
    )


def _no_means(
    results: Mapping[str, Any], scores: Mapping[str, Sequence[Score]]
) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
    """Return the axes whose result is not the mean of their samples."""
    values: dict[tuple[str, tuple[tuple[str, str], ...]], list[float]] = {}
    for score in chain.from_iterable(scores.values()):
        number = number_of(score.value)
        if number is not None:
            values.setdefault(score.axis, []).append(number)
    odd = set()
    for (metric, labels), numbers in values.items():
        result = results.get(f"{metric},{dict(labels).get('filter', 'none')}")
        mean = math.fsum(numbers) / len(numbers)
        if isinstance(result, int | float) and not math.isclose(
            result, mean, rel_tol=1e-6, abs_tol=1e-9
        ):
            odd.add((metric, labels))
    return odd


def _header_of(name: str, log: Mapping[str, Any]) -> Header:
    config, task_config = log["config"], log["configs"][name]
    prompt = {key: value for key, value in task_config.items() if key not in _NO_PROMPT}
    shown = [log.get(f"{key}_sha") for key in ("system_instruction", "chat_template")]
    split = (
        task_config.get("test_split")
        or task_config.get("validation_split")
        or task_config.get("training_split")
    )
    data = [task_config.get("dataset_path"), task_config.get("dataset_name"), split]
    reading = json_digest([task_config.get("filter_list"), task_config.get("metric_list")])
    model = str(log.get("model_name") or config.get("model"))
    model_args = _setting_pairs(config.get("model_args"))
    settings = {key: value for key, value in model_args.items() if str(value) != model}
    return Header(
        suite=PREFIX + name.replace("/", "."),
        version=str(log["versions"].get(name)),
        data_hash=" ".join(str(part) for part in data if part),
        prompt_hash=json_digest([prompt, shown, log.get("fewshot_as_multiturn")]),
        parser_version=f"lm_eval {log['lm_eval_version']}, {reading}",
        model=model,
        options=without_empty(
            {"num_fewshot": log.get("n-shot", {}).get(name), "repeats": task_config["repeats"]}
        ),
        sampling=without_empty(
            {"limit": config.get("limit"), "fewshot_seed": config.get("fewshot_seed")}
        ),
        request=without_empty(dict(task_config.get("generation_kwargs") or {}))
        | hashed_values(_setting_pairs(config.get("gen_kwargs")) | settings),
    )


def _setting_pairs(settings: object) -> dict[str, Any]:
    """Return settings given as a mapping, or as ``a=1,b=2``."""
    if isinstance(settings, Mapping):
        return dict(settings)
    parts = (part.partition("=") for part in str(settings or "").split(",") if part)
    return {name.strip(): value for name, _, value in parts}
