"""How much memory a model takes, from its files, and how much there is."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from math import prod
from pathlib import Path

from guard.errors import WeightsError

#: Bytes of one number.
BYTES: Mapping[str, int] = {"float32": 4, "bfloat16": 2}
# What the text of a prompt, its keys and values, and the tokenizer take beside the weights.
_BESIDE = 500 * 2**20
# Limits of a container: cgroup version 2, then 1.
_LIMITS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
    ),
)


def check_memory(path: Path, dtype: str, free: int | None = None) -> None:
    """Raise WeightsError if the model at ``path`` does not fit into memory as ``dtype``.

    ``free`` are the bytes there are (default: :func:`bytes_available`).
    """
    need, free = bytes_needed(path, dtype), bytes_available() if free is None else free
    if need > free:
        raise WeightsError(
            f"{path} takes about {_in_gigabytes(need)} of memory while it is loaded as {dtype}, "
            f"and {_in_gigabytes(free)} are free: end what else runs, or name a smaller model."
        )


def bytes_needed(path: Path, dtype: str) -> int:
    """Return the bytes that loading ``path`` takes at its peak, by an estimate.

    A GGUF file is unpacked as 32-bit numbers and copied once; the weights of a folder are read as
    they are stored and then converted, one by one.
    """
    if path.suffix == ".gguf":
        return 2 * 4 * _in_gguf(path) + _BESIDE
    files = sorted(path.glob("*.safetensors"))
    stored = sum(f.stat().st_size for f in files or path.glob("*.bin"))
    numbers = sum(map(_in_safetensors, files)) if files else stored // 2
    return max(stored, BYTES[dtype] * numbers) + _BESIDE


def bytes_available() -> int:
    """Return the bytes of memory that this process may still take, without swap."""
    import psutil

    free = int(psutil.virtual_memory().available)
    for limit, used in _LIMITS:
        try:
            most, taken = int(Path(limit).read_text()), int(Path(used).read_text())
        except (OSError, ValueError):  # no container, or no limit ("max")
            continue
        return min(free, max(most - taken, 0))
    return free


def _in_safetensors(path: Path) -> int:
    """Return the number of numbers in a safetensors file, from its header; 0 if it has none."""
    try:
        with path.open("rb") as file:
            (size,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(min(size, 10**8)))
        return sum(prod(t["shape"]) for key, t in header.items() if key != "__metadata__")
    except (OSError, struct.error, ValueError, AttributeError, KeyError, TypeError):
        return 0  # loading it says what is wrong


def _in_gguf(path: Path) -> int:
    """Return the number of numbers in a GGUF file; raises as the package gguf does."""
    import gguf

    # `reading` caches the parsed file under this argument, which transformers gives, too.
    return sum(int(tensor.n_elements) for tensor in gguf.GGUFReader(str(path)).tensors)


def _in_gigabytes(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
