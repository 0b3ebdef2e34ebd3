"""A stratified sample of a suite's items, the same for the same seed."""

from __future__ import annotations

import hashlib
import heapq
import math
from collections.abc import Iterable, Mapping, Sequence

from guard.errors import UsageError
from guard.suites import Item

QUICK_ITEMS, QUICK_ANSWERS = 300, 600
"""The most items, and answers, of a quick run: five minutes a suite to replay on two cores."""


def stratified_sample(items: Iterable[Item], size: int | None, seed: int) -> list[Item]:
    """Return about ``size`` of ``items``, in their order: whole units from each stratum.

    Strata are allocated proportionally, by the largest remainders, with at least one unit each. If
    ``size`` is too small for that, as many strata as fit give one unit, each subject one before any
    gives a second, small units first. The sample has at most twice ``size`` items, or one
    unit where that is more. Units are ranked by a hash of seed, stratum and unit, so a larger
    sample contains the smaller one of the same seed. A ``size`` of None takes every item. Raises
    UsageError for a size below 1.
    """
    everything = list(items)
    if size is None or size >= len(everything):
        return everything
    if size < 1:
        raise UsageError(f"A sample has at least one item, got {size}.")
    strata = _strata_of(everything)
    sizes = {name: sum(map(len, units.values())) for name, units in strata.items()}
    taken: list[int] = []
    first = {
        n: units[min(units, key=lambda u: _unit_rank(seed, n, u))] for n, units in strata.items()
    }
    if size < len(strata) or 2 * size < sum(map(len, first.values())):
        firsts = {name: everything[places[0]] for name, places in first.items()}
        subjects = {name: item.subject or item.stratum for name, item in firsts.items()}
        for name in _in_turn(subjects, {n: len(places) for n, places in first.items()}, seed):
            here = first[name]
            if taken and len(taken) + len(here) / 2 > size:
                break
            taken += here
        return [everything[place] for place in sorted(taken)]
    # In random order: where units are large, not every stratum fits.
    for name, quota in sorted(
        _stratum_quotas(sizes, size).items(), key=lambda q: _unit_rank(seed, q[0], "")
    ):
        units = sorted(strata[name], key=lambda unit: _unit_rank(seed, name, unit))
        got = 0
        for unit in units:
            here = strata[name][unit]
            # The unit that crosses the quota is taken if most of it lies within.
            if (got and got + len(here) / 2 > quota) or quota == 0:
                break
            if taken and len(taken) + len(here) > 2 * size:
                break
            taken += here
            got += len(here)
    return [everything[place] for place in sorted(taken)]


def _strata_of(items: Sequence[Item]) -> dict[str, dict[str, list[int]]]:
    """Return the indices of ``items`` by stratum and unit."""
    strata: dict[str, dict[str, list[int]]] = {}
    for place, item in enumerate(items):
        strata.setdefault(item.stratum, {}).setdefault(item.unit or item.id, []).append(place)
    return strata


def quick_size(items: Sequence[Item]) -> int:
    """Return the number of items of a quick run: QUICK_ITEMS, with at most QUICK_ANSWERS."""
    each = sample_count(items) / len(items)
    return max(1, min(QUICK_ITEMS, round(QUICK_ANSWERS / each)))


def allocated_sample(
    items: Iterable[Item], pilot: Sequence[Item], size: int, seed: int, spread: Mapping[str, float]
) -> list[Item]:
    """Return ``pilot`` with further units, about ``size`` items, from the strata that vary most.

    Neyman's allocation (Cochran 1977, eq. 5.25, with costs): each further unit comes from the
    stratum where it lowers the variance of the total most for its items,
    N² s² (1/n - 1/(n + 1)) / items. ``spread`` is s by stratum; where s is 0 or missing a tenth of
    the largest is used, so that no stratum is excluded because its pilot did not vary. Strata weigh
    by their sizes, else those that vary most would dominate. The sizes depend on the pilot, so an
    estimate has a bias of the order of one over the units in a stratum.
    """
    everything = list(items)
    taken = {item.id for item in pilot}
    strata = _strata_of(everything)
    known = [s for s in spread.values() if s > 0]
    least = max(known, default=1.0) / 10
    left: dict[str, list[list[int]]] = {}
    had: dict[str, int] = {}
    for name, units in strata.items():
        ranked = sorted(units, key=lambda unit: _unit_rank(seed, name, unit))
        rest = [units[u] for u in ranked if everything[units[u][0]].id not in taken]
        left[name], had[name] = rest[::-1], len(units) - len(rest)

    def gain(name: str) -> float:
        s, n = spread.get(name, least), had[name]
        s = s if s > least else least
        fall = 1 / n - 1 / (n + 1) if n else math.inf
        return (len(strata[name]) * s) ** 2 * fall / len(left[name][-1])

    room = size - len(taken)
    heap = [(-gain(name), name) for name in left if left[name]]
    heapq.heapify(heap)
    while heap and room > 0:
        _, name = heapq.heappop(heap)
        unit = left[name].pop()
        if len(unit) / 2 > room:
            continue
        taken |= {everything[place].id for place in unit}
        room -= len(unit)
        had[name] += 1
        if left[name]:
            heapq.heappush(heap, (-gain(name), name))
    return [item for item in everything if item.id in taken]


def _in_turn(subjects: Mapping[str, str], sizes: Mapping[str, int], seed: int) -> list[str]:
    """Return the strata in an order where each subject comes once before any comes twice."""
    turns: dict[str, int] = {}
    keys: dict[str, tuple[int, int, bytes]] = {}
    for name in sorted(subjects, key=lambda n: _unit_rank(seed, n, "")):
        turn = turns[subjects[name]] = turns.get(subjects[name], -1) + 1
        keys[name] = (turn, sizes[name], _unit_rank(seed, name, ""))
    return sorted(keys, key=lambda n: keys[n])


def _stratum_quotas(sizes: dict[str, int], size: int) -> dict[str, int]:
    """Return the number of items of each stratum, ``size`` in all (Hamilton's method)."""
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


def _unit_rank(seed: int, stratum: str, unit: str) -> bytes:
    return hashlib.sha256(f"{seed}\n{stratum}\n{unit}".encode()).digest()


def sample_count(items: Sequence[Item]) -> int:
    """Return the number of samples of ``items``."""
    return sum(item.samples for item in items)
