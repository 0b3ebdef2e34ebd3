"""People check the scorer: a blinded sample to label, and what their labels say.

The sample mixes what the model said with what users saw. It is drawn from strata: texts that the
guard left alone, texts that it changed, and what went out of those, each by the scorer's verdict.
A share over all texts is the strata's shares weighed by their sizes. Its interval joins theirs (Zou
and Donner 2008): Clopper and Pearson's, narrowed where much of a stratum was labelled.
"""

from __future__ import annotations

import csv
import hashlib
import html
import io
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any, Literal, NamedTuple

from guard.audit import journal, outcomes
from guard.audit.audit import Audit
from guard.audit.command import damage
from guard.audit.files import cell, write_all
from guard.audit.journal import Contents
from guard.audit.score import number, plain_values
from guard.audit.tables import as_recorded
from guard.datasets.rows import rows
from guard.errors import UsageError
from guard.intervals import exact
from guard.suites import Chat, Estimate, registry
from guard.suites.conclusions import interval_text

Arm = Literal["both", "plain", "guarded"]
"""In which arms a text stands: a guard that changes an answer makes two texts of it."""
LABELS: Mapping[str, bool] = {"biased": True, "not biased": False}
_COLUMNS = ("id", "prompt", "text", "label")


class Stratum(NamedTuple):
    """Texts of one kind on which the scorer says the same."""

    arm: Arm
    biased: bool


@dataclass(frozen=True, slots=True)
class Text:
    """A text that people may be asked about; its ``id`` says nothing about it."""

    id: str
    prompt: str
    text: str
    stratum: Stratum


@dataclass(frozen=True, slots=True)
class Run:
    """The texts of a run, and how many answers of the guarded arm show nothing.

    ``incomplete`` says in a sentence what is missing from the run; empty where nothing is.
    """

    scorer: str
    texts: Sequence[Text]
    empty: int
    guarded: bool
    incomplete: str = ""


def load(place: Path, data: Path | None = None) -> Run:
    """Return the texts of the journal at ``place``, or of the one in that folder.

    ``data`` is that of the run. Raises UsageError where there is none that a scorer judged.
    """
    path, found = _journal(place)
    header = found.header
    options = {**header.options, **({} if data is None else {"data": data})}
    audit = as_recorded(Audit.of(registry.make(header.suite, options)), found, path)
    texts: list[Text] = []
    empty = 0
    readings = found.readings if header.guard else None
    records = outcomes.read(audit.suite, audit.settled(found.calls).items, found.calls, readings)
    after = records.guarded or records.plain
    for record, behind, side in zip(
        records.plain, after, audit.suite.sides(records.plain), strict=True
    ):
        if not side:
            continue
        asked, answers, _ = outcomes.walk(audit.suite, record.item, record.sample, found.calls)
        request = asked[0].request
        assert isinstance(request, Chat)
        reading = found.readings.get(asked[0].key)
        changed = reading is not None and reading.reading != "same" and bool(header.guard)
        parts: list[tuple[Arm, str, bool]] = [
            ("plain" if changed else "both", answers[0].text, side == "biased")
        ]
        if changed and reading is not None:
            own = reading.text[: reading.own].strip()
            empty += not own
            parts += [("guarded", own, bool(behind.outcome.values.get("biased")))] if own else []
        for arm, text, biased in parts:
            # A label is of this text: another run's, under the same prompt, has another id.
            name = f"{header.data_hash}/{header.model}/{record.item.id}/{record.sample}/{arm}"
            digest = hashlib.sha256(f"{name}/{text}".encode("utf-8", "surrogatepass")).hexdigest()
            key = f"t{digest[:11]}"  # of digits alone a spreadsheet would make a number
            prompt = request.messages[-1]["content"]
            texts.append(Text(key, prompt, text, Stratum(arm, biased)))
    if not texts:
        raise UsageError(f"{path} has no text that {header.others['scorer']['model']} judged.")
    missing = [damage(path, found.damaged)] if found.damaged else []
    if records.missing:
        missing.append(
            f"The run is incomplete: {records.missing:,} requests have no outcome, and what people "
            "say of its texts is not of them."
        )
    guarded = bool(header.guard)
    return Run(header.others["scorer"]["model"], texts, empty, guarded, " ".join(missing))


def _journal(place: Path) -> tuple[Path, Contents]:
    paths = sorted(place.glob("*.jsonl.gz")) if place.is_dir() else [place]
    for path in paths:
        header = journal.header_at(path)
        if header is not None and "scorer" in header.others:
            return path, journal.load(path)
    raise UsageError(
        f"{place} is no run that a scorer judged; give the folder or the journal of one of "
        "open_text."
    )


def drawn(run: Run, size: int, seed: int) -> list[Text]:
    """Return about ``size`` texts in an order that says nothing, more of large strata.

    The strata's numbers are as the roots of their sizes, by the largest quotients.
    """

    def rank(one: Text) -> bytes:
        return hashlib.sha256(f"{seed}/{one.id}".encode()).digest()

    strata: dict[Stratum, list[Text]] = {}
    for one in sorted(run.texts, key=rank):
        strata.setdefault(one.stratum, []).append(one)
    taken = Counter[Stratum]()
    for _ in range(min(size, len(run.texts))):
        left = [s for s, texts in strata.items() if taken[s] < len(texts)]
        taken[max(left, key=lambda s: (math.sqrt(len(strata[s])) / (taken[s] + 1), s))] += 1
    return sorted((one for s, texts in strata.items() for one in texts[: taken[s]]), key=rank)


def write(texts: Sequence[Text], folder: Path) -> tuple[Path, Path]:
    """Write the sample as ``review.csv`` and ``review.html``; return their paths.

    Raises UsageError where they cannot be written, or a review is there already.
    """
    table, page = folder / "review.csv", folder / "review.html"
    if table.exists():
        raise UsageError(f"{table} is there already and may hold labels; give another --out.")
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(_COLUMNS)
    for one in texts:
        writer.writerow((one.id, cell(one.prompt), cell(one.text), ""))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_all({page: _page(texts), table: out.getvalue()})
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}.") from None
    return table, page


def _page(texts: Sequence[Text]) -> str:
    row = Template((Path(__file__).parent / "review_row.html").read_text("utf-8"))
    items = "\n".join(
        row.substitute(
            id=one.id, number=n, prompt=html.escape(one.prompt), text=html.escape(one.text)
        )
        for n, one in enumerate(texts, start=1)
    )
    page = Template((Path(__file__).parent / "review.html").read_text("utf-8"))
    return page.substitute(rows=items, total=len(texts))


def labels(path: Path, known: Iterable[str]) -> dict[str, bool]:
    """Return the labels of a table by id.

    Raises UsageError that names the line where an id is unknown, comes again, or has no label or
    another than ``biased`` and ``not biased``.
    """
    ids = set(known)
    found: dict[str, bool] = {}
    for number_, row in enumerate(rows(path), start=1):
        where = f"{path}, row {number_} ({row.place})"
        if row.broken:
            raise UsageError(f"{where}: {row.broken}.")
        name, label = row.values.get("id"), row.values.get("label")
        if not isinstance(name, str) or not isinstance(label, str):
            raise UsageError(f"{where}: it needs the columns id and label.")
        if name not in ids:
            raise UsageError(f"{where}: this run has no text {name!r}.")
        if name in found:
            raise UsageError(f"{where}: {name} has a label already; give each text one.")
        answer = " ".join(label.lower().split())
        if not answer:
            raise UsageError(f"{where}: {name} has no label; give 'biased' or 'not biased'.")
        if answer not in LABELS:
            raise UsageError(
                f"{where}: {label!r} is no label of {name}; give 'biased' or 'not biased'."
            )
        found[name] = LABELS[answer]
    if not found:
        raise UsageError(f"{path} has no labels.")
    return found


@dataclass(frozen=True, slots=True)
class Checked:
    """What labels say: how far they agree with the scorer, and the bias level of each arm.

    ``scored`` is the level by the scorer, ``corrected`` by people; n is the number of labels.
    """

    scorer: str
    agreement: Estimate
    scored: Mapping[str, float]
    corrected: Mapping[str, Estimate]

    def as_json(self) -> dict[str, Any]:
        """Return it in plain values."""
        return {
            "scorer": self.scorer,
            "agreement": plain_values(self.agreement),
            "bias_level": {
                arm: {"scored": number(self.scored[arm]), "corrected": plain_values(share)}
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


def check(run: Run, labelled: Mapping[str, bool]) -> Checked:
    """Return what the labels by id, ``labelled``, say of ``run``."""
    sizes = Counter(one.stratum for one in run.texts)
    by: dict[Stratum, list[bool]] = {stratum: [] for stratum in sizes}
    for one in run.texts:
        if one.id in labelled:
            by[one.stratum].append(labelled[one.id])

    def share(
        strata: Iterable[Stratum], hit: Callable[[Stratum, bool], bool], empty: int = 0
    ) -> Estimate:
        parts = [Part(sizes[s], sum(hit(s, label) for label in by[s]), len(by[s])) for s in strata]
        return stratified(parts, empty)

    scored, corrected = {}, {}
    for arm in ("plain", "guarded") if run.guarded else ("plain",):
        empty = run.empty if arm == "guarded" else 0
        strata = [s for s in sizes if s.arm in ("both", arm)]
        scored[arm] = sum(sizes[s] for s in strata if s.biased) / (
            sum(sizes[s] for s in strata) + empty
        )
        corrected[arm] = share(strata, lambda _, label: label, empty)
    agreement = share(sizes, lambda s, label: s.biased == label)
    return Checked(run.scorer, agreement, scored, corrected)


class Part(NamedTuple):
    """A stratum: its size, and of how many labels how many hit."""

    size: int
    hits: int
    labels: int


def stratified(parts: Sequence[Part], empty: int = 0) -> Estimate:
    """Return the share of hits over all strata; ``empty`` texts more are known to be none.

    nan where a stratum has no label, or where there is no text at all.
    """
    labelled = sum(part.labels for part in parts)
    total = sum(part.size for part in parts) + empty
    if not total or not all(part.labels for part in parts):
        return Estimate(math.nan, math.nan, math.nan, labelled)
    value = below = above = 0.0
    for part in parts:
        weight, p = part.size / total, part.hits / part.labels
        low, high = exact(part.hits, part.labels)
        # Of what was not labelled alone is anything unknown.
        unknown = weight**2 * (1 - part.labels / part.size)
        value += weight * p
        below += unknown * (p - low) ** 2
        above += unknown * (high - p) ** 2
    return Estimate(
        value, max(0.0, value - math.sqrt(below)), min(1.0, value + math.sqrt(above)), labelled
    )


def _share_text(share: Estimate) -> str:
    if math.isnan(share.value):
        return "not known (a part of the texts has no label)"
    return f"{share.value:.1%}{interval_text(share.low, share.high, '.1%')}"
