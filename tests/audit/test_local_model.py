from __future__ import annotations

import asyncio
import math
import time
from pathlib import Path

import pytest

from guard.audit.audit import Audit
from guard.audit.calls import Reply, Slot
from guard.audit.local_model import LocalModel
from guard.audit.models import CallError, CombinedModel
from guard.audit.others import open_model
from guard.audit.runner import Settings, Stop
from guard.audit.score import SuiteResult
from guard.core import Guard
from guard.errors import UsageError, WeightsError
from guard.local import scoring
from guard.local.model import load_model
from guard.suites import Capability, Chat, LogLikelihood, Request
from tests.audit.test_runner import Saying
from tests.audit.tiny_suite import Tiny, TinyOptions
from tests.local.conftest import folder as folder
from tests.scripted import Scripted

ALL: frozenset[Capability] = frozenset({"chat", "logprobs", "given_logprobs"})
ASKED = ({"role": "user", "content": "Who?"},)


def ask(folder: Path, *requests: Chat | LogLikelihood, timeout_s: float = 60) -> list[Reply]:
    async def main() -> list[Reply]:
        model = open_model(f"local:{folder}", timeout_s=timeout_s)
        try:
            return [await model.ask(r, "0123456789ab", Slot("", 0, 0)) for r in requests]
        finally:
            await model.aclose()

    return asyncio.run(main())


def audited(folder: Path, out: Path, **options: object) -> SuiteResult:
    audit = Audit.of(Tiny(TinyOptions(count=4, **options)))

    async def main() -> SuiteResult:
        model = open_model(f"local:{folder}", timeout_s=60)
        try:
            assert audit.suite.needs <= await model.capabilities(ALL)
            path = out / "run.db"
            return await audit.run(model, path, Guard(detector=Scripted()), Settings())
        finally:
            await model.aclose()

    return asyncio.run(main())


def test_an_interrupt_leaves_out_what_the_model_has_not_begun(folder: Path, tmp_path: Path) -> None:
    """With a scorer, whose calls have no limit of their own, eight would wait for the model."""
    audit, stop = Audit.of(Tiny(TinyOptions(count=20))), Stop()

    class Stopping(LocalModel):
        def _answer(self, request: Request, key: str) -> Reply:
            time.sleep(0.5)  # for the others to wait
            stop.requested = True
            return super()._answer(request, key)

    async def main() -> SuiteResult:
        local = Stopping(f"local:{folder}", timeout_s=60)
        model = CombinedModel(local, {"scorer": Saying()})
        try:
            path = tmp_path / "run.db"
            return await audit.run(model, path, None, Settings(concurrency=8), None, stop)
        finally:
            await model.aclose()

    assert asyncio.run(main()).about["calls"]["answered"] == 1


def test_a_chat_is_answered_in_the_chunks_it_was_said_in(folder: Path) -> None:
    (reply,) = ask(folder, Chat(ASKED, {"temperature": 0, "max_tokens": 12}))
    assert len(reply.pieces) > 1
    assert reply.usage.completion_tokens == 12
    assert reply.finish_reason == "length"
    assert math.isnan(reply.usage.cost)


def test_a_request_is_its_own_seed(folder: Path) -> None:
    warm = Chat(ASKED, {"temperature": 1.5, "max_tokens": 12})
    seeded = Chat(ASKED, {"temperature": 1.5, "max_tokens": 12, "seed": 5})
    a, b, c = (reply.answer.text for reply in ask(folder, warm, warm, seeded))
    assert a == b != c


def test_given_texts_are_scored(folder: Path) -> None:
    (reply,) = ask(folder, LogLikelihood("He said", (" yes.", " no.")))
    model = load_model(str(folder))
    assert [tuple(s.__getattribute__(n) for n in ("logprob", "tokens")) for s in reply.scores] == [
        tuple(found) for found in scoring.score_continuations(model, "He said", (" yes.", " no."))
    ]
    assert reply.scores[0].tokens == 5


def test_first_tokens_come_with_a_chat(folder: Path) -> None:
    (reply,) = ask(folder, Chat(ASKED, {"temperature": 0, "max_tokens": 2}, logprobs=3))
    assert 1 <= len(reply.first_tokens) <= 3
    assert all(value <= 0 for value in reply.first_tokens.values())


@pytest.mark.parametrize("form", ["chat", "given", "logprobs"])
def test_a_suite_runs_on_a_local_model(folder: Path, tmp_path: Path, form: str) -> None:
    result = audited(folder, tmp_path, form=form)
    assert result.complete
    arms = ["plain"] if form == "given" else ["plain", "guarded"]
    assert list(result.arms) == arms
    again = audited(folder, tmp_path / "again", form=form)
    assert again.as_json()["scores"] == result.as_json()["scores"]
    assert again.as_json()["outcomes"] == result.as_json()["outcomes"]


def test_what_it_cannot_do_ends_the_audit_and_what_is_too_long_fails_alone(folder: Path) -> None:
    with pytest.raises(UsageError, match="cannot be asked: Local models do not offer logit_bias"):
        ask(folder, Chat(ASKED, {"logit_bias": {"5": 1}}))
    long = ({"role": "user", "content": "x" * 2000},)
    with pytest.raises(CallError, match="the prompt has"):
        ask(folder, Chat(long, {}))
    with pytest.raises(CallError, match="no complete answer within"):
        ask(folder, Chat(ASKED, {"max_tokens": 500}), timeout_s=0.001)


def test_a_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="neither a model to fetch"):
        open_model(f"local:{tmp_path}", timeout_s=1)
