"""Large activations are multiplied apart: the same outputs, and the way back from a release."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Imports here, and not above, what would take seconds of every collection."""
    global base_tokens, export_onnx, float_weights, Nets, quantise_weights, torch, untrained_nets
    global with_outliers_apart
    pytest.importorskip("torch")
    pytest.importorskip("onnx")
    import torch

    from guard.train.base import base_tokens
    from guard.train.encoder import Nets, untrained_nets
    from guard.train.export import export_onnx, quantise_weights, with_outliers_apart
    from guard.train.restore import float_weights


TEXTS = ["Old people are slow.", "The library opens at nine.", "She said so, and he agreed."]


@pytest.fixture(scope="module")
def nets() -> Nets:
    whole = untrained_nets({"base": "minilm", "layers": 2}).eval()
    with torch.no_grad():
        # One hidden unit far above the others, as larger bases have them.
        whole.net.encoder.encoder.layer[1].intermediate.dense.bias[7] = 60.0
    return whole


def state(nets: Nets, text: str) -> torch.Tensor:
    one = base_tokens("minilm").encode(text)[0]
    with torch.no_grad():
        return nets.net(
            torch.tensor([one.ids]), torch.ones(1, len(one.ids), dtype=torch.long),
            torch.tensor([one.types]),
        ).state  # fmt: skip


def test_the_split_network_gives_the_same_outputs(nets: Nets) -> None:
    split = with_outliers_apart(nets, base_tokens("minilm"), TEXTS)
    assert 7 in split.net.encoder.encoder.layer[1].output.dense.outliers
    for text in TEXTS:
        assert torch.allclose(state(split, text), state(nets, text), atol=1e-4)


def test_a_release_of_it_goes_back_to_whole_layers(nets: Nets, tmp_path: Path) -> None:
    split = with_outliers_apart(nets, base_tokens("minilm"), TEXTS)
    export_onnx(split, tmp_path / "float.onnx")
    quantise_weights(tmp_path / "float.onnx", tmp_path / "int8.onnx")
    found, trained = float_weights(tmp_path / "int8.onnx"), nets.state_dict()
    assert found.keys() == {name for name in trained if name.startswith("net.")}
    for number, layer in enumerate(split.net.encoder.encoder.layer):
        for part in ("intermediate", "output"):
            name = f"net.encoder.encoder.layer.{number}.{part}.dense.weight"
            apart = getattr(layer, part).dense.outliers
            assert torch.equal(found[name][:, apart], trained[name][:, apart])
            assert not torch.equal(found[name], trained[name])


def stored(nets: Nets, folder: Path) -> dict[str, torch.Tensor]:
    folder.mkdir()
    export_onnx(nets, folder / "float.onnx")
    quantise_weights(folder / "float.onnx", folder / "int8.onnx")
    return float_weights(folder / "int8.onnx")


def test_what_a_run_learned_from_a_release_on_is_stored_and_the_rest_stays(
    nets: Nets, tmp_path: Path
) -> None:
    again = copy.deepcopy(nets)
    trained = "net.encoder.encoder.layer.0.attention.self.query.weight"
    torch.manual_seed(0)
    # Weights near 0 keep their integer whatever the step.
    torch.nn.init.uniform_(again.get_parameter(trained), -0.1, 0.1)
    released = stored(again, tmp_path / "first")
    again.load_state_dict(again.state_dict() | released)
    frozen = "net.encoder.encoder.layer.0.attention.self.key.weight"
    before = released[trained]
    # A tenth of a step is learned, far less than rounding keeps of it.
    learned = 0.1 * before.abs().amax(dim=1, keepdim=True) / 64
    again.load_state_dict(again.state_dict() | {trained: before + learned})
    found = stored(again, tmp_path / "second")
    for name in (frozen, "net.embed.weight"):
        assert torch.allclose(found[name], released[name], rtol=1e-5, atol=0)
    kept = float(((found[trained] - before) / learned).mean())
    assert kept == pytest.approx(1, abs=0.15)
    steps = before.abs().amax(dim=1, keepdim=True) / 64
    assert float(((found[trained] - before - learned) / steps).abs().max()) < 0.6
