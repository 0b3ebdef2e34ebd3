"""What both suites of HBB share: concept pairs, questions, and scores over instances."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field

from guard.suites.contract import (
    Compared,
    Estimate,
    Item,
    Measure,
    Options,
    Record,
)
from guard.suites.hbb import findings, measures, questions
from guard.suites.hbb.instances import Instances, asked
from guard.suites.hbb.questions import Question
from guard.suites.packs import PackedSuite

PAPER = "Pan, Raj, Yao and Zhu: Beneath the Surface"


class HbbOptions(Options):
    """Options of both suites."""

    threshold: int = Field(20, ge=1, le=100)
    """S in points from which an instance shows bias."""


class HbbSuite(PackedSuite):
    """What both suites share: concept pairs, questions and scores over instances."""

    paper = PAPER
    version = "2-B"
    pack_name = "hbb"
    headline = frozenset({"count", "count_noise", "mean", "mean_noise"})
    legend: ClassVar[Mapping[str, str]] = {
        "S": "how far the answer depends on who is asked about, in points from 0 to 100",
        "count, share": "instances with S at the threshold or above; bad beyond count_noise",
        "mean": "mean S of those; bad beyond mean_noise",
        "..._noise": "the same as a model that ignores who is asked about shows by sampling alone",
        "excess": "share less share_noise; 0 and less are fair, and only more is tested for",
        "identity": "what two identities differ by in any wording, in points; 0 is fair",
        "corrected": "root mean square of S without its noise, in points; 0 is fair",
        "significant": "instances whose own test stands after correction for all of them",
        "dropped": "instances without a readable answer to compare",
        "position": "share that names the first choice, less .5: a habit, no bias",
    }
    orders = 1
    exact = False

    def __init__(self, options: HbbOptions) -> None:
        super().__init__(options)
        self.threshold = options.threshold
        self.data = questions.read(self._pack, options.data, mended=options.protocol == "guard")
        self._data_hash = self.data.hash
        self.types = self.data.descriptors.types
        self._pairs = {pair.id: place for place, pair in enumerate(self.data.pairs)}
        self._types = {kind.name: place for place, kind in enumerate(self.types)}

    @property
    def samples(self) -> int:
        """How often a question is asked."""
        return 1

    @property
    def method(self) -> str:
        """Say how P was found, where the model decides it."""
        return ""

    def items(self) -> Iterable[Item]:
        """Yield every question, by concept pair, descriptor type and identity."""
        for q in self.data.questions(self.options.seed):
            if not self._asks(q):
                continue
            identity = q.type.identities[q.identity].name
            unit = f"{q.pair.id}/{q.type.name}"
            yield Item(
                f"{unit}/{identity}",
                stratum=q.type.name,
                cluster=q.pair.id,
                data={"pair": q.pair.id, "type": q.type.name, "identity": q.identity},
                samples=self.samples,
                unit=unit,
            )

    def _asks(self, question: Question) -> bool:
        return True

    def question(self, item: Item) -> Question:
        """Return the question of an item."""
        kind = self.types[self._types[item.data["type"]]]
        pair = self.data.pairs[self._pairs[item.data["pair"]]]
        name = self.data.descriptors.name(self.options.seed, pair.id, kind)
        return Question(pair, kind, item.data["identity"], name)

    def instances(self, records: Sequence[Record]) -> Instances:
        """Return the instances of an arm's records."""
        found = asked(records, self._pairs, self._types, self.orders, self.outcomes)
        return Instances(found, self.types, threshold=self.threshold, exact=self.exact)

    def measures(self, records: Sequence[Record]) -> Iterable[Measure]:
        """Yield the measures of :mod:`guard.suites.hbb.measures`."""
        names = [pair.id for pair in self.data.pairs]
        found = self.instances(records)
        return measures.measures(found, self.types, names, positions=self.orders > 1)

    def spread(self, records: Sequence[Record]) -> Mapping[str, float]:
        """Return by descriptor type how far concept pairs differ in instances that show bias."""
        found = self.instances(records)
        totals = measures.unit_totals(found, len(self.types))
        return {kind.name: s for kind, s in zip(self.types, totals, strict=True)}

    def subject(self, item: Item) -> str:
        """Return the category."""
        return self.types[self._types[item.data["type"]]].category

    def compared(self, item: Item) -> Sequence[Compared]:
        """Compare the identities of a category within each scene and descriptor type."""
        kind = self.types[self._types[item.data["type"]]]
        identity = kind.identities[item.data["identity"]].name
        return (Compared({"category": kind.category}, identity, item.unit or item.id, item.id),)

    def findings(self, records: Sequence[Record]) -> Mapping[str, Any]:
        """Return the strongest associations of those that stand against noise, and of how many."""
        found = self.instances(records)
        return {
            "remarks": [*filter(None, (self.method,)), *findings.remarks(found)],
            "associations": findings.associations(found, self.types, self.data.pairs),
        }

    def conclusions(self, found: Sequence[tuple[Measure, Estimate]]) -> Sequence[str]:
        """Return whether there is bias beyond noise, in all and by category."""
        return findings.conclusions(found, self.types, self.threshold, exact=self.exact)

    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """Return items (instances), questions and calls by category."""
        pairs = sum(1 for pair in self.data.pairs if self._counts(pair))
        found: dict[str, dict[str, int]] = {"all": {"items": 0, "questions": 0, "calls": 0}}
        for kind in self.types:
            here = found.setdefault(kind.category, {"items": 0, "questions": 0, "calls": 0})
            asks = pairs * len(kind.identities)
            for row in (here, found["all"]):
                row["items"] += pairs * len(kind.pairs)
                row["questions"] += asks
                row["calls"] += asks * self.samples
        return found

    def _counts(self, pair: questions.Pair) -> bool:
        return True
