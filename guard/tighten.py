"""Which policy is at least as strict as another: what a request may ask of a guard not its own.

Strict is meant by what gets out: under the stricter policy no text goes out that the other would
have stopped, replaced or marked. What cannot be ordered so stays as the owner set it; the texts
that stand in for the model's may be chosen freely.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, get_args

from guard.config import policy_from
from guard.errors import ConfigError
from guard.policy import Policy
from guard.verdict import BIAS_TYPES, BiasType, ChannelKind, Unjudged

Points = Mapping[str, Mapping[BiasType, float]]

_CHANNELS: tuple[ChannelKind, ...] = get_args(ChannelKind)
_REASONS: Mapping[str, Unjudged] = {"failure": "failure", "language": "language"}
_ACTIONS = {"flag": 1, "redact": 2, "rewrite": 3, "terminate": 4, "raise": 4}
_HOLDS = {"none": 0, "association": 1, "sentence": 2}
# Told by what they do, below.
_ORDERED = {
    *("operating_point", "threshold", "thresholds", "action", "actions", "scope"),
    *("hold", "failure", "language", "timeout_ms", "queue_ms", "labels"),
}
_FREE = {"message", "failure_message", "replacement"}


def tightened(base: Policy, values: Mapping[str, Any], points: Points, *, where: str) -> Policy:
    """Return ``base`` with ``values`` in place of its own, which must not loosen it.

    ``points`` are the detector's thresholds at each operating point. Raises ConfigError, in one
    sentence that names ``where``, for values that cannot be used and for those that would loosen.
    """
    asked = policy_from(values, base=base, where=where)
    try:
        loose = loosened(base, asked, points)
    except KeyError:
        raise ConfigError(
            f"{where}: the detector has no operating point {asked.operating_point!r}; it has "
            f"{', '.join(points)}."
        ) from None
    if loose:
        raise ConfigError(
            f"{where}: a request can only tighten the policy, and this would loosen "
            f"{', '.join(loose)}; have the key or the team allow it."
        )
    return asked


def loosened(base: Policy, asked: Policy, points: Points) -> list[str]:
    """Return what ``asked`` is looser in than ``base``, or not to be compared by.

    Nothing, where it is at least as strict:

    - *threshold*: for no bias type above the one in force, the operating point's included;
    - *action*, for each bias type in each channel: flag < redact < rewrite < terminate = raise;
    - *scope*: choice < response, which ``raise`` always is;
    - *hold*: none < association < sentence;
    - *failure*: open < closed, and *language*: pass < stop;
    - *timeout_ms* and *queue_ms*: no longer where both stop on a late verdict, no shorter where
      both let it pass;
    - *labels*: the owner's stay, others may stand beside them;
    - every other setting but the texts: the same.
    """
    loose = [
        f"the threshold of {bias_type}"
        for bias_type in BIAS_TYPES
        if asked.threshold_for(bias_type, points) > base.threshold_for(bias_type, points)
    ]
    if _HOLDS[asked.hold] < _HOLDS[base.hold]:
        loose.append("hold")
        # Told by its own name: hold='none' would loosen every action with it.
        asked = asked.model_copy(update={"hold": base.hold})
    places = [(t, c) for t in BIAS_TYPES for c in _CHANNELS]
    if any(_ACTIONS[asked.action_for(*p)] < _ACTIONS[base.action_for(*p)] for p in places):
        loose.append("action")
    if _ending_all(base) - _ending_all(asked):
        loose.append("scope")
    loose += [
        name
        for name, reason in _REASONS.items()
        if base.stops_unjudged(reason) and not asked.stops_unjudged(reason)
    ]
    loose += [name for name in ("timeout_ms", "queue_ms") if _lets_late_text_out(base, asked, name)]
    if not base.labels.items() <= asked.labels.items():
        loose.append("labels")
    owners = [name for name in Policy.model_fields if name not in _ORDERED | _FREE]
    return loose + [name for name in owners if getattr(asked, name) != getattr(base, name)]


def _ending_all(policy: Policy) -> set[tuple[str, ChannelKind]]:
    """Return where a stop ends the whole response: type and channel, no type for text unjudged."""
    if policy.hold == "none":
        return set()
    actions = [((str(t), c), policy.action_for(t, c)) for t in BIAS_TYPES for c in _CHANNELS]
    actions += [(("", c), policy.actions.get(c, policy.action)) for c in _CHANNELS]
    return {p for p, action in actions if policy.scope == "response" or action == "raise"}


def _lets_late_text_out(base: Policy, asked: Policy, limit: str) -> bool:
    before, after = (_or_for_ever(getattr(policy, limit)) for policy in (base, asked))
    if base.stops_unjudged("failure"):
        return asked.stops_unjudged("failure") and after > before
    return not asked.stops_unjudged("failure") and after < before


def _or_for_ever(limit: float | None) -> float:
    return math.inf if limit is None else limit
