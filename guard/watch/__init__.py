"""Watches what guards do over time: events, their store, rates and alerts.

:func:`recorder` is what a :class:`guard.Guard` has its decisions kept by; :mod:`guard.watch.rates`
and :mod:`guard.watch.alerts` read the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from guard.errors import ConfigError

if TYPE_CHECKING:
    from guard.watch.events import Events, KeepText

__all__ = ["recorder"]


def recorder(
    url: str,
    keep_text: str = "never",
    keep_days: int | None = None,
    review_share: float = 0.0,
) -> Events:
    """Return what keeps events in the store at ``url``; guards with one store share its writer.

    Raises ConfigError where the store cannot be opened, SQLAlchemy is not installed, or
    ``review_share`` is to keep text that ``keep_text`` forbids.
    """
    if review_share and keep_text in ("never", "hash"):
        raise ConfigError(
            f"events: review_share keeps texts for people to read, and keep_text = '{keep_text}' "
            "forbids it; set keep_text = 'redacted', or leave review_share out."
        )
    try:
        import sqlalchemy  # noqa: F401
    except ImportError:
        from guard.installed import install_command

        raise ConfigError(
            f"events: a store needs SQLAlchemy; run: {install_command('watch')}"
        ) from None
    from guard.watch.events import Events
    from guard.watch.writer import writer_of

    return Events(writer_of(url, keep_days), cast("KeepText", keep_text), review_share)
