"""Trains the head of a cascade: windows through both detectors, the head, and its bound.

A family's side of the split is that of :mod:`guard.train.rows`. Neither detector has learned from
the validation side, so the head learns from a half of it and its bound is chosen on the other.
Rows of stance, and long harmless ones, are few there: it learns from some of the training side too.
"""

from __future__ import annotations

import hashlib
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from guard.detect.cascade_files import Member, rounded_head, write_head
from guard.detect.deferral import MOST_DEVIATION, STRICT_TO_QUIET, Deferral, Floats, Scale
from guard.detect.encoder import Encoder
from guard.detect.first import FirstEncoder
from guard.detect.weights import read_manifest
from guard.errors import UsageError
from guard.gate.context import in_context
from guard.policy import Points
from guard.retrieve.index import BiasIndex
from guard.train import own as own_texts
from guard.train import stance
from guard.train.checkpoint import replacing_file
from guard.train.config import HEAD_WINDOWS, MOST_DIFFERING
from guard.train.corpus import eval_folds, licensed_rows, says_any
from guard.train.own import corpus_folder
from guard.train.rows import TrainingRow, fold, in_validation, share
from guard.train.sources import WholeText, read_jsonl, row_of, text_pieces
from guard.verdict import BIAS_TYPES, Window

#: The most of a source's rows on the validation side.
MOST = 800
# The rows about stance, and the harmless ones that answers are most like.
STANCE = ("framed", "listed", "carried")
_HARMLESS = ("negatives", "bold")
#: The most of a source's rows on the training side.
TRAINED = {"framed": 1800, "listed": 400, "carried": 400, "negatives": 900, "bold": 900}
# Share of the rows without context that get unrelated sentences as context, as answers have them.
_FOREIGN = {"negatives": 0.8, "bold": 0.8}
_FOREIGN_ELSE = 0.3
# The head: its width, and how it is fitted.
HIDDEN = 16
_STEPS, _RATE, _DECAY, _LEFT_OUT = 200, 4e-3, 4.0, 0.3
# Weights of rows in its loss: harmless texts, biased ones of stance, and those that differ.
_FAIR, _STANCE, _LOST = 10.0, 3.0, 30.0
_EVERYDAY = (*_HARMLESS, "unseen", "not_hate", "emgsd_first")
# Windows of one file of scores: what an interruption loses.
_LOT = 400
Report = Callable[[int, int], None]


class CascadeCase(NamedTuple):
    """A window, with the source of its row; ``part`` is what it is for: train, fit or choose."""

    window: Window
    source: str
    biased: bool
    part: str


def rows_of(data: Path, statements: Path) -> list[TrainingRow]:
    """Return the rows of both sides of the split, without any that an evaluation file has."""
    rows = [
        *own_texts.own_rows(statements),
        *stance.framed_rows(statements),
        *stance.listed_rows(statements),
        *stance.carried_rows(),
        *licensed_rows(data),
        *_unseen_rows(),
    ]
    forbidden = eval_folds(data)
    first: dict[tuple[str, tuple[str, ...]], TrainingRow] = {}
    for row in rows:
        first.setdefault((fold(row.text), row.context), row)
    return [
        row
        for (text, _), row in first.items()
        if text and not any(says_any(t, forbidden) for t in (row.text, *row.context))
    ]


def _unseen_rows() -> Iterator[TrainingRow]:
    """Yield the sentences of the own texts that no run reads."""
    for item in read_jsonl(corpus_folder() / "unseen.jsonl"):
        whole = WholeText("unseen", item["text"], item["biased"], f"unseen:{fold(item['text'])}")
        for text, context in in_context(text_pieces(whole.text)):
            yield row_of(whole, text=text, context=context)


def cascade_cases(data: Path, statements: Path, most: int = HEAD_WINDOWS) -> list[CascadeCase]:
    """Return the windows to judge, at most ``most``; which of larger sources follows from a hash.

    Raises UsageError if a source cannot be read.
    """
    by_source: dict[tuple[str, bool], list[TrainingRow]] = defaultdict(list)
    for row in rows_of(data, statements):
        held_back = in_validation(row.family) or row.source == "unseen"
        by_source[row.source, held_back].append(row)
    chosen: list[tuple[TrainingRow, str]] = []
    for (source, held_back), rows in sorted(by_source.items()):
        limit = MOST if held_back else TRAINED.get(source, 0)
        for row in sorted(rows, key=partial(_hashed_place, salt="cascade"))[:limit]:
            half = "fit" if share(row.family, "cascade") < 0.5 else "choose"
            chosen.append((row, half if held_back else "train"))
    chosen.sort(key=lambda pair: _hashed_place(pair[0], salt="order"))
    rng = random.Random("cascade")
    harmless = [r.text for r, _ in chosen if r.source in _HARMLESS]
    cases = []
    for row, part in chosen[:most]:
        context = row.context
        if not context and harmless and rng.random() < _FOREIGN.get(row.source, _FOREIGN_ELSE):
            context = tuple(rng.choice(harmless) for _ in range(rng.randint(1, 2)))
        cases.append(CascadeCase(Window(row.text, context), row.source, row.biased, part))
    return cases


def _hashed_place(row: TrainingRow, salt: str) -> float:
    """Return where a row stands in an order that follows from a hash."""
    return share(f"{row.text}|{row.context}", salt)


class DetectorPair:
    """Both detectors, each with its index without the statements of the validation side."""

    def __init__(self, first: Path, last: Path) -> None:
        """Load the weights in two folders; raises WeightsError, BiasIndexError."""
        self.first, self.last = FirstEncoder(first), Encoder(last)
        self.scale = Scale(self.first.operating_points, self.last.operating_points)
        self._indexes = [without_validation(e) for e in (self.first, self.last)]

    def judged(self, window: Window) -> JudgedRow | None:
        """Return what both find; None if the first alone would not decide."""
        first = self.first.judge_with_features(window, self._indexes[0], self.scale)
        if first.features is None:
            return None
        scores = self.last.judge(window, self._indexes[1])
        assert first.scores.score is not None
        assert first.scores.bias_type is not None
        mapped = self.scale.mapped(first.scores.score, first.scores.bias_type)
        kinds = (first.scores.bias_type, scores.bias_type or first.scores.bias_type)
        ids = tuple(BIAS_TYPES.index(kind) for kind in kinds)
        # What the last leaves unjudged is no finding.
        return JudgedRow(first.features, mapped, ids[0], scores.score or 0.0, ids[1])


class JudgedRow(NamedTuple):
    """What both detectors find in a window: mapped score and type, then those of the last."""

    features: Floats
    mapped: float
    kind: int
    score: float
    last_kind: int


def without_validation(encoder: Encoder) -> BiasIndex:
    """Return the present index of an encoder without the statements of the validation side."""
    index = encoder.index
    assert index is not None
    rows = [
        i for i, s in enumerate(index.statements) if not in_validation(f"own:{fold(s.statement)}")
    ]
    kept = [index.statements[i] for i in rows]
    return BiasIndex(kept, index.vectors[rows], encoder.name)


class CaseTable(NamedTuple):
    """The rows of all cases, as arrays; ``known`` marks those that the first alone may decide."""

    features: Floats
    mapped: NDArray[np.float64]
    kind: NDArray[np.int64]
    score: NDArray[np.float64]
    last_kind: NDArray[np.int64]
    known: NDArray[np.bool_]


def judged_table(
    pair: DetectorPair, cases: Sequence[CascadeCase], work: Path, report: Report
) -> CaseTable:
    """Judge all cases by both detectors; what ``work`` has of an earlier call is not judged again.

    Scores are stored beside the hash of the windows, the weights and the rows' order.
    """
    folder = work / _table_digest(pair, cases)
    lots = [cases[i : i + _LOT] for i in range(0, len(cases), _LOT)]
    tables = []
    for number, lot in enumerate(lots):
        path = folder / f"{number:03}.npz"
        if not path.exists():
            _judge_lot(pair, lot, path)
        with np.load(path, allow_pickle=False) as stored:
            tables.append({name: stored[name] for name in CaseTable._fields})
        report(min((number + 1) * _LOT, len(cases)), len(cases))
    return CaseTable(*(np.concatenate([lot[name] for lot in tables]) for name in CaseTable._fields))


def _judge_lot(pair: DetectorPair, lot: Sequence[CascadeCase], path: Path) -> None:
    rows = list(pair.last.threads().map(lambda case: pair.judged(case.window), lot))
    width = next((len(r.features) for r in rows if r is not None), 0)
    filled = [
        JudgedRow(np.zeros(width, np.float32), 0.0, 0, 0.0, 0) if r is None else r for r in rows
    ]
    arrays = map(np.array, zip(*filled, strict=True))
    columns: dict[str, Any] = dict(zip(JudgedRow._fields, arrays, strict=True))
    columns["known"] = np.array([r is not None for r in rows])
    with replacing_file(path) as part:
        np.savez(part, **columns)


def _table_digest(pair: DetectorPair, cases: Sequence[CascadeCase]) -> str:
    digest = hashlib.sha256()
    for encoder in (pair.first, pair.last):
        digest.update(read_manifest(encoder.folder))
    for case in cases:
        digest.update(f"{case}\n".encode(errors="surrogatepass"))
    return digest.hexdigest()[:16]


def decides_otherwise(table: CaseTable, last: Points) -> NDArray[np.bool_]:
    """Return whether the two decide differently at ``STRICT_TO_QUIET``: (n, 3)."""
    limits = np.array([[last[point][kind] for kind in BIAS_TYPES] for point in STRICT_TO_QUIET])
    by_first = table.mapped[:, None] >= limits[:, table.kind].T
    by_last = table.score[:, None] >= limits[:, table.last_kind].T
    different: NDArray[np.bool_] = by_first != by_last
    return different


def _in_any_column(marks: NDArray[np.bool_]) -> NDArray[np.bool_]:
    differing: NDArray[np.bool_] = np.logical_or.reduce(marks, axis=1)
    return differing


def fit_head(
    features: Floats, target: NDArray[np.bool_], weight: Floats, seed: int = 17
) -> Deferral:
    """Return the head with the least weighted log loss, with the bound 1.

    ``features`` (n, f), ``target`` (n,) whether the two differ, ``weight`` (n,). Full batches of
    AdamW, a random third of the inputs left out of each; every random number follows from ``seed``.
    """
    import torch

    mean, deviation = features.mean(axis=0), np.maximum(features.std(axis=0), 1e-3)
    x = torch.tensor(np.clip((features - mean) / deviation, -MOST_DEVIATION, MOST_DEVIATION))
    y, w = torch.tensor(target, dtype=torch.float32), torch.tensor(weight / weight.mean())
    torch.manual_seed(seed)
    direct = torch.nn.Linear(x.shape[1], 1)
    inner, out = torch.nn.Linear(x.shape[1], HIDDEN), torch.nn.Linear(HIDDEN, 1, bias=False)
    torch.nn.init.zeros_(direct.weight)
    net = torch.nn.ModuleList([direct, inner, out])
    optimiser = torch.optim.AdamW(net.parameters(), lr=_RATE, weight_decay=_DECAY)
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, _STEPS)
    for _ in range(_STEPS):
        optimiser.zero_grad()
        seen = torch.nn.functional.dropout(x, _LEFT_OUT)
        logit = (direct(seen) + out(torch.relu(inner(seen)))).squeeze(1)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logit, y, w)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        rate.step()

    def array(tensor: Any) -> Floats:
        numbers: Floats = tensor.detach().numpy().astype(np.float32)
        return numbers

    return Deferral(
        bound=1.0,
        mean=mean.astype(np.float32),
        deviation=deviation.astype(np.float32),
        direct=array(direct.weight)[0],
        hidden=array(inner.weight),
        hidden_bias=array(inner.bias),
        out=array(out.weight)[0],
        bias=float(direct.bias.item()),
    )


def weights_of(cases: Sequence[CascadeCase], different: NDArray[np.bool_]) -> Floats:
    """Return how much each case weighs in the head's loss.

    Harmless texts are what assistants write most. A biased text of stance that the first alone
    would let pass is what a band of scores loses.
    """
    probability = np.ones(len(cases), np.float32)
    for i, case in enumerate(cases):
        if case.source in STANCE and case.biased:
            probability[i] = _LOST if different[i] else _STANCE
        elif case.source in _EVERYDAY and not case.biased:
            probability[i] = _FAIR
    return probability


@dataclass(frozen=True, slots=True)
class Choice:
    """A bound, and what the texts that chose it show.

    ``deferred`` is the share of all of them, ``differs`` that decided otherwise than by the last
    detector alone, at any operating point; ``at`` the same by operating point. ``any_threshold``
    is the largest share at one threshold from the lowest of `strict` to the highest of `quiet`, the
    same for all types. ``lost`` is the share of the biased texts of stance, found at `balanced` by
    the last, that pass.
    ``sources``: of each source the number of texts, the share deferred and that differing.
    """

    bound: float
    n: int
    deferred: float
    differs: float
    at: dict[str, float]
    any_threshold: float
    lost: float
    sources: dict[str, tuple[int, float, float]]


def choose_bound(
    probability: Floats, table: CaseTable, cases: Sequence[CascadeCase], last: Points, most: float
) -> Choice:
    """Return the highest bound by which at most the share ``most`` of the texts decide otherwise.

    Raises UsageError if there is no text.
    """
    if not len(cases):
        raise UsageError("There is no validation text to choose the bound by; use more --data.")
    apart = decides_otherwise(table, last)
    different = _in_any_column(apart)
    order = np.argsort(-probability, kind="stable")
    # With the first i deferred, the others that differ are left.
    left = different.sum() - np.concatenate([[0], np.cumsum(different[order])])
    count = int(np.argmax(left <= most * len(cases)))
    bound = float(probability[order[count - 1]]) if count else 1.0
    # Not a digit more than is kept: what is at the bound is deferred.
    bound = float(np.floor(bound * 1e5) / 1e5)
    deferred = (probability >= bound) | ~table.known
    left_apart = apart & ~deferred[:, None]
    limits = np.linspace(min(last["strict"].values()), max(last["quiet"].values()), 20)
    by_threshold = (table.mapped[:, None] >= limits) != (table.score[:, None] >= limits)
    of_last = np.array([[last["balanced"][BIAS_TYPES[k]] for k in table.last_kind]])[0]
    stance_found = np.array([c.source in STANCE and c.biased for c in cases])
    stance_found &= table.score >= of_last
    sources = {}
    for source in sorted({c.source for c in cases}):
        inside = np.array([c.source == source for c in cases])
        twice, otherwise = deferred[inside].mean(), left_apart[inside].any(axis=1).mean()
        shares = round(float(twice), 4), round(float(otherwise), 4)
        sources[source] = (int(inside.sum()), *shares)
    at = zip(STRICT_TO_QUIET, left_apart.mean(axis=0), strict=True)
    return Choice(
        bound,
        len(cases),
        round(float(deferred.mean()), 4),
        round(float(left_apart.any(axis=1).mean()), 4),
        {point: round(float(x), 4) for point, x in at},
        round(float((by_threshold & ~deferred[:, None]).mean(axis=0).max()), 4),
        round(float(left_apart[stance_found, 1].mean()) if stance_found.any() else 0.0, 4),
        sources,
    )


def train_cascade(
    data: Path,
    statements: Path,
    work: Path,
    to: Path,
    version: str,
    *,
    first: Path,
    last: Path,
    most: float = MOST_DIFFERING,
    windows: int = HEAD_WINDOWS,
    report: Report = lambda done, total: None,
) -> Choice:
    """Train the head for the weights in ``first`` and ``last``, and write it to ``to``.

    Scores are kept in ``work``, so that an interrupted call resumes. ``most`` is the largest share
    of the validation texts that may be decided otherwise than by the last detector alone.

    Raises UsageError if a source cannot be read, WeightsError or BiasIndexError for the detectors.
    """
    pair = DetectorPair(first, last)
    all_cases = cascade_cases(data, statements, windows)
    judged = judged_table(pair, all_cases, work, report)
    points = pair.last.operating_points
    different = _in_any_column(decides_otherwise(judged, points))
    learned = np.array([c.part != "choose" for c in all_cases]) & judged.known
    weight = weights_of(all_cases, different)
    head = fit_head(judged.features[learned], different[learned], weight[learned])
    # As it will be read: with four digits.
    head = rounded_head(head)
    chosen = [i for i, c in enumerate(all_cases) if c.part == "choose"]
    some = CaseTable(**{name: column[chosen] for name, column in judged._asdict().items()})
    probability = np.array([head.probability(x) for x in some.features])
    choice = choose_bound(probability, some, [all_cases[i] for i in chosen], points, most)
    write_head(
        to,
        version,
        Member.of(pair.first.name, first),
        Member.of(pair.last.name, last),
        replace(head, bound=choice.bound),
        figures=asdict(choice),
    )
    return choice
