"""``audit.toml``: by how much each axis may get worse, and how much of a suite must be readable.

For axes of other harnesses it says which way is better too.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from guard.audit.directions import Better, read
from guard.audit.paired import Aim
from guard.errors import ConfigError
from guard.suites import registry

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = Path("audit.toml")
PART = 0.05
"""The tolerance of an axis that none names: so much of the way from its ideal to the worst."""
_MOST = 1e9
FLOOR = 0.8
"""The least coverage of a suite that none names."""


@dataclass(frozen=True, slots=True)
class Tolerances:
    """Tolerances and directions by pattern of an axis' name, floors of coverage by that of a suite.

    Patterns are those of :mod:`fnmatch`; of several that match the last decides.
    """

    axes: Mapping[str, float] = field(default_factory=dict)
    floors: Mapping[str, float] = field(default_factory=dict)
    better: Mapping[str, Better] = field(default_factory=dict)
    where: str = ""

    def of(self, name: str, aim: Aim) -> float:
        """Return by how much the axis ``name`` may get worse, in the measure's own unit.

        Raises ConfigError where none is given of another harness' axis without a known scale.
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
        return PART * reach

    def floor(self, suite: str) -> float:
        """Return the least coverage with which a suite says anything."""
        found = [value for pattern, value in self.floors.items() if fnmatchcase(suite, pattern)]
        return found[-1] if found else FLOOR

    def check(self, axes: Sequence[str], suites: Sequence[str]) -> None:
        """Raise ConfigError where a pattern matches no axis of the suites that are compared.

        What is about other suites of guard's, or logs of other harnesses, is for other comparisons.
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
            of_here = any(fnmatchcase(suite, pattern.partition("/")[0]) for suite in suites)
            if of_here and not any(fnmatchcase(name, pattern) for name in axes):
                raise ConfigError(
                    f"{self.where}: the {kind} {pattern!r} matches no axis; they are named like "
                    f"{axes[0] if axes else 'suite/plain/coverage'}."
                )


def load(path: Path | None) -> Tolerances:
    """Return what the file at ``path`` says, or ``audit.toml`` here if there is one.

    Raises ConfigError that names the file, the key and what it takes.
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
    told = _table(place, "better", given.get("better", {}))
    better = {name: read(value, f"{place}: better {name!r}") for name, value in told.items()}
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


def matching(patterns: Iterable[str], names: Sequence[str]) -> list[str]:
    """Return the ``names`` that any of ``patterns`` matches, all where there is none.

    Raises ConfigError that names a pattern which matches nothing.
    """
    patterns = list(patterns)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            example = f", such as {names[0]}" if names else ""
            raise ConfigError(f"--axis {pattern!r} matches none of {len(names)} axes{example}.")
    if not patterns:
        return list(names)
    return [name for name in names if any(fnmatchcase(name, p) for p in patterns)]
