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


def read(text: str | float, where: str) -> Better:
    """Return a direction as it was given; raises ConfigError where it is none."""
    if text in WORDS:
        return text
    try:
        found = math.nan if isinstance(text, bool) else float(text)
    except (TypeError, ValueError):
        found = math.nan
    if not math.isfinite(found):
        raise ConfigError(f"{where} takes higher, lower or the ideal as a number, got {text!r}.")
    return found


def read_options(texts: Sequence[str]) -> dict[str, Better]:
    """Return directions by pattern, each given as ``[PATTERN=]higher|lower|NUMBER``."""
    found: dict[str, Better] = {}
    for text in texts:
        # An axis' name has equals signs of its own, its direction has none.
        pattern, _, value = text.rpartition("=")
        found[pattern or "*"] = read(value, "--better")
    return found


def directed(
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
    for name, (one, other) in _open(base, new).items():
        if axes and not any(fnmatchcase(name, pattern) for pattern in axes):
            continue
        matched = [(pattern, told) for pattern, told in better if fnmatchcase(name, pattern)]
        used |= {pattern for pattern, _ in matched}
        told = matched[-1][1] if matched else one.better or other.better
        if not matched and one.better and other.better and one.better != other.better:
            raise UsageError(
                f"{base.name} says that {one.better} {name} is better, {new.name} {other.better}; "
                "say by --better which is true."
            )
        if told == "":
            raise UsageError(
                f"Nothing says whether more of {name} is better; add --better higher or --better "
                "lower, or name it under [better] in audit.toml."
            )
        aims[name] = _aim(name, told, one, other)
    for pattern in options:
        if pattern not in used:
            raise UsageError(
                f"The direction {pattern!r} matches no axis; directions are for axes of other "
                "harnesses, which are named like inspect:task/plain/scorer."
            )
    return _with(base, aims), _with(new, aims)


def _open(base: Side, new: Side) -> dict[str, tuple[Axis, Axis]]:
    """Return the axes that both sides have and no ideal is known of."""
    return {
        name: (axis, new.suites[suite].axes[name])
        for suite, one in base.suites.items()
        if suite in new.suites
        for name, axis in one.axes.items()
        if name in new.suites[suite].axes and math.isnan(axis.aim.ideal)
    }


def _aim(name: str, told: Better, one: Axis, other: Axis) -> Aim:
    # A scale that either side leaves has no known end.
    least, most = (f(one.aim.bounds[at], other.aim.bounds[at]) for at, f in enumerate((min, max)))
    if isinstance(told, str):
        return Aim(most if told == "higher" else least, (least, most))
    if not least <= told <= most:
        raise UsageError(
            f"The ideal {told:g} of {name} lies outside its scale, {least:g} to {most:g}."
        )
    return Aim(told, (least, most))


def _with(side: Side, aims: Mapping[str, Aim]) -> Side:
    suites = {
        name: replace(
            one,
            axes={
                axis: replace(found, aim=aims[axis]) if axis in aims else found
                for axis, found in one.axes.items()
            },
        )
        for name, one in side.suites.items()
    }
    return replace(side, suites=suites)
