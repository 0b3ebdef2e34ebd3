"""A decision knows its call: model, time, LiteLLM's id, and the labels that the caller gave."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import litellm
import pytest

from guard.policy import Policy
from tests.doors.log import Log
from tests.doors.table import TABLE, Row, World, guard_of
from tests.rows import rows
from tests.scripted import Scripted

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")

CHUNKS = [7], 0


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_a_decision_knows_its_call(world: World, log: Log, row: Row) -> None:
    heard: list[Any] = []
    guard = guard_of(Policy(labels={"release": "7"}), Scripted(), [heard.append])
    row.play(world, [[("content", 0, "All is well. And so it goes on.")]], CHUNKS)
    before = datetime.now(timezone.utc)
    for outcome in row.ways(world, guard):
        assert outcome.error is None
        decisions = list(outcome.trail)
        assert decisions
        for decision in decisions:
            assert decision.model == row.call(world)["model"]
            assert decision.labels == {"release": "7"}
            assert decision.time is not None
            assert before <= decision.time <= datetime.now(timezone.utc)
        (request_id,) = {decision.request_id for decision in decisions}
        assert request_id is not None
    assert len({decision.request_id for decision in heard}) == 4
    # An older LiteLLM does not tell it.
    told = {logged.get("litellm_call_id") for _, logged, _ in log.settle() if logged} - {None}
    assert told <= {decision.request_id for decision in heard}


@rows("row", TABLE[:2])
def test_the_callers_own_id_and_labels_are_the_calls(world: World, row: Row) -> None:
    row.play(world, [[("content", 0, "All is well.")]], CHUNKS)
    guard = guard_of(Policy(labels={"release": "7"}), Scripted())
    call = getattr(guard, row.door.function)
    stream = call(
        **row.call(world), stream=True, guard={"labels": {"tenant": "a"}}, litellm_call_id="mine"
    )
    (decision,) = row.drained(stream).trail
    assert decision.request_id == "mine"
    assert decision.labels == {"release": "7", "tenant": "a"}


def test_text_at_rest_was_asked_of_no_model() -> None:
    (decision,) = guard_of(Policy(), Scripted()).trail("All is well.")
    assert (decision.model, decision.request_id) == (None, None)
    assert decision.time is not None


def test_a_decision_of_a_router_names_the_model_group(world: World) -> None:
    row = TABLE[1]
    row.play(world, [[("content", 0, "All is well.")]], CHUNKS)
    params = {k: v for k, v in row.call(world).items() if k in ("model", "api_base", "api_key")}
    router = litellm.Router(
        model_list=[{"model_name": params["model"], "litellm_params": params}], num_retries=0
    )
    try:
        answer = (
            guard_of(Policy(), Scripted())
            .wrap(router)
            .text_completion(model=params["model"], prompt="Hi")
        )
    finally:
        router.discard()
    (decision,) = answer.guard
    assert decision.model == params["model"]
    assert decision.request_id
