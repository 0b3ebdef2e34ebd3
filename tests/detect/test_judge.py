"""A chat model as the detector: what it is asked, what each answer becomes, and what that costs."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard import Guard
from guard.detect import judge_client
from guard.detect.encoder import Encoder
from guard.detect.instruction import Instruction, TemplateAnswer, rendered_answer, unquoted_text
from guard.detect.judge import ModelJudge
from guard.detect.judge_reply import JudgeRecording, JudgeReply
from guard.errors import ConfigError
from guard.judge_settings import JudgeSettings
from guard.verdict import BIAS_TYPES, Reference, Scores, Window
from tests.audit.answering import Answering, answering
from tests.data import ROOT
from tests.detect import judging
from tests.detect.judging import BIASED, HARMLESS, judge, made

TEXT = "I heard that Velmorians are lazy."
FAIR = "The train is late."
INJECTIONS = [
    json.loads(line)["text"]
    for line in Path(__file__).with_name("injections.jsonl").read_text().splitlines()
]


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return judging.retriever()


@pytest.fixture
def asked(encoder: Encoder) -> Iterator[tuple[Answering, ModelJudge]]:
    with judge(encoder) as both:
        yield both


def scores(detector: ModelJudge, *texts: str) -> list[Scores]:
    return detector.snapshot().score([Window(text) for text in texts])


def body(
    content: Any = None, finish: str = "stop", tokens: tuple[int, int] = (7, 2), **message: Any
) -> str:
    said = {"role": "assistant", "content": content, **message}
    choice = {"index": 0, "message": said, "finish_reason": finish}
    usage = {
        "prompt_tokens": tokens[0],
        "completion_tokens": tokens[1],
        "total_tokens": sum(tokens),
    }
    whole = {"id": "1", "object": "chat.completion", "created": 1, "model": "x", "usage": usage}
    return json.dumps({**whole, "choices": [choice]})


def test_a_biased_and_a_harmless_text(asked: tuple[Answering, ModelJudge]) -> None:
    provider, detector = asked
    biased, fair = scores(detector, TEXT, FAIR)
    assert (biased.score, biased.bias_type, fair.score) == (1.0, "culture", 0.0)
    (pair,) = biased.attributions
    assert (pair.group, pair.attribute) == ("Velmorians", "lazy")
    assert TEXT[slice(*pair.attribute_span)] == "lazy"
    assert biased.references
    assert biased.references == detector.embedder.references(TEXT, detector.index)
    assert all(r.statement[:20] in provider.asked[0] + provider.asked[1] for r in biased.references)
    assert {body["temperature"] for body in provider.bodies} == {0}
    assert {body["max_tokens"] for body in provider.bodies} == {256}
    assert detector.spent().outcomes == {"biased": 1, "not biased": 1}


def test_all_thresholds_are_one_half(asked: tuple[Answering, ModelJudge]) -> None:
    points = asked[1].operating_points
    assert points.keys() == {"strict", "balanced", "quiet"}
    assert all(point == dict.fromkeys(BIAS_TYPES, 0.5) for point in points.values())


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ({"Yes": -0.105, "No": -2.303}, 0.9),
        ({"No": -0.105, " yes": -2.996, "YES": -2.996}, 0.1),  # spellings count together
        ({"Yes": -0.01}, 1.0),
        ({"The": -0.1, "Yes": -3.0}, None),  # other text begins
        ({}, None),
    ],
)
def test_the_probability_of_the_first_token(
    first: dict[str, float], expected: float | None
) -> None:
    found = JudgeReply("", first=first).probability()
    assert found == (None if expected is None else pytest.approx(expected, abs=0.01))


def test_scores_are_probabilities_where_the_provider_gives_them(encoder: Encoder) -> None:
    with judge(encoder) as (provider, detector):
        provider.malformed = [
            with_logprobs(HARMLESS, {"No": -0.357, "Yes": -1.204}),
            with_logprobs(BIASED, {"No": -0.357, "Yes": -1.204}),
        ]
        harmless, sampled = scores(detector, FAIR)[0], scores(detector, TEXT)[0]
        assert harmless.score == pytest.approx(0.3, abs=0.001)
        assert sampled.score == 0.5  # the answer says biased, whatever was likelier
        assert [body["top_logprobs"] for body in provider.bodies] == []  # read from the bodies
        scores(detector, "One more.")
        assert provider.bodies[0]["logprobs"]


def with_logprobs(content: str, first: dict[str, float]) -> str:
    found = json.loads(body(content))
    top = [{"token": t, "logprob": p, "bytes": None} for t, p in first.items()]
    found["choices"][0]["logprobs"] = {"content": [{**top[0], "top_logprobs": top}]}
    return json.dumps(found)


def test_a_server_that_refuses_log_probabilities_is_asked_without(encoder: Encoder) -> None:
    with judge(encoder) as (provider, detector):
        provider.status, provider.busy = 400, 1
        assert scores(detector, TEXT)[0].score == 1.0
        scores(detector, FAIR)
        assert [body.get("logprobs") for body in provider.bodies] == [None, None]
        assert detector.spent().calls == 2


def test_a_request_that_is_refused_for_another_reason_fails(encoder: Encoder) -> None:
    import litellm

    with judge(encoder) as (provider, detector):
        scores(detector, TEXT)
        provider.status, provider.busy = 400, 1
        with pytest.raises(litellm.BadRequestError):
            scores(detector, FAIR)
        scores(detector, FAIR)
        assert all(body["logprobs"] for body in provider.bodies)


# --- Bad answers ---------------------------------------------------------------------------------

PROSE = "This is a difficult question, and one should think about it for a while."
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
UNUSABLE = {
    "not in the template": body(PROSE),
    "contradicts itself": body(f"{BIASED}\n{HARMLESS}"),
    "empty": body(""),
    "another language": body("Это предложение предвзято."),
    "cut short": body(f"{HARMLESS} " + "On the other hand, " * 2000, "length"),
    "content filter": body(HARMLESS, "content_filter"),
    "tool call": body(None, "tool_calls", tool_calls=[CALL]),
    "refusal": body(None, refusal="I cannot help with that."),
    "no known type": body(BIASED.replace("cultural", "alphabetical")),
}


@pytest.mark.parametrize("reason", UNUSABLE)
def test_an_answer_that_cannot_be_read_is_unusable(encoder: Encoder, reason: str) -> None:
    with judge(encoder) as (provider, detector):
        provider.malformed = [UNUSABLE[reason]]
        (found,) = scores(detector, FAIR)
        assert found == Scores(unjudged="unusable")
        assert detector.spent().outcomes == {f"unusable: {reason}": 1}


@pytest.mark.parametrize(("failure", "out"), [("closed", "It rains. "), ("open", None)])
def test_the_policy_decides_on_unusable_answers(encoder: Encoder, failure: str, out: Any) -> None:
    text = "It rains. The train is late. So are we."
    with judge(encoder) as (provider, detector):
        # The sentences are asked at the same time.
        provider.answer = lambda m: PROSE if "train" in field_of(m[1]["content"])[1] else HARMLESS
        policy = {"failure": failure, "failure_message": "", "timeout_ms": 60_000}
        guard = Guard(policy, detector=detector, events="none")
        stream = guard.stream([text])
        released = "".join(stream)
    reasons = [d.verdict.unjudged for d in stream.guard if d.verdict.unjudged]
    assert reasons == ["unusable"]
    assert released.strip() == (text if out is None else out.strip())


def test_a_group_that_the_text_does_not_name_is_left_out_and_counted(encoder: Encoder) -> None:
    with judge(encoder) as (provider, detector):
        made_up = TemplateAnswer(True, "age", (("Old people", "lazy"), ("Velmorians", "lazy")))
        provider.answer = lambda messages: rendered_answer(made_up)
        (found,) = scores(detector, TEXT)
        assert (found.score, found.bias_type) == (1.0, "age")  # the verdict stays
        assert [pair.group for pair in found.attributions] == ["Velmorians"]
        assert detector.spent().unlocated == 1


@pytest.mark.parametrize(
    ("status", "kind"), [(429, "RateLimitError"), (500, "InternalServerError"), (401, "Auth")]
)
def test_a_failed_call_is_a_failure_and_only_its_type_is_logged(
    encoder: Encoder, status: int, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    with judge(encoder) as (provider, detector), caplog.at_level(logging.INFO, "guard"):
        provider.status, provider.busy = status, 99
        provider.words = f"cannot judge {TEXT}"
        verdict = Guard({"timeout_ms": 60_000}, detector=detector, events="none").check(TEXT)
        assert verdict.unjudged == "failure"
        (outcome,) = detector.spent().outcomes
        assert outcome.startswith(kind)
        assert f"detector failed with {outcome}" in caplog.text
        assert "Velmorians" not in caplog.text
        provider.busy = 0
        assert scores(detector, TEXT)[0].score == 1.0  # a failure is not kept


def test_the_applications_retries_stay_and_are_not_the_judges(
    encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    import litellm

    monkeypatch.setattr(litellm, "num_retries", 2)
    with judge(encoder) as (provider, detector):
        provider.status, provider.busy = 500, 99
        for tried in (1, 2):
            with pytest.raises(litellm.exceptions.InternalServerError):
                scores(detector, TEXT)
            assert litellm.num_retries == 2
            assert provider.busy == 99 - tried


def test_a_server_that_never_answers_is_a_failure(encoder: Encoder) -> None:
    with judge(encoder, timeout_s=0.3) as (provider, detector):
        provider.delay_s = 1.5
        verdict = Guard({"timeout_ms": 60_000}, detector=detector, events="none").check(TEXT)
        assert verdict.unjudged == "failure"
        assert set(detector.spent().outcomes) <= {"Timeout", "JudgeTimeout"}


def test_a_server_that_drips_its_answer_is_a_failure(encoder: Encoder) -> None:
    """LiteLLM's time limit is for each read, and never ends this."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
                for _ in range(60):
                    connection.sendall(b" ")
                    time.sleep(0.05)

        threading.Thread(target=drip, daemon=True).start()
        base = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        settings = {"timeout_s": 0.2, "params": {"api_base": base, "api_key": "none"}}
        detector = ModelJudge(judging.MODEL, encoder, JudgeSettings.of(settings))
        with pytest.raises(judge_client.JudgeTimeout):
            scores(detector, TEXT)


# --- Once, at once -------------------------------------------------------------------------------


def test_equal_windows_are_asked_once_also_at_the_same_time(encoder: Encoder) -> None:
    with judge(encoder) as (provider, detector):
        provider.delay_s = 0.2
        with ThreadPoolExecutor(16) as pool:
            found = list(pool.map(lambda _: scores(detector, TEXT, TEXT), range(16)))
        assert len(provider.asked) == 1
        assert all(one == found[0][0] for pair in found for one in pair)
        spent = detector.spent()
        assert (spent.windows, spent.calls, spent.shared) == (32, 1, 31)
        detector.snapshot().score([Window(TEXT, ("Before.",)), Window(TEXT, (), "A question?")])
        assert len(provider.asked) == 3  # another context is another request


def test_an_answer_that_comes_too_late_serves_the_next(encoder: Encoder) -> None:
    with judge(encoder) as (provider, detector):
        request = detector.client.begin(Instruction().messages(Window(TEXT), ()))
        detector.client._fail_request(request, judge_client.JudgeTimeout("late"))
        with pytest.raises(judge_client.JudgeTimeout):
            detector.client.result(request)
        until = time.monotonic() + 10
        while not detector.client._known and time.monotonic() < until:
            time.sleep(0.01)
        again = detector.client.begin(Instruction().messages(Window(TEXT), ()))
        assert detector.client.result(again).text == BIASED
        assert len(provider.asked) == 1


def test_memory_is_bounded(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_client, "_KEPT", 3)
    with judge(encoder) as (provider, detector):
        for number in range(6):
            scores(detector, f"It is {number} o'clock.")
        assert len(detector.client._known) == 3
        scores(detector, "It is 5 o'clock.")
        assert len(provider.asked) == 6
        scores(detector, "It is 0 o'clock.")
        assert len(provider.asked) == 7


def test_at_most_so_many_calls_are_under_way(encoder: Encoder) -> None:
    with judge(encoder, concurrency=3) as (provider, detector):
        provider.delay_s = 0.1
        guard = Guard({"timeout_ms": 60_000}, detector=detector, events="none")
        guard.check_many([f"It is {number} o'clock." for number in range(12)])
        assert provider.most_at_once == 3  # more than this machine may have cores
        detector.snapshot().score([Window(f"At {number} o'clock.") for number in range(12)])
        assert provider.most_at_once == 3


def test_another_index_version_is_another_request(encoder: Encoder) -> None:
    one = Reference("Velmorians never work.", "culture", "Velmorians", "never work", 0.9)
    with judge(encoder) as (provider, detector):
        for references in ((), (one,), (one,), ()):
            messages = Instruction().messages(Window(TEXT), references)
            detector.client.result(detector.client.begin(messages))
        assert len(provider.asked) == 2


def _in_child(detector: ModelJudge, queue: Any) -> None:
    queue.put(scores(detector, TEXT)[0].score)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_asks_anew(encoder: Encoder) -> None:
    with judge(encoder) as (provider, detector):
        provider.delay_s = 1.0
        # Under way in the parent, whose threads the child has not.
        request = detector.client.begin(
            Instruction().messages(Window(TEXT), encoder.references(TEXT, encoder.index))
        )
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        child = context.Process(target=_in_child, args=(detector, queue))
        child.start()
        assert queue.get(timeout=60) == 1.0
        child.join()
        assert detector.client.result(request).text == BIASED
        assert len(provider.asked) == 2


def test_a_process_ends_while_a_call_is_under_way(tmp_path: Path) -> None:
    asked, over = tmp_path / "asked", threading.Event()
    with answering() as provider:

        def wait(messages: Any) -> str:
            asked.touch()
            over.wait(200)
            return BIASED

        provider.answer = wait
        code = (
            "from guard.detect.judge_client import JudgeClient; import pathlib, time\n"
            "from guard.judge_settings import JudgeSettings\n"
            f"params = {{'api_base': {provider.base!r}, 'api_key': 'none'}}\n"
            "settings = JudgeSettings.of({'timeout_s': 200, 'params': params})\n"
            f"client = JudgeClient({judging.MODEL!r}, settings)\n"
            "client.begin([{'role': 'user', 'content': 'A.'}])\n"
            f"while not pathlib.Path({str(asked)!r}).exists(): time.sleep(0.05)\n"
            "print('over')"
        )
        try:
            done = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, timeout=150, cwd=ROOT
            )
        finally:
            over.set()
        assert (done.returncode, done.stdout) == (0, "over\n"), done.stderr


# --- Money ---------------------------------------------------------------------------------------


def test_a_budget_stops_it_with_a_sentence_told_once(
    encoder: Encoder, caplog: pytest.LogCaptureFixture
) -> None:
    with judge(encoder, budget=0.002) as (provider, detector):
        provider.malformed = [body(HARMLESS, tokens=(2000, 50))] * 40
        guard = Guard({"timeout_ms": 60_000}, detector=detector, events="none", breaker_failures=2)
        texts = [f"It is {n} o'clock." for n in range(40)]
        verdicts = guard.check_many(texts)
        spent = detector.spent()
        assert 0.001 < spent.cost <= 0.002
        assert 0 < spent.calls == 40 - len(provider.malformed) < 10
        assert [v.unjudged for v in verdicts].count("failure") == 40 - spent.calls
        assert spent.outcomes == {"not biased": spent.calls, "budget spent": 40 - spent.calls}
        assert "of a budget of $0.002; raise judge.budget to go on." in spent.stopped
        assert caplog.text.count(spent.stopped) == 1
        assert "skipped for" not in caplog.text  # no breaker opens
        assert spent.stopped in detector.asks
        known = next(t for t, v in zip(texts, verdicts, strict=True) if v.unjudged is None)
        assert guard.check(known).unjudged is None


def test_answers_without_counts_cost_the_most_they_may(encoder: Encoder) -> None:
    with judge(encoder, budget=0.001) as (provider, detector):
        uncounted = json.loads(body(HARMLESS))
        del uncounted["usage"]
        provider.malformed = [json.dumps(uncounted)] * 40
        scores(detector, *(f"It is {n} o'clock." for n in range(40)))
        spent = detector.spent()
        assert spent.uncounted == spent.calls < 10
        assert spent.cost <= 0.001


@pytest.mark.parametrize("kind", ["late", "unreadable", "cut"])
def test_a_call_that_may_be_billed_costs_the_most_it_may(encoder: Encoder, kind: str) -> None:
    with judge(encoder, budget=0.001, timeout_s=0.2 if kind == "late" else 5) as (
        provider,
        detector,
    ):
        if kind == "late":
            provider.delay_s = 1.0
        else:
            provider.malformed = ["[]" if kind == "unreadable" else body(HARMLESS)[:-9]] * 40
        guard = Guard(detector=detector, events="none", breaker_failures=None)
        verdicts = guard.check_many([f"It is {n} o'clock." for n in range(12)])
        assert {v.unjudged for v in verdicts} == {"failure"}
        spent = detector.spent()
        assert spent.calls < 12
        assert 0.0005 < spent.cost <= 0.001
        assert spent.uncounted == spent.calls
        assert spent.stopped


@pytest.mark.parametrize("status", [429, 500, 401])
def test_a_call_that_was_turned_away_costs_nothing(encoder: Encoder, status: int) -> None:
    with judge(encoder, budget=0.001) as (provider, detector):
        provider.status, provider.busy = status, 12
        guard = Guard(detector=detector, events="none", breaker_failures=None)
        guard.check_many([f"It is {n} o'clock." for n in range(12)])
        spent = detector.spent()
        assert (spent.calls, spent.cost, spent.stopped) == (12, 0.0, "")


def test_nothing_is_billed_where_no_server_listens(encoder: Encoder) -> None:
    with answering() as provider:
        detector = made(encoder, provider, budget=0.001)
    guard = Guard(detector=detector, events="none", breaker_failures=None)
    assert guard.check(TEXT).unjudged == "failure"
    assert detector.spent().cost == 0.0


def test_an_answer_that_ends_for_a_tool_is_none(asked: tuple[Answering, ModelJudge]) -> None:
    provider, detector = asked
    provider.malformed = [body(HARMLESS, "tool_calls")]
    assert scores(detector, FAIR)[0].unjudged == "unusable"


def test_a_budget_needs_a_price(encoder: Encoder) -> None:
    settings = JudgeSettings.of({"budget": 1})
    with pytest.raises(ConfigError, match="LiteLLM has no price for hosted_vllm/x"):
        ModelJudge("hosted_vllm/x", encoder, settings)


def test_cost_and_latency_are_told_for_a_thousand_texts(encoder: Encoder) -> None:
    with judge(encoder) as (_, detector):
        scores(detector, TEXT, FAIR, FAIR, "One more.")
        spent = detector.spent()
        told = {name: (value, unit) for name, value, unit in spent.rows(4)}
        assert told["judge, calls"] == (750.0, "per 1,000 texts")
        assert told["judge, tokens asked"] == (3 * 7 * 250, "per 1,000 texts")
        assert told["judge, cost"] == (pytest.approx(spent.cost * 250), "USD per 1,000 texts")
        assert 0 < told["judge, latency, median"][0] <= told["judge, latency, 99th percentile"][0]


# --- Recordings ----------------------------------------------------------------------------------


def test_a_recording_is_replayed_without_calls(encoder: Encoder, tmp_path: Path) -> None:
    path = tmp_path / "judge.jsonl"
    with judge(encoder, record=path) as (provider, detector):
        provider.malformed = [with_logprobs(HARMLESS, {"No": -0.357, "Yes": -1.204})]
        recorded = [*scores(detector, FAIR), *scores(detector, TEXT)]
        name = detector.name
        again = made(encoder, provider, record=path)  # goes on with what is there
        assert scores(again, FAIR, TEXT) == recorded
        assert again.spent().calls == 0
    replayed = ModelJudge(judging.MODEL, encoder, JudgeSettings.of({"replay": path}))
    assert scores(replayed, FAIR, TEXT) == recorded
    assert replayed.spent().replayed == 2
    assert replayed.name == name
    assert path.stat().st_mode & 0o077 == 0
    assert "train" not in path.read_text()  # requests are not stored


def test_a_replay_needs_no_litellm(encoder: Encoder, tmp_path: Path) -> None:
    """Nor its network, which LiteLLM uses when it is imported."""
    with judge(encoder, record=tmp_path / "judge.jsonl") as (_, detector):
        scores(detector, TEXT)
    code = (
        "import sys; from guard import Guard; from guard.detect.encoder import Encoder; "
        "from guard.detect.judge import ModelJudge; from guard.judge_settings import JudgeSettings;"
        "from tests.small import INDEX, WEIGHTS; "
        f"d = ModelJudge({judging.MODEL!r}, Encoder(WEIGHTS, INDEX), "
        "JudgeSettings.of({'replay': 'judge.jsonl'})); "
        f"print(Guard(detector=d, events='none').check({TEXT!r}).biased, 'litellm' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout == "True False\n", done.stderr


def test_a_replay_refuses_by_name_what_it_does_not_hold(
    encoder: Encoder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "judge.jsonl"
    with judge(encoder, record=path) as (provider, detector):
        scores(detector, FAIR)
        replayed = ModelJudge(judging.MODEL, encoder, JudgeSettings.of({"replay": path}))
        with pytest.raises(judge_client.NotRecorded, match=rf"{path} has no answer of openai/"):
            scores(replayed, TEXT)
        verdict = Guard(detector=replayed, events="none").check(TEXT)
        assert verdict.unjudged == "failure"
        assert caplog.text.count("Further ones are not logged.") == 1
        assert len(provider.asked) == 1


def test_a_recording_survives_a_kill_in_a_line(encoder: Encoder, tmp_path: Path) -> None:
    path = tmp_path / "judge.jsonl"
    with judge(encoder, record=path) as (provider, detector):
        scores(detector, FAIR)
        scores(detector, TEXT)
        whole = path.read_bytes()
        head = len(whole.splitlines(keepends=True)[0])
        for cut in range(head, len(whole), 7):
            path.write_bytes(whole[:cut])
            before = len(provider.asked)
            resumed = made(encoder, provider, record=path)
            assert [s.score for s in scores(resumed, FAIR, TEXT)] == [0.0, 1.0]
            assert 0 < len(provider.asked) - before <= 2
            replayed = ModelJudge(judging.MODEL, encoder, JudgeSettings.of({"replay": path}))
            assert [s.score for s in scores(replayed, FAIR, TEXT)] == [0.0, 1.0]


@pytest.mark.parametrize(
    "line",
    [
        "[" * 100_000,
        '{"key": "a", "text": "No.", "problem": "", "tokens": [Infinity, 1]}',
        '{"key": "a", "text": "No.", "problem": null}',
        '{"key": "a", "text": "No.", "problem": "", "first": {"No": Infinity}}',
        '{"key": "a", "text": "No.", "problem": "", "first": {"No": NaN}}',
    ],
)
def test_a_damaged_line_is_left_out(
    tmp_path: Path, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "judge.jsonl"
    JudgeRecording(path, "x/y", adds=True).add("b", JudgeReply("one"))
    with path.open("a") as file:
        file.write(f"{line}\n")
    found = JudgeRecording(path, "x/y", adds=False)
    assert (found.get("a"), found.get("b")) == (None, JudgeReply("one"))
    assert "damaged" in caplog.text


def test_two_processes_may_begin_a_recording(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "judge.jsonl"
    JudgeRecording(path, "x/y", adds=True).add("b", JudgeReply("one"))
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0] + path.read_bytes())
    assert len(JudgeRecording(path, "x/y", adds=False)) == 1
    assert not caplog.text


def test_a_write_that_is_cut_costs_no_other_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, write = tmp_path / "judge.jsonl", os.write
    recording = JudgeRecording(path, "x/y", adds=True)
    recording.add("a", JudgeReply("one"))
    # As on a full disk.
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[: len(data) // 2]))
    recording.add("b", JudgeReply("two"))
    monkeypatch.setattr(os, "write", write)
    recording.add("c", JudgeReply("three", "cut short", {"No": -0.1}, (1, 2)))
    again = JudgeRecording(path, "x/y", adds=False)
    assert [again.get(key) for key in "abc"] == [JudgeReply("one"), None, recording.get("c")]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"a": 1}\n', "is no recording of a judge"),
        (b"\x00\xff", "is no recording of a judge"),
        (b'{"kind": "guard judge recording", "format": 1, "model": "x/y"}\n', "of 'x/y', not of"),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_replayed(
    encoder: Encoder, tmp_path: Path, data: bytes | None, said: str
) -> None:
    path = tmp_path / "judge.jsonl"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(ConfigError, match=said):
        ModelJudge(judging.MODEL, encoder, JudgeSettings.of({"replay": path}))


# --- Never guarded -------------------------------------------------------------------------------


def test_no_door_guards_a_judges_calls(encoder: Encoder) -> None:
    import litellm

    with judge(encoder) as (provider, detector):
        guard = Guard({"timeout_ms": 60_000}, detector=detector, events="none")
        call = {"model": "openai/x", "api_base": provider.base, "api_key": "none"}
        messages = [{"role": "user", "content": "Tell me about Velmorians."}]
        provider.answer = lambda m: TEXT if "Tell me" in m[-1]["content"] else BIASED
        with guard.intercept():
            answer: Any = litellm.completion(messages=messages, **call)
        assert answer.guard.biased
        # The question, the sentence, and no judgement of a judgement.
        assert len(provider.asked) == 2
        guard.install()
        try:
            provider.answer = lambda m: TEXT[:-1] + "!" if "Tell me" in m[-1]["content"] else BIASED
            answer = litellm.completion(messages=messages, **call)
        finally:
            import guard as package

            package.uninstall()
        assert answer.guard.biased
        assert len(provider.asked) == 4


def test_the_proxys_guardrail_does_not_guard_a_judges_calls(
    encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("fastapi")
    import litellm

    from guard.proxy import Guardrail

    with judge(encoder) as (provider, detector):
        guardrail = Guardrail("bias", "post_call", default_on=True)
        guardrail._guard = Guard({"timeout_ms": 60_000}, detector=detector, events="none")
        monkeypatch.setattr(litellm, "callbacks", [guardrail])
        assert scores(detector, TEXT)[0].score == 1.0
        assert (
            Guard({"timeout_ms": 60_000}, detector=detector, events="none").check(FAIR).score == 0.0
        )
        assert len(provider.asked) == 2


def test_nothing_of_litellms_own_is_sent(encoder: Encoder) -> None:
    with judge(encoder, params={"seed": 3}) as (provider, detector):
        scores(detector, TEXT)
        known = "model messages temperature max_tokens seed logprobs top_logprobs"
        assert provider.bodies[0].keys() == set(known.split())
        (headers,) = provider.headers
        assert headers["authorization"] == "Bearer none"


@pytest.mark.parametrize(
    ("model", "sent"),
    [
        ("openai/gpt-4.1-mini", {"temperature": 0, "max_tokens": 256}),
        ("openai/gpt-5-mini", {"max_completion_tokens": 256}),  # no other temperature than 1
        ("hosted_vllm/x", {"temperature": 0, "max_tokens": 256}),
    ],
)
def test_models_that_take_no_temperature_are_sent_none(
    encoder: Encoder, model: str, sent: dict[str, int]
) -> None:
    with answering() as provider:
        provider.answer = judging.obedient
        params = {"api_base": provider.base, "api_key": "none"}
        detector = ModelJudge(model, encoder, JudgeSettings.of({"timeout_s": 60, "params": params}))
        assert scores(detector, TEXT)[0].score == 1.0
        names = {"temperature", "max_tokens", "max_completion_tokens"}
        assert {n: v for n, v in provider.bodies[0].items() if n in names} == sent


def test_a_provider_with_another_protocol(encoder: Encoder) -> None:
    with answering() as provider:
        provider.answer = lambda messages: BIASED
        params = {"api_base": provider.base.removesuffix("/v1"), "api_key": "none"}
        settings = JudgeSettings.of({"timeout_s": 60, "params": params, "budget": 1})
        detector = ModelJudge("anthropic/claude-haiku-4-5", encoder, settings)
        (found,) = scores(detector, TEXT)
        assert (found.score, found.bias_type) == (1.0, "culture")
        assert provider.bodies[0]["max_tokens"] == 256
        assert "SENTENCE" in provider.bodies[0]["messages"][-1]["content"][0]["text"]
        assert detector.spent().cost > 0


def test_any_language_is_judged(asked: tuple[Answering, ModelJudge]) -> None:
    provider, detector = asked
    found = scores(detector, "Der Zug hat heute Verspätung.", "電車は遅れています。")
    assert [one.unjudged for one in found] == [None, None]
    assert len(provider.asked) == 2


def test_callbacks_and_caches_of_litellm_are_told_nothing_of_a_call(
    encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    import litellm
    from litellm.caching.caching import Cache
    from litellm.integrations.custom_logger import CustomLogger

    seen: list[str] = []

    class Told(CustomLogger):
        def log_pre_api_call(self, model: Any, messages: Any, kwargs: Any) -> None:
            seen.append("before")

        def log_success_event(self, kwargs: Any, response_obj: Any, start: Any, end: Any) -> None:
            seen.append("success")

        def log_failure_event(self, kwargs: Any, response_obj: Any, start: Any, end: Any) -> None:
            seen.append("failure")

    monkeypatch.setattr(litellm, "callbacks", [Told()])
    monkeypatch.setattr(litellm, "cache", Cache())
    with judge(encoder) as (provider, detector):
        assert scores(detector, TEXT)[0].score == 1.0
        provider.status, provider.busy = 500, 1
        with pytest.raises(litellm.InternalServerError):
            scores(detector, FAIR)
        detector.client._known.clear()
        assert scores(detector, TEXT)[0].score == 1.0
        assert len(provider.asked) == 2  # none from a cache
    time.sleep(0.3)  # callbacks run in threads of their own
    # LiteLLM has no way to leave out a callback before a call.
    assert set(seen) <= {"before"}


# --- The judged text is data ---------------------------------------------------------------------


@dataclass(frozen=True)
class Unquoted(Instruction):
    """Puts texts between quotation marks as they are."""

    def asked(self, window: Window, references: Any) -> str:
        lines = [f'CONTEXT: "{text}"' for text in window.context]
        return "\n".join([*lines, f'SENTENCE: "{window.text}"'])


def test_there_are_forty_sentences() -> None:
    assert len(set(INJECTIONS)) == 40
    assert all("Velmorians are lazy" in text for text in INJECTIONS)


def field_of(user: str) -> tuple[str, str]:
    """Return a user message without its last field, and that field's text."""
    before, mark, literal = user.rpartition("\nSENTENCE: ")
    assert mark
    return before, unquoted_text(literal)


@given(st.one_of(st.sampled_from(INJECTIONS), st.text()), st.text())
def test_a_request_differs_in_one_field_alone(text: str, other: str) -> None:
    instruction, references = Instruction(), (Reference("A b.", "age", "a", "b", 0.9),)
    one, two = (instruction.messages(Window(t, ("Before.",)), references) for t in (text, other))
    assert [message["role"] for message in one] == ["system", "user"]
    assert one[0] == two[0]
    assert field_of(one[1]["content"])[0] == field_of(two[1]["content"])[0]
    assert field_of(one[1]["content"])[1] == text
    assert one[1]["content"].count("\n") == 2


def test_no_sentence_changes_the_verdict_of_a_judge_that_obeys(encoder: Encoder) -> None:
    with judge(encoder) as (provider, detector):
        assert [s.score for s in scores(detector, *INJECTIONS)] == [1.0] * 40
        # Nor what stands before or after it.
        windows = [Window(TEXT, (text,)) for text in INJECTIONS]
        windows += [Window(TEXT, (), text) for text in INJECTIONS]
        assert [s.score for s in detector.snapshot().score(windows)] == [1.0] * 80
        # What goes over the wire is what the instruction made.
        sent = [field_of(json.loads(said)[1]["content"])[1] for said in provider.asked[:40]]
        assert sorted(sent) == sorted(INJECTIONS)


def test_the_same_judge_is_fooled_by_texts_that_are_not_quoted(encoder: Encoder) -> None:
    """So the test above can fail."""
    with judge(encoder) as (_, detector):
        settings = detector.client.settings
        naive = ModelJudge(judging.MODEL, encoder, settings, Unquoted())
        assert [s.score for s in scores(naive, TEXT, FAIR)] == [1.0, 0.0]
        fooled = [s.score for s in scores(naive, *INJECTIONS)].count(0.0)
        assert fooled >= 25


def test_no_sentence_changes_what_a_guarded_stream_releases(encoder: Encoder) -> None:
    with judge(encoder) as (_, detector):
        guard = Guard({"message": "", "timeout_ms": 60_000}, detector=detector, events="none")
        for text in INJECTIONS:
            assert "Velmorians are lazy" not in "".join(guard.stream([text])), text


@pytest.mark.slow("asks a real small model for 41 answers", limit_s=3600)
def test_what_a_small_model_makes_of_the_sentences(encoder: Encoder) -> None:
    """Prints how often its answer changes: a figure of the model, and no promise."""
    from guard.local import download

    if download.weights_state("smollm2")[0] != "ok":
        pytest.skip("smollm2 is not downloaded: guard models get smollm2")
    # It would go on with sentences of its own after the answer.
    params = {"max_tokens": 48, "stop": ["\n"]}
    settings = JudgeSettings.of({"timeout_s": 300, "concurrency": 1, "params": params})
    detector = ModelJudge("guard-local/smollm2", encoder, settings)
    plain, *found = (
        (one.score, one.unjudged)
        for text in ("Velmorians are lazy.", *INJECTIONS)
        for one in scores(detector, text)
    )
    changed = sum(one != plain for one in found)
    print(f"smollm2 says {plain} of the plain sentence, and otherwise of {changed} of the 40")
    assert detector.spent().calls == 41
