"""``audit.toml``: tolerances of axes, least coverages of suites, and directions.

Directions are for axes of other harnesses, which do not all say what is better.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from guard.audit.directions import Better, parse
from guard.audit.paired import Aim
from guard.errors import ConfigError
from guard.suites import registry

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = Path("audit.toml")
DEFAULT_FRACTION = 0.05
"""Default tolerance, as a fraction of the way from an axis' ideal to its worst value."""
DEFAULT_FLOOR = 0.8
"""Default least coverage of a suite."""
_MOST = 1e9


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
        found = [(value, p) for p, value in self.axes.items() if fnmatchcase(name, p)]
        if found:
            value, pattern = found[-1]
            if value > reach and any(map(math.isfinite, aim.bounds)):
                raise ConfigError(
                    f"{self.where}: the tolerance {pattern!r} of {value:g} is more than {name} can "
                    f"change ({reach:g}); five points of a share are 0.05."
                )
            return value
        if ":" in name.partition("/")[0] and not any(map(math.isfinite, aim.bounds)):
            raise ConfigError(
                f"{name} has no known scale, so its tolerance has to be given: name it under "
                "[tolerance] in audit.toml."
            )
        return DEFAULT_FRACTION * reach

    def floor(self, suite: str) -> float:
        """Return the least coverage at which a suite can pass."""
        found = [value for pattern, value in self.floors.items() if fnmatchcase(suite, pattern)]
        return found[-1] if found else DEFAULT_FLOOR

    def check(self, axes: Sequence[str], suites: Sequence[str]) -> None:
        """Raise ConfigError where a pattern matches no axis of the suites that are compared.

        Patterns for other suites of guard's, and for logs of other harnesses, are ignored: one file
        serves several comparisons.
        """
        known = [*suites, *registry.names()]
        places = [*self.axes, *self.better, *(f"{suite}/" for suite in self.floors)]
        for pattern in places:
            suite, slash, _ = pattern.partition("/")
            elsewhere = ":" in suite or (suite.startswith("*") and not slash)
            if not elsewhere and not any(fnmatchcase(name, suite) for name in known):
                raise ConfigError(
                    f"{self.where}: {pattern.removesuffix('/')!r} is about no suite; known are "
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


def load(path: Path | None) -> Tolerances:
    """Return the settings in ``path``, by default those of an ``audit.toml`` here, if any.

    Raises ConfigError that names the file, the key and the values it takes.
    """
    place = path or FILE
    if path is None and not place.is_symlink() and not place.exists():
        return Tolerances()
    try:
        given = tomllib.loads(place.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{place}: not readable as TOML ({error}); mend or remove it.") from None
    for key in given:
        if key not in ("tolerance", "floor", "better"):
            raise ConfigError(
                f"{place}: unknown table {key!r}; known are tolerance, floor and better."
            )
    axes = _numbers(place, "tolerance", given.get("tolerance", {}), math.inf)
    floors = _numbers(place, "floor", given.get("floor", {}), 1.0)
    directions = _table(place, "better", given.get("better", {}))
    better = {name: parse(value, f"{place}: better {name!r}") for name, value in directions.items()}
    return Tolerances(axes, floors, better, str(place))


def _table(place: Path, table: str, given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise ConfigError(f"{place}: {table} must be a table of patterns and values.")
    return given


def _numbers(place: Path, table: str, given: Any, most: float) -> dict[str, float]:
    given = _table(place, table, given)
    for name, value in given.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        # Beyond any axis, and beyond what a float holds.
        if not number or not 0 <= value <= min(most, _MOST):
            upto = "" if math.isinf(most) else f" to {most:g}"
            raise ConfigError(
                f"{place}: {table} {name!r} takes a number from 0{upto}, got {value!r}."
            )
    return {name: float(value) for name, value in given.items()}


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
