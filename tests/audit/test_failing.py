"""What a provider or a disk refuses: in whose words, after how many calls, with which exit code."""

from __future__ import annotations

import gzip
import json
import os
import resource
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from guard.audit.calls import Call
from guard.cli import main
from tests.audit.answering import Answering
from tests.audit.written import read, recorded_suite

SUITE = "tests.audit.tiny_suite:Tiny"
pytestmark = pytest.mark.usefixtures("elsewhere")


def run(*args: str, suite: str = SUITE) -> Result:
    fixed = ("run", "--suite", suite, "--plain-only")
    return CliRunner().invoke(main, ["audit", *fixed, *args], catch_exceptions=False)


RESUMES = "run the same command to resume"


def test_a_missing_key_is_told_in_litellms_words_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    slept: list[float] = []
    monkeypatch.setattr("guard.audit.runner.pause", lambda s, _: slept.append(s))
    result = run("--model", "openai/gpt-4o-mini")
    assert result.exit_code == 4
    assert "openai/gpt-4o-mini cannot be asked:" in result.stderr
    assert "OPENAI_API_KEY" in result.stderr
    assert not slept  # no attempt was repeated
    assert RESUMES not in result.output  # nothing has been answered


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "the parameter 'foo' is not supported"),
        (401, "Incorrect API key"),
        (403, "You may not use this model"),
        (404, "The model `x` does not exist"),
        (422, "max_tokens is too small"),
    ],
)
def test_what_no_retry_mends_ends_after_the_first_calls(
    provider: Answering, status: int, words: str
) -> None:
    provider.busy, provider.status, provider.words = 10_000, status, words
    result = run("--model", "openai/x", "--concurrency", "2")
    assert result.exit_code == 4
    assert words in result.stderr
    assert len(provider.refused_at) <= 2
    assert RESUMES not in result.output


def test_answers_none_of_which_can_be_read_have_an_exit_code(provider: Answering) -> None:
    provider.answer = lambda _: "Who knows?"
    result = run("--model", "openai/x", "--json")
    assert result.exit_code == 3
    (suite,) = json.loads(result.stdout)["suites"]
    assert suite["complete"]
    assert suite["coverage"] == 0
    assert "No answer to tiny could be read; this says nothing about openai/x." in result.stderr


def test_a_request_that_is_refused_amid_answers_fails_alone(provider: Answering) -> None:
    def answer(messages: list[dict[str, str]]) -> str:
        if ", t7:" in messages[0]["content"]:
            provider.busy = 1  # the next request is refused
        return "first"

    provider.answer, provider.status, provider.words = answer, 400, "string too long"
    result = run("--model", "openai/x", "--concurrency", "1", "--json", "--out", "out")
    assert result.exit_code == 4
    (suite,) = json.loads(result.stdout)["suites"]
    assert suite["outcomes"]["failed"] == 1
    assert len(provider.refused_at) == 1
    calls = recorded_suite(Path("out/run.db")).calls
    (failed,) = [c for c in calls.values() if c.reply is None]
    assert failed.error == "the request is too long"


def test_a_key_that_expires_keeps_what_was_answered_and_says_what_goes_on(
    provider: Answering,
) -> None:
    def answer(messages: list[dict[str, str]]) -> str:
        if ", t20:" in messages[0]["content"]:
            provider.busy = 10_000
        return "first"

    provider.answer, provider.status, provider.words = answer, 401, "expired key"
    result = run("--model", "openai/x", "--json", "--out", "out")
    assert result.exit_code == 4
    (suite,) = json.loads(result.stdout)["suites"]
    assert suite["missing"] > 0 < suite["calls"]["answered"] == len(provider.asked)
    assert "expired key" in result.stderr
    assert "Fix this and run the same command to resume" in result.stderr
    provider.busy = 0
    provider.answer = lambda _: "first"
    assert run("--model", "openai/x", "--json", "--out", "out").exit_code == 0
    assert len(provider.asked) == 60


def test_the_first_failed_attempt_is_told_before_the_others_are_made(provider: Answering) -> None:
    provider.busy, provider.status, provider.words = 1, 503, "the machine is warming up"
    result = run("--model", "openai/x", "--concurrency", "1")
    assert result.exit_code == 0
    assert result.stderr.count("No answer yet: ") == 1
    assert "the machine is warming up; retrying" in result.stderr


def test_a_long_error_is_cut_at_a_word(provider: Answering) -> None:
    provider.busy, provider.status, provider.words = 10_000, 401, "expired " * 90
    result = run("--model", "openai/x", "--concurrency", "1")
    assert "expired …" in result.stderr
    assert "expire …" not in result.stderr
    assert len(result.stderr) < 1000


BODIES = (
    '{"choices": []}',
    "{}",
    "null",
    "<html>busy</html>",
    '{"choices": [{}]}',
    '{"choices": [{"message": null}]}',
    '{"choices": [{"message": {"role": "assistant", "content": 5}}]}',
    '{"error": {"message": "overloaded"}}',
)


@pytest.mark.parametrize("body", BODIES)
def test_a_success_that_holds_no_answer_is_asked_for_again(
    provider: Answering, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    async def none(*_: object) -> None:
        """The pause before it."""

    monkeypatch.setattr("guard.audit.runner.pause", none)
    provider.malformed = [body]
    result = run("--model", "openai/x", "--sample", "2", "--json", "--concurrency", "1")
    assert result.exit_code == 0, result.output
    (suite,) = json.loads(result.stdout)["suites"]
    assert suite["complete"]
    (path,) = Path().glob("guard-audits/*/run.db")
    tried = [c.attempts for c in read(path)[1] if isinstance(c, Call)]
    assert sorted(tried, reverse=True)[:2] == [2, 1]


def test_a_refusal_in_a_field_of_its_own_is_read(provider: Answering) -> None:
    message = {"role": "assistant", "content": None, "refusal": "Sorry, I cannot help with that."}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    provider.malformed = [json.dumps({"id": "1", "model": "x", "choices": [choice]})]
    result = run("--model", "openai/x", "--sample", "1", "--json")
    (suite,) = json.loads(result.stdout)["suites"]
    assert suite["outcomes"]["refused"] == 1


# Files.


def test_a_file_in_place_of_a_folder_is_one_sentence_before_any_call(provider: Answering) -> None:
    Path("out").write_text("something else")
    result = run("--model", "openai/x", "--out", "out")
    assert result.exit_code == 2
    assert "out is a file where a folder is needed" in result.output
    Path("there").mkdir()
    Path("there/run.db").mkdir()
    result = run("--model", "openai/x", "--out", "there")
    assert result.exit_code == 2
    assert "run.db is not a file" in result.output
    assert not provider.asked


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_cannot_be_written_is_one_sentence(provider: Answering) -> None:
    Path("out").mkdir(mode=0o500)
    result = run("--model", "openai/x", "--out", "out")
    assert result.exit_code == 2
    assert "cannot be written: Permission denied" in result.output
    assert not provider.asked


@pytest.mark.parametrize("content", [b"hello", gzip.compress(b"hello", mtime=0), b"\x1f\x8bxx" * 9])
def test_a_foreign_file_is_refused_before_any_call_and_left_alone(
    provider: Answering, content: bytes
) -> None:
    path = Path("out/run.db")
    path.parent.mkdir()
    path.write_bytes(content)
    result = run("--model", "openai/x", "--out", "out")
    assert result.exit_code == 2
    journal = content.startswith(b"\x1f\x8b")
    told = "guard audit convert out" if journal else "run.db is not the file of a run"
    assert told in result.output
    assert path.read_bytes() == content
    assert not provider.asked


def test_all_suites_are_looked_at_before_the_first_call(provider: Answering) -> None:
    Path("out").mkdir()
    Path("out/sampled.jsonl.gz").write_bytes(gzip.compress(b"a journal", mtime=0))
    both = f"{SUITE},tests.audit.test_sending:Sampled"
    result = run("--model", "openai/x", "--out", "out", suite=both)
    assert result.exit_code == 2
    assert "sampled.jsonl.gz is a journal of an earlier version" in result.output
    assert not provider.asked


@pytest.mark.skipif(sys.platform == "win32", reason="limits as POSIX has them")
def test_a_full_disk_is_one_sentence_and_what_was_paid_for_is_printed(
    provider: Answering,
) -> None:
    provider.answer = lambda messages: messages[0]["content"] + os.urandom(300).hex()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, hard))
    try:
        done = run("--model", "openai/x", "--out", "out", "--json")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert done.exit_code == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "out/run.db cannot be written: disk I/O error" in done.stderr
    (suite,) = json.loads(done.stdout)["suites"]
    assert suite["calls"]["answered"] == len(provider.asked) < 60
    provider.answer = lambda _: "first"
    assert run("--model", "openai/x", "--out", "out").exit_code == 0


# Standard output.


def test_json_on_stdout_is_json_whatever_litellm_prints(
    provider: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    import litellm

    asked, counted = litellm.acompletion, litellm.token_counter

    async def noisy(**call: object) -> object:
        print("Provider List: https://docs.litellm.ai/docs/providers")
        return await asked(**call)

    def counting(**of: object) -> object:
        print("Provider List: https://docs.litellm.ai/docs/providers")
        return counted(**of)

    monkeypatch.setattr(litellm, "acompletion", noisy)
    monkeypatch.setattr(litellm, "token_counter", counting)
    result = run("--model", "openai/x", "--json")
    assert json.loads(result.stdout)["suites"]
    assert "Provider List" in result.stderr
    args = ["audit", "plan", "--suite", SUITE, "--model", "openai/x", "--json"]
    assert json.loads(CliRunner().invoke(main, args, catch_exceptions=False).stdout)["suites"]


@pytest.mark.parametrize("model", ["openai/not-in-the-map", "ollama/whatever", "azure/mine"])
def test_a_plan_of_a_model_that_litellm_does_not_know_prints_json_alone(
    model: str, capfd: pytest.CaptureFixture[str]
) -> None:
    args = ["audit", "plan", "--suite", SUITE, "--json", "--model", model]
    done = CliRunner().invoke(main, args, catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["suites"][0]["model"] == model
    assert not capfd.readouterr().out  # nor past Python's own standard output


def test_a_finished_audit_is_not_probed_again(provider: Answering) -> None:
    args = ("--model", "openai/x", "--set", f"{SUITE}.form=logprobs", "--out", "out")
    assert run(*args).exit_code == 0
    asked = len(provider.asked)
    assert asked == 61  # the probe
    assert run(*args).exit_code == 0
    assert len(provider.asked) == asked
