"""The networks of a detector: one pass for each window, or the mean of two networks' passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from guard.detect.runtime import runtime
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
    """An ONNX file, in one single-threaded session. Thread-safe: each run has its own memory."""

    def __init__(self, path: Path) -> None:
        ort = runtime()
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
        options.log_severity_level = 4  # errors are raised, so they are not logged as well
        self._session: Any = ort.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )

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


_HALF = np.float32(0.5)  # halves of float32 arrays stay float32


class AveragedNetwork:
    """Two networks as one: the mean of their logits; vectors and state are those of the first.

    Both read the same tokens; ``ids[i]`` is the number that token ``i`` of the first has in the
    vocabulary of the second.
    """

    def __init__(self, first: Network, second: Network, ids: Sequence[int]) -> None:
        self._first, self._second, self._ids = first, second, ids

    def run(self, encoded: Encoded) -> Pass:
        """Run both networks on one input, numbered as the first one does."""
        one = self._first.run(encoded)
        other = self._second.run(encoded._replace(ids=[self._ids[i] for i in encoded.ids]))
        return one._replace(
            logit=(one.logit + other.logit) / 2,
            types=(one.types + other.types) * _HALF,
            spans=(one.spans + other.spans) * _HALF,
            implied=(one.implied + other.implied) / 2,
        )


# BERT's names of MPNet's special tokens.
_SPECIAL = {"<s>": "[CLS]", "</s>": "[SEP]", "<pad>": "[PAD]", "<unk>": "[UNK]", "<mask>": "[MASK]"}


def token_numbers(first: Mapping[str, int], second: Mapping[str, int]) -> list[int]:
    """Return the number in ``second`` of each token of ``first``, in the order of its numbers.

    Raises ValueError if ``second`` has no such token, or the numbers in ``first`` have a gap.
    """
    if sorted(first.values()) != list(range(len(first))):
        raise ValueError("the numbers of the tokens have a gap")
    names = [_SPECIAL.get(token, token) for token in sorted(first, key=lambda t: first[t])]
    if missing := [name for name in names if name not in second]:
        raise ValueError(f"no token {missing[0]!r}")
    return [second[name] for name in names]
