"""From released weights back to a run that training can start from.

Why: docs/decisions/training-begins-with-what-ships.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import numpy_helper
from torch import Tensor

from guard.detect import weights as files
from guard.errors import UsageError
from guard.train import checkpoint
from guard.train.base import base_folder
from guard.train.encoder import NAME, untrained_nets


def restore_run(folder: Path, to: Path) -> Path:
    """Write the network of released weights to ``to`` as a finished run; return the file's path.

    Each weight is what its 8-bit integer stands for, at most half a step of its channel's scale
    from what was trained. The file's ``settings`` and ``before`` are the runs that the release's
    ``figures.json`` records. Thresholds are not restored, nor the n-grams of `encoder-small`.

    Raises WeightsError if the weights are missing or damaged, UsageError if the record of their
    training is, if they are of another network, or if ``to`` has a finished run.
    """
    if (to / NAME).exists():
        raise UsageError(f"{to} already holds a finished run; name another folder.")
    files.open_weights(folder)
    try:
        training = json.loads((folder / "figures.json").read_bytes())
        *before, last = map(_of_today, training["training"])
        content = {"settings": last, "before": before}
        nets = untrained_nets(last)
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(
            f"{folder / 'figures.json'} does not say how these weights were trained; name a "
            "folder that `guard train release` wrote."
        ) from None
    state = float_weights(folder / files.ONNX)
    name = "net.encoder.embeddings.word_embeddings.weight"
    # A token that the release left out has the embedding of the base.
    vocabulary, released = (
        json.loads((place / "tokenizer.json").read_bytes())["model"]["vocab"]
        for place in (base_folder(last["base"]), folder)
    )
    tokens = nets.state_dict()[name].clone()
    tokens[[vocabulary[token] for token in released]] = state[name][list(released.values())]
    state[name] = tokens
    with np.load(folder / files.FUSION) as fusion:
        state |= {f"fusion.{name}": torch.from_numpy(array) for name, array in fusion.items()}
    expected = {name: tensor.shape for name, tensor in nets.state_dict().items()}
    if {name: tensor.shape for name, tensor in state.items()} != expected:
        raise UsageError(
            f"{folder} holds a network of another build than this version trains; restore it with "
            "the version of guard that released it."
        )
    checkpoint.save_content(to / NAME, content | {"nets": state})
    return to / NAME


def _of_today(run: dict[str, Any]) -> dict[str, Any]:
    """Return the recorded settings of a run as this version would record them."""
    if not isinstance(run, dict):
        raise TypeError
    # Earlier releases had one base and do not name it, and another name for this method.
    renamed = {"method": "references"} if run.get("method") == "fusion" else {}
    return {"base": "minilm"} | run | renamed


def float_weights(path: Path) -> dict[str, Tensor]:
    """Return the float weights of a network that :func:`guard.train.export.quantise_weights` wrote.

    They have the names and shapes of :class:`guard.train.encoder.Nets`.
    """
    graph = onnx.load(str(path)).graph
    stored = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
    # Biases, norms and what else was not quantised keep their names.
    weights = {
        name: array for name, array in stored.items()
        if name.startswith("net.") and array.dtype == np.float32 and not name.endswith("_scale")
    }  # fmt: skip
    for node in graph.node:
        quantised = next((i for i in node.input if i.endswith("_quantized") and i in stored), None)
        if quantised is None:
            continue
        name = quantised.removesuffix("_quantized")
        steps = stored[quantised].astype(np.float32) - stored[f"{name}_zero_point"]
        value = steps * stored[f"{name}_scale"]
        if node.op_type != "Gather":
            # A product's weight lost its name on export, the product kept its module's; and it is
            # stored (in, out), where a linear layer has (out, in).
            name = node.name.strip("/").rpartition("/")[0].replace("/", ".") + ".weight"
            value = value.T
        weights[name] = value
    _join_inputs(weights, graph, stored)
    return {name: torch.tensor(np.ascontiguousarray(array)) for name, array in weights.items()}


def _join_inputs(
    weights: dict[str, NDArray[Any]], graph: onnx.GraphProto, stored: Mapping[str, NDArray[Any]]
) -> None:
    """Put the inputs that a release keeps apart back into their layers' weights.

    Which inputs those are is read by the product's own Gather: layers of equal inputs share a list.
    """
    apart = {n.name: n.input[1] for n in graph.node if n.op_type == "Gather"}
    for node in graph.node:
        if not node.name.endswith("/apart/MatMul"):
            continue
        layer = node.name.strip("/").removesuffix("/apart/MatMul").replace("/", ".")
        whole = weights.pop(f"{layer}.dense.weight").copy()
        inputs = stored[apart[node.name.removesuffix("apart/MatMul") + "Gather"]]
        whole[:, inputs] = stored[node.input[1]].T
        weights[f"{layer}.weight"] = whole
        weights[f"{layer}.bias"] = weights.pop(f"{layer}.dense.bias")
        weights.pop(f"{layer}.others", None)
