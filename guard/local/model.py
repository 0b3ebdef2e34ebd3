"""Load a model once per process: fetched weights by name, any GGUF file or transformers folder.

A model of the Hugging Face hub that is in the local cache is found by its id; nothing is fetched.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from guard.errors import UsageError, WeightsError
from guard.installed import install_command
from guard.local import download, memory
from guard.local.reading import quick_loading

_NEEDED = ("torch", "transformers", "accelerate", "gguf")
_WAITING = "OMP_WAIT_POLICY"

#: How a model's numbers are kept. ``bfloat16`` takes half the memory, and is faster where the
#: processor has instructions for it (AVX512-BF16, AMX); its scores have three digits.
Dtype = Literal["float32", "bfloat16"]

_loaded: dict[tuple[Path, Dtype], LoadedModel] = {}
_lock = threading.Lock()


class NotInstalled(UsageError):
    """The extra ``local`` is missing."""


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModel:
    """A causal language model with its tokenizer, shared by all calls; on the CPU by default."""

    network: Any
    tokenizer: Any
    ends: frozenset[int]  # tokens that end an answer
    context: int | None  # tokens of prompt and answer together

    def prompt(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Return the tokens of :meth:`rendered`."""
        return list(self.tokenizer(self.rendered(messages), add_special_tokens=False)["input_ids"])

    def rendered(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Return ``messages`` under the model's chat template.

        Raises UsageError if the model has no template, or its template refuses the messages.
        """
        from jinja2 import TemplateError

        if not self.tokenizer.chat_template:
            raise UsageError("This model has no chat template; use one tuned for conversation.")
        try:
            return str(
                self.tokenizer.apply_chat_template(
                    list(messages), add_generation_prompt=True, tokenize=False
                )
            )
        except TemplateError as error:
            raise UsageError(f"The model's chat template refuses these messages: {error}") from None


def load_model(name_or_path: str, dtype: Dtype = "float32") -> LoadedModel:
    """Return the model with this name, path or hub id; later calls return the same object.

    Raises:
        WeightsError: the weights are missing, damaged, unreadable, or too large for the memory.
        NotInstalled: the extra ``local`` is not installed.

    """
    with _lock:
        path = _locate_folder(name_or_path)
        if (path, dtype) not in _loaded:
            _loaded[path, dtype] = _load_network(path, dtype)
        return _loaded[path, dtype]


def _locate_folder(name_or_path: str) -> Path:
    if name_or_path in download.writer_names():
        path = download.weights_path(name_or_path)
        # Hashing takes a fraction of a second: once per process, not once per call.
        known = any(path == seen for seen, _ in _loaded)
        return path if known else download.verified_weights(name_or_path)
    # No home folder, a loop of links, or characters that no path has.
    with contextlib.suppress(OSError, RuntimeError, ValueError):
        path = Path(name_or_path).expanduser().resolve()
        if (path / "config.json").is_file() or (path.suffix == ".gguf" and path.is_file()):
            return path
        cached = _in_hub_cache(name_or_path)
        if cached is not None:
            return cached
    raise WeightsError(
        f"{name_or_path!r} is neither a model to fetch ({', '.join(download.writer_names())}) nor "
        "a GGUF file, a transformers folder or a model in the cache of the Hugging Face hub."
    )


def _in_hub_cache(name: str) -> Path | None:
    """Return the folder of the hub's model ``name`` in the local cache; None if it has none."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(name, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError):
        return None
    return folder if (folder / "config.json").is_file() else None


def _load_network(path: Path, dtype: Dtype) -> LoadedModel:
    try:
        _import_packages()
        import torch
        from safetensors import SafetensorError
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        raise NotInstalled(
            f"Local models need {error.name}, which is not installed; run: "
            f"{install_command('local')}"
        ) from None
    folder: dict[str, Any] = {"pretrained_model_name_or_path": str(path)}
    if path.suffix == ".gguf":
        folder = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    try:
        with quick_loading():
            memory.check_memory(path, dtype)
            tokenizer = AutoTokenizer.from_pretrained(**folder, local_files_only=True)
            network = AutoModelForCausalLM.from_pretrained(**folder, local_files_only=True)
        if path.suffix == ".gguf":
            # transformers still marks a model read from a GGUF file as quantized, though its
            # tensors were unpacked, and some versions refuse to convert it: copy it to a new one.
            unpacked = network
            network = AutoModelForCausalLM.from_config(unpacked.config)
            network.load_state_dict(unpacked.state_dict())
        network = network.to(getattr(torch, dtype))
    except (OSError, ValueError, LookupError, RuntimeError, SafetensorError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise WeightsError(f"{path} cannot be loaded: {first}") from error
    network.eval().requires_grad_(False)
    ends = {tokenizer.eos_token_id, *_as_list(network.generation_config.eos_token_id)}
    return LoadedModel(
        network=network,
        tokenizer=tokenizer,
        ends=frozenset(end for end in ends if end is not None),
        context=getattr(network.config.get_text_config(), "max_position_embeddings", None),
    )


def _import_packages() -> None:
    """Import the packages of the extra, and set OpenMP's wait policy for torch."""
    # By default torch's threads spin while they wait for each other. With another process on one
    # of two cores, that took 500 ms a token, against 50 ms when they sleep. OpenMP reads the
    # variable once, on loading; it is removed again so that child processes do not inherit it.
    ours = "torch" not in sys.modules and _WAITING not in os.environ
    if ours:
        os.environ[_WAITING] = "PASSIVE"
    try:
        for needed in _NEEDED:
            importlib.import_module(needed)
    finally:
        if ours:
            del os.environ[_WAITING]


def _in_child() -> None:
    """Compute in one thread: OpenMP's others do not survive a fork, and would be waited for."""
    if _loaded:
        sys.modules["torch"].set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def _as_list(ends: int | list[int] | None) -> list[int]:
    if ends is None:
        return []
    return [ends] if isinstance(ends, int) else ends
