"""Sentence vectors of a published encoder: the mean over the tokens' states, of norm 1."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from guard.errors import UsageError, WeightsError
from guard.installed import install_command
from guard.local import download
from guard.local.reading import quick_loading

_BATCH = 64
_LONGEST = 384  # tokens, as sentence-transformers cuts for all-mpnet-base-v2


def mean_pooled(states: Any, mask: Any) -> Any:
    """Return the mean of the tokens' states, of norm 1.

    Tensors: states (n, t, dim) and attention mask (n, t) -> (n, dim).
    """
    from torch.nn.functional import normalize

    counted = mask[..., None]
    return normalize((states * counted).sum(1) / counted.sum(1), dim=1)


class SentenceEmbedder:
    """``mpnet`` (all-mpnet-base-v2, by ``guard models get mpnet``), a folder or a hub id.

    Loaded on first use. Raises WeightsError if ``mpnet`` is not downloaded, or its hash differs
    from the recorded one, and where another name is of no model, which may ask the hub.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._model: Any = None
        self._tokenizer: Any = None
        path = Path(name).expanduser()
        self._from = str(path) if path.is_dir() else name
        if name == "mpnet":
            self._from = str(download.verified_weights(name).parent)
            return
        with self._explained_errors():
            from transformers.utils import cached_file

            if cached_file(self._from, "config.json") is None:  # so of a folder
                raise OSError("it has no config.json")

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of ``texts``: (n, dim)."""
        self.load()
        if not texts:
            return np.zeros((0, 1), np.float32)
        # Sorted by length, so that little padding is needed.
        order = sorted(range(len(texts)), key=lambda n: len(texts[n]))
        batches = [order[n : n + _BATCH] for n in range(0, len(order), _BATCH)]
        vectors = np.concatenate(
            [self._embed_batch([texts[n] for n in batch]) for batch in batches]
        )
        return np.asarray(vectors[np.argsort(order)])

    def _embed_batch(self, texts: list[str]) -> NDArray[np.float32]:
        import torch

        inputs = self._tokenizer(
            texts, padding=True, truncation=True, max_length=_LONGEST, return_tensors="pt"
        )
        with torch.inference_mode():
            states = self._model(**inputs).last_hidden_state
        return np.asarray(mean_pooled(states, inputs["attention_mask"]).numpy(), dtype=np.float32)

    def load(self) -> None:
        """Load the network, if it is not yet; raises UsageError or WeightsError."""
        if self._model is not None:
            return
        with self._explained_errors():
            importlib.import_module("torch")
            from transformers import AutoModel, AutoTokenizer

            with quick_loading():
                self._tokenizer = AutoTokenizer.from_pretrained(self._from)
                self._tokenizer.pad_token = self._tokenizer.pad_token or self._tokenizer.eos_token
                self._model = AutoModel.from_pretrained(self._from).float().eval()

    @contextmanager
    def _explained_errors(self) -> Iterator[None]:
        """Raise UsageError where a package is missing, WeightsError where the model is."""
        try:
            yield
        except ImportError as error:
            raise UsageError(
                f"The embedder needs {error.name}, which is not installed; run: "
                f"{install_command('local')}"
            ) from None
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            first = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
            raise WeightsError(
                f"The embedder {self._name!r} cannot be loaded ({first}); name mpnet (guard models "
                "get mpnet), the folder of a sentence encoder or its name on the hub."
            ) from error
