"""The two embedded detectors beside each other: neither reads the other's vectors."""

from __future__ import annotations

import json
import logging
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from guard import Guard
from guard.detect.encoder import Encoder
from guard.detect.index_watcher import IndexWatcher
from guard.detect.weights import CONFIG, SHIPPED, open_weights, shipped_weights, write_manifest
from guard.errors import BiasIndexError, ConfigError, WeightsError
from guard.places import DEFAULT, DETECTORS, ENCODERS, shipped_index
from guard.policy import Policy
from guard.retrieve import store
from guard.retrieve.index import STATEMENTS, BiasIndex
from guard.retrieve.statement import BiasStatement
from tests.cli.test_cli import run, sentence
from tests.small import INDEX, WEIGHTS

ADDED = BiasStatement("Velmorians swap price tags.", "culture", "Velmorians", "swap price tags")
CSV = (
    "statement,bias_type,group,attribute\n"
    f"{ADDED.statement},culture,{ADDED.group},{ADDED.attribute}\n"
)
SAID = "Old people are useless at work."
pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.fixture(
    params=[
        ENCODERS,
        pytest.param(
            ENCODERS[::-1],
            marks=pytest.mark.slow(
                "does with the small detector what is done with the default one"
            ),
        ),
    ],
    ids=lambda pair: pair[0],
)
def pair(request: pytest.FixtureRequest) -> tuple[str, str]:
    """The name of a detector, and of the other one."""
    return request.param  # type: ignore[no-any-return]


def of(name: str) -> Encoder:
    return Encoder(shipped_weights(name))


@pytest.mark.parametrize("name", ENCODERS)
def test_each_has_weights_and_vectors_of_its_own(name: str) -> None:
    weights = open_weights(shipped_weights(name))
    assert weights.settings.name == name
    index = BiasIndex.load(shipped_index(name), weights.name, weights.settings.dim)
    verdict = Guard(detector=name).check(SAID)
    assert (verdict.detector, verdict.index_version) == (weights.name, index.version)
    assert verdict.biased
    assert verdict.references


def test_both_read_the_same_statements() -> None:
    first, *others = ((shipped_index(name) / STATEMENTS).read_bytes() for name in ENCODERS)
    assert all(other == first for other in others)
    assert len({open_weights(shipped_weights(name)).name for name in ENCODERS}) == len(ENCODERS)


def test_the_default_is_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BIASGUARD_DETECTOR")
    default = open_weights(SHIPPED).name
    assert SHIPPED.name == ENCODERS[0] == DEFAULT
    assert Guard().detector.name == Guard(Policy()).detector.name == default
    monkeypatch.setenv("BIASGUARD_DETECTOR", "encoder-small")
    assert Guard().detector.name == open_weights(WEIGHTS).name
    # A whole policy reads no variable.
    assert Guard(Policy()).detector.name == default


@pytest.mark.parametrize("name", ["", "small", "Encoder", "../models/encoder", "encoder\0"])
def test_an_unknown_name_is_refused_with_those_that_are_known(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError) as caught:
        Guard(detector=name)
    assert "known are encoder, encoder-small" in str(caught.value)
    assert "\n" not in str(caught.value)
    for command in (["check", SAID], ["index", "search", SAID], ["demo"], ["index", "stats"]):
        if "\0" not in name:
            assert "known are encoder, encoder-small" in sentence(run(*command, "--detector", name))
    if "\0" not in name:
        monkeypatch.setenv("BIASGUARD_DETECTOR", name)
        assert "known are encoder, encoder-small" in sentence(run("index", "search", SAID))


def test_vectors_of_the_other_are_refused_in_one_sentence(
    pair: tuple[str, str], tmp_path: Path
) -> None:
    name, other = pair
    encoder = of(name)
    shutil.copytree(shipped_index(other), tmp_path / "other")
    index = BiasIndex.load(tmp_path / "other", None)
    before = (tmp_path / "other" / "manifest.json").read_bytes()
    for use in (
        lambda: Guard(detector=name, index=tmp_path / "other"),
        lambda: Encoder(shipped_weights(name), index),
        lambda: encoder.use_index(index),
        lambda: encoder.use_index(tmp_path / "other"),
        lambda: store.add_statements(tmp_path / "other", [ADDED], encoder),
    ):
        with pytest.raises(BiasIndexError) as caught:
            use()
        said = str(caught.value)
        assert "\n" not in said
        assert f"'{encoder.name}'" in said
        assert f"'{index.embedder}'" in said
    assert (tmp_path / "other" / "manifest.json").read_bytes() == before
    assert encoder.index is not None
    assert encoder.index.embedder == encoder.name


def test_an_index_of_the_other_is_built_again_by_the_command_it_names(tmp_path: Path) -> None:
    store.create_index(tmp_path / "own", [ADDED], of("encoder"))
    ask = ("index", "search", "They swap tags", "--index", "own", "--detector", "encoder-small")
    said = sentence(run(*ask))
    command = shlex.split(said[said.index("guard index build") :].rstrip("."))[1:]
    assert command[-2:] == ["--detector", "encoder-small"]
    assert run(*command).exit_code == 0
    assert ADDED.statement in run(*ask).stdout


def test_a_guard_that_follows_keeps_its_version_where_the_others_vectors_arrive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(
        IndexWatcher, "_start_thread", lambda self: setattr(self, "_owner", os.getpid())
    )
    shutil.copytree(INDEX, tmp_path / "own")
    watcher = IndexWatcher(tmp_path / "own", open_weights(WEIGHTS).name)
    before = watcher.index
    shutil.copytree(shipped_index("encoder"), tmp_path / "own", dirs_exist_ok=True)
    for _ in range(9):
        watcher.check()
    assert watcher.index is before
    (record,) = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert open_weights(SHIPPED).name in record.getMessage()


def test_commands_take_either(pair: tuple[str, str], tmp_path: Path) -> None:
    name, other = pair
    uses = ("--detector", name)

    def shown(*args: str) -> Any:
        result = run(*args, *uses, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    weights = open_weights(shipped_weights(name)).name
    assert shown("check", SAID)["detector"] == weights
    found = shown("index", "stats")
    assert (found["index"], found["embedder"]) == (str(shipped_index(name)), weights)
    assert found["usable"]
    made = shown("index", "build", "--with-shipped", "--to", "own")
    # Nothing had to be embedded anew.
    assert made["version"] == found["version"] == shown("index", "search", SAID)["version"]
    (tmp_path / "more.csv").write_text(CSV, "utf-8")
    add = ("index", "add", "more.csv", "--index", "own")
    assert "cannot be searched with" in sentence(run(*add, "--detector", other))
    assert shown(*add)["statements"] == found["statements"] + 1
    assert shown("index", "search", "tags", "--index", "own")["references"]
    assert not json.loads(
        run("index", "stats", "--index", "own", "--detector", other, "--json").stdout
    )["usable"]


def test_the_later_of_a_detector_and_weights_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BIASGUARD_DETECTOR")
    (tmp_path / "guard.toml").write_text(f'weights = "{SHIPPED.as_posix()}"\n', "utf-8")
    default, small = open_weights(SHIPPED).name, open_weights(WEIGHTS).name
    assert Guard().detector.name == default  # weights are those of an encoder
    assert Guard(detector="encoder-small").detector.name == small
    said = run("check", SAID, "--json", "--detector", "encoder-small").stdout
    assert json.loads(said)["detector"] == small
    monkeypatch.setenv("BIASGUARD_DETECTOR", "encoder-small")
    assert Guard().detector.name == small
    # A folder of weights stands in the place of those that the detector has.
    assert Guard(weights=SHIPPED).detector.name == default
    assert Guard(detector="encoder-small", weights=SHIPPED).detector.name == default


def test_doctor_tells_which_is_in_use_and_the_hash_and_size_of_each() -> None:
    found = json.loads(run("doctor", "--json").stdout)["findings"]
    small = open_weights(WEIGHTS).name
    assert [f["detail"] for f in found if f["name"] == "in use"] == [small]
    told = {f["name"]: f["detail"] for f in found if f["area"] == "shipped detectors"}
    assert list(told) == list(DETECTORS)
    for name in ENCODERS:
        detail = told[name]
        folder = shipped_weights(name)
        hashes = json.loads((folder / "manifest.json").read_bytes())["sha256"]
        assert open_weights(folder).name in detail
        assert hashes["encoder.onnx"] in detail
        assert " MB, hashes verified" in detail


def test_weights_in_another_shape_are_one_sentence_and_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an earlier or later release may have written them: whole, but with other settings."""
    shutil.copytree(WEIGHTS, tmp_path / "weights")
    content = json.loads((tmp_path / "weights" / CONFIG).read_bytes())
    (tmp_path / "mine.csv").write_text(CSV, "utf-8")
    monkeypatch.setenv("BIASGUARD_WEIGHTS", str(tmp_path / "weights"))
    for wrong in ({"name": None}, {"name": "A model"}, {"k": None}):
        changed = {k: v for k, v in {**content, **wrong}.items() if v is not None}
        (tmp_path / "weights" / CONFIG).write_text(json.dumps(changed), "utf-8")
        write_manifest(tmp_path / "weights")
        with pytest.raises(WeightsError, match=r"config\.json (is incomplete|cannot be used)"):
            Guard()
        for command in (
            ("check", SAID),
            ("index", "search", SAID),
            ("index", "build", "mine.csv", "--to", "own"),
        ):
            assert "config.json" in sentence(run(*command))
        assert not (tmp_path / "own").exists()
