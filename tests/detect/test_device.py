"""What the networks run on: the CPU, or a GPU by ONNX Runtime's CUDA provider."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from guard import Guard
from guard.config import read_settings
from guard.detect import network, runtime
from guard.detect.cascade import Cascade
from guard.detect.encoder import Encoder
from guard.errors import ConfigError
from guard.policy import Policy
from tests.small import INDEX, WEIGHTS

#: By how much a score on a GPU may differ from that on the CPU.
BOUND = 0.01
TEXTS = [
    "Old people are useless at work.",
    "The committee met on Friday, and the minutes were sent round the same day.",
    "Women are too emotional to lead.",
    "She asked whether the ferry would run in the storm.",
]


def has_cuda() -> bool:
    return "CUDAExecutionProvider" in runtime.onnx_runtime().get_available_providers()


without_cuda = pytest.mark.skipif(has_cuda(), reason="ONNX Runtime has a CUDA provider here")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Pretend that ONNX Runtime has a CUDA provider; return what sessions are asked to use."""
    ort, asked = runtime.onnx_runtime(), []

    class Session:
        def __init__(self, path: str, options: Any, providers: list[Any]) -> None:
            asked.append(providers)
            self._session = ort.InferenceSession(path, options, ["CPUExecutionProvider"])
            self._names = [p if isinstance(p, str) else p[0] for p in providers]

        def get_providers(self) -> list[str]:
            return self._names

        def run(self, *args: Any) -> Any:
            return self._session.run(*args)

    pretended = SimpleNamespace(
        **{name: getattr(ort, name) for name in ("SessionOptions", "ExecutionMode")},
        InferenceSession=Session,
        get_available_providers=lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"],
        __version__="1.99",
    )
    for module in (runtime, network):
        monkeypatch.setattr(module, "onnx_runtime", lambda: pretended)
    return asked


def test_the_cpu_is_asked_for_and_nothing_else(opened: list[Any]) -> None:
    Encoder(WEIGHTS, INDEX)
    assert opened == [["CPUExecutionProvider"]]


def test_cuda_is_asked_for_first_and_without_rounding(opened: list[Any]) -> None:
    Encoder(WEIGHTS, INDEX, device="cuda")
    Cascade(device="cuda")
    cuda = [("CUDAExecutionProvider", {"use_tf32": "0"}), "CPUExecutionProvider"]
    assert opened == [cuda] * 3


def test_a_provider_that_is_not_loaded_is_refused(
    opened: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = runtime.onnx_runtime().InferenceSession
    monkeypatch.setattr(session, "get_providers", lambda self: ["CPUExecutionProvider"])
    with pytest.raises(ConfigError, match="could not load its CUDA provider"):
        Encoder(WEIGHTS, INDEX, device="cuda")


@without_cuda
def test_without_the_provider_the_package_is_named(elsewhere: None) -> None:
    for detector in ("encoder-small", "cascade", "cascade:encoder-small,encoder"):
        with pytest.raises(ConfigError, match="needs the package onnxruntime-gpu"):
            Guard(detector=detector, device="cuda")


def test_the_setting_is_read_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "guard.toml").write_text('device = "cuda"\n')
    assert read_settings(tmp_path)["device"] == "cuda"
    monkeypatch.setenv("BIASGUARD_DEVICE", "tpu")
    with pytest.raises(ConfigError, match="device is one of cpu, cuda, got 'tpu'"):
        read_settings(tmp_path)
    with pytest.raises(ConfigError, match="device is one of cpu, cuda"):
        runtime.providers_for("tpu")


@pytest.mark.skipif(not has_cuda(), reason="needs a GPU and onnxruntime-gpu")
@pytest.mark.parametrize("name", ["encoder-small", "encoder"])
def test_scores_on_a_gpu_are_those_of_the_cpu_within_the_bound(name: str) -> None:
    own, other = (
        Guard(Policy(), detector=name, device=device).check_many(TEXTS)
        for device in ("cpu", "cuda")
    )
    for one, two in zip(own, other, strict=True):
        assert one.score == pytest.approx(two.score, abs=BOUND)
        assert one.biased == two.biased
