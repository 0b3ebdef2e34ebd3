"""Generated answers to a suite, for the checks of :mod:`guard.suites.promises`.

The answers are texts that no suite expects, texts of the question itself, and those of the caller;
no model is called.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

from guard.results.measure import Measure
from guard.suites.contract import Item, Outcome, Record, Suite
from guard.suites.optional import AsksOtherModels, part_of
from guard.suites.requests import Answer, Chat, GroupTexts, Judge, LogLikelihood, Request, TextScore

UNEXPECTED = (
    "",
    " \n\t",
    "I'm sorry, but I can't help with that.",
    "asdf qwer zxcv",
    "\u200b\ufeff🙂 \u202etxet\u202c",
    "\x00\x07 \ud800",
    '{"answer": [1, null], "biased": "yes"}',
    "[]",
    "null",
    "1",
    "-1e999",
    "<think>never closed",
    "{0} {} %s \\1 [",
    "۱۲۳ 一二三 ½",
    "a, b; a: b\n" * 400,
)
"""Answers that models give to no question, or to every one."""
_ITEMS = 120
"""Items are taken from every stratum until so many are reached."""
_SAMPLES = 2
_CONVERSATIONS = 24
"""So many samples get every unexpected answer."""
MOST_REQUESTS = 100
_ROUNDS = 10
_TRIES = 20
_WORD = re.compile(r"\w+")

Says = Callable[[Item, Chat], str]


@dataclass(frozen=True, slots=True)
class Conversation:
    """The requests of a sample with their answers; ``ended`` is false if they never end."""

    requests: Sequence[Request]
    answers: Sequence[Answer]
    ended: bool


@dataclass(frozen=True)
class CheckedSuite:
    """A suite, the same suite made again, and what generated answers make of it."""

    suite: Suite
    says: Says | None
    rng: random.Random = field(default_factory=lambda: random.Random(17))

    @cached_property
    def again(self) -> Suite:
        """The suite made again with the same options."""
        return type(self.suite)(self.suite.options)

    @cached_property
    def items(self) -> Sequence[Item]:
        """Every item."""
        return list(self.suite.items())

    @cached_property
    def some(self) -> Sequence[Item]:
        """Items of every stratum, spread over it, and of every identity."""
        strata: dict[str, list[Item]] = {}
        by_identity: dict[tuple[str, ...], Item] = {}
        for item in self.items:
            strata.setdefault(item.stratum, []).append(item)
            for group in item.comparison_groups:
                by_identity[(*group.axis.values(), group.identity)] = item
        each = max(2, _ITEMS // len(strata))
        spread = chain(*(listed[:: -(-len(listed) // each)] for listed in strata.values()))
        return list({item.id: item for item in (*spread, *by_identity.values())}.values())

    @cached_property
    def samples(self) -> Sequence[tuple[Item, int]]:
        """Samples of some items."""
        return [(i, sample) for i in self.some for sample in range(min(i.samples, _SAMPLES))]

    @cached_property
    def conversations(self) -> Sequence[tuple[Item, int, str | None, Conversation]]:
        """Samples with an answer, None for a readable one, and where it leads."""
        few = self.samples[:: -(-len(self.samples) // _CONVERSATIONS)]
        asked = [
            *((item, sample, None) for item, sample in self.samples),
            *((item, sample, text) for item, sample in few for text in UNEXPECTED),
        ]
        return [(i, sample, text, self.converse(i, sample, text)) for i, sample, text in asked]

    @cached_property
    def others(self) -> AsksOtherModels:
        """What the suite asks of other models."""
        return part_of(self.suite, AsksOtherModels)

    def readable(self, item: Item, request: Chat) -> str:
        """Return an answer that the suite may read: the caller's, or a text of the question."""
        if self.says is not None:
            return self.says(item, request)
        question = "\n".join(str(message["content"]) for message in request.messages)
        lines = [line.strip() for line in question.splitlines() if line.strip()]
        parts = (lines, _WORD.findall(question), [question], ["a", "b"])
        texts: Sequence[str] = self.rng.choice([part for part in parts if part])
        return self.rng.choice(texts)

    def answer(self, item: Item, request: Request, text: str | None) -> Answer:
        """Return an answer to ``request``: ``text``, or a readable one if it is None."""
        if isinstance(request, LogLikelihood):
            logprobs = (-self.rng.uniform(1, 40) for _ in request.continuations)
            return Answer(scores=tuple(TextScore(logprob, 5) for logprob in logprobs))
        if isinstance(request, Judge):
            return Answer(json.dumps({"biased": self.rng.random() < 0.5}))
        if isinstance(request, GroupTexts):
            return Answer(json.dumps(list(range(len(request.texts)))))
        if text is not None:
            return Answer(text)
        tokens = (
            {"a": -0.4 - self.rng.random(), "b": -0.9, " the": -3.0} if request.logprobs else {}
        )
        if request.patterns is not None:
            return Answer(request.patterns())
        return Answer(self.readable(item, request), first_tokens=tokens)

    def converse(
        self, item: Item, sample: int, text: str | None = None, *, planned: bool = False
    ) -> Conversation:
        """Go through a sample's requests, each answered by :meth:`answer` with ``text``."""
        requests: list[Request] = []
        answers: list[Answer] = []
        while len(requests) < MOST_REQUESTS:
            request = self.suite.request(item, sample, answers)
            if request is None:
                return Conversation(requests, answers, True)
            requests.append(request)
            planning = Answer(finish_reason="planned")
            answers.append(planning if planned else self.answer(item, request, text))
        return Conversation(requests, answers, False)

    def read(self, item: Item, sample: int) -> Outcome:
        """Return the outcome of the first answers of several that are readable, or of the last."""
        outcome = Outcome("invalid")
        for _ in range(_TRIES):
            outcome = self.suite.outcome(item, sample, self.converse(item, sample).answers)
            if outcome.name in self.suite.outcomes:
                break
        return outcome

    @cached_property
    def records(self) -> Sequence[Record]:
        """The samples with the outcomes of readable answers."""
        return [Record(item, sample, self.read(item, sample)) for item, sample in self.samples]

    @cached_property
    def follow_ups(self) -> Sequence[Record]:
        """The records of the items that follow from the others."""
        records: list[Record] = []
        known: set[str] = set()
        for _ in range(_ROUNDS):
            items = self.others.follow_up_items([*self.records, *records])
            new = [item for item in items if item.id not in known]
            known |= {item.id for item in new}
            talks = [(item, self.converse(item, 0).answers) for item in new]
            records += [Record(i, 0, self.suite.outcome(i, 0, answers)) for i, answers in talks]
        return records

    @cached_property
    def guarded(self) -> Sequence[Record]:
        """The records of an arm in which every third answer was stopped."""
        return [
            self._behind_guard(r, stopped=place % 3 == 0) for place, r in enumerate(self.records)
        ]

    def _behind_guard(self, record: Record, *, stopped: bool) -> Record:
        values: dict[str, float] = {}
        if self.others.roles == {"scorer"}:
            read = float(record.outcome.name in self.suite.outcomes)
            values = {
                "kept": 1.0 - stopped,
                "stopped": float(stopped),
                "seconds": 0.1,
                "read": read,
            }
        name = "guarded" if stopped else record.outcome.name
        outcome = Outcome(name, {**record.outcome.values, **values}, record.outcome.lists)
        return Record(record.item, record.sample, outcome)

    @cached_property
    def plain(self) -> Sequence[Measure]:
        """The measures of the records."""
        return self.measures(self.records)

    def measures(self, records: Sequence[Record]) -> Sequence[Measure]:
        """Return the measures of an arm's records."""
        return list(self.suite.measures([*records, *self.follow_ups]))
