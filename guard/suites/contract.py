"""The contract between a suite and an audit: items, requests, outcomes, measures.

A suite never calls a model. It says what to ask, reads the answers and defines the measures. The
audit asks, records, makes both arms, and computes intervals and reports.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from guard.results.chart import Chart
from guard.results.conclusions import conclusions
from guard.results.estimate import Estimate
from guard.results.figures import SuiteFigures, headline_charts
from guard.results.measure import Measure
from guard.suites.requests import Answer, Request, Role
from guard.suites.tables import by_id

Capability = Literal["chat", "logprobs", "given_logprobs", "patching"]
"""``chat``: answers to messages. ``logprobs``: log-probabilities of an answer's first token.
``given_logprobs``: log-likelihoods of texts in the request. ``patching``: hidden states of one
prompt put into another."""

Side = Literal["biased", "other"]

NON_ANSWERS = ("invalid", "refused", "guarded", "unjudged", "failed")
"""Outcomes that every suite shares; they are counted separately and never scored. In order: the
answer is unreadable, it declines, guard cut or replaced it, guard could not judge and stopped it,
the call failed. The audit sets the last three."""


class Options(BaseModel):
    """Settings of one suite for one audit; a suite adds its own by subclassing."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: Path | None = None
    """The official data, in place of the shipped pack."""
    protocol: Literal["guard", "paper"] = "guard"
    """``paper`` follows the publication exactly; ``guard`` corrects what distorts its scores."""
    seed: int = 17
    """Of every random choice: orders, draws, names."""


@dataclass(frozen=True, slots=True)
class Item:
    """A question, asked ``samples`` times.

    ``id`` is unique in the suite and the same for the same data, protocol and seed. A stratified
    sample draws whole ``unit``s (default: the item) from each ``stratum``. Intervals leave out
    whole ``cluster``s: a template, a draw of words, a concept pair. ``words`` name the item's
    groups in its text, one for each place; all items of a measure have the same number. Intervals
    then also allow for models that treat each word in its own way. ``data`` is the suite's own.
    """

    id: str
    stratum: str
    cluster: str
    data: Mapping[str, Any] = field(default_factory=dict)
    samples: int = 1
    unit: str | None = None
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Compared:
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
class Outcome:
    """The result of reading the answers to one sample of an item.

    ``name`` is one of the suite's ``outcomes``, of its ``unread`` or of :data:`NON_ANSWERS`;
    ``values`` and ``lists`` hold what the measures need.
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


class Suite(ABC):
    """One published suite, made for an audit by its options.

    A constructor reads the pack or the official data and raises UsageError, in one sentence, if it
    cannot. The same options give the same items, requests and measures.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str]
    version: ClassVar[str]
    """``N-X``: N changes when scores stop being comparable, X when the interface changes."""
    parser_version: ClassVar[str]
    """Changes whenever the same answer may get another outcome."""
    outcomes: ClassVar[tuple[str, ...]]
    """Names of readable outcomes."""
    unread: ClassVar[tuple[str, ...]] = ()
    """Names of further outcomes that are counted separately and not scored."""
    reading: ClassVar[frozenset[str]] = frozenset()
    """Options that affect only how answers are read; a journal may be continued with new values."""
    headline: ClassVar[frozenset[str]] = frozenset()
    """The measures that a printed table shows on every axis; others are shown on the broadest axes
    only. Empty: all. JSON has everything."""
    counts_all: ClassVar[bool] = False
    """Whether figures are counts over all items, so that a sample's do not compare with the
    paper's."""
    legend: ClassVar[Mapping[str, str]] = {}
    """For each printed measure what it is, and which values are bad."""
    meanings: ClassVar[Mapping[str, tuple[str, str]]] = {}
    """For each tested measure what a value above its null means, and one below it."""
    tests_bias: ClassVar[bool] = True
    """Whether measures are tested against what a fair model would give. If not, the figures can
    only be compared with another run's."""
    judged: ClassVar[str] = "each answer as a user gets it, after the question"
    """Which text the guarded arm judges. Empty if users get none: then there is no such arm."""
    completes_sentences: ClassVar[bool] = False
    """Whether its requests have :attr:`Chat.completes`: the sentences are judged apart, for
    figures of their own that no outcome depends on."""
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
    @abstractmethod
    def needs(self) -> frozenset[Capability]:
        """The capabilities that these options require of the model."""

    @property
    def roles(self) -> frozenset[Role]:
        """Who answers requests besides the audited model.

        If that is a scorer alone, the scorer also judges what users of the guarded arm saw. Those
        outcomes have further values: ``kept`` (the share of the model's characters that were
        sent), ``stopped``, ``seconds`` (guard's time) and ``read`` (whether the plain answer has a
        readable outcome).
        """
        return frozenset()

    @property
    def uses(self) -> frozenset[Capability]:
        """Optional capabilities, used where the model has them."""
        return frozenset()

    def fitted(self, has: frozenset[Capability]) -> Suite:
        """Return the suite for a model that ``has`` these capabilities; its options say which."""
        return self

    def for_quick_run(self) -> Suite:
        """Return the suite for a quick run: it may ask more items, each less often."""
        return self

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

    def further(self, records: Sequence[Record]) -> Iterable[Item]:
        """Yield the items that depend on all ``records`` of the plain arm.

        Their requests follow once every other item has an outcome, and go to other models than the
        audited one. Their records are added to ``records``, and may lead to further items. No count
        of outcomes includes them.
        """
        return ()

    @abstractmethod
    def measures(self, records: Sequence[Record]) -> Iterable[Measure]:
        """Yield every measure of the records of one arm and of its further items.

        ``records`` may cover only some items. Both arms have the same measures and axes; without a
        readable outcome a measure is nan.
        """

    def sides(self, records: Sequence[Record]) -> Sequence[Side | None]:
        """Return for each record of the plain arm the side of its answer.

        ``biased`` is what a biased model says, ``other`` any other readable answer. None: the
        answer is unreadable, or it shows no bias that a guard could see.
        """
        return [None] * len(records)

    def mitigation(self, plain: Sequence[Record], guarded: Sequence[Record]) -> Iterable[Measure]:
        """Yield measures that need both arms, whose records are of the same samples, in order."""
        return ()

    def subject(self, item: Item) -> str:
        """Return the topic of an item, by which guard's stops are grouped."""
        return item.stratum

    def phrases(self) -> Iterable[str]:
        """Yield the suite's own answers that name no group; stopping one is a false positive."""
        return ()

    def answer_texts(self, record: Record) -> Sequence[str]:
        """Return the suite's own texts in a record's answer, such as the chosen option."""
        return ()

    def compared(self, item: Item) -> Sequence[Compared]:
        """Return the comparisons of refused, unreadable and stopped answers that an item enters."""
        return ()

    def deviations(self) -> Sequence[str]:
        """Return how this protocol differs from the paper, in sentences."""
        return ()

    def published(self) -> Sequence[Published]:
        """Return the paper's figures that are comparable with these measures."""
        return ()

    def spread(self, records: Sequence[Record]) -> Mapping[str, float]:
        """Return by stratum the standard deviation of the units' sums in the first measure.

        It says where more calls narrow the interval most. Empty if unknown; otherwise the measures
        must weigh strata equally.
        """
        return {}

    def findings(self, records: Sequence[Record]) -> Mapping[str, Any]:
        """Return what a report shows besides the measures of one arm, as JSON values.

        ``remarks`` are sentences; other keys are titles of tables, with lists of rows.
        """
        return {}

    def conclusions(self, found: Sequence[tuple[Measure, Estimate]]) -> Sequence[str]:
        """Return the results of one arm in sentences; the first is the headline.

        ``found`` are the suite's measures with their estimates, in order.
        """
        return conclusions(found, self.meanings)

    def charts(self, figures: SuiteFigures) -> Iterable[Chart]:
        """Yield the charts of a report; those without data are left out.

        By default one of each headline measure. Their names are unique in the suite.
        """
        return headline_charts(figures)

    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """Return what a plan shows besides items and calls: counts by category, then name."""
        return {}

    def answers_from_table(
        self, rows: Iterable[Mapping[str, str]]
    ) -> Iterable[tuple[Item, int, Sequence[Answer]]]:
        """Read recorded answers from the rows of a table, by column name.

        By default: ``id``, ``response``, ``sample`` if an item has several, and optionally
        ``finish_reason``. Raises UsageError that names a missing column, an unknown item or a turn
        that the suite does not have.
        """
        return by_id(self, rows)
