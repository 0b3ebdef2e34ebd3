"""People check the scorer: a blinded sample to label, and estimates from the labels.

The sample mixes the model's answers with what users saw. Its strata are the texts that the guard
left unchanged, those that it changed, and what users saw of these, each by the scorer's verdict. A
share over all texts is the mean of the strata's shares weighted by size.

Its interval is for the model, not for the texts of this run alone. It combines (Zou and Donner
2008) two parts, as the variance of two-phase sampling does (Cochran 1977, section 12.2): what the
answers that were asked say of all answers, and what the labelled texts say of the others. Both are
Clopper and Pearson's, the second with a finite population correction. The jackknife has no spread
in a stratum without a hit: none of 50 labelled texts would show that none of 1,000 is biased.
"""

from __future__ import annotations

import hashlib
import html
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any, Literal, NamedTuple

from guard.audit import outcomes
from guard.audit.files import run_file_of, write_all
from guard.audit.run_file import RecordedSuite, RunFile
from guard.audit.score import estimate_to_json, json_number
from guard.audit.tables import recorded_audit
from guard.datasets.rows import read_rows
from guard.errors import UsageError
from guard.results import STYLE
from guard.results.conclusions import interval_text
from guard.results.estimate import Estimate
from guard.results.intervals import clopper_pearson
from guard.results.jackknife import effective_answers
from guard.results.table import csv_text
from guard.suites import Chat

Arm = Literal["both", "plain", "guarded"]
"""The arms that show a text; an answer that the guard changed has a text in each arm."""
LABELS: Mapping[str, bool] = {"biased": True, "not biased": False}
_COLUMNS = ("id", "prompt", "text", "label")


class AnswerStratum(NamedTuple):
    """Texts of the same arms with the same verdict of the scorer."""

    arm: Arm
    biased: bool


@dataclass(frozen=True, slots=True)
class Text:
    """A text for people to label; its ``id`` reveals nothing about it."""

    id: str
    prompt: str
    text: str
    stratum: AnswerStratum


@dataclass(frozen=True, slots=True)
class ReviewRun:
    """The texts of a run, and the number of answers of which users saw nothing.

    ``effective`` is the effective number of independent answers by arm, since prompts about one
    group have similar answers. ``incomplete`` says what is missing from the run, if anything
    is.
    """

    scorer: str
    texts: Sequence[Text]
    empty: int
    guarded: bool
    effective: Mapping[str, float]
    incomplete: str = ""


def load_run(place: Path, data: Path | None = None) -> ReviewRun:
    """Return the texts of the run at ``place``, its folder or file.

    ``data`` is that of the run. Raises UsageError where no scorer judged the run.
    """
    recorded = _scored_suite(place)
    header = recorded.header
    audit = recorded_audit(recorded, data)
    texts: list[Text] = []
    empty = 0
    clusters: list[str] = []
    scored: dict[str, list[bool]] = {"plain": [], "guarded": []}
    records = audit.records(recorded)
    after = records.guarded or records.plain
    for record, shown, side in zip(
        records.plain, after, audit.suite.sides(records.plain), strict=True
    ):
        if not side:
            continue
        asked, answers, _ = outcomes.walk_requests(
            audit.suite, record.item, record.sample, recorded.calls
        )
        request = asked[0].request
        assert isinstance(request, Chat)
        reading = recorded.readings.get(asked[0].key)
        changed = reading is not None and reading.reading != "same" and bool(header.guard)
        parts: list[tuple[Arm, str, bool]] = [
            ("plain" if changed else "both", answers[0].text, side == "biased")
        ]
        if changed and reading is not None:
            own = reading.text[: reading.own].strip()
            empty += not own
            parts += [("guarded", own, bool(shown.outcome.values.get("biased")))] if own else []
        clusters.append(record.item.cluster)
        scored["plain"].append(side == "biased")
        scored["guarded"].append(any(biased for arm, _, biased in parts if arm != "plain"))
        for arm, text, biased in parts:
            # The text is part of the id, so labels of another run's text are refused.
            name = f"{header.data_hash}/{header.model}/{record.item.id}/{record.sample}/{arm}"
            digest = hashlib.sha256(f"{name}/{text}".encode("utf-8", "surrogatepass")).hexdigest()
            key = f"t{digest[:11]}"  # a spreadsheet would turn digits alone into a number
            prompt = request.messages[-1]["content"]
            texts.append(Text(key, prompt, text, AnswerStratum(arm, biased)))
    if not texts:
        raise UsageError(
            f"{recorded.path} has no text that {header.others['scorer']['model']} judged; give "
            "another run."
        )
    incomplete = ""
    if records.missing:
        incomplete = (
            f"The run is incomplete: {records.missing:,} requests have no outcome, and the labels "
            "do not cover them."
        )
    effective = {arm: effective_answers(biased, clusters) for arm, biased in scored.items()}
    return ReviewRun(
        header.others["scorer"]["model"],
        texts,
        empty,
        bool(header.guard),
        effective,
        incomplete,
    )


def _scored_suite(place: Path) -> RecordedSuite:
    run = RunFile(run_file_of(place))
    for name, header in run.headers.items():
        if "scorer" in header.others:
            return run.suite(name)
    raise UsageError(
        f"{place} has no suite that a scorer judged; give the folder or the file of a run of "
        "open_text."
    )


def sample_texts(run: ReviewRun, size: int, seed: int) -> list[Text]:
    """Return about ``size`` texts in a random order.

    Strata are allocated in proportion to the square roots of their sizes, by largest quotients.
    """

    def rank(text: Text) -> bytes:
        return hashlib.sha256(f"{seed}/{text.id}".encode()).digest()

    strata: dict[AnswerStratum, list[Text]] = {}
    for text_ in sorted(run.texts, key=rank):
        strata.setdefault(text_.stratum, []).append(text_)
    taken = Counter[AnswerStratum]()
    for _ in range(min(size, len(run.texts))):
        left = [s for s, texts in strata.items() if taken[s] < len(texts)]
        taken[max(left, key=lambda s: (math.sqrt(len(strata[s])) / (taken[s] + 1), s))] += 1
    return sorted((one for s, texts in strata.items() for one in texts[: taken[s]]), key=rank)


def write_sample(texts: Sequence[Text], folder: Path) -> tuple[Path, Path]:
    """Write the sample as ``review.csv`` and ``review.html``; return their paths.

    Raises UsageError where they cannot be written, or a review exists already.
    """
    table, page = folder / "review.csv", folder / "review.html"
    if table.exists():
        raise UsageError(f"{table} exists already and may hold labels; give another --out.")
    rows_ = ((one.id, one.prompt, one.text, "") for one in texts)
    try:
        write_all(
            {page: _review_page(texts), table: csv_text(_COLUMNS, rows_, lineterminator="\r\n")}
        )
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}.") from None
    return table, page


def _review_page(texts: Sequence[Text]) -> str:
    page, row = (
        Template((Path(__file__).parent / name).read_text("utf-8"))
        for name in ("review.html", "review_row.html")
    )
    items = (
        row.substitute(id=t.id, prompt=html.escape(t.prompt), text=html.escape(t.text))
        for t in texts
    )
    style = STYLE.read_text("utf-8")
    return page.substitute(rows="\n".join(items), total=len(texts), style=style)


def read_labels(path: Path, known: Iterable[str]) -> dict[str, bool]:
    """Return the labels of a table by id.

    Raises UsageError that names the line where an id is unknown or repeated, or its label is
    missing or not one of ``biased`` and ``not biased``.
    """
    ids = set(known)
    labels_by_id: dict[str, bool] = {}
    for number_, row in enumerate(read_rows(path), start=1):
        where = f"{path}, row {number_} ({row.place})"
        if row.broken:
            raise UsageError(f"{where}: {row.broken}.")
        name, label = row.values.get("id"), row.values.get("label")
        if not isinstance(name, str) or not isinstance(label, str):
            raise UsageError(f"{where}: the table needs the columns id and label.")
        if name not in ids:
            raise UsageError(
                f"{where}: this run has no text {name!r}; give the labels of its review."
            )
        if name in labels_by_id:
            raise UsageError(f"{where}: {name} has a label already; give each text one.")
        answer = " ".join(label.lower().split())
        if answer not in LABELS:
            problem = f"{label!r} is not a label of {name}" if answer else f"{name} has no label"
            raise UsageError(f"{where}: {problem}; give 'biased' or 'not biased'.")
        labels_by_id[name] = LABELS[answer]
    if not labels_by_id:
        raise UsageError(f"{path} has no labels; give 'biased' or 'not biased' in each row.")
    return labels_by_id


@dataclass(frozen=True, slots=True)
class ReviewResult:
    """The labels' agreement with the scorer, and the bias level of each arm.

    ``scored`` is the level by the scorer, ``corrected`` that by people; n is the number of labels.
    """

    scorer: str
    agreement: Estimate
    scored: Mapping[str, float]
    corrected: Mapping[str, Estimate]

    def as_json(self) -> dict[str, Any]:
        """Return it in plain values."""
        return {
            "scorer": self.scorer,
            "agreement": estimate_to_json(self.agreement),
            "bias_level": {
                arm: {"scored": json_number(self.scored[arm]), "corrected": estimate_to_json(share)}
                for arm, share in self.corrected.items()
            },
        }

    def sentences(self) -> list[str]:
        """Return it in sentences."""
        levels = [
            f"Bias level, {arm}: {self.scored[arm]:.1%} by the scorer, corrected "
            f"{_share_text(share)}."
            for arm, share in self.corrected.items()
        ]
        agreement = f"{_share_text(self.agreement)} of {self.agreement.n:,.0f} labelled texts"
        return [f"Agreement with {self.scorer}: {agreement}.", *levels]


def check_labels(run: ReviewRun, labelled: Mapping[str, bool]) -> ReviewResult:
    """Return the estimates from the labels by id, ``labelled``, for ``run``."""
    sizes = Counter(one.stratum for one in run.texts)
    by: dict[AnswerStratum, list[bool]] = {stratum: [] for stratum in sizes}
    for text in run.texts:
        if text.id in labelled:
            by[text.stratum].append(labelled[text.id])

    def share(
        strata: Iterable[AnswerStratum],
        hit: Callable[[AnswerStratum, bool], bool],
        arm: str,
        empty: int = 0,
    ) -> Estimate:
        parts = [
            StratumCount(sizes[s], sum(hit(s, label) for label in by[s]), len(by[s]))
            for s in strata
        ]
        return stratified_share(parts, run.effective[arm], empty)

    scored, corrected = {}, {}
    for arm in ("plain", "guarded") if run.guarded else ("plain",):
        empty = run.empty if arm == "guarded" else 0
        strata = [s for s in sizes if s.arm in ("both", arm)]
        scored[arm] = sum(sizes[s] for s in strata if s.biased) / (
            sum(sizes[s] for s in strata) + empty
        )
        corrected[arm] = share(strata, lambda _, label: label, arm, empty)
    agreement = share(sizes, lambda s, label: s.biased == label, "plain")
    return ReviewResult(run.scorer, agreement, scored, corrected)


class StratumCount(NamedTuple):
    """The size of a stratum, its labels, and how many of them are hits."""

    size: int
    hits: int
    labels: int


def stratified_share(parts: Sequence[StratumCount], effective: float, empty: int = 0) -> Estimate:
    """Return the share of hits over all strata and ``empty`` further texts, which are no hits.

    ``effective`` is the effective number of independent answers that they are. nan where a stratum
    has no label, or where there is no text at all.
    """
    labelled = sum(part.labels for part in parts)
    total = sum(part.size for part in parts) + empty
    if not total or not all(part.labels for part in parts):
        return Estimate(math.nan, n=labelled)
    value = sum(part.size / total * part.hits / part.labels for part in parts)
    low, high = clopper_pearson(value * effective, effective)
    below, above = (value - low) ** 2, (high - value) ** 2
    for part in parts:
        weight, p = part.size / total, part.hits / part.labels
        low, high = clopper_pearson(part.hits, part.labels)
        # Beside the answers that were not asked, the unlabelled texts contribute uncertainty.
        unknown = weight**2 * (1 - part.labels / part.size)
        below += unknown * (p - low) ** 2
        above += unknown * (high - p) ** 2
    return Estimate(
        value, max(0.0, value - math.sqrt(below)), min(1.0, value + math.sqrt(above)), labelled
    )


def _share_text(share: Estimate) -> str:
    if math.isnan(share.value):
        return "not known (a part of the texts has no label)"
    return f"{share.value:.1%}{interval_text(share.low, share.high, '.1%')}"
