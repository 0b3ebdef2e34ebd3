"""Planted truths: audits of models whose behaviour is known, beside what their reports say.

``python -m tests.suites.planted`` audits, for each suite, models that

- ignore the group (``fair``),
- treat one group in a way of their own (``biased``),
- ignore the group and decline half of what is asked about one of them, of open text all
  (``refusing``),

at the size of ``--quick`` and at another that the docs use, several times with other answers. The
table goes to ``benchmarks/planted.md``: how often a report calls the model biased, how often it
says that answers are withheld unequally, and the headline of the first report. HBB is asked twice,
with sampled answers and with exact log-probabilities. The models answer in this process; the rest
is the audit as it runs. Each row is stored when it is done, so that an interrupted command resumes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import re
import sys
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from guard.audit.audit import Audit
from guard.audit.calls import Piece, Reply, Slot
from guard.audit.files import RUN_FILE
from guard.audit.models import Model
from guard.audit.others import CombinedModel, Other
from guard.audit.runner import Settings
from guard.audit.score import SuiteResult
from guard.audit.sending import Sending
from guard.results.conclusions import ALPHA
from guard.suites import AsksOtherModels, Chat, Item, Judge, Request, Suite, TextScore
from guard.suites.badf import Badf
from guard.suites.badf.suite import BadfOptions
from guard.suites.contract import Options
from guard.suites.hbb.base import HbbSuite
from guard.suites.hbb.suite import Hbb, HbbSg, McqOptions, SgOptions
from guard.suites.mist import Mist
from guard.suites.open_text import OpenText
from guard.suites.optional import part_of
from guard.suites.sai_asa import SaiAsa
from guard.suites.sai_asa.rows import CHOICES
from tests.in_process import InProcess
from tests.suites.calibration import Done, kept_lines

WHERE = Path(__file__).parents[2] / "benchmarks" / "planted.md"
RUNS = 20
TRUTHS = ("fair", "biased", "refusing")
DECLINES = "I'm sorry, but I can't help with that."
DECLINED = {"open_text": 1.0}
"""The share of what is asked about the group that a refusing model declines, if not half: a sample
of open text has few prompts about one group."""
RUNNER = Settings(concurrency=8)


class Planted(InProcess):
    """A model in this process that answers a suite's requests as ``truth`` says.

    The same ``seed`` gives the same answers. It also plays the analyst, the embedder and the scorer
    of the suites that ask one: these do not make mistakes.
    """

    name = "planted"

    def __init__(self, suite: Suite, truth: str, seed: int) -> None:
        self.suite, self.truth, self.seed = suite, truth, seed
        self.items = {item.id: item for item in suite.items()}
        self.group = GROUPS[suite.name]

    async def ask(self, request: Request, key: str, slot: Slot) -> Reply:
        if request.by != "model":
            return _text(_help(request))
        item = self.items[slot.item]
        chance = random.Random(f"{self.seed}/{slot.item}/{slot.sample}/{slot.turn}")
        in_group = self.group(self.suite, item)
        if (
            self.truth == "refusing"
            and in_group
            and chance.random() < DECLINED.get(self.suite.name, 0.5)
        ):
            return _text(DECLINES) if isinstance(request, Chat) else Reply()
        biased = self.truth == "biased" and (in_group or self.suite.name in EVERYWHERE)
        return ANSWERS[self.suite.name](self, item, request, slot, chance, biased)


def _text(text: str, **more: Any) -> Reply:
    return Reply((Piece(text),) if text else (), **more)


GROUP = "asian"
"""BADF's group."""
GROUPS: Mapping[str, Callable[[Suite, Item], bool]] = {
    "sai_asa": lambda suite, item: item.data["pronoun"] == "feminine",
    "mist": lambda suite, item: item.data["group"] == "Old",
    "hbb": lambda suite, item: _identity(suite, item) == "Muslim",
    "hbb_sg": lambda suite, item: _identity(suite, item) == "Muslim",
    "badf": lambda suite, item: GROUP in item.data["cast"].identities,
    "open_text": lambda suite, item: item.data["group"] == "Muslims",
}
"""Whom a refusing model declines, and whom a biased one treats in a way of its own, except where
bias is none of one group: in sai_asa, mist and open_text it is everywhere."""
EVERYWHERE = ("sai_asa", "mist", "open_text")


def _identity(suite: Suite, item: Item) -> str:
    assert isinstance(suite, HbbSuite)
    question = suite.question(item)
    return question.type.identities[question.identity].name


# What the model answers.


def _sai_asa(
    model: Planted, item: Item, request: Any, slot: Slot, chance: Any, biased: bool
) -> Reply:
    """Choices at rates of .3, .2 and .5; a third of a biased model's have the given polarity."""
    choice = chance.choices(CHOICES, (0.3, 0.2, 0.5))[0]
    if biased and chance.random() < 1 / 3:
        choice = item.data["given"]
    return _text(str(item.data[choice]).capitalize() + ".")


def _mist(model: Planted, item: Item, request: Any, slot: Slot, chance: Any, biased: bool) -> Reply:
    """Words go to either side; a biased model gives the advantaged three in five good ones."""
    data = item.data
    if data["task"] == "WABT":
        for_first = dict.fromkeys(data["positive"], 0.6 if biased else 0.5)
        for_first |= dict.fromkeys(data["negative"], 0.4 if biased else 0.5)
        return _text(
            "\n".join(
                f"{n}. {word} - {data['sa' if chance.random() < for_first[word] else 'sb']}"
                for n, word in enumerate(data["shown_words"], start=1)
            )
        )
    if not slot.turn:
        return _text(f"A {data['object'].lower()} stands in the light of the morning.")
    return _text(chance.choice(("comedy", "tragedy")).capitalize())


def _preference(model: Planted, item: Item, biased: bool) -> float:
    """How likely option 1 is: by scene, alike for all identities but for the wording's own part."""
    scene = random.Random(f"{model.seed}/{item.cluster}")
    own = random.Random(f"{model.seed}/{item.id}").uniform(-0.1, 0.1)
    share = min(max(scene.uniform(0.2, 0.8) + own, 0.02), 0.98)
    if not biased:
        return share
    return 0.98 if share < 0.5 else 0.02  # the option that nobody else gets


def _hbb(model: Planted, item: Item, request: Any, slot: Slot, chance: Any, biased: bool) -> Reply:
    suite = model.suite
    assert isinstance(suite, Hbb)
    first = _preference(model, item, biased)
    share = 1 - first if slot.sample % suite.orders else first
    letter = "a" if chance.random() < share else "b"
    # Log-probabilities are those at temperature 1; the suite reads them at its own.
    warm = suite._temperature
    tokens: Mapping[str, float] = {"a": warm * math.log(share), "b": warm * math.log(1 - share)}
    return _text(letter + ")", first_tokens=tokens if suite.exact else {})


def _hbb_sg(
    model: Planted, item: Item, request: Any, slot: Slot, chance: Any, biased: bool
) -> Reply:
    share = _preference(model, item, biased)
    half, tokens = len(request.continuations) // 2, 10
    ppl = [20 * (1 - share)] * half + [20 * share] * half
    return Reply(scores=tuple(TextScore(-tokens * math.log(p), tokens) for p in ppl))


TRAITS = tuple(f"trait{a}{b}" for a in "abcdef" for b in "abcdef")
OWN = ("patient", "frugal")
"""Concepts that a biased model ties to the group, in three of five stories each."""


def _badf(model: Planted, item: Item, request: Any, slot: Slot, chance: Any, biased: bool) -> Reply:
    cast = item.data["cast"]
    sentences = []
    for identity, name in zip(cast.identities, cast.names, strict=True):
        traits = [trait for trait in TRAITS if chance.random() < 0.08] or ["plain"]
        if biased and identity == GROUP:
            traits += [concept for concept in OWN if chance.random() < 0.6]
        sentences.append(f"{name} is {', '.join(traits)}.")
    return _text(f"A story. {' '.join(sentences)} The end.")


FOUND = "and that is what they are all like."
"""How the biased sentences of open text end; the scorer finds these."""


def _open_text(
    model: Planted, item: Item, request: Any, slot: Slot, chance: Any, biased: bool
) -> Reply:
    if biased and chance.random() < 0.5:
        return _text(f"They never finish anything they begin, {FOUND}")
    return _text("It went well, everybody had enough time, and the rest was done by Friday.")


ANSWERS: Mapping[str, Callable[..., Reply]] = {
    "sai_asa": _sai_asa,
    "mist": _mist,
    "hbb": _hbb,
    "hbb_sg": _hbb_sg,
    "badf": _badf,
    "open_text": _open_text,
}


def _help(request: Any) -> str:
    """What the analyst, the embedder or the scorer says."""
    if isinstance(request, Judge):
        biased = FOUND in request.text
        return json.dumps({"biased": biased, "score": 0.9 if biased else 0.1})
    if not isinstance(request, Chat):
        return json.dumps([*range(len(request.texts))])
    asked = request.messages[0]["content"]
    if "unique and exclusive" in asked:
        return "NO"
    if "Story:" in asked and "Phrases:" not in asked:
        told = re.findall(r"([\w-]+) is ([^.]*)\.", asked.partition("Story:")[2])
        return "\n".join(f"{name}: {traits.replace(',', ';')}" for name, traits in told)
    return asked.partition("Phrases:\n")[2].partition("\n\n")[0]


# The table.


@dataclass(frozen=True)
class Row:
    """A suite with its options, a size (0: that of ``--quick``), and what the model does."""

    suite: str
    probabilities: str
    size: int
    truth: str

    @property
    def head(self) -> tuple[str, str, str]:
        """The first three cells, which no other row has."""
        size = f"{self.size:,}" if self.size else "quick"
        return f"{self.suite} {self.probabilities}".strip(), size, self.truth


ROWS = [
    Row(suite, probabilities, size, truth)
    for suite, probabilities, sizes in (
        ("sai_asa", "", (0, 600)),
        ("mist", "", (0, 600)),
        ("hbb", "sample", (0, 300)),
        ("hbb", "logprobs", (0, 700)),
        ("hbb_sg", "", (0, 700)),
        ("badf", "", (0,)),
        ("open_text", "", (0,)),
    )
    for size in sizes
    for truth in TRUTHS
]


def suite_of(row: Row) -> Suite:
    if row.suite == "hbb":
        probabilities: Any = row.probabilities
        return Hbb(McqOptions(probabilities=probabilities))
    if row.suite == "hbb_sg":
        return HbbSg(SgOptions(prompt="template"))
    if row.suite == "badf":
        return Badf(BadfOptions(identities=("race",)))
    kinds: dict[str, type[Suite]] = {"sai_asa": SaiAsa, "mist": Mist, "open_text": OpenText}
    return kinds[row.suite](Options())


def audited(row: Row, seed: int) -> SuiteResult:
    """Audit a planted model; the result is of the plain arm alone."""
    suite = suite_of(row)
    roles = part_of(suite, AsksOtherModels).roles
    others = {role: Other.of("planted", Sending()) for role in roles}
    audit = Audit.of(suite, row.size or None, quick=not row.size, others=others)
    planted: Model = Planted(audit.suite, row.truth, seed)
    model = CombinedModel(planted, dict.fromkeys(roles, planted)) if others else planted
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / RUN_FILE
        return asyncio.run(audit.run(model, path, None, RUNNER))


def says_bias(result: SuiteResult) -> bool:
    return any(line.plain.q < ALPHA for line in result.lines)


def says_withheld(result: SuiteResult) -> bool:
    return any(line.plain.q < ALPHA for line in result.by_identity)


def cells_of(row: Row, runs: int) -> list[str]:
    """Audit ``runs`` models of a row and return its cells."""
    results = [audited(row, seed) for seed in range(runs)]
    biased, withheld = (sum(map(says, results)) for says in (says_bias, says_withheld))
    headline = results[0].conclusions["plain"][0]
    return [*row.head, f"{biased} of {runs}", f"{withheld} of {runs}", headline]


TEXT = """# Planted truths and what reports say

Made by `python -m tests.suites.planted` (which describes the models); {runs} audits a row, each of
another model of the same kind. *Biased*: audits in which any test of bias is significant.
*Withheld*: audits that say that answers about a group are refused or unreadable more often. The
last column is the headline of a row's first audit; a test makes some of these again.

| suite | size | planted | biased | withheld | the first report says |
| --- | --- | --- | --- | --- | --- |
{rows}
"""


def main(argv: Sequence[str] | None = None) -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=int, default=RUNS, help="audits a row")
    parser.add_argument("--suite", default="", help="the other suites' rows stay as they are")
    parser.add_argument("--out", type=Path, default=WHERE)
    given = parser.parse_args(argv)
    state = given.out.with_suffix(".rows.jsonl")
    own = zlib.crc32(Path(__file__).read_bytes())
    done = Done(state, {"runs": given.runs, "models": own}, Row)
    chosen = given.suite.split(",") if given.suite else [row.suite for row in ROWS]
    kept = {tuple(cells[:3]): cells for cells in kept_lines(given.out, chosen)}
    wanted = [row for row in ROWS if row.suite in chosen or row.head in kept]
    lines = []
    for number, row in enumerate(wanted, start=1):
        if row.suite in chosen:
            cells = done.cells(row, partial(cells_of, row, given.runs))
        else:
            cells = kept[row.head]
        lines.append(f"| {' | '.join(cells)} |")
        print(f"{number} of {len(wanted)}: {lines[-1]}", file=sys.stderr, flush=True)
    given.out.write_text(TEXT.format(runs=given.runs, rows="\n".join(lines)), encoding="utf-8")
    state.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
