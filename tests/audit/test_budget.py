"""``--max-calls`` and ``--max-cost``: never exceeded, and resumed without paying twice."""

from __future__ import annotations

import asyncio
import json
import math
import random
import re
from pathlib import Path
from typing import Any

import litellm
import pytest
from click.testing import CliRunner, Result

from guard import model_calls
from guard.audit.bounds import prompt_bytes
from guard.audit.budget import Budget
from guard.audit.calls import Piece, Reply, Slot, Usage
from guard.audit.runner import Settings
from guard.audit.sending import Sending
from guard.cli import main
from guard.errors import UsageError
from guard.model_calls import cost_of
from guard.suites import Chat, Request
from tests.audit.answering import Answering
from tests.audit.tiny_suite import Tiny, TinyOptions
from tests.in_process import InProcess

SUITE = ("--suite", "tests.audit.tiny_suite:Tiny", "--plain-only")
MODEL = "openai/gpt-4o-mini"
pytestmark = pytest.mark.usefixtures("elsewhere")


def run(*args: str, model: str = MODEL) -> Result:
    command = ["audit", "run", *SUITE, "--model", model, *args]
    return CliRunner().invoke(main, command, catch_exceptions=False)


def test_a_limit_of_calls_ends_the_audit_and_the_same_command_goes_on(provider: Answering) -> None:
    asked: list[int] = []
    codes: list[int] = []
    while not codes or codes[-1] == 4:
        result = run("--max-calls", "25", "--json")
        codes.append(result.exit_code)
        asked.append(len(provider.asked))
        if codes[-1] == 4:
            assert "Stopped at --max-calls 25: this command made 25 calls for $" in result.stderr
            assert "the same command goes on" in result.stderr
            assert not json.loads(result.stdout)["suites"][0]["complete"]
    assert codes == [4, 4, 0]
    assert asked == [25, 50, 60]  # 60 calls in all: none was asked twice
    assert json.loads(result.stdout)["suites"][0]["complete"]


def test_retries_count_as_calls(provider: Answering) -> None:
    provider.busy, provider.status, provider.retry_after = 4, 500, "0"
    result = run("--max-calls", "10", "--concurrency", "1")
    assert result.exit_code == 4
    assert len(provider.asked) + len(provider.refused_at) == 10


def test_a_limit_of_cost_is_never_exceeded_and_no_call_is_paid_twice(provider: Answering) -> None:
    limit = 1e-4
    first = run("--max-cost", f"{limit:f}", "--json")
    assert first.exit_code == 4
    assert "Stopped at --max-cost 0.0001: this command made" in first.stderr
    (suite,) = json.loads(first.stdout)["suites"]
    assert 0.5 * limit < suite["calls"]["cost_usd"] <= limit
    begun = len(provider.asked)
    assert run().exit_code == 0
    assert begun < len(provider.asked) == 60


def test_a_limit_that_suffices_changes_nothing(provider: Answering) -> None:
    assert run("--max-calls", "60", "--max-cost", "1").exit_code == 0


def test_the_call_that_asks_for_log_probabilities_counts(provider: Answering) -> None:
    form = ("--set", "tests.audit.tiny_suite:Tiny.form=logprobs")
    assert run(*form, "--max-calls", "1").exit_code == 4
    assert len(provider.asked) == 1  # the probe
    assert run(*form, "--max-calls", "5").exit_code == 4
    assert len(provider.asked) == 6


def test_an_unknown_price_is_refused_before_the_first_call(provider: Answering) -> None:
    result = run("--max-cost", "1", model="openai/unpriced")
    assert result.exit_code == 2
    assert "LiteLLM has no price for openai/unpriced, so --max-cost cannot be kept" in result.stderr
    assert not provider.asked


@pytest.mark.parametrize("wrong", ["0", "-1", "nan", "inf"])
def test_a_limit_is_an_amount(wrong: str, provider: Answering) -> None:
    assert run("--max-cost", wrong).exit_code == 2
    assert not provider.asked


def test_a_replay_has_no_budget(provider: Answering) -> None:
    assert run("--record", "cassette").exit_code == 0
    command = ["audit", "run", *SUITE, "--replay", "cassette", "--max-calls", "3"]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 2
    assert "A replay costs nothing" in result.stderr


def test_a_limited_run_is_not_compared_nor_judged(provider: Answering) -> None:
    result = run("--max-calls", "5", "--fail-on", "coverage", "--json")
    assert result.exit_code == 4
    assert "fail_on" not in json.loads(result.stdout)


@pytest.mark.parametrize(
    ("prompt", "completion"),
    [(10, -1_000_000), (-10, -5), (10, 0), (0, 0), (10**12, 5), (None, None)],
)
def test_absurd_counts_of_tokens_never_lower_what_was_spent(
    provider: Answering, prompt: int | None, completion: int | None
) -> None:
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": 1}
    choice = {"index": 0, "finish_reason": "stop"}
    body = {
        "id": "c", "object": "chat.completion", "created": 1, "model": "x",
        "choices": [choice | {"message": {"role": "assistant", "content": "first"}}],
        "usage": usage if prompt is not None else None,
    }  # fmt: skip
    provider.malformed = [json.dumps(body)] * 60
    limit = 1e-4
    result = run("--max-cost", f"{limit:f}", "--json")
    assert result.exit_code == 4, result.output
    spent = re.search(r"made (\d+) calls for \$([\d.]+), .* (\d+) answers came", result.stderr)
    assert spent is not None, result.stderr
    assert spent[1] == spent[3]
    assert 0 < int(spent[1]) < 60
    (suite,) = json.loads(result.stdout)["suites"]
    assert suite["calls"]["cost_usd"] == pytest.approx(float(spent[2]), abs=5e-5)
    assert 0.5 * limit < suite["calls"]["cost_usd"] <= limit
    assert suite["calls"]["prompt_tokens"] >= 0
    assert suite["calls"]["completion_tokens"] >= 0


@pytest.mark.parametrize(("number", "answers"), [(1, "1 answer"), (4, "4 answers")])
def test_answers_without_counts_are_told_where_no_limit_is_reached(
    provider: Answering, number: int, answers: str
) -> None:
    body = {
        "id": "c", "object": "chat.completion", "created": 1, "model": "x",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "first"}}],
        "usage": {"prompt_tokens": -3, "completion_tokens": 2, "total_tokens": -1},
    }  # fmt: skip
    provider.malformed = [json.dumps(body)] * number
    result = run()
    assert result.exit_code == 0, result.output
    assert f"{answers} came without usable numbers of tokens, and each is counted" in result.stderr


class Costing(InProcess):
    """A model whose calls cost up to what their limits allow; each takes another time."""

    name = MODEL

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.cost = 0.0
        self.calls = 0

    async def ask(self, request: Request, key: str, slot: Slot) -> Reply:
        assert isinstance(request, Chat)
        self.calls += 1
        share = self.random.choice([0.1, 0.5, 1.0])
        usage = Usage(9, 9, share * cost_of(MODEL, prompt_bytes(request), 8))
        self.cost += usage.cost
        await asyncio.sleep(self.random.choice([0.0, 0.001]))
        return Reply((Piece("first"),), usage=usage)


@pytest.mark.parametrize("seed", range(8))
def test_no_call_in_flight_exceeds_a_limit(seed: int, tmp_path: Path) -> None:
    from guard.audit.audit import Audit

    rng = random.Random(seed)
    calls = rng.choice([None, 7, 30])
    cost = rng.choice([2e-4, 7e-4]) if calls is None or rng.random() < 0.5 else None
    budget, model = Budget(calls, cost), Costing(seed)
    budget.set_payees(MODEL, Sending(), {})
    audit = Audit.of(Tiny(TinyOptions()))
    settings = Settings(rng.choice([1, 8, 32]), budget=budget)
    result = asyncio.run(audit.run(model, tmp_path / "run.db", None, settings))
    assert model.calls == budget.calls <= (calls or 60)
    assert model.cost == pytest.approx(budget.cost)
    assert model.cost <= (cost or 1.0)
    assert budget.exhausted != result.complete
    if budget.exhausted and cost is None:
        assert model.calls == calls


def test_an_uncounted_answer_costs_what_was_reserved() -> None:
    class Uncounted(Costing):
        async def ask(self, request: Request, key: str, slot: Slot) -> Reply:
            return Reply((Piece("first"),), usage=Usage(0, 0, 0.0))

    budget = Budget(max_cost=1.0)
    budget.set_payees(MODEL, Sending(), {})
    request: Any = Chat(({"role": "user", "content": "Who?"},), {"max_tokens": 8})
    asyncio.run(budget.ask(Uncounted(1), request, "", Slot("", 0, 0), lambda: False))
    assert budget.cost == pytest.approx(cost_of(MODEL, prompt_bytes(request), 8))
    assert budget.cost > 0


def test_the_analyst_needs_a_price_too() -> None:
    from guard.audit.sending import Other

    budget = Budget(max_cost=1.0)
    with pytest.raises(UsageError, match="no price for openai/unpriced"):
        budget.set_payees(MODEL, Sending(), {"analyst": Other.of("openai/unpriced", Sending())})


def test_a_router_does_not_make_a_model_without_a_price_free() -> None:
    name = "openai/without-a-price"
    deployment = {"model_name": "any", "litellm_params": {"model": name, "api_key": "k"}}
    for _ in range(2):  # the second one fills the entry with settings that are None
        litellm.Router([deployment])  # type: ignore[list-item]
        assert name in litellm.model_cost
        assert math.isnan(model_calls.price_of_tokens(name, 1, 1))
    assert model_calls.price_of_tokens("openai/gpt-4o-mini", 1000, 0) > 0
    assert model_calls.price_of_tokens("dashscope/qwen-flash", 1000, 0) > 0
