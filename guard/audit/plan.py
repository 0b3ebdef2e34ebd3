"""What an audit would ask, take and cost, before anything is spent."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import litellm
from rich.console import Console
from rich.table import Table
from rich.text import Text

from guard.audit.audit import Audit
from guard.audit.calls import answer_varies, key_of, placeholder
from guard.audit.detectable import Detectable, detectable
from guard.audit.models import LOCAL, check_model
from guard.audit.outcomes import samples
from guard.audit.remote_model import cost_of, may_give_logprobs
from guard.audit.score import number
from guard.audit.sending import Sending, reasons
from guard.suites import Answer, Capability, Chat, Judge, Request, Role, Suite
from guard.suites.requests import GroupTexts, LogLikelihood

# Requests whose tokens are counted; the others are taken to be like them.
_COUNTED = 200
# Tokens that an answer, and the reasoning before it, are taken to have where nothing limits them.
_ASSUMED_ANSWER = 256
_ASSUMED_REASONING = 1024
# No tokeniser that works on bytes makes more tokens of a text than it has bytes; a message's frame
# takes a few more.
_FRAME = 16


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan for one suite and model.

    ``calls`` are made once for all equal requests; ``requests`` counts each; ``probes`` are calls
    that find out what the model gives. Tokens and ``cost`` are estimates, of the prompts from a
    sample; ``answer_tokens_at_most`` and ``cost_at_most`` are bounds, by the limits that are sent
    or the longest answer that LiteLLM knows of the model, nan where there is none. Prices are
    LiteLLM's, in US dollars, nan where it has none. ``otherwise`` holds the calls that are made if
    the model turns out to give no log-probabilities, None where that is not open, and
    ``settings_otherwise`` what they are asked with. ``sent`` says what is sent otherwise than the
    suite asks, ``left_out`` why a setting is left out. All this is of the audited model; ``others``
    has by role what is asked of others and costs there, and ``seconds`` are those of all calls.
    ``finds`` is what a comparison could find; None without SciPy.
    """

    suite: str
    version: str
    model: str | None
    items: int
    samples: int
    requests: int
    calls: int
    probes: int
    turns: Mapping[int, int]
    prompt_tokens: float
    answer_tokens: float
    answer_tokens_at_most: float
    cost: float
    cost_at_most: float
    seconds: float
    concurrency: int
    latency_s: float
    clusters: int
    counts: Mapping[str, Mapping[str, int]]
    sampling: Mapping[str, Any]
    settings: Mapping[str, Any]
    left_out: Mapping[str, str]
    sent: Sequence[str]
    otherwise: int | None = None
    settings_otherwise: Mapping[str, Any] = field(default_factory=dict)
    others: Mapping[Role, Mapping[str, Any]] = field(default_factory=dict)
    finds: Detectable | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the plan in plain values."""
        return {
            "suite": self.suite,
            "version": self.version,
            "model": self.model,
            "items": self.items,
            "samples": self.samples,
            "requests": self.requests,
            "calls": self.calls,
            "requests_by_turn": {str(turn + 1): n for turn, n in sorted(self.turns.items())},
            "probe_calls": self.probes,
            "calls_without_logprobs": self.otherwise,
            "prompt_tokens_estimate": _whole(self.prompt_tokens),
            "answer_tokens_estimate": _whole(self.answer_tokens),
            "answer_tokens_at_most": _whole(self.answer_tokens_at_most),
            "cost_usd_estimate": number(self.cost),
            "cost_usd_at_most": number(self.cost_at_most),
            "calls_repeated_after_kill_at_most": self.concurrency,
            "seconds": number(self.seconds),
            "concurrency": self.concurrency,
            "latency_s_assumed": self.latency_s,
            "clusters": self.clusters,
            "counts": {category: dict(row) for category, row in self.counts.items()},
            "sampling": dict(self.sampling),
            "settings": dict(self.settings),
            "settings_without_logprobs": dict(self.settings_otherwise),
            "left_out": dict(self.left_out),
            "others": {role: dict(told) for role, told in self.others.items()},
            "detectable_share": None if self.finds is None else number(self.finds.worse),
        }


def plan(
    audit: Audit,
    model: str | None,
    *,
    concurrency: int,
    latency_s: float,
    sending: Sending | None = None,
) -> Plan:
    """Return the plan of ``audit``; asks nothing.

    A suite that could use log-probabilities is planned with them where LiteLLM's map says that the
    model gives them. Wall time is calls x latency / concurrency, which leaves out ramp-up and a
    provider's limits; a sample's turns follow each other, so it is never less than the longest
    sample's. Raises UsageError where the model does not take what ``sending`` gives.
    """
    litellm.suppress_debug_info = True
    sending = sending or Sending()
    probes, other, lacking = 0, None, frozenset[Capability]()
    if model is not None:
        check_model(model)
        has = _gives(model, sending)
        lacking = audit.suite.needs - has
        fitted = audit.fitted(has)
        if "logprobs" in (audit.suite.needs | audit.suite.uses) & has:
            probes = 0 if model.startswith(LOCAL) else 1
        if fitted is not audit and probes:
            other = _counted(audit.sent(sending.fitted(model, audit.suite)), model)
        audit = fitted.sent(sending.fitted(model, fitted.suite))
    counted = _counted(audit, model)
    calls = counted.calls
    others = {role: _other(audit, role, who.name) for role, who in audit.others.items()}
    bounds = [counted] if other is None else [counted, other]
    # Local models answer one request at a time.
    at_once = 1 if model is not None and model.startswith(LOCAL) else concurrency
    longest = max(counted.turns, default=-1) + 1
    besides = sum(told["calls"] for told in others.values())
    seconds = (max((calls + probes) / at_once, longest) + besides / concurrency) * latency_s
    return Plan(
        suite=audit.suite.name,
        version=audit.suite.version,
        model=model,
        items=len(audit.items),
        samples=sum(item.samples for item in audit.items),
        requests=sum(counted.turns.values()),
        calls=calls,
        probes=probes,
        turns=counted.turns,
        prompt_tokens=counted.prompts,
        answer_tokens=counted.answers,
        answer_tokens_at_most=max(one.answers_at_most for one in bounds),
        cost=counted.cost(model),
        cost_at_most=max(one.cost_at_most(model) for one in bounds),
        seconds=seconds,
        concurrency=at_once,
        latency_s=latency_s,
        clusters=len({item.cluster for item in audit.items}),
        counts=audit.suite.counts(),
        sampling=audit.sampling,
        settings=counted.settings,
        left_out=audit.sending.left_out,
        sent=_told(audit, model, lacking),
        otherwise=None if other is None else other.calls,
        settings_otherwise={} if other is None else other.settings,
        others=others,
        finds=detectable(audit) if find_spec("scipy") else None,
    )


def _other(audit: Audit, role: Role, name: str) -> Mapping[str, Any]:
    """Return what is asked of another than the audited model, as JSON has it."""
    counted = _counted(audit, name, role)
    # How much an analyst is asked that follows from all answers, only these tell.
    follows = role == "analyst" and type(audit.suite).further is not Suite.further
    return {
        "model": name,
        "calls": counted.calls,
        "prompt_tokens_estimate": _whole(counted.prompts),
        "answer_tokens_estimate": _whole(counted.answers),
        "cost_usd_estimate": number(counted.cost(name)),
        "cost_usd_at_most": None if follows else number(counted.cost_at_most(name)),
    }


def _gives(model: str, sending: Sending) -> frozenset[Capability]:
    """Return what ``model`` can do as far as can be known without a call."""
    if model.startswith(LOCAL):
        return frozenset({"chat", "logprobs", "given_logprobs", "patching"})
    return frozenset({"chat", "logprobs"} if may_give_logprobs(model, sending) else {"chat"})


def _told(audit: Audit, model: str | None, lacking: frozenset[Capability]) -> Sequence[str]:
    told = [] if model is None else audit.sending.told(model)
    if type(audit.suite).further is not Suite.further:
        told.append("Calls that follow from all answers together are not counted.")
    if lacking:
        told.append(f"A run skips it: {model} does not give {', '.join(sorted(lacking))}.")
    return told


@dataclass(slots=True)
class _Counted:
    """What the requests of an audit add up to; of the calls, equal requests count once."""

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


def _counted(audit: Audit, model: str | None, role: Role = "model") -> _Counted:
    """Count what ``role`` is asked; what an analyst reads is taken to be in all its prompts."""
    found = _Counted()
    seen: set[bytes] = set()
    rng = random.Random(audit.seed)
    few: list[Chat | LogLikelihood] = []
    longest = _longest(model)
    sending = audit.sending if role == "model" else audit.others[role].sending
    assumed = _ASSUMED_ANSWER
    if model is not None and reasons(model, sending.given):
        assumed += _ASSUMED_REASONING
    for item, sample in samples(audit.items):
        answers: list[Answer] = []
        before = 0.0  # tokens of the answers that the next prompt repeats
        read = 0  # of the audited model's, as an analyst is taken to read them
        while (request := audit.suite.request(item, sample, answers)) is not None:
            turn = len(answers)
            answers.append(placeholder(request))
            if request.by != role:
                before += _limit(request)
                read += _ASSUMED_ANSWER
                continue
            found.turns[turn] += 1
            limit = _limit(request)
            most = longest if math.isnan(limit) else limit
            # What others read is not known yet, and no two texts are alike.
            new = answer_varies(request) or role != "model"
            if not new:
                key = bytes.fromhex(key_of(request, item, sample, turn))
                new = key not in seen
                seen.add(key)
            if new:
                found.calls += 1
                if isinstance(request, Judge | GroupTexts):
                    continue  # no language model reads it
                found.prompts_at_most += _bytes(request) + before
                found.read += read
                if isinstance(request, Chat):
                    found.chats += 1
                    found.settings = found.settings or request.settings
                    found.answers += assumed if math.isnan(limit) else min(assumed, limit)
                    found.answers_at_most += most
                # Each call is among the few with the same chance (reservoir sampling).
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


def _longest(model: str | None) -> float:
    """Return the most tokens of an answer by LiteLLM's map; nan where it does not say."""
    try:
        told = litellm.get_model_info(model)["max_output_tokens"] if model else None
    except Exception:  # a model that is not in the map
        told = None
    return float(told) if told else math.nan


def _limit(request: Request) -> float:
    """Return the limit on the answer's tokens that is sent; nan where none is."""
    if not isinstance(request, Chat):
        return 0.0  # it writes nothing
    told = request.settings.get("max_completion_tokens", request.settings.get("max_tokens"))
    return math.nan if told is None else float(told)


def _bytes(request: Chat | LogLikelihood) -> int:
    before = sum(len(m["content"].encode()) + _FRAME for m in request.messages) + _FRAME
    if isinstance(request, Chat):
        return before
    if not request.messages:
        before = len(request.context.encode())
    return sum(before + len(text.encode()) for text in request.continuations)


def _prompt_tokens(request: Chat | LogLikelihood, sending: Sending, model: str | None) -> int:
    name = model or ""
    if isinstance(request, Chat):
        messages: Any = sending.messages(request)
        return int(litellm.token_counter(model=name, messages=messages))
    if request.messages:  # they hold the context
        given: Any = [dict(m) for m in request.messages]
        before = int(litellm.token_counter(model=name, messages=given))
    else:
        before = int(litellm.token_counter(model=name, text=request.context))
    return before + sum(
        int(litellm.token_counter(model=name, text=text)) for text in request.continuations
    )


def _whole(value: float) -> float | int | None:
    return number(value if math.isnan(value) else float(round(value)))


def show(console: Console, plans: Sequence[Plan]) -> None:
    """Print the plans as tables."""
    for one in plans:
        table = Table(
            title=Text(f"{one.suite} {one.version} · {one.model or 'no model given'}"),
            title_justify="left",
            show_header=False,
        )
        for name, value in _rows(one):
            table.add_row(name, value)
        console.print(table, markup=False)
        for told in one.sent:
            console.print(told, markup=False)
        for category, row in one.counts.items():
            told = ", ".join(f"{name} {n:,}" for name, n in row.items())
            console.print(f"  {category}: {told}")


def _rows(one: Plan) -> Iterator[tuple[str, str]]:
    kind = "quick run" if "preset" in one.sampling else "sample"
    drawn = f" (a {kind}, seed {one.sampling['seed']})" if one.sampling else ""
    yield "items", f"{one.items:,}{drawn}"
    yield "samples", f"{one.samples:,} in {one.clusters:,} clusters"
    by_turn = ", ".join(f"turn {turn + 1}: {n:,}" for turn, n in sorted(one.turns.items()))
    yield "requests", f"{one.requests:,} ({by_turn})"
    yield "calls", f"{one.calls:,}, equal requests asked once"
    if one.probes:
        told = "" if one.otherwise is None else f"; without them {one.otherwise:,} calls"
        yield "probes", f"{one.probes}, for log-probabilities{told}"
    yield "calls asked again if a run is killed", f"{one.concurrency:,} at most"
    yield "prompt tokens", f"about {one.prompt_tokens:,.0f} (estimated from a sample)"
    yield "answer tokens", f"about {one.answer_tokens:,.0f}, {_bound(one.answer_tokens_at_most)}"
    if math.isnan(one.cost):
        yield "cost", "LiteLLM has no price"
    else:
        yield "cost", f"about ${one.cost:,.2f}, {_bound(one.cost_at_most, '$', 2)}"
    yield "against a baseline", "needs scipy" if one.finds is None else one.finds.text()
    if one.settings:
        told = _settings(one.settings)
        if one.settings_otherwise:
            without = _settings(one.settings_otherwise)
            told = f"{told} for log-probabilities; without them {without}"
        yield "settings", told
    for role, told_of in one.others.items():
        cost = told_of["cost_usd_estimate"]
        priced = "no price" if cost is None else f"about ${cost:,.2f}"
        yield role, f"{told_of['model']}: {told_of['calls']:,} calls, {priced}"
    told = f"at {one.concurrency} at a time and {one.latency_s:g} s a call"
    yield "wall time", f"about {_span(one.seconds)} {told}"


def _settings(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items())


def _bound(value: float, unit: str = "", digits: int = 0) -> str:
    return "no bound known" if math.isnan(value) else f"{unit}{value:,.{digits}f} at most"


def _span(seconds: float) -> str:
    minutes = seconds / 60
    if minutes < 1:
        return f"{seconds:.0f} s"
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
