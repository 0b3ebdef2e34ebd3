"""LoRA on a causal language model, and the loss of a step whose prompts begin alike.

Low-rank adapters (Hu et al. 2021) on every linear module but the output layer: ``y = W x + s B A
x`` with ``s = alpha / rank``. The common beginning of a step's prompts is read once, with
gradients: its keys and values are shared by all rows, so a row costs only its own tokens.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from guard.errors import UsageError
from guard.local.adapter import sharing_copy
from guard.local.prefix import common_prefix


class LearnedAnswer(NamedTuple):
    """A prompt and the answer to learn, as tokens; ``answer`` has at least one."""

    prompt: list[int]
    answer: list[int]


class _LowRank(torch.autograd.Function):
    """``x W' + b + (x A') B'`` of a frozen ``W``; it keeps no more than ``x`` and ``x A'``.

    A and B are stored in float32 and multiplied in the type of ``x``.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, a: Tensor, b: Tensor,
                scale: float) -> Tensor:  # fmt: skip
        flat = x.reshape(-1, x.shape[-1])
        low = flat @ a.to(x.dtype).T
        out = flat @ weight.T if bias is None else torch.addmm(bias, flat, weight.T)
        out.addmm_(low, b.to(x.dtype).T, alpha=scale)
        ctx.save_for_backward(flat, low, weight, a, b)
        ctx.scale = scale
        return out.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        flat, low, weight, a, b = ctx.saved_tensors
        (gradient,) = gradients
        of_out = gradient.reshape(-1, gradient.shape[-1])
        of_low = (of_out @ b.to(of_out.dtype)).mul_(ctx.scale)
        of_x = None
        if ctx.needs_input_grad[0]:
            of_x = (of_out @ weight).addmm_(of_low, a.to(of_out.dtype))
            of_x = of_x.view(*gradient.shape[:-1], -1)
        of_b = (of_out.T @ low).mul_(ctx.scale).to(b.dtype)
        return of_x, None, None, (of_low.T @ flat).to(a.dtype), of_b, None


def adapted_copy(network: Any, rank: int, seed: int, device: str) -> Any:
    """Return a PEFT model on a copy of ``network`` that shares its tensors where it can.

    Only the adapters are trained; they are float32, of scale ``alpha / rank`` = 2, and begin
    without effect. Raises UsageError if the network has no linear modules that can be adapted.
    """
    import peft
    from peft.tuners.lora import Linear

    torch.manual_seed(seed)
    copy = sharing_copy(network, device)
    config = peft.LoraConfig(
        r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            model = peft.get_peft_model(copy, config)
    except ValueError as error:
        raise UsageError(f"The base cannot carry adapters: {error}") from None
    layers = [module for module in model.modules() if isinstance(module, Linear)]
    if not layers or any(not isinstance(layer.base_layer, nn.Linear) for layer in layers):
        raise UsageError(
            "The base cannot be trained: its layers are not torch's linear modules (a quantised "
            "one, or of an old build); name a base with plain weights."
        )
    for layer in layers:
        _made_fast(layer)
    return model.eval()


def _made_fast(layer: Any) -> None:
    """Compute a layer of PEFT by :class:`_LowRank`; its weights stay PEFT's."""
    base, scale = layer.base_layer, layer.scaling["default"]
    a, b = layer.lora_A["default"], layer.lora_B["default"]

    def forward(x: Tensor) -> Tensor:
        result: Tensor = _LowRank.apply(  # type: ignore[no-untyped-call]
            x, base.weight, base.bias, a.weight, b.weight, scale
        )
        return result

    layer.forward = forward


class Adapters(nn.Module):
    """The trained weights of a PEFT model alone, for the optimiser and the checkpoint."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                self.register_parameter(name.replace(".", "/"), parameter)


@dataclass(frozen=True, slots=True)
class Losses:
    """How a step's loss is made and computed.

    Attributes:
        first: weight of an answer's first token, Yes or No; that of the others is 1.
        tokens: the most tokens, with padding, that are read in one pass.
        checkpointing: whether states are computed again in the backward pass instead of kept, for
            bases near the size of the memory; then each row reads its whole prompt.

    """

    first: float = 1.0
    tokens: int = 2048
    checkpointing: bool = False


def step_loss(model: Any, rows: Sequence[LearnedAnswer], how: Losses) -> Tensor:
    """Return the mean cross-entropy of the answers' tokens, its gradients added to the adapters.

    The mean is weighted by token (:class:`Losses`) over all rows together, so the passes into
    which they are divided do not matter. The result, a number without a graph, is float32.
    """
    weights = sum(how.first + len(row.answer) - 1 for row in rows)
    device = next(model.parameters()).device
    if how.checkpointing:
        model.train()
        model.gradient_checkpointing_enable({"use_reentrant": False})
    loss = torch.zeros((), device=device)
    shared = 0 if how.checkpointing else _common_length(model, [row.prompt for row in rows])
    layers = _read_prefix(model, rows[0].prompt[:shared]) if shared else []
    # Each pass goes back to the common beginning; from there on the way is gone once.
    ends = [tensor.detach().requires_grad_() for pair in layers for tensor in pair]
    pairs = list(zip(ends[::2], ends[1::2], strict=True))
    for some in row_passes(rows, shared, how.tokens):
        part = _pass_loss(model, some, shared, pairs, how.first) / weights
        part.backward()  # type: ignore[no-untyped-call]
        loss += part.detach()
    if layers:
        tensors = [tensor for pair in layers for tensor in pair]
        learned = [(t, end.grad) for t, end in zip(tensors, ends, strict=True) if t.requires_grad]
        torch.autograd.backward([t for t, _ in learned], [grad for _, grad in learned])
    return loss


def _common_length(model: Any, prompts: Sequence[Sequence[int]]) -> int:
    """Return how many tokens all prompts begin with, of which each keeps one.

    0 for a model with layers that do not keep every token's keys and values, such as a sliding
    window: there each prompt is read whole.
    """
    kinds = getattr(model.config.get_text_config(), "layer_types", None) or ()
    if any(kind != "full_attention" for kind in kinds):
        return 0
    return min(len(common_prefix(prompts)), min(map(len, prompts)) - 1)


def row_passes(
    rows: Sequence[LearnedAnswer], shared: int, tokens: int
) -> Iterator[list[LearnedAnswer]]:
    """Yield the rows in passes of at most so many tokens with padding, like lengths together."""
    some: list[LearnedAnswer] = []
    for row in sorted(rows, key=lambda row: (len(row.answer), len(row.prompt))):
        more = [*some, row]
        width = max(len(r.prompt) for r in more) - shared + max(len(r.answer) for r in more) - 1
        if some and width * len(more) > tokens:
            yield some
            more = [row]
        some = more
    yield some


def _read_prefix(model: Any, prefix: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
    """Return the keys and values of each layer, (1, heads, tokens, dim), with their graph."""
    ids = torch.tensor([prefix], device=next(model.parameters()).device)
    cache = model(input_ids=ids, use_cache=True, **_kept_argument(model, 1)).past_key_values
    return [(layer.keys, layer.values) for layer in cache.layers]


def _kept_argument(model: Any, count: int) -> dict[str, int]:
    """Return the argument by which a model computes logits of the last ``count`` tokens only."""
    known = inspect.signature(model.get_base_model().forward).parameters
    return {"logits_to_keep": count} if "logits_to_keep" in known else {}


def answer_logits(
    model: Any, rows: Sequence[LearnedAnswer], shared: int, layers: Sequence[tuple[Tensor, Tensor]]
) -> Tensor:
    """Return the logits of the answers' tokens: (rows, longest answer, vocabulary).

    ``layers`` are the keys and values of the first ``shared`` tokens. Behind the end of a shorter
    answer the logits mean nothing.
    """
    from transformers import DynamicCache

    device = next(model.parameters()).device
    rests = [[*row.prompt[shared:], *row.answer[:-1]] for row in rows]
    width = max(map(len, rests))
    pads = [width - len(rest) for rest in rests]
    ids = [rest + [0] * pad for rest, pad in zip(rests, pads, strict=True)]
    mask = [[1] * (shared + len(rest)) + [0] * pad for rest, pad in zip(rests, pads, strict=True)]
    cache = None
    if layers:
        cache = DynamicCache()
        for number, (keys, values) in enumerate(layers):
            cache.update(
                keys.expand(len(rows), -1, -1, -1), values.expand(len(rows), -1, -1, -1), number
            )
    # The token before an answer predicts its first.
    begins = [len(row.prompt) - shared - 1 for row in rows]
    kept = width - min(begins)
    out = model(
        input_ids=torch.tensor(ids, device=device),
        attention_mask=torch.tensor(mask, device=device),
        past_key_values=cache,
        use_cache=cache is not None,
        **_kept_argument(model, kept),
    ).logits[:, -kept:]
    longest = max(len(row.answer) for row in rows)
    at = torch.tensor([[begin - min(begins) + n for n in range(longest)] for begin in begins])
    at = at.clamp(max=kept - 1).to(device)
    logits: Tensor = out[torch.arange(len(rows), device=device)[:, None], at]
    return logits


def _pass_loss(
    model: Any,
    rows: Sequence[LearnedAnswer],
    shared: int,
    layers: Sequence[tuple[Tensor, Tensor]],
    first: float,
) -> Tensor:
    """Return the weighted sum of the cross-entropies of the answers' tokens."""
    logits = answer_logits(model, rows, shared, layers)
    kept = logits.shape[1]
    goals = torch.tensor(
        [row.answer + [-100] * (kept - len(row.answer)) for row in rows], device=logits.device
    )
    each = nn.functional.cross_entropy(
        logits.float().flatten(0, 1), goals.flatten(), reduction="none"
    ).view(len(rows), kept)
    weights = torch.ones(kept, device=logits.device)
    weights[0] = first
    result: Tensor = (each * weights).sum()
    return result


def decision_logits(
    model: Any, prompts: Sequence[Sequence[int]], yes: int, no: int, how: Losses
) -> Tensor:
    """Return for each prompt log p(``yes``) - log p(``no``) of the next token: (n,) float32, CPU.

    Prompts of like length share a pass; the common beginning of all is read once.
    """
    logits = torch.zeros(len(prompts))
    if not prompts:
        return logits
    rows = [LearnedAnswer(list(prompt), [number]) for number, prompt in enumerate(prompts)]
    shared = _common_length(model, prompts)
    model.eval()
    with torch.inference_mode():
        layers = _read_prefix(model, prompts[0][:shared]) if shared else []
        for some in row_passes(rows, shared, how.tokens):
            last = answer_logits(model, some, shared, layers)[:, 0].float().cpu()
            if not math.isfinite(float(last.sum())):
                raise UsageError("The model gives no number any more; train with a lower --lr.")
            logits[[row.answer[0] for row in some]] = last[:, yes] - last[:, no]
    return logits
