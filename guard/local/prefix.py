"""Prompts with the same beginning: the model reads it once, and each prompt from there on."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from guard.local.model import LoadedModel


def common_prefix(rows: Sequence[Sequence[int]]) -> list[int]:
    """Return the longest beginning that all rows of tokens have in common."""
    shortest = min(rows, key=len, default=())
    same = 0
    for column in zip(*rows, strict=False):
        if len(set(column)) > 1:
            break
        same += 1
    return list(shortest[:same])


class SharedPrefix:
    """A model that has read the common beginning of its prompts.

    The keys and values of the beginning are computed once and never changed: each reading goes on
    with a copy. ``prefix`` may be empty; a prompt that begins otherwise shares what it can. What
    is read does not depend on what was read before. Not thread-safe.
    """

    def __init__(self, model: LoadedModel, prefix: Sequence[int]) -> None:
        import torch

        self._network, self._prefix = model.network, list(prefix)
        # Without this argument a model computes the logits of every token of the prompt.
        known = inspect.signature(model.network.forward).parameters
        self._last_only = {"logits_to_keep": 1} if "logits_to_keep" in known else {}
        self._cache: Any = None
        if self._prefix:
            with torch.inference_mode():
                ids = torch.tensor([self._prefix], device=self._network.device)
                arguments = {"input_ids": ids, "use_cache": True, **self._last_only}
                self._cache = self._network(**arguments).past_key_values

    def __len__(self) -> int:
        return len(self._prefix)

    def read(self, prompt: Sequence[int]) -> PromptReading:
        """Return what follows ``prompt``, which has one token or more."""
        known = self._shared_length([prompt])
        logits, cache = self._run_behind([prompt], known)
        return PromptReading(self._network, cache, logits[0], self._last_only)

    def read_many(self, prompts: Sequence[Sequence[int]]) -> list[Any]:
        """Return the logits of the token after each prompt, (vocabulary,) float32, in one pass.

        The prompts are padded on the left. In float32 the logits are those of :meth:`read` up to
        rounding; in bfloat16 they depend on the batch (three digits).
        """
        return list(self._run_behind(prompts, self._shared_length(prompts))[0])

    def _shared_length(self, prompts: Sequence[Sequence[int]]) -> int:
        """Return how many tokens of the cache begin every prompt; each keeps one to read."""
        same = len(common_prefix([self._prefix, *prompts]))
        return min(same, *(len(prompt) - 1 for prompt in prompts))

    def _run_behind(self, prompts: Sequence[Sequence[int]], known: int) -> tuple[Any, Any]:
        """Read ``prompts`` behind their first ``known`` tokens; return last logits and cache."""
        import torch

        device = self._network.device
        rest = [list(prompt[known:]) for prompt in prompts]
        width = max(map(len, rest))
        pads = [width - len(row) for row in rest]
        ids = [[0] * pad + row for pad, row in zip(pads, rest, strict=True)]
        # A pad attends to the beginning, so that no row of its attention is empty; none to it.
        mask = [[1] * known + [0] * pad + [1] * (width - pad) for pad in pads]
        places = [[known] * pad + list(range(known, known + width - pad)) for pad in pads]
        with torch.inference_mode():
            arguments = {
                "input_ids": torch.tensor(ids, device=device),
                "attention_mask": torch.tensor(mask, device=device),
                "position_ids": torch.tensor(places, device=device),
            }
            cache = self._copied_cache(known, len(prompts))
            out = self._network(
                **arguments, past_key_values=cache, use_cache=True, **self._last_only
            )
            return out.logits[:, -1].float(), out.past_key_values

    def _copied_cache(self, known: int, rows: int) -> Any:
        if not known:
            return None
        cache = copy.deepcopy(self._cache)
        if known < len(self._prefix):
            cache.crop(known - len(self._prefix))  # by so many tokens
        if rows > 1:
            cache.batch_repeat_interleave(rows)
        return cache


class PromptReading:
    """A prompt that was read, and what the model would say next. Belongs to one thread."""

    def __init__(self, network: Any, cache: Any, logits: Any, last_only: dict[str, Any]) -> None:
        self._network, self._cache = network, cache
        self._first, self._last_only = logits, last_only
        self._said: list[int] = []
        self._logits = logits

    def after(self, tokens: Sequence[int]) -> Any:
        """Return the logits of the token after prompt and ``tokens``, (vocabulary,) float32.

        What was read of ``tokens`` in an earlier call is not read again.
        """
        import torch

        if not tokens:
            return self._first
        if list(tokens) == self._said:
            return self._logits
        same = min(len(common_prefix([self._said, tokens])), len(tokens) - 1)
        with torch.inference_mode():
            if same < len(self._said):
                self._cache.crop(same - len(self._said))
            ids = torch.tensor([list(tokens[same:])], device=self._network.device)
            out = self._network(
                input_ids=ids, past_key_values=self._cache, use_cache=True, **self._last_only
            )
        self._said = list(tokens)
        self._logits = out.logits[0, -1].float()
        return self._logits

    def likeliest(self, most: int) -> Iterator[int]:
        """Yield up to ``most`` tokens that follow the prompt, the likeliest each time."""
        said: list[int] = []
        for _ in range(most):
            said.append(int(self.after(said).argmax()))
            yield said[-1]
