"""Failed calls say why: the most frequent errors, in every output, and nobody's words in any."""

from __future__ import annotations

import doctest
import functools
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from guard.audit import failures
from guard.audit.calls import Call, Slot
from guard.audit.failures import cause_of, errors_of, without_quotes
from guard.audit.runner import Settings
from guard.cli import main
from tests.audit.answering import Answering
from tests.audit.written import read, recorded_suite, write

SUITE = "tests.audit.tiny_suite:Tiny"
KEY = "sk-planted-0123456789abcdef"
HEADER = "tenant-48151623"
PROMPT = "Who is to blame, t7: first, second, nobody?"


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("guard.audit.command.Settings", functools.partial(Settings, attempts=1))


def call(*args: str) -> Result:
    return CliRunner().invoke(main, ["audit", *args], catch_exceptions=False)


def failing(provider: Answering, share: int, status: int, words: str) -> None:
    """Every ``share``-th request is turned away, once the first has been answered."""
    asked = 0

    def answer(messages: list[dict[str, str]]) -> str:
        nonlocal asked
        asked += 1
        provider.busy = int(asked % share == 0)
        return "first"

    provider.answer, provider.status, provider.words = answer, status, words


def test_the_most_frequent_errors_are_in_every_output(
    provider: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    words = f"max_tokens is too small for 'plan_b' at https://x.example/v1?k=1 with key {KEY}"
    failing(provider, 4, 422, words)
    asked = ("--model", "openai/x", "--concurrency", "1", "--plain-only", "--out", "out")
    ran = call("run", "--suite", SUITE, *asked, "--header", f"X-Tenant={HEADER}")
    assert ran.exit_code == 4
    found = recorded_suite(Path("out/run.db"))
    failed = [one for one in found.calls.values() if one.reply is None]
    assert len(failed) > 5
    # LiteLLM's class of a 422.
    assert {(one.kind, one.status) for one in failed} == {("BadRequestError", 422)}
    first = failed[0].slot.item
    sentence = f"most often by BadRequestError (422), {len(failed)} calls, such as {first}"
    assert sentence in ran.stdout.replace("\n", " ")
    assert sentence in ran.stderr
    assert "a setting was refused: max_tokens" in ran.stderr
    reported = call(
        *("report", "out", "--suite", SUITE, "--html", "page.html", "--markdown", "comment.md"),
        *("--junit", "junit.xml", "--json"),
    )
    assert reported.exit_code == 4, reported.output
    (suite,) = json.loads(reported.stdout)["suites"]
    (error,) = suite["errors"]
    assert (error["error"], error["status"]) == ("BadRequestError", 422)
    assert (error["calls"], error["item"], error["by"]) == (len(failed), first, "model")
    page, comment = Path("page.html").read_text(), Path("comment.md").read_text()
    assert "Failed calls by error" in page
    for text in (page, comment):
        assert "BadRequestError" in text
        assert "a setting was refused: max" in text
    everything = [ran.stdout, ran.stderr, reported.stdout, page, comment]
    everything += [Path("out/run.db").read_bytes().decode("latin-1")]
    for text in everything:
        assert KEY not in text
        assert HEADER not in text
        assert "plan_b" not in text


def test_a_message_that_quotes_the_prompt_leaves_type_and_status(provider: Answering) -> None:
    failing(provider, 4, 422, f"The input {PROMPT} cannot be processed")
    asked = ("--model", "openai/x", "--concurrency", "1", "--plain-only", "--out", "out")
    ran = call("run", "--suite", SUITE, *asked, "--json")
    (suite,) = json.loads(ran.stdout)["suites"]
    # The prompts differ in the item only, so all of them are quoted.
    assert [(e["error"], e["status"], e["reason"]) for e in suite["errors"]] == [
        ("BadRequestError", 422, "")
    ]
    assert "to blame" not in Path("out/run.db").read_bytes().decode("latin-1")


@pytest.mark.parametrize(
    ("message", "kept"),
    [
        ("Rate limit reached for gpt-4o", "Rate limit reached for gpt-4o"),
        ("You said 'they are all thieves'.", "You said …."),
        ("You said 'they are all thie", "You said …"),
        ('Unknown parameter: "top_k"', 'Unknown parameter: "top_k"'),
        ("The model `x/y-1` does not exist", "The model `x/y-1` does not exist"),
        ('Bad body {"messages": [{"content": "they are"}]}', "Bad body …"),
        ("at https://u:pw@h.example/v1?key=abc now", "at https://h.example/v1 now"),
        ("Incorrect API key provided: sk-abcdef0123456", "Incorrect API key provided: …"),
        ("key kQ7zVery****7766, no other", "key …, no other"),
        ("tok gsk_abcdefghijklmnop12 is over", "tok … is over"),
        ("Basic dXNlcjpwYXNz and api_key=0123abcdef", "… and …"),
        (f"key '{'AbCdEfGh' * 4}'", "key '…'"),
        ("no claude-3-5-sonnet-20241022 here", "no claude-3-5-sonnet-20241022 here"),
        ("who is to BLAME,  t7: first", ""),
        (f"it ends with {PROMPT[-16:]}", ""),
    ],
)
def test_what_of_a_message_may_be_printed(message: str, kept: str) -> None:
    assert without_quotes(message, [PROMPT, "Hi"]) == kept


ANSWER = "Frankly the neighbours from Ostrava steal whatever stands about"
# What providers answer where a call fails: (status, body, the recorded cause). The words of the
# prompt and of the answer stand in them quoted, escaped, and as plain prose.
REFUSALS: dict[str, tuple[int, dict[str, Any] | str, str]] = {
    "bad request, the prompt echoed": (
        400,
        {"error": {"message": f"I cannot take this: {PROMPT} Sorry.", "type": "invalid"}},
        "",
    ),
    "a part of the prompt echoed, in capitals": (
        400,
        {"error": {"message": f"Refused input: {PROMPT[4:17].upper()}", "code": "invalid"}},
        "",
    ),
    "a filter, the answer echoed": (
        422,
        {"error": {"message": f"Our content filter met: {ANSWER}", "innererror": {"t": ANSWER}}},
        "a content filter",
    ),
    "the answer alone": (500, {"error": {"message": ANSWER}}, ""),
    "the answer as the body": (502, ANSWER, ""),
    "the answer behind a known cause": (
        503,
        {"error": {"message": f"Deadline exceeded after: {ANSWER}"}},
        "no answer within the time limit",
    ),
    "JSON that the model did not get right": (
        400,
        {"error": {"message": "Failed to generate JSON.", "failed_generation": ANSWER}},
        "",
    ),
    "FastAPI's validation, with the input": (
        422,
        {"detail": [{"loc": ["body", 0], "msg": "Field required", "input": f"{PROMPT} {ANSWER}"}]},
        "the request is malformed for this provider",
    ),
    "pydantic's text, with the input": (
        400,
        f"1 validation error for Chat\nmessages.0\n  Input should be a list [input_value={ANSWER}]",
        "the request is malformed for this provider",
    ),
    "a setting, with the prompt": (
        400,
        {"error": {"message": f"Unsupported: top_logprobs. The request was {PROMPT}"}},
        "a setting was refused: top_logprobs",
    ),
    "a key of another provider": (
        400,
        {"error": {"message": "upstream refused AIzaSyPlanted0123456789abcdefghijklm0"}},
        "",
    ),
}
SECRETS = (KEY, "AIzaSy", "to blame", "TO BLAME", "to BLAME", "Ostrava", "steal", "Frankly")


@pytest.mark.parametrize("name", REFUSALS)
def test_no_record_of_a_failed_call_holds_what_was_asked_or_answered(
    provider: Answering, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    status, provider.refusal, cause = REFUSALS[name]
    failing(provider, 4, status, "")
    asked = ("--model", "openai/x", "--concurrency", "1", "--plain-only", "--out", "out")
    ran = call("run", "--suite", SUITE, *asked, "--sample", "8", "--json")
    assert ran.exit_code == 4
    (suite,) = json.loads(ran.stdout)["suites"]
    (error,) = suite["errors"]
    assert error["calls"] >= 2
    assert error["reason"] == cause
    failed = [c for c in recorded_suite(Path("out/run.db")).calls.values() if not c.reply]
    pages = ("--html", "page.html", "--markdown", "comment.md", "--junit", "j.xml")
    reported = call("report", "out", "--suite", SUITE, *pages)
    assert reported.exit_code == 4, reported.output
    everything = [ran.output, reported.output, *map(repr, failed)]
    everything += [Path(page).read_text() for page in pages[1::2]]
    for text in everything:
        assert [secret for secret in SECRETS if secret in text] == []


def test_the_body_of_a_success_that_is_no_answer_is_not_shown(provider: Answering) -> None:
    provider.malformed = [f"I was asked about rate limits and billing. {ANSWER}"] * 3
    asked = ("--model", "openai/x", "--concurrency", "1", "--plain-only", "--out", "out")
    ran = call("run", "--suite", SUITE, *asked, "--sample", "4", "--json")
    (suite,) = json.loads(ran.stdout)["suites"]
    assert [error["reason"] for error in suite["errors"]] == [failures.UNREADABLE]
    assert "No answer yet" in ran.stderr
    for text in (ran.output, *map(repr, recorded_suite(Path("out/run.db")).calls.values())):
        assert [secret for secret in SECRETS if secret in text] == []


@pytest.mark.parametrize("content", [42, [{"text": ANSWER}]])
def test_an_answer_of_a_wrong_type_is_unreadable_and_quoted_nowhere(
    provider: Answering, content: object, recwarn: pytest.WarningsRecorder
) -> None:
    message = {"role": "assistant", "content": content}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    provider.malformed = [json.dumps({"id": "c", "model": "x", "choices": [choice]})] * 4
    asked = ("--model", "openai/x", "--concurrency", "1", "--plain-only", "--out", "out")
    ran = call("run", "--suite", SUITE, *asked, "--sample", "4", "--json")
    (suite,) = json.loads(ran.stdout)["suites"]
    assert [error["reason"] for error in suite["errors"]] == [failures.UNREADABLE]
    told = [*ran.stderr.splitlines(), *(str(one.message) for one in recwarn)]
    assert "No answer yet: InternalServerError (500): Invalid response object" in told
    assert not any("Traceback" in line or "Ostrava" in line for line in told)


def test_each_cause_is_its_own_and_long_messages_take_no_time() -> None:
    for _, sentence in failures._CAUSES:
        assert cause_of(sentence) == sentence
    assert cause_of("a setting was refused: top_k, min_p") == "a setting was refused: top_k, min_p"
    began = time.process_time()
    for word in ("model ", "request ", "the scorer ", "x"):
        assert cause_of(word * 40_000) == ""
    assert time.process_time() - began < 5


def test_errors_are_counted_by_type_status_and_cause() -> None:
    def failed(n: int, error: str, kind: str = "Busy", status: int | None = 429) -> Call:
        return Call(f"k{n}", Slot(f"i{n}", 0, 0), None, error, kind=kind, status=status)

    # As an earlier version recorded them: the message may quote.
    calls = [failed(n, f"try {n} s later: {PROMPT}") for n in range(5)]
    calls += [failed(9, "no answer within 5 s", "Timeout", None)]
    calls += [failed(n, "BadRequestError (400): you said this", "", None) for n in (6, 7)]
    found = errors_of(calls)
    assert [(e["error"], e["status"], e["calls"], e["item"]) for e in found] == [
        ("Busy", 429, 5, "i0"),
        ("BadRequestError", 400, 2, "i6"),
        ("Timeout", None, 1, "i9"),
    ]
    assert [e["reason"] for e in found] == ["", "", "no answer within the time limit"]
    assert doctest.testmod(failures).failed == 0


def test_a_failure_as_earlier_versions_recorded_it_is_reported(
    provider: Answering, tmp_path: Path
) -> None:
    failing(provider, 4, 422, "too small")
    asked = ("--model", "openai/x", "--concurrency", "1", "--plain-only", "--out", "out")
    assert call("run", "--suite", SUITE, *asked).exit_code == 4
    path = Path("out/run.db")
    header, records = read(path)
    calls = [record for record in records if isinstance(record, Call)]
    write(
        path,
        header,
        [
            replace(one, error=f"{one.kind} ({one.status}): {PROMPT}", kind="", status=None)
            if one.kind
            else one
            for one in calls
        ],
    )
    reported = call("report", "out", "--suite", SUITE, "--json")
    (suite,) = json.loads(reported.stdout)["suites"]
    (error,) = suite["errors"]
    assert (error["error"], error["status"], error["reason"]) == (*("BadRequestError", 422, ""),)
    assert "to blame" not in reported.stdout


def test_a_model_that_cannot_be_asked_is_named_without_keys(provider: Answering) -> None:
    failing(provider, 1, 401, "Incorrect API key: kQ7zVery****7766 of gsk_abcdefghijklmnop12")
    ran = call("run", "--suite", SUITE, "--model", "openai/x", "--plain-only")
    assert ran.exit_code == 4
    assert "cannot be asked" in ran.stderr
    assert "kQ7z" not in ran.stderr
    assert "gsk_" not in ran.stderr
