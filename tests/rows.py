"""Rows of a table as one test, and how many examples a property test draws."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import settings

SLOW = "slow"
"""The profile that draws every example; the default run draws a quarter of them."""


def examples(count: int) -> settings:
    """Return settings that draw ``count`` examples in the slow lane, by default a quarter of them.

    By default at least four are drawn.
    """
    slow = settings.get_current_profile_name() == SLOW
    return settings(max_examples=count if slow else max(4, count // 4))


def rows(names: str, table: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test once a row as ``pytest.mark.parametrize`` does, but as one test with subtests.

    Every failing row is reported. If rows were skipped and none failed, the test is skipped. It is
    for rows that start no process: they share the test's fixtures. Raises TypeError where a test or
    a table cannot be run so.
    """
    keys = [name.strip() for name in names.split(",")]
    drawn = [dict(zip(keys, row if len(keys) > 1 else (row,), strict=True)) for row in table]
    if not drawn:
        raise TypeError("a test without rows passes whatever the code does")

    def wrap(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)
        if not set(keys) <= signature.parameters.keys() or "subtests" in signature.parameters:
            raise TypeError(f"{test.__name__} must take {names}, and no subtests of its own")

        @functools.wraps(test)
        def run(*owner: Any, subtests: Any, **fixtures: Any) -> None:
            skipped: list[str] = []
            for row in drawn:
                with subtests.test(**row):
                    try:
                        returned = test(*owner, **row, **fixtures)
                    except pytest.skip.Exception as reason:
                        skipped.append(str(reason))
                        continue
                    # A generator or a coroutine would not have run.
                    assert returned is None, f"{test.__name__} returned {type(returned).__name__}"
            if skipped:
                pytest.skip(f"{len(skipped)} of {len(drawn)} rows: {skipped[0]}")

        # pytest reads here which fixtures a test takes: the row's names are none.
        kept = [p for p in signature.parameters.values() if p.name not in keys]
        subtests = inspect.Parameter("subtests", inspect.Parameter.KEYWORD_ONLY)
        run.__signature__ = signature.replace(parameters=[*kept, subtests])  # type: ignore[attr-defined]
        return run

    return wrap
