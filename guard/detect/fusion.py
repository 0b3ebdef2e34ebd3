r"""The fusion head, which adjusts the logits by the references; inference in plain NumPy.

For a text with embedding :math:`q`, projected state :math:`h` and logit :math:`l`, and each of its
references :math:`r` with type :math:`t_r` (one-hot) and cosine :math:`s_r = q \cdot r`:

.. math::
    u_r &= relu(W_1 [100\, q \odot r;\; 20\, |q - r|;\; s_r;\; s_r^2;\; t_r;\; h;\; l / 4]) \\
    v_r &= relu(W_2 u_r), \qquad a = softmax_r(w \cdot u_r) \\
    p &= [\textstyle\sum_r a_r v_r;\; \max_r v_r]

The logit changes by :math:`d \cdot p`, the type logits by :math:`T [p; 4 \sum_r a_r t_r]`; all maps
have a bias. Without references nothing changes.
"""

from __future__ import annotations

from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
# Scales of the product, the difference and the logit among the features, and of the references'
# averaged types.
PRODUCT_SCALE, DIFFERENCE_SCALE, LOGIT_SCALE, NAMED_SCALE = 100.0, 20.0, 0.25, 4.0

_LAYERS = ("first", "second", "weight", "delta", "type_delta")


class FusionHead:
    """Weights of the head. Thread-safe: they are only read."""

    def __init__(self, weights: dict[str, Floats], types: int) -> None:
        """``weights`` has the arrays ``{first,second,weight,delta,type_delta}.{weight,bias}``."""
        self._w = {k: np.ascontiguousarray(v, np.float32) for k, v in weights.items()}
        self._kinds = np.eye(types, dtype=np.float32)

    @classmethod
    def load(cls, file: Path | IO[bytes], types: int) -> FusionHead:
        """Read the arrays of an npz file."""
        with np.load(file, allow_pickle=False) as stored:
            head = cls({name: stored[name] for name in stored.files}, types)
        for name in _LAYERS:
            if head._w[f"{name}.bias"].shape != head._w[f"{name}.weight"].shape[:1]:
                raise ValueError  # NumPy would broadcast a shorter one
        return head

    def change(
        self,
        embedding: Floats,
        state: Floats,
        logit: float,
        vectors: Floats,
        types: NDArray[np.int64],
    ) -> tuple[float, Floats]:
        """Return the change of the logit and of the type logits (9,).

        ``embedding`` (d,), ``state`` (256,), and k references: ``vectors`` (k, d), ``types`` (k,)
        ids. Both changes are zero for k = 0.
        """
        k = len(vectors)
        if k == 0:
            return 0.0, np.zeros(len(self._kinds), np.float32)
        product = vectors * embedding
        s = product.sum(axis=1, keepdims=True)
        features = np.concatenate(
            [
                product * PRODUCT_SCALE,
                np.abs(embedding - vectors) * DIFFERENCE_SCALE,
                s,
                s * s,
                self._kinds[types],
                np.broadcast_to(state, (k, len(state))),
                np.full((k, 1), logit * LOGIT_SCALE, np.float32),
            ],
            axis=1,
        )
        u = np.maximum(self._apply_linear("first", features), 0)
        v = np.maximum(self._apply_linear("second", u), 0)
        attention = self._apply_linear("weight", u)
        attention = np.exp(attention - attention.max())
        attention /= attention.sum()
        pooled = np.concatenate([(attention * v).sum(axis=0), v.max(axis=0)])
        named = (attention * self._kinds[types]).sum(axis=0) * NAMED_SCALE
        change = float(self._apply_linear("delta", pooled)[0])
        return change, self._apply_linear("type_delta", np.concatenate([pooled, named]))

    def _apply_linear(self, name: str, x: Floats) -> Floats:
        y: Floats = x @ self._w[f"{name}.weight"].T + self._w[f"{name}.bias"]
        return y
