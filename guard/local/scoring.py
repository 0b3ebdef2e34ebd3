"""Log-likelihoods of given texts under a model, and its likeliest first tokens.

Context and continuation are tokenised together; the tokens that reach into the continuation count.
A BOS token is added if the tokenizer adds one; it does not count, nor does the context.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from guard.errors import UsageError

if TYPE_CHECKING:
    from guard.local.model import LoadedModel

# Continuations read at a time: their logits take vocabulary x tokens x this many numbers.
_BATCH = 16


class Scored(NamedTuple):
    """The sum of the natural log-probabilities of a continuation's tokens, and their number."""

    logprob: float
    tokens: int


class _Text(NamedTuple):
    tokens: list[int]
    begin: int  # of the continuation, in tokens


def score_continuations(
    model: LoadedModel,
    context: str,
    continuations: Sequence[str],
    prompt: Sequence[int] | None = None,
) -> list[Scored]:
    """Return the log-probability of each of ``continuations`` after ``context``.

    ``prompt`` are the tokens of a conversation instead of the context; each continuation is then
    its next turn. The common prefix of the texts is computed once. An empty continuation has no
    token and the sum 0. Raises UsageError if a text is longer than the model's context.
    """
    if prompt is None:
        texts = [_scored_text(model, context, continuation) for continuation in continuations]
    else:
        texts = [_turn_text(model, prompt, continuation) for continuation in continuations]
    longest = max((len(t.tokens) for t in texts), default=0)
    if model.context is not None and longest > model.context:
        raise UsageError(f"A text has {longest} tokens; the model can read {model.context}.")
    scored: list[Scored] = []
    for at in range(0, len(texts), _BATCH):
        scored += _score_batch(model, texts[at : at + _BATCH])
    return scored


def first_tokens(model: LoadedModel, prompt: Sequence[int], count: int) -> dict[str, float]:
    """Return the texts of the ``count`` likeliest tokens after ``prompt``, with log-probabilities.

    Of tokens with the same text only the likeliest is returned.
    """
    import torch

    with torch.inference_mode():
        ids = torch.tensor([list(prompt)], device=model.network.device)
        logits = model.network(input_ids=ids, use_cache=False).logits[0, -1].float()
        values, tokens = logits.log_softmax(-1).topk(min(count, len(logits)))
    fields: dict[str, float] = {}
    for value, token in zip(values.tolist(), tokens.tolist(), strict=True):
        fields.setdefault(model.tokenizer.decode([token]), value)
    return fields


def _turn_text(model: LoadedModel, prompt: Sequence[int], continuation: str) -> _Text:
    tokens = list(model.tokenizer(continuation, add_special_tokens=False)["input_ids"])
    return _Text([*prompt, *tokens], len(prompt))


def _scored_text(model: LoadedModel, context: str, continuation: str) -> _Text:
    tokenizer = model.tokenizer
    read = tokenizer(context + continuation, add_special_tokens=False, return_offsets_mapping=True)
    tokens = list(read["input_ids"])
    ends = [end for _, end in read["offset_mapping"]]
    begin = next((i for i, end in enumerate(ends) if end > len(context)), len(tokens))
    front = _front_tokens(tokenizer)
    if not front and begin == 0:
        # The first token needs one before it to have a probability: use an end-of-text token.
        front = [next(iter(sorted(model.ends)))] if model.ends else []
        if not front:
            raise UsageError("This model has no token that begins a text; set a context.")
    return _Text(front + tokens, len(front) + begin)


def _front_tokens(tokenizer: Any) -> list[int]:
    """Return the tokens that the tokenizer puts before any text."""
    first = tokenizer.bos_token_id
    whole = tokenizer("a")["input_ids"]
    return [first] if first is not None and whole[:1] == [first] else []


def _score_batch(model: LoadedModel, texts: Sequence[_Text]) -> list[Scored]:
    import torch

    device = model.network.device
    shared = _common_length([t.tokens for t in texts])
    # The last common token is read with each text: it predicts the first of the other tokens.
    known = max(0, min(shared, min(t.begin for t in texts)) - 1)
    rest = [t.tokens[known:] for t in texts]
    width = max(map(len, rest))
    padded = torch.tensor([r + [0] * (width - len(r)) for r in rest], device=device)
    with torch.inference_mode():
        cache = None
        if known:
            ids = torch.tensor([texts[0].tokens[:known]], device=device)
            cache = model.network(input_ids=ids, use_cache=True).past_key_values
            if len(texts) > 1:
                cache.batch_repeat_interleave(len(texts))
        # Padding comes after the text, which does not attend to it.
        logits = model.network(input_ids=padded, past_key_values=cache, use_cache=True).logits
        targets = padded[:, 1:].unsqueeze(-1)
        logits = logits[:, :-1].float()
        each = logits.gather(-1, targets).squeeze(-1) - logits.logsumexp(-1)
    scored = []
    for row, text in enumerate(texts):
        span = each[row, text.begin - known - 1 : len(text.tokens) - known - 1]
        scored.append(Scored(float(span.double().sum()), len(text.tokens) - text.begin))
    return scored


def _common_length(rows: Sequence[Sequence[int]]) -> int:
    """Return the length of the common prefix of ``rows``."""
    count = 0
    for column in zip(*rows, strict=False):
        if len(set(column)) > 1:
            break
        count += 1
    return count
