"""Judges a dataset as in production and measures the predictions.

Every text goes through :meth:`guard.Guard.trail`, cut into segments with context as any guarded
answer. The segments' scores, types and attributions are computed once, without a threshold; the
policy's thresholds are applied afterwards, so that one pass serves every operating point. The
prediction for a text is that of :meth:`guard.Guard.check`: the finding on its highest segment.
"""

from __future__ import annotations

import copy
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

from guard.core import Guard, highest_verdict
from guard.detect.instruction import Instructed
from guard.evaluate import baselines
from guard.evaluate.columns import Columns, Prediction, columns
from guard.evaluate.example import Example, Types, in_types
from guard.evaluate.metrics import figures, reliability
from guard.evaluate.published import NOTES, PUBLISHED
from guard.evaluate.readings import Readings, agreements, key_of, relabelled
from guard.evaluate.result import Beside, ErrorText, OwnThreshold, ReadTwice, Result, Scope
from guard.evaluate.sources import Dataset
from guard.policy import Points, Policy
from guard.results.estimate import Estimate
from guard.verdict import Decision, GuardTrail, Verdict

T = TypeVar("T")
R = TypeVar("R")
# Items between two progress reports; an interruption waits for at most this many.
BATCH = 64


def evaluate(
    dataset: Dataset,
    guard: Guard,
    *,
    terms: baselines.Terms,
    draws: int = 1000,
    seed: int = 0,
    show_errors: int = 0,
    limit: int | None = None,
    types: Types = "own",
    beside: Guard | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Result:
    """Judge the texts of ``dataset`` by ``guard`` and return all figures.

    ``beside`` judges the same texts for figures to compare with.

    The intervals are from ``draws`` bootstrap samples with ``seed``; ``limit`` is only recorded,
    because the sample was drawn on reading. ``types`` is the set of types for labels and
    predictions; thresholds are always those of guard's nine types. ``progress`` is called with the
    number of texts done after each batch. ``show_errors`` is the number of false positives, and of
    false negatives, that are returned with their texts.
    """
    begin = time.perf_counter()
    examples = [_example_in(types, e) for e in dataset.examples]
    trails: list[GuardTrail] = []
    for batch in judged(examples, guard):
        trails += [_without_references(trail) for trail in batch]
        progress(len(trails))
    seconds = time.perf_counter() - begin
    points = guard.detector.operating_points

    def predicted(policy: Policy) -> list[Prediction]:
        return [_prediction_in(types, prediction(t, policy, points)) for t in trails]

    def at(policy: Policy) -> dict[str, Estimate]:
        return figures(columns(examples, predicted(policy)), draws=draws, seed=seed)

    # Custom detectors have no such thresholds.
    by_source: Mapping[str, float] = getattr(guard.detector, "own_thresholds", {})
    own = by_source.get(dataset.name) if dataset.known and dataset.known.validated else None
    predictions = predicted(guard.policy)
    plain = {
        baselines.ALWAYS: baselines.always_biased(examples),
        baselines.TERMS: baselines.term_list(examples, terms),
    }
    measure = _Measure(examples, predictions, plain, draws, seed)
    compared = None if beside is None else _beside(examples, beside, types, draws, seed)
    whole = list(range(len(examples)))
    return Result(
        dataset=dataset,
        types=types,
        detector=guard.detector.name,
        instruction=(
            guard.detector.instruction if isinstance(guard.detector, Instructed) else None
        ),
        index_version=_index_version(trails),
        operating_point=guard.policy.operating_point,
        custom_thresholds=guard.policy.threshold is not None or bool(guard.policy.thresholds),
        terms=terms.origin,
        draws=draws,
        seed=seed,
        limit=limit,
        seconds=seconds,
        whole=measure.scope("all", whole, baseline_draws=draws),
        parts=[
            measure.scope(name, rows, baseline_draws=draws)
            for name, rows in _rows_by_key(examples, lambda e: e.parts).items()
        ],
        points={name: at(_at(guard.policy, name)) for name in points},
        own=None if own is None else OwnThreshold(own, at(_at(guard.policy, "balanced", own))),
        readings=measure.read_twice(dataset.readings),
        breakdowns={
            axis: [measure.scope(name, rows) for name, rows in groups.items()]
            for axis, groups in _axes(examples).items()
        },
        reliability=reliability(measure.columns(whole)),
        unjudged=_unjudged(predictions),
        published=PUBLISHED.get(dataset.name, ()) if dataset.known else (),
        beside=compared,
        note=NOTES.get(dataset.name, "") if dataset.known else "",
        errors=_largest_errors(examples, predictions, show_errors),
    )


def _beside(
    examples: Sequence[Example], guard: Guard, types: Types, draws: int, seed: int
) -> Beside:
    """Return the figures of ``guard`` at its policy's thresholds."""
    points = guard.detector.operating_points
    predictions = [
        _prediction_in(types, prediction(trail, guard.policy, points))
        for batch in judged(examples, guard)
        for trail in batch
    ]
    measured = figures(columns(examples, predictions), draws=draws, seed=seed)
    return Beside(guard.detector.name, measured, _unjudged(predictions))


def _unjudged(predictions: Sequence[Prediction]) -> dict[str, int]:
    return dict(Counter(p.reason for p in predictions if p.reason))


def judged(examples: Sequence[Example], guard: Guard) -> Iterator[list[GuardTrail]]:
    """Yield the trails of the texts in batches, with segments scored without a threshold."""
    free = copy.copy(guard)
    free.policy = guard.policy.model_copy(update={"threshold": 0.0, "thresholds": {}})
    free.sinks, free.recorder = (), None
    return batches(
        examples,
        lambda example: looked_twice(free.trail(example.text), guard.policy),
        getattr(guard.detector, "concurrency", None),
    )


def batches(
    items: Sequence[T], judge: Callable[[T], R], threads: int | None = None
) -> Iterator[list[R]]:
    """Yield the results of ``judge`` on the items in batches, by default with a thread per core."""
    pool = ThreadPoolExecutor(max_workers=threads or os.cpu_count() or 1)
    try:
        for begin in range(0, len(items), BATCH):
            yield list(pool.map(judge, items[begin : begin + BATCH]))
    finally:
        # An interruption waits for the running calls, not for the rest of the batch.
        pool.shutdown(cancel_futures=True)


def prediction(trail: GuardTrail, policy: Policy, points: Points) -> Prediction:
    """Apply the thresholds of ``policy`` to a trail that was scored without one.

    The score is the highest of any segment, so that it does not depend on thresholds; the finding
    is that of :func:`guard.core.highest_verdict`. A text with a segment that the detector failed on
    is no harmless one, also where the policy would let it pass (``failure="open"``,
    ``hold="none"``).
    """
    closed = policy.model_copy(update={"failure": "closed", "hold": "sentence"})
    top = highest_verdict(GuardTrail([_decided(d, policy, points) for d in trail]), closed)
    if top.unjudged:
        return Prediction(0.0, False, reason=top.unjudged)
    score = max(d.verdict.score for d in trail if d.verdict.score is not None)
    return Prediction(score, top.biased, top.bias_type, top.attributions)


def _example_in(types: Types, example: Example) -> Example:
    kinds = dict.fromkeys(in_types(kind, types) for kind in example.bias_types)
    return replace(example, bias_types=tuple(kinds))


def _prediction_in(types: Types, own: Prediction) -> Prediction:
    kind = own.bias_type
    return own if kind is None else replace(own, bias_type=in_types(kind, types))


def _decided(decision: Decision, policy: Policy, points: Points) -> Decision:
    verdict = decision.verdict
    if verdict.bias_type is None or verdict.score is None:  # unjudged
        return decision
    threshold = policy.threshold_for(verdict.bias_type, points)
    if verdict.score < threshold:
        verdict = replace(verdict, biased=False, bias_type=None, attributions=())
    return replace(decision, verdict=replace(verdict, threshold=threshold))


def _without_references(trail: GuardTrail) -> GuardTrail:
    # They would take most of the memory, and no measure uses them.
    return GuardTrail([replace(d, verdict=replace(d.verdict, references=())) for d in trail])


def looked_twice(trail: GuardTrail, policy: Policy) -> GuardTrail:
    """Return a trail that was scored without a threshold with the scores that count.

    A segment is biased at a threshold t if its own score is t or more, and the second one is t or
    more too, or not below ``second_look_threshold``. So the score that counts is the lower one.
    """
    below = policy.second_look_threshold

    def counts(verdict: Verdict) -> Verdict:
        first, second = verdict.score, verdict.second_score
        if first is None or second is None or (below is not None and second >= below):
            return verdict
        return replace(verdict, score=min(first, second))

    return GuardTrail([replace(d, verdict=counts(d.verdict)) for d in trail])


class _Measure:
    """Computes the figures of any rows of one dataset, and those of the baselines."""

    def __init__(
        self,
        examples: Sequence[Example],
        predictions: Sequence[Prediction],
        baselines: Mapping[str, Sequence[Prediction]],
        draws: int,
        seed: int,
    ) -> None:
        self._examples, self._predictions, self._baselines = examples, predictions, baselines
        self._draws, self._seed = draws, seed

    def columns(
        self, rows: Sequence[int], predictions: Sequence[Prediction] | None = None
    ) -> Columns:
        own = self._predictions if predictions is None else predictions
        return columns([self._examples[i] for i in rows], [own[i] for i in rows])

    def scope(self, name: str, rows: Sequence[int], baseline_draws: int = 0) -> Scope:
        baselines: dict[str, dict[str, Estimate]] = {
            kind: figures(self.columns(rows, made), draws=baseline_draws, seed=self._seed)
            for kind, made in self._baselines.items()
        }
        mine = self.columns(rows)
        return Scope(
            name,
            len(mine.label),
            figures(mine, draws=self._draws, seed=self._seed),
            baselines,
        )

    def read_twice(self, readings: Readings) -> ReadTwice | None:
        """Return the figures where both readers are sure and agree; None if no text was read."""
        by_text = [readings.get(key_of(e.text), {}) for e in self._examples]
        read = [i for i, of_text in enumerate(by_text) if len(of_text) > 1]
        if not read:
            return None
        labels = relabelled(self._examples, readings)
        clear = [i for i in read if labels[i] is not None]
        by_readers = _Measure(
            [label or e for label, e in zip(labels, self._examples, strict=True)],
            self._predictions,
            self._baselines,
            self._draws,
            self._seed,
        )
        return ReadTwice(
            len(read),
            agreements(self._examples, readings),
            by_readers.scope("readers' label", clear),
            self.scope("published label", clear),
        )


def _at(policy: Policy, point: str, threshold: float | None = None) -> Policy:
    """Return the policy with an operating point, or one threshold, instead of the user's own."""
    update: dict[str, object] = {
        "operating_point": point,
        "threshold": threshold,
        "thresholds": {},
    }
    return policy.model_copy(update=update)


def _rows_by_key(
    examples: Sequence[Example], keys: Callable[[Example], Sequence[str]]
) -> dict[str, list[int]]:
    """Return the rows under each key, most rows first; a text may have several keys."""
    rows: dict[str, list[int]] = {}
    for i, example in enumerate(examples):
        for key in dict.fromkeys(keys(example)):
            rows.setdefault(key, []).append(i)
    return dict(sorted(rows.items(), key=lambda item: (-len(item[1]), item[0])))


def _axes(examples: Sequence[Example]) -> dict[str, dict[str, list[int]]]:
    """Return the rows by type, by group and by every axis of the source."""
    names = list(dict.fromkeys(axis for e in examples for axis in e.axes))
    axes = {"type": _rows_by_key(examples, lambda e: e.bias_types)}
    if "group" not in names:
        axes["group"] = _rows_by_key(examples, lambda e: [g.casefold() for g in e.groups])
    for axis in names:
        axes[axis] = _rows_by_key(
            examples,
            lambda e, axis=axis: [e.axes[axis]] if axis in e.axes else [],  # type: ignore[misc]
        )
    return {axis: groups for axis, groups in axes.items() if groups}


def _largest_errors(
    examples: Sequence[Example], predictions: Sequence[Prediction], most: int
) -> list[ErrorText]:
    """Return the false positives with the highest and false negatives with the lowest scores."""
    if not most:
        return []
    rows = [
        ErrorText(
            "false positive" if p.biased else "false negative", e.id, p.score, p.bias_type, e.text
        )
        for e, p in zip(examples, predictions, strict=True)
        if e.biased is not None and not p.reason and p.biased != e.biased
    ]
    positives = sorted((r for r in rows if r.kind == "false positive"), key=lambda r: -r.score)
    negatives = sorted((r for r in rows if r.kind == "false negative"), key=lambda r: r.score)
    return positives[:most] + negatives[:most]


def _index_version(trails: Sequence[GuardTrail]) -> str | None:
    return next((d.verdict.index_version for t in trails for d in t), None)
