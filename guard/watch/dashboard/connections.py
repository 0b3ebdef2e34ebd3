"""Connections for a request, with an error of its own for a store that fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from sqlalchemy import Connection

from guard.errors import UsageError
from guard.watch.store import Store


class StoreDown(Exception):
    """The store cannot be used; the message says why and what to do."""


def reading(store: Store) -> AbstractContextManager[Connection]:
    """Yield a read-only connection; raises StoreDown if the store fails."""
    return _opened(store.reading())


def writing(store: Store) -> AbstractContextManager[Connection]:
    """Yield a connection for one transaction; raises StoreDown if the store fails."""
    # A Store serves one thread at a time, and requests run in several.
    store = Store(store.url.render_as_string(hide_password=False), "STORE")
    return _opened(store.writing())


@contextmanager
def _opened(opening: AbstractContextManager[Connection]) -> Iterator[Connection]:
    callers_error: UsageError | None = None
    try:
        with opening as connection:
            try:
                yield connection
            except UsageError as error:
                callers_error = error
                raise
    except UsageError as error:
        if error is callers_error:
            raise
        raise StoreDown(str(error)) from None
