"""Released weights go back to a run, and the run says where they come from."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from guard.cli import main
from guard.detect.weights import write_manifest
from guard.train.config import TrainConfig
from tests.small import WEIGHTS


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Imports here, and not above, what would take seconds of every collection."""
    global \
        base_folder, \
        base_tokens, \
        build_nets, \
        export_onnx, \
        float_weights, \
        load_final, \
        padded_inputs
    global onnx, quantise_weights, torch, with_tokens, without_other_scripts
    pytest.importorskip("torch")
    pytest.importorskip("onnx")
    import onnx
    import torch

    from guard.train.base import base_folder, base_tokens, padded_inputs
    from guard.train.encoder import build_nets, load_final
    from guard.train.export import (
        export_onnx,
        quantise_weights,
        with_tokens,
        without_other_scripts,
    )
    from guard.train.restore import float_weights


@pytest.fixture(scope="module")
def restored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("restored")
    done = CliRunner().invoke(
        main, ["train", "restore", "--from", str(WEIGHTS), "--work", str(work), "--json"]
    )
    assert done.exit_code == 0, done.output
    return Path(json.loads(done.stdout.splitlines()[-1])["final"])


@pytest.mark.slow("exports and rounds the whole network")
def test_exported_anew_it_has_the_shipped_integers(restored: Path, tmp_path: Path) -> None:
    nets, _ = load_final(restored)
    whole = json.loads((base_folder("minilm") / "tokenizer.json").read_bytes())
    _, used = without_other_scripts(whole)
    export_onnx(with_tokens(nets, used), tmp_path / "float.onnx")
    quantise_weights(tmp_path / "float.onnx", tmp_path / "int8.onnx")
    shipped, again = float_weights(WEIGHTS / "encoder.onnx"), float_weights(tmp_path / "int8.onnx")
    assert shipped.keys() == again.keys()
    # A release keeps some inputs of these layers in 32 bits; with them the range of a channel is
    # another, so its step is drawn anew. The other layers keep every weight.
    graph = onnx.load(str(WEIGHTS / "encoder.onnx")).graph
    nodes = (node.name.strip("/").replace("/", ".") for node in graph.node)
    drawn = {n.removesuffix(".apart.MatMul") for n in nodes if n.endswith(".apart.MatMul")}
    assert len(drawn) == 12
    for name, weight in shipped.items():
        again_drawn = name.removesuffix(".weight") in drawn
        most, mean = (1.15 / 128, 1 / 30) if again_drawn else (1 / 120, 1 / 500)
        assert torch.allclose(weight, again[name], rtol=0, atol=float(weight.abs().max()) * most)
        assert float((weight - again[name]).abs().mean()) < float(weight.abs().mean()) * mean


def test_a_weight_is_within_half_a_drawn_step_of_the_trained_one(tmp_path: Path) -> None:
    config = TrainConfig(work=tmp_path, data=None, base="minilm", layers=2)
    nets = build_nets(config)
    export_onnx(nets, tmp_path / "float.onnx")
    quantise_weights(tmp_path / "float.onnx", tmp_path / "int8.onnx")
    found, trained = float_weights(tmp_path / "int8.onnx"), nets.state_dict()
    assert found.keys() == {name for name in trained if name.startswith("net.")}
    for name, weight in found.items():
        # The whole range bounds every channel's; a step is drawn up to 1.15 times as large.
        step = 1.15 * float(trained[name].max() - trained[name].min()) / 64
        assert float((weight - trained[name]).abs().max()) <= max(step / 2, 1e-7) * 1.02


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
        ours = [nets.net(*padded_inputs(tokens.encode(t), tokens.pad)).embedding[0] for t in texts]
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
