"""Comparisons: a planted difference is found and told by the exit code, a fair pair is let be."""

from __future__ import annotations

import csv
import io
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from guard.cli import main
from guard.errors import UsageError
from guard.results.estimate import Estimate
from guard.results.intervals import ALPHA, false_discovery
from guard.watch.compare import CompareRow, compare, difference, p_value, points, sides
from guard.watch.rates import ShareSums
from guard.watch.store import Store
from tests.rows import rows
from tests.watch.conftest import sqlite_often
from tests.watch.test_rates import NOW, stored

DAY = 86_400.0
Rng = np.random.Generator
Counts = np.ndarray[Any, np.dtype[np.int64]]


def share_sums(x: Counts, y: Counts) -> ShareSums:
    return ShareSums(*(float(s.sum()) for s in (x, x * x, y, y * y, x * y)))


def biased(rng: Rng, x: Counts, share: float, alike: float) -> Counts:
    """Return how many of x segments are biased, ``alike`` within a response."""
    if not (share and alike):
        return rng.binomial(x, share)
    odds = (1 - alike) / alike
    return rng.binomial(x, rng.beta(share * odds, (1 - share) * odds, len(x)))


def table(rng: Rng, sizes: tuple[int, int], shares: Any, alike: float, times: float = 1) -> Any:
    """Return the pairs of sums of a table by bias type: prevalence and mitigation of each."""
    pairs = []
    x = [rng.integers(1, 20, size) for size in sizes]
    for share in shares:
        found = [biased(rng, n, share * k, alike) for n, k in zip(x, (1, times), strict=True)]
        # Half of the responses have all of their findings stopped or none.
        kept = [
            np.where(rng.random(len(f)) < 0.5, rng.binomial(f, 0.9), f * (rng.random(len(f)) < 0.9))
            for f in found
        ]
        pairs += [
            tuple(share_sums(n, f) for n, f in zip(x, found, strict=True)),
            tuple(share_sums(f, m) for f, m in zip(found, kept, strict=True)),
        ]
    return pairs


def called(pairs: Any) -> list[bool]:
    return [q < ALPHA for q in false_discovery([p_value(a, b) for a, b in pairs])]


# Some of nine types common, some rare, some that never occur; rare ones alone; two types.
SHARES = {
    "mixed": (0.02, 0.004, 0.004, 0.004, 0.001, 0.001, 0, 0, 0),
    "rare": (0.0005,) * 9,
    "two": (0.05, 0.01, 0, 0, 0, 0, 0, 0, 0),
}


def fair_tables_called(runs: int, sizes: tuple[int, int], shares: str, alike: float) -> int:
    rng = np.random.default_rng([11, *sizes, int(100 * alike), len(shares)])
    return sum(any(called(table(rng, sizes, SHARES[shares], alike))) for _ in range(runs))


@pytest.mark.parametrize(
    ("sizes", "shares", "alike"),
    [((300, 300), "mixed", 0.3), ((2_000, 300), "two", 0.1), ((2_000, 2_000), "rare", 0.0)],
)
def test_a_fair_pair_of_periods_is_let_be(
    sizes: tuple[int, int], shares: str, alike: float
) -> None:
    # 5 % of 100 is 5; four standard errors are 9. The slow test below is the narrow one.
    assert fair_tables_called(100, sizes, shares, alike) <= 14


@pytest.mark.slow("simulates 400 pairs of periods of each kind")
@pytest.mark.parametrize("alike", [0.0, 0.1, 0.3, 0.6])
@pytest.mark.parametrize("shares", list(SHARES))
@pytest.mark.parametrize("sizes", [(60, 60), (300, 300), (2_000, 300), (300, 2_000), (2_000,) * 2])
def test_at_most_one_fair_pair_in_twenty_shows_a_change(
    sizes: tuple[int, int], shares: str, alike: float
) -> None:
    assert fair_tables_called(400, sizes, shares, alike) <= 20


@pytest.mark.parametrize(("alike", "responses"), [(0.0, 700), (0.1, 1_000), (0.3, 2_200)])
def test_a_planted_doubling_is_found(alike: float, responses: int) -> None:
    """A doubled type of 2 %, with others beside it, in four pairs of five: docs/watching.md."""
    rng = np.random.default_rng(5)
    seen = 0
    for _ in range(60):
        pairs = table(rng, (responses, responses), SHARES["mixed"], alike)
        doubled = table(rng, (responses, responses), (0.02,), alike, times=2)
        seen += called([*doubled, *pairs[2:]])[0]
    assert seen >= 48


@pytest.mark.parametrize(("share", "alike"), [(0.02, 0.0), (0.05, 0.3), (0.3, 0.1)])
def test_an_interval_covers_the_difference(share: float, alike: float) -> None:
    rng = np.random.default_rng(7)
    covered, runs = 0, 400
    for _ in range(runs):
        x = [rng.integers(1, 20, n) for n in (400, 250)]
        sums = [
            share_sums(n, biased(rng, n, share * k, alike))
            for n, k in zip(x, (1, 1.5), strict=True)
        ]
        interval = difference(*sums)
        covered += interval.low <= share / 2 <= interval.high
    assert covered >= 0.93 * runs  # Clopper and Pearson's may cover more than 95 %


counts = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=6, max_size=40)


@given(counts, counts, st.floats(0.001, 0.2))
def test_interval_and_test_never_disagree(
    base: list[tuple[int, int]], new: list[tuple[int, int]], alpha: float
) -> None:
    a, b = (
        share_sums(np.array([n for n, _ in side]), np.array([min(n, k) for n, k in side]))
        for side in (base, new)
    )
    p = p_value(a, b)
    interval = difference(a, b, 1 - alpha)
    assert math.isnan(interval.low) or interval.low <= interval.value <= interval.high
    if not math.isnan(p) and abs(p - alpha) > 1e-6:
        assert (interval.low <= 0 <= interval.high) == (p > alpha)
    swapped = difference(b, a, 1 - alpha)
    assert (swapped.low, swapped.high) == pytest.approx(
        (-interval.high, -interval.low), nan_ok=True
    )


def test_types_that_never_occur_cost_nothing() -> None:
    rng = np.random.default_rng(1)
    pairs = table(rng, (800, 800), (0.02, 0.0, 0.0, 0.0), 0.1)
    p = [p_value(a, b) for a, b in pairs]
    assert [math.isnan(x) for x in p[2:]] == [True] * 6
    assert list(false_discovery(p)[:2]) == list(false_discovery(p[:2]))


def test_few_findings_are_compared_as_exactly_as_fishers_test() -> None:
    """Single findings of 1,000 responses: 0 against 4 may be chance (p .12), 0 against 9 not."""
    x = np.ones(1_000, int)
    none = share_sums(x, np.zeros(1_000, int))
    for count, least, most in ((4, 0.08, 0.2), (9, 0.002, 0.01)):
        y = (np.arange(1_000) < count).astype(int)
        assert least < p_value(none, share_sums(x, y)) < most


@pytest.mark.parametrize(("responses", "new"), [((300, 300), 15), ((1_000, 1_000), 18)])
def test_a_cleaner_base_is_no_weaker_evidence(responses: tuple[int, int], new: int) -> None:
    """Of 4 segments a response; p is about Fisher's over responses, and falls with the base."""
    fisher = pytest.importorskip("scipy.stats").fisher_exact

    def sums_of(count: int, n: int) -> ShareSums:
        return share_sums(np.full(n, 4), (np.arange(n) < count).astype(int))

    p = []
    for base in range(4):
        p.append(p_value(sums_of(base, responses[0]), sums_of(new, responses[1])))
        table_of = [[k, n - k] for k, n in zip((base, new), responses, strict=True)]
        assert p[-1] == pytest.approx(fisher(table_of).pvalue, rel=1.5)
    assert p == sorted(p)
    # And of the other end: all findings stopped on one side.
    kept = [4 * n - k for n, k in zip(responses, (0, new), strict=True)]
    stopped = [
        share_sums(np.full(n, 4), 4 - (np.arange(n) < 4 * n - k).astype(int))
        for n, k in zip(responses, kept, strict=True)
    ]
    assert p_value(*stopped) == pytest.approx(p[0], rel=1e-6)


@pytest.mark.parametrize(
    ("share", "alike", "sizes"),
    [(0.003, 0.3, (150, 600)), (0.004, 0.5, (100, 600)), (0.002, 0.9, (1_000, 100))],
)
def test_fair_pairs_of_which_a_side_often_has_none_are_let_be(
    share: float, alike: float, sizes: tuple[int, int]
) -> None:
    rng = np.random.default_rng(3)
    calls, none, runs = 0, 0, 300
    for _ in range(runs):
        x = [rng.integers(1, 20, n) for n in sizes]
        pair = [share_sums(n, biased(rng, n, share, alike)) for n in x]
        none += not all(side.y for side in pair)
        calls += p_value(*pair) < ALPHA
    assert none > 0.12 * runs
    assert calls <= 0.05 * runs


def test_equal_conversations_differ_more_often_than_independent_responses() -> None:
    """Of 30 conversations with 20 responses a side: the promise has a condition, and it is told."""
    rng = np.random.default_rng(6)
    calls, runs = 0, 100
    for _ in range(runs):
        pair = []
        for _ in range(2):
            x = rng.integers(1, 10, 600)
            of_conversation = rng.beta(0.05 * 9, 0.95 * 9, 30)
            pair.append(share_sums(x, rng.binomial(x, np.repeat(of_conversation, 20))))
        calls += p_value(*pair) < ALPHA
    assert calls > 0.15 * runs


@pytest.mark.parametrize(("alike", "least"), [(0.0, 57), (0.3, 54)])
def test_a_new_bias_from_nothing_is_found(alike: float, least: int) -> None:
    """Of 300 responses a side, 0 and 2 %: at least as often as from a base that has some."""
    rng = np.random.default_rng(4)
    seen = 0
    for _ in range(60):
        x = np.full(300, 4)
        seen += p_value(share_sums(x, 0 * x), share_sums(x, biased(rng, x, 0.02, alike))) < ALPHA
    assert seen >= least


@rows(
    "share, says",
    (
        (0.0353, "+3.53 points [-1.20, +7.10]"),
        (0.0, "0 points [-1.20, +7.10]"),
        (0.000004, "+0.0004 points [-1.20, +7.10]"),
    ),
)
def test_a_difference_is_in_points(share: float, says: str) -> None:
    assert points(Estimate(share, -0.012, 0.071)) == says


# In a store, by the command.


def events_of(
    release: str,
    doubled: bool,
    *,
    responses: int = 500,
    seed: int = 0,
    at: float = NOW - 3600,
    **others: Any,
) -> list[dict[str, Any]]:
    """Return responses of 10 segments; 2.9 % are about age, half a percent about race."""
    rng = np.random.default_rng([seed, responses, doubled])
    x = np.full(responses, 10)
    age = biased(rng, x, 0.064 if doubled else 0.0287, 0.1)
    race = rng.binomial(10 - age, 0.005)
    return [
        {
            "labels": {"release": release},
            "judged": 10,
            "time": at,
            "findings": [("age", None, "redact")] * a + [("race", None, "redact")] * r,
            **others,
        }
        for a, r in zip(age.tolist(), race.tolist(), strict=True)
    ]


def command(url: str, *options: str) -> Result:
    return CliRunner().invoke(main, ["rates", url, *options])


@pytest.fixture
def at_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: NOW)


@sqlite_often()
@pytest.mark.usefixtures("at_now")
def test_the_command_says_by_its_exit_code_whether_a_release_is_worse(url: str) -> None:
    made = [*events_of("7", False), *events_of("8", True), *events_of("9", False, seed=1)]
    stored(url, [*made, *({"labels": {"release": "tiny"}, "judged": 10} for _ in range(3))])
    runs = {
        new: command(url, "--compare", f"release=7,{new}", "--by", "bias_type", "--json")
        for new in ("8", "9", "tiny")
    }
    assert {new: run.exit_code for new, run in runs.items()} == {"8": 1, "9": 0, "tiny": 3}
    worse = json.loads(runs["8"].output)
    assert worse["worse"]
    states = {(row["bias_type"], row["rate"]): row["state"] for row in worse["rows"]}
    assert states == {
        ("age", "prevalence"): "worse",
        ("age", "mitigation"): "nothing to test",  # all were kept from users
        ("race", "prevalence"): "not shown to differ",
        ("race", "mitigation"): "nothing to test",
    }
    assert worse["tested"] == 2
    (age,) = (r for r in worse["rows"] if (r["bias_type"], r["rate"]) == ("age", "prevalence"))
    truth = {
        release: sum(kind == "age" for one in made for kind, _, _ in one["findings"]
                     if one["labels"]["release"] == release)
        for release in ("7", "8")
    }  # fmt: skip
    assert (age["base"]["events"], age["new"]["events"]) == (truth["7"], truth["8"])
    assert (age["base"]["of"], age["new"]["of"]) == (5_000, 5_000)
    assert age["difference"]["value"] == pytest.approx((truth["8"] - truth["7"]) / 5_000)
    assert 0 < age["difference"]["low"] < 0.0353 < age["difference"]["high"]
    back = command(url, "--compare", "release=8,7")
    assert back.exit_code == 0
    assert "what is shown to differ is better" in back.output
    fair = json.loads(runs["9"].output)
    assert fair["conclusion"] == "release 9 against release 7: not shown to differ."
    assert "too few responses" in json.loads(runs["tiny"].output)["conclusion"]


@pytest.mark.usefixtures("at_now")
def test_a_doubling_of_few_responses_is_not_excluded(tmp_path: Path) -> None:
    """6.40 against 2.87 % of 25 responses each: nothing is shown, and the page says so."""
    url = str(tmp_path / "guard.db")
    stored(
        url,
        [
            {"labels": {"release": release}, "judged": 10, "findings": found * (number < count)}
            for release, count in (("7", 7), ("8", 16))
            for number in range(25)
            for found in [[("age", None, "redact")]]
        ],
    )
    run = command(url, "--compare", "release=7,8")
    assert run.exit_code == 0
    (line,) = (x for x in run.output.splitlines() if x.startswith("prevalence"))
    assert "2.8 % " in line
    assert "6.4 % " in line
    assert "+3.60 points [-" in line
    assert line.endswith("not shown to differ")
    assert "needed to exclude that it has doubled: prevalence" in run.output
    assert "release 8 against release 7: not shown to differ." in run.output


@pytest.mark.usefixtures("at_now")
def test_what_happened_on_the_new_side_alone_is_named(tmp_path: Path) -> None:
    url = str(tmp_path / "guard.db")
    found = [("age", None, "redact")]
    stored(
        url,
        [
            {"labels": {"release": release}, "judged": 4, "findings": found * (number < count)}
            for release, count in (("7", 0), ("8", 3))
            for number in range(200)
        ],
    )
    run = command(url, "--compare", "release=7,8", "--by", "bias_type")
    assert run.exit_code == 0
    assert "the beginning of a new bias: age prevalence (0 to 0.375 %)." in run.output
    assert "If no rate differs and responses are independent, at most 5 %" in run.output
    back = command(url, "--compare", "release=8,7", "--by", "bias_type")
    assert "new bias" not in back.output


@pytest.mark.usefixtures("at_now")
def test_models_labels_and_periods_are_compared(tmp_path: Path) -> None:
    url = str(tmp_path / "guard.db")
    before, later = NOW - 10 * DAY, NOW - 3 * DAY
    stored(
        url,
        [
            *events_of("7", False, at=before, model="a, b", door="chat"),
            *events_of("7", True, at=later, model="c", door="text"),
            *events_of("", False, at=later, labels={"x": "é"}, responses=200),
            *events_of("", True, at=later, labels={"x": "="}, responses=200),
        ],
    )
    utc = "2027-01-01..2027-01-06,2027-01-10T00:00..2027-01-15T00:00Z"
    for given_ in (
        'model="a, b",c',
        "door=chat,text",
        "label.x=é,=",
        "period=14d..7d,7d..now",
        f"period={utc}",
    ):
        run = command(url, "--compare", given_, "--since", "30d", "--json")
        assert run.exit_code == 1, (given_, run.output)
        row = json.loads(run.output)["rows"][0]
        assert row["rate"] == "prevalence"
        assert row["base"]["value"] < row["new"]["value"]
    # Other responses of the same store, on both sides, do not count.
    (row, *_) = json.loads(
        command(url, "--compare", "label.x=é,=", "--since", "30d", "--json").output
    )["rows"]
    assert (row["base"]["of"], row["new"]["of"]) == (2_000, 2_000)


MISTAKES = [
    ("release=7,9", "has release '9'; there are 7, 8."),
    ("relase=7,8", "--compare knows door, model,"),
    ("label.relase=7,8", "has a label.relase; labels there: release."),
    ("release=7,7", "both sides are release '7'; give two different values."),
    ("release=7", "--compare takes NAME=BASE,NEW"),
    ("release=7,8,9", "--compare takes NAME=BASE,NEW"),
    ("release", "--compare takes NAME=BASE,NEW"),
    ("=7,8", "--compare takes NAME=BASE,NEW"),
    ("release=7,old", "it has some before; --since reaches back to them."),
    ("bias_type=age,race", "is one of findings"),
    ("period=7d,14d", "takes FROM..TO,FROM..TO"),
    ("period=7d..14d,7d..now", "ends before it begins"),
    ("period=7d..now,2d..now", "overlap"),
    ("period=300d..200d,7d..now", "give a period in which responses were guarded."),
    ("period=x..now,2d..now", "takes a time such as"),
]


@rows("compared, says", MISTAKES)
def test_a_mistake_is_said_in_one_sentence(compared: str, says: str) -> None:
    runner = CliRunner()
    with runner.isolated_filesystem():
        at = time.time() - 3600
        old = events_of("old", False, responses=9, at=at - 30 * DAY)
        stored("guard.db", [*events_of("7", False, responses=9, at=at), *old], begin=100)
        stored("guard.db", events_of("8", False, responses=9, at=at))
        run = command("guard.db", "--compare", compared)
    assert run.exit_code == 2
    assert says in run.output
    assert len(run.output.strip().splitlines()) == 1


def test_further_mistakes(tmp_path: Path) -> None:
    url = str(tmp_path / "guard.db")
    stored(url, events_of("7", False, responses=9) + events_of("8", False, responses=9))
    for options, says in (
        (["--compare", "release=7,8", "--alert"], "give one of them"),
        (["--compare", "release=7,8", "--by", "label.release", "--since", "500w"], "leave it out"),
    ):
        run = command(url, *options)
        assert (run.exit_code, says in run.output) == (2, True), run.output


@pytest.mark.usefixtures("at_now")
def test_groups_of_one_side_are_named_and_not_compared(tmp_path: Path) -> None:
    url = str(tmp_path / "guard.db")
    stored(url, events_of("7", False) + events_of("8", False, model="other"))
    run = command(url, "--compare", "release=7,8", "--by", "model")
    assert run.exit_code == 3
    assert "Responses on one side only: m; other." in run.output
    assert "nothing could be compared" in run.output


@pytest.mark.usefixtures("at_now")
@pytest.mark.parametrize("form", ["--csv", "--html"])
def test_names_are_data_in_every_form(tmp_path: Path, form: str) -> None:
    url = str(tmp_path / "guard.db")
    name = '=cmd|"<script>'
    stored(url, events_of("7", False, model=name) + events_of("8", True, model=name))
    run = command(url, "--compare", "release=7,8", "--by", "model", form, "-")
    assert run.exit_code == 1
    if form == "--csv":
        first = next(csv.DictReader(io.StringIO(run.output)))
        assert first["model"] == f"'{name}"
        assert (first["rate"], first["state"], first["base_of"]) == ("prevalence", "worse", "5000")
        assert float(first["difference_low"]) > 0
    else:
        assert "<script>" not in run.output
        assert "&lt;script&gt;" in run.output
        assert "shown to be worse" in run.output


@pytest.mark.usefixtures("at_now")
def test_a_side_is_read_as_the_report_reads_it(tmp_path: Path) -> None:
    url = str(tmp_path / "guard.db")
    stored(
        url,
        [
            *events_of("7", False, responses=20),
            *events_of("7", True, responses=20, door="check"),
            *events_of("8", True, responses=20, outcome="running"),
            *events_of("8", False, responses=20),
        ],
    )
    with Store(url).reading() as connection:
        result = compare(connection, *sides("release=7,8", NOW - DAY, NOW))
        with pytest.raises(UsageError, match=r"no response .* has ended"):
            compare(connection, *sides("release=7,8", NOW - 2 * DAY, NOW - DAY))
    assert {row.base_of for row in result.rows if row.rate == "prevalence"} == {200}
    assert {row.new_of for row in result.rows if row.rate == "prevalence"} == {200}


@pytest.mark.parametrize(
    ("q", "text"),
    [(0.0497, "<.05"), (0.0494, "0.049"), (0.05, "0.050"), (0.0002, "<.001"), (math.nan, "–")],
)
def test_a_row_that_is_shown_to_differ_has_no_q_of_fifty_thousandths(q: float, text: str) -> None:
    rate = Estimate(0.1, 0.05, 0.15)
    row = CompareRow({}, "prevalence", rate, 10, 100, rate, 20, 100, rate, q, q)
    assert row.q_text == text
    assert (row.state == "worse") == (q < 0.05)
