"""A cascade inside a stream: the provider goes on while a window waits for the second detector."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

from guard.core import Guard
from guard.detect.band import BandCascade
from guard.detect.band_files import Band
from guard.verdict import Scores, Window
from tests.detect.test_band import Give, Giving
from tests.doors.table import arun
from tests.provider import Script, serving
from tests.rows import rows

DOUBTFUL = "I doubt that very much. "
MORE = [f"Sentence number {number} is about the weather. " for number in range(40)]
WAIT = 60.0
Read = Callable[[Guard, str], tuple[str, str | None, Any]]


class Pausing:
    """The events of a stream: the rest comes only once the second detector has been asked."""

    def __init__(self, asked: threading.Event) -> None:
        self._asked = asked

    def __iter__(self) -> Iterator[dict[str, Any]]:
        yield chunk(DOUBTFUL)
        yield chunk(MORE[0])
        assert self._asked.wait(WAIT), "the door did not judge what it had"
        for text in MORE[1:]:
            yield chunk(text)
        yield chunk("", "stop")


def chunk(text: str, finish: str | None = None) -> dict[str, Any]:
    choices = [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "x"}
    return {**head, "choices": choices}


def doubting(window: Window) -> Scores:
    return Scores(0.5 if "doubt" in window.text else 0.1, "social")


def guard_of(later: Give, limit_ms: float, **settings: Any) -> Guard:
    pair = Giving("first-1", doubting), Giving("later-1", later)
    band = Band(0.4, 0.6, limit_ms)
    return Guard(detector=BandCascade(*pair, band), events="none", timeout_ms=None, **settings)


def read(guard: Guard, base: str) -> tuple[str, str | None, Any]:
    stream = guard.completion(**asked_of(base))
    chunks = list(stream)
    return (*text_of(chunks), stream.guard)


def aread(guard: Guard, base: str) -> tuple[str, str | None, Any]:
    async def reading() -> tuple[str, str | None, Any]:
        stream = await guard.acompletion(**asked_of(base))
        chunks = [one async for one in stream]
        return (*text_of(chunks), stream.guard)

    return arun(reading())


def asked_of(base: str) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Tell me."}]
    return {
        "model": "openai/x",
        "messages": messages,
        "api_base": base,
        "api_key": "k",
        "stream": True,
    }


def text_of(chunks: list[Any]) -> tuple[str, str | None]:
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    ends = [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason]
    return text, ends[-1] if ends else None


@rows("reading", [read, aread])
def test_the_provider_goes_on_while_a_window_waits_for_the_second(reading: Read) -> None:
    asked = threading.Event()
    with serving() as provider:
        seen: list[tuple[bool, int]] = []

        def answer(window: Window) -> Scores:
            asked.set()
            # No answer before the provider's last byte is on its way: it waits for nobody.
            assert provider.last.over.wait(WAIT), "the provider was held up"
            seen.append((provider.last.finished, provider.last.sent))
            return Scores(0.1, "race")

        provider.script = Script(events=Pausing(asked))  # type: ignore[arg-type]
        text, finish, trail = reading(guard_of(answer, WAIT * 1000), provider.openai)
    assert seen == [(True, len(MORE) + 2)]
    assert (text, finish) == (DOUBTFUL + "".join(MORE), "stop")
    assert not trail.stopped


@rows("reading, failure", product([read, aread], ["closed", "open"]))
def test_a_late_answer_in_a_stream_follows_the_failure_policy(reading: Read, failure: str) -> None:
    asked, go = threading.Event(), threading.Event()

    def late(window: Window) -> Scores:
        asked.set()
        assert go.wait(WAIT)
        return Scores(0.0, "race")

    with serving() as provider:
        provider.script = Script(events=Pausing(asked))  # type: ignore[arg-type]
        try:
            text, finish, trail = reading(guard_of(late, 30, failure=failure), provider.openai)
        finally:
            go.set()
        assert provider.last.over.wait(WAIT)
    first = trail.decisions[0]
    assert (first.verdict.unjudged, first.verdict.score) == ("failure", None)
    if failure == "open":
        assert (first.action, finish) == ("pass", "stop")
        assert text == DOUBTFUL + "".join(MORE)
    else:
        assert (first.action, finish) == ("terminate", "content_filter")
        assert "doubt" not in text
