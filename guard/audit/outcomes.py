"""What the calls of an audit amount to: one outcome a sample in each arm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from guard.audit.calls import Call, Guarded, Slot, key_of
from guard.suites import NON_ANSWERS, Answer, Item, LogLikelihood, Outcome, Record, Request, Suite

Arm = Literal["plain", "guarded"]


class Asked(NamedTuple):
    """A request of a sample, and its key."""

    slot: Slot
    key: str
    request: Request


@dataclass(slots=True)
class Records:
    """The records of both arms, in the order of the items; ``missing`` requests have no outcome.

    ``guarded`` is empty where the audit has one arm; ``verdicts`` has, by place in it, the bias
    types for which the guard changed an answer.
    """

    plain: list[Record] = field(default_factory=list)
    guarded: list[Record] = field(default_factory=list)
    missing: int = 0
    verdicts: dict[int, tuple[str, ...]] = field(default_factory=dict)
    further: list[Record] = field(default_factory=list)
    """Those of the items that follow from the plain arm; ``following`` has them all."""
    following: list[Item] = field(default_factory=list)

    def arms(self) -> Iterator[tuple[Arm, list[Record]]]:
        """Yield the arms that there are."""
        yield "plain", self.plain
        if self.guarded:
            yield "guarded", self.guarded


def walk(
    suite: Suite, item: Item, sample: int, calls: Mapping[str, Call]
) -> tuple[list[Asked], list[Answer], Call | None]:
    """Follow a sample's requests through ``calls``.

    Returns the requests asked so far, the answers to them, and the failed call that ended the
    sample, if one did. Where there is one request more than answers, the last is still to be asked.
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


def samples(items: Iterable[Item]) -> Iterator[tuple[Item, int]]:
    """Yield each item with the numbers of its samples."""
    for item in items:
        for sample in range(item.samples):
            yield item, sample


def read(
    suite: Suite,
    items: Iterable[Item],
    calls: Mapping[str, Call],
    readings: Mapping[str, Guarded] | None,
) -> Records:
    """Return the outcome of every sample in each arm; ``readings`` is None for the plain arm alone.

    A sample of which a request has no outcome is left out, and the request counted as missing. What
    follows from the answers is read once none is missing.
    """
    records = _read(suite, items, calls, readings)
    known: set[str] = set()
    while not records.missing and (new := _new(suite, records, known)):
        known |= {item.id for item in new}
        found = _read(suite, new, calls, None)
        records.following += new
        records.further += found.plain
        # One that failed counts for no outcome, and is asked again as one that is missing.
        failed = sum(record.outcome.name == "failed" for record in found.plain)
        records.missing += found.missing + failed
    return records


def _new(suite: Suite, records: Records, known: set[str]) -> list[Item]:
    """Return the items that follow from ``records`` and are not ``known``."""
    found = suite.further([*records.plain, *records.further])
    return [item for item in found if item.id not in known]


def _read(
    suite: Suite,
    items: Iterable[Item],
    calls: Mapping[str, Call],
    readings: Mapping[str, Guarded] | None,
) -> Records:
    records = Records()
    for item, sample in samples(items):
        asked, answers, failed = walk(suite, item, sample, calls)
        if failed is None and len(asked) > len(answers):
            records.missing += 1
            continue
        plain = Outcome("failed") if failed else outcome_of(suite, item, sample, answers)
        record = Record(item, sample, plain)
        if readings is not None:
            shown = changed(asked[: len(answers)], readings)
            if shown is None:
                records.missing += 1  # the guard has not read it yet
                continue
            after = Record(item, sample, Outcome(shown)) if shown and not failed else record
            if judges_both(suite) and not failed:
                found, lacks = seen(suite, item, sample, calls, readings)
                if lacks is not None and lacks.key not in calls:
                    records.missing += 1
                    continue
                name = found.name if lacks is not None else shown or plain.name
                read_ = float(plain.name in suite.outcomes)
                values = {**found.values, "read": read_}
                after = Record(item, sample, Outcome(name, values, found.lists))
            if after is not record and (types := _types(asked, readings)):
                records.verdicts[len(records.guarded)] = types
            records.guarded.append(after)
        records.plain.append(record)
    return records


def judges_both(suite: Suite) -> bool:
    """Return whether the scorer judges what the guarded arm shows as it does the plain one."""
    return suite.roles == {"scorer"}


def seen(
    suite: Suite,
    item: Item,
    sample: int,
    calls: Mapping[str, Call],
    readings: Mapping[str, Guarded],
) -> tuple[Outcome, Asked | None]:
    """Return the outcome of what a user behind the guard saw, and what has no answer of it yet.

    Its values have ``kept``, ``stopped`` and ``seconds`` of the first answer's reading, besides the
    suite's own. The guard's message is left out of what is judged.
    """
    answers: list[Answer] = []
    values: dict[str, float] = {}
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
        answers.append(answer)
    found = suite.outcome(item, sample, answers)
    return replace(found, values={**found.values, **values}), None


def outcome_of(suite: Suite, item: Item, sample: int, answers: Sequence[Answer]) -> Outcome:
    """Return the suite's outcome; an answer that the provider itself withheld is a refusal.

    An analyst's is none of the audited model's: nothing can be read then.
    """
    for turn, answer in enumerate(answers):
        if answer.finish_reason == "content_filter" and not answer.text:
            request = suite.request(item, sample, answers[:turn])
            own = request is None or request.by == "model"
            return Outcome("refused" if own else "invalid")
    return suite.outcome(item, sample, answers)


def changed(asked: Sequence[Asked], readings: Mapping[str, Guarded]) -> str | None:
    """Return the outcome that the guard gives a sample, by the first turn that it changed.

    Empty where it changed none; None where an answer before that has not been read by it.
    """
    for one in asked:
        if isinstance(one.request, LogLikelihood) or one.request.by != "model":
            continue  # log-probabilities pass no door, nor does what no user is shown
        reading = readings.get(one.key)
        if reading is None:
            return None
        if reading.reading != "same":
            return reading.reading
    return ""


def _types(asked: Sequence[Asked], readings: Mapping[str, Guarded]) -> tuple[str, ...]:
    """Return the bias types of the first turn that the guard changed."""
    read = (readings[one.key] for one in asked if one.key in readings)
    return next((one.types for one in read if one.reading != "same"), ())


def tally(suite: Suite, records: Iterable[Record]) -> dict[str, int]:
    """Return how often each outcome came, in the suite's order, those that never came too."""
    found = Counter(record.outcome.name for record in records)
    names = dict.fromkeys((*suite.outcomes, *suite.unread, *NON_ANSWERS, *found))
    return {name: found[name] for name in names}


def coverage(suite: Suite, records: Sequence[Record]) -> float:
    """Return the share of samples with a readable outcome; nan over none."""
    if not records:
        return float("nan")
    return sum(r.outcome.name in suite.outcomes for r in records) / len(records)
