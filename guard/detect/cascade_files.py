"""The files of a cascade on disk: the head, the weights that it is for, and their hashes."""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from guard.detect.deferral import Deferral, Floats
from guard.detect.weights import MANIFEST, read_file, read_manifest
from guard.errors import WeightsError
from guard.places import json_object

HEAD = "head.json"
FORMAT = 1
_VERSION = re.compile("[0-9A-Za-z.]{1,20}")
_REMEDY = "reinstall the package, or train one: guard train cascade"
_ARRAYS = ("mean", "deviation", "direct", "hidden", "hidden_bias", "out")


class Member(NamedTuple):
    """Weights that a head is for: their name, and the SHA-256 of their manifest."""

    name: str
    manifest: str

    @classmethod
    def of(cls, name: str, folder: Path) -> Member:
        """Return the weights in ``folder``; raises WeightsError if there are none."""
        return cls(name, hashlib.sha256(read_manifest(folder)).hexdigest())

    def check(self, name: str, folder: Path, head: Path) -> None:
        """Raise WeightsError unless these are the weights ``name`` in ``folder``."""
        present = Member.of(name, folder)
        if present != self:
            other = " with other settings" if present.name == self.name else ""
            raise WeightsError(
                f"The head of the cascade in {head} was trained for {self.name}, not for "
                f"{present.name}{other}; train it again (guard train cascade), or use "
                "detector='encoder'."
            )


@dataclass(frozen=True, slots=True)
class Head:
    """A checked head: its name ``cascade-VERSION+HASH``, the weights it is for, and the numbers."""

    name: str
    first: Member
    last: Member
    deferral: Deferral


def read_head(folder: Path) -> Head:
    """Read the head in ``folder``.

    Raises:
        WeightsError: a file is missing, has not the hash that the manifest records, or is invalid.

    """
    path = folder / HEAD
    recorded = json_object(read_manifest(folder), folder / MANIFEST, _REMEDY).get("sha256")
    if not isinstance(recorded, dict):
        raise WeightsError(f"{folder / MANIFEST} is not a manifest of a cascade: {_REMEDY}.")
    data = read_file(path, _REMEDY)
    digest = hashlib.sha256(data).hexdigest()
    if digest != recorded.get(HEAD):
        raise WeightsError(
            f"{path} is not the recorded one (sha256 {digest}, recorded {recorded.get(HEAD)}): "
            f"{_REMEDY}."
        )
    raw = json_object(data, path, _REMEDY)
    try:
        if raw["format"] != FORMAT or not _VERSION.fullmatch(raw["version"]):
            raise ValueError
        first, last = (
            Member(str(raw[k]["name"]), str(raw[k]["manifest"])) for k in ("first", "last")
        )
        return Head(
            f"cascade-{raw['version']}+{digest[:8]}", first, last, _parsed_head(raw["head"])
        )
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise WeightsError(
            f"{path} holds no head of a cascade ({type(error).__name__}): {_REMEDY}."
        ) from error


def write_head(
    folder: Path, version: str, first: Member, last: Member, head: Deferral, **more: Any
) -> None:
    """Write a head and its manifest; ``more`` is kept beside it, such as its figures."""
    numbers: dict[str, Any] = {name: _rounded_numbers(getattr(head, name)) for name in _ARRAYS}
    content = {
        "format": FORMAT,
        "version": version,
        "first": first._asdict(),
        "last": last._asdict(),
        **more,
        "head": {"bound": head.bound, "bias": head.bias, **numbers},
    }
    folder.mkdir(parents=True, exist_ok=True)
    data = (json.dumps(content, separators=(",", ":")) + "\n").encode()
    (folder / HEAD).write_bytes(data)
    hashes = {"format": FORMAT, "sha256": {HEAD: hashlib.sha256(data).hexdigest()}}
    (folder / MANIFEST).write_text(json.dumps(hashes, indent=2) + "\n", encoding="utf-8")


def rounded_head(head: Deferral) -> Deferral:
    """Return the head with its numbers as a file has them."""
    numbers = {name: _rounded_numbers(getattr(head, name)) for name in _ARRAYS}
    return _parsed_head({"bound": head.bound, "bias": head.bias, **numbers})


def _rounded_numbers(array: Floats) -> Any:
    # Four digits: the text is half as long, and no probability changes by a thousandth.
    if array.ndim == 2:
        return [_rounded_numbers(row) for row in array]
    return [float(f"{x:.4g}") for x in array.tolist()]


def _parsed_head(raw: dict[str, Any]) -> Deferral:
    """Return the head of a file; raises ValueError if its numbers do not go together."""
    arrays = {name: np.array(raw[name], np.float32) for name in _ARRAYS}
    head = Deferral(bound=float(raw["bound"]), bias=float(raw["bias"]), **arrays)
    h, f = head.hidden.shape
    shapes = {"mean": (f,), "deviation": (f,), "direct": (f,), "hidden_bias": (h,), "out": (h,)}
    right = all(arrays[name].shape == shape for name, shape in shapes.items())
    finite = math.isfinite(head.bias) and all(np.isfinite(a).all() for a in arrays.values())
    if not (right and finite and 0 <= head.bound <= 1 and (head.deviation > 0).all()):
        raise ValueError
    return head
