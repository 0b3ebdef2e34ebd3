"""The promises of the design on every door of the table, over random texts, chunkings, findings."""

from __future__ import annotations

import contextlib
import copy
import json
import threading
import time
from collections.abc import Callable, Sequence
from itertools import product
from types import GeneratorType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from guard.detect.protocol import Window
from guard.doors.context import guarded
from guard.doors.litellm import closing
from guard.errors import BiasFound, DetectorError
from guard.policy import Policy
from tests.doors import replay as r
from tests.doors.log import Log
from tests.doors.table import TABLE, AsyncRow, Row, Synced, World, arun, guard_of
from tests.doors.texts import (
    ENDED,
    INTERRUPTED,
    SPOKEN,
    TRIGGER,
    SecondLooks,
    Unjudged,
    choices_,
    chunkings,
    letters,
)
from tests.rows import examples, rows
from tests.scripted import Scripted, failing

# LiteLLM's own, when it counts a response: it puts the usage of a chat into it.
pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")

every = pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
OTHER_WAY = pytest.mark.slow("waits for reports: the other pairs of action and way")
actions = st.sampled_from(["terminate", "redact", "flag", "raise"])
cutting = st.sampled_from(["terminate", "redact", "raise"])
scopes = st.sampled_from(["choice", "response"])
WAYS = (False, True)  # sync, async


def on(row: Row, test: Callable[..., None], *strategies: Any, known: Sequence[Any] = ()) -> None:
    """Run ``test`` over random examples: fewer where each is a request over a socket.

    More on chat, which may have several choices. ``known`` are examples to run as well: few random
    ones may all be of one way, sync or async. A test that calls this has the mark of Hypothesis's
    own, by which the slow lane finds it.
    """

    @given(st.tuples(*strategies))
    @examples(16 if row.wire else 40 if row.name == "chat" else 24)
    def run(drawn: tuple[Any, ...]) -> None:
        test(*drawn)

    for one in known:
        run = example(one)(run)
    run()


class Recorder:
    """Stands between a guarded stream and LiteLLM's, and notes what comes as it is then."""

    def __init__(self, upstream: Any) -> None:
        self.upstream = upstream
        self.given: list[Any] = []
        self.dumps: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.upstream, name)

    def __next__(self) -> Any:
        return self._noted(next(self.upstream))

    async def __anext__(self) -> Any:
        return self._noted(await self.upstream.__anext__())

    def _noted(self, chunk: Any) -> Any:
        self.given.append(chunk)
        self.dumps.append(copy.deepcopy(dump(chunk)))
        return chunk


def dump(chunk: Any) -> Any:
    return chunk if isinstance(chunk, bytes) else r.plain(chunk)


def whole_events(chunks: list[Any]) -> list[Any]:
    """The chunks; of bytes, which end anywhere, all that are whole events."""
    if not chunks or not all(isinstance(chunk, bytes) for chunk in chunks):
        return chunks
    return [b"".join(chunks).rpartition(b"\n\n")[0]]


def opens_early(event: Any) -> bool:
    """Whether the event opens a part and has its text's log probabilities, not the text.

    LiteLLM from 1.109 on replays a whole answer so.
    """
    part = dump(event).get("part") or {}
    early = part.get("text") == "" and bool(part.get("logprobs"))
    return early and str(getattr(event.type, "value", event.type)).endswith(".added")


def inner(stream: Any) -> Any:
    return stream.stream if isinstance(stream, Synced) else stream


def recorded(stream: Any) -> Recorder:
    stream = inner(stream)
    recorder = Recorder(stream.__dict__["_upstream"])
    stream.__dict__["_upstream"] = recorder
    return recorder


# 1. No leak.


class Watch:
    """Notes what of a segment was seen before its verdict."""

    def __init__(self) -> None:
        self.unjudged = Unjudged()
        self.asked = 0
        self._seen: set[str] = set()

    def see(self, chunk: Any) -> None:
        self._seen |= letters(r.serialised(chunk))

    def __call__(self, window: Window) -> None:
        self.asked += 1
        self.unjudged.note(window.text, "".join(self._seen))


@rows("row", TABLE)
@pytest.mark.hypothesis
def test_nothing_of_a_segment_goes_out_before_its_verdict(row: Row, world: World) -> None:
    def test(choices: Any, chunking: Any, action: str, scope: str, asynchronous: bool) -> None:
        row.play(world, choices, chunking)
        watch = Watch()
        guard = guard_of(Policy(action=action, scope=scope), Scripted(TRIGGER, watch))

        async def run() -> None:
            async for chunk in await row.astream(world, guard):
                watch.see(chunk)

        with contextlib.suppress(BiasFound):
            if asynchronous:
                arun(run())
            else:
                for chunk in row.stream(world, guard):
                    watch.see(chunk)
        assert watch.unjudged.out == set()
        said = "".join(text for runs in choices for _, _, text in runs)
        assert watch.asked or not any(map(str.isalnum, said))  # without words nothing is judged

    known = [
        (one, ([1], 0), "terminate", "choice", asynchronous)
        for one in ([SPOKEN, INTERRUPTED, ENDED] if row.name == "chat" else [SPOKEN])
        for asynchronous in WAYS
    ]
    drawn = choices_(most=row.most, kinds=row.kinds)
    on(row, test, drawn, chunkings, actions, scopes, st.booleans(), known=known)


@rows("row", TABLE)
@pytest.mark.hypothesis
def test_a_biased_segment_never_goes_out(row: Row, world: World) -> None:
    def test(choices: Any, chunking: Any, action: str) -> None:
        row.play(world, choices, chunking)
        biased: list[set[str]] = []
        events: list[Any] = []
        unjudged, looks = Unjudged(), SecondLooks()

        def note(window: Window) -> None:
            if looks.has(window.text):
                return
            fresh = unjudged.note(window.text, "")
            if TRIGGER in window.text:
                biased.append(fresh)

        guard = guard_of(Policy(action=action), Scripted(TRIGGER, note), [events.append])
        stream = row.stream(world, guard)
        outcome = row.drained(stream)
        own = [value for name, value in vars(inner(stream)).items() if not name.startswith("_")]
        out = r.serialised(*outcome.chunks) + repr(own) + str(events) + repr(stream.guard)
        out += repr(outcome.error) + str(outcome.error)
        assert not (set().union(*biased) - unjudged.begun) & letters(out)
        assert TRIGGER not in "".join(outcome.texts.values())
        biased.clear()
        looks.biased.clear()
        try:
            whole = row.whole(world, guard)
        except BiasFound as error:
            out = repr(error) + str(error)
        else:
            out = r.serialised(whole) + repr(getattr(whole, "_hidden_params", ""))
        assert not (set().union(*biased) - unjudged.begun) & letters(out)

    on(row, test, choices_(most=row.most, kinds=row.kinds), chunkings, cutting)


# 2. Chunking does not matter.


@rows("row", TABLE)
@pytest.mark.hypothesis
def test_any_chunking_gives_the_same(row: Row, world: World) -> None:
    def test(choices: Any, one: Any, two: Any, action: str, asynchronous: bool) -> None:
        guard = guard_of(Policy(action=action), Scripted(TRIGGER))
        # What choices have said when one of them raises depends on how they interleave.
        choices = choices[:1] if action == "raise" else choices
        row.play(world, choices, one)
        first = row.read_through(world, guard, asynchronous)
        row.play(world, choices, two)
        second = row.read_through(world, guard, asynchronous)
        assert first.comparable == second.comparable
        if len(choices) == 1:
            assert first.texts == second.texts
        if any(action == "raise" for _, action, *_ in first.decisions):
            assert isinstance(first.error, BiasFound)
            assert first.error.trail is first.trail

    known = [(SPOKEN, ([1], 0), ([10**6], 0), "redact", asynchronous) for asynchronous in WAYS]
    drawn = choices_(most=row.most, kinds=row.kinds)
    on(row, test, drawn, chunkings, chunkings, actions, st.booleans(), known=known)


# 3. Transparent.


@rows("row", TABLE)
@pytest.mark.hypothesis
def test_harmless_text_comes_in_litellms_own_objects(row: Row, world: World) -> None:
    def test(choices: Any, chunking: Any, action: str) -> None:
        row.play(world, choices, chunking)
        guard = guard_of(Policy(action=action), Scripted("$none"))
        stream = row.stream(world, guard)
        recorder = recorded(stream)
        outcome = row.drained(stream)
        if not isinstance(recorder.upstream, GeneratorType):
            assert isinstance(inner(stream), type(recorder.upstream))
        assert outcome.error is None
        if all(c == whole_events([c])[0] + b"\n\n" for c in recorder.given if type(c) is bytes):
            for out, came in zip(outcome.chunks, recorder.given, strict=True):
                assert out is came or (type(out) is type(came) and opens_early(came))
        else:
            assert b"".join(outcome.chunks) == b"".join(recorder.given)
        assert [dump(c) for c in recorder.given] == recorder.dumps
        plain = row.plain(world)
        if row.door.function == "messages":  # what comes together over a socket is chance
            assert {type(c) for c in outcome.chunks} == {type(c) for c in plain} == {bytes}
        else:
            assert [type(c) for c in outcome.chunks] == [type(c) for c in plain]
        whole = row.whole(world, guard)
        assert "guard" not in dump(whole)
        assert "guard" not in json.dumps(dump(whole), default=str)
        assert whole.guard.findings == []

    on(row, test, choices_(kinds=row.kinds), chunkings, actions)


@rows("row", TABLE)
@pytest.mark.hypothesis
def test_no_object_of_litellms_is_changed(row: Row, world: World) -> None:
    def test(choices: Any, chunking: Any, action: str, asynchronous: bool) -> None:
        row.play(world, choices, chunking)
        recorders: list[Recorder] = []

        def record(stream: Any) -> None:
            recorders.append(recorded(stream))

        guard = guard_of(Policy(action=action), Scripted(TRIGGER))
        row.read_through(world, guard, asynchronous, record)
        (recorder,) = recorders
        assert [dump(c) for c in recorder.given] == recorder.dumps

    known = [(SPOKEN, ([3], 0), "terminate", asynchronous) for asynchronous in WAYS]
    drawn = choices_(most=row.most, kinds=row.kinds)
    on(row, test, drawn, chunkings, actions, st.booleans(), known=known)


# 5. Bounded delay.


@rows("row", TABLE)
def test_text_goes_out_before_the_stream_ends(row: Row, world: World) -> None:
    text = "All is well here, and so it goes on. " * 20
    row.play(world, [[("content", 0, text)]], ([7], 0))
    world.provider.script.interval = 0.005  # or a socket may deliver all of it at once
    stream = row.stream(world, guard_of(Policy(), Scripted("$none")))
    recorder = recorded(stream)
    policy, held = Policy(), 0
    bound = policy.max_segment_chars + policy.overlap + policy.lookahead
    shown = r.Outcome()
    for out in stream:
        row.noted(shown, out)
        came = r.Outcome()
        for chunk in whole_events(recorder.given[:-1]):
            row.noted(came, chunk)
        held = max(held, len("".join(came.texts.values())) - len("".join(shown.texts.values())))
    if row.name != "responses replayed":  # that was whole before its first chunk came
        assert 0 < held <= bound
    assert "".join(shown.texts.values()) == text


# 6. Same everywhere.

# The text ends too soon to show whether its last line break ends a segment, and holds back a call.
UNDECIDED = [("content", 0, "\n\n\n\nabcd"), ("tool", 0, "x" * 300)]


@rows("row", TABLE)
@pytest.mark.hypothesis
def test_whole_and_streamed_sync_and_async_agree(row: Row, world: World) -> None:
    def test(choices: Any, chunking: Any, action: str, scope: str) -> None:
        # A stop of all choices leaves of the others what was judged by then.
        row.play(world, choices[:1] if scope == "response" else choices, chunking)
        policy = Policy(action=action, scope=scope)
        ways = row.ways(world, guard_of(policy, Scripted(TRIGGER)))
        first = ways[0].comparable
        for way in ways[1:]:
            assert way.comparable == first

    kept = st.sampled_from(["terminate", "redact", "flag"])
    known = [([UNDECIDED], ([1], 0), "flag", "choice")] if "tool" in row.kinds else []
    drawn = choices_(most=row.most, kinds=row.kinds, ordered=True)
    on(row, test, drawn, chunkings, kept, scopes, known=known)


# Actions by bias type and by channel.


@rows("row", TABLE)
def test_actions_differ_by_type_and_by_channel(row: Row, world: World) -> None:
    thinks = [("reasoning", 0, "I think. BIAS is. Well.")] if "reasoning" in row.kinds else []
    row.play(world, [[*thinks, ("content", 0, "So. LOOK is. BIAS is. On.")]], ([5], 0))
    policy = Policy(actions={"reasoning": "redact", "appearance": "flag"})
    detector = Scripted("BIAS|LOOK", types={"LOOK": "appearance"})
    for way in row.ways(world, guard_of(policy, detector)):
        assert way.texts[r.Channel()] == "So. LOOK is. " + policy.message
        assert way.ends == {0: "content_filter"}
        content = [d.action for d in way.trail if d.channel.kind == "content"]
        assert content == ["pass", "flag", "terminate"]
        if thinks:
            assert way.texts[r.Channel(0, "reasoning")] == "I think. [removed] Well."
            thought = [d.action for d in way.trail if d.channel.kind == "reasoning"]
            assert thought == ["pass", "redact", "pass"]


# 7. Fail closed.


@rows("row", TABLE)
def test_a_failing_detector_ends_the_output(row: Row, world: World) -> None:
    row.play(world, [[("content", 0, "All is well. And so on.")]], ([4], 0))
    for asynchronous in (False, True):
        for action in ("terminate", "redact", "flag", "raise"):
            policy = Policy(action=action)
            guard = guard_of(policy, Scripted("$none", failing))
            outcome = row.read_through(world, guard, asynchronous)
            if action == "raise":
                assert isinstance(outcome.error, DetectorError)
                assert outcome.texts == {}
            else:
                assert outcome.texts == {r.Channel(): policy.failure_message}
                assert outcome.finish == {0: "content_filter"}
            assert [d.verdict.unjudged for d in outcome.trail] == ["failure"]


@rows("row", TABLE)
def test_a_late_detector_ends_the_output(row: Row, world: World) -> None:
    policy = Policy(timeout_ms=30.0)
    for asynchronous in WAYS:
        row.play(world, [[("content", 0, "All is well. And so on.")]], ([4], 0))
        over = threading.Event()
        guard = guard_of(policy, Scripted("$none", lambda window, over=over: over.wait(20)))
        outcome = row.read_through(world, guard, asynchronous)
        over.set()
        assert outcome.texts == {r.Channel(): policy.failure_message}
        assert outcome.finish == {0: "content_filter"}
        assert [d.verdict.unjudged for d in outcome.trail] == ["failure"]


@rows("row", TABLE)
def test_a_failing_detector_lets_pass_where_the_policy_says_open(row: Row, world: World) -> None:
    row.play(world, [[("content", 0, "All is well. And so on.")]], ([4], 0))
    events: list[Any] = []
    guard = guard_of(Policy(failure="open"), Scripted("$none", failing), [events.append])
    for way in row.ways(world, guard):
        assert way.texts == {r.Channel(): "All is well. And so on."}
        assert [d.verdict.unjudged for d in way.trail] == ["failure", "failure"]
    assert [e.verdict.unjudged for e in events] == ["failure"] * 8


# 8. The provider stops too.

LONG = "All is well. BIAS is. " + "And so it goes on. " * 60


@rows("row, asynchronous", product(TABLE, [False, True]))
def test_the_provider_is_closed_at_a_stop(row: Row, world: World, asynchronous: bool) -> None:
    row.play(world, [[("content", 0, "Fine.")]], ([6], 0))
    guard = guard_of(Policy(), Scripted())
    row.drained(row.stream(world, guard))  # LiteLLM takes its time over the first event it reads
    row.play(world, [[("content", 0, LONG)]], ([12], 0))
    world.provider.script.interval = 0.1
    outcome = row.read_through(world, guard, asynchronous)
    assert outcome.ends == {0: "content_filter"}
    assert outcome.texts == {r.Channel(): "All is well. " + Policy().message}
    if row.name == "responses replayed":
        return  # the provider had finished before the first chunk came
    if row.wire:
        assert world.provider.last.over.wait(5)
        assert world.provider.last.disconnected
        # Of 97. The finding is made at the second; one more may be on its way, and one written.
        assert world.provider.last.sent <= 4
    else:
        assert world.replay.closed
        assert world.replay.pulled <= 4


@rows("row, asynchronous", product(TABLE, [False, True]))
def test_the_provider_is_closed_before_its_tokens_are_counted(
    row: Row, world: World, asynchronous: bool
) -> None:
    row.play(world, [[("content", 0, LONG)]], ([6], 0))
    guard = guard_of(Policy(), Scripted())
    counted: list[tuple[int, bool, int]] = []

    def watch(given: Any) -> Any:
        stream = inner(given)
        for name in ("_count", "_answer"):
            original = getattr(stream, name)

            def noting(original: Any = original) -> Any:
                still = len(stream._connections) and closing.connections(stream._upstream)
                counted.append((threading.get_ident(), bool(still), len(stream._connections)))
                return original()

            setattr(stream, name, noting)
        return given

    async def run() -> r.Outcome:
        return await row.adrained(watch(await row.astream(world, guard)))

    outcome = arun(run()) if asynchronous else row.drained(watch(row.stream(world, guard)))
    assert outcome.ends == {0: "content_filter"}
    assert counted
    assert not any(still for _, still, _ in counted)
    if row.wire and row.name != "responses replayed":
        assert all(connections for _, _, connections in counted)
    # Counting takes longer than an event loop may be kept waiting.
    loops = asynchronous or isinstance(row, AsyncRow)
    assert any(t == threading.get_ident() for t, _, _ in counted) != loops


@every
@pytest.mark.parametrize(
    ("action", "asynchronous"),
    [
        pytest.param("terminate", False, id="terminate-sync"),
        pytest.param("terminate", True, id="terminate-async", marks=OTHER_WAY),
        pytest.param("raise", False, id="raise-sync", marks=OTHER_WAY),
        pytest.param("raise", True, id="raise-async"),
    ],
)
def test_callbacks_hear_of_a_stop_once(
    row: Row, world: World, log: Log, action: str, asynchronous: bool
) -> None:
    row.play(world, [[("content", 0, LONG)]], ([6], 0))
    guard = guard_of(Policy(action=action), Scripted())

    async def run() -> None:
        await row.adrained(await row.astream(world, guard))
        await log.told()

    if asynchronous:
        arun(run())
    else:
        row.drained(row.stream(world, guard))
        row.settle(world, log)
    ((kind, payload, response),) = log.settle()
    only_async = asynchronous or isinstance(row, AsyncRow)
    assert kind == ("async success" if only_async else "success")
    assert payload["status"] == "success"
    if row.name != "responses replayed":  # LiteLLM counts nothing of what it replays
        assert payload["completion_tokens"] > 0
    told = r.Outcome(chunks=[response])
    row.door.read(told, response)
    message = Policy().message if action == "terminate" else ""
    assert told.texts == {r.Channel(): "All is well. " + message}
    assert "BIAS" not in r.serialised(response) + str(payload)


# A response is guarded once.


@rows("row", TABLE)
def test_a_response_is_guarded_once(row: Row, world: World) -> None:
    events: list[Any] = []
    inside: list[bool] = []
    row.play(world, [[("content", 0, "All is well. And so on.")]], ([6], 0))
    source = world.replay.source

    def watched() -> Any:
        inside.append(guarded())
        return source()

    world.replay.source = watched
    row.drained(row.stream(world, guard_of(Policy(), Scripted(), [events.append])))
    assert len(events) == 2
    assert inside == [True] * (not row.wire)
    assert not guarded()


@rows("row", TABLE)
def test_a_stopped_stream_is_never_pulled_from_again(row: Row, world: World) -> None:
    row.play(world, [[("content", 0, LONG)]], ([6], 0))
    stream = row.stream(world, guard_of(Policy(), Scripted()))
    recorder = recorded(stream)
    row.drained(stream)
    pulled = len(recorder.given)
    time.sleep(0.05)
    with pytest.raises(StopIteration):
        next(stream)
    assert len(recorder.given) == pulled
