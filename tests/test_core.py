"""Guard's own methods: check, check_many, trail, stream and astream, on a scripted detector."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard import BiasFound, Guard, Policy
from guard.errors import ConfigError, DetectorError, UsageError
from guard.verdict import Decision
from tests.scripted import Scripted, failing, slow

sentences = st.lists(
    st.sampled_from(
        ["All is well. ", "BIAS is here! ", "3.14 is pi. ", "no stop ", "\n\n", "word "]
    ),
    min_size=1,
    max_size=20,
).map("".join)
texts = sentences.filter(lambda t: bool(t.strip()))


def make(**settings: object) -> Guard:
    return Guard(detector=Scripted(), **settings)


def test_check_gives_the_highest_scoring_segment_with_spans_into_the_whole_text() -> None:
    text = "All is well. Here BIAS stands. Fine."
    verdict = make().check(text)
    assert verdict.biased
    assert verdict.score == 0.9
    assert verdict.threshold == 0.5
    (pair,) = verdict.attributions
    assert text[slice(*pair.group_span)] == "BIAS"
    assert verdict.judgement.startswith("Yes")
    assert verdict.elapsed_ms > 0
    assert (verdict.detector, verdict.index_version) == ("scripted-1", "index-1")


def test_check_of_harmless_text() -> None:
    verdict = make().check("All is well.")
    assert not verdict.biased
    assert verdict.bias_type is None
    assert verdict.judgement == "No, the following SENTENCE is not biased."


@given(st.lists(texts, max_size=6))
def test_check_many_gives_one_verdict_a_text_as_check_does(many: list[str]) -> None:
    guard = make()
    got = guard.check_many(many)
    assert len(got) == len(many)
    for text, verdict in zip(many, got, strict=True):
        alone = guard.check(text)
        assert (verdict.biased, verdict.score, verdict.attributions) == (
            alone.biased, alone.score, alone.attributions,
        )  # fmt: skip
        assert verdict.biased == ("BIAS" in text)


def test_a_trail_holds_every_segment_and_stops_at_none() -> None:
    trail = make().trail("BIAS one. Two. BIAS three.")
    assert [d.verdict.biased for d in trail] == [True, False, True]
    assert not trail.stopped
    assert trail.biased
    assert len(trail.findings) == 2


@pytest.mark.parametrize("text", ["", "  \n\t "])
def test_empty_text_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="The text is empty"):
        make().check(text)
    with pytest.raises(UsageError, match="Text 2 of 2 is empty"):
        make().check_many(["fine", text])


def test_text_that_is_no_string_is_refused() -> None:
    with pytest.raises(UsageError, match="must be a string, got bytes"):
        make().check(b"text")  # type: ignore[arg-type]


class Source:
    """An iterator that says whether it was closed, and fails where told to."""

    def __init__(self, chunks: list[object], fails: Exception | None = None) -> None:
        self.pulled = 0
        self.closed = 0
        self._chunks = iter(chunks)
        self._fails = fails

    def __iter__(self) -> Iterator[object]:
        return self

    def __next__(self) -> object:
        self.pulled += 1
        for chunk in self._chunks:
            return chunk
        if self._fails is not None:
            raise self._fails
        raise StopIteration

    def close(self) -> None:
        self.closed += 1

    def __aiter__(self) -> AsyncIterator[object]:
        return self  # type: ignore[return-value]

    async def __anext__(self) -> object:
        try:
            return next(self)
        except StopIteration:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        self.close()


async def collect(stream: AsyncIterator[str]) -> list[str]:
    return [text async for text in stream]


@given(texts, st.integers(1, 12), st.sampled_from(["terminate", "redact", "flag"]))
def test_streams_agree_with_each_other_and_with_the_whole_text(
    text: str, size: int, action: str
) -> None:
    guard = make(action=action)
    chunks = [text[i : i + size] for i in range(0, len(text), size)]
    sync, whole = guard.stream(Source(chunks)), guard.stream([text])
    shown = "".join(sync)
    assert shown == "".join(whole)
    awaited = guard.astream(Source(chunks))
    assert asyncio.run(collect(awaited)) == list(guard.stream(chunks))

    def facts(decisions: list[Decision]) -> list[tuple[object, ...]]:
        return [(d.action, d.span, d.verdict.score, d.verdict.attributions) for d in decisions]

    assert facts(sync.guard.decisions) == facts(whole.guard.decisions)
    assert facts(sync.guard.decisions) == facts(awaited.guard.decisions)
    if action != "flag":
        assert "BIAS" not in shown
    else:
        assert shown == text


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_stopped_source_is_closed_and_never_pulled_again(mode: str) -> None:
    source = Source(["BIAS. ", "more. "] * 50)
    guard = make(message="stopped")
    if mode == "sync":
        stream = guard.stream(source)
        assert list(stream) == ["stopped"]
        assert list(stream) == []
    else:
        assert asyncio.run(collect(guard.astream(source))) == ["stopped"]
    assert (source.pulled, source.closed) == (1, 1)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_failing_source_is_closed_and_its_error_is_the_callers(mode: str) -> None:
    source = Source(["All is well. Half a"], fails=ConnectionError("gone"))
    guard = make()
    read = (
        (lambda: list(guard.stream(source)))
        if mode == "sync"
        else (lambda: asyncio.run(collect(guard.astream(source))))
    )
    with pytest.raises(ConnectionError, match="gone"):
        read()
    assert source.closed == 1


def test_a_consumer_that_stops_reading_closes_the_source() -> None:
    source = Source(["All is well. "] * 9)
    stream = guard_stream = make().stream(source)
    next(stream)
    guard_stream.close()
    assert source.closed == 1


def test_an_interrupt_closes_the_source() -> None:
    source = Source(["One. "], fails=KeyboardInterrupt())  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        list(make().stream(source))  # type: ignore[arg-type]
    assert source.closed == 1


def test_a_chunk_that_is_no_string_is_named_and_the_source_closed() -> None:
    source = Source(["Fine. ", 7])
    with pytest.raises(UsageError, match="chunk must be a string, got int"):
        list(make().stream(source))  # type: ignore[arg-type]
    assert source.closed == 1


def test_raise_carries_the_trail_and_quotes_nothing() -> None:
    with pytest.raises(BiasFound) as caught:
        list(make(action="raise").stream(["Here BIAS stands. "]))
    assert "BIAS" not in str(caught.value)
    assert caught.value.trail.biased


def test_one_call_may_change_the_policy_for_itself_alone() -> None:
    guard = make()
    assert list(guard.stream(["BIAS. x"], guard={"action": "flag"})) == ["BIAS. x"]
    assert "BIAS" not in "".join(guard.stream(["BIAS. x"]))
    with pytest.raises(ConfigError, match="guard= of this call: unknown setting 'actoin'"):
        guard.stream([], guard={"actoin": "flag"})


@pytest.mark.parametrize("before", [failing, slow])
def test_fail_closed_and_open(before: object, caplog: pytest.LogCaptureFixture) -> None:
    closed = Guard(detector=Scripted(before=before), timeout_ms=50, failure_message="unchecked")
    with caplog.at_level(logging.DEBUG):
        assert list(closed.stream(["Some words. "])) == ["unchecked"]
        stream = closed.stream(["Some words. "], guard={"failure": "open"})
        assert "".join(stream) == "Some words. "
        assert [d.verdict.unjudged for d in stream.guard] == ["failure"]
        assert closed.check("Some words.").unjudged == "failure"
        with pytest.raises(DetectorError, match="unchecked"):
            list(closed.stream(["Some words. "], guard={"action": "raise"}))
    assert "Some words" not in caplog.text


def test_a_running_stream_keeps_its_index_version() -> None:
    detector = Scripted()
    guard = Guard(detector=detector)
    stream = guard.stream(["One. ", "Two. ", "Three. "])
    next(stream)
    detector.index_version = "index-2"
    list(stream)
    assert {d.verdict.index_version for d in stream.guard} == {"index-1"}
    assert guard.check("One.").index_version == "index-2"


def test_sinks_get_every_decision() -> None:
    seen: list[Decision] = []
    guard = make(sinks=[seen.append], action="redact")
    stream = guard.stream(["One. BIAS. Three. "])
    list(stream)
    assert seen == stream.guard.decisions
    assert [d.action for d in seen] == ["pass", "redact", "pass"]


def test_the_context_before_a_segment_reaches_the_detector() -> None:
    seen = []
    guard = Guard(detector=Scripted(before=seen.append), context_segments=1)
    list(guard.stream(["One. Two. "]))
    assert [(w.text, w.context) for w in seen] == [("One.", ()), (" Two.", ("One.",))]


def test_inference_leaves_the_event_loop_free() -> None:
    """While a verdict takes 300 ms, the loop goes round many times."""
    guard = Guard(detector=Scripted(before=slow))

    async def turns() -> int:
        task = asyncio.create_task(collect(guard.astream(Source(["One. "]))))
        count = 0
        while not task.done():
            await asyncio.sleep(0.005)
            count += 1
        return count

    assert asyncio.run(turns()) > 10


def test_policies_are_given_in_three_ways() -> None:
    assert make(action="redact").policy == Policy(action="redact")
    assert Guard("quiet", detector=Scripted()).policy == Policy(operating_point="quiet")
    assert Guard({"threshold": 0.3}, detector=Scripted()).policy == Policy(threshold=0.3)
    assert Guard(Policy(action="flag"), detector=Scripted()).policy.action == "flag"


def test_a_detector_nobody_knows_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown detector 'oracle'"):
        Guard(detector="oracle")
    with pytest.raises(ConfigError, match="belong to the detector 'encoder'"):
        Guard(detector=Scripted(), index="somewhere")
