"""From released weights or a packed run back to a run that training can start from."""

from __future__ import annotations

import json
import zipfile
import zlib
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
from guard.train.encoder import load_final, untrained


def restore(folder: Path, to: Path) -> Path:
    """Write the network of released weights to ``to`` as a finished run; return the file's path.

    Each weight is what its 8-bit integer stands for, at most half a step of its channel's scale
    from what was trained. The file's ``settings`` and ``before`` are the runs that the release's
    ``figures.json`` records. The n-grams and the thresholds are not restored: `guard train release`
    makes new ones.

    Raises WeightsError if the weights are missing or damaged, UsageError if the record of their
    training is, or if they are of another network.
    """
    files.open_weights(folder)
    try:
        training = json.loads((folder / "figures.json").read_bytes())
        *before, last = training["training"]
        # Earlier releases had one base and do not name it.
        last = {"base": "minilm"} | last
        rows, quotas = training["rows"], last["quotas"]
        nets = untrained(last)
    except (OSError, ValueError, LookupError, TypeError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(
            f"{folder / 'figures.json'} does not say how these weights were trained; name a "
            "folder that `guard train release` wrote."
        ) from None
    state = network(folder / files.ONNX)
    name = "net.encoder.embeddings.word_embeddings.weight"
    state[name] = _all_tokens(
        state[name], folder / files.TOKENIZER, nets.state_dict()[name], base_folder(last["base"])
    )
    with np.load(folder / files.FUSION) as fusion:
        state |= {f"fusion.{name}": torch.from_numpy(array) for name, array in fusion.items()}
    expected = {name: tensor.shape for name, tensor in nets.state_dict().items()}
    if {name: tensor.shape for name, tensor in state.items()} != expected:
        raise UsageError(
            f"{folder} holds a network of another build than this version trains; restore it with "
            "the version of guard that released it."
        )
    file = to / "final.pt"
    content: dict[str, Any] = {
        "nets": state,
        "settings": last,
        "before": before,
        "rows": rows,
        "quotas": quotas,
    }
    checkpoint.save(file, content)
    return file


# Larger matrices are packed as integers up to this, with a scale for each row.
_STEPS = 63
_LARGE = 100_000
_ABOUT = "about"
# What a file raises that is no packed run.
_UNREADABLE = (OSError, EOFError, ValueError, LookupError, TypeError, zipfile.BadZipFile,
               zlib.error)  # fmt: skip


def pack(final: Path, to: Path) -> None:
    """Write what a finished run changed of its base to ``to``: a third of the size of a release.

    Large matrices are rounded to 7 bits with a scale for each row; what else differs from the base
    is stored in float32. :func:`unpack` turns it back into a run.

    Raises UsageError if ``final`` is no finished run, or ``to`` cannot be written.
    """
    _, content = load_final(final)
    base = untrained(content["settings"]).state_dict()
    arrays: dict[str, NDArray[Any]] = {}
    for name, tensor in content["nets"].items():
        if name.startswith("net.encoder.") and torch.equal(tensor, base[name]):
            continue
        if tensor.dim() == 2 and tensor.numel() > _LARGE:
            scale = tensor.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / _STEPS
            arrays[f"{name}:scale"] = scale.numpy()
            arrays[name] = (tensor / scale).round().to(torch.int8).numpy()
        else:
            arrays[name] = tensor.numpy()
    about = {k: content.get(k, []) for k in ("settings", "before", "rows", "quotas")}
    arrays[_ABOUT] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    with checkpoint.replacing(to) as part, part.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]


def unpack(file: Path, to: Path) -> Path:
    """Write the run that :func:`pack` packed to ``to``; return the file's path.

    Raises UsageError if ``file`` is no packed run.
    """
    try:
        with file.open("rb") as source, np.load(source, allow_pickle=False) as packed:
            arrays = dict(packed)
        about = json.loads(arrays.pop(_ABOUT).tobytes())
        state = untrained(about["settings"]).state_dict()
        for name in [name for name in arrays if name in state]:
            scale = arrays.pop(f"{name}:scale", None)
            array = arrays.pop(name)
            found = torch.from_numpy(array if scale is None else array.astype(np.float32) * scale)
            if found.shape != state[name].shape:
                raise ValueError(name)
            state[name] = found
        if arrays:
            raise ValueError(next(iter(arrays)))
    except _UNREADABLE as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(
            f"{file} holds no packed run; name a file that `guard train pack` wrote."
        ) from None
    final = to / "final.pt"
    checkpoint.save(final, {"nets": dict(state), **about})
    return final


def _all_tokens(found: Tensor, tokenizer: Path, base: Tensor, folder: Path) -> Tensor:
    """Return the embeddings of the base's tokens: those that a release left out are the base's."""
    vocabulary, known = (
        json.loads(path.read_bytes())["model"]["vocab"]
        for path in (folder / "tokenizer.json", tokenizer)
    )
    whole = base.clone()
    whole[[vocabulary[token] for token in known]] = found[list(known.values())]
    return whole


def _join(
    found: dict[str, NDArray[Any]], graph: onnx.GraphProto, stored: Mapping[str, NDArray[Any]]
) -> None:
    """Put the inputs that a release keeps apart back into their layers' weights.

    Which inputs those are is read by the product's own Gather: layers of equal inputs share a list.
    """
    apart = {n.name: n.input[1] for n in graph.node if n.op_type == "Gather"}
    for node in graph.node:
        if not node.name.endswith("/apart/MatMul"):
            continue
        layer = node.name.strip("/").removesuffix("/apart/MatMul").replace("/", ".")
        whole = found.pop(f"{layer}.dense.weight").copy()
        inputs = stored[apart[node.name.removesuffix("apart/MatMul") + "Gather"]]
        whole[:, inputs] = stored[node.input[1]].T
        found[f"{layer}.weight"] = whole
        found[f"{layer}.bias"] = found.pop(f"{layer}.dense.bias")
        found.pop(f"{layer}.others", None)


def network(path: Path) -> dict[str, Tensor]:
    """Return the float weights of a network that :func:`guard.train.export.quantise` wrote.

    They have the names and shapes of :class:`guard.train.encoder.Nets`.
    """
    graph = onnx.load(str(path)).graph
    stored = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
    # Biases, norms and what else was not quantised keep their names.
    found = {
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
        found[name] = value
    _join(found, graph, stored)
    return {name: torch.tensor(np.ascontiguousarray(array)) for name, array in found.items()}
