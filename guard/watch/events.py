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

from guard.mentions import fold_word, shipped_lexicon
from guard.policy import Policy
from guard.texts import normalised
from guard.verdict import Attribution, Channel, Decision, GuardTrail, Verdict
from guard.watch.redaction import REDACTED, redacted, redacted_name, redactions

if TYPE_CHECKING:
    from guard.doors.session import DoorSession, Outcome

KeepText = Literal["never", "hash", "redacted", "full"]
Row = dict[str, Any]

_log = logging.getLogger("guard")
_random = SystemRandom().random  # independent of an application's random.seed()
_MAX_CHARS = 200  # of a name, an id, a group or an attribute
_NOT_WORD = re.compile(r"\W+")
_NOT_SPACE = re.compile(r"\S+")
_ARTICLES = frozenset(("a", "an", "the"))


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
    link_end: int = 0
    """The first ``link_end`` characters of ``text`` belong to a link of the segment before."""


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
        # By response and channel: where a link begins that goes on after the last segment.
        self._open_links: dict[str, dict[Channel, int]] = {}

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
            link_end = self._link_end(trail.id, decision, text)
            start = _start(session, trail)
            self.writer.put(
                Decided(start, number, decision, queued_text, self.keep_text, share, link_end)
            )
        except Exception as error:
            _log.error("an event was lost: %s", type(error).__name__)

    def ended(self, session: DoorSession, trail: GuardTrail, outcome: Outcome) -> None:
        """Queue the summary of a response on which anything was decided."""
        try:
            self._open_links.pop(trail.id, None)
            first = trail.decisions[0].time if trail.decisions else None
            if first is not None:
                summary = {**summary_of(trail), "outcome": outcome}
                self.writer.put(Ended(_start(session, trail), first.timestamp(), summary))
        except Exception as error:
            _log.error("an event was lost: %s", type(error).__name__)

    def report_drops(self, report: Callable[[int], None]) -> None:
        """Call ``report`` with the number of events whenever some are dropped."""
        self.writer.on_drop.add(report)

    def _link_end(self, response_id: str, decision: Decision, text: str) -> int:
        """Return how many characters at the start of ``text`` go on a link begun before it."""
        if self.keep_text != "redacted":
            return 0
        channel, span = decision.channel, decision.span
        links = self._open_links.setdefault(response_id, {})
        begun, head = links.pop(channel, None), _NOT_SPACE.match(text)
        link_end = head.end() if head and begun is not None and span.start > begun else 0
        last = text.split()[-1] if text and not text[-1].isspace() else ""
        link = REDACTED["[link]"].search(last)
        if begun is not None and 0 < link_end == len(text):
            links[channel] = begun
        elif link:
            links[channel] = span.end - (len(last) - link.start())
        return link_end

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
    findings = [d for d in judged if d.verdict.biased and d.counted]
    withheld = [d for d in trail if d.action not in ("pass", "flag")]
    return {
        "judged": len(judged),
        "passed": sum(d.action == "pass" for d in judged),
        "found": len(findings),
        "mitigated": sum(d.action != "flag" for d in findings),
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
    group, attribute = _names(pair, verdict, item, key)
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
        "text": None if item.text is None else _stored_text(item, item.text, key),
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
    pair: Attribution | None, verdict: Verdict, item: Decided, key: bytes
) -> tuple[str | None, str | None]:
    """Return group and attribute in the form that ``keep_text`` allows.

    If no text may be kept, a name is stored only if it is in guard's own lists, else as a hash: the
    model may have written anything.
    """
    if pair is None:
        return None, None
    group, attribute = normalised(pair.group), normalised(pair.attribute)
    if item.keep_text == "redacted":
        hidden = redactions(item.text or "", item.link_end)
        return (
            bounded(redacted_name(group, pair.group_span, hidden)),
            bounded(redacted_name(attribute, pair.attribute_span, hidden)),
        )
    if item.keep_text == "full":
        return bounded(group), bounded(attribute)
    groups = {normalised(reference.group) for reference in verdict.references}
    attributes = {normalised(reference.attribute) for reference in verdict.references}
    return (
        (group if group in groups else _listed(group)) or hashed(group, key),
        attribute if attribute in attributes else hashed(attribute, key),
    )


def _listed(group: str) -> str | None:
    """Return a group's name, without articles and signs, if it is one entry of guard's lists."""
    words = [word for word in _NOT_WORD.split(group) if word and word not in _ARTICLES]
    if len(words) == 1:
        listed = bool(shipped_lexicon().kinds(words[0]) - {"first"}) and len(words[0]) <= _MAX_CHARS
    else:
        listed = shipped_lexicon().is_name(tuple(map(fold_word, words)))
    return " ".join(words) if listed else None


def _stored_text(item: Decided, text: str, key: bytes) -> str:
    if item.keep_text == "hash":
        return hashed(text, key)
    return clean(redacted(text, item.link_end) if item.keep_text == "redacted" else text)


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
