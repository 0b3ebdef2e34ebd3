"""Patches hidden states of one prompt into another: an open-ended patchscope.

Ghandeharioun et al. (2024), "Patchscopes"; layers are counted as in its code: layer 0 is the output
of the first block. The words' states are computed once; while the answer is generated, a forward
hook of the block replaces the target prompt's states by them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from guard.errors import UsageError

if TYPE_CHECKING:
    import torch

    from guard.local.model import LoadedModel

PLACE = "{X}"
"""Placeholder in the target's message; replaced by one X for each token to patch."""
_X = "X"

Messages = Sequence[Mapping[str, str]]


@dataclass(frozen=True, slots=True, eq=False)
class Patched:
    """A prompt's tokens, and the ``states`` (n, hidden) to put at ``places`` after a block."""

    tokens: list[int]
    places: list[int]
    states: torch.Tensor
    layer: int


def patched_prompt(
    model: LoadedModel,
    source: Messages,
    words: str,
    target: Messages,
    opening: str,
    layers: tuple[int, int],
) -> Patched:
    """Return ``target`` with the states of ``words`` in ``source``, and the answer's ``opening``.

    ``layers`` are the source's and the target's layer. Raises UsageError if the model has no layer
    after these (which would read the states), if its template refuses the messages, or if its
    tokenizer has no separate token for each X.
    """
    blocks = _network_blocks(model)
    if max(layers) + 1 >= len(blocks):
        raise UsageError(
            f"The open box patches layers {layers[0]} and {layers[1]}, counted from 0, and needs "
            f"one after them; this model has {len(blocks)} in all."
        )
    text = model.rendered(source)
    tokens, spans = _tokens_with_ranges(model, text)
    begin = text.rindex(words)
    taken = [n for n, (a, b) in enumerate(spans) if a < begin + len(words) and b > begin]
    states = _prompt_states(model, blocks[layers[0]], tokens)[taken]
    marks = " ".join([_X] * len(taken))
    filled = [{**m, "content": m["content"].replace(PLACE, marks)} for m in target]
    text = model.rendered(filled)
    tokens, spans = _tokens_with_ranges(model, text + opening)
    begin = text.rindex(marks)
    signs = range(begin, begin + len(marks), len(_X) + 1)
    places = [next(n for n, (a, b) in enumerate(spans) if a <= at < b) for at in signs]
    if len(set(places)) < len(taken):
        raise UsageError("The model's tokenizer has no token of its own for each X.")
    return Patched(tokens, places, states, layers[1])


@contextmanager
def patching_calls(model: LoadedModel, patch: Patched) -> Iterator[None]:
    """Context manager: patch the prompt of ``patch`` in calls of this thread."""
    thread = threading.get_ident()

    def put(block: Any, inputs: Any, output: Any) -> Any:
        states = output[0] if isinstance(output, tuple) else output
        # Not in passes after the prompt, which have one token, or of other threads.
        if threading.get_ident() != thread or states.shape[1] != len(patch.tokens):
            return None
        states = states.clone()
        states[:, patch.places] = patch.states
        return (states, *output[1:]) if isinstance(output, tuple) else states

    handle = _network_blocks(model)[patch.layer].register_forward_hook(put)
    try:
        yield
    finally:
        handle.remove()


def _network_blocks(model: LoadedModel) -> Any:
    """Return the blocks of a network, whatever their attribute is called."""
    from torch.nn import ModuleList

    layers = model.network.config.get_text_config().num_hidden_layers
    lists = (m for m in model.network.modules() if isinstance(m, ModuleList) and len(m) == layers)
    blocks = next(lists, None)
    if blocks is None:
        raise UsageError("The open box needs a model that is a list of blocks.")
    return blocks


def _tokens_with_ranges(model: LoadedModel, text: str) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the tokens of ``text`` and their character ranges."""
    encoding = model.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    return list(encoding["input_ids"]), list(encoding["offset_mapping"])


def _prompt_states(model: LoadedModel, block: Any, tokens: list[int]) -> torch.Tensor:
    """Return a prompt's states (n, hidden) after ``block``."""
    import torch

    thread = threading.get_ident()
    captured: list[torch.Tensor] = []

    def capture(block: Any, inputs: Any, output: Any) -> None:
        if threading.get_ident() == thread:
            captured.append((output[0] if isinstance(output, tuple) else output)[0])

    handle = block.register_forward_hook(capture)
    try:
        with torch.inference_mode():
            model.network(input_ids=torch.tensor([tokens]), use_cache=False)
    finally:
        handle.remove()
    return captured[0]
