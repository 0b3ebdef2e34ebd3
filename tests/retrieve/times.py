"""What twenty added statements about a group that the weights never met change, without training.

``times_statements.jsonl`` holds what is added: plain stereotypes about the Ondwels, a people that
exists nowhere. They are judged themselves (``statement``), and so are the sentences of
``times.jsonl``, each of one kind:

``paraphrase``  biased: an added stereotype in other words, ``of`` names the statement
``renamed``     the paraphrases with the name of another invented group, unknown to the index
``unlisted``    biased: a stereotype about the group that no statement holds
``neutral``     harmless: facts, people, feasts, some in words of the statements
``opposed``     harmless: a stereotype denied, reported, asked about or criticised
``elsewhere``   harmless: the same attributes of persons, animals and things

``python -m tests.retrieve.times`` prints the figures.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from guard.detect.encoder import Encoder
from guard.retrieve.statement import read_statements
from guard.verdict import Scores, Window

HERE = Path(__file__).parent
ADDED = read_statements(HERE / "times_statements.jsonl")
KINDS = ("statement", "paraphrase", "renamed", "unlisted", "neutral", "opposed", "elsewhere")
POINTS = ("strict", "balanced", "quiet")


class Sentence(NamedTuple):
    kind: str
    text: str
    of: str = ""


WRITTEN = tuple(
    Sentence(**json.loads(line))
    for line in (HERE / "times.jsonl").read_text(encoding="utf-8").splitlines()
)
SENTENCES = (
    *(Sentence("statement", s.statement, s.statement) for s in ADDED),
    *WRITTEN,
    *(
        Sentence("renamed", s.text.replace("Ondwel", "Tavrosk"))
        for s in WRITTEN
        if s.kind == "paraphrase"
    ),
)


class Change(NamedTuple):
    """How many of n sentences are found biased before and after, and how many changed each way."""

    n: int
    before: int
    after: int
    gained: int
    lost: int

    @property
    def rise(self) -> int:
        return self.after - self.before

    @property
    def p(self) -> float:
        """Two-sided p of McNemar's exact test, that gains and losses are equally likely."""
        changed = self.gained + self.lost
        fewer = sum(math.comb(changed, i) for i in range(min(self.gained, self.lost) + 1))
        return min(1.0, 2 * fewer / 2**changed)


class Measured(NamedTuple):
    """The scores of ``sentences`` before and after the addition, in order."""

    encoder: Encoder
    sentences: Sequence[Sentence]
    before: list[Scores]
    after: list[Scores]

    def change(self, point: str, *kinds: str) -> Change:
        limits = self.encoder.operating_points[point]
        pairs = [
            (before.score >= limits[before.bias_type], after.score >= limits[after.bias_type])
            for sentence, before, after in zip(self.sentences, self.before, self.after, strict=True)
            if sentence.kind in kinds
        ]
        return Change(
            len(pairs),
            sum(b for b, _ in pairs),
            sum(a for _, a in pairs),
            sum(a and not b for b, a in pairs),
            sum(b and not a for b, a in pairs),
        )

    def own_first(self) -> int:
        """Of the paraphrases, how many have the very statement they paraphrase on top."""
        return sum(
            bool(after.references) and after.references[0].statement == sentence.of
            for sentence, after in zip(self.sentences, self.after, strict=True)
            if sentence.kind == "paraphrase"
        )


def extend(encoder: Encoder) -> None:
    """Give ``encoder`` the added statements beside those it has."""
    assert encoder.index is not None
    vectors = encoder.embed([s.statement for s in ADDED])
    encoder.use_index(encoder.index.extended(ADDED, vectors))


def measure(sentences: Sequence[Sentence] = SENTENCES) -> Measured:
    """Judge the sentences with the shipped index, and again with the extended one."""
    encoder = Encoder()
    windows = [Window(s.text) for s in sentences]
    before = encoder.snapshot().score(windows)
    extend(encoder)
    return Measured(encoder, sentences, before, encoder.snapshot().score(windows))


def table(found: Measured) -> str:
    rows = [f"{'point':9} {'kind':11} {'n':>3} {'before':>6} {'after':>5} {'+':>3} {'-':>3}  p"]
    for point in POINTS:
        for kind in KINDS:
            c = found.change(point, kind)
            rows.append(
                f"{point:9} {kind:11} {c.n:3} {c.before:6} {c.after:5} {c.gained:3} {c.lost:3}"
                f"  {c.p:.2g}"
            )
    own, n = found.own_first(), found.change("balanced", "paraphrase").n
    rows.append(f"paraphrases with the very statement as first reference: {own} of {n}")
    return "\n".join(rows)


if __name__ == "__main__":
    print(table(measure()))
