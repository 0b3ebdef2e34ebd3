"""The mean of the weights of several runs, in place of the last one's.

Runs that begin with the same weights lie in one basin: the mean of their weights judges as an
ensemble of them would, at the price of one (model soups, Wortsman et al. 2022, section 3.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from guard.errors import UsageError
from guard.train import checkpoint
from guard.train.stages import begins_with


def average(finals: Sequence[Path], to: Path) -> Path:
    """Write the mean of the weights of two or more runs to ``to``; return the file's path.

    ``finals`` are final weights of :func:`guard.train.encoder.train`. The file is one too: a run
    may begin with it, and a release may be made of it. Its ``before`` holds the settings of every
    run behind the mean, each with the number (from 1; 0: the base) of the one that it ``begins``
    with; its ``settings`` are the last run's, with the numbers ``averaged``.

    Raises UsageError for fewer than two runs, and for runs that began with different embedders.
    """
    if len(finals) < 2:
        raise UsageError("A mean needs the final weights of two runs or more; name them all.")
    contents = [checkpoint.final(p) for p in finals]
    if len({_origin(c) for c in contents}) > 1:
        raise UsageError(
            "These runs began with different embedders, so the mean of their weights means "
            "nothing; average runs that began with the same."
        )
    before: list[dict[str, Any]] = []
    averaged = [placed(c, before) for c in contents]
    # Their numbers are those of the last run's own chain.
    left_out = {"begins", "taught_by", "as_shipped"}
    last = {k: v for k, v in contents[-1]["settings"].items() if k not in left_out}
    file = to / "final.pt"
    checkpoint.save(
        file,
        {
            "nets": _mean([c["nets"] for c in contents]),
            "settings": last | {"averaged": averaged} | as_shipped(contents, averaged),
            "before": before,
            "rows": contents[-1]["rows"],
            "quotas": contents[-1]["quotas"],
        },
    )
    return file


def placed(content: dict[str, Any], before: list[dict[str, Any]]) -> int:
    """Put a run and those that led to it into ``before``, each once; return the run's number."""
    numbers = [0]  # in ``before``, of the base and of each stage of the chain
    for number, settings in enumerate([*content.get("before", []), content["settings"]], 1):
        shown = settings | {"begins": numbers[begins_with(settings, number)]}
        for others in ("averaged", "taught_by", "as_shipped"):
            if others in settings:
                shown[others] = [numbers[n] for n in settings[others]]
        if shown not in before:
            before.append(shown)
        numbers.append(before.index(shown) + 1)
    return numbers[-1]


def _origin(content: dict[str, Any]) -> str:
    """Return the embedder of the stage with which a run's chain began.

    A later stage may read another one's vectors: its weights come from that first stage still.
    """
    chain = [*content["before"], content["settings"]]
    number = len(chain)
    while begun := begins_with(chain[number - 1], number):
        number = begun
    return str(chain[number - 1]["embedder"])


def as_shipped(contents: Sequence[dict[str, Any]], numbers: Sequence[int]) -> dict[str, list[int]]:
    """Return ``as_shipped``: the numbers of the runs whose weights came back from a release."""
    found = sorted({n for n, c in zip(numbers, contents, strict=True) if c.get("restored")})
    return {"as_shipped": found} if found else {}


def _mean(states: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    last = states[-1]
    return {
        name: torch.stack([s[name] for s in states]).mean(0) if value.is_floating_point() else value
        for name, value in last.items()
    }
