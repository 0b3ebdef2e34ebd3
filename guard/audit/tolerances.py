"""``audit.toml`` and ``--better``: tolerances, least coverages, and directions of axes.

Directions are for axes of other harnesses, whose logs may not say which way is better.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from guard.audit.harnesses import SUITES
from guard.audit.sides import Axis, Side
from guard.errors import ConfigError, UsageError
from guard.places import read_toml
from guard.results.paired import Aim
from guard.suites import registry

Better = str | float
"""``higher``, ``lower``, or the value of a fair model."""
FILE = Path("audit.toml")
DEFAULT_FRACTION = 0.05
"""The default tolerance, as a fraction of the distance from an axis' ideal to its worst value."""
DEFAULT_FLOOR = 0.8
"""The default least coverage of a suite."""
_MOST = 1e9
_TABLES = ("run", "tolerance", "floor", "better")


@dataclass(frozen=True, slots=True)
class Tolerances:
    """Tolerances and directions by pattern of axis names, least coverages by pattern of suites.

    Patterns are those of :mod:`fnmatch`; the last match decides. ``where`` is the file they are
    from, for messages.
    """

    axes: Mapping[str, float] = field(default_factory=dict)
    floors: Mapping[str, float] = field(default_factory=dict)
    better: Mapping[str, Better] = field(default_factory=dict)
    where: str = ""

    def of(self, name: str, aim: Aim) -> float:
        """Return by how much the axis ``name`` may get worse, in the measure's own unit.

        Raises ConfigError for an axis of another harness that has neither a tolerance nor a scale.
        """
        reach = max((abs(b - aim.ideal) for b in aim.bounds if math.isfinite(b)), default=1.0)
        matches = [(value, p) for p, value in self.axes.items() if fnmatchcase(name, p)]
        if matches:
            value, pattern = matches[-1]
            if value > reach and any(map(math.isfinite, aim.bounds)):
                raise ConfigError(
                    f"{self.where}: the tolerance {pattern!r} of {value:g} is more than {name} can "
                    f"change ({reach:g}); five points of a share are 0.05."
                )
            return value
        if ":" in name.partition("/")[0] and not any(map(math.isfinite, aim.bounds)):
            raise ConfigError(
                f"{name} has no known scale, so it needs a tolerance: add it to [tolerance] in "
                "audit.toml."
            )
        return DEFAULT_FRACTION * reach

    def floor(self, suite: str) -> float:
        """Return the least coverage at which a suite can pass."""
        matches = [value for pattern, value in self.floors.items() if fnmatchcase(suite, pattern)]
        return matches[-1] if matches else DEFAULT_FLOOR

    def check(self, axes: Sequence[str], suites: Sequence[str]) -> None:
        """Raise ConfigError where a pattern matches no axis of the suites that are compared.

        Patterns for other suites of guard's, and for logs of other harnesses, are ignored: one file
        serves several comparisons.
        """
        known = [*suites, *registry.names()]
        for pattern in self.floors:
            if "/" in pattern:
                raise ConfigError(
                    f"{self.where}: the floor {pattern!r} matches no suite; a floor is of a whole "
                    f"suite, such as {suites[0] if suites else 'mist'!r} or '*'."
                )
        places = [*self.axes, *self.better, *(f"{suite}/" for suite in self.floors)]
        for pattern in places:
            suite, slash, _ = pattern.partition("/")
            harness, colon, _ = suite.partition(":")
            elsewhere = (colon and any(fnmatchcase(name, f"{harness}:") for name in SUITES)) or (
                suite.startswith("*") and not slash
            )
            if not elsewhere and not any(fnmatchcase(name, suite) for name in known):
                raise ConfigError(
                    f"{self.where}: {pattern.removesuffix('/')!r} matches no suite; known are "
                    f"{', '.join(dict.fromkeys(known))}. Axes are named like "
                    f"{axes[0] if axes else 'suite/plain/coverage'}."
                )
        kinds = (*((p, "tolerance") for p in self.axes), *((p, "direction") for p in self.better))
        for pattern, kind in kinds:
            is_compared = any(fnmatchcase(suite, pattern.partition("/")[0]) for suite in suites)
            if is_compared and not any(fnmatchcase(name, pattern) for name in axes):
                raise ConfigError(
                    f"{self.where}: the {kind} {pattern!r} matches no axis; they are named like "
                    f"{axes[0] if axes else 'suite/plain/coverage'}."
                )


def load_tolerances(path: Path | None) -> Tolerances:
    """Return the settings in ``path``, by default those of an ``audit.toml`` here, if any.

    Raises ConfigError that names the file, the key and the values it takes.
    """
    place = path or FILE
    if path is None and not place.is_symlink() and not place.exists():
        return Tolerances()
    tables = tables_of(place)
    axes = _checked_numbers(place, "tolerance", tables.get("tolerance", {}), _MOST)
    floors = _checked_numbers(place, "floor", tables.get("floor", {}), 1.0)
    directions = _checked_table(place, "better", tables.get("better", {}))
    better = {
        name: _direction_of(value, f"{place}: better {name!r}")
        for name, value in directions.items()
    }
    return Tolerances(axes, floors, better, str(place))


def tables_of(place: Path) -> dict[str, Mapping[str, Any]]:
    """Return the tables of the audit.toml at ``place``, whose values are not checked.

    Raises ConfigError where it cannot be read, or has a table of another name.
    """
    tables = read_toml(place)
    for key in tables:
        if key not in _TABLES:
            close = get_close_matches(key, _TABLES, n=1)
            meant = f"; did you mean {close[0]}?" if close else "."
            raise ConfigError(
                f"{place}: unknown table {key!r}; known are run, tolerance, floor and better{meant}"
            )
    return {name: _checked_table(place, name, table) for name, table in tables.items()}


def _checked_table(place: Path, table: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{place}: {table} must be a table of patterns and values.")
    return value


def _checked_numbers(place: Path, table: str, table_value: Any, most: float) -> dict[str, float]:
    table_value = _checked_table(place, table, table_value)
    for name, value in table_value.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        # Integers in TOML may be too large for a float.
        if not number or not 0 <= value <= most:
            raise ConfigError(
                f"{place}: {table} {name!r} takes a number from 0 to {most:,.0f}, got {value!r}."
            )
    return {name: float(value) for name, value in table_value.items()}


def selected(name: str, patterns: Sequence[str]) -> bool:
    """Return whether any of ``patterns`` matches ``name``; without patterns every name is."""
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def matching(patterns: Iterable[str], names: Sequence[str]) -> list[str]:
    """Return the ``names`` that match any of ``patterns``; all names without a pattern.

    Raises ConfigError where a pattern matches nothing.
    """
    patterns = list(patterns)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            example = f", such as {names[0]}" if names else ""
            raise ConfigError(f"--axis {pattern!r} matches none of {len(names)} axes{example}.")
    return [name for name in names if selected(name, patterns)]


def _direction_of(text: str | float, where: str) -> Better:
    """Return the direction in ``text``; raises ConfigError that begins with ``where``."""
    if text in ("higher", "lower"):
        return text
    try:
        ideal = math.nan if isinstance(text, bool) else float(text)
    except (TypeError, ValueError, OverflowError):
        ideal = math.nan
    if not math.isfinite(ideal):
        raise ConfigError(f"{where} takes higher, lower or the ideal as a number, got {text!r}.")
    return ideal


def directions(texts: Sequence[str]) -> dict[str, Better]:
    """Return directions by pattern, each given as ``[PATTERN=]higher|lower|NUMBER``."""
    directions_by_pattern: dict[str, Better] = {}
    for text in texts:
        # From the right: a pattern may contain equals signs, a direction cannot.
        pattern, _, value = text.rpartition("=")
        directions_by_pattern[pattern or "*"] = _direction_of(value, "--better")
    return directions_by_pattern


def with_directions(
    base: Side,
    new: Side,
    file: Mapping[str, Better],
    options: Mapping[str, Better],
    axes: Sequence[str] = (),
) -> tuple[Side, Side]:
    """Return the sides with an ideal for each axis without one that matches one of ``axes``.

    ``file`` (of audit.toml) and ``options`` (of the command) map patterns to directions. The last
    match decides; options come after the file, and without a match the log's own direction is used.
    Raises UsageError where an axis has no direction, or an option matches no such axis.
    """
    aims: dict[str, Aim] = {}
    used: set[str] = set()
    better = [*file.items(), *options.items()]
    for name, (base_axis, new_axis) in _axes_without_ideal(base, new).items():
        if not selected(name, axes):
            continue
        matched = [
            (pattern, direction) for pattern, direction in better if fnmatchcase(name, pattern)
        ]
        used |= {pattern for pattern, _ in matched}
        direction = matched[-1][1] if matched else base_axis.better or new_axis.better
        if (
            not matched
            and base_axis.better
            and new_axis.better
            and base_axis.better != new_axis.better
        ):
            raise UsageError(
                f"{base.name} says that {base_axis.better} {name} is better, "
                f"{new.name} {new_axis.better}; give the direction by --better."
            )
        if direction == "":
            raise UsageError(
                f"The direction of {name} is unknown; give --better higher or --better lower, or "
                "add it to [better] in audit.toml."
            )
        aims[name] = _aim_of(name, direction, base_axis, new_axis)
    for pattern in options:
        if pattern not in used:
            raise UsageError(
                f"The direction {pattern!r} matches no axis; directions are for axes of other "
                "harnesses, with names like inspect:task/plain/scorer."
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


def _aim_of(name: str, direction: Better, base_axis: Axis, new_axis: Axis) -> Aim:
    # The wider scale of both sides.
    least, most = (
        f(base_axis.aim.bounds[at], new_axis.aim.bounds[at]) for at, f in enumerate((min, max))
    )
    if isinstance(direction, str):
        return Aim(most if direction == "higher" else least, (least, most))
    if not least <= direction <= most:
        raise UsageError(
            f"The ideal {direction:g} of {name} is outside its scale, {least:g} to {most:g}."
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
