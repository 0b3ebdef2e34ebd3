"""What a suite is to an audit: items, requests, outcomes, measures.

A suite never calls a model. It says what to ask, reads what was answered, and names the numbers
that follow; asking, recording, both arms, intervals and reports are the audit's.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from guard.suites.conclusions import conclusions
from guard.suites.requests import Answer as Answer
from guard.suites.requests import Chat as Chat
from guard.suites.requests import Given as Given
from guard.suites.requests import Judge as Judge
from guard.suites.requests import Patch as Patch
from guard.suites.requests import Request as Request
from guard.suites.requests import Role as Role
from guard.suites.requests import TextScore as TextScore
from guard.suites.requests import Unify as Unify
from guard.suites.tables import by_id

Floats = NDArray[np.float64]

Capability = Literal["chat", "logprobs", "given_logprobs", "patching"]
"""``chat``: answers to messages. ``logprobs``: those of an answer's first token with them.
``given_logprobs``: the log-probabilities of a text that the request gives. ``patching``: states of
one prompt put into another."""

Side = Literal["biased", "other"]

NON_ANSWERS = ("invalid", "refused", "guarded", "unjudged", "failed")
"""Outcomes that every suite shares, counted apart and never scored: an answer that cannot be read,
one that declines, one that the guard cut or replaced, one that it could not judge and stopped, and
a call that gave none. ``guarded``, ``unjudged`` and ``failed`` are the audit's to give."""


class Options(BaseModel):
    """Settings of one suite for one audit; a suite adds its own by subclassing."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: Path | None = None
    """The official data, in place of the shipped pack."""
    protocol: Literal["guard", "paper"] = "guard"
    """``paper`` follows the publication to the letter, ``guard`` mends what distorts its scores."""
    seed: int = 17
    """Of every random choice: orders, draws, names."""


@dataclass(frozen=True, slots=True)
class Item:
    """One thing to ask, ``samples`` times.

    ``id`` is unique in the suite and the same for the same data, protocol and seed. A stratified
    sample draws whole ``unit``s (by default the item alone) from each ``stratum``; intervals leave
    out whole ``cluster``s: a template, a draw of words, a concept pair. ``data`` is for the suite.
    """

    id: str
    stratum: str
    cluster: str
    data: Mapping[str, Any] = field(default_factory=dict)
    samples: int = 1
    unit: str | None = None


@dataclass(frozen=True, slots=True)
class Compared:
    """Where an item stands in a comparison of identities: which one it is about.

    A model to which the identity makes no difference could have given any element of the ``block``
    what it gave another. What it may answer alike by itself is one ``element``.
    """

    axis: Mapping[str, str]
    identity: str
    block: str
    element: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the answers to one sample of an item amount to.

    ``name`` is one of the suite's ``outcomes``, of what it calls ``unread`` or of
    :data:`NON_ANSWERS`; ``values`` and ``lists`` hold what the measures need of it.
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
class Smooth:
    """A smooth number of the same totals, on whose scale the interval is made.

    ``back`` is rising, and gives the measure's value of it; nan gives nan. ``least`` is the least
    that the number can truly be: an estimate below it, as noise gives, has the interval of one that
    is just there.
    """

    value: Callable[[Floats], Floats]
    back: Callable[[float], float]
    least: float = -math.inf


@dataclass(frozen=True, slots=True)
class Measure:
    """A number that follows from sums: ``value(totals)`` over rows of additive statistics.

    ``rows`` has shape (r, k): what each record, or instance made of several, adds. ``clusters``
    names each row's cluster (r,). ``value`` takes totals of shape (..., k) and returns (...),
    nan where a denominator is 0; ``n`` does the same for what the number is over. An interval
    comes of leaving out each cluster in turn; so do a change between arms and, where ``null`` says
    what the value is when there is nothing to find, its p-value. ``above`` is for a value of which
    only more than ``null`` is something found: less has p = 1. A suite with an exact test of its
    own gives ``p`` instead. The audit corrects those of one suite and arm together, but those whose
    ``q`` the suite gives: it has corrected them over tests that are no measures. ``higher_is`` says
    what more of it means, for the direction of a change.

    ``bounds`` are the least and the most that the value can be: what has 0 or more and a finite
    number for them is taken for a mean of what lies between, such as a share, or for a count of a
    fixed number. ``interval`` is False for a number that is a yardstick and no estimate, ``level``
    is the interval's, higher where only what stands out is shown. ``exact`` says that ``value`` is
    a share of ``n`` answers whose interval is Clopper and Pearson's, of as many as would say as
    much if they were independent. ``two_shares`` says that it is the difference of two shares,
    which the totals hold as (above, below, above, below). ``smooth`` is for a value with a
    kink, such as a root.

    ``ideal`` is the value of a fair model: a comparison of two runs tests whether the measure moved
    away from it, whichever way (with ``above`` upwards alone). One without an ideal is compared
    with nothing. The value of one with it must not depend on the scale of the totals, and is the
    same function on every axis. ``items`` names each row's item (r,), where a row is one sample's:
    then items are compared in pairs, and whole clusters otherwise.
    """

    name: str
    axis: Mapping[str, str]
    rows: Floats
    clusters: Sequence[str]
    value: Callable[[Floats], Floats]
    n: Callable[[Floats], Floats]
    p: float | None = None
    q: float | None = None
    higher_is: Literal["worse", "better", "neither"] = "neither"
    null: float | None = None
    above: bool = False
    bounds: tuple[float, float] = (-math.inf, math.inf)
    interval: bool = True
    level: float = 0.95
    exact: bool = False
    two_shares: bool = False
    smooth: Smooth | None = None
    ideal: float | None = None
    items: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    """A measure with its 95 % interval, over ``n``; nan where it is not defined.

    ``p`` is of the test that there is nothing, ``q`` the same corrected over the suite's measures.
    """

    value: float
    low: float
    high: float
    n: float
    p: float = math.nan
    q: float = math.nan


@dataclass(frozen=True, slots=True)
class Published:
    """A figure of the paper that stands beside ours; ``source`` is its table or section."""

    name: str
    axis: Mapping[str, str]
    model: str
    value: float
    source: str


class Suite(ABC):
    """One published suite with its pack. Made once for an audit, by its options.

    A constructor reads the pack or the official data and raises UsageError, in one sentence, on
    what it cannot read. What it then gives is the same for the same options.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str]
    version: ClassVar[str]
    """``N-X``: N changes when scores stop being comparable, X when the interface does."""
    parser_version: ClassVar[str]
    """Changes whenever the same answer may get another outcome."""
    outcomes: ClassVar[tuple[str, ...]]
    """Names of readable outcomes."""
    unread: ClassVar[tuple[str, ...]] = ()
    """Names of outcomes that are counted apart and not scored, besides :data:`NON_ANSWERS`."""
    reading: ClassVar[frozenset[str]] = frozenset()
    """Options that only decide how answers are read: a journal goes on with another value."""
    headline: ClassVar[frozenset[str]] = frozenset()
    """The measures that a printed table shows of every axis; of the widest ones it shows all, and
    of all where this is empty. JSON has everything."""
    counts_all: ClassVar[bool] = False
    """Whether its figures count over all items: a sample's do not compare with the paper's."""
    legend: ClassVar[Mapping[str, str]] = {}
    """What each printed measure is, and which values of it are bad, in a phrase."""
    meanings: ClassVar[Mapping[str, tuple[str, str]]] = {}
    """What a tested measure says above, and below, the value that nothing would give."""
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
        """What the model must be able to do for these options."""

    @property
    def roles(self) -> frozenset[Role]:
        """Who is asked besides the audited model.

        A scorer alone judges what the guarded arm shows, too: its outcomes then have ``kept`` (the
        share of the model's characters that went out), ``stopped``, ``seconds`` (what the guard
        took) and ``read`` (whether the plain answer has a readable outcome) among their values.
        """
        return frozenset()

    @property
    def uses(self) -> frozenset[Capability]:
        """What it would use where the model can do it, and does without otherwise."""
        return frozenset()

    def fitted(self, has: frozenset[Capability]) -> Suite:
        """Return the suite for a model that ``has`` these capabilities; its options say which."""
        return self

    @abstractmethod
    def items(self) -> Iterable[Item]:
        """Yield every item, in a fixed order."""

    @abstractmethod
    def request(self, item: Item, sample: int, answers: Sequence[Answer]) -> Request | None:
        """Return what to ask next, after ``answers`` to the requests before; None at the end.

        ``sample`` counts from 0 to ``item.samples - 1``. How many requests there are does not
        depend on what was answered, but that an answer which cannot be read may be the last.
        """

    @abstractmethod
    def outcome(self, item: Item, sample: int, answers: Sequence[Answer]) -> Outcome:
        """Read the answers to all of a sample's requests. Never raises for what a model wrote."""

    def further(self, records: Sequence[Record]) -> Iterable[Item]:
        """Yield the items that depend on all ``records`` of the plain arm.

        They are asked once every other item has its outcome, and not of the audited model. Their
        own records then come back among ``records``, and may lead to further items. They are in no
        count of outcomes.
        """
        return ()

    @abstractmethod
    def measures(self, records: Sequence[Record]) -> Iterable[Measure]:
        """Yield every measure over the records of one arm, and of the items that follow from them.

        ``records`` may be some of the items only. The same axes and names come for both arms.
        Without a readable outcome a measure is still there, and nan.
        """

    def sides(self, records: Sequence[Record]) -> Sequence[Side | None]:
        """Return for each record of the plain arm on which side its answer is.

        ``biased`` is what a biased model says, ``other`` any other readable answer, None what
        could not be read, or cannot show a bias where a guard can see it.
        """
        return [None] * len(records)

    def mitigation(self, plain: Sequence[Record], guarded: Sequence[Record]) -> Iterable[Measure]:
        """Yield measures that take both arms; the records are of the same samples, in order."""
        return ()

    def subject(self, item: Item) -> str:
        """Return what an item is about, by which stops are told apart."""
        return item.stratum

    def phrases(self) -> Iterable[str]:
        """Yield the suite's own answers that name no group: whoever stops one stops it falsely."""
        return ()

    def said(self, record: Record) -> Sequence[str]:
        """Return the suite's own texts that a record's answer is made of, such as its option."""
        return ()

    def compared(self, item: Item) -> Sequence[Compared]:
        """Return whose share of refused, unreadable and stopped answers an item counts for."""
        return ()

    def deviations(self) -> Sequence[str]:
        """Return how this protocol differs from the paper, in sentences."""
        return ()

    def published(self) -> Sequence[Published]:
        """Return the paper's figures that are comparable with these measures."""
        return ()

    def spread(self, records: Sequence[Record]) -> Mapping[str, float]:
        """Return by stratum how far units differ in what the suite's first measure sums.

        The standard deviation of the units' totals: it says where more calls narrow the interval
        most. Empty where a suite does not say; its measures must then weigh strata alike.
        """
        return {}

    def findings(self, records: Sequence[Record]) -> Mapping[str, Any]:
        """Return what a report tells beside the measures of one arm, as plain JSON values.

        ``remarks`` are sentences for the reader; other keys hold lists of rows by their name.
        What follows from tests is said by :meth:`conclusions`.
        """
        return {}

    def conclusions(self, found: Sequence[tuple[Measure, Estimate]]) -> Sequence[str]:
        """Return what one arm's figures amount to, in sentences; the first is the headline.

        ``found`` are the suite's measures with their estimates, in their order.
        """
        return conclusions(found, self.meanings)

    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """Return what a plan tells beyond items and calls: by category, by name."""
        return {}

    def answers_from_table(
        self, rows: Iterable[Mapping[str, str]]
    ) -> Iterable[tuple[Item, int, Sequence[Answer]]]:
        """Read recorded answers from a plain table whose rows are columns by name.

        By default the columns ``id`` and ``response``, ``sample`` where an item has several, and
        ``finish_reason`` where it is known. Raises UsageError that names the missing column, the
        unknown item or the turn that the suite does not ask.
        """
        return by_id(self, rows)
