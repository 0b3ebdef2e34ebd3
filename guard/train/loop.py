"""The loop of a training run: seeded step by step, and resumable at any of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from guard.errors import UsageError
from guard.train import checkpoint


class TrainingProgress(NamedTuple):
    """The report of one training step; steps count from 1.

    ``loss`` stays a tensor: reading it would make each step wait for the GPU.
    """

    step: int
    steps: int
    loss: Tensor
    seconds: float


class TrainingPlan(NamedTuple):
    """The length of a run: the rate rises over the share ``warmup`` of the steps, then falls."""

    steps: int
    warmup: float
    seed: int
    checkpoint_every: int


# Seconds after which a step saves a checkpoint, however slow the machine is.
_LONGEST = 600.0
Show = Callable[[TrainingProgress], None]


def run_training(
    net: nn.Module,
    optimiser: torch.optim.Optimizer,
    plan: TrainingPlan,
    step_loss: Callable[[int], Tensor],
    file: Path,
    settings: Mapping[str, Any],
    progress: Show | None = None,
    stopping: Callable[[], bool] = lambda: False,
) -> None:
    """Train ``net``, or resume from the checkpoint ``file``.

    ``step_loss`` returns the loss of a step (from 0); one without a graph has added its gradients
    itself. Its random choices must depend on the step only, or use torch's generator, which is
    seeded before each step. The optimiser has its highest learning rates. Once ``stopping``
    returns True, the step is finished and saved, and KeyboardInterrupt raised. Raises UsageError if
    ``file`` is of a run with other settings, or if the loss is no number any more.
    """
    rates = [group["lr"] for group in optimiser.param_groups]
    saved = checkpoint.load_run(file, settings, {"net", "optimiser", "step"})
    done = 0
    if saved is not None:
        net.load_state_dict(saved["net"])
        optimiser.load_state_dict(saved["optimiser"])
        done = saved["step"]
    warm = max(1, round(plan.warmup * plan.steps))
    net.train()
    saved_at = time.monotonic()
    for step in range(done, plan.steps):
        started = time.perf_counter()
        torch.manual_seed(plan.seed * 1_000_003 + step)
        factor = min((step + 1) / warm, (plan.steps - step) / max(1, plan.steps - warm))
        for group, rate in zip(optimiser.param_groups, rates, strict=True):
            group["lr"] = rate * factor
        optimiser.zero_grad(set_to_none=True)
        loss = step_loss(step)
        if loss.requires_grad:
            loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()
        if progress is not None:
            seconds = time.perf_counter() - started
            progress(TrainingProgress(step + 1, plan.steps, loss.detach(), seconds))
        stopped = stopping()
        due = (step + 1) % plan.checkpoint_every == 0 or time.monotonic() - saved_at > _LONGEST
        due = due or stopped
        if due and step + 1 < plan.steps:
            _check_loss(loss, file)
            content = {"net": net.state_dict(), "optimiser": optimiser.state_dict()}
            checkpoint.save_content(file, content | {"step": step + 1, "settings": dict(settings)})
            saved_at = time.monotonic()
        if stopped and step + 1 < plan.steps:
            raise KeyboardInterrupt
    if done < plan.steps:
        _check_loss(loss, file)


def _check_loss(loss: Tensor, file: Path) -> None:
    """Raise UsageError if the loss is no number any more; then the weights are none either."""
    if not loss.isfinite():
        raise UsageError(
            f"The loss of the run in {file.parent} is no number any more; start again with a lower "
            "--lr in another folder."
        )
