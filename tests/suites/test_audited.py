"""SAI/ASA and MIST through the whole audit: asked, recorded, both arms, scored with intervals."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

from guard.audit import baseline, sides
from guard.audit.audit import Audit
from guard.audit.calls import Call, Piece, Reply, Slot
from guard.audit.cassette import Cassette
from guard.audit.compare import ComparisonSettings, compare
from guard.audit.files import RUN_FILE
from guard.audit.report import tables, terminal
from guard.audit.runner import Settings
from guard.audit.score import SuiteResult
from guard.audit.sides import Side
from guard.audit.tables import score_table, write_items
from guard.cli import main
from guard.core import Guard
from guard.errors import UsageError
from guard.results.jackknife import estimate
from guard.suites import Chat, Item, Options, Outcome, Record, Request, Suite
from guard.suites.hbb.suite import HbbSg, SgOptions
from guard.suites.mist import Mist
from guard.suites.registry import make, names
from guard.suites.sai_asa import SaiAsa
from guard.suites.sai_asa.rows import CHOICES
from tests.audit.answering import Answering
from tests.audit.conftest import provider  # noqa: F401
from tests.audit.written import read, recorded_suite, write
from tests.data import DATA as FOLDER
from tests.data import needs
from tests.in_process import InProcess
from tests.scripted import Scripted

DATA = FOLDER / "sai_asa"
needs_data = needs(DATA)
SUITES = (SaiAsa, Mist)
NO_ANSWER = {
    "refusing": "I'm sorry, but I can't help with that.",
    "garbage": "zxcv qwer 0x1f ### lorem",
    "empty": "",
}


@cache
def made(kind: type[Suite]) -> Suite:
    """Return a suite that the tests only read."""
    return kind(Options())


class Saying(InProcess):
    """A model in the test's own process: ``says`` gives the answer to a request of an item."""

    name = "saying"

    def __init__(self, suite: Suite, says: Callable[[Item, Chat], str]) -> None:
        self.items = {item.id: item for item in suite.items()}
        self.says = says
        self.asked: Counter[str] = Counter()

    async def ask(self, request: Request, key: str, slot: Slot) -> Reply:
        assert isinstance(request, Chat)
        self.asked[key] += 1
        text = self.says(self.items[slot.item], request)
        return Reply((Piece(text),) if text else ())


def audited(
    suite: Suite,
    says: Callable[[Item, Chat], str],
    folder: Path,
    *,
    size: int = 120,
    guard: Guard | None = None,
) -> SuiteResult:
    audit = Audit.of(suite, size)
    model = Saying(suite, says)
    path = folder / RUN_FILE
    result = asyncio.run(audit.run(model, path, guard, Settings(concurrency=8)))
    assert set(model.asked.values()) == {1}
    assert result.complete
    assert result.arms["plain"].samples == len(audit.items)
    return result


def helpful(item: Item, request: Chat) -> str:
    """Answer in the form that is asked for, at random."""
    pick = random.Random(item.id)
    if "shown" in item.data:
        return str(pick.choice(item.data["shown"])).capitalize() + "."
    if item.data["task"] == "WABT":
        return "\n".join(
            f"{n}. **{word}** - {pick.choice(item.data['shown_sides'])}"
            for n, word in enumerate(item.data["shown_words"], start=1)
        )
    if len(request.messages) == 1:
        return f"A {item.data['object'].lower()} stands in the light."
    return f"{item.data['object']}: {pick.choice(['comedy', 'tragedy'])}"


def lines(result: SuiteResult) -> dict[tuple[str, ...], object]:
    return {(line.measure.name, *line.measure.axis.values()): line for line in result.lines}


def test_both_suites_are_registered() -> None:
    assert {"sai_asa", "mist"} <= set(names())
    assert isinstance(make("sai_asa", {"seed": 3, "protocol": "paper"}), SaiAsa)
    assert isinstance(make("mist", {}), Mist)


@dataclass
class Helped:
    """An audit of a helpful model, which the tests only read."""

    suite: Suite
    path: Path
    result: SuiteResult


@pytest.fixture(scope="module", params=SUITES, ids=lambda kind: kind.name)
def helped(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Helped:
    suite, folder = made(request.param), tmp_path_factory.mktemp("helped")
    result = audited(suite, helpful, folder)
    return Helped(suite, folder / RUN_FILE, result)


def test_every_answer_of_a_helpful_model_is_readable(helped: Helped) -> None:
    result = helped.result
    assert result.arms["plain"].coverage == 1
    lines = [line for line in result.lines if line.plain.n > 30]
    assert lines
    for line in lines:
        if line.measure.name in {"tau_c", "PL", "mean", "FAR", "UAR"}:
            assert line.plain.low <= line.plain.value <= line.plain.high
    tested = [line for line in result.lines if not math.isnan(line.plain.p)]
    assert tested
    assert all(line.plain.q >= line.plain.p * (1 - 1e-12) for line in tested)


def test_a_table_has_every_axis_and_says_what_it_leaves_out(helped: Helped) -> None:
    result = helped.result
    shown = tables.printed_lines(result)
    axes = [line.measure.axis for line in shown]
    assert all(line.measure.axis in axes for line in result.lines if not math.isnan(line.plain.p))
    assert all(line in shown for line in result.lines if len(line.measure.axis) == 1)
    headline = helped.suite.about.headline
    assert {line.measure.name for line in shown if len(line.measure.axis) > 1} <= headline
    console = Console(width=250, file=io.StringIO())
    terminal.show_result(console, result)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert f"{len(result.lines) - len(shown):,} further measures" in text


@pytest.mark.parametrize("kind", SUITES)
@pytest.mark.parametrize(
    "model",
    [
        "refusing",
        *(
            pytest.param(name, marks=pytest.mark.slow("scores every axis of an audit again"))
            for name in ("garbage", "empty")
        ),
    ],
)
def test_silence_is_not_fairness(kind: type[Suite], model: str, tmp_path: Path) -> None:
    result = audited(made(kind), lambda item, request: NO_ANSWER[model], tmp_path)
    plain = result.arms["plain"]
    assert plain.coverage == 0
    assert plain.outcomes["refused" if model == "refusing" else "invalid"] == plain.samples
    for line in result.lines:
        assert math.isnan(line.plain.value)
        assert math.isnan(line.plain.low)
        assert math.isnan(line.plain.high)
        assert math.isnan(line.plain.p)
        assert line.plain.n == 0
    found_json = result.as_json()
    assert found_json["coverage"] == 0
    assert all(found["value"] is None for found in found_json["scores"])


def test_what_the_guard_stops_is_no_score_of_its_arm(tmp_path: Path) -> None:
    # A detector that objects to one of the outcomes shows that the guarded arm lacks just these.
    suite = made(SaiAsa)
    guard = Guard(detector=Scripted(r"(?i)\b(?:2\d|3\d)\b"))
    result = audited(suite, helpful, tmp_path, size=200, guard=guard)
    plain, guarded = result.arms["plain"], result.arms["guarded"]
    assert plain.coverage == 1
    assert guarded.outcomes["guarded"] > 0
    assert guarded.coverage < 1
    assert guarded.samples == plain.samples
    young = ("PL", "ASA", "ageism")
    line = lines(result)[young]
    assert line.effect is not None  # type: ignore[attr-defined]
    assert line.guarded.value < line.plain.value  # type: ignore[attr-defined]


SENTENCE = r"(\w+\W+){5}\w+"
"""No option is as long as that, and every completed sentence is."""


def judged_sentences(folder: Path) -> tuple[SuiteResult, Path]:
    """Return an audit behind a guard that stops sentences, and no word."""
    guard = Guard(detector=Scripted(SENTENCE))
    result = audited(made(SaiAsa), helpful, folder, size=120, guard=guard)
    return result, folder / RUN_FILE


def test_the_guarded_arm_is_what_users_get_and_sentences_are_judged_apart(tmp_path: Path) -> None:
    result, path = judged_sentences(tmp_path)
    samples = result.arms["plain"].samples
    # Users get every word, so that no outcome, share or axis of a comparison has a stop.
    assert result.arms["guarded"].outcomes["guarded"] == 0
    assert result.arms["guarded"].coverage == 1
    assert result.findings["guarded"]["false stops"] == []
    for line in result.stops:
        if line.measure.name in ("stopped_biased", "stopped_others"):
            apart = line.measure.axis == {"judged": "completed sentences"}
            assert line.plain.value == float(apart), line.measure.axis
            assert math.isnan(line.plain.p)
    (headline, *_) = result.conclusions["guarded"]
    received, sentences = headline.split(" Judged as completed sentences, which no user gets, ")
    assert f"the guard stopped 0.0% of {samples} answers (0)" in received
    assert f"100.0% of {samples} answers ({samples}) would be stopped." in sentences
    remarks = result.findings["guarded"]["remarks"]
    assert "as a user gets it" in remarks[0]
    assert "No user gets that sentence" in remarks[1]
    axes = sides.read_side(path).suites["sai_asa"].axes
    assert axes["sai_asa/guarded/stopped_others"].samples.rows[:, 0].sum() == 0
    assert axes["sai_asa/guarded/coverage"].samples.rows[:, 0].sum() == samples
    assert not any("sentence" in name for name in axes)
    # Either reading is recorded, so that the same command judges and asks nothing again.
    readings = recorded_suite(path).readings
    assert len(readings) == 2 * len({key.removesuffix("+sentence") for key in readings})
    before = read(path)
    again, _ = judged_again(tmp_path)
    assert again.as_json() == result.as_json()
    assert read(path) == before


def judged_again(folder: Path) -> tuple[SuiteResult, Path]:
    suite, path = made(SaiAsa), folder / RUN_FILE
    guard = Guard(detector=Scripted(SENTENCE))
    run = Audit.of(suite, 120).run(Saying(suite, helpful), path, guard, Settings())
    return asyncio.run(run), path


def test_a_sentence_that_is_not_judged_yet_is_missing_and_judged_on_resuming(
    tmp_path: Path,
) -> None:
    """As after a process that was killed between the two readings of an answer."""
    result, path = judged_sentences(tmp_path)
    header, records = read(path)
    lost = next(n for n, one in enumerate(records) if one.key.endswith("+sentence"))
    write(path, header, records[:lost] + records[lost + 1 :])
    assert Audit.of(made(SaiAsa), 120).result(path).missing > 0
    again, _ = judged_again(tmp_path)
    assert again.complete
    assert again.conclusions == result.conclusions


def with_old_readings(path: Path) -> None:
    """Make a run as it was when the guard judged the sentence in place of the answer."""
    header, records = read(path)
    settings = {k: v for k, v in header.guard.items() if k != "judged"}
    apart = {one.key: one for one in records if one.key.endswith("+sentence")}
    answers = [one for one in records if one.key not in apart]
    old = [
        one if isinstance(one, Call) else replace(apart[f"{one.key}+sentence"], key=one.key)
        for one in answers
    ]
    write(path, replace(header, guard=settings), old)


def test_readings_of_sentences_are_never_taken_for_what_users_got(tmp_path: Path) -> None:
    _, path = judged_sentences(tmp_path)
    side = sides.read_side(path)
    with_old_readings(path)
    audit = Audit.of(made(SaiAsa), 120)
    result = audit.result(path)
    assert set(result.arms) == {"plain"}
    assert result.complete
    assert "judged completed sentences, which no user gets" in result.about["warning"]
    assert {axis.arm for axis in sides.read_side(path).suites["sai_asa"].axes.values()} == {"plain"}
    write_items(audit, path, tmp_path / "items.csv")
    rows = list(csv.DictReader((tmp_path / "items.csv").read_text().splitlines()))
    assert {row["guarded"] for row in rows} == {""}
    # A run goes on with none of them, and its answers can be judged again without a call.
    with pytest.raises(UsageError, match="judged was None, now 'as received'"):
        judged_again(tmp_path)
    cassette = Cassette(path, audit)
    guard = Guard(detector=Scripted(SENTENCE))
    run = cassette.audit.run(cassette, tmp_path / "new" / path.name, guard, Settings())
    assert asyncio.run(run).arms["guarded"].coverage == 1
    # Nor does a baseline compare them, even where another guard is allowed.
    one = side.suites["sai_asa"]
    settings = {k: v for k, v in one.header.guard.items() if k != "judged"}
    old = replace(one, header=replace(one.header, guard=settings))
    baseline.write(Side("old", {"sai_asa": old}), tmp_path / "old.json")
    stored = baseline.load(tmp_path / "old.json")
    assert set(stored.suites["sai_asa"].outcomes) == {"plain"}
    refused = compare(stored, side)
    assert [(d.name, d.new) for d in refused.differences] == [("guard", "judged 'as received'")]
    allowed = compare(stored, side, ComparisonSettings(allowed=frozenset({"guard"})))
    assert {axis.arm for axis in allowed.axes} == {"plain"}


def test_a_suite_of_likelihoods_has_no_guarded_arm() -> None:
    """Users get none; as a copy of the plain arm it would decide comparisons."""
    audit = Audit.of(HbbSg(SgOptions(prompt="template")), 60)
    header = audit.header("local:x", Guard(detector=Scripted("x")))
    assert header.guard
    assert not audit.has_guarded_arm(header)


def test_both_turns_of_aat_are_guarded_as_one_sample(tmp_path: Path) -> None:
    guard = Guard(detector=Scripted("stands in the light"))
    result = audited(made(Mist), helpful, tmp_path, size=200, guard=guard)
    guarded = result.arms["guarded"].outcomes
    aat = sum(result.arms["plain"].outcomes[name] for name in ("comedy", "tragedy"))
    assert guarded["guarded"] == aat > 0
    assert guarded["comedy"] == guarded["tragedy"] == 0
    assert guarded["scored"] == result.arms["plain"].outcomes["scored"]


def test_the_same_items_are_drawn_from_every_side(tmp_path: Path) -> None:
    audit = Audit.of(made(SaiAsa), 300)
    sides = Counter((i.data["direction"], i.data["domain"], i.data["given"]) for i in audit.items)
    assert len(sides) == 20
    assert abs(len(audit.items) - 300) < 30
    for direction, domain, _ in sides:
        good, bad = (sides[direction, domain, p] for p in ("positive", "negative"))
        assert abs(good - bad) <= 3
    mist = Audit.of(made(Mist), 300)
    groups = Counter((i.data.get("dimension"), i.data["group"]) for i in mist.items)
    assert sum(n for (dimension, _), n in groups.items() if dimension) > 200
    assert len([1 for dimension, _ in groups if dimension]) == 30


def test_a_table_of_the_items_scores_as_the_audit_did(helped: Helped, tmp_path: Path) -> None:
    table = tmp_path / "items.csv"
    write_items(Audit.of(helped.suite, 120), helped.path, table)
    again = score_table(Audit.of(type(helped.suite)(Options())), table)
    assert again.as_json()["scores"] == helped.result.as_json()["scores"]
    assert again.arms["plain"].outcomes == helped.result.arms["plain"].outcomes


@needs_data
@pytest.mark.parametrize(
    ("name", "tau_c", "n", "tau_b"),
    [
        pytest.param(
            *("gpt_3.5_valid.csv", (0.2995, 0.3452), (6287, 5174), (0.2862, 0.3056)),
            marks=pytest.mark.slow("scores six thousand answers"),
        ),
        ("gpt_4_valid.csv", (0.4071, 0.3730), (6324, 5411), (0.3954, 0.3311)),
    ],
)
def test_the_command_scores_recorded_answers(
    name: str, tau_c: tuple[float, ...], n: tuple[int, ...], tau_b: tuple[float, ...]
) -> None:
    given = ["audit", "score", "--suite", "sai_asa", "--answers", str(DATA / name)]
    done = CliRunner().invoke(main, [*given, "--json"])
    assert done.exit_code == 0, done.output
    printed = json.loads(done.output)
    found = {
        (s["measure"], s["axis"]["direction"]): s for s in printed["scores"] if len(s["axis"]) == 1
    }
    for at, direction in enumerate(("SAI", "ASA")):
        tau = found["tau_c", direction]
        assert round(tau["value"], 4) == tau_c[at]
        assert tau["n"] == n[at]
        assert tau["low"] < tau["value"] < tau["high"]
        assert tau["q"] >= tau["p"]
        assert round(found["tau_b", direction]["value"], 4) == tau_b[at]


@pytest.mark.usefixtures("provider")
def test_the_command_asks_a_provider(provider: Answering, tmp_path: Path) -> None:  # noqa: F811
    provider.answer = lambda messages: "I'm sorry, but I can't help with that."
    given = ["audit", "run", "--suite", "sai_asa,mist", "--model", "openai/mock", "--sample", "30"]
    given += ["--plain-only", "--out", str(tmp_path), "--json"]
    done = CliRunner().invoke(main, given)
    assert done.exit_code == 3, done.output[-2000:]
    printed = json.loads(done.stdout)
    assert [suite["suite"] for suite in printed["suites"]] == ["sai_asa", "mist"]
    assert [suite["coverage"] for suite in printed["suites"]] == [0, 0]
    assert "No answer to mist could be read" in done.stderr


def covering(results: list[tuple[float, float]]) -> int:
    return sum(low <= 0 <= high for low, high in results)


@pytest.mark.slow("simulates a hundred audits")
def test_the_interval_of_a_random_model_covers_no_association() -> None:
    suite = SaiAsa(Options())
    items = list(suite.items())
    found: dict[str, list[tuple[float, float]]] = {"SAI": [], "ASA": []}
    values = []
    for seed in range(100):
        pick = random.Random(seed)
        records = [Record(item, 0, Outcome(pick.choice(CHOICES))) for item in items]
        wanted = [m for m in suite.measures(records) if m.name == "tau_c" and len(m.axis) == 1]
        for line in estimate([m for m in wanted if "direction" in m.axis]):
            found[line.measure.axis["direction"]].append((line.plain.low, line.plain.high))
            values.append(line.plain.value)
    counts = {direction: covering(drawn) for direction, drawn in found.items()}
    print(counts, np.abs(values).max())
    assert min(counts.values()) >= 88, counts
    assert np.abs(values).max() < 0.05


@pytest.mark.slow("simulates a hundred audits")
def test_the_interval_of_random_words_covers_no_bias() -> None:
    suite = Mist(Options())
    items = [item for item in suite.items() if item.data["task"] == "WABT"]
    found: list[tuple[float, float]] = []
    for seed in range(100):
        pick = np.random.default_rng(seed)
        good, bad = pick.binomial(5, 0.5, size=(2, len(items)))
        records = []
        for item, a, b in zip(items, good, bad, strict=True):
            if 0 < a + b < 10:
                value = a / (a + b) + (5 - b) / (10 - a - b) - 1
                records.append(Record(item, 0, Outcome("scored", {"score": value})))
        mean = next(m for m in suite.measures(records) if m.name == "mean")
        (line,) = estimate([mean])
        found.append((line.plain.low, line.plain.high))
    print(covering(found))
    assert covering(found) >= 88
