"""What only some suites do: base classes beside :class:`guard.suites.contract.Suite`.

A suite takes those that it needs, such as ``class Stories(AsksOtherModels, Suite)``. The audit
reads them by :func:`part_of`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from guard.results.conclusions import bias_conclusions
from guard.results.estimate import Estimate
from guard.results.measure import Measure
from guard.suites.contract import About, Capability, Item, Record, Suite
from guard.suites.requests import Role

P = TypeVar("P")
S = TypeVar("S")


def part_of(suite: Suite, part: type[P]) -> P:
    """Return ``suite`` as this optional part, or the part's defaults for a suite without it."""
    return suite if isinstance(suite, part) else part()


class AsksOtherModels:
    """A suite with requests that other models than the audited one answer."""

    roles: ClassVar[frozenset[Role]] = frozenset()
    """Who answers requests besides the audited model.

    If that is a scorer alone, the scorer also judges what users of the guarded arm saw. Those
    outcomes have further values: ``kept`` (the share of the model's characters that were sent),
    ``stopped``, ``seconds`` (guard's time) and ``read`` (whether the plain answer has a readable
    outcome).
    """
    faults: ClassVar[tuple[str, ...]] = ()
    """Names of further outcomes, of readings that failed: counted separately and not scored."""

    def follow_up_items(self, records: Sequence[Record]) -> Iterable[Item]:
        """Yield the items that depend on all ``records`` of the plain arm.

        Their requests follow once every other item has an outcome, and go to other models than the
        audited one. Their records are added to ``records``, and may lead to further items. No count
        of outcomes includes them.
        """
        return ()

    def mitigation(self, plain: Sequence[Record], guarded: Sequence[Record]) -> Iterable[Measure]:
        """Yield measures that need both arms, whose records are of the same samples, in order."""
        return ()


def has_follow_ups(suite: Suite) -> bool:
    """Return whether items of a suite may follow from the answers to the others."""
    own = getattr(type(suite), "follow_up_items", AsksOtherModels.follow_up_items)
    return own is not AsksOtherModels.follow_up_items


class AdaptsRequests:
    """A suite whose requests depend on what a model can do, or on how many there may be."""

    @property
    def uses(self) -> frozenset[Capability]:
        """Optional capabilities, used where the model has them."""
        return frozenset()

    def for_capabilities(self: S, has: frozenset[Capability]) -> S:
        """Return the suite for a model that ``has`` these capabilities; its options say which."""
        return self

    def for_quick_run(self: S) -> S:
        """Return the suite for a quick run: it may ask more items, each less often."""
        return self

    def spread(self, records: Sequence[Record]) -> Mapping[str, float]:
        """Return by stratum the standard deviation of the units' sums in the first measure.

        It says where more calls narrow the interval most. Empty if unknown; otherwise the measures
        must weigh strata equally.
        """
        return {}


def has_spread(suite: Suite) -> bool:
    """Return whether a suite says in which strata more calls narrow the interval most."""
    return getattr(type(suite), "spread", AdaptsRequests.spread) is not AdaptsRequests.spread


class ExplainsResults:
    """A suite that shows more than its measures, or says what they show in its own words."""

    about: ClassVar[About]

    def conclusions(self, figures: Sequence[tuple[Measure, Estimate]]) -> Sequence[str]:
        """Return the results of one arm in sentences; the first is the headline.

        ``figures`` are the suite's measures with their estimates, in order.
        """
        return bias_conclusions(figures, self.about.meanings)

    def findings(self, records: Sequence[Record]) -> Mapping[str, Any]:
        """Return what a report shows besides the measures of one arm, as JSON values.

        ``remarks`` are sentences; other keys are titles of tables, with lists of rows.
        """
        return {}

    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """Return what a plan shows besides items and calls: counts by category, then name."""
        return {}

    def answer_texts(self, record: Record) -> Sequence[str]:
        """Return the suite's own texts in a record's answer, such as the chosen option."""
        return ()
