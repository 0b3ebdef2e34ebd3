"""Reads logs of inspect_ai, ``.eval`` and ``.json``, with ``inspect_ai.log``.

The package is imported when such a log is given, and only then.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ValidationError

from guard.audit.harnesses.task import (
    Score,
    ScoredAnswer,
    Task,
    hashed_values,
    json_digest,
    without_empty,
)
from guard.audit.header import Header
from guard.errors import UsageError

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample, EvalSpec

PREFIX = "inspect:"
_PARTS = frozenset({"header.json", "_journal/start.json"})
_SECRET = ("extra_headers", "extra_body")
# Settings that affect how a model is called, not what it answers.
_CALLING = frozenset(
    "max_retries timeout attempt_timeout stream_idle_timeout max_connections adaptive_connections "
    "batch cache".split()
)
_LIMITS = ("message_limit", "token_limit", "turn_limit", "time_limit", "working_limit",
           "cost_limit")  # fmt: skip
_SAMPLING = ("epochs", "limit", "sample_id", "sample_shuffle")


def is_log(content: object) -> bool:
    """Return whether the JSON of a file is a log."""
    return isinstance(content, Mapping) and {"version", "status", "eval"} <= content.keys()


def is_zipped_log(path: Path) -> bool:
    """Return whether the zip at ``path`` is a log, or too damaged to say."""
    try:
        with zipfile.ZipFile(path) as file:
            return not _PARTS.isdisjoint(file.namelist())
    except zipfile.BadZipFile:
        return True


def read_task(path: Path, kind: Literal["eval", "json"]) -> Task:
    """Return the task of the log at ``path``; raises UsageError where it cannot be read."""
    if find_spec("inspect_ai") is None:
        raise UsageError(f"{path} is a log of inspect, which is read with: pip install inspect_ai")
    from inspect_ai.log import read_eval_log

    try:
        log = read_eval_log(str(path), format=kind)
    except Exception as error:  # each compression, and each version of inspect, has its own
        raise UsageError(
            f"{path} cannot be read as an inspect log ({_problem_text(error)}); restore it, or run "
            "the evaluation again."
        ) from None
    return _task_of(path, log)


def _problem_text(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return (str(error) or type(error).__name__).splitlines()[0].rstrip(".")


def _task_of(path: Path, log: EvalLog) -> Task:
    broken = log.status != "success" or log.invalidated
    asked: set[tuple[str, int]] = set()
    answers: list[ScoredAnswer] = []
    for sample in log.samples or ():
        item = str(sample.id)
        if (item, sample.epoch) in asked:
            raise UsageError(f"{path} has the sample {item} twice in epoch {sample.epoch}.")
        asked.add((item, sample.epoch))
        if not sample.error and not sample.invalidation:
            answers.append(ScoredAnswer(item, _content_hash(sample), list(_sample_scores(sample))))
    if not asked and not broken:
        raise UsageError(
            f"{path} was written without its samples; run it again with --log-samples."
        )
    dataset = log.eval.dataset
    items = {str(id_) for id_ in dataset.sample_ids or ()} or {item for item, _ in asked}
    return Task(
        _header_of(log),
        answers,
        len(items),
        log.eval.config.epochs or 1,
        dataset.samples or len(items),
        broken,
    )


def _content_hash(sample: EvalSample) -> str:
    """Return a hash of what was asked; the ids of messages differ from run to run."""
    text = sample.input
    if not isinstance(text, str):
        text = [message.model_dump(exclude={"id"}, exclude_none=True) for message in text]
    return json_digest([text, sample.choices, sample.target])


def _sample_scores(sample: EvalSample) -> Iterator[Score]:
    for scorer, score in (sample.scores or {}).items():
        if isinstance(score.value, Mapping):
            for name, part in score.value.items():
                yield Score(scorer, (("value", str(name)),), part)
        else:
            yield Score(scorer, (), score.value)


def _header_of(log: EvalLog) -> Header:
    spec, plan = log.eval, log.plan
    config = spec.config.model_dump()
    asked = spec.model_generate_config.model_dump() | plan.config.model_dump(exclude_none=True)
    asked = {name: value for name, value in without_empty(asked).items() if name not in _CALLING}
    secret = {name: asked.pop(name) for name in _SECRET if name in asked}
    place = without_empty({"model_base_url": spec.model_base_url})
    steps = [step.model_dump() for step in (*plan.steps, plan.finish) if step is not None]
    return Header(
        suite=PREFIX + spec.task.replace("/", "."),
        version=str(spec.task_version),
        data_hash=f"{spec.dataset.name or 'unnamed'}, {spec.dataset.samples} samples",
        prompt_hash=json_digest(steps),
        parser_version=", ".join(f"{name} {spec.packages[name]}" for name in sorted(spec.packages)),
        model=spec.model,
        options=without_empty({**spec.task_args, **(spec.solver_args or {})}),
        sampling=without_empty({name: config[name] for name in _SAMPLING}),
        request=asked
        | without_empty({name: config.get(name) for name in _LIMITS})
        | hashed_values({**secret, **place, **spec.model_args}),
        others=_scorers_and_models(spec),
    )


def _scorers_and_models(spec: EvalSpec) -> dict[str, Mapping[str, Any]]:
    """Return the scorers with their options, and the other models that were asked."""
    scorers = {scorer.name: scorer.options or {} for scorer in spec.scorers or ()}
    others: dict[str, Mapping[str, Any]] = {"scorers": scorers} if scorers else {}
    for role, models in (spec.model_roles or {}).items():
        several = models if isinstance(models, list) else [models]
        settings = json_digest([model.config.model_dump(exclude_none=True) for model in several])
        others[role] = {"model": ", ".join(m.model for m in several), "settings": settings}
    return others
