"""Loads models with ``transformers`` without progress bars, and parses a GGUF file only once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from typing import Any


@contextmanager
def quick_loading() -> Iterator[None]:
    """Context manager: load without progress bars, in half the time; one thread at a time.

    transformers parses a GGUF file three times, for tokenizer, configuration and weights, which
    takes seconds for a vocabulary of 49,000 tokens, and makes the table of tensor names for each
    module. Both are pure functions, so they are cached here.
    """
    import gguf
    from transformers import modeling_gguf_pytorch_utils as unpacking

    with without_progress_bars(), ExitStack() as until_read:
        # The progress bar of unpacking ignores that setting.
        until_read.enter_context(
            _swapped_function(unpacking, "tqdm", lambda x: partial(x, disable=True))
        )
        until_read.enter_context(_swapped_function(gguf, "GGUFReader", cache))
        until_read.enter_context(_swapped_function(gguf, "get_tensor_name_map", cache))
        yield


@contextmanager
def without_progress_bars() -> Iterator[None]:
    """Context manager: ``transformers`` shows no progress bars."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


@contextmanager
def _swapped_function(module: Any, name: str, replaced: Callable[[Any], Any]) -> Iterator[None]:
    """Replace the module's function ``own`` by ``made(own)``; do nothing if it has none."""
    own = getattr(module, name, None)
    if own is None:
        yield
        return
    setattr(module, name, replaced(own))
    try:
        yield
    finally:
        setattr(module, name, own)
