"""Which direction is better on an axis of another harness: from the user, else from the log."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from guard.audit.paired import Aim
from guard.audit.sides import Axis, Side
from guard.errors import ConfigError, UsageError

UNKNOWN = math.nan
"""The ideal of an axis before its direction is known."""
WORDS = ("higher", "lower")
Better = str | float
"""``higher``, ``lower``, or the value of a fair model."""


def parse(text: str | float, where: str) -> Better:
    """Return the direction in ``text``; raises ConfigError that begins with ``where``."""
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
        # From the right: a pattern may contain equals signs, a direction cannot.
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
    """Return the sides with an ideal for each axis that lacks one and matches one of ``axes``.

    ``file`` (of audit.toml) and ``options`` (of the command) map patterns to directions. The last
    match decides; options come after the file, and the log's own direction is used where nothing
    matches. Raises UsageError where an axis has no direction, or an option matches no such axis.
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
        if not matched and one.better and other.better and one.better != other.better:
            raise UsageError(
                f"{base.name} says that {one.better} {name} is better, {new.name} {other.better}; "
                "say by --better which is true."
            )
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
    """Return the axes of both sides whose ideal is unknown."""
    return {
        name: (axis, new.suites[suite].axes[name])
        for suite, one in base.suites.items()
        if suite in new.suites
        for name, axis in one.axes.items()
        if name in new.suites[suite].axes and math.isnan(axis.aim.ideal)
    }


def _aim(name: str, direction: Better, one: Axis, other: Axis) -> Aim:
    # The wider scale of both: a value outside 0 to 1 on either side leaves it unbounded.
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
