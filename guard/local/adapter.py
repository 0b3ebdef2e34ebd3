"""Folders of LoRA adapters: a small set of weights that tunes one base model for one task.

::

    adapter_config.json, adapter_model.safetensors   as PEFT writes them, for other servers too
    guard.json      the base by name and hash, the instruction's switches, calibration, thresholds
    CARD.md         data, recipe, figures, limits
    manifest.json   the SHA-256 of each of these; written last

An adapter is put on a copy of the base's modules that shares its tensors, so the base that
:func:`guard.local.model.load_model` returns to others answers as before, and no memory is taken
twice.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
import struct
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from guard.errors import WeightsError
from guard.installed import install_command
from guard.local.model import LoadedModel, NotInstalled
from guard.local.reading import without_progress_bars
from guard.places import json_object, regular_bytes

if TYPE_CHECKING:
    from guard.local.model import Dtype

PEFT_CONFIG, PEFT_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
SETTINGS, CARD, MANIFEST = "guard.json", "CARD.md", "manifest.json"
FILES = (PEFT_CONFIG, PEFT_WEIGHTS, SETTINGS, CARD)
_FORMAT = 1
_HASHED = 1024  # numbers of each tensor that count for the hash of a base
_VERSION = re.compile("[0-9A-Za-z.]+")
_REMEDY = "copy the folder again, or train the adapter again (guard train generative)"


@dataclass(frozen=True, slots=True)
class AdapterBase:
    """The model that an adapter belongs to: the name to load it by, and :func:`base_hash`."""

    name: str
    hash: str


@dataclass(frozen=True, slots=True)
class AdapterSettings:
    """The content of ``guard.json``.

    A score is ``sigmoid((logit - offset) / temperature)``, where the logit is the difference of
    the log-probabilities of the answers' first tokens. ``instruction`` has the switches of the
    instruction that the adapter was trained with, ``operating_points`` thresholds in [0, 1] by name
    and bias type; at most ``k`` references are shown.
    """

    version: str
    base: AdapterBase
    instruction: Mapping[str, bool]
    temperature: float
    offset: float
    operating_points: Mapping[str, Mapping[str, float]]
    k: int = 5


@dataclass(frozen=True, slots=True)
class Adapter:
    """A checked folder: its settings and the SHA-256 of its manifest."""

    folder: Path
    settings: AdapterSettings
    hash: str


def is_adapter(folder: Path) -> bool:
    """Whether a folder claims to hold an adapter, complete or not."""
    return any((folder / name).exists() for name in (PEFT_CONFIG, PEFT_WEIGHTS, SETTINGS))


def base_hash(network: Any) -> str:
    """Return the SHA-256 that tells a base from others of the same shape.

    Counted are, in the order of their names, each tensor's name and shape and its first 1,024
    numbers, rounded to bfloat16: a base has one hash, in whichever type it was loaded.
    ``network`` is a plain one, without an adapter.
    """
    import torch

    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(f"{name} {list(tensor.shape)}\n".encode())
        first = tensor.detach().reshape(-1)[:_HASHED].to("cpu", torch.bfloat16).float()
        digest.update(struct.pack(f"<{len(first)}f", *first.tolist()))
    return digest.hexdigest()


def write_adapter(
    folder: Path,
    network: Any,
    settings: AdapterSettings,
    card: str,
    dtype: Dtype | Literal["float16"] = "float32",
) -> None:
    """Write the adapter of a PEFT model to ``folder``, its weights as ``dtype``.

    Files of these names are replaced. Raises WeightsError if the settings are out of range.
    """
    import torch
    from peft import get_peft_model_state_dict
    from safetensors.torch import save_file

    _checked_settings(settings, folder / SETTINGS)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)
    config = copy.copy(network.peft_config["default"])
    config.base_model_name_or_path = settings.base.name  # not a path on this machine
    config.inference_mode = True
    config.save_pretrained(str(folder))
    kept = get_peft_model_state_dict(network)
    number = getattr(torch, dtype)
    tensors = {k: v.detach().to("cpu", number).contiguous() for k, v in kept.items()}
    save_file(tensors, str(folder / PEFT_WEIGHTS), metadata={"format": "pt"})
    content = {"format": _FORMAT, **asdict(settings)}
    (folder / SETTINGS).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    (folder / CARD).write_text(card, encoding="utf-8")
    write_adapter_manifest(folder)


def write_adapter_manifest(folder: Path) -> None:
    """Record the hashes of an adapter's files, after a change of its card or its settings."""
    hashes = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in FILES}
    content = {"format": _FORMAT, "sha256": hashes}
    (folder / MANIFEST).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def read_adapter(folder: Path) -> Adapter:
    """Check the files of ``folder`` against its manifest and return its settings.

    Raises:
        WeightsError: a file is missing, is not the recorded one, or cannot be used.

    """
    manifest = _read_bytes(folder / MANIFEST)
    recorded = json_object(manifest, folder / MANIFEST, _REMEDY).get("sha256")
    if not isinstance(recorded, dict):
        raise WeightsError(f"{folder / MANIFEST} is not a manifest of an adapter: {_REMEDY}.")
    contents = {}
    for name in FILES:
        contents[name] = _read_bytes(folder / name)
        digest = hashlib.sha256(contents[name]).hexdigest()
        if digest != recorded.get(name):
            raise WeightsError(
                f"The adapter's file {folder / name} is not the recorded one (sha256 {digest}, "
                f"recorded {recorded.get(name)}): {_REMEDY}."
            )
    kind = json_object(contents[PEFT_CONFIG], folder / PEFT_CONFIG, _REMEDY).get("peft_type")
    if kind != "LORA":
        raise WeightsError(
            f"{folder / PEFT_CONFIG} is of an adapter of the kind {kind!r}; guard reads LoRA."
        )
    raw = json_object(contents[SETTINGS], folder / SETTINGS, _REMEDY)
    settings = _parsed_settings(raw, folder / SETTINGS)
    return Adapter(folder, settings, hashlib.sha256(manifest).hexdigest())


def with_adapter(base: LoadedModel, adapter: Adapter) -> LoadedModel:
    """Return ``base`` tuned by ``adapter``; the base itself stays as it is.

    The two share the base's tensors. The result can only be used for inference.

    Raises:
        WeightsError: the adapter is for another base, or its weights do not fit.
        NotInstalled: PEFT is not installed.

    """
    peft = _import_peft()
    made_for, loaded = adapter.settings.base, base_hash(base.network)
    if loaded != made_for.hash:
        raise WeightsError(
            f"The adapter in {adapter.folder} was trained on another base than the one given "
            f"(hash {made_for.hash[:12]}, given {loaded[:12]}): use {made_for.name!r}."
        )
    network = sharing_copy(base.network)
    try:
        with without_progress_bars(), warnings.catch_warnings():
            # PEFT asks transformers for a property under its old name.
            warnings.simplefilter("ignore", FutureWarning)
            warnings.filterwarnings("ignore", "Found missing adapter keys")  # refused below
            tuned = peft.PeftModel.from_pretrained(
                network, str(adapter.folder), is_trainable=False, torch_device="cpu"
            )
    except Exception as error:  # PEFT, torch and safetensors have exceptions of their own
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise WeightsError(f"The adapter in {adapter.folder} cannot be loaded: {first}") from error
    with warnings.catch_warnings():
        # PEFT looks for a base that was fetched by name as a folder and on the hub.
        warnings.filterwarnings("ignore", "Could not find a config file")
        _check_names(peft, tuned, adapter.folder)
    plain = tuned.get_base_model()
    plain.eval().requires_grad_(False)
    return replace(base, network=plain)


def sharing_copy(network: Any, device: str = "cpu") -> Any:
    """Return a copy of a network's modules on ``device``; a tensor already there is shared."""
    import torch

    moved: dict[int, Any] = {}
    for tensor in (*network.parameters(), *network.buffers()):
        there = tensor.detach().to(device)
        if there.data_ptr() == tensor.data_ptr():
            moved[id(tensor)] = tensor
        elif isinstance(tensor, torch.nn.Parameter):
            moved[id(tensor)] = torch.nn.Parameter(there, requires_grad=False)
        else:
            moved[id(tensor)] = there
    return copy.deepcopy(network, moved)


def _check_names(peft: Any, tuned: Any, folder: Path) -> None:
    """Raise WeightsError unless the file has a tensor for each of the adapter's, and no other."""
    from safetensors import safe_open

    with safe_open(str(folder / PEFT_WEIGHTS), "pt") as file:
        stored = set(file.keys())
    if wrong := stored ^ set(peft.get_peft_model_state_dict(tuned)):
        raise WeightsError(
            f"{folder / PEFT_WEIGHTS} does not go with {PEFT_CONFIG}: {min(wrong)} is in one of "
            f"them only; {_REMEDY}."
        )


def _import_peft() -> Any:
    try:
        import peft
    except ImportError as error:
        raise NotInstalled(
            f"Adapters need {error.name}, which is not installed; run: {install_command('local')}"
        ) from None
    return peft


def _read_bytes(path: Path) -> bytes:
    try:
        return regular_bytes(path)
    except OSError as error:
        what = f"The adapter's file {path} cannot be read ({error.strerror})"
        if path.name == MANIFEST:
            what = f"There is no adapter in {path.parent}: it has no {MANIFEST}"
        raise WeightsError(f"{what}; {_REMEDY}.") from None


def _parsed_settings(raw: Mapping[str, Any], path: Path) -> AdapterSettings:
    if raw.get("format") != _FORMAT:
        raise WeightsError(
            f"{path} has the format {raw.get('format')!r}; this guard reads {_FORMAT}: use the "
            "guard that wrote it."
        )
    try:
        settings = AdapterSettings(
            version=str(raw["version"]),
            base=AdapterBase(str(raw["base"]["name"]), str(raw["base"]["hash"])),
            instruction={str(k): v for k, v in raw["instruction"].items()},
            temperature=float(raw["temperature"]),
            offset=float(raw["offset"]),
            operating_points={
                str(name): {str(kind): float(limit) for kind, limit in row.items()}
                for name, row in raw["operating_points"].items()
            },
            k=int(raw["k"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise WeightsError(f"{path} is incomplete ({error}): {_REMEDY}.") from None
    return _checked_settings(settings, path)


def _checked_settings(settings: AdapterSettings, path: Path) -> AdapterSettings:
    """Return the settings; raises WeightsError with the first that is out of range."""
    possible = {
        "version": (settings.version, _VERSION.fullmatch(settings.version)),
        "base": (settings.base, settings.base.name and settings.base.hash),
        "instruction": (
            settings.instruction,
            all(isinstance(on, bool) for on in settings.instruction.values()),
        ),
        "temperature": (settings.temperature, 0.01 <= settings.temperature <= 100),
        "offset": (settings.offset, -100 <= settings.offset <= 100),
        "operating_points": (settings.operating_points, settings.operating_points),
        "k": (settings.k, 0 <= settings.k <= 5),
        **{
            f"threshold of {name} for {kind}": (limit, 0 <= limit <= 1)
            for name, row in settings.operating_points.items()
            for kind, limit in row.items()
        },
    }
    for name, (value, well) in possible.items():
        if not well:
            raise WeightsError(f"{path} cannot be used with {name} = {value!r}: {_REMEDY}.")
    return settings
