"""From trained weights to the files that ship: ONNX with int8 weights, and the fusion head.

Why: docs/decisions/large-activations-apart.md.
"""

from __future__ import annotations

import copy
import json
import random
import re
import shutil
import tempfile
import warnings
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from onnx.external_data_helper import set_external_data
from torch import Tensor, nn

from guard.detect import weights as files
from guard.detect.runtime import onnx_runtime
from guard.detect.tokens import MAX_TOKENS, WindowTokens
from guard.policy import OperatingPoint
from guard.train.base import BASES, base_folder, base_tokens, padded_inputs
from guard.train.config import BaseName
from guard.train.encoder import Nets
from guard.train.model import DIM
from guard.verdict import BIAS_TYPES

OPSET = 17
_INPUTS = ["input_ids", "attention_mask", "token_type_ids"]
_OUTPUTS = ["embedding", "state", "logit", "types", "spans", "implied"]


def export_onnx(nets: Nets, path: Path) -> None:
    """Write the shared pass as float32 ONNX with dynamic batch and length."""
    ids = torch.tensor([[5, 2023, 2003, 6, 2000, 6], [5, 2023, 2003, 6, 2000, 6]])
    types = torch.tensor([[0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 1, 1]])
    axes = {name: {0: "n"} for name in _OUTPUTS}
    axes |= {name: {0: "n", 1: "t"} for name in (*_INPUTS, "spans")}
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            nets.eval(),
            (ids, torch.ones_like(ids), types),
            str(path),
            input_names=_INPUTS,
            output_names=_OUTPUTS,
            dynamic_axes=axes,
            opset_version=OPSET,
            dynamo=False,
        )


# Inputs of each of a feed-forward layer's products that are computed apart, and the texts they are
# found on.
_OUTLIERS = 4
_OUTLIER_TEXTS = 256


class SplitLinear(nn.Module):
    """A linear layer of which a few inputs have a float32 product of their own.

    Some inputs of the feed-forward layers are ten to fifty times as large as the others. As 8-bit
    activations share one scale, they would leave the others a few steps: LLM.int8() (Dettmers
    et al. 2022, section 3) multiplies such dimensions apart.
    """

    outliers: Tensor
    others: Tensor

    def __init__(self, whole: nn.Linear, outliers: Tensor) -> None:
        super().__init__()
        others = torch.ones(whole.in_features)
        others[outliers] = 0
        self.register_buffer("outliers", outliers)
        self.register_buffer("others", others)
        self.dense = copy.deepcopy(whole)
        self.dense.weight.data *= others
        self.apart = nn.Linear(len(outliers), whole.out_features, bias=False)
        self.apart.weight.data = whole.weight.data[:, outliers]

    def forward(self, x: Tensor) -> Tensor:
        """Return what the whole layer gives, (..., inputs) -> (..., outputs)."""
        apart: Tensor = self.apart(x.index_select(-1, self.outliers))
        rest: Tensor = self.dense(x * self.others)
        return apart + rest


def with_outliers_apart(nets: Nets, tokens: WindowTokens, texts: Sequence[str]) -> Nets:
    """Return a copy of the network whose feed-forward layers keep their largest inputs apart."""
    split = copy.deepcopy(nets).eval()
    parents = [part for layer in split.net.encoder.encoder.layer
               for part in (layer.intermediate, layer.output)]  # fmt: skip
    largest: dict[nn.Module, Tensor] = {}

    def see(layer: nn.Module, inputs: tuple[Tensor]) -> None:
        seen = inputs[0].abs().flatten(0, -2).amax(0)
        largest[layer] = torch.maximum(largest.get(layer, seen), seen)

    hooks = [part.dense.register_forward_pre_hook(see) for part in parents]
    with torch.no_grad():
        for text in texts:
            split.net(*padded_inputs(tokens.encode(text)[:1], tokens.pad))
    for part, hook in zip(parents, hooks, strict=True):
        hook.remove()
        part.dense = SplitLinear(
            part.dense, largest[part.dense].topk(_OUTLIERS).indices.sort().values
        )
    return split


def quantise_weights(source: Path, target: Path) -> None:
    """Store weights as int8 with a scale per channel; activations are scaled as they come.

    The integers of a product's weight go to 64. To 127 two products, which processors without VNNI
    add in 16 bits, could overflow.
    """
    import logging

    onnx_runtime()
    target.with_name(files.TABLE).unlink(missing_ok=True)  # onnx would append to it
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.shape_inference import quant_pre_process

    prepared = source.with_suffix(".prepared.onnx")
    quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
    # It advises, at length and at the level of a warning, to do what was just done.
    logging.getLogger().setLevel(logging.ERROR)
    apart = [
        node.name for node in onnx.load(str(prepared), load_external_data=False).graph.node
        if "/apart/" in node.name or "/dense/Gather" in node.name
    ]  # fmt: skip
    quantize_dynamic(
        str(prepared),
        str(target),
        weight_type=QuantType.QInt8,
        per_channel=True,
        reduce_range=True,
        nodes_to_exclude=apart,
        extra_options={"MatMulConstBOnly": True},
    )
    _draw_steps(target, prepared)
    if target.stat().st_size > _LARGEST_FILE:
        _without_table(target)
    prepared.unlink()


# The largest integer of a weight, and the largest factor by which a channel's step grows.
_LARGEST = 64
_LARGEST_STEP = 1.15
# How near to whole numbers of a step the weights of a channel lie that was stored and not trained.
_STORED = 1e-3


def _draw_steps(path: Path, exact: Path) -> None:
    """Round the products' weights in ``path`` once more, to a step drawn for each channel.

    A run that goes on from a release begins on whole numbers of the release's steps. Rounded to the
    same steps, most weights would return to where they began. ``exact`` has the float32 weights. A
    channel that was not trained keeps its step, and so its weights.
    """
    model, whole = onnx.load(str(path)), onnx.load(str(exact)).graph
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in whole.initializer}
    for node in whole.node:  # it is stored as a product, (in, out)
        if any(a.name == "transB" and a.i for a in node.attribute) and node.input[1] in weights:
            weights[node.input[1]] = weights[node.input[1]].T
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type != "MatMulInteger":
            continue
        name = node.input[1].removesuffix("_quantized")
        weight = weights[name]
        step = numpy_helper.to_array(stored[f"{name}_scale"])
        # Seeded by the weights: the draws of the release before would give its steps again.
        rng = np.random.default_rng(zlib.crc32(np.ascontiguousarray(weight).tobytes()))
        step = (step * rng.uniform(1, _LARGEST_STEP, step.shape)).astype(np.float32)
        # The step that a stored channel has: its peak was one of these whole numbers of steps.
        peak = np.abs(weight).max(axis=0)
        for peak_steps in range(_LARGEST, int(_LARGEST / _LARGEST_STEP) - 1, -1):
            stored_step = np.maximum(peak, np.finfo(np.float32).tiny) / peak_steps
            steps = weight / stored_step
            was_stored = (np.abs(steps - steps.round()) < _STORED).all(axis=0)
            step = np.where(was_stored, stored_step, step)
        rounded = (weight / step).round().astype(np.int8)
        for key, array in ((node.input[1], rounded), (f"{name}_scale", step)):
            stored[key].CopyFrom(numpy_helper.from_array(array, key))
    onnx.save(model, str(path))


# Git hosts take no larger file.
_LARGEST_FILE = 100 * 2**20


def _without_table(path: Path) -> None:
    """Move the table of tokens, the largest tensor, from an ONNX file to one beside it."""
    model = onnx.load(str(path))
    table = max(model.graph.initializer, key=lambda tensor: len(tensor.raw_data))
    set_external_data(table, location=files.TABLE)
    onnx.save(model, str(path))


# Latin letters, punctuation and signs of money: all that English text is written in.
_OTHER_SCRIPT = re.compile(r"[^\u0000-\u024f\u2000-\u206f\u20a0-\u20bf]")
_UNUSED = re.compile(r"\[unused\d+\]")


def without_other_scripts(tokenizer: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
    """Return a ``tokenizer.json`` without tokens that occur in no English text, and the ids kept.

    Kept tokens are numbered anew in their old order. English text becomes the same tokens; another
    script becomes the unknown token, as its rarer letters were before.
    """
    vocabulary: dict[str, int] = tokenizer["model"]["vocab"]
    special = {one["content"] for one in tokenizer["added_tokens"]}
    used = [
        token for token in sorted(vocabulary, key=lambda token: vocabulary[token])
        if token in special or not (_UNUSED.fullmatch(token) or _OTHER_SCRIPT.search(token))
    ]  # fmt: skip
    number = {token: n for n, token in enumerate(used)}
    added = [one | {"id": number[one["content"]]} for one in tokenizer["added_tokens"]]
    smaller = tokenizer | {
        "model": tokenizer["model"] | {"vocab": number},
        "added_tokens": added,
        # It names tokens by number, and is not used: `WindowTokens` sets them itself.
        "post_processor": None,
        "truncation": None,
        "padding": None,
    }
    return smaller, [vocabulary[token] for token in used]


def with_tokens(nets: Nets, used: list[int]) -> Nets:
    """Return a copy of the network whose token ids are the positions in ``used``."""
    smaller = copy.deepcopy(nets)
    table = smaller.net.encoder.embeddings.word_embeddings
    pad = None if table.padding_idx is None else used.index(table.padding_idx)
    smaller.net.encoder.set_input_embeddings(
        nn.Embedding.from_pretrained(table.weight.detach()[used], padding_idx=pad)  # type: ignore[no-untyped-call]
    )
    return smaller


def export_detector(
    nets: Nets,
    folder: Path,
    config: dict[str, Any],
    *,
    base: BaseName,
    scratch: Path,
    texts: Sequence[str],
) -> None:
    """Write everything that the detector reads to ``folder``, the manifest last.

    ``config`` holds ``version``, ``k``, ``floor`` and ``max_context_tokens`` at least; see
    :class:`guard.detect.weights.Settings`. The float32 network stays in ``scratch``. Activations
    are seen on some of ``texts``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer, used = without_other_scripts(
        json.loads((base_folder(base) / "tokenizer.json").read_bytes())
    )
    some = random.Random(0).sample(texts, min(_OUTLIER_TEXTS, len(texts)))
    split = with_outliers_apart(nets, base_tokens(base), some)
    export_onnx(with_tokens(split, used), scratch / "encoder.fp32.onnx")
    quantise_weights(scratch / "encoder.fp32.onnx", folder / files.ONNX)
    fusion = nets.fusion.state_dict()
    np.savez(folder / files.FUSION, **{k: v.numpy().astype(np.float32) for k, v in fusion.items()})
    (folder / files.TOKENIZER).write_text(
        json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8"
    )
    write_config(folder, {"name": BASES[base].detector} | config)


def export_sentence_model(nets: Nets, folder: Path, base: BaseName) -> None:
    """Write the encoder of sentence vectors to ``folder``, for sentence-transformers to load.

    Its vectors, (n, 384) of norm 1, are those of the network before it is stored in 8 bits, of
    texts without context and up to 512 tokens.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Dense, Normalize, Pooling, Transformer

    net = nets.net
    width = net.encoder.config.hidden_size
    with tempfile.TemporaryDirectory() as scratch:
        net.encoder.save_pretrained(scratch)
        for file in base_folder(base).glob("*token*.json"):
            shutil.copy(file, scratch)
        words = Transformer(scratch, max_seq_length=MAX_TOKENS)
    dense = Dense(width, DIM, activation_function=nn.Identity())
    dense.linear.load_state_dict(net.embed.state_dict())
    part = folder.with_name(f"{folder.name}.part")
    SentenceTransformer(modules=[words, Pooling(width, "mean"), dense, Normalize()]).save(str(part))
    part.rename(folder)


def write_config(folder: Path, config: dict[str, Any]) -> None:
    """Write ``config.json`` and renew the manifest; ``config`` has ``name`` and ``version``.

    Scores are unscaled and thresholds are one half until calibration has found better ones.
    """
    content = {
        "dim": DIM,
        "languages": ["en"],
        "temperature": 1.0,
        "offset": 0.0,
        "operating_points": {
            point: dict.fromkeys(BIAS_TYPES, 0.5) for point in get_args(OperatingPoint)
        },
    } | config
    text = json.dumps(content, indent=2) + "\n"
    (folder / files.CONFIG).write_text(text, encoding="utf-8")
    files.write_manifest(folder)
