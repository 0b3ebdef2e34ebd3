"""Finished runs beside each other, on validating texts alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from guard.train.config import TrainConfig
from guard.train.corpus import build
from guard.train.encoder import load_final
from guard.train.stages import left_out
from guard.train.studies import measure


def compare(
    config: TrainConfig, runs: Mapping[str, Path], say: Callable[[str], None] = print
) -> dict[str, dict[str, Any]]:
    """Return what :func:`guard.train.studies.measure` finds of each run, by its name.

    ``runs`` are final weights. All are judged on the validating rows of ``config``, however they
    were shown texts themselves, each with references if it learned with them. ``stages`` counts
    the runs and means behind the weights, ``left_out`` says what the last of them did without and
    ``drawn`` how many rows an epoch of it had.
    """
    assert config.data is not None, "runs are compared on the sources' texts"
    torch.set_num_threads(config.threads)
    corpus = build(config)
    found: dict[str, dict[str, Any]] = {}
    for name, final in runs.items():
        content = load_final(final)[1]
        settings = content["settings"]
        found[name] = {
            "stages": len(content["before"]) + 1,
            "left_out": left_out(settings),
            "drawn": sum(content["quotas"].values()),
            **measure(config, corpus, final, evaluate=False),
        }
        say(f"{name}: {found[name]['redditbias']}")
    return found
