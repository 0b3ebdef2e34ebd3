"""Which way is better on an axis that another harness measured: the user says it, or the log."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from guard.audit.paired import Aim
from guard.audit.sides import Axis, Side
from guard.errors import ConfigError, UsageError

UNKNOWN = math.nan
"""The ideal of an axis of which nothing says which way is better."""
WORDS = ("higher", "lower")
Better = str | float
"""``higher``, ``lower``, or the value of a fair model."""


def parse(text: str | float, where: str) -> Better:
    """Return a direction as it was given; raises ConfigError where it is none."""
    if text in WORDS:
        return text
    try:
        ideal = math.nan if isinstance(text, bool) else float(text)
    except (TypeError, ValueError):
        ideal = math.nan
    if not math.isfinite(ideal):
        raise ConfigError(f"{where} takes higher, lower or the ideal as a number, got {text!r}.")
    return ideal


def parse_options(texts: Sequence[str]) -> dict[str, Better]:
    """Return directions by pattern, each given as ``[PATTERN=]higher|lower|NUMBER``."""
    directions: dict[str, Better] = {}
    for text in texts:
        # An axis' name has equals signs of its own, its direction has none.
        pattern, _, value = text.rpartition("=")
        directions[pattern or "*"] = parse(value, "--better")
    return directions


def with_directions(
    base: Side,
    new: Side,
    file: Mapping[str, Better],
    options: Mapping[str, Better],
    axes: Sequence[str] = (),
) -> tuple[Side, Side]:
    """Return the sides with an ideal on each axis that has none and matches one of ``axes``.

    Directions are by pattern, from audit.toml and from the command. Of several that match the last
    decides, the command's before the file's, and what the log says where none does. Raises
    UsageError where nothing says it, or where a pattern of the command matches no such axis.
    """
    aims: dict[str, Aim] = {}
    used: set[str] = set()
    better = [*file.items(), *options.items()]
    for name, (one, other) in _axes_without_ideal(base, new).items():
        if axes and not any(fnmatchcase(name, pattern) for pattern in axes):
            continue
        matched = [
            (pattern, direction) for pattern, direction in better if fnmatchcase(name, pattern)
        ]
        used |= {pattern for pattern, _ in matched}
        direction = matched[-1][1] if matched else one.better or other.better
        if direction == "":
            raise UsageError(
                f"Nothing says whether more of {name} is better; add --better higher or --better "
                "lower, or name it under [better] in audit.toml."
            )
        aims[name] = _aim(name, direction, one, other)
    for pattern in options:
        if pattern not in used:
            raise UsageError(
                f"The direction {pattern!r} matches no axis; directions are for axes of other "
                "harnesses, which are named like inspect:task/plain/scorer."
            )
    return _with_aims(base, aims), _with_aims(new, aims)


def _axes_without_ideal(base: Side, new: Side) -> dict[str, tuple[Axis, Axis]]:
    """Return the axes that both sides have and no ideal is known of."""
    return {
        name: (axis, new.suites[suite].axes[name])
        for suite, one in base.suites.items()
        if suite in new.suites
        for name, axis in one.axes.items()
        if name in new.suites[suite].axes and math.isnan(axis.aim.ideal)
    }


def _aim(name: str, direction: Better, one: Axis, other: Axis) -> Aim:
    # A scale that either side leaves has no known end.
    least, most = (f(one.aim.bounds[at], other.aim.bounds[at]) for at, f in enumerate((min, max)))
    if isinstance(direction, str):
        return Aim(most if direction == "higher" else least, (least, most))
    if not least <= direction <= most:
        raise UsageError(
            f"The ideal {direction:g} of {name} lies outside its scale, {least:g} to {most:g}."
        )
    return Aim(direction, (least, most))


def _with_aims(side: Side, aims: Mapping[str, Aim]) -> Side:
    suites = {
        name: replace(
            one,
            axes={
                axis: replace(value, aim=aims[axis]) if axis in aims else value
                for axis, value in one.axes.items()
            },
        )
        for name, one in side.suites.items()
    }
    return replace(side, suites=suites)
