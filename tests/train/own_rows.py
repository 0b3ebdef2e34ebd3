"""The rows of the texts written for guard, read once a process: tests only look at them."""

from __future__ import annotations

from functools import cache

from guard.places import shipped
from guard.train import own
from guard.train.rows import TrainingRow

STATEMENTS = shipped("index") / "statements.jsonl"


@cache
def own_rows() -> list[TrainingRow]:
    return list(own.own_rows(STATEMENTS))
