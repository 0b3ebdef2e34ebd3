"""A cascade of two detectors: which one judges, by when, and what happens when it does not."""

from __future__ import annotations

import json
import logging
import math
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard import Guard
from guard.detect import band_files
from guard.detect.band import BandCascade, LaterFailed
from guard.detect.band_files import (
    DEFAULT_BAND,
    EMPTY,
    Band,
    band_place,
    own_place,
    read_band,
    shipped_place,
    write_band,
)
from guard.detect.deferral import STRICT_TO_QUIET, Scale
from guard.detect.named import detector_named
from guard.detect.protocol import Detector
from guard.detect.serving import WindowJudge
from guard.errors import ConfigError, WeightsError
from guard.places import DetectorName, encoders_in, shipped_in
from guard.policy import DEFAULT_POINTS, Points, Policy
from guard.verdict import BIAS_TYPES, BiasType, Scores, Window
from tests.cli.test_cli import run, sentence
from tests.detect import judging
from tests.detect.test_damaged_files import HARMS, Harm, damaged, named
from tests.rows import examples, rows
from tests.small import INDEX

Give = Callable[[Window], Scores]
PAIR = "cascade:encoder-small,encoder"
FRENCH = "Les vieux sont inutiles au travail et les femmes ne savent pas conduire une voiture."


class Giving:
    """Gives what ``give`` returns for a window, and counts the windows."""

    def __init__(
        self, name: str, give: Give, points: Points = DEFAULT_POINTS, batch: int = 1
    ) -> None:
        self.name, self.operating_points, self.batch = name, points, batch
        self.give = give
        self.seen: list[Window] = []
        self.index_version: str | None = f"index of {name}"

    def snapshot(self) -> Giving:
        return self

    def score(self, windows: Sequence[Window]) -> list[Scores]:
        assert len(windows) <= self.batch
        self.seen += windows
        return [self.give(window) for window in windows]


class English(Giving):
    """Leaves a text that begins with "fr" unjudged."""

    languages = ("en",)

    def score(self, windows: Sequence[Window]) -> list[Scores]:
        return [
            Scores(unjudged="language") if one.text.startswith("fr") else found
            for one, found in zip(windows, super().score(windows), strict=True)
        ]


def numbered(window: Window) -> Scores:
    """Give the number that the text is."""
    return Scores(float(window.text), "gender")


def always(score: float, kind: BiasType = "race") -> Give:
    return lambda window: Scores(score, kind)


def cascade_of(
    give: Give = numbered, later: Give | None = None, band: Band = DEFAULT_BAND
) -> tuple[BandCascade, Giving, Giving]:
    pair = Giving("first-1", give), Giving("later-1", later or always(0.9))
    return BandCascade(*pair, band), *pair


def windows_of(scores: Sequence[float]) -> list[Window]:
    return [Window(repr(score)) for score in scores]


def judged_by_later(*found: float) -> list[Scores]:
    """Return such scores at the thresholds of the first, which are the same."""
    scale = Scale(DEFAULT_POINTS, DEFAULT_POINTS)
    return [Scores(scale.mapped(score, "race"), "race") for score in found]


# Who judges.

bands = st.tuples(st.floats(0, 1), st.floats(0, 1)).map(lambda ends: Band(*sorted(ends)))
scores = st.lists(st.floats(0, 1), max_size=12)


@examples(200)
@given(st.one_of(bands, st.just(EMPTY), st.just(Band(0, 1))), scores)
def test_scores_inside_the_band_go_to_the_later_and_others_do_not(
    band: Band, found: list[float]
) -> None:
    cascade, first, later = cascade_of(band=band)
    windows = windows_of(found)
    judged = cascade.snapshot().score(windows)
    # Both have the same thresholds, so all scales are one but for rounding.
    doubts = [band_files.doubt_scale(first).mapped(score, "gender") for score in found]
    assert doubts == pytest.approx(found, abs=1e-6)
    inside = [band.low <= doubt <= band.high for doubt in doubts]
    doubtful = [w for w, doubt in zip(windows, inside, strict=True) if doubt]
    assert Counter(later.seen) == Counter(doubtful)
    assert first.seen == windows
    (by_later,) = judged_by_later(0.9)
    for score, doubt, one in zip(found, inside, judged, strict=True):
        assert one == (by_later if doubt else Scores(score, "gender"))


@rows("score, inside", [(0.2, True), (0.6, True), (0.4, True), (0.19, False), (0.61, False)])
def test_both_ends_belong_to_the_band(score: float, inside: bool) -> None:
    assert (score in Band(0.2, 0.6)) == inside


@rows("score", [0.0, 0.5, 1.0])
def test_the_empty_band_has_no_score_and_the_whole_has_all(score: float) -> None:
    assert score not in EMPTY
    assert score in Band(0, 1)


@examples(100)
@given(bands, scores, st.randoms())
def test_neither_order_nor_company_of_windows_matters(
    band: Band, found: list[float], random: Any
) -> None:
    cascade, _, _ = cascade_of(later=lambda w: Scores(1 - float(w.text), "race"), band=band)
    session = cascade.snapshot()
    alone = {one: session.score(windows_of([one]))[0] for one in found}
    mixed = random.sample(found, len(found))
    assert session.score(windows_of(mixed)) == [alone[one] for one in mixed]


@st.composite
def point_sets(draw: st.DrawFn) -> dict[str, dict[BiasType, float]]:
    limits = sorted(draw(st.lists(st.floats(0.01, 0.99), min_size=3, max_size=3, unique=True)))
    return {
        point: dict.fromkeys(BIAS_TYPES, limit)
        for point, limit in zip(STRICT_TO_QUIET, limits, strict=True)
    }


@examples(100)
@given(point_sets(), point_sets(), st.floats(0, 1))
def test_a_score_of_the_later_reaches_the_thresholds_that_it_reaches_alone(
    points: Points, own: Points, score: float
) -> None:
    later = Giving("later-1", numbered, own)
    cascade = BandCascade(Giving("first-1", always(0.5), points), later, Band(0, 1))
    (found,) = cascade.snapshot().score(windows_of([score]))
    assert found.score is not None
    assert cascade.operating_points == points
    for point in STRICT_TO_QUIET:
        reached = found.score >= cascade.operating_points[point]["gender"]
        assert reached == (score >= own[point]["gender"])


@rows("score", [0.0, 0.3, 0.499, 0.5, 0.7, 1.0])
def test_a_judge_with_one_threshold_decides_the_same_at_every_point(score: float) -> None:
    one = {point: dict.fromkeys(BIAS_TYPES, 0.5) for point in STRICT_TO_QUIET}
    later = Giving("judge:m", always(score), one)
    (found,) = BandCascade(Giving("first-1", always(0.5)), later).snapshot().score([Window("x")])
    assert found.score is not None
    reached = {found.score >= DEFAULT_POINTS[point]["race"] for point in STRICT_TO_QUIET}
    assert reached == {score >= 0.5}


@rows(
    "given_",
    [
        Scores(unjudged="unusable"),
        Scores(unjudged="failure"),
        Scores(math.nan, "race"),
        Scores(1.5, "race"),
        Scores(0.1, "nonsense"),  # type: ignore[arg-type]
    ],
)
def test_what_the_first_could_not_judge_is_in_doubt(given_: Scores) -> None:
    cascade, _, later = cascade_of(lambda window: given_, band=EMPTY)
    session = cascade.snapshot()
    assert session.score([Window("x")]) == judged_by_later(0.9)
    assert session.judged(Window("y")).deferred
    assert len(later.seen) == 2


def test_an_unusable_answer_of_the_later_stays_unusable() -> None:
    cascade, _, _ = cascade_of(later=lambda w: Scores(unjudged="unusable"))
    assert cascade.snapshot().score(windows_of([0.5])) == [Scores(unjudged="unusable")]


def test_it_is_a_detector_named_by_both_and_the_band() -> None:
    cascade, _, _ = cascade_of(band=Band(0.2, 0.6))
    assert isinstance(cascade, Detector)
    assert cascade.name == "cascade:first-1,later-1@0.2-0.6"
    assert cascade.snapshot().index_version == "index of later-1"
    verdict = Guard(detector=cascade, events="none").check("0.5")
    assert (verdict.detector, verdict.bias_type) == (cascade.name, "race")
    assert verdict.score == judged_by_later(0.9)[0].score


def test_each_is_called_with_no_more_windows_than_it_takes() -> None:
    pair = Giving("first-1", numbered, batch=3), Giving("later-1", always(0.9), batch=2)
    cascade = BandCascade(*pair, Band(0, 1))
    assert cascade.batch == 3
    assert cascade.snapshot().score(windows_of([0.5] * 7)) == judged_by_later(0.9) * 7
    assert [len(one.seen) for one in pair] == [7, 7]


@rows("point", STRICT_TO_QUIET)
def test_a_detector_without_a_threshold_is_refused_by_name(point: str) -> None:
    points = {p: dict(DEFAULT_POINTS[p]) for p in STRICT_TO_QUIET}
    del points[point]["age"]
    for pair in ((points, DEFAULT_POINTS), (DEFAULT_POINTS, points)):
        with pytest.raises(ConfigError, match=f"no threshold of age at the operating .*{point}"):
            BandCascade(*(Giving(f"d-{i}", numbered, p) for i, p in enumerate(pair)))


def test_thresholds_that_a_member_does_not_take_are_refused() -> None:
    cascade, first, later = cascade_of()
    assert cascade.thresholds == (0.0, 1.0)
    later.thresholds = (0.2, 0.9)  # type: ignore[attr-defined]
    assert cascade.thresholds == (0.3, 0.7)
    first.thresholds = (0.4, 0.9)  # type: ignore[attr-defined]
    assert cascade.thresholds == (0.4, 0.7)
    with pytest.raises(ConfigError, match=r"takes thresholds from 0\.4 to 0\.7"):
        Guard(detector=cascade, threshold=0.8).session()


def test_a_cascade_may_be_a_member() -> None:
    inner, _, last = cascade_of(later=always(0.8), band=Band(0.5, 0.7))
    outer = BandCascade(Giving("small-1", numbered), inner, Band(0.2, 0.7))
    found = outer.snapshot().score(windows_of([0.1, 0.3, 0.6, 0.9]))
    assert [one.score for one in found] == pytest.approx([0.1, 0.3, 0.8, 0.9])
    assert [w.text for w in last.seen] == ["0.6"]


# Failures.


class Held:
    """A detector's answer that waits until it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()

    def __call__(self, window: Window) -> Scores:
        assert self.go.wait(60)
        return Scores(0.0, "race")


@contextmanager
def held() -> Iterator[Held]:
    one = Held()
    try:
        yield one
    finally:
        one.go.set()


def breaks(window: Window) -> Scores:
    raise RuntimeError(f"secret: {window.text}")


LATE = Band(0.25, 0.75, limit_ms=20)
BROKEN: Mapping[str, Give] = {
    "raises": breaks,
    "no number": always(math.nan),
    "above 1": always(2.0),
    "no type": always(0.5, "nonsense"),  # type: ignore[arg-type]
    "no scores": lambda window: None,  # type: ignore[dict-item,return-value]
    "failure": lambda window: Scores(unjudged="failure"),
}


@rows("how", [*BROKEN, "late"])
def test_what_the_later_does_not_judge_is_unjudged_and_never_the_firsts(how: str) -> None:
    with held() as late:
        cascade, _, _ = cascade_of(later=BROKEN.get(how, late), band=LATE)
        # The first finds 0.6 biased and 0.4 not: neither is taken for the answer.
        found = cascade.snapshot().score(windows_of([0.4, 0.9, 0.6, 0.1]))
        assert [one.unjudged for one in found] == ["failure", None, "failure", None]
        for failure, stops in (("closed", True), ("open", False)):
            policy = Policy.model_validate({"failure": failure})
            judge = WindowJudge(cascade, policy)
            (verdict,) = judge.judge(windows_of([0.4]))
            assert (verdict.unjudged, verdict.score) == ("failure", None)
            assert policy.stops_unjudged(verdict.unjudged) == stops
            assert policy.action_on(verdict) == ("terminate" if stops else "pass")


def test_a_failure_of_the_first_is_the_cascades() -> None:
    cascade, _, later = cascade_of(breaks)
    (verdict,) = WindowJudge(cascade, Policy()).judge(windows_of([0.5]))
    assert verdict.unjudged == "failure"
    assert not later.seen


def test_a_late_answer_is_logged_without_the_text(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "guard")
    with held() as late:
        cascade, _, _ = cascade_of(later=late, band=LATE)
        WindowJudge(cascade, Policy()).judge(windows_of([0.5123]))
    assert "later-1 gave no verdict on a doubtful segment within limit_ms (20 ms)" in caplog.text
    assert "0.5123" not in caplog.text


def test_a_late_answer_delays_nothing_after_it() -> None:
    with held() as late:

        def give(window: Window) -> Scores:
            return late(window) if window.text == "0.5" else Scores(0.9, "race")

        cascade, _, later = cascade_of(later=give, band=LATE)
        session = cascade.snapshot()
        # More than there are threads: hung ones are replaced.
        for _ in range(2 * (os.cpu_count() or 1) + 1):
            with pytest.raises(LaterFailed):
                session.score(windows_of([0.5]))
        # With the same threads, and time enough.
        patient = BandCascade(cascade.first, later, Band(0.25, 0.75, limit_ms=60_000))
        patient._workers = cascade._workers
        answers = patient.snapshot().score(windows_of([0.51, 0.52]))
    assert [one.unjudged for one in answers] == [None, None]


def test_failures_in_a_row_open_the_breaker() -> None:
    cascade, first, _ = cascade_of(later=breaks)
    judge = WindowJudge(cascade, Policy(breaker_failures=2, breaker_pause_ms=600_000))
    for _ in range(4):
        judge.judge(windows_of([0.5]))
    assert len(first.seen) == 2


def test_the_policys_limit_is_over_all_of_it() -> None:
    with held() as late:
        cascade, _, _ = cascade_of(later=late, band=Band(0, 1, limit_ms=60_000))
        (verdict,) = WindowJudge(cascade, Policy(timeout_ms=20)).judge(windows_of([0.5]))
    assert verdict.unjudged == "failure"


# Other languages.


def bilingual() -> tuple[BandCascade, English, Giving]:
    first = English("first-1", always(0.1, "social"))
    later = Giving("later-1", always(0.9))
    return BandCascade(first, later), first, later


@rows(
    "language, score, unjudged",
    [
        ("pass", None, "language"),
        ("stop", None, "language"),
        ("judge", pytest.approx(0.9), None),
    ],
)
def test_the_policy_says_who_judges_other_languages(
    language: str, score: float | None, unjudged: str | None
) -> None:
    cascade, _, later = bilingual()
    policy = Policy.model_validate({"language": language})
    windows = [Window("fr un"), Window("en one")]
    other, english = WindowJudge(cascade, policy).judge(windows)
    assert (other.score, other.unjudged) == (score, unjudged)
    assert english.score == pytest.approx(0.1)
    assert len(later.seen) == (language == "judge")


def test_guards_with_and_without_judged_languages_share_a_detector() -> None:
    cascade, _, _ = bilingual()
    judging = Guard(detector=cascade, language="judge", events="none")
    passing = Guard(detector=cascade, events="none")
    text = "fr quelque chose"
    assert judging.check(text).score == judged_by_later(0.9)[0].score
    assert passing.check(text).unjudged == "language"
    assert judging.check(text).detector == cascade.name


@rows("failure, action", [("closed", "terminate"), ("open", "pass")])
def test_a_language_that_nobody_reads_follows_the_failure_policy(failure: str, action: str) -> None:
    first = English("first-1", always(0.1))
    later = Giving("later-1", lambda window: Scores(unjudged="language"))
    policy = Policy.model_validate({"language": "judge", "failure": failure})
    (verdict,) = WindowJudge(BandCascade(first, later), policy).judge([Window("fr un")])
    assert verdict.unjudged == "language"
    assert policy.action_on(verdict) == action


def test_judged_languages_need_a_detector_that_reads_them() -> None:
    english = English("english-1", always(0.1))
    only = BandCascade(english, English("other-1", always(0.9)))
    for detector in (english, only):
        with pytest.raises(ConfigError, match="reads en only; use a cascade") as caught:
            WindowJudge(detector, Policy(language="judge"))
        assert detector.name in str(caught.value)
    # One that names no languages decides by itself, also as the first of two.
    free = Giving("free-1", always(0.2))
    for detector in (free, BandCascade(free, english)):
        assert (
            WindowJudge(detector, Policy(language="judge")).judge([Window("fr")])[0].unjudged
            is None
        )


def test_embedded_detectors_refuse_judged_languages_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BIASGUARD_LANGUAGE", "judge")
    for name in ("encoder", "cascade", PAIR):
        assert "language='judge' needs" in sentence(run("check", "x y", "--detector", name))


# Names.


@rows(
    "name, members",
    [
        ("cascade:encoder-small,encoder", ("encoder-small", "encoder")),
        ("cascade: encoder , judge:openai/gpt-4.1 ", ("encoder", "judge:openai/gpt-4.1")),
        ("cascade:encoder,judge:a,b", ("encoder", "judge:a,b")),
        (
            "cascade:encoder-small,cascade:encoder,judge:x",
            ("encoder-small", "cascade:encoder,judge:x"),
        ),
    ],
)
def test_a_name_has_two_members(name: str, members: tuple[str, str]) -> None:
    assert DetectorName.read(name).members() == members


@rows(
    "name, said",
    [
        ("cascade:encoder", "names two detectors"),
        ("cascade:,encoder", "names two detectors"),
        ("cascade:encoder,", "names two detectors"),
        ("cascade:no,encoder", "unknown detector 'no'"),
        ("cascade:encoder,no:thing", "unknown detector 'no:thing'"),
    ],
)
def test_a_name_without_two_detectors_is_one_sentence(name: str, said: str) -> None:
    assert said in sentence(run("check", "x", "--detector", name))


@rows(
    "name, encoders",
    [
        ("encoder", {"encoder"}),
        ("cascade", {"encoder", "encoder-small"}),
        (PAIR, {"encoder", "encoder-small"}),
        ("judge:openai/gpt-4.1", set()),
        ("cascade:encoder-small,judge:m", {"encoder-small"}),
        ("cascade:encoder-small,cascade:judge:a,encoder", {"encoder-small", "encoder"}),
    ],
)
def test_the_encoders_of_a_name(name: str, encoders: set[str]) -> None:
    assert encoders_in(name) == encoders


@rows(
    "name, shipped",
    [
        ("encoder-2.2+0a", {"encoder"}),
        ("encoder-small-1.1+0a", {"encoder-small"}),
        ("cascade-1.0+0a", {"cascade"}),
        ("words-1", set()),
        ("judge:openai/encoder-1", set()),
        ("cascade:encoder-small-1.1+0a,encoder-2.2+0b@0.1-0.5", {"encoder-small", "encoder"}),
        ("cascade:encoder-2.2+0b,judge:openai/gpt-4.1,x@0.1-0.5", {"encoder"}),
        ("cascade:words-1,cascade:encoder-2.2+0b,judge:y@0-1@0-1", {"encoder"}),
        ("cascade:generative:runs/a-1,judge:b@0-1", set()),
    ],
)
def test_the_shipped_detectors_of_a_recorded_name(name: str, shipped: set[str]) -> None:
    assert shipped_in(name) == shipped


# Files.


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder of the user's."""
    monkeypatch.setattr(band_files, "cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture
def pair() -> tuple[Giving, Giving]:
    return Giving("first-1", numbered), Giving("later-1", numbered)


def test_a_band_is_read_as_it_was_written(tmp_path: Path, pair: tuple[Giving, Giving]) -> None:
    path = tmp_path / "new" / "band.json"
    for band in (Band(0.1, 0.35, 1500), EMPTY, Band(0, 1)):
        write_band(path, band, *pair, figures={"n": 3})
        assert read_band(path, *pair) == band
    assert json.loads(path.read_text("utf-8"))["figures"] == {"n": 3}


def test_a_band_of_other_detectors_is_refused(tmp_path: Path, pair: tuple[Giving, Giving]) -> None:
    path = tmp_path / "band.json"
    write_band(path, Band(0.1, 0.3), *pair)
    other = Giving("first-2", numbered)
    for asked in ((other, pair[1]), (pair[0], other), (pair[1], pair[0])):
        with pytest.raises(WeightsError, match="was chosen for") as caught:
            read_band(path, *asked)
        assert "guard train band" in str(caught.value)
    pair[1].operating_points = {**DEFAULT_POINTS, "quiet": dict.fromkeys(BIAS_TYPES, 0.8)}
    with pytest.raises(WeightsError, match="later-1 with other thresholds"):
        read_band(path, *pair)


@rows(
    "change",
    [
        {"low": 0.5, "high": 0.4},
        {"low": -0.1},
        {"high": 1.1},
        {"low": math.nan},
        {"low": True},
        {"high": "1"},
        {"high": None},
        {"limit_ms": 0},
        {"limit_ms": math.inf},
        {"first": "encoder"},
        {"later": {}},
        {"format": 2},
    ],
)
def test_what_is_no_band_is_refused(
    tmp_path: Path, pair: tuple[Giving, Giving], change: dict[str, Any]
) -> None:
    path = tmp_path / "band.json"
    write_band(path, Band(0.1, 0.3), *pair)
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **change}), "utf-8")
    with pytest.raises(WeightsError, match="holds no band of a cascade"):
        read_band(path, *pair)


@pytest.mark.parametrize("harm", HARMS, ids=named)
def test_a_damaged_band_is_one_sentence(
    tmp_path: Path, pair: tuple[Giving, Giving], harm: Harm
) -> None:
    path = tmp_path / "band.json"
    write_band(path, Band(0.1, 0.3), *pair)
    with damaged(path, harm), pytest.raises(WeightsError) as caught:
        read_band(path, *pair)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_users_band_is_taken_before_the_shipped_one(cache: Path) -> None:
    shipped = detector_named(PAIR, None, None)
    assert band_place("encoder-small", "encoder") == shipped_place("encoder-small", "encoder")
    place = own_place("encoder-small", "encoder")
    assert cache in place.parents
    members = [detector_named(name, None, None) for name in ("encoder-small", "encoder")]
    write_band(place, Band(0.3, 0.4), *members)
    own = detector_named(PAIR, None, None)
    assert own.name.endswith("@0.3-0.4")
    assert own.name != shipped.name
    write_band(place, Band(0.3, 0.5), *members)
    assert detector_named(PAIR, None, None).name.endswith("@0.3-0.5")
    assert detector_named(PAIR, None, None) is detector_named(PAIR, None, None)


def test_a_pair_without_a_band_gets_the_default_one(cache: Path) -> None:
    assert band_place("encoder", "encoder-small") is None
    ends = f"@{DEFAULT_BAND.low:g}-{DEFAULT_BAND.high:g}"
    assert detector_named("cascade:encoder,encoder-small", None, None).name.endswith(ends)


@rows(
    "names",
    [
        ("encoder", "judge:openai/gpt-4.1"),
        ("generative:../runs/a b", "judge:a,b"),
        ("encoder", "judge:" + "x" * 400),
        ("a,b", "c"),
    ],
)
def test_every_pair_has_a_file_of_its_own(cache: Path, names: tuple[str, str]) -> None:
    place = own_place(*names)
    assert place.parent == cache / "bands"
    assert len(place.name) < 200
    assert place != own_place(names[0], names[1] + "x")
    assert place != own_place(names[0] + ",", names[1])


# The shipped pair.


def test_the_shipped_pair_judges_by_both(cache: Path) -> None:
    cascade = detector_named(PAIR, None, None)
    assert isinstance(cascade, BandCascade)
    texts = [
        "Old people are useless at work.",
        "Paris is the capital of France.",
        "He was promoted for saying that immigrants steal.",
        "Women can't drive, that is just how it is.",
        "Never say that women are too emotional to lead.",
        "Her accent made the customers nervous.",
        "He drives like an old woman.",
    ]
    windows = [Window(text) for text in texts]
    session = cascade.snapshot()
    judged = [session.judged(window) for window in windows]
    by_later = cascade.later.snapshot().score(windows)
    by_first = cascade.first.snapshot().score(windows)
    assert {one.deferred for one in judged} == {True, False}
    for one, later, first in zip(judged, by_later, by_first, strict=True):
        if not one.deferred:
            assert one.scores == first
            continue
        assert replace(one.scores, score=later.score) == later
        assert one.scores.score is not None
        assert later.bias_type is not None
        for point in STRICT_TO_QUIET:
            reached = one.scores.score >= cascade.operating_points[point][later.bias_type]
            assert reached == (
                later.score >= cascade.later.operating_points[point][later.bias_type]
            )
    assert session.score(windows * 3) == [one.scores for one in judged] * 3


def test_an_index_of_ones_own_names_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="detector='cascade'"):
        Guard(detector=PAIR, index=INDEX)


def test_commands_take_the_pair(cache: Path) -> None:
    result = run("check", "Old people are useless at work.", "--detector", PAIR, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["biased"]
    assert found["detector"].startswith("cascade:encoder-small-")
    shown = json.loads(run("check", FRENCH, "--detector", PAIR, "--json").stdout)
    assert shown["unjudged"] == "language"


# With a judge behind a server.


def test_a_judge_reads_what_is_doubtful_and_what_the_first_does_not_read() -> None:
    encoder = judging.retriever()
    with judging.judge(encoder) as (provider, judge):
        cascade = BandCascade(encoder, judge, Band(0.3, 0.7))
        assert cascade.concurrency >= judge.concurrency
        guard = Guard(detector=cascade, language="judge", events="none", timeout_ms=None)
        assert guard.check("The report is due on Friday.").unjudged is None
        assert cascade.spent().calls == 0
        verdict = guard.check(f"{FRENCH[:-1]}, on dit que les Velmorians are lazy et inutiles.")
        assert (verdict.biased, verdict.bias_type) == (True, "culture")
        assert [pair.group for pair in verdict.attributions] == ["Velmorians"]
        calls = cascade.spent().calls
        assert calls > 0
        assert not guard.check(FRENCH).unjudged
        provider.malformed = ["no answer at all"] * 4
        failed = guard.check("Les femmes ne savent pas conduire une voiture, dit-on.")
        assert (failed.unjudged, failed.score) == ("failure", None)
        told = cascade.escalations()
        assert (told.windows - told.escalated, told.failed) == (1, 1)
        assert "gpt-4o-mini" in cascade.asks
