"""The contract between a suite and an audit: items, requests, outcomes, measures.

A suite never calls a model. It says what to ask, reads the answers and defines the measures. The
audit asks, records, makes both arms, and computes intervals and reports. What only some suites do
is in :mod:`guard.suites.optional`; :func:`guard.testing.check_suite` checks the promises.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from guard.results.chart import Chart
from guard.results.figures import SuiteFigures, headline_charts
from guard.results.measure import Measure
from guard.suites.requests import Answer, Request

Capability = Literal["chat", "logprobs", "given_logprobs", "patching"]
"""``chat``: answers to messages. ``logprobs``: log-probabilities of an answer's first token.
``given_logprobs``: log-likelihoods of texts in the request. ``patching``: hidden states of one
prompt put into another."""

AnswerLean = Literal["biased", "other"]

NON_ANSWERS = ("invalid", "refused", "guarded", "unjudged", "failed")
"""Outcomes that every suite shares; they are counted separately and never scored. In order: the
answer is unreadable, it declines, guard cut or replaced it, guard could not judge and stopped it,
the call failed. The audit sets the last three."""


class Options(BaseModel):
    """Settings of one suite for one audit; a suite adds its own by subclassing."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    reading_only: ClassVar[frozenset[str]] = frozenset()
    """Options that affect only how answers are read; a journal may be continued with new values."""

    data: Path | None = None
    """The official data, in place of the shipped pack."""
    protocol: Literal["guard", "paper"] = "guard"
    """``paper`` follows the publication exactly; ``guard`` corrects what distorts its scores."""
    seed: int = 17
    """Of every random choice: orders, draws, names."""


@dataclass(frozen=True, slots=True)
class ComparisonGroup:
    """The identity that an item is about, in a comparison of identities.

    The comparison is a permutation test: under its null hypothesis the answers of a ``block``'s
    elements are exchangeable. Answers that a fair model may give alike share one ``element``.
    Elements with different numbers of answers are exchangeable only if ``any_size`` is true: if
    their numbers do not depend on the identity. A fair model may also give answers alike that share
    one of the ``crossed`` elements, in place of ``element``: p is the largest of these exchanges.
    """

    axis: Mapping[str, str]
    identity: str
    block: str
    element: str
    any_size: bool = False
    crossed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Item:
    """A question, asked ``samples`` times.

    ``id`` is unique in the suite and the same for the same data, protocol and seed. A stratified
    sample draws whole ``unit``s (default: the item) from each ``stratum``. Intervals leave out
    whole ``cluster``s: a template, a draw of words, a concept pair. ``words`` name the item's
    groups in its text, one for each place; all items of a measure have the same number. Intervals
    then also allow for models that treat each word in its own way. ``data`` is the suite's own.

    Guard's stops are grouped by ``subject`` (default: the stratum). Refused, unreadable and stopped
    answers are compared between the identities of the ``comparison_groups``.
    """

    id: str
    stratum: str
    cluster: str
    data: Mapping[str, Any] = field(default_factory=dict)
    samples: int = 1
    unit: str | None = None
    words: tuple[str, ...] = ()
    subject: str | None = None
    comparison_groups: tuple[ComparisonGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of reading the answers to one sample of an item.

    ``name`` is one of the suite's ``outcomes``, "invalid" or "refused", or one of the ``faults`` of
    a suite that asks other models; ``values`` and ``lists`` hold what the measures need.
    """

    name: str
    values: Mapping[str, float] = field(default_factory=dict)
    lists: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Record:
    """One sample of an item with its outcome in one arm."""

    item: Item
    sample: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Published:
    """A figure of the paper, shown beside ours; ``source`` is its table or section."""

    name: str
    axis: Mapping[str, str]
    model: str
    value: float
    source: str


@dataclass(frozen=True, slots=True)
class Publication:
    """What a paper says of the suite's measures, and how this protocol differs from the paper's."""

    figures: Sequence[Published] = ()
    deviations: Sequence[str] = ()
    """In sentences."""
    counts_all: bool = False
    """Whether figures are counts over all items, so that a sample's do not compare with the
    paper's."""


@dataclass(frozen=True, slots=True)
class MeasureText:
    """What a report says of a measure."""

    legend: str = ""
    """What it is, and which values are bad."""
    above: str = ""
    """What a value above its null means."""
    below: str = ""
    """What a value below its null means."""
    headline: bool = False
    """Whether a printed table shows it on every axis, and not on the broadest axes only."""


@dataclass(frozen=True, slots=True)
class About:
    """What a report says of a suite, whatever its options."""

    title: str
    paper: str = ""
    judged: str = "each answer as a user gets it, after the question"
    """Which text the guarded arm judges. Empty if users get none: then there is no such arm."""
    completes_sentences: bool = False
    """Whether its requests have :attr:`Chat.completes`: the sentences are judged apart, for
    figures of their own that no outcome depends on."""
    tests_bias: bool = True
    """Whether measures are tested against what a fair model would give. If not, the figures can
    only be compared with another run's."""
    measures: Mapping[str, MeasureText] = field(default_factory=dict)
    """By the names of one or more measures, with commas between. If none is a headline, all are
    printed on every axis. JSON has everything."""

    @property
    def legend(self) -> Mapping[str, str]:
        """For each printed measure what it is, and which values are bad."""
        return {name: text.legend for name, text in self.measures.items() if text.legend}

    @property
    def meanings(self) -> Mapping[str, tuple[str, str]]:
        """For each tested measure what a value above its null means, and one below it."""
        return {name: (t.above, t.below) for name, t in self.measures.items() if t.above}

    @property
    def headline(self) -> frozenset[str]:
        """The measures that a printed table shows on every axis; all if empty."""
        shown = [names for names, text in self.measures.items() if text.headline]
        return frozenset(name for names in shown for name in names.split(", "))


class Suite(ABC):
    """One published suite, made for an audit by its options.

    A constructor reads the pack or the official data and raises UsageError, in one sentence, if it
    cannot. The same options give the same items, requests and measures.
    """

    name: ClassVar[str]
    about: ClassVar[About]
    version: ClassVar[str]
    """``N-X``: N changes when scores stop being comparable, X when the interface changes."""
    parser_version: ClassVar[str]
    """Changes whenever the same answer may get another outcome."""
    outcomes: ClassVar[tuple[str, ...]]
    """Names of readable outcomes."""
    options_type: ClassVar[type[Options]] = Options

    def __init__(self, options: Options) -> None:
        self.options = options

    @property
    @abstractmethod
    def data_hash(self) -> str:
        """The SHA-256 of the items' data."""

    @property
    @abstractmethod
    def prompt_hash(self) -> str:
        """The SHA-256 of the prompts and sampling settings."""

    @property
    def needs(self) -> frozenset[Capability]:
        """The capabilities that these options require of the model; by default chat."""
        return frozenset({"chat"})

    @abstractmethod
    def items(self) -> Iterable[Item]:
        """Yield every item, in a fixed order."""

    @abstractmethod
    def request(self, item: Item, sample: int, answers: Sequence[Answer]) -> Request | None:
        """Return the next request, given the ``answers`` to the previous ones; None at the end.

        ``sample`` counts from 0 to ``item.samples - 1``. The number of requests must not depend on
        the answers, except that an unreadable answer may be the last.
        """

    @abstractmethod
    def outcome(self, item: Item, sample: int, answers: Sequence[Answer]) -> Outcome:
        """Read the answers to a sample's requests. Never raises because of a model's text."""

    @abstractmethod
    def measures(self, records: Sequence[Record]) -> Iterable[Measure]:
        """Yield every measure of the records of one arm and of its follow-up items.

        ``records`` may cover only some items. Both arms have the same measures and axes; without a
        readable outcome one that has the value of a fair model is nan.
        """

    def sides(self, records: Sequence[Record]) -> Sequence[AnswerLean | None]:
        """Return for each record of the plain arm which way its answer leans.

        ``biased`` is what a biased model says, ``other`` any other readable answer. None: the
        answer is unreadable, or it shows no bias that a guard could see.
        """
        return [None] * len(records)

    def published(self) -> Publication:
        """Return the paper's figures that are comparable with these measures."""
        return Publication()

    def charts(self, figures: SuiteFigures) -> Iterable[Chart]:
        """Yield the charts of a report; those without data are left out.

        By default one of each headline measure. Their names are unique in the suite.
        """
        return headline_charts(figures)
