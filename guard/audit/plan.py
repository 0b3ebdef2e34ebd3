"""What an audit would ask, take, cost and be able to find, before any call is made."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import litellm
import numpy as np
from rich.console import Console

from guard.audit import timing
from guard.audit.audit import Audit
from guard.audit.bounds import (
    ASSUMED_ANSWER,
    answer_limit,
    assumed_answer,
    longest_answer,
    prompt_bytes,
)
from guard.audit.calls import answer_varies, key_of, placeholder
from guard.audit.cassette import Cassette
from guard.audit.endpoints import endpoint, endpoint_of
from guard.audit.models import LOCAL, check_model
from guard.audit.outcomes import item_samples
from guard.audit.projection import ADVICE, ALONE_S, REPLAY_S, Projection
from guard.audit.remote_model import may_give_logprobs
from guard.audit.score import json_number
from guard.audit.sending import Other, Sending
from guard.audit.sides import SHARE
from guard.audit.tolerances import DEFAULT_FRACTION
from guard.core import Guard
from guard.model_calls import cost_of
from guard.progress import duration_text
from guard.results.conclusions import ALPHA
from guard.results.measure import share
from guard.results.paired import Pairs
from guard.results.table import Column, Table
from guard.suites import (
    AdaptsRequests,
    Answer,
    Capability,
    Chat,
    ExplainsResults,
    GroupTexts,
    Judge,
    LogLikelihood,
    Role,
)
from guard.suites.optional import has_follow_ups, part_of

CALLS = "calls"
"""The part of a plan's time in which providers answer."""
CHANGE = 0.1
"""The share of answers that is assumed to differ between two runs by chance alone."""
_BY_LENGTH = frozenset({"guard", "scorer", "local model"})  # times that grow with an answer
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
    few: list[Any] = field(default_factory=list)
    """Some of the requests, to measure with."""

    @property
    def answer(self) -> float:
        """The assumed tokens of an answer."""
        return self.answers / self.chats if self.chats else 0.0

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
    LiteLLM's, in US dollars, nan where it has no price. ``parts`` has the seconds of the calls to
    providers, and of guard's own work and models in this process where they were measured.
    ``detectable`` is the least worsening of a share that a comparison would find, nan with too few
    clusters; None without SciPy.
    """

    audit: Audit
    model: str | None
    counted: _Counted
    without_logprobs: _Counted | None
    probes: int
    others: Mapping[Role, Mapping[str, Any]]
    parts: Mapping[str, float]
    projection: Projection
    concurrency: int
    latency_s: float
    notes: Sequence[str]
    detectable: float | None
    workers: int = 0
    """The workers on Ray that ask; 0 for this process."""
    rate: float | None = None
    """The provider's limit in calls a minute, if it is known."""
    replayed: str = ""
    """The model of the cassette that is replayed, which costs nothing."""

    @property
    def seconds(self) -> float:
        """The time of all: other work goes on while providers answer."""
        return self.projection.seconds

    @property
    def assumes_longest_answers(self) -> bool:
        """Whether times are for answers as long as their limit, and so upper figures."""
        return not self.replayed and self.counted.answers >= self.counted.answers_at_most

    @property
    def calls(self) -> int:
        """The calls to the audited model, without probes."""
        return self.counted.calls

    @property
    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """The suite's own counts, by category and name."""
        return part_of(self.audit.suite, ExplainsResults).counts()

    def as_json(self) -> dict[str, Any]:
        """Return the plan in plain values."""
        audit, counted, other = self.audit, self.counted, self.without_logprobs
        possible = [counted] if other is None else [counted, other]

        def cost(cost_of_model: Callable[[str | None], float]) -> float | None:
            return 0.0 if self.replayed else json_number(cost_of_model(self.model))

        return {
            "suite": audit.suite.name,
            "version": audit.suite.version,
            "model": self.model,
            **({} if self.model is None else endpoint(self.model, audit.sending).as_json()),
            "items": len(audit.items),
            "samples": sum(item.samples for item in audit.items),
            "requests": sum(counted.turns.values()),
            "calls": counted.calls,
            "requests_by_turn": {str(turn + 1): n for turn, n in sorted(counted.turns.items())},
            "probe_calls": self.probes,
            "calls_without_logprobs": None if other is None else other.calls,
            "prompt_tokens_estimate": _rounded_number(counted.prompts),
            "answer_tokens_estimate": _rounded_number(counted.answers),
            "answer_tokens_at_most": _rounded_number(max(one.answers_at_most for one in possible)),
            "replay_of": self.replayed or None,
            "cost_usd_estimate": cost(counted.cost),
            "cost_usd_at_most": cost(
                lambda model: max(one.cost_at_most(model) for one in possible)
            ),
            "calls_repeated_after_kill_at_most": self.concurrency,
            "seconds": json_number(self.seconds),
            "seconds_by_part": {part: json_number(n) for part, n in self.parts.items()},
            "seconds_by_part_at_most": self.assumes_longest_answers,
            "concurrency": self.concurrency,
            "workers": self.workers,
            "rate_per_minute": self.rate,
            "bottleneck": self.projection.bottleneck,
            "latency_s_assumed": self.latency_s,
            "clusters": len({item.cluster for item in audit.items}),
            "counts": {category: dict(row) for category, row in self.counts.items()},
            "sampling": dict(audit.sampling),
            "shard": None if audit.shard is None else str(audit.shard),
            "settings": dict(counted.settings),
            "settings_without_logprobs": {} if other is None else dict(other.settings),
            "left_out": dict(audit.sending.left_out),
            "others": {role: dict(calls) for role, calls in self.others.items()},
            "detectable_share": None if self.detectable is None else json_number(self.detectable),
        }


def make_plan(
    audit: Audit,
    model: str | None,
    *,
    concurrency: int,
    latency_s: float,
    sending: Sending | None = None,
    guard: Guard | None = None,
    replay: Cassette | None = None,
    measure: bool = False,
    workers: int = 0,
    rate: float | None = None,
) -> Plan:
    """Return the plan of ``audit``, or of the ``replay`` of a cassette; makes no call.

    A suite that can use log-probabilities is planned with them where LiteLLM's map says that the
    model gives them. The time is calls x latency / concurrency, that of all ``workers`` on Ray,
    without ramp-up, and never less than ``rate``, in calls a minute, or the longest sample allows,
    whose turns follow each other; ``measure`` adds that of ``guard``, of the scorer and of local
    models, by short probes. Raises UsageError where the model refuses a setting of ``sending``.
    """
    litellm.suppress_debug_info = True
    sending = sending or Sending()
    local = model is not None and model.startswith(LOCAL)
    probes, other, missing = 0, None, frozenset[Capability]()
    if replay is not None:
        audit = replay.adapted
    elif model is not None:
        check_model(model)
        has = _known_capabilities(model, sending)
        missing = audit.suite.needs - has
        adapted = audit.adapted(has)
        if "logprobs" in (audit.suite.needs | part_of(audit.suite, AdaptsRequests).uses) & has:
            probes = 0 if local else 1
        if adapted is not audit and probes:
            other = _counted_requests(audit.for_model(model, sending), model)
        audit = adapted.for_model(model, sending)
    counted = _counted_requests(audit, model)
    others = {role: _calls_of(audit, role, one) for role, one in audit.others.items()}
    concurrency *= max(workers, 1)
    at_once = max(workers, 1) if local else concurrency  # a local model answers one at a time
    notes = [] if model is None else audit.sending.notes(model)
    parts = {CALLS: 0.0}
    asked = counted.calls + sum(one["calls"] for one in others.values())
    if replay is None:
        longest = max(counted.turns, default=-1) + 1
        remote = sum(one["calls"] for one in others.values() if not one["in_process"])
        calls = max((counted.calls + probes) / at_once, longest) + remote / concurrency
        parts[CALLS] = calls * latency_s
    if measure:
        known, more = _measured_seconds(audit, model, counted, others, guard, replay)
        parts |= known
        notes += more
        if "local model" in known and model is not None and local:
            parts[CALLS] = remote / concurrency * latency_s
    if has_follow_ups(audit.suite):
        notes.append("Calls that follow from all answers together are not counted.")
    if missing:
        notes.append(f"A run skips it: {model} does not have {', '.join(sorted(missing))}.")
    least = detectable_worsening(audit) if find_spec("scipy") else None
    rate_s = 0.0 if rate is None else (counted.calls + probes) / rate * 60.0
    projection, parts = _projection_of(parts, asked if measure else 0, workers, rate_s)
    return Plan(
        audit, model, counted, other, probes, others, parts, projection, at_once, latency_s, notes,
        least, workers, rate, replay.name if replay else "",
    )  # fmt: skip


def _projection_of(
    parts: dict[str, float], calls: int, workers: int, rate_s: float
) -> tuple[Projection, dict[str, float]]:
    """Return what ``parts`` need, and the parts as they are with ``workers`` that make ``calls``.

    There the driver's and theirs take the place of the runner's.
    """
    judging_s = sum(parts.get(part, 0.0) for part in ("guard", "scorer"))
    local_s = sum(parts.get(part, 0.0) for part in ("local model", "local analyst"))
    if not workers:
        alone_s = parts.get("runner", 0.0) + local_s
        return Projection(parts[CALLS], rate_s, alone_s, judging_s), parts
    projection = Projection.on_workers(
        workers, calls, parts[CALLS], rate_s=rate_s, judging_s=judging_s, local_s=local_s
    )
    on_workers = {part: n for part, n in parts.items() if part != "runner"} | {
        "driver": projection.driver_s,
        "each worker": projection.workers_s,
        "start of Ray": projection.start_s,
    }
    return projection, on_workers


def _measured_seconds(
    audit: Audit,
    model: str | None,
    counted: _Counted,
    others: Mapping[Role, Mapping[str, Any]],
    guard: Guard | None,
    replay: Cassette | None,
) -> tuple[dict[str, float], list[str]]:
    """Return the seconds of each kind of work in this process, and what could not be measured."""
    answers, notes = counted.chats, list[str]()
    if replay is None:
        pairs = timing.made_up(counted.few, counted.answer)
    else:
        pairs, answers = timing.recorded_answers(audit, replay.calls)
    asked = counted.calls + sum(one["calls"] for one in others.values())
    parts = {"runner": REPLAY_S * answers if replay else ALONE_S * asked}
    changed = 0.0
    if guard is not None and "chat" in audit.suite.needs:
        judged = timing.guard_speed(guard, pairs)
        parts["guard"], changed = judged.seconds * answers, judged.changed
    if "scorer" in audit.others and pairs:
        # A replay has the verdicts on the answers, not those on what another guard shows.
        texts = answers * changed + (0 if replay else others["scorer"]["calls"])
        parts["scorer"] = timing.scorer_speed(audit.others["scorer"].name, pairs) * texts
    local = {} if replay or model is None else {"local model": (model, audit.sending, counted)}
    if replay is None and "analyst" in audit.others:
        analyst = audit.others["analyst"]
        local["local analyst"] = (
            analyst.name,
            analyst.sending,
            _counted_requests(audit, analyst.name, "analyst"),
        )
    for part, (name, sending, requests) in local.items():
        if not name.startswith(LOCAL):
            continue
        seconds = timing.local_speed(name, sending, requests.few, requests.answer)
        if isinstance(seconds, str):
            notes.append(f"The time of {name} is not known: {seconds}")
        else:
            parts[part] = seconds * requests.calls
    return parts, notes


def detectable_worsening(audit: Audit) -> float:
    """Return the least worsening of a share over all items that a comparison of two runs detects.

    It is :meth:`guard.results.paired.Pairs.detectable` for runs of these items and clusters that
    differ in CHANGE of the answers, at random places and half of them for the worse. Inf where it
    is more than a share can worsen, nan with too few clusters.
    """
    items = audit.items
    axes = 1 + sum(measure.ideal is not None for measure in audit.suite.measures(()))
    order = np.random.default_rng(audit.seed).permutation(len(items))
    changed = order[: 2 * round(CHANGE * len(items) / 2)]
    base, new = np.zeros((2, len(items), 2))
    base[:, 1] = new[:, 1] = 1.0
    base[changed[::2], 0] = new[changed[1::2], 0] = 1.0
    pairs = Pairs(base, new, [item.cluster for item in items], share, SHARE)
    least = pairs.detectable(DEFAULT_FRACTION, ALPHA / axes)
    return math.inf if least > 1 else least


def _calls_of(audit: Audit, role: Role, other: Other) -> Mapping[str, Any]:
    """Return, as JSON, the calls of another role than the audited model's."""
    name = other.name
    counted = _counted_requests(audit, name, role)
    # Only the answers decide how many further calls an analyst gets.
    unbounded = role == "analyst" and has_follow_ups(audit.suite)
    return {
        "model": name,
        **endpoint_of(role, other).as_json(),
        "settings": dict(counted.settings),
        "left_out": dict(other.sending.left_out),
        "calls": counted.calls,
        "prompt_tokens_estimate": _rounded_number(counted.prompts),
        "answer_tokens_estimate": _rounded_number(counted.answers),
        "cost_usd_estimate": json_number(counted.cost(name)),
        "cost_usd_at_most": None if unbounded else json_number(counted.cost_at_most(name)),
    }


def _known_capabilities(model: str, sending: Sending) -> frozenset[Capability]:
    """Return the capabilities of ``model`` that are known without a call."""
    if model.startswith(LOCAL):
        return frozenset({"chat", "logprobs", "given_logprobs", "patching"})
    return frozenset({"chat", "logprobs"} if may_give_logprobs(model, sending) else {"chat"})


def _counted_requests(audit: Audit, model: str | None, role: Role = "model") -> _Counted:
    """Count the requests to ``role``, assuming that an analyst reads the whole answers."""
    total = _Counted()
    seen: set[bytes] = set()
    rng = random.Random(audit.seed)
    longest = longest_answer(model)
    sending = audit.sending if role == "model" else audit.others[role].sending
    assumed = ASSUMED_ANSWER if model is None else assumed_answer(model, sending.given)
    for item, sample in item_samples(audit.items):
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
            total.turns[turn] += 1
            limit = answer_limit(request)
            most = longest if math.isnan(limit) else limit
            # The texts that other roles read are not known yet, but they will differ.
            new = answer_varies(request) or role != "model"
            if not new:
                key = bytes.fromhex(key_of(request, item, sample, turn))
                new = key not in seen
                seen.add(key)
            if new:
                total.calls += 1
                if isinstance(request, Judge | GroupTexts):
                    continue  # not read by a language model
                total.prompts_at_most += prompt_bytes(request) + before
                total.read += read
                if isinstance(request, Chat):
                    total.chats += 1
                    total.settings = total.settings or request.settings
                    total.answers += assumed if math.isnan(limit) else min(assumed, limit)
                    total.answers_at_most += most
                few = total.few
                # Reservoir sampling: each call has the same chance to be among the few.
                if len(few) < _COUNTED:
                    few.append(request)
                elif (place := rng.randrange(total.calls)) < _COUNTED:
                    few[place] = request
            before += most
    total.prompts_at_most += len(sending.system.encode()) * total.chats
    if few := total.few:
        each = sum(_prompt_tokens(one, sending, model) for one in few) / len(few)
        total.prompts = each * total.calls + total.read
    return total


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


def _rounded_number(value: float) -> float | int | None:
    return json_number(value if math.isnan(value) else float(round(value)))


def show_plans(console: Console, plans: Sequence[Plan]) -> None:
    """Print the plans as tables."""
    for plan_ in plans:
        suite = plan_.audit.suite
        model_text = plan_.model or (
            f"replay of {plan_.replayed}" if plan_.replayed else "no model given"
        )
        title = f"{suite.name} {suite.version} · {model_text}"
        table = Table(title, [Column(""), Column("")], [list(row) for row in _plan_rows(plan_)])
        console.print(table.rich("listed"))
        for note in plan_.notes:
            console.print(note, markup=False)
        for category, row in plan_.counts.items():
            counts = ", ".join(f"{name} {n:,}" for name, n in row.items())
            console.print(f"  {category}: {counts}")


def _plan_rows(shown_plan: Plan) -> Iterator[tuple[str, str]]:
    facts, counted, sampling = shown_plan.as_json(), shown_plan.counted, shown_plan.audit.sampling
    kind, shard = "quick run" if "preset" in sampling else "sample", shown_plan.audit.shard
    drawn = [] if shard is None else [shard.words]
    drawn += [f"a {kind}, seed {sampling['seed']}"] if sampling else []
    yield "items", f"{facts['items']:,}" + (f" ({', '.join(drawn)})" if drawn else "")
    yield "samples", f"{facts['samples']:,} in {facts['clusters']:,} clusters"
    by_turn = ", ".join(f"turn {turn}: {n:,}" for turn, n in facts["requests_by_turn"].items())
    yield "requests", f"{facts['requests']:,} ({by_turn})"
    recorded = ", all of them recorded" if shown_plan.replayed else ""
    yield "calls", f"{shown_plan.calls:,}, equal requests asked once{recorded}"
    other = shown_plan.without_logprobs
    if shown_plan.probes:
        without = "" if other is None else f"; without them {other.calls:,} calls"
        yield "probes", f"{shown_plan.probes}, for log-probabilities{without}"
    yield "calls asked again if a run is killed", f"{shown_plan.concurrency:,} at most"
    yield "prompt tokens", f"about {counted.prompts:,.0f} (estimated from a sample)"
    bound = _bound_text(facts["answer_tokens_at_most"])
    yield "answer tokens", f"about {counted.answers:,.0f}, {bound}"
    if (cost := facts["cost_usd_estimate"]) is None:
        yield "cost", "LiteLLM has no price"
    else:
        yield "cost", f"about ${cost:,.2f}, {_bound_text(facts['cost_usd_at_most'], '$', 2)}"
    if shard is None:
        yield "against a baseline", _detectable_text(shown_plan.detectable)
    if shown_plan.model is not None:
        yield "asked at", str(endpoint(shown_plan.model, shown_plan.audit.sending))
    settings, without_logprobs = (
        _settings_text(facts[key]) for key in ("settings", "settings_without_logprobs")
    )
    if without_logprobs:
        settings += f" for log-probabilities; without them {without_logprobs}"
    if settings:
        yield "settings", settings
    for role, calls in shown_plan.others.items():
        cost = calls["cost_usd_estimate"]
        priced = "no price" if cost is None else f"about ${cost:,.2f}"
        where = endpoint_of(role, shown_plan.audit.others[role])
        yield role, f"{calls['model']}: {where}; {calls['calls']:,} calls, {priced}"
        if calls["settings"]:
            yield f"{role}'s settings", _settings_text(calls["settings"])
    if shown_plan.rate is not None:
        rate_s = duration_text(shown_plan.projection.rate_s)
        yield "provider's rate", f"{rate_s} at {shown_plan.rate:g} calls a minute"
    if not shown_plan.replayed:
        yield "what limits it", ADVICE[shown_plan.projection.bottleneck]
    at_most = shown_plan.assumes_longest_answers and shown_plan.seconds > shown_plan.parts[CALLS]
    yield "wall time", f"{'at most ' if at_most else ''}about {duration_text(shown_plan.seconds)}"
    assumed = f"at {shown_plan.concurrency} at a time and {shown_plan.latency_s:g} s a call"
    parts = (
        [f"calls {duration_text(shown_plan.parts[CALLS])} {assumed}"]
        if shown_plan.parts[CALLS]
        else []
    )
    for part, seconds in shown_plan.parts.items():
        if part != CALLS:
            most = " at most" if shown_plan.assumes_longest_answers and part in _BY_LENGTH else ""
            parts.append(f"{part} {duration_text(seconds)}{most}")
    if not shown_plan.replayed and any(part in _BY_LENGTH for part in shown_plan.parts):
        if shown_plan.assumes_longest_answers:
            assumed = "at most: if every answer is as long as its limit"
        else:
            assumed = f"if an answer has {counted.answer:,.0f} tokens"
        parts.append(f"{assumed}; a word takes far less")
    yield "of it", "; ".join(parts)


def _settings_text(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items())


def _detectable_text(least: float | None) -> str:
    if least is None:
        return "needs scipy"
    if math.isnan(least):
        return "nothing can be detected: too few clusters"
    if math.isinf(least):
        return "nothing can be detected: too few items, even for a share that falls from 1 to 0"
    return (
        f"a share that is worse by {least:.2f} would be found in four of five comparisons, if "
        f"{CHANGE:.0%} of the answers change by chance"
    )


def _bound_text(value: float | None, unit: str = "", digits: int = 0) -> str:
    return "no bound known" if value is None else f"{unit}{value:,.{digits}f} at most"
