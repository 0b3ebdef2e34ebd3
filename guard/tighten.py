"""Whether a policy is at least as strict as another, so that a proxy's request may ask for it.

A policy is stricter if no text goes out under it that the other would have stopped, replaced or
flagged. Settings without such an order must stay as the owner set them; the messages and the
replacement text may be chosen freely.
Why: docs/decisions/loosening-is-refused.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, get_args

from guard.config import policy_from
from guard.errors import ConfigError
from guard.policy import Points, Policy
from guard.verdict import BIAS_TYPES, ChannelKind

_CHANNELS: tuple[ChannelKind, ...] = get_args(ChannelKind)
_LANGUAGES = {"pass": 0, "judge": 1, "stop": 2}
_ACTIONS = {"flag": 1, "redact": 2, "rewrite": 3, "terminate": 4, "raise": 4}
_HOLDS = {"none": 0, "association": 1, "sentence": 2}
# Settings that are compared by their effect, below.
_ORDERED = {
    *("operating_point", "threshold", "thresholds", "action", "actions", "scope"),
    *("hold", "failure", "language", "timeout_ms", "queue_ms", "labels"),
    *("second_look", "second_look_threshold", "second_look_ms"),
}
_FREE = {"message", "failure_message", "replacement"}


def tightened_policy(
    base: Policy, values: Mapping[str, Any], points: Points, *, where: str
) -> Policy:
    """Return ``base`` with ``values`` overriding its own; they must not loosen it.

    ``points`` are the detector's thresholds at each operating point. Raises ConfigError, in one
    sentence that names ``where``, for invalid values and for values that would loosen the policy.
    """
    asked = policy_from(values, base=base, where=where)
    try:
        loose = loosened_settings(base, asked, points)
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


def loosened_settings(base: Policy, asked: Policy, points: Points) -> list[str]:
    """Return the settings in which ``asked`` is looser than ``base`` or not comparable.

    The list is empty if ``asked`` is at least as strict:

    - *threshold*: for no bias type above the base's, the operating point's included;
    - *action*, for each bias type in each channel: flag < redact < rewrite < terminate = raise;
    - *scope*: choice < response (``raise`` always ends the response);
    - *hold*: none < association < sentence;
    - *failure*: open < closed;
    - *language*: pass < judge < stop. What is judged may pass, and is stopped if found biased or
      not judged; with ``hold="none"`` nothing is stopped, and stop is as pass;
    - *timeout_ms* and *queue_ms*: not longer if both stop on a late verdict, not shorter if both
      let it pass;
    - *second_look*: on < off; its threshold and its limit of time are not higher;
    - *labels*: the owner's stay, others may be added;
    - every other setting except the texts: equal.
    """
    loose = [
        f"the threshold of {bias_type}"
        for bias_type in BIAS_TYPES
        if asked.threshold_for(bias_type, points) > base.threshold_for(bias_type, points)
    ]
    if _HOLDS[asked.hold] < _HOLDS[base.hold]:
        loose.append("hold")
        # Report hold only: hold='none' would loosen every action, too.
        asked = asked.model_copy(update={"hold": base.hold})
    places = [(t, c) for t in BIAS_TYPES for c in _CHANNELS]
    if any(_ACTIONS[asked.action_for(*p)] < _ACTIONS[base.action_for(*p)] for p in places):
        loose.append("action")
    if _stops_of_whole_response(base) - _stops_of_whole_response(asked):
        loose.append("scope")
    if base.stops_unjudged("failure") and not asked.stops_unjudged("failure"):
        loose.append("failure")
    if _language_strictness(asked) < _language_strictness(base):
        loose.append("language")
    loose += [name for name in ("timeout_ms", "queue_ms") if _passes_late_text(base, asked, name)]
    loose += _looser_second_look(base, asked)
    if not base.labels.items() <= asked.labels.items():
        loose.append("labels")
    owners = [name for name in Policy.model_fields if name not in _ORDERED | _FREE]
    return loose + [name for name in owners if getattr(asked, name) != getattr(base, name)]


def _language_strictness(policy: Policy) -> int:
    """Return how strict a policy is with text outside the detector's languages."""
    in_effect = policy.language
    if policy.hold == "none" and in_effect == "stop":
        in_effect = "pass"
    return _LANGUAGES[in_effect]


def _stops_of_whole_response(policy: Policy) -> set[tuple[str, ChannelKind]]:
    """Return where a stop ends the whole response: (bias type, or "" for unjudged; channel)."""
    if policy.hold == "none":
        return set()
    actions = [((str(t), c), policy.action_for(t, c)) for t in BIAS_TYPES for c in _CHANNELS]
    actions += [(("", c), policy.actions.get(c, policy.action)) for c in _CHANNELS]
    return {p for p, action in actions if policy.scope == "response" or action == "raise"}


def _passes_late_text(base: Policy, asked: Policy, limit: str) -> bool:
    before, after = (_or_infinity(getattr(policy, limit)) for policy in (base, asked))
    if base.stops_unjudged("failure"):
        return asked.stops_unjudged("failure") and after > before
    return not asked.stops_unjudged("failure") and after < before


def _looser_second_look(base: Policy, asked: Policy) -> list[str]:
    """Return the settings by which a second look takes more findings back."""
    if not asked.second_look:
        return []
    if not base.second_look:
        return ["second_look"]
    limits = ("second_look_threshold", "second_look_ms")
    return [n for n in limits if _or_infinity(getattr(asked, n)) > _or_infinity(getattr(base, n))]


def _or_infinity(limit: float | None) -> float:
    return math.inf if limit is None else limit
