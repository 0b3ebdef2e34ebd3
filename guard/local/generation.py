"""Lazy generation of one answer, token by token.

Tokens are computed inside ``next()``, so an answer that is no longer read costs nothing, and a
closed one has stopped. (``generate`` of ``transformers`` runs until it is stopped, and uses
the process's global random state, so that a seed would not be reproducible beside other calls.)
Why: docs/decisions/local-models-one-at-a-time.md.
"""

from __future__ import annotations

import inspect
import threading
import time
from typing import TYPE_CHECKING, Any, Literal

from guard.local.text import Detokenizer, Stops

if TYPE_CHECKING:
    import torch

    from guard.local.model import LoadedModel
    from guard.local.options import GenerationOptions

Finish = Literal["stop", "length"]


class Generation:
    """An iterator over the pieces of text of one answer.

    One thread at a time may iterate; ``close`` may be called from any thread. ``finish`` is None
    until the answer is complete, and stays None if it was closed before.

    ``next()`` raises TimeoutError after ``options.timeout_s`` seconds of generating.
    """

    def __init__(self, model: LoadedModel, prompt: list[int], options: GenerationOptions) -> None:
        self.finish: Finish | None = None
        self.prompt_tokens = len(prompt)
        self.completion_tokens = 0  # includes the token that ends the answer
        self._model = model
        self._options = options
        self._limit = options.max_tokens
        if model.context is not None:
            self._limit = min(self._limit, model.context - len(prompt))
        self._text = Detokenizer(model.tokenizer)
        self._stops = Stops(options.stop)
        self._tokens = _Tokens(model, prompt, options)
        self._spent_s = 0.0
        self._closed = threading.Event()

    def __iter__(self) -> Generation:
        return self

    def __next__(self) -> str:
        while self.finish is None and not self._closed.is_set():
            piece = self._next_text()
            if piece and not self._closed.is_set():
                return piece
        raise StopIteration

    def close(self) -> None:
        """Stop: no further token is computed or returned."""
        self._closed.set()

    def _next_text(self) -> str:
        """Compute one token; return its text, which may be empty."""
        began = time.monotonic()
        token = self._tokens.next()
        self._spent_s += time.monotonic() - began
        self.completion_tokens += 1
        ended = token in self._model.ends
        text = "" if ended else self._text.add(token)
        if ended or self.completion_tokens >= self._limit:
            self.finish = "stop" if ended else "length"
            text += self._text.rest()
        elif self._options.timeout_s is not None and self._spent_s > self._options.timeout_s:
            self.close()
            raise TimeoutError(f"No complete answer within {self._options.timeout_s:g} s.")
        piece = self._stops.feed(text)
        if self._stops.hit:
            self.finish = "stop"
        elif self.finish is not None:
            piece += self._stops.rest()
        return piece


class _Tokens:
    """The model's side: the key-value cache and the choice of the next token."""

    def __init__(self, model: LoadedModel, prompt: list[int], options: GenerationOptions) -> None:
        import torch

        self._network = model.network
        self._options = options
        self._input = torch.tensor([prompt], device=model.network.device)
        self._cache: Any = None
        self._counts: torch.Tensor | None = None  # occurrences by token, if a penalty needs them
        self._random = torch.Generator(device=model.network.device)
        if options.seed is None:
            self._random.seed()
        else:
            # torch takes a signed 64-bit seed; callers may pass any integer.
            self._random.manual_seed(options.seed % 2**63)
        # Compute logits for the last position only; a long prompt has many others.
        takes = inspect.signature(model.network.forward).parameters
        self._last = {"logits_to_keep": 1} if "logits_to_keep" in takes else {}

    def next(self) -> int:
        import torch

        with torch.inference_mode():
            out = self._network(
                input_ids=self._input, past_key_values=self._cache, use_cache=True, **self._last
            )
            self._cache = out.past_key_values
            logits = self._penalised(out.logits[0, -1].float())
            token = pick_token(logits, self._options, self._random)
            self._input = token.view(1, 1)
            if self._counts is not None:
                self._counts[token] += 1
        return int(token)

    def _penalised(self, logits: torch.Tensor) -> torch.Tensor:
        """Return ``logits`` lowered for tokens that occurred in the answer.

        By frequency_penalty for each occurrence and by presence_penalty once, as in OpenAI's API.
        """
        import torch

        options = self._options
        if not options.frequency_penalty and not options.presence_penalty:
            return logits
        if self._counts is None:
            self._counts = torch.zeros_like(logits)
        once = (self._counts > 0).float()
        return logits - options.frequency_penalty * self._counts - options.presence_penalty * once


def pick_token(
    logits: torch.Tensor, options: GenerationOptions, random: torch.Generator
) -> torch.Tensor:
    """Return the next token, of shape (1,), from ``logits`` of shape (vocabulary,).

    Temperature first, then the ``top_k`` likeliest, then the fewest tokens whose probabilities
    sum to ``top_p``.
    """
    import torch

    if options.temperature == 0:
        return logits.argmax().view(1)
    logits = logits / options.temperature
    count = len(logits) if options.top_k is None else min(options.top_k, len(logits))
    top, tokens = logits.topk(count)  # likeliest first
    shares = top.softmax(-1)
    # A token stays if those before it do not reach top_p; so the likeliest always stays.
    shares = shares * (shares.cumsum(-1) - shares < options.top_p)
    return tokens[torch.multinomial(shares, 1, generator=random)]
