"""ONNX Runtime, which the guard loads here alone."""

from __future__ import annotations

import os
from typing import Any


def runtime() -> Any:
    """Return ``onnxruntime``, told to report to nobody.

    From 1.29 on it tells Microsoft of each process and model, keeps a name for the device in the
    user's cache and has a thread for it, which a forked child lacks and waits for at its end. It
    reads the variable when it is loaded; who sets it to anything else has decided otherwise.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime  # here, so that importing guard stays quick

    return onnxruntime
