"""The mean of two finished runs' weights: between a release and the run that goes on from it.

A run that learns something new forgets a little of the old. The mean of both networks often keeps
more of either than a shorter run (Wortsman et al. 2022, WiSE-FT).
"""

from __future__ import annotations

from pathlib import Path

from guard.errors import UsageError
from guard.train import checkpoint
from guard.train.encoder import NAME, load_final


def write_mean(old: Path, new: Path, share: float, to: Path) -> Path:
    """Write ``share`` of the weights of ``new`` and the rest of ``old``; return the file's path.

    The file in the folder ``to`` has the settings of ``new``, with ``averaged``. Raises UsageError
    if one is no finished run, ``new`` did not go on from ``old``, or ``to`` has another mean.
    """
    content = checkpoint.final_content(new)
    start = checkpoint.final_content(old)
    stages = [*start.get("before", []), start["settings"]]
    if content.get("before", [])[: len(stages)] != stages:
        raise UsageError(f"{new} did not go on from {old}; name a run that it began with.")
    settings = content["settings"] | {"averaged": share}
    final = to / NAME
    if checkpoint.load_run(final, settings, checkpoint.FINAL) is not None:
        return final
    first, second = (load_final(path)[0].state_dict() for path in (old, new))
    weights = {name: first[name].lerp(second[name], share) for name in second}
    checkpoint.save_content(final, content | {"nets": weights, "settings": settings})
    return final
