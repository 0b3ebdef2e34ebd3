"""Files of an index and of weights that others cut, overwrite or take away."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.detect.encoder import Encoder
from guard.detect.index_watcher import IndexWatcher
from guard.detect.weights import (
    CONFIG,
    FILES,
    MANIFEST,
    TOKENIZER,
    open_weights,
    write_manifest,
)
from guard.errors import BiasIndexError, WeightsError
from guard.retrieve import graph, store
from guard.retrieve.folder import ROLES, read_manifest
from guard.retrieve.index import BiasIndex
from guard.verdict import Window
from tests.cli.test_cli import run, sentence
from tests.retrieve.test_index import some
from tests.retrieve.writer import Drawn
from tests.rows import rows
from tests.small import INDEX, WEIGHTS

ROOT = Path(__file__).resolve().parents[2]


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _empty(path: Path) -> None:
    os.truncate(path, 0)


def _garbage(path: Path) -> None:
    path.write_bytes(np.random.default_rng(1).bytes(path.stat().st_size))


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x55
    path.write_bytes(data)


def _gone(path: Path) -> None:
    path.unlink()


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _closed(path: Path) -> None:
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user reads what nobody may read")


Harm = Callable[[Path], None]

TO_CONTENT: list[Harm] = [_cut, _empty, _garbage, _gone]
HARMS: list[Harm] = [*TO_CONTENT, _folder, *([_pipe] if hasattr(os, "mkfifo") else []), _closed]
FILES_OF_AN_INDEX = ["manifest", *ROLES]


@contextmanager
def damaged(path: Path, harm: Harm) -> Iterator[None]:
    """Damage a file, and mend it afterwards: a copy of all files for every row would cost more."""
    content = path.read_bytes()
    try:
        harm(path)
        yield
    finally:
        if path.is_dir():
            path.rmdir()
        path.unlink(missing_ok=True)
        path.write_bytes(content)


def in_turn(why: str, *columns: Collection[Any]) -> list[Any]:
    """Return all combinations; by default one runs for each of the first column."""
    turns = enumerate(columns[0])
    chosen = [
        (first, *(list(column)[turn % len(column)] for column in columns[1:]))
        for turn, first in turns
    ]
    return [
        row if row in chosen else pytest.param(*row, marks=pytest.mark.slow(why))
        for row in product(*columns)
    ]


def named(value: Any) -> str:
    """The name of a case's part, for the names of the tests."""
    return value.__name__[1:] if callable(value) else str(value)


def file_of(folder: Path, role: str) -> Path:
    path = folder / "manifest.json" if role == "manifest" else read_manifest(folder).path(role)
    assert path is not None
    return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with every kind of file."""
    monkeypatch.setattr(graph, "GRAPH_FROM", 10)
    store.create_index(tmp_path / "index", some(12), Drawn())
    return tmp_path / "index"


@rows("role, harm", product(FILES_OF_AN_INDEX, HARMS))
def test_a_damaged_index_is_one_sentence(index: Path, role: str, harm: Harm) -> None:
    BiasIndex.load(index, "drawn-1")  # else it would be refused for an earlier row's damage
    with (
        damaged(file_of(index, role), harm),
        pytest.raises(BiasIndexError, match=str(index)) as caught,
    ):
        BiasIndex.load(index, "drawn-1")
    assert "\n" not in str(caught.value)


@given(data=st.data())
def test_any_damage_to_an_index_is_refused_or_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("damaged") / "index"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph, "GRAPH_FROM", data.draw(st.sampled_from([1, 99])))
        store.create_index(folder, some(4), Drawn())
    before = BiasIndex.load(folder, "drawn-1")
    names = ["manifest.json", *read_manifest(folder).sha256]
    path = folder / data.draw(st.sampled_from(names))
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    else:
        for _ in range(data.draw(st.integers(1, 8))):
            at = data.draw(st.integers(0, len(content) - 1))
            content[at] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        index = BiasIndex.load(folder, "drawn-1")
    except BiasIndexError:
        return
    # The manifest's counts and white space may be anything.
    assert index.version == before.version
    assert tuple(index.statements) == tuple(some(4))
    np.testing.assert_array_equal(index.vectors, before.vectors)


@given(data=st.data())
def test_damage_that_the_manifest_records_is_refused_or_can_be_searched(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A folder whose hashes were written after the damage."""
    folder = tmp_path_factory.mktemp("recorded") / "index"
    store.create_index(folder, some(4), Drawn())
    role = data.draw(st.sampled_from(["statements", "vectors", "table"]))
    path = file_of(folder, role)
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    else:
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    _record(folder, path)
    try:
        index = BiasIndex.load(folder, "drawn-1")
    except BiasIndexError:
        return
    assert len(index.search(Drawn().embed(["x"]), 4, -1.0)[0]) <= 4


def _record(folder: Path, path: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_bytes())
    manifest["sha256"][path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest), "utf-8")


def test_a_wrong_hash_is_shown_beside_the_recorded_one(index: Path, tmp_path: Path) -> None:
    path = file_of(index, "vectors")
    recorded = read_manifest(index).sha256[path.name]
    near = recorded[:-1] + ("0" if recorded[-1] != "0" else "1")
    text = (index / "manifest.json").read_text("utf-8").replace(recorded, near)
    (index / "manifest.json").write_text(text, "utf-8")
    with pytest.raises(BiasIndexError, match=f"sha256 {recorded}, recorded {near}"):
        BiasIndex.load(index, "drawn-1")
    weights = tmp_path / "weights"
    shutil.copytree(WEIGHTS, weights)
    hashes = json.loads((weights / MANIFEST).read_bytes())["sha256"]
    recorded = hashes[CONFIG]
    near = recorded[:-1] + ("0" if recorded[-1] != "0" else "1")
    text = (weights / MANIFEST).read_text("utf-8").replace(recorded, near)
    (weights / MANIFEST).write_text(text, "utf-8")
    with pytest.raises(WeightsError, match=f"sha256 {recorded}, recorded {near}"):
        open_weights(weights)


def test_an_index_of_another_length_of_vectors_is_refused(tmp_path: Path) -> None:
    embedder = Drawn(dim=8)
    embedder.name = Encoder(WEIGHTS, use_references=False).name
    store.create_index(tmp_path / "index", some(3), embedder)
    with pytest.raises(BiasIndexError, match=r"vectors of 8 numbers; those of .* have 384"):
        Encoder(WEIGHTS, index=tmp_path / "index")
    with pytest.raises(BiasIndexError, match="vectors of 8 numbers"):
        Encoder(WEIGHTS, index=BiasIndex.load(tmp_path / "index", None))
    with pytest.raises(BiasIndexError, match="vectors of 8 numbers"):
        store.add_statements(
            tmp_path / "index", some(1, start=9), Encoder(WEIGHTS, use_references=False)
        )
    for command in (("search", "x"), ("search", "x", "--json")):
        said = sentence(run("index", *command, "--index", str(tmp_path / "index")))
        assert "vectors of 8 numbers" in said


# Commands.


@pytest.fixture
def own(tmp_path: Path) -> Path:
    shutil.copytree(INDEX, tmp_path / "own")
    (tmp_path / "more.jsonl").write_text(
        '{"statement": "Tarkandians never pay.", "bias_type": "culture", "group": "Tarkandians",'
        ' "attribute": "never pay"}\n',
        "utf-8",
    )
    return tmp_path / "own"


COMMANDS = {
    "check": ("check", "Old people are useless."),
    "search": ("index", "search", "they never pay"),
    "stats": ("index", "stats"),
    "add": ("index", "add", "more.jsonl"),
    "remove": ("index", "remove", "--group", "women"),
}


@pytest.mark.parametrize(
    ("command", "name", "harm"),
    in_turn(
        "loads an index by a command for every damage that the loader refuses by default",
        COMMANDS,
        ["manifest.json", "statements.jsonl", "vectors.npy"],
        TO_CONTENT,
    ),
    ids=named,
)
def test_commands_end_with_a_sentence_and_code_2(
    own: Path, monkeypatch: pytest.MonkeyPatch, command: str, name: str, harm: Harm
) -> None:
    monkeypatch.chdir(own.parent)
    harm(own / name)
    args = COMMANDS[command]
    if command == "check":
        monkeypatch.setenv("BIASGUARD_INDEX", str(own))
    else:
        args = (*args, "--index", str(own))
    assert str(own) in sentence(run(*args))


@pytest.mark.parametrize(
    ("name", "harm"),
    in_turn("runs the whole of guard doctor for every damage", ["vectors.npy"], TO_CONTENT),
    ids=named,
)
def test_doctor_names_what_is_damaged(
    own: Path, monkeypatch: pytest.MonkeyPatch, name: str, harm: Harm
) -> None:
    harm(own / name)
    monkeypatch.setenv("BIASGUARD_INDEX", str(own))
    found = json.loads(run("doctor", "--json").stdout)["findings"]
    (broken,) = (f for f in found if f["area"] == "detector")
    assert broken["state"] == "broken"
    assert name in broken["detail"]


# Weights.


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    shutil.copytree(WEIGHTS, tmp_path / "weights")
    return tmp_path / "weights"


@rows("name, harm", product([*FILES, MANIFEST], HARMS))
def test_damaged_weights_are_one_sentence(weights: Path, name: str, harm: Harm) -> None:
    with (
        damaged(weights / name, harm),
        pytest.raises(
            WeightsError, match=rf"({name}|no weights at).*reinstall the package"
        ) as caught,
    ):
        Encoder(weights, use_references=False)
    assert "\n" not in str(caught.value)


@rows("name, harm", product(FILES, [_cut, _empty, _garbage]))
def test_damaged_weights_that_the_manifest_records_are_one_sentence(
    weights: Path, name: str, harm: Harm
) -> None:
    with damaged(weights / MANIFEST, lambda _: None), damaged(weights / name, harm):
        write_manifest(weights)
        with pytest.raises(WeightsError, match=f"{name}.*reinstall the package"):
            Encoder(weights, use_references=False)


def test_a_network_that_fails_when_it_runs_is_one_sentence(
    weights: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    onnx = pytest.importorskip("onnx")
    model = onnx.load(weights / "encoder.onnx")
    (table,) = (
        i for i in model.graph.initializer if "word_embeddings" in i.name and len(i.dims) == 2
    )
    first = onnx.numpy_helper.to_array(table)[:10]
    table.CopyFrom(onnx.numpy_helper.from_array(first, table.name))
    onnx.save(model, weights / "encoder.onnx")
    write_manifest(weights)
    with pytest.raises(WeightsError, match=r"encoder\.onnx holds no weights of the encoder"):
        Encoder(weights, use_references=False)
    assert capfd.readouterr() == ("", "")


def changed(path: Path, **arrays: Callable[[Any], Any]) -> None:
    """Write the arrays of an npz file anew, some of them changed."""
    with np.load(path) as stored:
        content = {name: stored[name] for name in stored.files}
    for name, change in arrays.items():
        key = name.replace("__", ".")
        content[key] = change(content[key])
    np.savez(path, **content)


HARMED_ARRAYS: dict[str, tuple[str, dict[str, Callable[[Any], Any]]]] = {
    "fusion: columns": ("fusion.npz", {"first__weight": lambda a: a[:, :100]}),
    "fusion: rows": ("fusion.npz", {"second__weight": lambda a: a[:5]}),
    "fusion: one number for many": ("fusion.npz", {"first__bias": lambda a: a[:1]}),
    "fusion: types": (
        "fusion.npz",
        {"type_delta__weight": lambda a: a[:3], "type_delta__bias": lambda a: a[:3]},
    ),
    "fusion: no numbers": ("fusion.npz", {"delta__bias": lambda a: a * np.nan}),
    "lexical: short": ("lexical.npz", {"weight": lambda a: a[:100]}),
    "lexical: long": ("lexical.npz", {"idf": lambda a: np.append(a, a)}),
    "lexical: no numbers": ("lexical.npz", {"weight": lambda a: a * np.nan}),
    "lexical: no bias": ("lexical.npz", {"bias": lambda a: a * np.inf}),
}


@rows("harm", HARMED_ARRAYS)
def test_arrays_that_do_not_go_together_are_refused_when_loaded(weights: Path, harm: str) -> None:
    name, arrays = HARMED_ARRAYS[harm]
    with damaged(weights / name, lambda path: changed(path, **arrays)):
        write_manifest(weights)
        with pytest.raises(WeightsError, match=f"{name} holds no weights of the encoder"):
            Encoder(weights, use_references=False)


def test_a_fusion_that_lacks_a_layer_is_refused_when_loaded(weights: Path) -> None:
    with np.load(weights / "fusion.npz") as stored:
        content = {name: stored[name] for name in stored.files if name != "delta.weight"}
    np.savez(weights / "fusion.npz", **content)
    write_manifest(weights)
    with pytest.raises(WeightsError, match=r"fusion\.npz holds no weights of the encoder"):
        Encoder(weights, use_references=False)


def _points(**of_age: float) -> dict[str, Any]:
    points = json.loads((WEIGHTS / CONFIG).read_text("utf-8"))["operating_points"]
    points["balanced"] |= of_age
    return {"operating_points": points}


@pytest.fixture
def unread(weights: Path) -> Path:
    """Weights without a network, which are opened all the same: hashing one takes its time."""
    _empty(weights / "encoder.onnx")
    write_manifest(weights)
    open_weights(weights)
    return weights


@rows(
    "setting",
    [
        *({"temperature": value} for value in (0, -1, math.inf, math.nan)),
        *({"dim": value} for value in (0, -1)),
        {"k": -1},
        {"floor": 9},
        {"floor": math.nan},
        {"max_context_tokens": -1},
        *({"temperature": value} for value in (1e-320, 1e9)),
        *({"lexical_weight": value} for value in (math.nan, 1e308, -1)),
        *({"offset": value} for value in (math.nan, 1e308)),
        {"version": "2\x1b[31m"},
        *({"languages": value} for value in ([], ["de"])),
        {"languages": "en"},
        {"languages": [5]},
        {"operating_points": {}},
        *(_points(age=value) for value in (2, -1, math.nan)),
        *({"own_thresholds": {"emgsd": value}} for value in (2, -1, math.nan)),
    ],
)
def test_settings_of_weights_that_none_can_have_are_refused_when_loaded(
    unread: Path, setting: dict[str, Any]
) -> None:
    """Some would have passed everything: no score reaches nan."""
    content = json.loads((WEIGHTS / CONFIG).read_bytes()) | setting
    (unread / CONFIG).write_text(json.dumps(content), "utf-8")
    write_manifest(unread)
    with pytest.raises(WeightsError, match=r"config\.json cannot be used with .*: reinstall"):
        open_weights(unread)


@pytest.mark.parametrize("offset", [100, -100])
def test_no_setting_overflows_a_score(weights: Path, offset: float) -> None:
    content = json.loads((weights / CONFIG).read_bytes()) | {"temperature": 0.01, "offset": offset}
    (weights / CONFIG).write_text(json.dumps(content), "utf-8")
    write_manifest(weights)
    session = Encoder(weights, use_references=False).snapshot()
    (found,) = session.score([Window("Old people are useless at work.")])
    assert found.score == (0 if offset > 0 else 1)


def test_a_length_of_vectors_that_is_not_the_networks_is_refused_when_loaded(
    weights: Path,
) -> None:
    content = json.loads((weights / CONFIG).read_bytes()) | {"dim": 10}
    (weights / CONFIG).write_text(json.dumps(content), "utf-8")
    write_manifest(weights)
    with pytest.raises(WeightsError, match=r"encoder\.onnx holds no weights of the encoder"):
        Encoder(weights, use_references=False)


def test_a_tokenizer_of_more_words_than_the_network_has_is_refused_when_loaded(
    weights: Path,
) -> None:
    content = json.loads((weights / TOKENIZER).read_bytes())
    words = content["model"]["vocab"]
    words["tarkandian"] = len(words)
    (weights / TOKENIZER).write_text(json.dumps(content), "utf-8")
    write_manifest(weights)
    with pytest.raises(WeightsError, match=r"encoder\.onnx holds no weights of the encoder"):
        Encoder(weights, use_references=False)


def test_commands_say_which_weights_are_damaged(
    weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _empty(weights / "encoder.onnx")
    monkeypatch.setenv("BIASGUARD_WEIGHTS", str(weights))
    for command in (("check", "Old people are useless."), ("index", "search", "x")):
        assert "encoder.onnx" in sentence(run(*command))


# Under a guard that serves.


@pytest.fixture
def watcher(index: Path, monkeypatch: pytest.MonkeyPatch) -> IndexWatcher:
    """One that looks only when it is told to."""
    monkeypatch.setattr(
        IndexWatcher, "_start_thread", lambda self: setattr(self, "_owner", os.getpid())
    )
    return IndexWatcher(index, "drawn-1")


@pytest.mark.parametrize(
    ("role", "harm"),
    in_turn("watches an index for every damage of every file", FILES_OF_AN_INDEX, HARMS),
    ids=named,
)
def test_a_watcher_keeps_its_version_and_logs_once_until_the_index_is_fixed(
    index: Path,
    watcher: IndexWatcher,
    caplog: pytest.LogCaptureFixture,
    role: str,
    harm: Harm,
) -> None:
    before, query = watcher.index, Drawn().embed(["x"])
    found = before.search(query, 5, -1.0)
    with damaged(file_of(index, role), harm):
        for _ in range(40):
            watcher.check()
        assert watcher.index is before
        assert before.search(query, 5, -1.0) == found
        assert tuple(before.statements) == tuple(some(12))
        (record,) = (r for r in caplog.records if r.levelno >= logging.WARNING)
        assert f"version {before.version} of the bias index stays in use" in record.getMessage()
    store.add_statements(index, some(1, start=20), Drawn())
    for _ in range(200):
        watcher.check()
    assert len(watcher.index) == 13


SERVING = """
import os, sys
from pathlib import Path
from guard import Guard
from guard.retrieve import graph

guard = Guard(index=Path(sys.argv[1]), weights=Path(sys.argv[2]))
assert guard.detector.index.exact == (sys.argv[3] == "exact")
said = [f"Old people number {i} are useless at work." for i in range(20)]
before = [(v.score, v.references) for v in guard.check_many(said)]
print("serving", flush=True)
sys.stdin.readline()
assert before == [(v.score, v.references) for v in guard.check_many(said)]
assert before[0][1], "no references"
new = [v.references for v in guard.check_many([f"Women {i} cannot drive." for i in range(99)])]
index = guard.detector.index
assert len(index.search(index.vectors[:1], len(index), -1.0)[0]) == len(index)
print(sum(len(s.statement) for s in index.statements), flush=True)
"""


@pytest.mark.parametrize(
    ("how", "harm"),
    in_turn(
        "serves in a process for every damage", ["graph", "exact"], [_empty, _garbage, _cut, _gone]
    ),
    ids=named,
)
def test_a_process_that_serves_outlives_its_files(
    tmp_path: Path, weights: Path, monkeypatch: pytest.MonkeyPatch, how: str, harm: Harm
) -> None:
    if how == "graph":
        monkeypatch.setattr(graph, "GRAPH_FROM", 1000)
        encoder = Encoder(WEIGHTS, use_references=False)
        store.create_index(tmp_path / "own", [], encoder, base=BiasIndex.load(INDEX, encoder.name))
    else:
        shutil.copytree(INDEX, tmp_path / "own")
    child = subprocess.Popen(
        [sys.executable, "-c", SERVING, str(tmp_path / "own"), str(weights), how],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "serving\n", child.communicate()[1]
    for name in read_manifest(tmp_path / "own").sha256:
        harm(tmp_path / "own" / name)
    for name in FILES:
        harm(weights / name)
    out, err = child.communicate("go on\n", timeout=120)
    assert child.returncode == 0, err
    assert int(out) > 0
    assert err.count("stays in use") <= 1
    assert "Traceback" not in err
