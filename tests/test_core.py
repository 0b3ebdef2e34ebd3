"""Guard's own methods: check, check_many, trail, stream and astream, on a scripted detector."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import pickle
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard import BiasFound, Guard, Policy
from guard.detect.weights import write_manifest
from guard.errors import ConfigError, DetectorError, UsageError, WeightsError
from guard.verdict import Decision, Scores, Window
from tests.scripted import Scripted, failing, slow
from tests.small import INDEX, WEIGHTS

ROOT = Path(__file__).parents[1]

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
    assert verdict.judgement == "No, the text is not biased."


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


def test_a_trail_shows_the_user_message_where_the_policy_does() -> None:
    seen: list[Window] = []
    for shown in (False, True):
        guard = Guard(detector=Scripted(before=seen.append), user_context=shown)
        guard.trail("Yes. They are.", user="Are they?")
    assert [window.user for window in seen] == [None, None, "Are they?", None]


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
    assert source.pulled == 2  # the finding, and what may take it back
    assert source.closed


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
    assert source.closed


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_failing_sources_text_is_judged_and_so_is_its_error(mode: str) -> None:
    def read(text: str, error: str) -> list[str]:
        source = Source(["All is well. ", text], fails=ConnectionError(error))
        stream: Any = (guard.stream if mode == "sync" else guard.astream)(source)
        got: list[str] = []

        async def aread() -> None:
            async for piece in stream:
                got.extend([piece])

        with pytest.raises(ConnectionError) as caught:
            got.extend(stream) if mode == "sync" else asyncio.run(aread())
        assert caught.value.__context__ is None
        return [*got, str(caught.value)]

    guard = make(action="redact")
    assert read("Half a", "gone") == ["All is well. ", "Half a", "gone"]
    *got, told = read("BIAS half a", "cannot read 'BIAS half a'")
    assert got == ["All is well. ", "[removed]"]
    assert "left out" in told
    assert "BIAS" not in told
    guard = make(message="stopped")
    source = Source(["All is well. ", "BIAS half a"], fails=ConnectionError("gone"))
    stopped: Any = (guard.stream if mode == "sync" else guard.astream)(source)
    shown = list(stopped) if mode == "sync" else asyncio.run(collect(stopped))
    assert shown == ["All is well. ", "stopped"]


def test_a_consumer_that_stops_reading_closes_the_source() -> None:
    source = Source(["All is well. "] * 9)
    stream = guard_stream = make().stream(source)
    next(stream)
    guard_stream.close()
    assert source.closed


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_the_source_is_closed_before_the_last_text_is_handed_out(mode: str) -> None:
    source = Source(["BIAS. ", "more. "])

    guard = make(message="stopped")

    async def first() -> None:
        stream = guard.astream(source)
        assert await anext(stream) == "stopped"
        assert source.closed  # here: the end of the loop closes it, too

    if mode == "async":
        asyncio.run(first())
    else:
        stream = guard.stream(source)
        assert next(stream) == "stopped"
        assert source.closed


def test_a_stream_nobody_read_closes_its_source_too() -> None:
    source = Source(["One. "])
    make().stream(source).close()
    assert (source.pulled, bool(source.closed)) == (0, True)


def test_an_interrupt_closes_the_source() -> None:
    source = Source(["One. "], fails=KeyboardInterrupt())  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        list(make().stream(source))  # type: ignore[arg-type]
    assert source.closed


def test_a_chunk_that_is_no_string_is_named_and_the_source_closed() -> None:
    source = Source(["Fine. ", 7])
    with pytest.raises(UsageError, match="chunk must be a string, got int"):
        list(make().stream(source))  # type: ignore[arg-type]
    assert source.closed


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


class Odd(Scripted):
    """Answers something that is no score."""

    def __init__(self, answer: object) -> None:
        super().__init__()
        self._answer = answer

    def score(self, window: object) -> object:
        return self._answer


@pytest.mark.parametrize(
    "answer", [None, 0.9, Scores(float("nan"), "age"), Scores(7.0, "age"), Scores(0.1, "colour")]
)
def test_an_answer_that_is_no_score_is_a_failure_not_harmless(answer: object) -> None:
    guard = Guard(detector=Odd(answer), failure_message="unchecked")
    assert list(guard.stream(["BIAS one. "])) == ["unchecked"]
    assert guard.check("BIAS one.").unjudged == "failure"


def test_a_detector_without_a_threshold_for_every_type_is_refused() -> None:
    detector = Scripted()
    detector.operating_points = {"balanced": {"age": 0.5}}
    with pytest.raises(ConfigError, match=r"no threshold 'gender' at the operating point"):
        Guard(detector=detector).check("Some words.")
    assert Guard(detector=detector, threshold=0.5).check("BIAS.").biased


def test_a_segment_that_failed_is_not_hidden_by_harmless_ones() -> None:
    def fails_on_two(window: Window) -> None:
        if "two" in window.text:
            raise RuntimeError

    text = "One is fine. It is two now. Three is fine."
    assert Guard(detector=Scripted(before=fails_on_two)).check(text).unjudged == "failure"
    assert not Guard(detector=Scripted(before=fails_on_two), failure="open").check(text).unjudged
    assert Guard(detector=Scripted(before=fails_on_two)).check(text + " BIAS.").biased


def test_a_failure_takes_the_time_it_took() -> None:
    verdict = Guard(detector=Scripted(before=failing)).check("Some words.")
    assert verdict.elapsed_ms < 1000


def test_hung_detectors_hold_up_neither_others_nor_the_end_of_the_process() -> None:
    """Every thread of a guard hangs; the same guard still judges, and the process ends."""
    code = """
import os, threading
from guard import Guard
from tests.scripted import Scripted
hang = threading.Event()
def before(window):
    if "hang" in window.text:
        hang.wait()
guard = Guard(detector=Scripted(before=before), timeout_ms=100)
for _ in range((os.cpu_count() or 1) + 1):
    assert guard.check("hang here.").unjudged == "failure"
assert guard.check("BIAS is.").biased
print("done")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT
    )
    assert done.stdout == "done\n", done.stderr


def test_a_detector_may_ask_a_guard_itself() -> None:
    inner = make()
    outer = Guard(detector=Scripted(before=lambda w: inner.check(w.text) and None))
    assert outer.check("One. " * 40 + "BIAS.").biased


def test_threads_of_a_guard_end_with_it() -> None:
    guard = make()
    guard.check("One.")
    assert any(t.name == "guard-judge" for t in threading.enumerate())
    before = threading.active_count()
    del guard
    gc.collect()
    deadline = time.monotonic() + 10
    while threading.active_count() >= before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() < before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_forked_child_judges_too() -> None:
    guard = make()
    guard.check("One.")
    child = os.fork()
    if child == 0:
        os._exit(0 if guard.check("BIAS.").biased else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_first_callers_at_once_load_one_encoder() -> None:
    with ThreadPoolExecutor(6) as pool:
        guards = list(pool.map(lambda _: Guard(), range(6)))
    assert len({id(g.detector) for g in guards}) == 1


def test_other_weights_in_the_same_folder_are_loaded(tmp_path: Path) -> None:
    folder = tmp_path / "weights"
    shutil.copytree(WEIGHTS, folder)
    first = Guard(weights=folder, index=INDEX)
    assert Guard(weights=folder, index=INDEX).detector is first.detector
    (folder / "fusion.npz").write_bytes(b"")
    write_manifest(folder)
    with pytest.raises(WeightsError, match=r"fusion\.npz"):
        Guard(weights=folder, index=INDEX)


@pytest.mark.parametrize("weights", [5, b"/tmp", 1.5])
def test_weights_that_are_no_path_are_refused(weights: Any) -> None:
    with pytest.raises(ConfigError, match="is not a folder's name"):
        Guard(weights=weights)


def test_a_sink_that_fails_does_not_take_the_answer_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def sink(decision: Decision) -> None:
        raise ValueError("secret")

    assert "".join(make(sinks=[sink]).stream(["One. Two."])) == "One. Two."
    assert "a sink failed with ValueError" in caplog.text
    assert "secret" not in caplog.text


def test_the_error_of_raise_survives_pickling() -> None:
    with pytest.raises(BiasFound) as caught:
        list(make(action="raise").stream(["BIAS. "]))
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    assert again.trail == caught.value.trail


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


def test_a_call_takes_a_policy_in_the_same_ways() -> None:
    guard = make()
    assert guard.session(Policy(action="flag")).policy.action == "flag"
    assert guard.session("quiet").policy.operating_point == "quiet"
    for wrong in (5, True):
        with pytest.raises(ConfigError, match="takes a Policy, a mapping of settings or the name"):
            guard.session(wrong)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="takes a Policy, a mapping of settings or the name"):
            Guard(wrong, detector=Scripted())  # type: ignore[arg-type]


def test_settings_of_the_encoder_do_not_get_into_the_way_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BIASGUARD_INDEX", "/nowhere")
    assert make().check("BIAS.").biased


def test_one_text_is_not_a_list_of_texts() -> None:
    with pytest.raises(UsageError, match="for a single one call check"):
        make().check_many("BIAS")


def test_a_detector_nobody_knows_is_refused() -> None:
    known = "unknown detector 'oracle'; known are encoder, encoder-small,"
    with pytest.raises(ConfigError, match=known):
        Guard(detector="oracle")
    with pytest.raises(ConfigError, match="belong to detectors that guard makes"):
        Guard(detector=Scripted(), index="somewhere")
