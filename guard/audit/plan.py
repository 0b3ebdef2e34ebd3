"""What an audit would ask, take, cost and be able to find, before any call is made."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import litellm
import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from guard.audit.audit import Audit
from guard.audit.bounds import (
    ASSUMED_ANSWER,
    answer_limit,
    assumed_answer,
    longest_answer,
    prompt_bytes,
)
from guard.audit.calls import answer_varies, key_of, placeholder
from guard.audit.models import LOCAL, check_model
from guard.audit.outcomes import samples
from guard.audit.paired import Pairs
from guard.audit.remote_model import cost_of, may_give_logprobs
from guard.audit.score import json_number
from guard.audit.sending import Sending
from guard.audit.sides import SHARE
from guard.audit.tolerances import DEFAULT_FRACTION
from guard.suites import (
    Answer,
    Capability,
    Chat,
    GroupTexts,
    Judge,
    LogLikelihood,
    Role,
    Suite,
)
from guard.suites.conclusions import ALPHA
from guard.suites.reading import share

CHANGE = 0.1
"""The share of answers that is assumed to differ between two runs by chance alone."""
_COUNTED = 200  # requests whose tokens are counted, as a sample of all


@dataclass(slots=True)
class _Counted:
    """The sums of an audit's requests; equal requests count as one call.

    Tokens are estimated from a sample of the prompts. The bounds follow from the limits that are
    sent or the longest answer that LiteLLM knows of the model; nan without either.
    """

    turns: Counter[int] = field(default_factory=Counter)
    calls: int = 0
    chats: int = 0
    prompts: float = 0.0
    prompts_at_most: float = 0.0
    read: float = 0.0
    answers: float = 0.0
    answers_at_most: float = 0.0
    settings: Mapping[str, Any] = field(default_factory=dict)

    def cost(self, model: str | None) -> float:
        return cost_of(model, self.prompts, self.answers)

    def cost_at_most(self, model: str | None) -> float:
        return cost_of(model, self.prompts_at_most, self.answers_at_most)


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan for one suite and model.

    ``counted`` has the requests to the model, and ``without_logprobs`` those that replace them if
    the model turns out to give no log-probabilities; None where that is known. ``probes`` are the
    calls that find it out. ``others`` has the calls and costs of the other roles. Costs are
    LiteLLM's, in US dollars, nan where it has no price; ``seconds`` are those of all calls.
    ``detectable`` is the least worsening of a share that a comparison would find, nan with too few
    clusters; None without SciPy.
    """

    audit: Audit
    model: str | None
    counted: _Counted
    without_logprobs: _Counted | None
    probes: int
    others: Mapping[Role, Mapping[str, Any]]
    seconds: float
    concurrency: int
    latency_s: float
    notes: Sequence[str]
    detectable: float | None

    @property
    def calls(self) -> int:
        """The calls to the audited model, without probes."""
        return self.counted.calls

    @property
    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """The suite's own counts, by category and name."""
        return self.audit.suite.counts()

    def as_json(self) -> dict[str, Any]:
        """Return the plan in plain values."""
        audit, counted, other = self.audit, self.counted, self.without_logprobs
        possible = [counted] if other is None else [counted, other]
        return {
            "suite": audit.suite.name,
            "version": audit.suite.version,
            "model": self.model,
            "items": len(audit.items),
            "samples": sum(item.samples for item in audit.items),
            "requests": sum(counted.turns.values()),
            "calls": counted.calls,
            "requests_by_turn": {str(turn + 1): n for turn, n in sorted(counted.turns.items())},
            "probe_calls": self.probes,
            "calls_without_logprobs": None if other is None else other.calls,
            "prompt_tokens_estimate": _rounded(counted.prompts),
            "answer_tokens_estimate": _rounded(counted.answers),
            "answer_tokens_at_most": _rounded(max(one.answers_at_most for one in possible)),
            "cost_usd_estimate": json_number(counted.cost(self.model)),
            "cost_usd_at_most": json_number(max(one.cost_at_most(self.model) for one in possible)),
            "calls_repeated_after_kill_at_most": self.concurrency,
            "seconds": json_number(self.seconds),
            "concurrency": self.concurrency,
            "latency_s_assumed": self.latency_s,
            "clusters": len({item.cluster for item in audit.items}),
            "counts": {category: dict(row) for category, row in self.counts.items()},
            "sampling": dict(audit.sampling),
            "settings": dict(counted.settings),
            "settings_without_logprobs": {} if other is None else dict(other.settings),
            "left_out": dict(audit.sending.left_out),
            "others": {role: dict(calls) for role, calls in self.others.items()},
            "detectable_share": None if self.detectable is None else json_number(self.detectable),
        }


def plan(
    audit: Audit,
    model: str | None,
    *,
    concurrency: int,
    latency_s: float,
    sending: Sending | None = None,
) -> Plan:
    """Return the plan of ``audit``; makes no call.

    A suite that can use log-probabilities is planned with them where LiteLLM's map says that the
    model gives them. The time is calls x latency / concurrency, without ramp-up and rate limits,
    and never less than that of the longest sample, whose turns follow each other. Raises UsageError
    where the model refuses a setting of ``sending``.
    """
    litellm.suppress_debug_info = True
    sending = sending or Sending()
    local = model is not None and model.startswith(LOCAL)
    probes, other, missing = 0, None, frozenset[Capability]()
    if model is not None:
        check_model(model)
        has = _known_capabilities(model, sending)
        missing = audit.suite.needs - has
        adapted = audit.adapted(has)
        if "logprobs" in (audit.suite.needs | audit.suite.uses) & has:
            probes = 0 if local else 1
        if adapted is not audit and probes:
            other = _counted(audit.for_model(model, sending), model)
        audit = adapted.for_model(model, sending)
    counted = _counted(audit, model)
    others = {role: _calls_of(audit, role, one.name) for role, one in audit.others.items()}
    at_once = 1 if local else concurrency  # local models answer one request at a time
    longest = max(counted.turns, default=-1) + 1
    other_calls = sum(calls["calls"] for calls in others.values())
    calls = max((counted.calls + probes) / at_once, longest) + other_calls / concurrency
    notes = [] if model is None else audit.sending.notes(model)
    if type(audit.suite).further is not Suite.further:
        notes.append("Calls that follow from all answers together are not counted.")
    if missing:
        notes.append(f"A run skips it: {model} does not have {', '.join(sorted(missing))}.")
    least = detectable(audit) if find_spec("scipy") else None
    return Plan(
        audit, model, counted, other, probes, others, calls * latency_s, at_once, latency_s, notes,
        least,
    )  # fmt: skip


def detectable(audit: Audit) -> float:
    """Return the least worsening of a share over all items that a comparison of two runs detects.

    It is :meth:`guard.audit.paired.Pairs.detectable` for runs of these items and clusters that
    differ in CHANGE of the answers, at random places and half of them for the worse.
    """
    items = audit.items
    axes = 1 + sum(measure.ideal is not None for measure in audit.suite.measures(()))
    order = np.random.default_rng(audit.seed).permutation(len(items))
    changed = order[: 2 * round(CHANGE * len(items) / 2)]
    base, new = np.zeros((2, len(items), 2))
    base[:, 1] = new[:, 1] = 1.0
    base[changed[::2], 0] = new[changed[1::2], 0] = 1.0
    pairs = Pairs(base, new, [item.cluster for item in items], share, SHARE)
    return pairs.detectable(DEFAULT_FRACTION, ALPHA / axes)


def _calls_of(audit: Audit, role: Role, name: str) -> Mapping[str, Any]:
    """Return, as JSON, the calls of another role than the audited model's."""
    counted = _counted(audit, name, role)
    # Only the answers decide how many further calls an analyst gets.
    unbounded = role == "analyst" and type(audit.suite).further is not Suite.further
    return {
        "model": name,
        "calls": counted.calls,
        "prompt_tokens_estimate": _rounded(counted.prompts),
        "answer_tokens_estimate": _rounded(counted.answers),
        "cost_usd_estimate": json_number(counted.cost(name)),
        "cost_usd_at_most": None if unbounded else json_number(counted.cost_at_most(name)),
    }


def _known_capabilities(model: str, sending: Sending) -> frozenset[Capability]:
    """Return the capabilities of ``model`` that are known without a call."""
    if model.startswith(LOCAL):
        return frozenset({"chat", "logprobs", "given_logprobs", "patching"})
    return frozenset({"chat", "logprobs"} if may_give_logprobs(model, sending) else {"chat"})


def _counted(audit: Audit, model: str | None, role: Role = "model") -> _Counted:
    """Count the requests to ``role``, assuming that an analyst reads the whole answers."""
    found = _Counted()
    seen: set[bytes] = set()
    rng = random.Random(audit.seed)
    few: list[Chat | LogLikelihood] = []
    longest = longest_answer(model)
    sending = audit.sending if role == "model" else audit.others[role].sending
    assumed = ASSUMED_ANSWER if model is None else assumed_answer(model, sending.given)
    for item, sample in samples(audit.items):
        answers: list[Answer] = []
        before = 0.0  # tokens of earlier answers, which the next prompt repeats
        read = 0  # tokens of the audited model's answers, which an analyst reads
        while (request := audit.suite.request(item, sample, answers)) is not None:
            turn = len(answers)
            answers.append(placeholder(request))
            if request.by != role:
                before += answer_limit(request)
                read += ASSUMED_ANSWER
                continue
            found.turns[turn] += 1
            limit = answer_limit(request)
            most = longest if math.isnan(limit) else limit
            # The texts that other roles read are not known yet, but they will differ.
            new = answer_varies(request) or role != "model"
            if not new:
                key = bytes.fromhex(key_of(request, item, sample, turn))
                new = key not in seen
                seen.add(key)
            if new:
                found.calls += 1
                if isinstance(request, Judge | GroupTexts):
                    continue  # not read by a language model
                found.prompts_at_most += prompt_bytes(request) + before
                found.read += read
                if isinstance(request, Chat):
                    found.chats += 1
                    found.settings = found.settings or request.settings
                    found.answers += assumed if math.isnan(limit) else min(assumed, limit)
                    found.answers_at_most += most
                # Reservoir sampling: each call has the same chance to be among the few.
                if len(few) < _COUNTED:
                    few.append(request)
                elif (place := rng.randrange(found.calls)) < _COUNTED:
                    few[place] = request
            before += most
    found.prompts_at_most += len(sending.system.encode()) * found.chats
    if few:
        each = sum(_prompt_tokens(one, sending, model) for one in few) / len(few)
        found.prompts = each * found.calls + found.read
    return found


def _prompt_tokens(request: Chat | LogLikelihood, sending: Sending, model: str | None) -> int:
    def count(**texts: Any) -> int:
        return int(litellm.token_counter(model=model or "", **texts))

    if isinstance(request, Chat):
        return count(messages=sending.messages(request))
    if request.messages:  # they include the context
        before = count(messages=[dict(m) for m in request.messages])
    else:
        before = count(text=request.context)
    return before + sum(count(text=text) for text in request.continuations)


def _rounded(value: float) -> float | int | None:
    return json_number(value if math.isnan(value) else float(round(value)))


def show(console: Console, plans: Sequence[Plan]) -> None:
    """Print the plans as tables."""
    for one in plans:
        suite = one.audit.suite
        title = Text(f"{suite.name} {suite.version} · {one.model or 'no model given'}")
        table = Table(title=title, title_justify="left", show_header=False)
        for name, value in _rows(one):
            table.add_row(name, value)
        console.print(table, markup=False)
        for note in one.notes:
            console.print(note, markup=False)
        for category, row in one.counts.items():
            counts = ", ".join(f"{name} {n:,}" for name, n in row.items())
            console.print(f"  {category}: {counts}")


def _rows(one: Plan) -> Iterator[tuple[str, str]]:
    facts, counted, sampling = one.as_json(), one.counted, one.audit.sampling
    kind = "quick run" if "preset" in sampling else "sample"
    yield (
        "items",
        f"{facts['items']:,}" + (f" (a {kind}, seed {sampling['seed']})" if sampling else ""),
    )
    yield "samples", f"{facts['samples']:,} in {facts['clusters']:,} clusters"
    by_turn = ", ".join(f"turn {turn}: {n:,}" for turn, n in facts["requests_by_turn"].items())
    yield "requests", f"{facts['requests']:,} ({by_turn})"
    yield "calls", f"{one.calls:,}, equal requests asked once"
    other = one.without_logprobs
    if one.probes:
        without = "" if other is None else f"; without them {other.calls:,} calls"
        yield "probes", f"{one.probes}, for log-probabilities{without}"
    yield "calls asked again if a run is killed", f"{one.concurrency:,} at most"
    yield "prompt tokens", f"about {counted.prompts:,.0f} (estimated from a sample)"
    bound = _bound(facts["answer_tokens_at_most"])
    yield "answer tokens", f"about {counted.answers:,.0f}, {bound}"
    if (cost := facts["cost_usd_estimate"]) is None:
        yield "cost", "LiteLLM has no price"
    else:
        yield "cost", f"about ${cost:,.2f}, {_bound(facts['cost_usd_at_most'], '$', 2)}"
    yield "against a baseline", _detectable_text(one.detectable)
    settings, without_logprobs = (
        ", ".join(f"{name} {value}" for name, value in facts[key].items())
        for key in ("settings", "settings_without_logprobs")
    )
    if without_logprobs:
        settings += f" for log-probabilities; without them {without_logprobs}"
    if settings:
        yield "settings", settings
    for role, calls in one.others.items():
        cost = calls["cost_usd_estimate"]
        priced = "no price" if cost is None else f"about ${cost:,.2f}"
        yield role, f"{calls['model']}: {calls['calls']:,} calls, {priced}"
    assumed = f"at {one.concurrency} at a time and {one.latency_s:g} s a call"
    yield "wall time", f"about {_duration(one.seconds)} {assumed}"


def _detectable_text(least: float | None) -> str:
    if least is None:
        return "needs scipy"
    if math.isnan(least):
        return "nothing can be detected: too few clusters"
    return (
        f"a share that is worse by {least:.2f} would be found in four of five comparisons, if "
        f"{CHANGE:.0%} of the answers change by chance"
    )


def _bound(value: float | None, unit: str = "", digits: int = 0) -> str:
    return "no bound known" if value is None else f"{unit}{value:,.{digits}f} at most"


def _duration(seconds: float) -> str:
    minutes = seconds / 60
    if minutes < 1:
        return f"{seconds:.0f} s"
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
