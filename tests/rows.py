"""Rows of a table as one test, and how many examples a property test draws."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

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

    Every failing row is reported. For rows that start no process: they share the test's fixtures.
    """
    keys = [name.strip() for name in names.split(",")]
    drawn = [dict(zip(keys, row if len(keys) > 1 else (row,), strict=True)) for row in table]
    assert drawn, "a test without rows passes whatever the code does"

    def wrap(test: Callable[..., None]) -> Callable[..., None]:
        assert not inspect.iscoroutinefunction(test), "rows() would not await it"

        @functools.wraps(test)
        def run(*owner: Any, subtests: Any, **fixtures: Any) -> None:
            for row in drawn:
                with subtests.test(**row):
                    test(*owner, **row, **fixtures)

        # pytest reads here which fixtures a test takes: the row's names are none.
        signature = inspect.signature(test)
        kept = [p for p in signature.parameters.values() if p.name not in keys]
        subtests = inspect.Parameter("subtests", inspect.Parameter.KEYWORD_ONLY)
        run.__signature__ = signature.replace(parameters=[*kept, subtests])  # type: ignore[attr-defined]
        return run

    return wrap
