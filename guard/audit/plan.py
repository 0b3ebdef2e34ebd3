"""What an audit would ask, take, cost and be able to tell, before anything is spent."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import litellm
from rich.console import Console
from rich.table import Table

from guard.audit.audit import Audit
from guard.audit.outcomes import Asked, planned, samples
from guard.audit.remote_model import price
from guard.audit.score import number
from guard.audit.statistics import detectable
from guard.policy import Policy
from guard.suites import Chat

# Requests whose tokens are counted; the others are taken to be like them.
_COUNTED = 200
# Tokens that an answer is taken to have where the suite sets no limit.
_ASSUMED_ANSWER = 256


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan for one suite.

    ``calls`` are made once for all equal requests; ``requests`` counts each. Tokens are an
    estimate: of the prompts from a sample, of the answers the most that the suite allows. Prices
    are LiteLLM's, in US dollars, nan where it has none. ``rewrite_calls`` is what the guard's
    action ``rewrite`` may add at most, 0 under any other.
    """

    suite: str
    version: str
    model: str | None
    items: int
    samples: int
    requests: int
    calls: int
    turns: Mapping[int, int]
    prompt_tokens: float
    answer_tokens: float
    cost: float
    seconds: float
    concurrency: int
    latency_s: float
    clusters: int
    rewrite_calls: int
    counts: Mapping[str, Mapping[str, int]]
    sampling: Mapping[str, Any]

    @property
    def detectable(self) -> tuple[float, float]:
        """The smallest change of a share over all samples that two such audits can tell.

        First if samples of one cluster have nothing in common, then if they are all alike.
        """
        return detectable(self.samples), detectable(self.clusters)

    def as_json(self) -> dict[str, Any]:
        """Return the plan in plain values."""
        alone, alike = self.detectable
        return {
            "suite": self.suite,
            "version": self.version,
            "model": self.model,
            "items": self.items,
            "samples": self.samples,
            "requests": self.requests,
            "calls": self.calls,
            "requests_by_turn": {str(turn + 1): n for turn, n in sorted(self.turns.items())},
            "rewrite_calls_at_most": self.rewrite_calls,
            "prompt_tokens_estimate": number(float(round(self.prompt_tokens))),
            "answer_tokens_at_most": number(float(round(self.answer_tokens))),
            "cost_usd_at_most": number(self.cost),
            "seconds": number(self.seconds),
            "concurrency": self.concurrency,
            "latency_s_assumed": self.latency_s,
            "clusters": self.clusters,
            "detectable_change": {"independent": number(alone), "clustered": number(alike)},
            "counts": {category: dict(row) for category, row in self.counts.items()},
            "sampling": dict(self.sampling),
        }


def plan(
    audit: Audit, model: str | None, *, concurrency: int, latency_s: float, policy: Policy
) -> Plan:
    """Return the plan of ``audit``; asks nothing.

    Wall time is calls x latency / concurrency, which leaves out ramp-up and a provider's limits; a
    sample's turns follow each other, so it is never less than the longest sample's.
    """
    keys: dict[str, Asked] = {}
    turns: Counter[int] = Counter()
    for item, sample in samples(audit.items):
        for asked in planned(audit.suite, item, sample):
            turns[asked.slot.turn] += 1
            keys.setdefault(asked.key, asked)
    calls = list(keys.values())
    few = random.Random(audit.seed).sample(calls, min(_COUNTED, len(calls)))
    asked_tokens = _mean(_prompt_tokens(one, model) for one in few) * len(calls)
    answer_tokens = float(sum(_most_said(one) for one in calls))
    chats = sum(isinstance(one.request, Chat) for one in calls)
    # Local models answer one request at a time.
    at_once = 1 if model is not None and model.startswith("local:") else concurrency
    seconds = max(len(calls) / at_once, max(turns, default=0) + 1 if turns else 0) * latency_s
    return Plan(
        suite=audit.suite.name,
        version=audit.suite.version,
        model=model,
        items=len(audit.items),
        samples=sum(item.samples for item in audit.items),
        requests=sum(turns.values()),
        calls=len(calls),
        turns=turns,
        prompt_tokens=asked_tokens,
        answer_tokens=answer_tokens,
        cost=math.nan if model is None else price(model, asked_tokens, answer_tokens),
        seconds=seconds,
        concurrency=at_once,
        latency_s=latency_s,
        clusters=len({item.cluster for item in audit.items}),
        rewrite_calls=chats if policy.rewrites else 0,
        counts=audit.suite.counts(),
        sampling=audit.sampling,
    )


def _prompt_tokens(asked: Asked, model: str | None) -> int:
    request = asked.request
    name = model or ""
    if isinstance(request, Chat):
        messages: Any = [dict(m) for m in request.messages]
        return int(litellm.token_counter(model=name, messages=messages))
    texts = (request.context, *request.continuations)
    return sum(int(litellm.token_counter(model=name, text=text)) for text in texts)


def _most_said(asked: Asked) -> int:
    if not isinstance(asked.request, Chat):
        return 0
    given = asked.request.settings
    told = given.get("max_completion_tokens", given.get("max_tokens"))
    return int(told) if told is not None else _ASSUMED_ANSWER


def _mean(values: Iterator[int]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0


def show(console: Console, plans: Sequence[Plan]) -> None:
    """Print the plans as tables."""
    for one in plans:
        table = Table(
            title=f"{one.suite} {one.version} · {one.model or 'no model given'}",
            title_justify="left",
            show_header=False,
        )
        for name, value in _rows(one):
            table.add_row(name, value)
        console.print(table)
        for category, row in one.counts.items():
            told = ", ".join(f"{name} {n:,}" for name, n in row.items())
            console.print(f"  {category}: {told}")


def _rows(one: Plan) -> Iterator[tuple[str, str]]:
    drawn = f" (a sample, seed {one.sampling['seed']})" if one.sampling else ""
    yield "items", f"{one.items:,}{drawn}"
    yield "samples", f"{one.samples:,} in {one.clusters:,} clusters"
    by_turn = ", ".join(f"turn {turn + 1}: {n:,}" for turn, n in sorted(one.turns.items()))
    yield "requests", f"{one.requests:,} ({by_turn})"
    yield "calls", f"{one.calls:,}, equal requests asked once"
    yield "calls the action rewrite may add", f"{one.rewrite_calls:,} at most"
    yield "prompt tokens", f"about {one.prompt_tokens:,.0f} (estimated from a sample)"
    yield "answer tokens", f"{one.answer_tokens:,.0f} at most"
    cost = "LiteLLM has no price" if math.isnan(one.cost) else f"${one.cost:,.2f} at most"
    yield "cost", cost
    told = f"at {one.concurrency} at a time and {one.latency_s:g} s a call"
    yield "wall time", f"about {_span(one.seconds)} {told}"
    alone, alike = one.detectable
    yield (
        "smallest change detectable",
        f"{_points(alone)} points of a share over all samples, {_points(alike)} if samples of a "
        "cluster are all alike (two audits of this size, power 80 %, alpha 5 %)",
    )


def _points(share: float) -> str:
    return "–" if math.isnan(share) else f"{100 * share:.1f}"


def _span(seconds: float) -> str:
    minutes = seconds / 60
    if minutes < 1:
        return f"{seconds:.0f} s"
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
