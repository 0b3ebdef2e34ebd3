"""Connections for a request: what fails of the store is told apart from what was asked wrongly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from sqlalchemy import Connection

from guard.errors import UsageError
from guard.watch.store import Store


class StoreDown(Exception):
    """The store cannot be used now; the message says why, and how to mend it."""


def reading(store: Store) -> AbstractContextManager[Connection]:
    """Give a connection that reads; raises StoreDown where the store fails."""
    return _opened(store.reading())


def writing(store: Store) -> AbstractContextManager[Connection]:
    """Give a connection for one transaction, of this thread; raises StoreDown likewise."""
    own = Store(store.url.render_as_string(hide_password=False), "STORE")
    return _opened(own.writing())


@contextmanager
def _opened(of: AbstractContextManager[Connection]) -> Iterator[Connection]:
    asked_wrongly: UsageError | None = None
    try:
        with of as connection:
            try:
                yield connection
            except UsageError as error:
                asked_wrongly = error
                raise
    except UsageError as error:
        if error is asked_wrongly:
            raise
        raise StoreDown(str(error)) from None
