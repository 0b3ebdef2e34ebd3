"""Have ``transformers`` read a model without bars on the terminal, and a GGUF file only once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from typing import Any


@contextmanager
def reading() -> Iterator[None]:
    """Within this, loading draws nothing and takes half the time; for one thread at a time.

    For the tokenizer, the configuration and the weights a GGUF file is parsed anew each time,
    which takes seconds for a vocabulary of 49,000 tokens, and the names of its tensors are made
    anew for each module. Both depend on their arguments alone, so here each is done once.
    """
    import gguf
    from transformers import modeling_gguf_pytorch_utils as unpacking
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        with ExitStack() as until_read:
            # The bar of unpacking is drawn whatever the switch says.
            until_read.enter_context(
                _swapped(unpacking, "tqdm", lambda x: partial(x, disable=True))
            )
            until_read.enter_context(_swapped(gguf, "GGUFReader", cache))
            until_read.enter_context(_swapped(gguf, "get_tensor_name_map", cache))
            yield
    finally:
        if shown:
            logging.enable_progress_bar()


@contextmanager
def _swapped(module: Any, name: str, made: Callable[[Any], Any]) -> Iterator[None]:
    """Put ``made(own)`` in the place of the module's own; where there is none, do nothing."""
    own = getattr(module, name, None)
    if own is None:
        yield
        return
    setattr(module, name, made(own))
    try:
        yield
    finally:
        setattr(module, name, own)
