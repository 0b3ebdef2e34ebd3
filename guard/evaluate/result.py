"""The figures of one set, as plain values; :meth:`Result.as_json` is what ``--json`` prints."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from guard.detect.instruction import Instruction
from guard.evaluate.example import Types
from guard.evaluate.metrics import ScoreBin
from guard.evaluate.published import PublishedSystem
from guard.evaluate.sources import Dataset
from guard.results.agreement import Agreement
from guard.results.estimate import Estimate

# The columns of a set's figures: at the chosen operating point, and at the set's own threshold.
GUARD, OWN = "guard", "own threshold"


class ErrorText(NamedTuple):
    """A text whose prediction differs from its label; shown only on request."""

    kind: str
    id: str
    score: float
    bias_type: str | None
    text: str


@dataclass(frozen=True, slots=True)
class Scope:
    """Figures of n labelled texts, and those of the baselines on the same texts."""

    name: str
    n: int
    figures: dict[str, Estimate]
    baselines: dict[str, dict[str, Estimate]]


class OwnThreshold(NamedTuple):
    """The most accurate threshold on the set's own validation part, and its figures here."""

    threshold: float
    figures: dict[str, Estimate]


class ReadTwice(NamedTuple):
    """The figures on the texts on which both readers are sure and agree.

    ``read`` is the number of texts that two readers have read. ``by_readers`` takes their label,
    ``by_published`` the published one of the same texts.
    """

    read: int
    agreements: list[Agreement]
    by_readers: Scope
    by_published: Scope


class Beside(NamedTuple):
    """Another detector's figures on the same texts, at the same operating point."""

    detector: str
    figures: dict[str, Estimate]
    unjudged: dict[str, int]


@dataclass(frozen=True, slots=True)
class Result:
    """The results on one dataset, and the settings of the run.

    ``instruction`` is what the detector's language model was told; None if it asks none.
    """

    dataset: Dataset
    types: Types
    detector: str
    instruction: Instruction | None
    index_version: str | None
    operating_point: str
    custom_thresholds: bool
    terms: str
    draws: int
    seed: int
    limit: int | None
    seconds: float
    whole: Scope
    parts: list[Scope]
    points: dict[str, dict[str, Estimate]]
    own: OwnThreshold | None
    readings: ReadTwice | None
    breakdowns: dict[str, list[Scope]]
    reliability: list[ScoreBin]
    unjudged: dict[str, int]
    published: tuple[PublishedSystem, ...]
    beside: Beside | None
    note: str
    errors: list[ErrorText]

    def as_json(self) -> dict[str, Any]:
        """Return plain values; nan becomes null. It has texts only if errors were requested."""
        data = self.dataset
        output: dict[str, Any] = {
            "set": data.name,
            "title": data.title,
            "protocol": data.protocol,
            "note": self.note,
            "sha256": data.sha256,
            "types": self.types,
            "texts": self.whole.n,
            "texts_in_file": data.total,
            "limit": self.limit,
            "seed": self.seed,
            "bootstrap": self.draws,
            "skipped_rows": len(data.skipped),
            "skipped": data.skipped,
            "detector": self.detector,
            "instruction": self.instruction and asdict(self.instruction),
            "index_version": self.index_version,
            "operating_point": self.operating_point,
            "custom_thresholds": self.custom_thresholds,
            "term_list": self.terms,
            "seconds": round(self.seconds, 3),
            "unjudged": self.unjudged,
            "figures": _figures(self.whole.figures),
            "baselines": {k: _figures(v) for k, v in self.whole.baselines.items()},
            "published": [
                p._asdict() | {"figures": dict(p.figures), "compares_with": compares_with(p)}
                for p in self.published
            ],
            "beside": self.beside
            and self.beside._asdict() | {"figures": _figures(self.beside.figures)},
            "operating_points": {k: _figures(v) for k, v in self.points.items()},
            "own_threshold": self.own
            and self.own._asdict() | {"figures": _figures(self.own.figures)},
            "readings": self.readings and _read_twice(self.readings),
            "parts": [_scope(s) for s in self.parts],
            "breakdowns": {k: [_scope(s) for s in v] for k, v in self.breakdowns.items()},
            "reliability": [_bin(b) for b in self.reliability],
        }
        if self.errors:
            output["errors"] = [e._asdict() for e in self.errors]
        return output


def compares_with(published: PublishedSystem) -> str:
    """Return our column to compare a published figure with."""
    return OWN if published.fitted else GUARD


def _read_twice(readings: ReadTwice) -> dict[str, Any]:
    ends = ("value", "low", "high")
    return {
        "texts_read": readings.read,
        "agreements": [
            a._asdict()
            | {key: estimate_values(getattr(a, key), ends) for key in ("agreed", "kappa")}
            for a in readings.agreements
        ],
        "by_readers": _scope(readings.by_readers),
        "by_published": _scope(readings.by_published),
    }


def estimate_values(
    estimate: Estimate, names: tuple[str, ...] = ("value", "low", "high", "n")
) -> dict[str, float | None]:
    """Return the fields ``names`` of an estimate; nan becomes null."""
    parts = estimate.parts(*names)
    return {name: None if math.isnan(value) else value for name, value in parts.items()}


def _bin(b: ScoreBin) -> dict[str, float | None]:
    biased = b.biased
    return {"n": biased.n, "score": b.score, "biased": biased.value, **biased.parts("low", "high")}


def _scope(scope: Scope) -> dict[str, Any]:
    return {
        "name": scope.name,
        "texts": scope.n,
        "figures": _figures(scope.figures),
        "baselines": {k: _figures(v) for k, v in scope.baselines.items()},
    }


def _figures(figures: dict[str, Estimate]) -> dict[str, dict[str, float | None]]:
    return {name: estimate_values(figure) for name, figure in figures.items()}
