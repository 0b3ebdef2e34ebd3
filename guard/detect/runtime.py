"""Imports ONNX Runtime; the only place where guard does.

Telemetry is off, because its thread is missing in a forked child, which then ends by SIGABRT.
"""

from __future__ import annotations

import os
from typing import Any


def onnx_runtime() -> Any:
    """Return ``onnxruntime`` with its telemetry disabled.

    Since 1.29 it reports each process and model to Microsoft, stores a device id in the user's
    cache, and has a thread that a forked child does not have but waits for at exit. It reads the
    environment variable on import; a value that the user has set is respected.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime  # here, so that importing guard stays fast

    return onnxruntime
