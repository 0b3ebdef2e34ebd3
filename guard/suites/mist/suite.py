"""The suite: instances of both tasks, their requests, and how answers are read."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from guard.results.chart import Chart
from guard.results.figures import SuiteFigures
from guard.results.measure import Measure
from guard.suites import (
    About,
    Answer,
    AnswerLean,
    Chat,
    ComparisonGroup,
    ExplainsResults,
    Item,
    MeasureText,
    Options,
    Outcome,
    Record,
    Request,
)
from guard.suites.mist import scores
from guard.suites.mist.answers import assignment, count_sides, kind_of
from guard.suites.mist.build import AatInstance, WabtInstance, aat_instances, wabt_instances
from guard.suites.mist.charts import mist_charts
from guard.suites.packs import PackedSuite
from guard.suites.refusal import is_refusal, unread_outcome

_NOTHING = "…"
"""Replaces an empty description: providers refuse empty messages."""


class Mist(ExplainsResults, PackedSuite):
    """Word association (WABT) and affective attribution (AAT).

    The protocol ``guard`` shuffles the two identifiers and the ten words of each instance. The
    paper puts the advantaged identifier and the positive words first, so that answering in order
    looks like bias.
    """

    name = "mist"
    about = About(
        title="MIST: word association (WABT) and affective attribution (AAT)",
        paper="Li, Liu, Liu, Wei, Hu: MIST: Towards Multi-dimensional Implicit Bias and Stereotype "
        "Evaluation of LLMs via Theory of Mind",
        judged="each answer as a user gets it: the words with their groups, or the description and "
        "then its kind",
        measures={
            "mean": MeasureText(
                "WABT score from -1 to 1; 0 is fair, 1 gives the advantaged group all good words",
                above="good words go to the advantaged group, bad ones to the other",
                below="good words go to the disadvantaged group, bad ones to the other",
                headline=True,
            ),
            "sd, t": MeasureText(
                "its standard deviation, and the paper's t, which assumes independent answers"
            ),
            "degenerate": MeasureText(
                "share of answers that give one side no word; they have no score"
            ),
            "FAR, UAR": MeasureText(
                "comedy of advantaged, tragedy of disadvantaged groups; both mix mood and bias",
                headline=True,
            ),
            "tragedy_difference": MeasureText(
                "tragedy of the disadvantaged less that of the advantaged; 0 is fair",
                above="more tragedy for disadvantaged groups",
                below="more tragedy for advantaged groups",
                headline=True,
            ),
            "comedy_difference": MeasureText(
                "comedy of the advantaged less that of the disadvantaged; 0 is fair",
                above="more comedy for advantaged groups",
                below="more comedy for disadvantaged groups",
                headline=True,
            ),
        },
    )
    version = "2-B"
    parser_version = "3"
    outcomes = ("scored", "degenerate", *scores.KINDS)
    takes_no_data = "its instances follow from the paper's word lists"
    published_by = ("task", "dimension", "side")

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._words: dict[str, Any] = self._json("words.json")
        self._advantaged = {group: advantaged for advantaged, group in self._words["pairs"]}

    def items(self) -> Iterator[Item]:
        """Yield the 4,500 instances of WABT, then the 1,500 of AAT."""
        for association in wabt_instances(self._words, seed=self.options.seed):
            yield self._wabt_item(association)
        yield from map(_aat_item, aat_instances(self._words, seed=self.options.seed))

    def _wabt_item(self, instance: WabtInstance) -> Item:
        """Return an item that compares the groups of either side.

        Its question names a word of both sides, and a model may decline because of either.
        """
        sa, sb = instance.sa, instance.sb
        sides, words = [sa, sb], [*instance.positive, *instance.negative]
        if self.options.protocol == "guard":
            chance = random.Random(f"{self.options.seed}/{instance.id}/order")
            chance.shuffle(sides)
            chance.shuffle(words)
        return Item(
            instance.id,
            stratum=f"WABT {instance.dimension} {instance.group}",
            cluster=instance.draw,
            words=(sa, sb),
            data={
                "task": "WABT",
                **instance._asdict(),
                "shown_sides": tuple(sides),
                "shown_words": tuple(words),
            },
            subject=instance.dimension,
            comparison_groups=(
                ComparisonGroup(
                    {"task": "WABT", "by": "advantaged"},
                    self._advantaged[instance.group],
                    "",
                    sa,
                    any_size=True,
                    crossed=(sb,),
                ),
                ComparisonGroup(
                    {"task": "WABT", "by": "disadvantaged"},
                    instance.group,
                    "",
                    sb,
                    any_size=True,
                    crossed=(sa,),
                ),
            ),
        )

    def request(self, item: Item, sample: int, answers: Sequence[Answer]) -> Request | None:
        """Ask for the words' identifiers, or in AAT for a description, then for its kind."""
        data, protocol = item.data, self._pack.protocol
        if data["task"] == "WABT":
            if answers:
                return None
            first, second = data["shown_sides"]
            prompt = protocol["wabt"]["templates"][data["template"]].format(
                first=first, second=second, words=", ".join(data["shown_words"])
            )
            return self._chat({"role": "user", "content": prompt})
        if len(answers) > 1:
            return None
        question = protocol["aat"]["questions"][data["template"]].format(
            identifier=data["identifier"], object=data["object"]
        )
        description = {"role": "user", "content": question}
        if not answers:
            return self._chat(description)
        return self._chat(
            description,
            {"role": "assistant", "content": answers[0].text.strip() or _NOTHING},
            {"role": "user", "content": protocol["aat"]["choices"][data["template"]]},
        )

    def _chat(self, *messages: Mapping[str, str]) -> Chat:
        return Chat(messages, self._settings())

    def outcome(self, item: Item, sample: int, answers: Sequence[Answer]) -> Outcome:
        """Read the last answer: the ten words' identifiers, or the kind of the description."""
        data = item.data
        needed = 1 if data["task"] == "WABT" else 2
        text = answers[-1].text if len(answers) >= needed else ""
        if data["task"] == "AAT":
            return _attributed_outcome(text)
        words = (*data["positive"], *data["negative"])
        sides = assignment(text, sa=data["sa"], sb=data["sb"], words=words)
        if sides is None:
            return unread_outcome(text)
        counts = count_sides(sides, len(data["positive"]))
        values = dict(zip(words, map(float, sides), strict=True))
        values |= {name: float(count) for name, count in counts._asdict().items()}
        if counts.score is None:
            return Outcome("degenerate", values)
        return Outcome("scored", {**values, "score": counts.score})

    def measures(self, records: Sequence[Record]) -> Iterator[Measure]:
        """Yield the measures of WABT, then of AAT."""
        by_task: dict[str, list[Record]] = {"WABT": [], "AAT": []}
        for record in records:
            by_task[record.item.data["task"]].append(record)
        yield from scores.wabt(by_task["WABT"], [pair[1] for pair in self._words["pairs"]])
        yield from scores.aat(by_task["AAT"], [group["name"] for group in self._words["groups"]])

    def sides(self, records: Sequence[Record]) -> Sequence[AnswerLean | None]:
        """Return ``biased`` for a score above 0.

        Answers of AAT have no side: "comedy" names no group, and the description may be long, so a
        stop says nothing about the choice.
        """
        return [
            None
            if r.outcome.name not in ("scored", "degenerate")
            else "biased"
            if r.outcome.values.get("score", 0.0) > 0
            else "other"
            for r in records
        ]

    def phrases(self) -> Iterator[str]:
        """Yield the words to assign."""
        for listed in self._words["attributes"].values():
            yield from (*listed["positive"], *listed["negative"])

    def answer_texts(self, record: Record) -> Sequence[str]:
        """Return each word with the group that it was assigned to."""
        data, values = record.item.data, record.outcome.values
        if record.outcome.name not in ("scored", "degenerate"):
            return ()
        groups = (self._advantaged[data["group"]], data["group"])
        words = (*data["positive"], *data["negative"])
        return [f"{word}: {groups[int(values[word])]}" for word in words]

    def charts(self, figures: SuiteFigures) -> Iterable[Chart]:
        """Yield WABT as radars, and the answers of AAT."""
        return mist_charts(figures)

    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """Return the instances by task, and those of WABT by group."""
        seed = self.options.seed
        by_group = Counter(instance.group for instance in wabt_instances(self._words, seed=seed))
        aat = sum(1 for _ in aat_instances(self._words, seed=seed))
        return {"task": {"WABT": by_group.total(), "AAT": aat}, "WABT": by_group}


def _aat_item(instance: AatInstance) -> Item:
    """Return an item that compares sides and groups, by identifiers."""
    name = instance.identifier
    return Item(
        instance.id,
        stratum=f"AAT {instance.side}",
        # Comedy and tragedy depend on the object above all: a model that ignores the identifier may
        # answer all draws of one object alike.
        cluster=f"AAT-{instance.object}",
        words=(name,),
        data={"task": "AAT", **instance._asdict()},
        subject="AAT",
        comparison_groups=(
            ComparisonGroup({"task": "AAT", "by": "side"}, instance.side, "", name, any_size=True),
            ComparisonGroup(
                {"task": "AAT", "by": "group"}, instance.group, "", name, any_size=True
            ),
        ),
    )


def _attributed_outcome(text: str) -> Outcome:
    kind = kind_of(text)
    if kind in {"comedy", "tragedy"}:
        return Outcome(kind)
    # A refusal is not neutrality: counted as such it would lower both rates.
    if is_refusal(text):
        return Outcome("refused")
    return Outcome(kind or "invalid")
