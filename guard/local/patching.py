"""States of one prompt put into another: an open-ended patchscope.

Ghandeharioun et al. (2024), "Patchscopes"; layers are counted as in its code: layer 0 is the output
of the first block. The words' states are computed once; while the answer is generated, a forward
hook puts them in the place of the target's as the prompt passes the block.
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

    from guard.local.model import LocalModel

PLACE = "{X}"
"""Where the target's message takes as many X as there are tokens to put there."""
_X = "X"

Messages = Sequence[Mapping[str, str]]


@dataclass(frozen=True, slots=True, eq=False)
class Patched:
    """A prompt's tokens with the ``states`` (n, hidden) that go to ``places`` behind a block."""

    tokens: list[int]
    places: list[int]
    states: torch.Tensor
    layer: int


def patched(
    model: LocalModel,
    source: Messages,
    words: str,
    target: Messages,
    opening: str,
    layers: tuple[int, int],
) -> Patched:
    """Return ``target`` with the states of ``words`` in ``source``, and the answer's ``opening``.

    ``layers`` are those that the states are taken from and put to. Raises UsageError where the
    model has no layer behind them, which nothing else would read, its template refuses the
    messages, or its tokenizer joins an X with what stands beside it.
    """
    blocks = _blocks(model)
    if max(layers) + 1 >= len(blocks):
        raise UsageError(
            f"The open box patches layers {layers[0]} and {layers[1]}, counted from 0, and needs "
            f"one behind them; this model has {len(blocks)} in all."
        )
    text = model.rendered(source)
    tokens, spans = _tokens(model, text)
    begin = text.rindex(words)
    taken = [n for n, (a, b) in enumerate(spans) if a < begin + len(words) and b > begin]
    states = _states(model, blocks[layers[0]], tokens)[taken]
    marks = " ".join([_X] * len(taken))
    filled = [{**m, "content": m["content"].replace(PLACE, marks)} for m in target]
    text = model.rendered(filled)
    tokens, spans = _tokens(model, text + opening)
    begin = text.rindex(marks)
    signs = range(begin, begin + len(marks), len(_X) + 1)
    places = [next(n for n, (a, b) in enumerate(spans) if a <= at < b) for at in signs]
    if len(set(places)) < len(taken):
        raise UsageError("The model's tokenizer has no token of its own for each X.")
    return Patched(tokens, places, states, layers[1])


@contextmanager
def patching(model: LocalModel, patch: Patched) -> Iterator[None]:
    """Within this, the prompt of ``patch`` has its states, in this thread alone."""
    thread = threading.get_ident()

    def put(block: Any, given: Any, found: Any) -> Any:
        states = found[0] if isinstance(found, tuple) else found
        # Behind the prompt a pass has one token, and other calls share the model.
        if threading.get_ident() != thread or states.shape[1] != len(patch.tokens):
            return None
        states = states.clone()
        states[:, patch.places] = patch.states
        return (states, *found[1:]) if isinstance(found, tuple) else states

    handle = _blocks(model)[patch.layer].register_forward_hook(put)
    try:
        yield
    finally:
        handle.remove()


def _blocks(model: LocalModel) -> Any:
    """Return the blocks of a network, whatever its family calls them."""
    from torch.nn import ModuleList

    layers = model.network.config.get_text_config().num_hidden_layers
    found = (m for m in model.network.modules() if isinstance(m, ModuleList) and len(m) == layers)
    blocks = next(found, None)
    if blocks is None:
        raise UsageError("The open box needs a model that is a list of blocks.")
    return blocks


def _tokens(model: LocalModel, text: str) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the tokens of ``text``, and the characters that each stands for."""
    found = model.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    return list(found["input_ids"]), list(found["offset_mapping"])


def _states(model: LocalModel, block: Any, tokens: list[int]) -> torch.Tensor:
    """Return the states (n, hidden) behind ``block`` of a prompt."""
    import torch

    thread = threading.get_ident()
    kept: list[torch.Tensor] = []

    def keep(block: Any, given: Any, found: Any) -> None:
        if threading.get_ident() == thread:
            kept.append((found[0] if isinstance(found, tuple) else found)[0])

    handle = block.register_forward_hook(keep)
    try:
        with torch.inference_mode():
            model.network(input_ids=torch.tensor([tokens]), use_cache=False)
    finally:
        handle.remove()
    return kept[0]
