"""Reads logs of lm-eval: ``results_*.json`` and, beside it, ``samples_*.jsonl`` of each task.

The layout is that of ``lm_eval.loggers.EvaluationTracker`` in lm_eval 0.4. The results say which
samples are theirs by a hash, so samples that were cut off or edited are found out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from guard.audit.harnesses.readings import Reading, Score, Task, digest, given, hidden
from guard.audit.header import Header
from guard.errors import UsageError

PREFIX = "lm-eval:"
_HASHES = ("doc_hash", "prompt_hash", "target_hash")
_NO_PROMPT = frozenset(
    "task dataset_path dataset_name dataset_kwargs test_split validation_split training_split "
    "metadata repeats generation_kwargs filter_list metric_list num_fewshot".split()
)


def is_log(found: object) -> bool:
    """Return whether the JSON of a file is the results of an evaluation."""
    return isinstance(found, Mapping) and {"results", "configs", "versions"} <= found.keys()


def is_samples(path: Path) -> bool:
    """Return whether a file has the samples that belong to some results."""
    try:
        with path.open(encoding="utf-8") as file:
            first = json.loads(file.readline())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(first, Mapping) and {"doc_id", "metrics", *_HASHES} <= first.keys()


def tasks(path: Path, found: Mapping[str, Any]) -> Iterator[Task]:
    """Yield the tasks of the results at ``path``.

    Raises UsageError where their samples are not beside them, or are others.
    """
    for key in ("lm_eval_version", "task_hashes", "n-samples", "config"):
        if key not in found:
            raise UsageError(
                f"{path} is no log of lm-eval that this guard reads: it has no {key}; it reads "
                "those of lm_eval 0.4."
            )
    hashes = found["task_hashes"]
    if not hashes:
        raise UsageError(
            f"{path} was written without its samples; run lm_eval again with --log_samples."
        )
    for name, wanted in hashes.items():
        yield _task(name, found, _samples(path, name, wanted))


def _samples(results: Path, name: str, wanted: str) -> list[dict[str, Any]]:
    """Return the samples of a task: those beside the results that have the hash ``wanted``."""
    paths = sorted(results.parent.glob("samples_*.jsonl"))
    near = [path for path in paths if path.name.startswith(f"samples_{name}_")]
    for path in near:
        try:
            lines = path.read_text("utf-8").splitlines()
            samples = [json.loads(line) for line in lines if line.strip()]
            told = "".join(sample[key] for sample in samples for key in _HASHES)
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if hashlib.sha256(told.encode()).hexdigest() == wanted:
            return samples
    if near:
        raise UsageError(
            f"{near[-1]} is not what {results.name} was made of: the hash of {name} is another. It "
            "was cut off or edited, or is of another run."
        )
    raise UsageError(f"The samples of {name} (samples_{name}_*.jsonl) are not beside {results}.")


def _task(name: str, found: Mapping[str, Any], samples: list[dict[str, Any]]) -> Task:
    counts = found["n-samples"][name]
    scores: dict[str, list[Score]] = {}
    content: dict[str, str] = {}
    for sample in samples:
        item = str(sample["doc_id"])
        told = sample.get("filter", "none")
        labels = () if told == "none" else (("filter", str(told)),)
        content[item] = digest([sample[key] for key in _HASHES])
        for metric in sample["metrics"]:
            scores.setdefault(item, []).append(Score(metric, labels, sample[metric]))
    higher = found.get("higher_is_better", {}).get(name, {})
    return Task(
        _header(name, found),
        [Reading(item, content[item], scores.get(item, ())) for item in content],
        counts["effective"],
        1,
        counts["original"],
        better={
            metric: "higher" if up else "lower" for metric, up in higher.items() if up is not None
        },
    )


def _header(name: str, found: Mapping[str, Any]) -> Header:
    config, own = found["config"], found["configs"][name]
    prompt = {key: value for key, value in own.items() if key not in _NO_PROMPT}
    shown = [found.get(f"{key}_sha") for key in ("system_instruction", "chat_template")]
    split = own.get("test_split") or own.get("validation_split") or own.get("training_split")
    data = [own.get("dataset_path"), own.get("dataset_name"), split]
    reading = digest([own.get("filter_list"), own.get("metric_list")])
    model = str(found.get("model_name") or config.get("model"))
    given_to = _pairs(config.get("model_args"))
    settings = {key: value for key, value in given_to.items() if str(value) != model}
    return Header(
        suite=PREFIX + name.replace("/", "."),
        version=str(found["versions"].get(name)),
        data_hash=" ".join(str(part) for part in data if part),
        prompt_hash=digest([prompt, shown, found.get("fewshot_as_multiturn")]),
        parser_version=f"lm_eval {found['lm_eval_version']}, {reading}",
        model=model,
        options=given(
            {"num_fewshot": found.get("n-shot", {}).get(name), "repeats": own["repeats"]}
        ),
        sampling=given({"limit": config.get("limit"), "fewshot_seed": config.get("fewshot_seed")}),
        request=given(dict(own.get("generation_kwargs") or {}))
        | hidden(_pairs(config.get("gen_kwargs")) | settings),
    )


def _pairs(told: object) -> dict[str, Any]:
    """Return settings that are given as a table, or as ``a=1,b=2``."""
    if isinstance(told, Mapping):
        return dict(told)
    parts = (part.partition("=") for part in str(told or "").split(",") if part)
    return {name.strip(): value for name, _, value in parts}
