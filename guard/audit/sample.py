"""A stratified sample of a suite's items, the same for the same seed."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence

from guard.errors import UsageError
from guard.suites import Item


def drawn(items: Iterable[Item], size: int | None, seed: int) -> list[Item]:
    """Return about ``size`` of ``items``, in their order: whole units from each stratum.

    Each stratum gives its share of the items, by the largest remainders, and one unit at least
    where ``size`` has room for all strata. Units are ranked by a hash of seed, stratum and unit, so
    a larger sample holds the smaller one of the same seed. None takes every item. Raises
    UsageError for a size below 1.
    """
    everything = list(items)
    if size is None or size >= len(everything):
        return everything
    if size < 1:
        raise UsageError(f"A sample has at least one item, got {size}.")
    strata: dict[str, dict[str, list[int]]] = {}
    for place, item in enumerate(everything):
        strata.setdefault(item.stratum, {}).setdefault(item.unit or item.id, []).append(place)
    sizes = {name: sum(map(len, units.values())) for name, units in strata.items()}
    taken: list[int] = []
    for name, quota in _quotas(sizes, size).items():
        units = sorted(strata[name], key=lambda unit: _rank(seed, name, unit))
        got = 0
        for unit in units:
            here = strata[name][unit]
            # The unit that crosses the quota counts if most of it lies within.
            if (got and got + len(here) / 2 > quota) or quota == 0:
                break
            taken += here
            got += len(here)
    return [everything[place] for place in sorted(taken)]


def _quotas(sizes: dict[str, int], size: int) -> dict[str, int]:
    """Return how many items each stratum gives, ``size`` in all (Hamilton's method)."""
    total = sum(sizes.values())
    least = 1 if size >= len(sizes) else 0
    room = size - least * len(sizes)
    exact = {
        name: room * (n - least) / max(total - least * len(sizes), 1) for name, n in sizes.items()
    }
    quotas = {name: least + math.floor(share) for name, share in exact.items()}
    rest = sorted(sizes, key=lambda name: math.floor(exact[name]) - exact[name])
    for name in rest[: size - sum(quotas.values())]:
        quotas[name] += 1
    return quotas


def _rank(seed: int, stratum: str, unit: str) -> bytes:
    return hashlib.sha256(f"{seed}\n{stratum}\n{unit}".encode()).digest()


def count(items: Sequence[Item]) -> int:
    """Return how many samples ``items`` ask for."""
    return sum(item.samples for item in items)
