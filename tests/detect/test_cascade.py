"""A cascade: which detector judges, and that its thresholds are one detector's."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard import Guard
from guard.detect import mirror as mirrors
from guard.detect.cascade import Cascade
from guard.detect.cascade_files import HEAD, read_head
from guard.detect.deferral import STRICT_TO_QUIET, Deferral, Scale
from guard.detect.encoder import Encoder
from guard.detect.mirror import Mirror
from guard.detect.protocol import Detector
from guard.detect.weights import (
    CONFIG,
    MANIFEST,
    SHIPPED,
    open_weights,
    shipped_weights,
    write_manifest,
)
from guard.errors import BiasIndexError, ConfigError, WeightsError
from guard.places import shipped_index
from guard.retrieve import store
from guard.retrieve.index import BiasIndex
from guard.retrieve.statement import BiasStatement
from guard.verdict import BIAS_TYPES, Window
from tests.cli.test_cli import run, sentence
from tests.detect.test_damaged_files import HARMS, Harm, damaged, named
from tests.rows import examples, rows
from tests.small import INDEX, WEIGHTS

FOLDER = shipped_weights("cascade")
ADDED = BiasStatement("Velmorians swap price tags.", "culture", "Velmorians", "swap price tags")
WINDOWS = [
    Window("Old people are useless at work."),
    Window("Paris is the capital of France."),
    Window("They are lazy.", ("My neighbours are Mexicans.",)),
    Window("Women can't drive, that is just how it is."),
    Window("The report is due on Friday, and the minutes are on the shared drive."),
    Window("He was promoted for saying that immigrants steal."),
    Window("Never say that women are too emotional to lead."),
]
WAIT = 120.0


@pytest.fixture(scope="module")
def cascade() -> Cascade:
    return Cascade()


@pytest.fixture(scope="module")
def small() -> Encoder:
    return Encoder(WEIGHTS)


@pytest.fixture(scope="module")
def large() -> Encoder:
    return Encoder()


pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.fixture
def head(tmp_path: Path) -> Path:
    """A copy of the shipped head."""
    return Path(shutil.copytree(FOLDER, tmp_path / "head"))


@contextmanager
def bound(cascade: Cascade, at: float) -> Iterator[None]:
    """Let the head defer everything (0) or nothing (2)."""
    before = cascade._deferral
    cascade._deferral = replace(before, bound=at)
    try:
        yield
    finally:
        cascade._deferral = before


def changed(head: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the content of a head, and record its hash."""
    content = json.loads((head / HEAD).read_bytes())
    change(content)
    data = json.dumps(content).encode()
    (head / HEAD).write_bytes(data)
    hashes = {"format": 1, "sha256": {HEAD: hashlib.sha256(data).hexdigest()}}
    (head / MANIFEST).write_text(json.dumps(hashes), "utf-8")


def test_it_is_a_detector_with_the_operating_points_of_the_last(
    cascade: Cascade, large: Encoder
) -> None:
    assert isinstance(cascade, Detector)
    assert cascade.operating_points == large.operating_points
    assert cascade.name.startswith("cascade-")
    assert cascade.index is not None
    assert large.index is not None
    assert cascade.snapshot().index_version == large.index.version


def test_deferred_windows_have_the_scores_of_the_last(cascade: Cascade, large: Encoder) -> None:
    alone = large.snapshot().score(WINDOWS)
    with bound(cascade, 0.0):
        session = cascade.snapshot()
        assert session.score(WINDOWS) == alone
        assert all(session.judged(window).deferred for window in WINDOWS)
    session = cascade.snapshot()
    judged = [session.judged(window) for window in WINDOWS]
    assert session.score(WINDOWS) == [one.scores for one in judged]
    for one, by_large in zip(judged, alone, strict=True):
        assert not one.deferred or one.scores == by_large


def test_the_first_judges_what_is_not_deferred_at_the_thresholds_of_the_last(
    cascade: Cascade, small: Encoder
) -> None:
    with bound(cascade, 2.0):
        found = cascade.snapshot().score(WINDOWS)
    for one, by_small in zip(found, small.snapshot().score(WINDOWS), strict=True):
        assert replace(one, score=by_small.score) == by_small  # references, spans and types
        assert by_small.bias_type is not None
        for point in STRICT_TO_QUIET:
            kind = by_small.bias_type
            assert (one.score >= cascade.operating_points[point][kind]) == (
                by_small.score >= small.operating_points[point][kind]
            )
    assert found[0].references


def test_the_shipped_head_defers_some_windows_and_not_all(cascade: Cascade) -> None:
    session = cascade.snapshot()
    deferred = [session.judged(window).deferred for window in WINDOWS]
    assert any(deferred)
    assert not all(deferred)
    assert not session.judged(WINDOWS[4]).deferred


def test_a_score_depends_on_no_other_window(cascade: Cascade) -> None:
    session = cascade.snapshot()
    assert session.score(WINDOWS * 3) == [session.score([w])[0] for w in WINDOWS] * 3


@st.composite
def points(draw: st.DrawFn) -> dict[str, dict[Any, float]]:
    limits = {
        kind: sorted(draw(st.lists(st.floats(0.0, 1.0), min_size=3, max_size=3)))
        for kind in BIAS_TYPES
    }
    return {point: {k: limits[k][i] for k in BIAS_TYPES} for i, point in enumerate(STRICT_TO_QUIET)}


@examples(200)
@given(points(), points(), st.lists(st.floats(0, 1), min_size=2), st.sampled_from(BIAS_TYPES))
def test_a_mapped_score_reaches_the_thresholds_that_the_score_reaches(
    first: Any, last: Any, scores: list[float], kind: Any
) -> None:
    scale = Scale(first, last)
    scores = sorted([*scores, *(first[p][kind] for p in STRICT_TO_QUIET)])
    mapped = [scale.mapped(score, kind) for score in scores]
    assert all(0 <= m <= 1 for m in mapped)
    assert all(one <= other for one, other in pairwise(mapped))
    limits = [last[p][kind] for p in STRICT_TO_QUIET]
    for score, found in zip(scores, mapped, strict=True):
        for point in STRICT_TO_QUIET:
            reached = found >= last[point][kind]
            if score >= first[point][kind]:
                assert reached
            elif limits.count(last[point][kind]) == 1:
                # Of thresholds of the last that are one, the first reached decides.
                assert not reached or last[point][kind] == 0


def head_of(features: int = 3) -> Deferral:
    one = np.ones(features, np.float32)
    hidden = np.zeros((2, features), np.float32)
    return Deferral(0.5, one * 0, one, one, hidden, hidden[:, 0], hidden[:, 0], 0.0)


@rows("features", [[math.nan, 0, 0], [0, math.inf, -math.inf], [9, 9, 9]])
def test_what_the_head_cannot_tell_is_deferred(features: list[float]) -> None:
    with np.errstate(invalid="ignore"):
        assert head_of().defers(np.array(features, np.float32))


def test_what_the_first_is_sure_of_is_not_deferred() -> None:
    assert not head_of().defers(np.array([-9, -9, -9], np.float32))


@rows(
    "text",
    [
        "Les vieux sont inutiles au travail et les femmes ne savent pas conduire une voiture.",
        "Старые люди бесполезны на работе.",
        "The old and the new are both here, and so is everyone else. " * 60,
    ],
)
def test_what_the_first_does_not_read_whole_is_the_lasts(
    cascade: Cascade, large: Encoder, text: str
) -> None:
    with bound(cascade, 2.0):
        judged = cascade.snapshot().judged(Window(text))
    assert judged.deferred
    assert judged.scores == large.snapshot().score([Window(text)])[0]


# Thresholds.


@rows(
    "settings",
    [
        {"threshold": 0.05},
        {"threshold": 0.99},
        {"threshold": 1.0},
        {"thresholds": {"age": 0.01}},
    ],
)
def test_a_threshold_that_the_head_does_not_know_is_refused_by_name(
    settings: dict[str, Any],
) -> None:
    guard = Guard(detector="cascade", **settings)
    with pytest.raises(ConfigError) as caught:
        guard.check("Old people are useless.")
    said = str(caught.value)
    assert "detector='encoder'" in said
    assert "\n" not in said
    with pytest.raises(ConfigError, match="takes thresholds from"):
        Guard(detector="cascade").session(settings)


@rows("settings", [{"threshold": 0.5}, {"threshold": 0.0}, {"operating_point": "quiet"}])
def test_other_thresholds_are_taken(settings: dict[str, Any]) -> None:
    assert Guard(detector="cascade", **settings).check("Old people are useless at work.").biased


# Weights.


@rows(
    "which, recorded",
    [("first", "name"), ("last", "name"), ("first", "manifest"), ("last", "manifest")],
)
def test_a_head_of_other_weights_is_refused_by_their_names(
    head: Path, which: str, recorded: str
) -> None:
    changed(head, lambda content: content[which].update({recorded: "encoder-9+01234567"}))
    with pytest.raises(WeightsError) as caught:
        Cascade(head, use_references=False)
    said = str(caught.value)
    mine = open_weights(WEIGHTS if which == "first" else SHIPPED).name
    assert mine in said
    assert "guard train cascade" in said
    assert ("with other settings" in said) == (recorded == "manifest")
    shutil.copytree(FOLDER, head, dirs_exist_ok=True)


def test_other_thresholds_of_a_detector_need_another_head(head: Path, tmp_path: Path) -> None:
    own = Path(shutil.copytree(WEIGHTS, tmp_path / "own"))
    content = json.loads((own / CONFIG).read_bytes())
    content["operating_points"]["balanced"]["age"] += 0.01
    (own / CONFIG).write_text(json.dumps(content), "utf-8")
    write_manifest(own)
    with pytest.raises(WeightsError, match="with other settings"):
        Cascade(head, first=own, use_references=False)


@pytest.mark.parametrize("harm", HARMS, ids=named)
@pytest.mark.parametrize("name", [HEAD, MANIFEST])
def test_a_damaged_head_is_one_sentence(head: Path, name: str, harm: Harm) -> None:
    with damaged(head / name, harm), pytest.raises(WeightsError) as caught:
        read_head(head)
    assert "\n" not in str(caught.value)
    assert str(head) in str(caught.value)


@rows(
    "change",
    [
        {"bound": math.nan},
        {"bound": -1},
        {"bound": 2},
        {"bias": math.inf},
        {"mean": [0.0]},
        {"deviation": [0.0] * 292},
        {"hidden": [[0.0]]},
        {"hidden": 3},
        {"out": None},
        {"direct": ["x"]},
    ],
)
def test_numbers_that_are_no_head_are_refused(head: Path, change: dict[str, Any]) -> None:
    changed(head, lambda content: content["head"].update(change))
    with pytest.raises(WeightsError, match="holds no head of a cascade"):
        read_head(head)
    shutil.copytree(FOLDER, head, dirs_exist_ok=True)


def test_a_head_of_other_features_is_refused_when_loaded(head: Path) -> None:
    def narrower(content: dict[str, Any]) -> None:
        numbers = content["head"]
        for name in ("mean", "deviation", "direct"):
            numbers[name] = numbers[name][:-1]
        numbers["hidden"] = [row[:-1] for row in numbers["hidden"]]

    changed(head, narrower)
    with pytest.raises(WeightsError, match="does not read what encoder-small"):
        Cascade(head, use_references=False)


def test_weights_of_one_detector_are_no_cascades(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError,
        match=r"weights names the folder of an encoder's weights, which 'cascade' does not have",
    ):
        Guard(detector="cascade", weights=WEIGHTS)
    (tmp_path / "guard.toml").write_text(f'weights = "{WEIGHTS.as_posix()}"\n', "utf-8")
    # The later of the two wins.
    assert Guard(detector="cascade").detector.name.startswith("cascade-")


# The index.


@pytest.fixture
def own(tmp_path: Path, large: Encoder) -> BiasIndex:
    """The shipped statements and one more, with the vectors of the last."""
    shipped = BiasIndex.load(shipped_index("encoder"), large.name)
    return shipped.extended([ADDED], large.embed([ADDED.statement]))


def test_the_first_searches_a_users_statements_with_vectors_of_its_own(
    own: BiasIndex, small: Encoder
) -> None:
    cascade = Cascade(index=own)
    assert cascade.ready(WAIT)
    window = Window("Velmorians are known to swap the price tags.")
    with bound(cascade, 2.0):
        judged = cascade.snapshot().judged(window)
    assert not judged.deferred
    assert judged.scores.references[0].statement == ADDED.statement
    shipped = BiasIndex.load(INDEX, small.name)
    small.use_index(shipped.extended([ADDED], small.embed([ADDED.statement])))
    alone = small.snapshot().score([window])[0]
    small.use_index(shipped)
    assert judged.scores.references == alone.references


def test_until_its_vectors_are_there_the_last_judges_everything(
    own: BiasIndex, large: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Mirror, "_make_mirrors", lambda self: None)
    cascade = Cascade(index=own)
    session = cascade.snapshot()
    assert session.index_version == own.version
    assert all(session.judged(window).deferred for window in WINDOWS)
    monkeypatch.undo()
    assert cascade.ready(WAIT)
    # A running stream keeps what it began with.
    assert all(session.judged(window).deferred for window in WINDOWS)
    assert not cascade.snapshot().judged(WINDOWS[4]).deferred


def test_an_index_in_a_folder_is_followed(tmp_path: Path, cascade: Cascade, own: BiasIndex) -> None:
    mine = Cascade()
    own.save(tmp_path / "own")
    mine.use_index(tmp_path / "own")
    assert mine.snapshot().index_version == own.version
    assert mine.ready(WAIT)
    more = BiasStatement("Velmorians hum loudly.", "culture", "Velmorians", "hum loudly")
    store.add_statements(tmp_path / "own", [more], mine.embedder)
    watcher = mine.embedder._watcher
    assert watcher is not None
    watcher.check()
    assert mine.ready(WAIT)
    with bound(mine, 2.0):
        judged = mine.snapshot().judged(Window("Velmorians hum so loudly."))
    assert not judged.deferred
    assert more.statement in [r.statement for r in judged.scores.references]


def test_a_large_index_is_the_lasts_alone(
    own: BiasIndex, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(mirrors, "MOST", 100)
    cascade = Cascade(index=own)
    assert not cascade.ready(0.1)
    assert cascade.snapshot().judged(WINDOWS[4]).deferred
    assert caplog.text.count("judges every segment") == 1


def test_a_failure_of_the_work_is_logged_by_its_type_and_the_last_judges(
    own: BiasIndex, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(self: Mirror, index: BiasIndex) -> BiasIndex:
        raise MemoryError(ADDED.statement)

    monkeypatch.setattr(Mirror, "_make_mirror", fails)
    cascade = Cascade(index=own)
    assert not cascade.ready(WAIT)
    assert not cascade.ready(WAIT)
    assert cascade.snapshot().judged(WINDOWS[4]).deferred
    assert caplog.text.count("MemoryError") == 1
    assert ADDED.statement not in caplog.text


def test_vectors_of_the_first_are_refused_in_one_sentence(small: Encoder) -> None:
    with pytest.raises(BiasIndexError, match="cannot be searched with"):
        Guard(detector="cascade", index=INDEX)
    with pytest.raises(BiasIndexError, match="cannot be searched with"):
        Cascade(index=BiasIndex.load(INDEX, small.name))


def test_without_references_both_judge_the_text_alone() -> None:
    cascade = Cascade(use_references=False)
    session = cascade.snapshot()
    assert session.index_version is None
    assert cascade.ready(0.0)
    judged = [session.judged(window) for window in WINDOWS]
    assert not any(one.scores.references for one in judged)
    assert not all(one.deferred for one in judged)


# Commands.


def test_commands_take_a_cascade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(*args: str) -> Any:
        result = run(*args, "--detector", "cascade", "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    assert shown("check", WINDOWS[0].text)["detector"].startswith("cascade-")
    shipped = shown("index", "stats")
    assert (shipped["embedder"], shipped["usable"]) == (open_weights(SHIPPED).name, True)
    (tmp_path / "more.csv").write_text(
        "statement,bias_type,group,attribute\n"
        f"{ADDED.statement},culture,{ADDED.group},{ADDED.attribute}\n",
        "utf-8",
    )
    shown("index", "build", "more.csv", "--to", "own")
    found = shown("index", "search", "price tags", "--index", "own")
    assert found["references"][0]["statement"] == ADDED.statement
    monkeypatch.setenv("BIASGUARD_INDEX", str(tmp_path / "own"))
    assert shown("check", ADDED.statement)["references"][0]["statement"] == ADDED.statement


def test_the_doctor_tells_which_weights_a_cascade_has() -> None:
    found = json.loads(run("doctor", "--json").stdout)["findings"]
    (told,) = (f for f in found if f["name"] == "cascade")
    assert told["state"] == "ok"
    for folder in (WEIGHTS, SHIPPED):
        assert open_weights(folder).name in told["detail"]


def test_a_refused_threshold_is_one_sentence_of_a_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BIASGUARD_THRESHOLD", "0.02")
    assert "takes thresholds from" in sentence(run("check", "x y", "--detector", "cascade"))
