"""The network of a detector: one pass for each window."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from guard.detect.runtime import CPU, check_device, onnx_runtime, providers_for
from guard.detect.tokens import Encoded

Floats = NDArray[np.float32]


class Pass(NamedTuple):
    """The network's output for one input of t tokens, before references.

    ``embedding`` (dim,), norm 1; ``state`` (256,); ``logit`` of bias; ``types`` (9,) and ``spans``
    (t, 2; group and attribute), logits; ``implied``, the logit of an implied association.
    """

    embedding: Floats
    state: Floats
    logit: float
    types: Floats
    spans: Floats
    implied: float


class Network:
    """An ONNX file, in one single-threaded session. Thread-safe: each run has its own memory.

    Raises ConfigError if it cannot run on ``device``.
    """

    def __init__(self, path: Path, device: str = CPU) -> None:
        ort = onnx_runtime()
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
        options.log_severity_level = 4  # errors are raised, so they are not logged as well
        self._session: Any = ort.InferenceSession(
            str(path), options, providers=providers_for(device)
        )
        check_device(self._session, device)

    def run(self, encoded: Encoded) -> Pass:
        """Run the network on one input."""
        ids = np.array([encoded.ids], np.int64)
        feed = {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "token_type_ids": np.array([encoded.types], np.int64),
        }
        embedding, state, logit, types, spans, implied = self._session.run(None, feed)
        return Pass(embedding[0], state[0], float(logit[0]), types[0], spans[0], float(implied[0]))
