"""``--max-cost`` and ``--max-calls``: an audit that ends before it costs more, and can be resumed.

A call is counted, and the most that it may cost reserved, before it is sent: the limits hold with
any number of calls at once. Prices are LiteLLM's, the bounds those of the plan. Only where neither
the request nor LiteLLM's map limits an answer is its length assumed, as the plan does; such answers
may exceed the limit, by what those in flight cost beyond the assumption. A failed call counts as a
call without a cost.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from guard.allowance import Allowance
from guard.audit.bounds import answer_limit, assumed_answer, longest_answer, prompt_bytes
from guard.audit.calls import Reply, Slot
from guard.audit.models import LOCAL, CallError, Model
from guard.audit.sending import PATTERNS, Other, Sending
from guard.errors import UsageError
from guard.suites import Chat, LogLikelihood, Request, Role

_PROBE_TOKENS = 64  # counted for a probe


class OverBudget(Exception):
    """The next call may exceed a limit, so it was not sent."""


class _Payee(NamedTuple):
    """A model whose calls count, and how requests are sent to it."""

    name: str
    sending: Sending


class Budget(Allowance):
    """The calls of one command and their price in US dollars; without limits it only counts."""

    def __init__(self, max_calls: int | None = None, max_cost: float | None = None) -> None:
        super().__init__(max_calls, max_cost)
        self._payees: Mapping[Role, _Payee] = {}
        self._settled = asyncio.Event()
        self._cost_of_next = 0.0  # what the call that was not sent may cost
        self.uncounted = 0
        """Answers without usable numbers of tokens, which cost the most that they may."""
        self.exhausted = False

    @property
    def has_limit(self) -> bool:
        """Whether there is a limit."""
        return self.max_calls is not None or self.max_cost is not None

    def set_payees(self, model: str, sending: Sending, others: Mapping[Role, Other]) -> None:
        """Count the calls to ``model`` and to the analyst of ``others`` from here on.

        Detectors and embedders in this process cost nothing. Raises UsageError where a limit of
        cost cannot be kept because LiteLLM has no price for one of them.
        """
        payees: dict[Role, _Payee] = {"model": _Payee(model, sending)}
        analyst = others.get("analyst")
        if analyst is not None and analyst.name != PATTERNS:
            payees["analyst"] = _Payee(analyst.name, analyst.sending)
        self._payees = payees
        if self.max_cost is None:
            return
        for payee in payees.values():
            if math.isnan(_price_of_call(payee.name, 1, 1)):
                raise UsageError(
                    f"LiteLLM has no price for {payee.name}, so --max-cost cannot be kept; no call "
                    "was made. Use --max-calls, or register its price with LiteLLM."
                )

    async def ask(
        self, model: Model, request: Request, key: str, slot: Slot, ending: Callable[[], bool]
    ) -> Reply:
        """Return the reply of ``model``; raises OverBudget in place of exceeding a limit."""
        payee = self._payees.get(request.by)
        if payee is None:
            return await model.ask(request, key, slot)
        assert isinstance(request, Chat | LogLikelihood)
        most = self._most_of_call(payee, request)
        await self._reserve_call(most, ending)
        spent = 0.0
        try:
            reply = await model.ask(request, key, slot)
            if (
                not _has_counted_tokens(reply)
                and (bound := self._greatest_cost(payee, request)) > 0
            ):
                # A provider that counts no tokens does not thereby cost nothing.
                self.uncounted += 1
                reply = replace(reply, usage=replace(reply.usage, cost=bound))
            spent = reply.usage.cost
        except CallError:
            raise
        except BaseException:  # it may have been paid for
            spent = most
            raise
        finally:
            self.settle(most, spent)
            self._settled.set()
        return reply

    def count_probe(self) -> None:
        """Count a call that finds out what the model can do; raises OverBudget."""
        most = 0.0
        if self.max_cost is not None:
            most = _price_of_call(self._payees["model"].name, _PROBE_TOKENS, 1)
        if not self.fits(most):
            self._stop_here(most)
        self.calls += 1
        self.cost += most

    async def _reserve_call(self, most: float, ending: Callable[[], bool]) -> None:
        while self.exhausted or not self.fits(most):
            calls_left = self.max_calls is None or self.calls < self.max_calls
            # What the calls in flight do not cost is free again once they are answered.
            if self.exhausted or not self.in_flight or not calls_left:
                self._stop_here(most)
            self._settled.clear()
            await self._settled.wait()
            if ending():
                raise OverBudget
        self.reserve(most)

    def _stop_here(self, most: float) -> None:
        self._cost_of_next = self._cost_of_next if self.exhausted else most
        self.exhausted = True
        self._settled.set()
        raise OverBudget

    def _most_of_call(self, payee: _Payee, request: Chat | LogLikelihood) -> float:
        """Return what a call reserves: the most that it may cost; 0 without a limit of cost."""
        return 0.0 if self.max_cost is None else self._greatest_cost(payee, request)

    def _greatest_cost(self, payee: _Payee, request: Chat | LogLikelihood) -> float:
        """Return the greatest cost of a call in USD: each byte of its prompt may be a token."""
        if payee.name.startswith(LOCAL):
            return 0.0
        answer = answer_limit(request)
        if math.isnan(answer):
            answer = longest_answer(payee.name)
        if math.isnan(answer):
            answer = assumed_answer(payee.name, payee.sending.given)
        system = len(payee.sending.system.encode())
        return _price_of_call(payee.name, prompt_bytes(request) + system, answer)

    def uncounted_text(self) -> str:
        """Return how many answers are counted at their bound, without a full stop; "" if none."""
        if not self.uncounted:
            return ""
        answers = "1 answer" if self.uncounted == 1 else f"{self.uncounted:,} answers"
        return (
            f"{answers} came without usable numbers of tokens, and each is counted with the most "
            "that it may cost"
        )

    def stop_sentence(self) -> str:
        """Return what was spent, and how the audit goes on."""
        spent = f"this command made {self.calls:,} calls for ${self.cost:.4f}"
        if self.max_calls is not None and self.calls >= self.max_calls:
            limit = f"--max-calls {self.max_calls}"
        else:
            limit = f"--max-cost {self.max_cost:g}"
            spent += f", and the next may cost up to ${self._cost_of_next:.4f}"
        if uncounted := self.uncounted_text():
            spent += f". {uncounted}"
        return (
            f"Stopped at {limit}: {spent}. All answers are recorded; the same command goes on from "
            "there, with the same limit again."
        )


def _has_counted_tokens(reply: Reply) -> bool:
    """Return whether the provider counted the tokens of a reply, and LiteLLM has their price."""
    usage = reply.usage
    written = usage.completion_tokens > 0 or not any(piece.text for piece in reply.pieces)
    return usage.prompt_tokens > 0 and written and 0 <= usage.cost < math.inf


def _price_of_call(model: str, prompt_tokens: float, answer_tokens: float) -> float:
    if model.startswith(LOCAL):
        return 0.0
    from guard.model_calls import cost_of

    return cost_of(model, prompt_tokens, answer_tokens)
