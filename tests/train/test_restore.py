"""Released weights go back to a run, and the run says where they come from."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from click.testing import CliRunner

pytest.importorskip("torch")
pytest.importorskip("onnx")

import torch

from guard.cli import main
from guard.detect.weights import write_manifest
from guard.train import checkpoint
from guard.train.base import base_tokens, padded
from guard.train.config import TrainConfig
from guard.train.encoder import build_nets, load_final
from guard.train.export import LARGEST, export_onnx, quantise
from guard.train.restore import network, pack
from tests.small import WEIGHTS


@pytest.fixture(scope="module")
def restored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("restored")
    done = CliRunner().invoke(
        main, ["train", "restore", "--from", str(WEIGHTS), "--work", str(work), "--json"]
    )
    assert done.exit_code == 0, done.output
    return Path(json.loads(done.stdout.splitlines()[-1])["final"])


def test_exported_anew_it_has_the_shipped_integers(restored: Path, tmp_path: Path) -> None:
    nets, _ = load_final(restored)
    export_onnx(nets, tmp_path / "float.onnx")
    quantise(tmp_path / "float.onnx", tmp_path / "int8.onnx", bits=8, largest=127)
    shipped, again = network(WEIGHTS / "encoder.onnx"), network(tmp_path / "int8.onnx")
    assert shipped.keys() == again.keys()
    for name, weight in shipped.items():
        # The largest weight of a channel sets its scale, so the steps stay where they were.
        assert torch.allclose(weight, again[name], rtol=0, atol=float(weight.abs().max()) / 250)
        assert float((weight - again[name]).abs().mean()) < float(weight.abs().mean()) / 500


@pytest.mark.parametrize(("bits", "largest"), [(7, LARGEST), (7, 64), (8, 127)])
def test_a_weight_is_within_half_a_step_of_the_trained_one(
    tmp_path: Path, bits: Literal[7, 8], largest: int
) -> None:
    config = TrainConfig(work=tmp_path, data=None, base="minilm")
    nets = build_nets(config)
    export_onnx(nets, tmp_path / "float.onnx")
    quantise(tmp_path / "float.onnx", tmp_path / "int8.onnx", bits=bits, largest=largest)
    found, trained = network(tmp_path / "int8.onnx"), nets.state_dict()
    assert found.keys() == {name for name in trained if name.startswith("net.")}
    for name, weight in found.items():
        # The whole range bounds every channel's. Tables have all integers of the bits.
        most = largest if "embeddings" not in name else {7: 64, 8: 127}[bits]
        step = float(trained[name].max() - trained[name].min()) / most
        assert float((weight - trained[name]).abs().max()) <= max(step / 2, 1e-7) * 1.02


def test_a_packed_run_is_the_run_to_half_a_step(restored: Path, tmp_path: Path) -> None:
    packed = tmp_path / "run.npz"
    pack = ["train", "pack", "--work", str(restored.parent), "--to", str(packed), "--json"]
    done = CliRunner().invoke(main, pack)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout.splitlines()[-1]) == {"packed": str(packed)}
    back = ["train", "restore", "--from", str(packed), "--work", str(tmp_path / "work"), "--json"]
    done = CliRunner().invoke(main, back)
    assert done.exit_code == 0, done.output
    found = torch.load(json.loads(done.stdout.splitlines()[-1])["final"], weights_only=True)
    trained = torch.load(restored, weights_only=True)
    assert found["settings"] == trained["settings"]
    assert found["nets"].keys() == trained["nets"].keys()
    for name, weight in trained["nets"].items():
        half = weight.abs().amax(dim=-1, keepdim=True) / 126 if weight.dim() == 2 else 0.0
        assert bool(((found["nets"][name] - weight).abs() <= half * 1.001 + 1e-9).all()), name


def test_what_is_the_bases_is_not_packed(tmp_path: Path) -> None:
    config = TrainConfig(work=tmp_path, data=None, base="minilm")
    nets = build_nets(config)
    with torch.no_grad():
        nets.net.encoder.encoder.layer[-1].output.dense.weight.mul_(2)
    content = {"nets": nets.state_dict(), "settings": config.described(), "rows": {}, "quotas": {}}
    checkpoint.save(tmp_path / "final.pt", content)
    pack(tmp_path / "final.pt", tmp_path / "run.npz")
    with np.load(tmp_path / "run.npz") as packed:
        names = [name for name in packed if name.startswith("net.encoder.")]
    layer = "net.encoder.encoder.layer.5.output.dense.weight"
    assert names == [f"{layer}:scale", layer]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"text"])
def test_a_file_that_is_no_packed_run_is_named(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "run.npz"
    file.write_bytes(content)
    done = CliRunner().invoke(
        main, ["train", "restore", "--from", str(file), "--work", str(tmp_path / "work")]
    )
    assert done.exit_code == 2
    assert "holds no packed run" in done.output
    assert not (tmp_path / "work" / "final.pt").exists()


def test_sentence_transformers_loads_the_encoder(restored: Path, tmp_path: Path) -> None:
    kind = pytest.importorskip("sentence_transformers").SentenceTransformer
    command = ["train", "sentence-model", "--work", str(restored.parent), "--to"]
    done = CliRunner().invoke(main, [*command, str(tmp_path / "st"), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout.splitlines()[-1]) == {"model": str(tmp_path / "st")}
    texts = ["Old people are useless at work.", "The meeting is at nine.", "Velmorians, again!"]
    nets, content = load_final(restored)
    tokens = base_tokens(content["settings"]["base"])
    with torch.no_grad():
        ours = [nets.net(*padded(tokens.encode(t), tokens.pad)).embedding[0] for t in texts]
    found = kind(str(tmp_path / "st"), device="cpu").encode(texts, convert_to_tensor=True)
    assert torch.allclose(found, torch.stack(ours), atol=1e-5)
    again = CliRunner().invoke(main, [*command, str(tmp_path / "st")])
    assert again.exit_code == 2
    assert "already exists; name a new folder" in again.output
    empty = CliRunner().invoke(main, ["train", "sentence-model", "--work", str(tmp_path), "--to",
                                      str(tmp_path / "other")])  # fmt: skip
    assert empty.exit_code == 2
    assert "guard train restore --work" in empty.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["st"]


def test_the_references_head_is_the_shipped_one(restored: Path) -> None:
    _, content = load_final(restored)
    with np.load(WEIGHTS / "fusion.npz") as arrays:
        for name, array in arrays.items():
            assert np.array_equal(content["nets"][f"fusion.{name}"].numpy(), array)


def refused(folder: Path, work: Path) -> str:
    given: list[Any] = ["train", "restore", "--from", str(folder), "--work", str(work)]
    done = CliRunner().invoke(main, given)
    assert done.exit_code == 2, done.output
    assert not work.exists()
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize("told", ["", "{}", '{"training": []}', "[1]"])
def test_weights_without_their_record_are_refused(tmp_path: Path, told: str) -> None:
    folder = tmp_path / "w"
    shutil.copytree(WEIGHTS, folder)
    (folder / "figures.json").write_text(told)
    assert "does not say how these weights were trained" in refused(folder, tmp_path / "run")


def test_weights_of_another_build_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "w"
    shutil.copytree(WEIGHTS, folder)
    with np.load(folder / "fusion.npz") as arrays:
        kept = {name: array for name, array in arrays.items() if name != "delta.bias"}
    np.savez(folder / "fusion.npz", **kept)
    write_manifest(folder)
    assert "a network of another build" in refused(folder, tmp_path / "run")


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    assert "There are no weights at" in refused(tmp_path, tmp_path / "run")
