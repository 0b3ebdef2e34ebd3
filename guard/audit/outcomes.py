"""Turns the calls of an audit into one outcome for each sample and arm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from guard.audit.calls import Call, Guarded, Slot, key_of
from guard.suites import (
    NON_ANSWERS,
    Answer,
    AsksOtherModels,
    Chat,
    Item,
    LogLikelihood,
    Outcome,
    Record,
    Request,
    Suite,
)
from guard.suites.optional import part_of

Arm = Literal["plain", "guarded"]


class Asked(NamedTuple):
    """A request of a sample with its key."""

    slot: Slot
    key: str
    request: Request


@dataclass(slots=True)
class Records:
    """The records of both arms, in the order of the items; ``missing`` requests have no outcome.

    ``guarded`` is empty where the audit has one arm; ``verdicts`` maps its indices to the bias
    types for which the guard changed an answer.
    """

    plain: list[Record] = field(default_factory=list)
    guarded: list[Record] = field(default_factory=list)
    missing: int = 0
    verdicts: dict[int, tuple[str, ...]] = field(default_factory=dict)
    sentences: dict[int, bool] = field(default_factory=dict)
    """By index, whether the guard stops the sentence that an answer completes: not what users get,
    and so no outcome."""
    further: list[Record] = field(default_factory=list)
    """The records of ``following``, the items that follow from the plain arm's answers."""
    following: list[Item] = field(default_factory=list)

    def arms(self) -> Iterator[tuple[Arm, list[Record]]]:
        """Yield each arm with its records."""
        yield "plain", self.plain
        if self.guarded:
            yield "guarded", self.guarded


def walk_requests(
    suite: Suite, item: Item, sample: int, calls: Mapping[str, Call]
) -> tuple[list[Asked], list[Answer], Call | None]:
    """Follow a sample's requests through ``calls``.

    Returns the requests, their answers, and the failed call that ended the sample, or None. If
    there is one request more than there are answers and no failed call, it is still to be asked.
    """
    asked: list[Asked] = []
    answers: list[Answer] = []
    while (request := suite.request(item, sample, answers)) is not None:
        turn = len(answers)
        key = key_of(request, item, sample, turn)
        asked.append(Asked(Slot(item.id, sample, turn), key, request))
        call = calls.get(key)
        if call is None:
            break
        if call.reply is None:
            return asked, answers, call
        answers.append(call.reply.answer)
    return asked, answers, None


def item_samples(items: Iterable[Item]) -> Iterator[tuple[Item, int]]:
    """Yield each item with the numbers of its samples."""
    for item in items:
        for sample in range(item.samples):
            yield item, sample


def read_records(
    suite: Suite,
    items: Iterable[Item],
    calls: Mapping[str, Call],
    readings: Mapping[str, Guarded] | None,
    *,
    further: bool = True,
) -> Records:
    """Return the outcome of every sample in each arm; ``readings`` is None for the plain arm alone.

    A sample with an unanswered request is left out, and the request counted as missing. The items
    that follow from the answers are read once no request is missing, unless ``further`` is False.
    """
    records = _read_items(suite, items, calls, readings)
    known: set[str] = set()
    follow_up_items = part_of(suite, AsksOtherModels).follow_up_items
    while further and not records.missing:
        following = follow_up_items([*records.plain, *records.further])
        new = [item for item in following if item.id not in known]
        if not new:
            break
        known |= {item.id for item in new}
        new_records = _read_items(suite, new, calls, None)
        records.following += new
        records.further += new_records.plain
        # A failed one counts as missing, so that it is asked again.
        failed = sum(record.outcome.name == "failed" for record in new_records.plain)
        records.missing += new_records.missing + failed
    return records


def unanswered_items(
    suite: Suite,
    items: Iterable[Item],
    calls: Mapping[str, Call],
    readings: Mapping[str, Guarded] | None,
) -> Iterator[str]:
    """Yield the ids of the items of which a request has no answer, or no reading of the guard.

    Keeps no record in memory.
    """
    for item in items:
        records = _read_items(suite, (item,), calls, readings)
        if records.missing or any(record.outcome.name == "failed" for record in records.plain):
            yield item.id


def _read_items(
    suite: Suite,
    items: Iterable[Item],
    calls: Mapping[str, Call],
    readings: Mapping[str, Guarded] | None,
) -> Records:
    records = Records()
    for item, sample in item_samples(items):
        asked, answers, failed = walk_requests(suite, item, sample, calls)
        if failed is None and len(asked) > len(answers):
            records.missing += 1
            continue
        plain = Outcome("failed") if failed else outcome_of(suite, item, sample, answers)
        record = Record(item, sample, plain)
        if readings is not None:
            shown = guarded_outcome(asked[: len(answers)], readings)
            sentence = _sentence_reading(asked, answers, readings)
            if shown is None or sentence is None:
                records.missing += 1  # the guard has not judged it yet
                continue
            if isinstance(sentence, Guarded) and not failed:
                # Not the reading, which would stay in memory: there is one of every answer.
                records.sentences[len(records.guarded)] = sentence.reading != "same"
            after = Record(item, sample, Outcome(shown)) if shown and not failed else record
            if scores_both_arms(suite) and not failed:
                behind_guard, unasked = outcome_behind_guard(suite, item, sample, calls, readings)
                if unasked is not None and unasked.key not in calls:
                    records.missing += 1
                    continue
                name = behind_guard.name if unasked is not None else shown or plain.name
                values = {**behind_guard.values, "read": float(plain.name in suite.outcomes)}
                after = Record(item, sample, Outcome(name, values, behind_guard.lists))
            if after is not record:
                judged = (readings[one.key] for one in asked if one.key in readings)
                types = next((one.types for one in judged if one.reading != "same"), ())
                if types:
                    records.verdicts[len(records.guarded)] = types
            records.guarded.append(after)
        records.plain.append(record)
    return records


def scores_both_arms(suite: Suite) -> bool:
    """Return whether a scorer judges the texts of both arms."""
    return part_of(suite, AsksOtherModels).roles == {"scorer"}


def outcome_behind_guard(
    suite: Suite,
    item: Item,
    sample: int,
    calls: Mapping[str, Call],
    readings: Mapping[str, Guarded],
) -> tuple[Outcome, Asked | None]:
    """Return the outcome of what a user behind the guard saw, and its unanswered request, if any.

    Besides the suite's own values it has ``kept``, ``stopped`` and ``seconds`` of the first
    answer's reading. The guard's message is not judged.
    """
    answers: list[Answer] = []
    values: dict[str, float] = {}
    cut = False
    while (request := suite.request(item, sample, answers)) is not None:
        turn = len(answers)
        key = key_of(request, item, sample, turn)
        call = calls.get(key)
        if call is None or call.reply is None:
            return Outcome("failed"), Asked(Slot(item.id, sample, turn), key, request)
        answer, reading = call.reply.answer, readings.get(key)
        if reading is not None:
            values = values or {
                "kept": reading.kept,
                "stopped": float(reading.stopped),
                "seconds": reading.seconds,
            }
            if reading.reading != "same":
                answer = Answer(reading.text[: reading.own], "content_filter")
            else:
                cut |= answer.finish_reason == "content_filter"
        answers.append(answer)
    outcome = suite.outcome(item, sample, answers)
    if cut:  # by the provider, as in the plain arm
        outcome = Outcome("refused")
    return replace(outcome, values={**outcome.values, **values}), None


def outcome_of(suite: Suite, item: Item, sample: int, answers: Sequence[Answer]) -> Outcome:
    """Return the suite's outcome; an answer that the provider's filter cut or withheld is refused.

    If the provider withheld an analyst's answer, the outcome is unreadable.
    """
    for turn, answer in enumerate(answers):
        if answer.finish_reason == "content_filter":
            request = suite.request(item, sample, answers[:turn])
            of_model = request is None or request.by == "model"
            return Outcome("refused" if of_model else "invalid")
    return suite.outcome(item, sample, answers)


def guarded_outcome(asked: Sequence[Asked], readings: Mapping[str, Guarded]) -> str | None:
    """Return a sample's outcome in the guarded arm, of the first turn that the guard changed.

    Empty where it changed none; None where it has not judged an earlier answer yet.
    """
    for asked_request in asked:
        if isinstance(asked_request.request, LogLikelihood) or asked_request.request.by != "model":
            continue  # users see neither log-probabilities nor other roles' answers
        reading = readings.get(asked_request.key)
        if reading is None:
            return None
        if reading.reading != "same":
            return reading.reading
    return ""


def sentence_key(key: str) -> str:
    """Return the key of the reading of the sentence that the answer ``key`` completes."""
    return f"{key}+sentence"


def _sentence_reading(
    asked: Sequence[Asked], answers: Sequence[Answer], readings: Mapping[str, Guarded]
) -> Guarded | Literal[False] | None:
    """Return the reading of the last sentence that the model's answers complete.

    False where they complete none; None where the guard has not judged it yet.
    """
    for asked_request, answer in reversed(list(zip(asked, answers, strict=False))):
        request = asked_request.request
        if isinstance(request, Chat) and request.by == "model" and request.sentence(answer.text):
            return readings.get(sentence_key(asked_request.key))
    return False


def outcome_counts(suite: Suite, records: Iterable[Record]) -> dict[str, int]:
    """Return the number of each outcome, in the suite's order, zeros included."""
    counts = Counter(record.outcome.name for record in records)
    faults = part_of(suite, AsksOtherModels).faults
    names = dict.fromkeys((*suite.outcomes, *faults, *NON_ANSWERS, *counts))
    return {name: counts[name] for name in names}


def readable_share(suite: Suite, records: Sequence[Record]) -> float:
    """Return the share of samples with a readable outcome; nan without samples."""
    if not records:
        return float("nan")
    return sum(r.outcome.name in suite.outcomes for r in records) / len(records)
