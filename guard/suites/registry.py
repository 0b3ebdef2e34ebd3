"""The suites by name; each is imported when it is first used."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from guard.errors import UsageError
from guard.suites.contract import Options, Suite

# Name -> module:Class.
SUITES: dict[str, str] = {
    "hbb": "guard.suites.hbb.suite:Hbb",
    "hbb_sg": "guard.suites.hbb.suite:HbbSg",
    "mist": "guard.suites.mist:Mist",
    "open_text": "guard.suites.open_text:OpenText",
    "sai_asa": "guard.suites.sai_asa:SaiAsa",
    "badf": "guard.suites.badf:Badf",
}


def names() -> list[str]:
    """Return the names that :func:`find` knows."""
    return list(SUITES)


def find(name: str) -> type[Suite]:
    """Return the class of the suite ``name``, which may be ``module:Class`` of your own.

    Raises UsageError if there is none.
    """
    place = SUITES.get(name, name)
    module, colon, attribute = place.partition(":")
    if not colon:
        close = get_close_matches(name.replace("-", "_").casefold(), SUITES, n=1)
        if close:
            raise UsageError(f"There is no suite {name!r}; did you mean {close[0]}?")
        known = ", ".join(SUITES) or "none"
        raise UsageError(
            f"There is no suite {name!r}; known are {known}; module:Class names your own."
        )
    try:
        named = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"The suite {place} cannot be loaded: {error}.") from None
    if not (isinstance(named, type) and issubclass(named, Suite)):
        raise UsageError(f"{place} is not a suite; give a subclass of guard.suites.Suite.")
    return named


def make(name: str, options: Mapping[str, Any]) -> Suite:
    """Return the suite ``name`` with these ``options``.

    Raises UsageError for an option that is unknown or out of range, data that cannot be read, and
    data of an own suite whose hash is the same without it.
    """
    suite_class = find(name)
    known = suite_class.options_type.model_fields
    for key in options:
        if key not in known:
            raise UsageError(f"{name} has no option {key!r}; it has {', '.join(known)}.")
    try:
        checked = suite_class.options_type.model_validate(dict(options))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"{name}: {key}: {first['msg']}, got {first['input']!r}.") from None
    if name in SUITES:
        return suite_class(checked)
    if checked.data is None:
        return _with_sound_items(suite_class(checked), name)
    if not checked.data.exists():
        raise UsageError(f"{name}: there is no file or folder {checked.data} to take data from.")
    suite = suite_class(checked)
    if suite.data_hash == _data_hash(suite_class, checked):
        raise UsageError(
            f"The data of {name} is the same with and without {checked.data}; leave it out."
        )
    return _with_sound_items(suite, name)


def _with_sound_items(suite: Suite, name: str) -> Suite:
    """Return an own suite; raises UsageError unless it has items, with ids of their own."""
    ids: set[str] = set()
    for item in suite.items():
        if not item.id.isprintable() or not item.id or item.id in ids:
            raise UsageError(
                f"{name}: items have printable ids of their own, but one has {item.id!r}; "
                "guard.testing.check_suite checks a suite."
            )
        ids.add(item.id)
    if not ids:
        raise UsageError(f"{name} has no items to ask; guard.testing.check_suite checks a suite.")
    return suite


def _data_hash(suite_class: type[Suite], options: Options) -> str | None:
    """Return the hash of the data that a suite has by itself; None where it needs some."""
    try:
        return suite_class(options.model_copy(update={"data": None})).data_hash
    except Exception:  # a suite of the user's
        return None
