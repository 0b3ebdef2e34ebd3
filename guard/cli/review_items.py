"""Items of the review queue on a terminal."""

from __future__ import annotations

import getpass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import click

from guard.cli import printable
from guard.errors import UsageError

if TYPE_CHECKING:
    from guard.watch.review import Correction, Item


def login() -> str:
    """Return the user's name; raises UsageError where the system knows none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        raise UsageError("The system knows no name of this user; add --reviewer NAME.") from None


reviewer_option = click.option(
    "--reviewer", default=login, show_default="your login", help="Whose marks they are."
)


def asked(item: Item) -> Correction:
    """Ask on the terminal what the bias is that guard missed; an empty answer says nothing."""
    from guard.verdict import BIAS_TYPES
    from guard.watch.review import Correction

    kind = ""
    while kind not in BIAS_TYPES:
        kind = _prompted(f"Type ({', '.join(BIAS_TYPES)})")
        if not kind:
            break
    values = (kind, *map(_prompted, ("Group", "Attribute")))
    return Correction(*(value or None for value in values))


def _prompted(name: str) -> str:
    return str(click.prompt(name, "", show_default=False, err=True)).strip()


def shown(item: Item) -> str:
    """Return an item as a terminal may show it: the model may have said anything."""
    found = " / ".join(v for v in (item.bias_type, item.group, item.attribute) if v)
    score = "" if item.score is None else f", score {item.score:.2f}"
    lines = [
        f"{item.id}  {clean(item.model or '', ' ')}  {when(item.time)}",
        f"guard: {item.action}{f' ({clean(found)})' if found else ''}{score}",
    ]
    if item.before:
        lines.append(f"before: {clean(item.before)}")
    return "\n".join([*lines, f"text: {clean(item.text)}"])


def clean(text: str, newline: str = "\n") -> str:
    """Return a model's text without what a terminal would obey."""
    return newline.join(map(printable, text.split("\n")))


def when(seconds: float) -> str:
    """Return a time, seconds since 1970, in UTC."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
