"""What the corpus is made of: rows to learn from and statements to retrieve."""

from __future__ import annotations

from dataclasses import dataclass

from guard.datasets.split import fold as fold
from guard.datasets.split import share as share
from guard.verdict import BiasType, Span

VALIDATION_SHARE = 0.08
# Kinds of forms, each a source and a file of the corpus.
FORMS = (
    *("answers", "defending", "endorsing", "headed", "person", "places", "practice", "refuted"),
    *("scenes", "second", "slurbare", "technical", "truths"),
)
# Sources written for guard.
WRITTEN = (
    *("own", "negatives", "pairs", "framed", "listed", "carried"),
    *("invented", "renamed", "bare"),
    *FORMS,
)


def in_validation(family: str) -> bool:
    """Whether a family is on the validation side of the split."""
    return share(family, "validation") < VALIDATION_SHARE


@dataclass(frozen=True, slots=True)
class Statement:
    """A biased statement that can stand in a training-time bias index."""

    text: str
    bias_type: BiasType
    family: str = ""


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One training example, in the shape the detector meets at run time.

    ``biased`` is the label with the references at hand; ``alone`` that of the text by itself, None
    where only the references decide. ``partners`` are statements put into the index with
    probability ``partner_share``. Texts of a ``family`` never serve each other as references and
    are on one side of the validation split. ``spans``: the two spans are known (one may be None).
    ``implied``: whether the tie of a biased text is implied (True) or stated (False), None if
    unknown. ``known=False``: the label of this segment of a biased text is unknown, and ``biased``
    is not learned; teachers may still say what it is.
    """

    text: str
    biased: bool
    source: str
    family: str
    context: tuple[str, ...] = ()
    bias_type: BiasType | None = None
    group: Span | None = None
    attribute: Span | None = None
    spans: bool = False
    alone: bool | None = None
    partners: tuple[Statement, ...] = ()
    partner_share: float = 0.0
    implied: bool | None = None
    known: bool = True
