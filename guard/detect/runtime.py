"""Imports ONNX Runtime, and names what it runs on; the only place where guard does.

Telemetry is off, because its thread is missing in a forked child, which then ends by SIGABRT.
"""

from __future__ import annotations

import os
from typing import Any

from guard.errors import ConfigError

#: What a network may run on.
CPU, CUDA = "cpu", "cuda"
DEVICES = (CPU, CUDA)
_CUDA_PROVIDER = "CUDAExecutionProvider"
_CPU_PROVIDER = "CPUExecutionProvider"


def onnx_runtime() -> Any:
    """Return ``onnxruntime`` with its telemetry disabled.

    Since 1.29 it reports each process and model to Microsoft, stores a device id in the user's
    cache, and has a thread that a forked child does not have but waits for at exit. It reads the
    environment variable on import; a value that the user has set is respected.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime  # here, so that importing guard stays fast

    return onnxruntime


def providers_for(device: str) -> list[Any]:
    """Return ONNX Runtime's providers for a device, in the order in which it asks them.

    With CUDA, the CPU runs what its provider has no kernel for; products of float32 are not rounded
    to TF32, which scores would show.

    Raises:
        ConfigError: there is no such device, or the installed ONNX Runtime cannot use it.

    """
    if device not in DEVICES:
        raise ConfigError(f"device is one of {', '.join(DEVICES)}, got {device!r}.")
    if device == CPU:
        return [_CPU_PROVIDER]
    ort = onnx_runtime()
    if _CUDA_PROVIDER not in ort.get_available_providers():
        raise ConfigError(
            f"device='cuda' needs the package onnxruntime-gpu, and ONNX Runtime {ort.__version__} "
            "here has no CUDA provider; run: pip uninstall onnxruntime && pip install "
            "onnxruntime-gpu, or leave device out."
        )
    return [(_CUDA_PROVIDER, {"use_tf32": "0"}), _CPU_PROVIDER]


def check_device(session: Any, device: str) -> None:
    """Raise ConfigError if a session does not run on ``device``.

    Where the CUDA provider cannot be loaded, ONNX Runtime goes on with the CPU.
    """
    if device == CUDA and _CUDA_PROVIDER not in session.get_providers():
        raise ConfigError(
            "device='cuda': ONNX Runtime could not load its CUDA provider; install the versions of "
            "CUDA and cuDNN that onnxruntime-gpu names, or leave device out."
        )
