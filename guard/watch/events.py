"""Events of decisions and summaries of responses, as rows of the store.

The threads that read responses only queue items (:class:`Decided`, :class:`Ended`); the writer's
thread turns them into rows.
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
_random = SystemRandom().random  # independent of an application's random.seed()
_MAX_CHARS = 200  # of a name, an id, a group or an attribute
_NOT_WORD = re.compile(r"\W+")
# Function words in a group's name, which guard's lists do not hold.
_FUNCTION_WORDS = frozenset("a an and from in of or s the who with without".split())
_REDACTED = (
    ("[link]", re.compile(r"\b(?:https?://|www\.)\S+", re.IGNORECASE)),
    ("[address]", re.compile(r"[^\s@]+@[^\s@]+\.\w+")),
    ("[handle]", re.compile(r"(?<!\w)@\w+")),
    ("[number]", re.compile(r"\d(?:[\d .,/()+-]*\d)?")),
)


class ResponseStart(NamedTuple):
    """What is known when a response begins."""

    id: str
    door: str
    model: str | None
    request_id: str | None
    policy: Policy


class Decided(NamedTuple):
    """A queued decision, the ``number``-th of its response.

    ``text`` is the segment's, None if it is not kept; ``text_share`` is the probability with which
    the text of such a decision is kept for people to read, None if it never is.
    """

    response: ResponseStart
    number: int
    decision: Decision
    text: str | None
    keep_text: KeepText
    text_share: float | None


class Ended(NamedTuple):
    """The queued end of a response that began at ``time``, seconds since 1970."""

    response: ResponseStart
    time: float
    summary: Row


class Queue(Protocol):
    """A queue of events; ``put`` neither blocks nor raises."""

    on_drop: set[Callable[[int], None]]
    """Called with the number of items dropped; the garbage collector may be the caller."""

    def put(self, item: Decided | Ended) -> None:
        """Queue ``item``, or count it as dropped."""
        ...


class Events:
    """The recorder that queues an event for each decision and a summary for each response."""

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
            # Random numbers cost time: most decisions need none.
            sampled = share is not None and (share >= 1 or _random() < share)
            queued_text = text if sampled or self.keep_text == "hash" else None
            number = len(trail.decisions) - 1
            item = Decided(
                _start(session, trail), number, decision, queued_text, self.keep_text, share
            )
            self.writer.put(item)
        except Exception as error:
            _log.error("an event was lost: %s", type(error).__name__)

    def ended(self, session: DoorSession, trail: GuardTrail, outcome: Outcome) -> None:
        """Queue the summary of a response on which anything was decided."""
        try:
            first = trail.decisions[0].time if trail.decisions else None
            if first is not None:
                summary = {**summary_of(trail), "outcome": outcome}
                self.writer.put(Ended(_start(session, trail), first.timestamp(), summary))
        except Exception as error:
            _log.error("an event was lost: %s", type(error).__name__)

    def report_drops(self, report: Callable[[int], None]) -> None:
        """Call ``report`` with the number of events whenever some are dropped."""
        self.writer.on_drop.add(report)

    def _text_share(self, decision: Decision) -> float | None:
        """Return the probability with which the text of ``decision`` is kept for people to read."""
        if self.keep_text == "full" or (self.keep_text == "redacted" and decision.verdict.biased):
            return 1.0
        reviewable = self._review_share and decision.verdict.unjudged is None
        return self._review_share if reviewable else None


def _start(session: DoorSession, trail: GuardTrail) -> ResponseStart:
    return ResponseStart(trail.id, session.door, session.model, session.request_id, session.policy)


def summary_of(trail: GuardTrail) -> Row:
    """Return the counts of a response.

    ``judged`` and ``unjudged`` count decisions; ``found`` counts findings, each once, and
    ``mitigated`` the findings that did not reach the user. Characters are those that the provider
    sent; withheld are those of segments that were not released. ``judging_ms`` is in milliseconds.
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
    """Return the number of characters in the decisions' segments; overlaps count once."""
    total, ends = 0, dict[Channel, int]()
    for decision in decisions:
        start, end = decision.span
        counted_to = ends.get(decision.channel, 0)
        if end <= counted_to and start == 0:  # a continued answer starts again at 0
            counted_to = 0
        total += max(end - max(start, counted_to), 0)
        ends[decision.channel] = max(end, counted_to)
    return total


def response_row(start: ResponseStart, time: float, verdict: Verdict | None = None) -> Row:
    """Return the row of a running response that began at ``time``, seconds since 1970."""
    return {
        "id": start.id,
        "time": time,
        "door": start.door,
        "model": bounded(start.model),
        "request_id": bounded(start.request_id),
        "settings": settings_hash(start.policy),
        "detector": bounded(verdict.detector) if verdict else None,
        "index_version": bounded(verdict.index_version) if verdict else None,
        "labels": {clean(k): bounded(v) for k, v in start.policy.labels.items()},
        "outcome": "running",
    }


def verdict_label(verdict: Verdict) -> str:
    """Return "biased", "unbiased" or "unjudged"."""
    if verdict.unjudged is not None:
        return "unjudged"
    return "biased" if verdict.biased else "unbiased"


def event_row(item: Decided, key: bytes) -> Row:
    """Return the row of a decision; ``key`` is the store's key for hashes."""
    decision, verdict = item.decision, item.decision.verdict
    pair = verdict.attributions[0] if verdict.attributions else None
    group, attribute = _names(pair, verdict, item.keep_text, key)
    assert decision.time is not None  # the session stamps it
    return {
        "response_id": item.response.id,
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
        "choice": _stored(decision.channel.choice),
        "tool": _stored(decision.channel.tool),
        "start": _stored(decision.span.start),
        "end": _stored(decision.span.end),
        "judging_ms": verdict.elapsed_ms,
        "text": None if item.text is None else _stored_text(item.text, item.keep_text, key),
        "text_share": item.text_share,
        "index_references": references(verdict) if verdict.biased else None,
    }


def _stored(number: int) -> int:
    """Return a number that an INTEGER column holds; a provider may send any as an index."""
    return max(-(2**31), min(number, 2**31 - 1))


def references(verdict: Verdict) -> list[Row]:
    """Return the references of a verdict as rows, each statement by its :func:`statement_id`.

    They hold values of the index only, nothing of the judged text.
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
    """Return the first 16 hexadecimal digits of a statement's SHA-256."""
    return hashlib.sha256(statement.encode("utf-8", "replace")).hexdigest()[:16]


def _names(
    pair: Attribution | None, verdict: Verdict, keep_text: KeepText, key: bytes
) -> tuple[str | None, str | None]:
    """Return group and attribute in the form that ``keep_text`` allows.

    If no text may be kept, a name is stored only if it is in guard's own lists, else as a hash: the
    model may have written anything.
    """
    if pair is None:
        return None, None
    group, attribute = normalised(pair.group), normalised(pair.attribute)
    if keep_text == "redacted":
        return bounded(_redacted(group)), bounded(_redacted(attribute))
    if keep_text == "full":
        return bounded(group), bounded(attribute)
    groups = {normalised(reference.group) for reference in verdict.references}
    attributes = {normalised(reference.attribute) for reference in verdict.references}
    return (
        group if group in groups or _listed(group) else hashed(group, key),
        attribute if attribute in attributes else hashed(attribute, key),
    )


def _listed(group: str) -> bool:
    """Whether every word of a group's name is in guard's own list of groups."""
    words = [word for word in _NOT_WORD.split(group) if word and word not in _FUNCTION_WORDS]
    return bool(words) and len(group) <= _MAX_CHARS and all(lexicon().kinds(word) for word in words)


def _stored_text(text: str, keep_text: KeepText, key: bytes) -> str:
    if keep_text == "hash":
        return hashed(text, key)
    return clean(_redacted(text) if keep_text == "redacted" else text)


def _redacted(text: str) -> str:
    for placeholder, pattern in _REDACTED:
        text = pattern.sub(placeholder, text)
    return text


def hashed(text: str, key: bytes) -> str:
    """Return the HMAC-SHA-256 of ``text``, cut to 24 hexadecimal digits.

    Equal texts under one key have equal hashes.
    """
    return f"hmac:{hmac.new(key, text.encode('utf-8', 'replace'), hashlib.sha256).hexdigest()[:24]}"


def bounded(text: str | None) -> str | None:
    """Return a name or an id as stored; a long one is cut and ends with its hash."""
    if text is None:
        return None
    if len(text) <= _MAX_CHARS:
        return clean(text)
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
    return f"{clean(text[: _MAX_CHARS - 30])}… sha256:{digest}"


def clean(text: str) -> str:
    """Return ``text`` without what a database cannot hold: null characters, lone surrogates."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def normalised(text: str) -> str:
    """Return a name in lower case with single spaces."""
    return " ".join(text.split()).casefold()


class _Hashed(NamedTuple):
    policy: Policy
    hash: str


_hashes: dict[int, _Hashed] = {}


def settings_hash(policy: Policy) -> str:
    """Return the first 16 hexadecimal digits of a policy's SHA-256, labels left out."""
    known = _hashes.get(id(policy))
    if known is not None:
        return known.hash
    text = policy.model_copy(update={"labels": {}}).model_dump_json()
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
    if len(_hashes) > 256:
        _hashes.clear()
    _hashes[id(policy)] = _Hashed(policy, digest)  # holding the policy keeps its id() unique
    return digest


def settings_row(policy: Policy) -> Row:
    """Return the row that maps a settings hash to its policy."""
    values = policy.model_copy(update={"labels": {}}).model_dump(mode="json")
    return {"hash": settings_hash(policy), "policy": values}
