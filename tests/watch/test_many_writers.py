"""Processes of many machines write to one PostgreSQL; it is restarted meanwhile, none is lost."""

from __future__ import annotations

import time

import pytest
from sqlalchemy import func, select

from benchmarks.speed.writers import Senders, counted
from guard.watch import schema
from guard.watch.store import Store
from tests.watch.conftest import Server

_RATE = 2_000  # events a second, so that no queue overflows while the server is away


@pytest.mark.slow("six processes write while PostgreSQL is stopped three times", limit_s=600)
def test_a_restart_loses_no_event_of_many_writers_and_doubles_none(server: Server) -> None:
    url = server.database()
    Store(url).prepare()
    senders = Senders(url, processes=6, responses=6_000, rate=_RATE)
    senders.begin()
    for _ in range(3):
        time.sleep(4)
        server.stop()
        time.sleep(0.5)
        server.start()
    assert senders.wait()[0] == 0
    responses = senders.responses
    assert counted(url) == {"events": 8 * responses, "responses": responses, "dropped": 0}
    judged = func.sum(schema.responses.c.judged)
    with Store(url).reading() as connection:
        assert connection.scalar(select(judged)) == 8 * responses
