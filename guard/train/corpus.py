"""The corpus: rows of all sources, checked against the evaluation files, split and sampled.

Why: docs/decisions/one-plain-recipe.md.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from guard.train import forms, sources, stance
from guard.train import own as own_texts
from guard.train.config import REPEATS, TrainConfig
from guard.train.rows import FORMS, Statement, TrainingRow, fold, in_validation, share

# Fields of the evaluation files that hold a text.
_EVAL_FIELDS = ("comment", "text", "sent_more", "sent_less", "prompt", "statement")
# A segment of an evaluation text with so many words is an evaluation text itself.
_LEAST_WORDS = 5


@dataclass(frozen=True, slots=True)
class Corpus:
    """Rows to learn from, and the statements of the training-time index.

    ``train`` are at most as many rows of a source as its quota; ``every_text`` are the training
    texts before that limit, which runs with other quotas may have learned.
    """

    train: list[TrainingRow]
    statements: list[Statement]
    every_text: frozenset[str] = frozenset()

    def digest(self) -> str:
        """Return a hash of what is learned from: another one is another run."""
        digest = hashlib.sha256()
        for row in self.train:
            digest.update(f"{row}\n".encode())
        for statement in self.statements:
            digest.update(f"{statement.text}|{statement.bias_type}\n".encode())
        return digest.hexdigest()[:16]

    def counts(self) -> dict[str, int]:
        """Training rows per source."""
        return dict(Counter(r.source for r in self.train))


def eval_folds(data: Path) -> set[str]:
    """Return the folded texts of every evaluation file under ``data``, whole and by segment.

    Segments of fewer than five words are left out: anyone may say "I don't think so".
    """
    folds: set[str] = set()
    for path in sorted(data.glob("*/eval.jsonl")):
        for item in sources.read_jsonl(path):
            texts = [item[f] for f in _EVAL_FIELDS if isinstance(item.get(f), str)]
            folds.update(map(fold, texts))
            parts = (fold(p) for text in texts for p in sources.text_pieces(text))
            folds.update(p for p in parts if len(p.split()) >= _LEAST_WORDS)
    folds.discard("")
    return folds


def licensed_rows(data: Path) -> Iterator[TrainingRow]:
    """Yield the rows of every licensed source."""
    for read in (
        sources.redditbias_rows, sources.stereoset_rows, sources.hearts_rows, sources.emgsd_rows,
        sources.toxigen_rows, sources.bold_rows, sources.implicit_hate_rows, sources.seegull_rows,
    ):  # fmt: skip
        yield from read(data)


def build_corpus(config: TrainConfig) -> Corpus:
    """Assemble the corpus: read, drop repeats, validation and evaluation texts, add made-up rows.

    Raises UsageError if a source cannot be read.
    """
    rng = random.Random(config.seed)
    rows = [
        *own_texts.own_rows(config.statements),
        *stance.framed_rows(config.statements),
        *stance.listed_rows(config.statements),
        *stance.carried_rows(),
        *forms.form_rows(config.seed),
    ]
    stated = [r for r in rows if r.source == "own"]
    if config.data is not None:
        rows += licensed_rows(config.data)
    rows = _without_repeats(rows)
    predicates = own_texts.predicate_pairs(held_back=False)
    train = [r for r in rows if not in_validation(r.family)]
    told = [r for r in train if r.source not in FORMS]
    train += [
        *own_texts.invented_rows(rng, told, predicates, config.invented),
        *own_texts.plain_without_reference(rng, predicates, config.invented // 10),
    ]
    if config.data is not None:
        forbidden = eval_folds(config.data)
        train = [
            replace(r, partners=tuple(p for p in r.partners if not says_any(p.text, forbidden)))
            for r in train
            if not any(says_any(text, forbidden) for text in (r.text, *r.context))
        ]
    every_text = frozenset(r.text for r in train)
    train = _within_quotas(train, config)
    stated += [r for r in train if r.source in ("implied", "hearts", "stereoset", "seegull")]
    statements = [
        Statement(r.text, r.bias_type, r.family) for r in stated if r.biased and r.bias_type
    ]
    return Corpus(train, statements, every_text)


def says_any(text: str, folds: set[str]) -> bool:
    """Return whether one of ``folds`` is the text's, or that of one of its segments."""
    return any(fold(t) in folds for t in (text, *sources.text_pieces(text)))


def _by_source(rows: list[TrainingRow]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        places[row.source].append(i)
    return places


def _within_quotas(rows: list[TrainingRow], config: TrainConfig) -> list[TrainingRow]:
    """Leave out, at random and by whole families, the rows that no epoch will draw."""
    selected: set[int] = set()
    for source, ids in _by_source(rows).items():
        most = int(config.quotas.get(source, 0) * max(1.0, config.epochs))
        selected.update(_by_family(rows, ids, f"corpus:{config.seed}")[:most])
    return [row for i, row in enumerate(rows) if i in selected]


def _by_family(rows: list[TrainingRow], ids: list[int], salt: str) -> list[int]:
    """Shuffle rows so that the first of them are whole families: pairs and comments.

    Forms have many rows each: the first of them are of as many forms as possible.
    """

    def place(i: int) -> float:
        row = rows[i]
        return share(f"{row.family}|{row.text}" if row.source in FORMS else row.family, salt)

    return sorted(ids, key=place)


def _without_repeats(rows: list[TrainingRow]) -> list[TrainingRow]:
    """Keep one row of each text and context: one of known label, of the source named first.

    Sources with more annotations are named first.
    """
    first: dict[tuple[str, tuple[str, ...]], TrainingRow] = {}
    for row in sorted(rows, key=lambda row: not row.known):
        first.setdefault((fold(row.text), row.context), row)
    return [row for (text, _), row in first.items() if text]


class Pick(NamedTuple):
    """A row of an epoch, with the context it is shown in this time."""

    row: int
    context: tuple[str, ...]


class Sampler:
    """Draws each epoch's rows by the quotas, in batches of similar length, from the seed alone."""

    def __init__(
        self, rows: list[TrainingRow], config: TrainConfig, left_out: Collection[int] = ()
    ) -> None:
        self._rows = rows
        self._config = config
        used = {
            source: [i for i in ids if i not in left_out]
            for source, ids in _by_source(rows).items()
        }
        quotas = {
            s: min(config.quotas.get(s, 0), len(ids) * REPEATS.get(s, 1)) for s, ids in used.items()
        }
        self._quota = {s: n for s, n in quotas.items() if n > 0}
        self._ids = {s: used[s] for s in self._quota}
        self.epoch_rows = sum(self._quota.values())
        self.epoch_steps = -(-self.epoch_rows // config.batch_size)
        self._harmless = [
            r.text for r in rows if not r.biased and r.source in ("negatives", "bold", "pairs")
        ]
        self._any = [r.text for r in rows if r.source in ("negatives", "own", "implied", "bold")]

    def epoch(self, number: int) -> list[list[Pick]]:
        """Return the batches of one epoch."""
        rng = random.Random(f"{self._config.seed}:{number}")
        salt = f"epoch:{self._config.seed}:{number}"
        chosen: list[int] = []
        for source, ids in sorted(self._ids.items()):
            rounds, rest = divmod(self._quota[source], len(ids))
            chosen += ids * rounds + _by_family(self._rows, ids, salt)[:rest]
        rng.shuffle(chosen)
        picks = [Pick(i, self._shown_context(self._rows[i], rng)) for i in chosen]
        size = self._config.batch_size
        order: list[Pick] = []
        for start in range(0, len(picks), size * 32):
            # Padding costs as much as text: rows of like length share a batch.
            order += sorted(picks[start : start + size * 32], key=self._pick_length)
        # Cut across blocks, so that every batch but the last is full and none is left over.
        batches = [order[b : b + size] for b in range(0, len(order), size)]
        rng.shuffle(batches)
        return batches

    def _pick_length(self, pick: Pick) -> int:
        return len(self._rows[pick.row].text) + sum(map(len, pick.context))

    def _shown_context(self, row: TrainingRow, rng: random.Random) -> tuple[str, ...]:
        """Return the row's own context, or sometimes an unrelated one, which must not matter."""
        if not self._config.context:
            return ()
        if row.context or not self._harmless or rng.random() >= self._config.foreign:
            return row.context
        pool = self._harmless if rng.random() < 0.75 else self._any
        return tuple(rng.choice(pool) for _ in range(rng.randint(1, 2)))
