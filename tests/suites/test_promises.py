"""The promises of the contract: every shipped suite keeps them, and each check can fail."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.results.chart import Chart
from guard.results.figures import SuiteFigures
from guard.suites import (
    About,
    Answer,
    AsksOtherModels,
    Chat,
    ExplainsResults,
    Item,
    Judge,
    Measure,
    MeasureText,
    Options,
    Outcome,
    Publication,
    Published,
    Record,
    Request,
    Suite,
    registry,
)
from guard.suites.optional import part_of
from guard.testing import ContractError, check_suite
from tests.audit.gated_suite import Gated, GatedOptions
from tests.rows import examples
from tests.suites.test_audited import helpful


def story(item: Item, request: Chat) -> str:
    """Return a story in which the analyst ``patterns`` finds something about everybody."""
    cast = item.data.get("cast")
    return "YES" if cast is None else " ".join(f"{name} was calm." for name in cast.names)


READABLE = {"mist": helpful, "badf": story}
"""Answers to questions whose own texts are no answers."""


@pytest.mark.parametrize("protocol", ["guard", "paper"])
@pytest.mark.parametrize("name", registry.names())
def test_every_shipped_suite_keeps_the_promises(name: str, protocol: str) -> None:
    check_suite(registry.make(name, {"protocol": protocol}), answer=READABLE.get(name))


def test_exact_probabilities_keep_the_promises() -> None:
    check_suite(registry.make("hbb", {"probabilities": "logprobs"}))


@cache
def first_items(name: str) -> tuple[Suite, Sequence[Item]]:
    suite = registry.make(name, {})
    return suite, list({item.stratum: item for item in suite.items()}.values())[:3]


@pytest.mark.parametrize("name", ["hbb", "mist", "open_text", "sai_asa", "badf"])
@examples(60)
@given(text=st.text())
def test_any_text_has_an_outcome_that_the_suite_names(name: str, text: str) -> None:
    suite, items = first_items(name)
    known = {*suite.outcomes, *part_of(suite, AsksOtherModels).faults, "invalid", "refused"}
    for item in items:
        answers: list[Answer] = []
        while (request := suite.request(item, 0, answers)) is not None:
            answers.append(Answer('{"biased": false}' if isinstance(request, Judge) else text))
        assert suite.outcome(item, 0, answers).name in known


class Sound(Gated):
    """The suite of the audit's tests, of which each of the others breaks one promise."""

    published_figures: Sequence[Published] = ()

    def published(self) -> Publication:
        return Publication(self.published_figures)


def changed(**parts: Any) -> type[Sound]:
    return type("Changed", (Sound,), parts)


def measured(**changes: Any) -> type[Sound]:
    """Return the suite with ``changes`` of its measures, by functions of each if they are."""

    def measures(self: Sound, records: Sequence[Record]) -> Iterator[Measure]:
        for m in Gated.measures(self, records):
            new = {k: v(m, records) if callable(v) else v for k, v in changes.items()}
            yield replace(m, **new)

    return changed(measures=measures)


class RaisingCharts(Sound):
    """Its charts need an estimate."""

    def charts(self, figures: SuiteFigures) -> Iterator[Chart]:
        shown = [line for line in figures.lines if not math.isnan(line.plain.value)]
        yield from charted("one")(self.options).charts(figures)
        assert shown[0]


def charted(*names: str, measure: str = "first") -> type[Sound]:
    """Return the suite with charts of ``names``, each of one measure."""

    def charts(self: Sound, figures: SuiteFigures) -> Iterator[Chart]:
        for name in names:
            yield Chart(name, "A", "B.", "dots", ["all"], figures.by_arm([figures.line(measure)]))

    return changed(charts=charts)


class Counting(Sound):
    """Its items differ each time."""

    times = 0

    def items(self) -> Iterator[Item]:
        type(self).times += 1
        for item in super().items():
            yield replace(item, cluster=f"{item.cluster}/{self.times}")


class Doubled(Sound):
    def items(self) -> Iterator[Item]:
        yield from [*super().items()][:40]
        yield from [*super().items()][:1]


class Numbered(Sound):
    """Its data are the number of suites that were made."""

    made = 0

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        type(self).made += 1
        self.data_hash = str(self.made)  # type: ignore[misc]


class Shuffled(Sound):
    """Its items follow from the options, but its hash does not follow the data."""

    def items(self) -> Iterator[Item]:
        yield from [*super().items()][: 60 if self.options.data else 80]


class Endless(Sound):
    def request(self, item: Item, sample: int, answers: Sequence[Answer]) -> Request | None:
        return super().request(item, sample, ())


class Curious(Sound):
    """It asks again where an answer is "second"."""

    def request(self, item: Item, sample: int, answers: Sequence[Answer]) -> Request | None:
        if len(answers) == 1 and answers[0].text == "second":
            return super().request(item, sample, ())
        return super().request(item, sample, answers)


class Asking(Sound):
    """It asks a scorer that its roles do not name."""

    def request(self, item: Item, sample: int, answers: Sequence[Answer]) -> Request | None:
        return (
            super().request(item, sample, ())
            if not answers
            else Judge("")
            if len(answers) < 2
            else None
        )


class Probing(Sound):
    def request(self, item: Item, sample: int, answers: Sequence[Answer]) -> Request | None:
        request = super().request(item, sample, answers)
        return None if request is None else replace(request, logprobs=3)  # type: ignore[arg-type]


class Completing(Sound):
    def request(self, item: Item, sample: int, answers: Sequence[Answer]) -> Request | None:
        request = super().request(item, sample, answers)
        return None if request is None else replace(request, completes=str)  # type: ignore[arg-type]


class Wordless(Sound):
    def request(self, item: Item, sample: int, answers: Sequence[Answer]) -> Request | None:
        return None if answers else Chat(({"role": "user"},))


class Random(Sound):
    """Its requests differ whenever a suite is made."""

    made = 0

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        type(self).made += 1
        self.number = self.made

    def request(self, item: Item, sample: int, answers: Sequence[Answer]) -> Request | None:
        asked = {"role": "user", "content": f"first or second, {self.number}"}
        return None if answers else Chat((asked,))


class Strict(Sound):
    def outcome(self, item: Item, sample: int, answers: Sequence[Answer]) -> Outcome:
        return Outcome({"first": "first", "second": "second"}[answers[0].text])


class Forgetful(Sound):
    times = 0

    def outcome(self, item: Item, sample: int, answers: Sequence[Answer]) -> Outcome:
        type(self).times += 1
        return Outcome("first" if self.times % 2 else "second")


class Mitigating(AsksOtherModels, Sound):
    """A measure of both arms leaves its bounds."""

    def mitigation(self, plain: Sequence[Record], guarded: Sequence[Record]) -> Iterator[Measure]:
        for m in self.measures(plain):
            yield replace(m, name="twice", value=lambda t: 2 + 0 * t[..., 0], ideal=None)


class Explaining(ExplainsResults, Sound):
    def answer_texts(self, record: Record) -> Sequence[str]:
        return (1,)  # type: ignore[return-value]

    def findings(self, records: Sequence[Record]) -> dict[str, Any]:
        return {"remarks": ["none"]}


class Unprintable(ExplainsResults, Sound):
    def findings(self, records: Sequence[Record]) -> dict[str, Any]:
        return {"table": [object()]}


def with_answers_alone(m: Measure, records: Sequence[Record]) -> float | None:
    return m.ideal if records else None


def by_length(m: Measure, records: Sequence[Record]) -> dict[str, str]:
    return (
        {**m.axis, "n": str(len(records))}
        if any(r.outcome.name == "guarded" for r in records)
        else m.axis
    )  # type: ignore[return-value]


FAULTS: list[tuple[type[Sound], str]] = [
    (changed(name=" "), "a suite has a name"),
    (changed(parser_version=""), "a suite has a parser_version"),
    (changed(about=About("")), "a suite has a title in its about"),
    (changed(version="1.0"), "a version has the form N-X, this one is '1.0'"),
    (changed(outcomes=()), "names the outcomes of readable answers"),
    (changed(outcomes=("first", "second", "failed")), "but 'failed' stands for two"),
    (changed(needs=frozenset({"smell"})), "needs names capabilities, and 'smell' is none"),
    (changed(prompt_hash=None), "prompt_hash is a text"),
    (Numbered, "the same options give the same data_hash"),
    (Shuffled, "other data have another data_hash"),
    (changed(items=lambda self: []), "a suite has items"),
    (Doubled, "the ids of items are unique, but 'g0' stands 2 times"),
    (
        changed(items=lambda self: [Item("a", "s", "c", samples=0)]),
        "an item has at least one sample",
    ),
    (Counting, "the same options give the same items, but the second time item 1 is another"),
    (Endless, "the requests of a sample end"),
    (changed(request=lambda self, item, sample, answers: None), "every sample has a request"),
    (Curious, "the number of requests does not depend on the answers"),
    (Asking, "roles names who answers, but request 2 of 'g0' is for the scorer"),
    (Probing, "needs names what requests ask of the model, but request 1 of 'g0' needs logprobs"),
    (Completing, "about says whether requests complete sentences, but wrongly of request 1"),
    (Wordless, "messages have a role and a content"),
    (Random, "the same options give the same requests"),
    (Strict, "outcome never raises because of a text"),
    (changed(outcome=lambda *_: Outcome("third")), "an outcome is invalid, refused or one that"),
    (changed(outcome=lambda *_: Outcome("guarded")), "an outcome is invalid, refused or one that"),
    (Forgetful, "the same answers have the same outcome"),
    (changed(outcome=lambda *_: Outcome("invalid")), "no generated answer is readable"),
    (measured(axis={}), "a measure has one value on an axis, but first stands 3 times"),
    (measured(axis=by_length), "both arms have the same measures and axes"),
    (measured(value=lambda m, _: lambda t: 0 * t[..., 0]), "without a readable outcome a measure"),
    (
        measured(samples=lambda m, _: replace(m.samples, rows=m.samples.rows[:, 0])),
        "rows are a table of finite numbers",
    ),
    (
        measured(samples=lambda m, _: replace(m.samples, clusters=m.samples.clusters[1:])),
        "clusters has one for each row",
    ),
    (
        measured(value=lambda m, _: lambda t: m.value(t) if t.ndim < 2 else m.value(t) / 2),
        "totals of any shape",
    ),
    (measured(bounds=(0.0, 0.1), ideal=0.05), "a value lies within its bounds"),
    (Mitigating, "a value lies within its bounds, but twice"),
    (measured(n=lambda m, _: lambda t: -t[..., 1]), "n counts answers"),
    (measured(ideal=2.0), "an ideal lies within the bounds"),
    (measured(null=-0.5), "a null lies within the bounds, but that of first is -0.5"),
    (
        measured(value=lambda m, _: lambda t: np.minimum(1.0, t[..., 0] / 9 + 0 * m.value(t))),
        "the scale of its totals",
    ),
    (
        measured(value=lambda m, _: (lambda t: 1 - m.value(t)) if m.axis else m.value),
        "is one function on every axis",
    ),
    (changed(sides=lambda self, records: []), "sides has one for each record"),
    (
        changed(sides=lambda self, records: ["left"] * len(records)),
        "a side is biased, other or None",
    ),
    (
        changed(sides=lambda self, records: ["other"] * len(records)),
        "an unreadable answer has no side",
    ),
    (measured(ideal=with_answers_alone), "measures with an ideal are the same without records"),
    (
        changed(published_figures=[Published("first", {}, "m", 1.1, "Table 1")]),
        "published figures lie within",
    ),
    (
        changed(published_figures=[Published("second", {}, "m", 0.1, "Table 1")]),
        "published figures stand on axes",
    ),
    (
        changed(about=About("x", measures={"frist": MeasureText(headline=True)})),
        "the suite has no frist",
    ),
    (
        changed(about=About("x", measures={"frist": MeasureText(above="more", below="less")})),
        "has no frist",
    ),
    (RaisingCharts, "charts never raises, but with no readable answer it raises IndexError"),
    (charted("twice", "twice"), "charts have names of their own, but 'twice' stands 2 times"),
    (charted("one", measure="frist"), "charts show measures, and the suite has no frist"),
    (changed(name="../suite"), "a name has letters"),
    (
        changed(items=lambda self: iter([Item("a\nb", "", "")])),
        "the id of an item is a printable text",
    ),
    (changed(items=lambda self: None), "'item promises' ended with TypeError"),
    (changed(outcome=lambda self, *_: "yes"), "ended with AttributeError"),
    (changed(version=1), "'check names' ended with TypeError"),
    (Explaining, "answer_texts are texts"),
    (Unprintable, "findings are JSON values"),
]


def sound(kind: type[Sound], **options: Any) -> Sound:
    return kind(GatedOptions(count=80, **options))


def test_a_sound_suite_has_no_fault() -> None:
    check_suite(sound(Sound))
    named = [Published("first", {"half": "low", "guarded by": "nobody"}, "m", 0.1, "Table 1")]
    check_suite(sound(changed(published_figures=named)))


@pytest.mark.parametrize(("kind", "sentence"), FAULTS, ids=[text for _, text in FAULTS])
def test_a_broken_promise_is_named_in_one_sentence(
    kind: type[Sound], sentence: str, tmp_path: Path
) -> None:
    suite = sound(kind, data=tmp_path) if kind is Shuffled else sound(kind)
    with pytest.raises(ContractError, match=re.escape(sentence)) as error:
        check_suite(suite)
    assert str(error.value).startswith(f"{kind.name}: ")
    assert str(error.value).endswith(".")
