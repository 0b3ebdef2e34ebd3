"""Error rates and coverage of an audit for fair models, by simulation.

``python -m tests.suites.calibration`` simulates, for each suite and size of audit, models that
ignore the group and answer

- independently each time,
- alike within a unit (the variants of one sentence, the wordings of one draw, the identities of one
  scene and descriptor type, the stories of one cast in a place), as temperature 0 does, or
- alike within a template (a sentence, a draw of words or an object, a scene, a place, whom a prompt
  is about),

for SAI/ASA and MIST also models with separate rates for every word that stands for a group, for HBB
models with a rate for every question, also at temperature 0, where all answers to it are equal, and
for BADF models whose concepts depend on who is named first, that have a few concepts for each name,
or that have separate rates for every name and concept. It counts the audits in which any test is
significant (q < .05) and, by the level of the axis, the intervals that contain the true value. It
also plants a bias of a stated size and counts the audits that find it. The table goes to
``benchmarks/calibration.md``. Audits have one arm, except for open text, which has a guard that
stops at random.

The simulations draw outcomes, not texts: no model is called. Each row is stored when it is done, so
that an interrupted command resumes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from guard.audit import mitigation, silence
from guard.audit.outcomes import Records
from guard.audit.sample import stratified_sample
from guard.core import Guard
from guard.results.intervals import LEAST_CLUSTERS
from guard.results.jackknife import Jackknife, Line, NoInterval, estimate, key_of
from guard.suites import AsksOtherModels, Item, Measure, Options, Outcome, Record, Suite
from guard.suites.badf import Badf
from guard.suites.badf import findings as badf_findings
from guard.suites.badf.documents import ArmDocuments
from guard.suites.badf.suite import BadfOptions
from guard.suites.hbb.base import HbbSuite
from guard.suites.hbb.instances import Counts, Instances
from guard.suites.hbb.measures import instance_measures as hbb_measures
from guard.suites.hbb.suite import QUICK_REPEATS, Hbb, HbbSg, McqOptions, SgOptions
from guard.suites.mist import Mist
from guard.suites.mist import scores as mist
from guard.suites.open_text import OpenText
from guard.suites.optional import part_of
from guard.suites.sai_asa import SaiAsa
from guard.suites.sai_asa.suite import measures_of as sai_asa_measures

KINDS = (
    "independent", "unit", "template", "position", "name", "names' rates", "word", "question",
    "temperature 0",
)  # fmt: skip
KINDS_OF = {
    "badf": KINDS[:6],
    "open_text": ("independent", "template"),
    "hbb": (*KINDS[:3], *KINDS[7:]),
    **dict.fromkeys(("sai_asa", "mist"), (*KINDS[:3], "word")),
}
"""How answers are alike, by suite; the first three by default. To a prompt of open text there is
one answer."""
RUNS = 400
FEWER = {"badf": 4, "sai_asa": 2, "mist": 2, "hbb": 4}
"""The factor by which a suite has fewer audits a row, because each takes seconds."""
PLANTED_RUNS, SMALL_RUNS = 40, 100
MOST = 7
"""The largest tolerated percentage of audits of fair models with a significant test: 5 and twice
its standard error."""
COVERED = (92, 98)
"""The tolerated percentages of 95 % intervals that contain the true value."""
SIZES: dict[str, tuple[int | None, ...]] = {
    "sai_asa": (None, 600),
    "mist": (None, 600),
    "hbb": (None, 1000),
    "hbb_sg": (None,),
    "badf": (None, 2000),
    "open_text": (None, 60),
}
SMALL: dict[str, tuple[int, ...]] = {
    "sai_asa": (300,),
    "mist": (300,),
    "hbb": (150, 300),
    "hbb_exact": (200,),
    "hbb_sg": (300,),
    "badf": (300,),
    "open_text": (300,),
}
"""What ``--quick`` and the docs' samples ask, except 600, which is in :data:`SIZES`; of these rows
only the tests are simulated. ``--quick`` asks 300 items, of HBB 150, each four times and not ten.
``hbb_exact`` is HBB with log-probabilities: 200 items are 400 calls."""
NOTHING = {"hbb": ("corrected",), "badf": ("difference",)}
"""Measures without a test that are 0 if the identity has no effect, by suite."""
AT_LEAST = ("badf", "open_text", "sai_asa", "mist", "hbb", "hbb_sg")
"""Suites whose intervals cover 95 % or more by design: of selected results, exact and
one-sided ones, and those over words, wider than necessary where the words do not matter."""
WHERE = Path(__file__).parents[2] / "benchmarks" / "calibration.md"
Rng = np.random.Generator


def alike(keys: Sequence[str], rng: Rng, draw: Callable[[int], NDArray[np.float64]]):
    """Return a draw for each item that is the same where the keys are."""
    _, place = np.unique(np.array(keys), return_inverse=True)
    return draw(int(place.max()) + 1)[place.reshape(-1)]


@cache
def items_of(suite: str, size: int | None) -> list[Item]:
    return stratified_sample(made(suite).items(), size, 17)


def has_test(measure: Measure) -> bool:
    """Return whether an audit tests a measure, or its suite does."""
    interval = measure.interval
    own = interval.p is not None if isinstance(interval, Jackknife) else False
    if isinstance(interval, NoInterval):
        own = not math.isnan(interval.p)
    return measure.null is not None or own


@cache
def made(suite: str) -> Suite:
    if suite == "sai_asa":
        return SaiAsa(Options())
    if suite == "mist":
        return Mist(Options())
    if suite == "badf":
        return Badf(BadfOptions())
    if suite == "open_text":
        return OpenText(Options())
    if suite == "hbb_sg":
        return HbbSg(SgOptions())
    return Hbb(McqOptions(probabilities="logprobs" if suite == "hbb_exact" else "sample"))


def sai_asa(items: Sequence[Item], kind: str, rng: Rng, effect: float) -> Iterator[Measure]:
    """Choices at rates of .3, .2 and .5; ``effect`` is moved from the other pole to the given."""
    keys = {"independent": [i.id for i in items], "unit": [i.unit for i in items]}
    same = keys.get(kind, [i.cluster for i in items])
    u = alike(same, rng, lambda n: rng.random(n))
    given = np.array([1.0 if i.data["given"] == "positive" else -1.0 for i in items])
    low, high = 0.3 - effect / 2 * given, 0.5 - effect / 2 * given
    if kind == "word":
        u, words = rng.random(len(items)), [i.words[0] for i in items]
        low = alike(words, rng, lambda n: rng.beta(6, 14, n))
        high = low + (1 - low) * alike(words, rng, lambda n: rng.beta(4, 10, n))
        low, high = low - effect / 2 * given, high - effect / 2 * given
    choices = (u >= low).astype(np.int64) + (u >= high)
    yield from sai_asa_measures(items, choices)


def mist_(items: Sequence[Item], kind: str, rng: Rng, effect: float) -> Iterator[Measure]:
    """Words dealt by a coin, one answer in ten degenerate; kinds at rates of .4, .4 and .2."""
    wabt = [i for i in items if i.data["task"] == "WABT"]
    keys = {"independent": [i.id for i in wabt], "template": [i.cluster for i in wabt]}
    same = keys.get(kind, [f"{i.cluster} {i.data['dimension']}" for i in wabt])
    good = alike(same, rng, lambda n: rng.binomial(5, 0.5 + effect / 2, n).astype(float))
    bad = alike(same, rng, lambda n: rng.binomial(5, 0.5 - effect / 2, n).astype(float))
    if kind == "word":  # good words are drawn to some identifiers, bad words to the others
        names, places = np.unique([i.words for i in wabt], return_inverse=True)
        pull = rng.normal(0, 0.1, len(names))[places.reshape(-1, 2)]
        rates = np.clip(0.5 + effect / 2 + pull[:, 0] - pull[:, 1], 0.02, 0.98)
        good, bad = (rng.binomial(5, of).astype(float) for of in (rates, 1 - rates))
    sa = good + bad
    with np.errstate(invalid="ignore", divide="ignore"):
        scores = np.where((sa > 0) & (sa < 10), good / sa + (5 - bad) / (10 - sa) - 1, np.nan)
    one_sided = alike(same, rng, lambda n: rng.random(n)) < 0.1
    groups = [pair[1] for pair in made("mist")._words["pairs"]]  # type: ignore[union-attr]
    yield from mist.wabt_measures(wabt, np.where(one_sided, np.nan, scores), groups)
    aat = [i for i in items if i.data["task"] == "AAT"]
    keys = {"independent": [i.id for i in aat], "template": [i.cluster for i in aat]}
    same = keys.get(kind, [i.data["draw"] for i in aat])
    u = alike(same, rng, lambda n: rng.random(n))
    side = np.array([1.0 if i.data["side"] == "Sa" else -1.0 for i in aat])
    comedy, comic_or_tragic = 0.4 + effect / 2 * side, 0.8
    if kind == "word":
        u, words = rng.random(len(aat)), [i.words[0] for i in aat]
        comedy = alike(words, rng, lambda n: rng.beta(8, 12, n))
        comic_or_tragic = comedy + (1 - comedy) * alike(words, rng, lambda n: rng.beta(8, 4, n))
        comedy = comedy + effect / 2 * side
    kinds = (u >= comedy).astype(np.int64) + (u >= comic_or_tragic)
    names = [g["name"] for g in made("mist")._words["groups"]]  # type: ignore[union-attr]
    yield from mist.aat_measures(aat, kinds, names)


def hbb(items: Sequence[Item], kind: str, rng: Rng, effect: float) -> Iterator[Measure]:
    """Rates of option 1 that the identity does not move; 3 % of answers are lost at random."""
    suite = made("hbb")
    assert isinstance(suite, HbbSuite)
    keys = {"unit": [i.unit for i in items], "template": [i.cluster for i in items]}
    rates = np.full(len(items), 0.5)
    if kind in keys:
        rates = alike(keys[kind], rng, lambda n: rng.beta(1, 1, n))
    if kind in ("question", "temperature 0"):
        scene = alike(keys["template"], rng, lambda n: rng.uniform(0.2, 0.8, n))
        rates = scene + rng.uniform(-0.15, 0.15, len(items))
        rates = (rates > 0.5).astype(float) if kind == "temperature 0" else rates
    rates = moved(rates, items, rng, effect)
    each = repeats_of("hbb", len(items)) // 2
    valid = rng.binomial(each, 0.97, size=(len(items), 2)).astype(np.int64)
    chosen = rng.binomial(valid, rates[:, None]).astype(float)
    yield from of_hbb(suite, items, valid, chosen, exact=False)


def repeats_of(suite: str, size: int | None) -> int:
    """Return how many samples an item of a suite in :data:`SILENT` has."""
    return QUICK_REPEATS if suite == "hbb" and size == SMALL["hbb"][0] else SILENT[suite]


def hbb_sg(items: Sequence[Item], kind: str, rng: Rng, effect: float) -> Iterator[Measure]:
    """Exact shares: a scene's own, moved by each wording at random where they are independent."""
    suite = made("hbb_sg")
    assert isinstance(suite, HbbSuite)
    shares = alike([i.cluster for i in items], rng, lambda n: rng.beta(8, 8, n))
    if kind == "unit":
        shares = alike([i.unit for i in items], rng, lambda n: rng.beta(8, 8, n))
    if kind == "independent":
        shares = np.clip(shares + rng.normal(0, 0.1, len(items)), 0, 1)
    shares = moved(shares, items, rng, effect)
    valid = np.ones((len(items), 1), dtype=np.int64)
    yield from of_hbb(suite, items, valid, shares[:, None], exact=True)


def hbb_exact(items: Sequence[Item], kind: str, rng: Rng, effect: float) -> Iterator[Measure]:
    """Logits of option 1 by scene and wording, and noise of each question, whoever is in it.

    Alike within a unit: the noise of a unit is large, that of its questions small. Alike within a
    template: every scene has noise of a size of its own. One order of the options is preferred.
    """
    suite = made("hbb_exact")
    assert isinstance(suite, HbbSuite)
    scenes, units = [i.cluster for i in items], [i.unit for i in items]
    logit = alike(scenes, rng, lambda n: rng.normal(0, 1.5, n))
    logit += alike([i.stratum for i in items], rng, lambda n: rng.normal(0, 0.7, n))
    noise = rng.normal(0, 0.5, len(items))
    if kind == "unit":
        noise = noise / 5 + alike(units, rng, lambda n: rng.normal(0, 1, n))
    if kind == "template":
        noise *= alike(scenes, rng, lambda n: rng.lognormal(0, 1, n))
    habit = 0.3
    shares = 1 / (1 + np.exp(-(logit + noise)[:, None] - [habit, -habit]))
    shares += (moved(shares.mean(axis=1), items, rng, effect) - shares.mean(axis=1))[:, None]
    valid = np.ones(shares.shape, dtype=np.int64)
    yield from of_hbb(suite, items, valid, np.clip(shares, 0, 1), exact=True)


def moved(rates: NDArray[np.float64], items: Sequence[Item], rng: Rng, effect: float):
    """Return rates with the first identity moved by ``effect``, each scene in its own direction."""
    if not effect:
        return rates
    sign = alike([i.cluster for i in items], rng, lambda n: rng.choice([-1.0, 1.0], n))
    first = np.array([i.data["identity"] == 0 for i in items])
    return np.clip(rates + np.where(first, sign * effect, 0.0), 0, 1)


def of_hbb(suite: HbbSuite, items: Sequence[Item], valid, chosen, *, exact: bool):
    places = [(suite._pairs[i.cluster], suite._types[i.stratum], i.data["identity"]) for i in items]
    pair, kind, identity = np.array(places).T
    outcomes = np.column_stack([valid.sum(axis=1), np.zeros((len(items), 2), dtype=np.int64)])
    asked = Counts(pair, kind, identity, valid, chosen, outcomes)
    found = Instances(asked, suite.types, threshold=20, exact=exact)
    names = [p.id for p in suite.data.pairs]
    yield from hbb_measures(found, suite.types, names, positions=suite.orders > 1)


CONCEPTS = [f"concept {n}" for n in range(100)]
RATES = 0.8 / np.arange(1, len(CONCEPTS) + 1)
"""Shares of the documents that have each concept: four concepts a document."""
OF_A_NAME, MORE, RARE = 3, 0.3, 60
"""The number of rare concepts that are more frequent for one name, by how much, and of how many
they are: two names of a category may have the same ones."""
MARKED = 20
"""The concept that is planted."""


def concepts(hit: NDArray[np.bool_]) -> list[list[str]]:
    """Return the names of the concepts of each document, of (documents, concepts)."""
    names = [CONCEPTS[n] for n in np.nonzero(hit)[1].tolist()]
    ends = np.cumsum(hit.sum(axis=1)).tolist()
    return [names[a:b] for a, b in zip([0, *ends], ends, strict=False)]


def badf(items: Sequence[Item], kind: str, rng: Rng, effect: float) -> Iterator[Measure]:
    """A hundred concepts at rates of their own; of stories without an identity 5 % are lost."""
    suite = made("badf")
    assert isinstance(suite, Badf)
    yield from badf_measures(suite, items, kind, rng, effect)


def badf_measures(
    suite: Badf, items: Sequence[Item], kind: str, rng: Rng, effect: float = 0.0
) -> list[Measure]:
    """Return the measures of the stories of ``items``, whose phrases are concepts each."""
    places = {
        name: n
        for category in suite._categories.values()
        for n, name in enumerate(
            name for some in category["types"] + category["more"] for name in some.values()
        )
    }

    def rate(key: str) -> NDArray[np.float64]:
        if kind == "template":
            return rng.beta(3 * RATES, 3 * (1 - RATES))
        if kind == "names' rates":
            return rng.beta(30 * RATES, 30 * (1 - RATES))
        if kind == "name":
            own = len(RATES) - 1 - np.arange(OF_A_NAME) - OF_A_NAME * places[key] % RARE
            return RATES + MORE * np.isin(np.arange(len(RATES)), own)
        return RATES

    # A character of an item, then a character of a story: (item, character, story) in order.
    characters = [
        (item, cast.category, who, name)
        for item in items
        for cast in [item.data["cast"]]
        for who, name in zip(cast.identities, cast.descriptors, strict=True)
    ]
    keys, of_key = np.unique(
        [item.data["place"] if kind == "template" else name for item, *_, name in characters],
        return_inverse=True,
    )
    row = np.repeat(np.arange(len(characters)), [item.samples for item, *_ in characters])
    p = np.stack([rate(key) for key in keys.tolist()])[of_key.reshape(-1)[row]]
    if kind == "position":  # two concepts, by who is named first
        first = [
            who == suite._cast(item, sample).identities[0]
            for item, _, who, _ in characters
            for sample in range(item.samples)
        ]
        p[:, :2] = np.where(np.array(first)[:, None], (0.7, 0.1), (0.1, 0.7))
    marked = [who == suite._categories[name]["identities"][0] for _, name, who, _ in characters]
    p[:, MARKED] += effect * np.array(marked)[row]
    u = rng.random((len(characters) if kind == "unit" else len(row), len(RATES)))
    named = iter(concepts((u[row] if kind == "unit" else u) < p))
    records = []
    for item in items:
        lists = {who: list(islice(named, item.samples)) for who in item.data["cast"].identities}
        for sample, lost in enumerate((rng.random(item.samples) < 0.05).tolist()):
            own = {who: some[sample] for who, some in lists.items()}
            read = Outcome("refused") if lost else Outcome("analysed", lists=own)
            records.append(Record(item, sample, read))
    unified = [
        Record(i, 0, Outcome("unified", lists={"concepts": i.data["texts"]}))
        for i in ArmDocuments(records).grouping_items()
    ]
    arm = ArmDocuments([*records, *unified])
    for item in arm.exclusivity_items():
        arm.add_exclusivity(Record(item, 0, Outcome("no")))
    return list(badf_findings.arm_measures(arm))


def open_text(items: Sequence[Item], kind: str, rng: Rng, effect: float) -> Iterator[Measure]:
    """A tenth is biased, a tenth refused; the guard stops 20 % whatever is in it.

    ``effect`` is what it stops more of the biased, and less of the others.
    """
    suite = made("open_text")
    assert isinstance(suite, OpenText)

    def share(mean: float) -> NDArray[np.float64]:
        if kind == "independent":
            return np.full(len(items), mean)
        keys = [i.cluster for i in items]
        return alike(keys, rng, lambda n: rng.beta(3 * mean, 3 * (1 - mean), n))

    control = np.array([i.data["kind"] == "control" for i in items])
    biased = (rng.random(len(items)) < share(0.1)) & ~control
    stops = share(0.2) + np.where(biased, effect, -effect / 5)
    stopped = rng.random(len(items)) < stops
    refused = (rng.random(len(items)) < 0.1) & ~biased
    lengths, kept = rng.lognormal(6, 0.5, len(items)), rng.beta(2, 3, len(items))
    seconds = rng.lognormal(-2, 0.5, len(items))
    plain, guarded = [], []
    for n, item in enumerate(items):
        name = "biased" if biased[n] else "refused" if refused[n] else "unbiased"
        values = {"length": float(lengths[n]), "biased": float(biased[n])}
        plain.append(Record(item, 0, Outcome(name, values)))
        shown = {"kept": 1.0, "stopped": float(stopped[n]), "seconds": float(seconds[n])}
        shown |= {"read": float(name != "refused")}
        if stopped[n]:
            name, shown["kept"], values = "guarded", float(kept[n]), {**values, "biased": 0.0}
        guarded.append(Record(item, 0, Outcome(name, {**values, **shown})))
    yield from suite.measures(plain)
    yield from (replace(m, name=f"{m.name} guarded") for m in suite.measures(guarded))
    yield from part_of(suite, AsksOtherModels).mitigation(plain, guarded)
    records = Records(plain, guarded)
    for m in mitigation.stop_measures(suite, records, suite.sides(plain)):
        if "type" not in m.axis:
            yield m


SIMULATED: dict[str, Callable[..., Iterator[Measure]]] = {
    "sai_asa": sai_asa,
    "mist": mist_,
    "hbb": hbb,
    "hbb_exact": hbb_exact,
    "hbb_sg": hbb_sg,
    "badf": badf,
    "open_text": open_text,
}
PLANTED = {
    "sai_asa": 0.1,
    "mist": 0.1,
    "hbb": 0.15,
    "hbb_exact": 0.7,
    "hbb_sg": 0.05,
    "badf": 0.1,
    "open_text": 0.4,
}
"""What is planted, as a difference of rates; in HBB the first identity of each type is moved, in
BADF one concept of each category's first; of open text more of what is biased is stopped."""
WHAT = {"badf": "one concept more often", "open_text": "biased texts stopped more often"}
LARGE = {"sai_asa": 0.4, "mist": 0.2, "hbb": 0.3, "hbb_sg": 0.2, "badf": 0.3}
"""What is planted in small audits, if it is more."""
SILENT = {"sai_asa": 1, "mist": 1, "hbb": 10, "badf": 2}
"""The suites that compare who is refused, and how many samples an item has. Of log-probabilities
nothing is refused, and of open text nobody is compared."""


def level_of(measure: Measure) -> str:
    """Return the names of a measure's axis."""
    if "identity" in measure.axis:
        return "identity"
    names = [n for n in measure.axis if measure.axis[n] != "all"]
    if measure.axis.get("task"):
        names[names.index("task")] = measure.axis["task"]
    return " x ".join(names) or "all"


@dataclass
class Cell:
    """One suite, size and kind: audits with a significant test, and intervals by level.

    ``nothing`` are the measures whose truth is 0 though they have no test.
    """

    nothing: Sequence[str] = ()
    runs: int = 0
    wrong: int = 0
    values: dict[tuple, list[tuple[float, float, float]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def add(self, lines: Sequence[Line]) -> None:
        self.runs += 1
        self.wrong += any(line.plain.q < 0.05 for line in lines)
        for line in lines:
            e = line.plain
            key = (level_of(line.measure), *key_of(line.measure), line.measure.null)
            if not isinstance(line.measure.interval, NoInterval) and not math.isnan(e.value):
                self.values[key].append((e.value, e.low, e.high))

    def coverage(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Return by level and measure the numbers of intervals and of those with the true value.

        The true value is the known one, or else the mean over all runs. A figure that was the same
        in every run is left out.
        """
        found: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
        for (level, name, _, null), intervals in self.values.items():
            table = np.array(intervals)
            once = len(table) == 1 and name in self.nothing  # shown because it was selected
            if self.runs > 1 and not once and np.ptp(table[:, 0]) < 1e-9:
                continue
            truth = table[:, 0].mean() if null is None else null
            truth = 0.0 if name in self.nothing else truth
            shown = ~np.isnan(table[:, 1])
            within = (table[:, 1] - 1e-9 <= truth) & (truth <= table[:, 2] + 1e-9) & shown
            found[level, name][0] += int(shown.sum())
            found[level, name][1] += int(within.sum())
        return {key: (n, k) for key, (n, k) in found.items() if n}

    def widths(self) -> str:
        """Return the number of intervals, and the geometric mean of their widths."""
        found = np.array(
            [high - low for intervals in self.values.values() for _, low, high in intervals]
        )
        found = found[found > 0]  # nan is not
        return f"{len(found):,} of {np.exp(np.log(found).mean()):.5f}" if len(found) else "none"


@cache
def compared(suite: str, size: int | None, samples: int) -> list[silence.ComparedIdentities]:
    items = [item for item in items_of(suite, size) for _ in range(samples)]
    return silence.compared_identities(items)


def silent(suite: str, size: int | None, kind: str, rng: Rng, effect: float) -> list[Measure]:
    """Return the shares of answers that a model withholds: 3 %, alike as its answers are.

    Of the kind ``word`` it is 3 % for each word of the item.

    If names or words have rates of their own, each is a reason to refuse. ``effect`` is added
    where the item is about the first identity of its comparison.
    """
    items = items_of(suite, size)
    samples = repeats_of(suite, size)
    keys = {"unit": [unit_of(i) for i in items], "template": [i.cluster for i in items]}
    if kind in ("name", "names' rates"):
        characters = [name for item in items for name in item.data["cast"].descriptors]
        of_name = alike(characters, rng, lambda n: rng.beta(0.3, 19.7, n))
        rate = of_name.reshape(len(items), -1).sum(axis=1)
        u = rng.random((len(items), samples))
    elif kind == "word":
        words = [word for item in items for word in item.words]
        of_word = alike(words, rng, lambda n: rng.beta(0.3, 9.7, n))
        place = iter(of_word.tolist())
        rate = np.array([sum(islice(place, len(item.words))) for item in items])
        u = rng.random((len(items), samples))
    elif kind not in keys:
        rate = np.full(len(items), 0.03)
        u = rng.random((len(items), samples))
    else:
        rate = alike(keys[kind], rng, lambda n: rng.beta(0.3, 9.7, n))
        u = np.repeat(alike(keys[kind], rng, lambda n: rng.random(n))[:, None], samples, axis=1)
    hit = (u < (rate + effect * of_first_identity(suite, size))[:, None]).ravel()
    return [m for c in compared(suite, size, samples) for m in c.measures({"refused": hit})]


@cache
def of_first_identity(suite: str, size: int | None):
    return np.array([suite_compared(suite, i) for i in items_of(suite, size)])


def suite_compared(suite: str, item: Item) -> bool:
    """Whether the item is about an identity that :func:`silent` refuses more often."""
    return any(
        one.identity in ("Muslim", "Sb", "Overweight", "negative given", "asian")
        for one in item.comparison_groups
    )


def unit_of(item: Item) -> str:
    """Return the unit that a model at temperature 0 answers alike: the wordings of one question."""
    data = item.data
    return item.unit or f"{data.get('draw', item.id)} {data.get('dimension', '')}"


def simulated(
    suite: str,
    size: int | None,
    kind: str,
    runs: int,
    *,
    effect: float = 0.0,
    refusals: float = 0.0,
    seed: int = 1,
    tests_alone: bool = False,
) -> Cell:
    """Return the results of ``runs`` audits of simulated models.

    With ``tests_alone`` measures without a test are left out.
    """
    items, cell = items_of(suite, size), Cell(NOTHING.get(suite, ()))
    for run in range(runs):
        rng = np.random.default_rng([seed, run, KINDS.index(kind)])
        found = list(SIMULATED[suite](items, kind, rng, effect))
        if suite in SILENT:
            found += silent(suite, size, kind, rng, refusals)
        if tests_alone:
            found = [m for m in found if has_test(m)]
        cell.add(estimate(found))
    return cell


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table to compute: a fair model of a ``kind``, or a planted bias."""

    suite: str
    size: int | None
    kind: str
    effect: float = 0.0
    refusals: float = 0.0
    tests_alone: bool = False

    @property
    def planted(self) -> bool:
        """Whether a bias is planted."""
        return bool(self.effect or self.refusals)

    @property
    def planted_text(self) -> str:
        """What is planted."""
        if self.effect:
            return f"{WHAT.get(self.suite, 'answers moved')} by {self.effect}"
        return f"{100 * self.refusals:.0f} % more refusals of one group"

    def cells(self, runs: int, seed: int) -> list[str]:
        """Simulate ``runs`` audits and return the row's cells."""
        cell = simulated(
            self.suite, self.size, self.kind, runs,
            effect=self.effect, refusals=self.refusals, seed=seed, tests_alone=self.tests_alone,
        )  # fmt: skip
        share = 100 * cell.wrong / cell.runs
        if self.tests_alone:
            return [*self.head, f"{cell.wrong} of {cell.runs}", f"{share:.1f} %"]
        if self.planted:
            return [*self.head, f"{share:.0f} %"]
        significant = within(f"{share:.1f} %", share <= MOST)
        most = 100 if self.suite in AT_LEAST else COVERED[1]
        return [*self.head, significant, covered(cell, most), self.first(seed)]

    @property
    def head(self) -> tuple[str, str, str]:
        """The first three cells, which no other row has."""
        fair = f"fair, {self.kind}" if self.tests_alone else self.kind
        size = "all" if self.size is None else f"{self.size:,}"
        return self.suite, size, self.planted_text if self.planted else fair

    def first(self, seed: int) -> str:
        """Return the number and the width of the intervals of the row's first audit."""
        return simulated(self.suite, self.size, self.kind, 1, seed=seed).widths()


def covered(cell: Cell, most: float = COVERED[1]) -> str:
    """Return the coverage by level, in percent, and of its measure that is furthest from 95."""
    by_level: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    for (level, measure), counts in cell.coverage().items():
        by_level[level][measure] = counts
    levels = []
    for level, parts in by_level.items():
        printed, held = (sum(part) for part in zip(*parts.values(), strict=True))
        share = 100 * held / printed
        level = within(f"{level} {share:.1f}", COVERED[0] <= share <= most)
        measure = max(parts, key=lambda m: abs(parts[m][1] / parts[m][0] - 0.95))
        printed, held = parts[measure]
        # By chance alone a single measure strays beyond its bounds.
        spread = 3 * math.sqrt(COVERED[0] * (100 - COVERED[0]) / printed)
        share = 100 * held / printed
        fine = COVERED[0] - spread <= share <= most + spread
        levels.append(f"{level} ({within(f'{measure} {share:.1f}', fine)})")
    return "; ".join(levels) or "no interval: nothing varies"


def within(text: str, bounds: bool) -> str:
    """Return ``text``, bold where it is out of bounds."""
    return text if bounds else f"**{text}**"


def rows(suites: Sequence[str]) -> Iterator[Row]:
    """Yield the rows of both tables."""
    for suite in suites:
        for size in SIZES[suite]:
            kinds = KINDS_OF.get(suite, KINDS[:3])
            # What a question adds is no noise: ``corrected`` is not 0 then. Small audits have it.
            kinds = kinds[:3] if suite == "hbb" else kinds
            yield from (Row(suite, size, kind) for kind in kinds)
            kind = "independent" if suite in ("hbb_sg", "badf", "open_text") else "unit"
            yield Row(suite, size, kind, effect=PLANTED[suite])
            if suite in SILENT:
                yield Row(suite, size, kind, refusals=0.05)


def small_rows(suites: Sequence[str]) -> Iterator[Row]:
    """Yield the rows of small audits: the tests alone, of fair models and of planted biases."""
    for suite in suites:
        few = (*KINDS[:3], *KINDS[7:])
        kinds = [kind for kind in few if kind in KINDS_OF.get(suite, KINDS[:3])]
        for size in SMALL[suite]:
            yield from (Row(suite, size, kind, tests_alone=True) for kind in kinds)
            effect = LARGE.get(suite, PLANTED[suite])
            yield Row(suite, size, kinds[0], effect=effect, tests_alone=True)
            if suite in SILENT:
                yield Row(suite, size, kinds[0], refusals=0.3, tests_alone=True)


class Done:
    """The stored rows, a line of JSON each, from which an interrupted run resumes.

    Only rows of the same settings and the same code are used.
    """

    def __init__(
        self, path: Path, settings: Mapping[str, int], kind: Callable[..., Hashable] = Row
    ) -> None:
        self._path, self._of = path, {**settings, "code": code()}
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        # A line of a run that was killed may be torn.
        found = [json.loads(line) for line in lines if line.endswith("]}")]
        self._known = {kind(**one["row"]): one["cells"] for one in found if one["of"] == self._of}

    def cells(self, row: Any, make: Callable[[], list[str]]) -> list[str]:
        """Return the row's cells; compute and store them if they are not known."""
        if row not in self._known:
            self._known[row] = make()
            line = json.dumps({"of": self._of, "row": asdict(row), "cells": self._known[row]})
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"\n{line}")
        return self._known[row]


def kept_lines(page: Path, suites: Sequence[str]) -> list[list[str]]:
    """Return the rows of a page's tables, as cells, that are of other suites."""
    lines = page.read_text("utf-8").splitlines() if page.exists() else []
    cells = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    return [row for row in cells if row[0].split()[0] not in suites]


def code() -> str:
    """Return a hash of all that a row depends on: suites, packs, statistics, this module."""
    root = Path(__file__).parents[2]
    folders = [root / "guard" / "suites", root / "guard" / "audit"]
    folders += [root / "benchmarks" / n for n in ("sai_asa", "mist", "hbb", "badf", "open_text")]
    files = [f for folder in folders for f in folder.rglob("*") if f.suffix in _DATA]
    found = hashlib.sha256()
    for file in (*sorted(files), Path(__file__)):
        found.update(file.read_bytes())
    return found.hexdigest()[:16]


_DATA = {".py", ".json", ".jsonl", ".csv", ".toml"}


TEXT = """# Error rates of an audit for fair models

Made by `python -m tests.suites.calibration --seed {seed}` (which describes the simulations);
{runs} audits a row, of `sai_asa` and `mist` half, of `badf` and `hbb` a quarter as many. Figures
out of bounds are **bold**.

*Significant*: audits of a model that ignores the group in which any test has q < .05 (5 % by
design, at most {most} % tolerated).
*Coverage*: the share of all 95 % intervals printed at a level that contain the true value, in
percent ({low} to {high} tolerated), and in brackets that of its measure that is furthest from 95
(tolerated beyond these bounds by three standard errors for that number of intervals). Those of
`badf`, `open_text`, `sai_asa`, `mist`, `hbb` and `hbb_sg` may hold more than {high}: they are exact
(Clopper and Pearson 1934), or of one-sided tests, or wider because only selected results are shown
(Benjamini and Yekutieli 2005), or they are over words, of which some groups have three to five, and
wider than necessary where a model treats all words alike. The true value is
the value without an effect, also of HBB's `corrected`; without such a value it is the mean over
the row's audits.
Figures that never vary are left out, and so are intervals that are not printed: of fewer than
{least} clusters, or of clusters with equal values unless the value is at a bound.
*First audit*: how many intervals the row's first audit printed, and the geometric mean of their
widths; a test recomputes these, so the table belongs to the current code.
A size is the number of items in the sample, `all` is the whole suite.

**What a row can show.** An error rate of 5 % has a standard error of {error:.1f} points over
{runs} audits: a row of {shown:.1f} % may be due to 5 %, and one of {most} % or less does not
prove that the rate is at most {most} %, only that it is hardly above {excluded:.0f} %. The
intervals of an audit are not independent of each other, so coverage may be off by as much.

**This is not the first table.** Seed 20261 was committed whole, with 200 audits a row, and three
cells were out of bounds: a test was significant in 8.0 % of full, independent audits of `hbb`,
and two levels of full audits of `mist`, alike within a template, were covered in 91.8 % (WABT x
group, with and without dimension). After it the intervals of bounded shares, counts and means
became Jeffreys', and HBB's noise and scores compare the threshold in the same way: with lost
answers, fair models had shown an excess of .2 points. Seed 20263, with 200 audits a row, then
was within bounds. Seed 20264 had one row out: a test was significant in 8.0 % of independent
audits of 600 items of `sai_asa`; 1,500 audits of that row under another seed gave 4.1 %. This
table is of seed 20263 again, with {runs} audits a row. It was recomputed because shares of 0 and
1 now have intervals, and `corrected` has one if noise puts its estimate below 0. There was one
run of seed 20263 in this form.

The rows of `badf` were made anew, with fewer audits, when names became the units of its test, and
its small audits have 2,000 items since then: of 300 no concept can be tested. With two to five
names for each identity and stories as the units, a model with a separate rate for every name and
concept had been called biased in 88.0 % of full audits.

The rows of `sai_asa` and `mist` were made anew when their intervals and tests began to cluster by
word (`word`: each word that stands for a group has its own rates). With templates and draws alone
as the clusters, such a model had been called biased in 15 and 20 of 20 full audits, or, by refusals
alone, in 11 and 15. The first run of seed 20263 in this form is shown.

The rows of `hbb_sg` and those of small audits were made anew when tests of fewer than 30 clusters
began to flip signs too. The other rows of `sai_asa` and `mist` were not: no p-value became smaller
and no interval narrower, so *significant* is at most, and coverage at least, what is printed; their
first audits are of the current code, and their power may be less. Before, 6.5 % of independent
audits of 300 items of `sai_asa` had called a fair model biased.

The rows of `hbb` were made anew, with fewer audits, when the question became the unit of its tests.
Its `excess` over sampling noise, which was tested before, had called models biased in 20 of 20
audits of 300 items that have any rate for every question, and in 11 of 20 at temperature 0, where
all answers to a question are equal.

| suite | size | answers alike within | significant | coverage by level | first audit |
| --- | --- | --- | --- | --- | --- |
{fair}

## Power: what is found if there is bias

{planted} audits a row, of `hbb` a quarter as many, answers alike within a unit; the share of audits
with any q < .05. A planted bias moves the rates of answers by the stated difference, in HBB for one
identity of each type.

| suite | size | planted | found |
| --- | --- | --- | --- |
{power}

## Small audits: the sizes of `--quick` and of the docs

The tests alone: {runs} audits a row of fair models (of `badf` and `hbb` a quarter as many),
{small_runs} of planted biases, larger ones than above, with independent answers. At most 5 % of
fair models may be called biased. `hbb` with 150 items is `--quick`: four answers to a question in
place of ten. `hbb_exact` is `hbb` with log-probabilities: 200 questions are 400 calls. There a fair
model has logits by scene and wording, and noise of each question.

| suite | size | model | called biased | share |
| --- | --- | --- | --- | --- |
{small}
"""


STOPS = """
## What the shipped guard stops without a group

The suites' own answers, each judged alone at `balanced`: they name no group, so each stop is false.

| suite | answers | stopped | which, and as what |
| --- | --- | --- | --- |
{rows}
"""


def false_stops() -> str:
    """Return the section on the suites' own answers that the shipped guard stops."""
    guard, rows = Guard(detector="encoder"), []
    for suite in ("sai_asa", "mist", "hbb"):
        texts = list(dict.fromkeys(made(suite).phrases()))
        found = [(t, v) for t, v in zip(texts, guard.check_many(texts), strict=True) if v.biased]
        texts_ = "; ".join(f"{text.rstrip('.')} ({v.bias_type})" for text, v in found)
        rows.append(f"| {suite} | {len(texts):,} | {len(found)} | {texts_} |")
    return STOPS.format(rows="\n".join(rows))


def audits_of(row: Row, given: argparse.Namespace) -> int:
    """Return the number of audits of a row."""
    if row.tests_alone:
        fewer = FEWER[row.suite] if row.suite in ("badf", "hbb") else 1
        return int(given.small if row.planted else given.runs // fewer)
    if row.planted:
        return int(given.planted // 4 if row.suite == "hbb" else given.planted) or 1
    return int(given.runs // FEWER.get(row.suite, 1)) or 1


def excluded(runs: int) -> float:
    """Return the rate, in percent, that shows :data:`MOST` or less in one row of forty."""
    from scipy.stats import binom

    rates = np.arange(MOST, 50, 0.1)
    shown = binom.cdf(math.floor(runs * MOST / 100), runs, rates / 100)
    return float(rates[np.argmax(shown <= 0.025)])


def main(argv: Sequence[str] | None = None) -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=RUNS, help="audits a row at most")
    parser.add_argument("--planted", type=int, default=PLANTED_RUNS, help="audits with a bias")
    parser.add_argument("--small", type=int, default=SMALL_RUNS, help="the same of small audits")
    parser.add_argument("--seed", type=int, default=1, help="of all random draws")
    parser.add_argument(
        "--suite", default=",".join(SMALL), help="the others' rows stay as the page has them"
    )
    parser.add_argument("--out", type=Path, default=WHERE)
    given = parser.parse_args(argv)
    state = given.out.with_suffix(".rows.jsonl")
    done = Done(
        state, {name: getattr(given, name) for name in ("runs", "planted", "small", "seed")}
    )
    chosen = given.suite.split(",")
    every = list(SMALL)
    wanted = [*small_rows(every), *rows([suite for suite in every if suite in SIZES])]
    kept = {tuple(cells[:3]): cells for cells in kept_lines(given.out, chosen)}
    wanted = [row for row in wanted if row.suite in chosen or row.head in kept]
    fair, power, small = [], [], []
    for number, row in enumerate(wanted, start=1):
        begun = time.monotonic()
        if row.suite in chosen:
            cells = done.cells(row, partial(row.cells, audits_of(row, given), given.seed))
        else:
            cells = kept[row.head]
        line = f"| {' | '.join(cells)} |"
        (small if row.tests_alone else power if row.planted else fair).append(line)
        spent = f"{time.monotonic() - begun:.0f} s"
        print(f"{number} of {len(wanted)}, {spent}: {line}", file=sys.stderr, flush=True)
    error = 100 * math.sqrt(0.05 * 0.95 / given.runs)
    text = TEXT.format(
        error=error, shown=5 + 2 * error, excluded=excluded(given.runs),
        runs=given.runs, planted=given.planted, seed=given.seed, least=LEAST_CLUSTERS,
        most=MOST, low=COVERED[0], high=COVERED[1],
        fair="\n".join(fair), power="\n".join(power), small="\n".join(small),
        small_runs=given.small,
    )  # fmt: skip
    given.out.write_text(text + false_stops(), encoding="utf-8")
    state.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
