"""What is kept of a decision and of a response, as rows of the store.

The threads that read responses only queue what they have (:class:`Decided`, :class:`Ended`); the
writer's thread makes rows of it.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
from collections.abc import Callable
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from guard.mentions import lexicon
from guard.policy import Policy
from guard.verdict import Attribution, Channel, Decision, GuardTrail, Verdict

if TYPE_CHECKING:
    from guard.doors.session import DoorSession, Outcome

KeepText = Literal["never", "hash", "redacted", "full"]
Row = dict[str, Any]

_log = logging.getLogger("guard")
_random = SystemRandom().random  # which an application's random.seed() leaves as it is
_MOST = 200  # characters of a name, an id, a group or an attribute
_TIED = re.compile(r"\W+")
# Words that join those of a group's name, and no part of the lists.
_JOINING = frozenset("a an and from in of or s the who with without".split())
_MARKS = (
    ("[link]", re.compile(r"\b(?:https?://|www\.)\S+", re.IGNORECASE)),
    ("[address]", re.compile(r"[^\s@]+@[^\s@]+\.\w+")),
    ("[handle]", re.compile(r"(?<!\w)@\w+")),
    ("[number]", re.compile(r"\d(?:[\d .,/()+-]*\d)?")),
)


class Asked(NamedTuple):
    """What is known of a response from its beginning."""

    id: str
    door: str
    model: str | None
    request_id: str | None
    policy: Policy


class Decided(NamedTuple):
    """A decision as it is queued."""

    asked: Asked
    number: int
    decision: Decision
    text: str | None
    keep_text: KeepText
    text_share: float | None


class Ended(NamedTuple):
    """The end of a response as it is queued."""

    asked: Asked
    time: float
    summary: Row


class Queue(Protocol):
    """What takes events; it neither blocks nor raises."""

    on_drop: set[Callable[[int], None]]
    """Called with the number of items that are dropped; also by the garbage collector."""

    def put(self, item: Decided | Ended) -> None:
        """Take ``item``, or count it as dropped."""
        ...


class Events:
    """The recorder of a guard: queues an event for each decision, a summary for each response."""

    def __init__(self, writer: Queue, keep_text: KeepText, review_share: float = 0.0) -> None:
        self.writer = writer
        self.keep_text = keep_text
        self._review_share = review_share

    def decided(
        self, session: DoorSession, trail: GuardTrail, decision: Decision, text: str
    ) -> None:
        """Queue the last decision of ``trail``."""
        try:
            share = self._text_share(decision)
            # Of most decisions there is nothing to draw.
            drawn = share is not None and (share >= 1 or _random() < share)
            keeps = self.keep_text == "hash" or drawn
            kept = text if keeps else None
            number = len(trail.decisions) - 1
            item = Decided(_asked(session, trail), number, decision, kept, self.keep_text, share)
            self.writer.put(item)
        except Exception as error:
            _log.error("an event was lost: %s", type(error).__name__)

    def ended(self, session: DoorSession, trail: GuardTrail, outcome: Outcome) -> None:
        """Queue the summary of a response on which anything was decided."""
        try:
            first = trail.decisions[0].time if trail.decisions else None
            if first is not None:
                summary = {**summary_of(trail), "outcome": outcome}
                self.writer.put(Ended(_asked(session, trail), first.timestamp(), summary))
        except Exception as error:
            _log.error("an event was lost: %s", type(error).__name__)

    def report_drops(self, report: Callable[[int], None]) -> None:
        """Have ``report`` called with the number of events that are dropped from now on."""
        self.writer.on_drop.add(report)

    def _text_share(self, decision: Decision) -> float | None:
        """Return with what probability the text of such a decision is kept to be read."""
        if self.keep_text == "full" or (self.keep_text == "redacted" and decision.verdict.biased):
            return 1.0
        reviewed = self._review_share and decision.verdict.unjudged is None
        return self._review_share if reviewed else None


def _asked(session: DoorSession, trail: GuardTrail) -> Asked:
    return Asked(trail.id, session.door, session.model, session.request_id, session.policy)


def summary_of(trail: GuardTrail) -> Row:
    """Return what was decided on a response, in counts.

    ``judged`` and ``unjudged`` count decisions; ``found`` those that found bias, each finding once,
    and ``mitigated`` those among them that kept it from the user. Characters are as the provider
    sent them; withheld are those of segments that an action took out.
    """
    judged = [d for d in trail if d.verdict.unjudged is None]
    found = [d for d in judged if d.verdict.biased and d.counted]
    withheld = [d for d in trail if d.action not in ("pass", "flag")]
    return {
        "judged": len(judged),
        "passed": sum(d.action == "pass" for d in judged),
        "found": len(found),
        "mitigated": sum(d.action != "flag" for d in found),
        "unjudged": len(trail) - len(judged),
        "rewrites": trail.rewrites,
        "characters_seen": _characters(trail.decisions),
        "characters_withheld": _characters(withheld),
        "judging_ms": sum(d.verdict.elapsed_ms for d in trail),
    }


def _characters(decisions: list[Decision]) -> int:
    """Return how many characters lie in the decisions' segments, those in two of them once."""
    total, ends = 0, dict[Channel, int]()
    for decision in decisions:
        start, end = decision.span
        known = ends.get(decision.channel, 0)
        if end <= known and start == 0:  # an answer that goes on begins anew
            known = 0
        total += max(end - max(start, known), 0)
        ends[decision.channel] = max(end, known)
    return total


def response_row(asked: Asked, time: float, verdict: Verdict | None = None) -> Row:
    """Return the row of a response that still runs."""
    return {
        "id": asked.id,
        "time": time,
        "door": asked.door,
        "model": bounded(asked.model),
        "request_id": bounded(asked.request_id),
        "settings": settings_hash(asked.policy),
        "detector": bounded(verdict.detector) if verdict else None,
        "index_version": bounded(verdict.index_version) if verdict else None,
        "labels": {clean(k): clean(v) for k, v in asked.policy.labels.items()},
        "outcome": "running",
    }


def event_row(item: Decided, key: bytes) -> Row:
    """Return the row of a decision; ``key`` is what texts are hashed with in this store."""
    decision, verdict = item.decision, item.decision.verdict
    pair = verdict.attributions[0] if verdict.attributions else None
    group, attribute = _names(pair, verdict, item.keep_text, key)
    assert decision.time is not None  # the session stamps it
    return {
        "response_id": item.asked.id,
        "number": item.number,
        "time": decision.time.timestamp(),
        "action": decision.action,
        "unjudged": verdict.unjudged,
        "bias_type": verdict.bias_type,
        "group_name": group,
        "attribute_name": attribute,
        "score": verdict.score,
        "threshold": verdict.threshold,
        "counted": decision.counted,
        "channel": decision.channel.kind,
        "choice": decision.channel.choice,
        "tool": decision.channel.tool,
        "start": decision.span.start,
        "end": decision.span.end,
        "judging_ms": verdict.elapsed_ms,
        "text": None if item.text is None else _kept(item.text, item.keep_text, key),
        "text_share": item.text_share,
        "index_references": references(verdict) if verdict.biased else None,
    }


def references(verdict: Verdict) -> list[Row]:
    """Return what is kept of the statements that resemble a segment: of the index, not of the text.

    The statement itself is named by :func:`statement_id`.
    """
    return [
        {
            "statement": statement_id(reference.statement),
            "bias_type": reference.bias_type,
            "group": bounded(reference.group),
            "attribute": bounded(reference.attribute),
            "similarity": round(float(reference.similarity), 4),
        }
        for reference in verdict.references
    ]


def statement_id(statement: str) -> str:
    """Return 16 hexadecimal digits that name a statement of an index."""
    return hashlib.sha256(statement.encode("utf-8", "replace")).hexdigest()[:16]


def _names(
    pair: Attribution | None, verdict: Verdict, keep_text: KeepText, key: bytes
) -> tuple[str | None, str | None]:
    """Return group and attribute as they may be kept.

    Without leave to keep text that is what a list of guard's own holds, else a hash: the model may
    have said anything.
    """
    if pair is None:
        return None, None
    group, attribute = _plain(pair.group), _plain(pair.attribute)
    if keep_text == "redacted":
        return bounded(_marked(group)), bounded(_marked(attribute))
    if keep_text == "full":
        return bounded(group), bounded(attribute)
    groups = {_plain(reference.group) for reference in verdict.references}
    attributes = {_plain(reference.attribute) for reference in verdict.references}
    return (
        group if group in groups or _listed(group) else hashed(group, key),
        attribute if attribute in attributes else hashed(attribute, key),
    )


def _listed(group: str) -> bool:
    """Whether a group's name is made of words of guard's own list of groups alone."""
    words = [word for word in _TIED.split(group) if word and word not in _JOINING]
    return bool(words) and len(group) <= _MOST and all(lexicon().kinds(word) for word in words)


def _kept(text: str, keep_text: KeepText, key: bytes) -> str:
    if keep_text == "hash":
        return hashed(text, key)
    return clean(_marked(text) if keep_text == "redacted" else text)


def _marked(text: str) -> str:
    for mark, pattern in _MARKS:
        text = pattern.sub(mark, text)
    return text


def hashed(text: str, key: bytes) -> str:
    """Return a name for ``text`` that tells equal texts of one store, and nothing to others."""
    return f"hmac:{hmac.new(key, text.encode('utf-8', 'replace'), hashlib.sha256).hexdigest()[:24]}"


def bounded(text: str | None) -> str | None:
    """Return a name or an id as it is kept: one that is too long by its beginning and a hash."""
    if text is None:
        return None
    if len(text) <= _MOST:
        return clean(text)
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
    return f"{clean(text[: _MOST - 30])}… sha256:{digest}"


def clean(text: str) -> str:
    """Return ``text`` without what a database cannot hold: null characters, lone surrogates."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


class _Known(NamedTuple):
    policy: Policy
    hash: str


_hashes: dict[int, _Known] = {}


def settings_hash(policy: Policy) -> str:
    """Return 16 hexadecimal digits that tell policies apart, their labels left out."""
    known = _hashes.get(id(policy))
    if known is not None:
        return known.hash
    text = policy.model_copy(update={"labels": {}}).model_dump_json()
    found = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
    if len(_hashes) > 256:
        _hashes.clear()
    _hashes[id(policy)] = _Known(policy, found)  # which keeps the policy, and so its id
    return found


def settings_row(policy: Policy) -> Row:
    """Return the row that says what a hash of settings stands for."""
    told = policy.model_copy(update={"labels": {}}).model_dump(mode="json")
    return {"hash": settings_hash(policy), "policy": told}
