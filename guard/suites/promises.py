"""The promises of the contract, checked on any suite with generated answers.

Each check yields sentences that name a promise and what breaks it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import get_args

import numpy as np

from guard.results.figures import SuiteFigures
from guard.results.jackknife import Line, estimate
from guard.results.measure import Measure
from guard.results.samples import Floats
from guard.suites.contract import (
    NON_ANSWERS,
    About,
    AnswerLean,
    Capability,
    Outcome,
    Record,
    Suite,
)
from guard.suites.generated_answers import MOST_REQUESTS, CheckedSuite, Says
from guard.suites.optional import AdaptsRequests, ExplainsResults, part_of
from guard.suites.requests import Chat, LogLikelihood, Request

_TOLERANCE = 1e-9


class ContractError(AssertionError):
    """A suite breaks a promise of the contract; the message is one sentence."""


def check_suite(suite: Suite, *, answer: Says | None = None) -> None:
    """Check the promises of :class:`guard.suites.Suite` on ``suite``; no model is called.

    ``answer`` gives readable answers to the suite's questions, where texts of the questions
    themselves are not readable. Raises ContractError, in one sentence that names the promise, for
    the first that is broken.
    """
    name = getattr(suite, "name", type(suite).__name__)
    doing = "to make it"
    try:
        checked = CheckedSuite(suite, answer)
        for check in _CHECKS:
            doing = check.__name__.strip("_").replace("_", " ")
            for problem in check(checked):
                raise ContractError(f"{name}: {problem}.")
    except ContractError:
        raise
    except (Exception, SystemExit) as error:  # of the suite's code, or of what it returned
        raise ContractError(
            f"{name}: a suite's members return what guard.suites.Suite says and raise nothing, but "
            f"{doing!r} ended with {type(error).__name__}: {error}."
        ) from error


def _check_names(checked: CheckedSuite) -> Iterator[str]:
    suite, faults = checked.suite, checked.others.faults
    for name in ("name", "parser_version"):
        if not str(getattr(suite, name, "")).strip():
            yield f"a suite has a {name}, this one has none"
    if not re.fullmatch(r"\w[\w.-]*", suite.name):
        yield f"a name has letters, digits, '_', '-' and '.' alone, this one is {suite.name!r}"
    if not isinstance(getattr(suite, "about", None), About) or not suite.about.title.strip():
        yield "a suite has a title in its about, this one has none"
    if not re.fullmatch(r"\d+-\w+", suite.version):
        yield f"a version has the form N-X, this one is {suite.version!r}"
    if not suite.outcomes:
        yield "a suite names the outcomes of readable answers, this one names none"
    for name, times in Counter((*suite.outcomes, *faults, *NON_ANSWERS)).items():
        if times > 1:
            yield f"readable outcomes have names of their own, but {name!r} stands for two"
    for name in suite.needs - set(get_args(Capability)):
        yield f"needs names capabilities, and {name!r} is none"


def _check_hashes(checked: CheckedSuite) -> Iterator[str]:
    suite, again, options = checked.suite, checked.again, checked.suite.options
    for name in ("data_hash", "prompt_hash"):
        value = getattr(suite, name)
        if not isinstance(value, str) or not value:
            yield f"{name} is a text, this one is {value!r}"
        if getattr(again, name) != value:
            yield f"the same options give the same {name}, but the suite made again has another"
    if options.data is not None:
        without = type(suite)(options.model_copy(update={"data": None}))
        if without.data_hash == suite.data_hash and list(without.items()) != checked.items:
            yield "other data have another data_hash, but it is the same with and without the data"


def _item_promises(checked: CheckedSuite) -> Iterator[str]:
    items = checked.items
    if not items:
        yield "a suite has items, this one has none"
    for name, times in Counter(item.id for item in items).items():
        if times > 1:
            yield f"the ids of items are unique, but {name!r} stands {times} times"
    for item in items:
        if not item.id or not item.id.isprintable():
            yield f"the id of an item is a printable text, this one is {item.id!r}"
        if item.samples < 1:
            yield f"an item has at least one sample, {item.id!r} has {item.samples}"
    for suite, when in ((checked.suite, "the second time"), (checked.again, "made again")):
        pairs = zip_longest(items, suite.items())
        place = next((n for n, (item, other) in enumerate(pairs) if item != other), None)
        if place is not None:
            yield f"the same options give the same items, but {when} item {place + 1} is another"


def _request_promises(checked: CheckedSuite) -> Iterator[str]:
    for item, sample in checked.samples:
        planned = checked.converse(item, sample, planned=True)
        if not planned.ended:
            yield f"the requests of a sample end, but {item.id!r} has more than {MOST_REQUESTS}"
            return
        if not planned.requests:
            yield f"every sample has a request, but {item.id!r} has none"
        for turn, request in enumerate(planned.requests):
            where = f"request {turn + 1} of {item.id!r}"
            yield from _problems_of_request(checked, request, where)
        first = checked.suite.request(item, sample, ())
        if first != checked.again.request(item, sample, ()):
            yield f"the same options give the same requests, but made again {item.id!r} has another"


def _turn_promises(checked: CheckedSuite) -> Iterator[str]:
    outcomes = checked.suite.outcomes
    for item, sample, text, talk in checked.conversations:
        asked = len(checked.converse(item, sample, planned=True).requests)
        unreadable = checked.suite.outcome(item, sample, talk.answers).name not in outcomes
        # An unreadable answer may be the last.
        if len(talk.requests) > asked or (len(talk.requests) < asked and not unreadable):
            yield (
                f"the number of requests does not depend on the answers, but {item.id!r} has "
                f"{asked}, and after {_quoted_text(text)} {len(talk.requests)}"
            )


def _problems_of_request(checked: CheckedSuite, request: Request, where: str) -> Iterator[str]:
    suite = checked.suite
    needs = suite.needs | part_of(suite, AdaptsRequests).uses
    if request.by != "model":
        if request.by not in checked.others.roles:
            yield f"roles names who answers, but {where} is for the {request.by}"
        return
    needed: dict[Capability, bool] = {"given_logprobs": isinstance(request, LogLikelihood)}
    if isinstance(request, Chat):
        needed = {
            "chat": request.patch is None,
            "logprobs": request.logprobs > 0,
            "patching": request.patch is not None,
        }
        if not request.messages or not all(
            isinstance(m.get("role"), str) and isinstance(m.get("content"), str)
            for m in request.messages
        ):
            yield f"messages have a role and a content, both texts, but not those in {where}"
        if (request.completes is not None) != suite.about.completes_sentences:
            yield f"about says whether requests complete sentences, but wrongly of {where}"
    for name in (name for name, used in needed.items() if used and name not in needs):
        yield f"needs names what requests ask of the model, but {where} needs {name}"


def _outcome_promises(checked: CheckedSuite) -> Iterator[str]:
    suite = checked.suite
    known = {*suite.outcomes, *checked.others.faults, "invalid", "refused"}
    for item, sample, text, talk in checked.conversations:
        said = f"{_quoted_text(text)} to {item.id!r}"
        try:
            outcome = suite.outcome(item, sample, talk.answers)
        except Exception as error:
            yield (
                f"outcome never raises because of a text, but {said} raises {type(error).__name__}"
            )
            return
        if outcome.name not in known:
            yield (
                f"an outcome is invalid, refused or one that the suite names, but {said} is "
                f"{outcome.name!r}"
            )
        if outcome != suite.outcome(item, sample, talk.answers):
            yield f"the same answers have the same outcome, but not {said}"
    if not any(record.outcome.name in suite.outcomes for record in checked.records):
        yield "no generated answer is readable, so give check_suite an answer that is"


def _quoted_text(text: str | None) -> str:
    return "a text of the question" if text is None else repr(text[:40])


def _measure_promises(checked: CheckedSuite) -> Iterator[str]:
    suite = checked.suite
    plain = checked.plain
    axes = [_axis_text(m.name, m.axis) for m in plain]
    for name, times in Counter(axes).items():
        if times > 1:
            yield f"a measure has one value on an axis, but {name} stands {times} times"
    functions: dict[str, Measure] = {}
    for measure in (*plain, *checked.others.mitigation(checked.records, checked.guarded)):
        yield from _problems_of_measure(measure)
        if measure.ideal is not None:
            yield from _problems_of_ideal(measure, functions.setdefault(measure.name, measure))
    silent = [Record(r.item, r.sample, Outcome("refused")) for r in checked.records]
    arms = {"an arm with stopped answers": checked.guarded, "an arm without answers": silent}
    for arm, records in arms.items():
        if [_axis_text(m.name, m.axis) for m in checked.measures(records)] != axes:
            yield f"both arms have the same measures and axes, but {arm} has others"
    if _compared_measures(suite.measures(())) != _compared_measures(plain):
        yield "measures with an ideal are the same without records, but this suite has others"
    for measure in suite.measures(silent):
        value = float(_value_of(measure))
        if not np.isnan(value) and (measure.null is not None or measure.ideal is not None):
            yield (
                "without a readable outcome a measure is nan, but "
                f"{_axis_text(measure.name, measure.axis)} is {value:g}"
            )


def _compared_measures(measures: Iterable[Measure]) -> list[str]:
    return [_axis_text(m.name, m.axis) for m in measures if m.ideal is not None]


def _axis_text(name: str, axis: Mapping[str, str]) -> str:
    return " ".join((name, *(f"{label}={value}" for label, value in axis.items())))


def _value_of(measure: Measure) -> Floats:
    rows = np.asarray(measure.samples.rows, dtype=np.float64)
    return np.asarray(measure.value(rows.sum(axis=0)), dtype=np.float64)


def _problems_of_measure(measure: Measure) -> Iterator[str]:
    name, samples = _axis_text(measure.name, measure.axis), measure.samples
    rows = np.asarray(samples.rows)
    if rows.ndim != 2 or not np.isfinite(rows).all():
        yield f"rows are a table of finite numbers, but not those of {name}"
        return
    per_row = {"clusters": samples.clusters, "items": samples.items}
    per_row |= {f"words {place + 1}": words for place, words in enumerate(samples.words)}
    for part, values in per_row.items():
        if values is not None and len(values) != len(rows):
            yield f"{part} has one for each row, but {name} has {len(values)} of {len(rows)}"
    if not len(rows):
        return
    totals = np.array(
        [rows[start:].sum(axis=0) for start in range(0, len(rows), 1 + len(rows) // 7)]
    )
    each = [float(measure.value(row)) for row in totals]
    if not np.allclose(measure.value(totals), each, equal_nan=True):
        yield f"value takes totals of any shape (..., k), but {name} has other values for several"
    low, high = measure.bounds
    if measure.null is not None and not low <= measure.null <= high:
        yield f"a null lies within the bounds, but that of {name} is {measure.null:g}"
    for value in each:
        if value < low - _TOLERANCE or value > high + _TOLERANCE:
            yield f"a value lies within its bounds, but {name} is {value:g} of {low:g} to {high:g}"
    if (np.asarray(measure.n(totals)) < 0).any():
        yield f"n counts answers, but that of {name} is below 0"


def _problems_of_ideal(measure: Measure, first: Measure) -> Iterator[str]:
    name, ideal = _axis_text(measure.name, measure.axis), measure.ideal
    low, high = measure.bounds
    if ideal is not None and not low <= ideal <= high:
        yield f"an ideal lies within the bounds, but that of {name} is {ideal:g}"
    totals = np.random.default_rng(17).uniform(1, 2, (5, np.shape(measure.samples.rows)[1]))
    want = np.asarray(measure.value(totals))
    if not np.allclose(measure.value(3 * totals), want, equal_nan=True):
        yield f"a measure with an ideal does not depend on the scale of its totals, but {name} does"
    if not np.allclose(first.value(totals), want, equal_nan=True):
        yield f"a measure with an ideal is one function on every axis, but {name} has another"


def _side_promises(checked: CheckedSuite) -> Iterator[str]:
    records = checked.records
    sides = checked.suite.sides(records)
    if len(sides) != len(records):
        yield f"sides has one for each record, but {len(sides)} of {len(records)}"
        return
    for record, side in zip(records, sides, strict=True):
        if side is not None and side not in get_args(AnswerLean):
            yield f"a side is biased, other or None, but that of {record.item.id!r} is {side!r}"
        if side is not None and record.outcome.name not in checked.suite.outcomes:
            yield f"an unreadable answer has no side, but that of {record.item.id!r} is {side}"


def _report_promises(checked: CheckedSuite) -> Iterator[str]:
    suite, about = checked.suite, checked.suite.about
    measures = checked.plain
    bounds = {_axis_text(m.name, m.axis): m.bounds for m in measures}
    labels = {label for m in measures for label in m.axis}
    for figure in suite.published().figures:
        # A label that no measure has, such as what guarded the paper's model, is a note.
        axis = {label: value for label, value in figure.axis.items() if label in labels}
        low, high = bounds.get(name := _axis_text(figure.name, axis), (np.nan, np.nan))
        if name not in bounds:
            yield f"published figures stand on axes that are measured, but not {name}"
        elif not low <= figure.value <= high:
            yield f"published figures lie within the measure's bounds, but not {name}"
    both = checked.others.mitigation(checked.records, checked.guarded)
    names = {m.name for m in (*measures, *both)}
    # Some measures are only there with some options.
    if about.headline and not about.headline & names:
        yield f"a headline is a measure, and the suite has no {', '.join(sorted(about.headline))}"
    for name in sorted(about.meanings.keys() - names):
        yield f"meanings are of measures, and the suite has no {name}"
    explained = part_of(suite, ExplainsResults)
    for record in checked.records:
        if not all(isinstance(text, str) for text in explained.answer_texts(record)):
            yield f"answer_texts are texts, but not those of {record.item.id!r}"
    try:
        json.dumps(dict(explained.findings([*checked.records, *checked.follow_ups])))
    except (TypeError, ValueError):
        yield "findings are JSON values, but not those of this suite"


class _AskedFigures(SuiteFigures):
    """Figures that note the names of measures that charts ask for."""

    names: set[str]

    def __init__(self, lines: Sequence[Line], records: Mapping[str, Sequence[Record]]) -> None:
        super().__init__(lines, records)
        self.names = set()

    def line(self, name: str, **axis: str) -> Line | None:
        """Return what :class:`SuiteFigures` does, and note the name."""
        self.names.add(name)
        return super().line(name, **axis)

    def values_of(self, measure: str, axis: str) -> list[str]:
        """Return what :class:`SuiteFigures` does, and note the name."""
        self.names.add(measure)
        return super().values_of(measure, axis)


def _chart_promises(checked: CheckedSuite) -> Iterator[str]:
    silent = [Record(r.item, r.sample, Outcome("refused")) for r in checked.records]
    of_arms = {"plain": checked.records, "guarded": checked.guarded}
    runs: tuple[tuple[str, Mapping[str, Sequence[Record]]], ...] = (
        ("one arm", {"plain": checked.records}),
        ("two arms", of_arms),
        ("no readable answer", {"plain": silent}),
    )
    for run, records in runs:
        arms = [checked.measures(arm_records) for arm_records in records.values()]
        lines = estimate(arms[0], *arms[1:])
        figures = _AskedFigures(lines, records)
        try:
            charts = list(checked.suite.charts(figures))
            for chart in charts:
                chart.table()
        except Exception as error:
            yield f"charts never raises, but with {run} it raises {type(error).__name__}: {error}"
            return
        for name, times in Counter(chart.name for chart in charts).items():
            if times > 1:
                yield f"charts have names of their own, but {name!r} stands {times} times"
        known = {line.measure.name for line in lines}
        for name in sorted(figures.names - known):
            yield f"charts show measures, and the suite has no {name}"


_CHECKS: Sequence[Callable[[CheckedSuite], Iterator[str]]] = (
    _check_names,
    _check_hashes,
    _item_promises,
    _request_promises,
    _outcome_promises,
    _turn_promises,
    _measure_promises,
    _side_promises,
    _report_promises,
    _chart_promises,
)
