from __future__ import annotations

import csv
import json
import socket
import sqlite3
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from guard.audit.calls import Call
from guard.cli import main
from guard.cli.audit import audit
from guard.cli.audit_options import PATH, AuditOptions
from guard.suites import Item
from tests.audit.answering import Answering
from tests.audit.tiny_suite import Tiny
from tests.audit.written import read, write
from tests.rows import rows

SUITE = "tests.audit.tiny_suite:Tiny"
pytestmark = pytest.mark.usefixtures("scripted_guards")


def call(*args: str) -> Result:
    return CliRunner().invoke(main, ["audit", *args], catch_exceptions=False)


def run(*args: str) -> Result:
    return call("run", "--suite", SUITE, *args)


def found(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    read: dict[str, Any] = json.loads(result.stdout)
    return read


def test_a_run_reports_both_arms_and_is_found_again(provider: Answering) -> None:
    first = run("--model", "openai/x", "--tables")
    assert first.exit_code == 0
    for word in (
        "60 answers, 420 prompt tokens, 120 answer tokens",
        "Tiny (tiny 1-A) · openai/x",
        "plain",
        "guarded",
        "coverage",
        "change",
        "parity",
    ):
        assert word in first.stdout
    asked = len(provider.asked)
    assert asked == 60
    repeated = run("--model", "openai/x", "--json")
    assert "resumed with 60 earlier answers" in repeated.stderr
    (again,) = found(repeated)["suites"]
    assert len(provider.asked) == asked
    assert again["complete"]
    assert again["outcomes"]["guarded"] == 0 < again["guarded"]["outcomes"]["guarded"]
    assert [s["axis"] for s in again["scores"]] == [{"parity": "even"}, {"parity": "odd"}]


def test_a_replay_needs_no_network(
    provider: Answering, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = found(run("--model", "openai/x", "--record", "cassette", "--json"))["suites"][0]

    def closed(*_: object, **__: object) -> None:
        raise AssertionError("a socket was opened")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, closed)
    monkeypatch.setattr(socket, "getaddrinfo", closed)
    again = found(run("--replay", "cassette", "--out", "again", "--json"))["suites"][0]
    for key in ("scores", "guarded", "effects", "coverage", "outcomes", "model"):
        assert again[key] == live[key]
    # Another guard reads the same answers.
    flagged = found(run("--replay", "cassette", "--out", "f", "--action", "flag", "--json"))
    assert flagged["suites"][0]["guarded"]["outcomes"]["guarded"] == 0


def test_a_cassette_of_another_kind_is_refused(
    provider: Answering, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    found(run("--model", "openai/x", "--record", "cassette", "--sample", "10", "--json"))
    for attribute, told in (
        ("parser_version", "another parser version: '1', not '2'"),
        ("data_hash", "another data"),
        ("prompt_hash", "another prompt"),
    ):
        with subtests.test(attribute), monkeypatch.context() as changed:
            changed.setattr(Tiny, attribute, "2")
            result = run("--replay", "cassette", "--out", "again", "--sample", "10")
            assert result.exit_code == 2
            assert told in result.output


def test_a_cassette_of_fewer_items_is_refused(provider: Answering) -> None:
    found(run("--model", "openai/x", "--record", "cassette", "--sample", "10", "--json"))
    result = run("--replay", "cassette", "--out", "again")
    assert result.exit_code == 2
    assert "was recorded over fewer items" in result.output
    found(run("--replay", "cassette", "--out", "less", "--sample", "10", "--json"))


def test_recorded_answers_score_as_the_live_audit_did(provider: Answering) -> None:
    live = found(run("--model", "openai/x", "--out", "out", "--csv", "items.csv", "--json"))
    expected = live["suites"][0]
    options = ("--suite", SUITE, "--json")
    table = found(call("score", *options, "--answers", "items.csv"))
    assert table["scores"] == expected["scores"]
    assert table["coverage"] == expected["coverage"]
    assert set(table) >= {"suite", "version", "coverage", "scores"}
    assert "guarded" not in table
    recorded = found(call("score", *options, "--answers", "out/run.db"))
    assert recorded["scores"] == expected["scores"]
    assert recorded["effects"] == expected["effects"]
    with Path("items.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 60
    assert rows[0]["id"] == "t0"
    outcomes = {(r["id"], r["guarded"]) for r in rows}
    hit = sum(outcome == "guarded" for _, outcome in outcomes)
    assert hit == expected["guarded"]["outcomes"]["guarded"]


def test_answers_of_json_lines_have_numbers_too() -> None:
    def told(**row: Any) -> Result:
        Path("a.jsonl").write_text(json.dumps({"id": "t0", "response": "first", **row}))
        return call("score", "--suite", SUITE, "--json", "--answers", "a.jsonl")

    assert found(told(sample=0))["outcomes"]["first"] == 1
    for wrong, words in (
        ({"response": 5}, "response must be a text, got 5"),
        ({"id": ["t0"]}, "id must be a text, got ['t0']"),
        ({"sample": 1.5}, "sample must be a whole number from 0 to 0, got '1.5'"),
        ({"sample": "-1"}, "sample must be a whole number from 0 to 0, got '-1'"),
        ({"sample": "9" * 5000}, f"sample must be a whole number from 0 to 0, got '{'9' * 40}…'"),
    ):
        result = told(**wrong)
        assert result.exit_code == 2
        assert words in result.output


def test_a_table_is_written_of_answers_with_half_a_character(
    provider: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def none(*_: object) -> None:
        """Half a character can be in no second question: that call fails however often."""

    monkeypatch.setattr("guard.audit.runner.pause", none)
    provider.answer = lambda messages: "first \ud83d"
    result = run("--model", "openai/x", "--csv", "items.csv", "--sample", "4")
    assert result.exit_code in (0, 3, 4), result.output
    assert "first ?" in Path("items.csv").read_text("utf-8")


def test_what_the_provider_withheld_is_refused_from_a_table_too() -> None:
    rows = [("t0", "", "content_filter"), ("t2", "", "stop")]
    with Path("items.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("id", "response", "finish_reason"), *rows])
    scored = call("score", "--suite", SUITE, "--json", "--answers", "items.csv")
    assert scored.exit_code == 3
    assert "No answer to tiny could be read; this says nothing about the model." in scored.stderr
    table = json.loads(scored.stdout)
    assert (table["outcomes"]["refused"], table["outcomes"]["invalid"]) == (1, 1)


def test_a_table_with_a_wrong_line_is_refused_by_its_line(tmp_path: Path) -> None:
    Path("a.csv").write_text("id,response\nt0,first\nnone,first\n")
    result = call("score", "--suite", SUITE, "--answers", "a.csv")
    assert result.exit_code == 2
    assert "Line 3" in result.output
    result = call("score", "--suite", SUITE, "--answers", "missing.csv")
    assert result.exit_code == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "a.csv is empty"),
        ("id,response\n", "a.csv has no answers"),
        ("id,answer\nt0,first\n", "The table has no column 'response'; it needs id and response"),
        ("id,response\nt0\n", "a.csv, line 2: the row has 1 fields, the header 2"),
    ],
)
def test_a_table_without_answers_is_refused(text: str, told: str) -> None:
    Path("a.csv").write_text(text)
    result = call("score", "--suite", SUITE, "--answers", "a.csv", "--json")
    assert result.exit_code == 2
    assert told in result.output
    assert "columns id and response" in " ".join(call("score", "--help").stdout.split())


def test_what_failed_makes_the_exit_code_4(provider: Answering) -> None:
    def answer(messages: list[dict[str, str]]) -> str:
        return "first"

    provider.answer = answer
    found(run("--model", "openai/x", "--out", "out", "--sample", "4", "--json"))
    path = Path("out/run.db")
    header, records = read(path)
    calls = [record for record in records if isinstance(record, Call)]
    write(path, header, [replace(call, reply=None, error="Timeout") for call in calls])
    provider.busy, provider.status = 10_000, 400
    result = run("--model", "openai/x", "--out", "out", "--sample", "4")
    assert result.exit_code == 4
    assert "Incomplete" in result.stdout
    provider.busy = 0
    assert run("--model", "openai/x", "--out", "out", "--sample", "4").exit_code == 0


def test_a_provider_that_refuses_everyone_makes_it_4_too(provider: Answering) -> None:
    provider.busy, provider.status = 10_000, 401
    result = run("--model", "openai/x", "--out", "out")
    assert result.exit_code == 4
    assert "openai/x cannot be asked" in result.output
    provider.busy = 0
    assert run("--model", "openai/x", "--out", "out").exit_code == 0


def test_an_answer_that_the_guard_has_not_read_is_missing(provider: Answering) -> None:
    found(run("--model", "openai/x", "--out", "out", "--json"))
    path = Path("out/run.db")
    header, records = read(path)
    write(path, header, [r for r in records if isinstance(r, Call)])
    scored = call("score", "--suite", SUITE, "--json", "--answers", str(path))
    assert scored.exit_code == 4
    result = json.loads(scored.stdout)
    assert result["missing"] == 40
    assert not result["complete"]


@rows(
    "args, told",
    [
        (("--model", "openai/x", "--replay", "c"), "Give --model or --replay, not both"),
        ((), "Give --model, or --replay"),
        (("--model", "nosuch"), "LiteLLM knows no provider for 'nosuch'"),
        (("--model", "openai/x", "--set", "tiny"), "--set takes SUITE.KEY=VALUE"),
        (("--model", "openai/x", "--set", f"{SUITE}.nothing=1"), "has no option 'nothing'"),
        (("--model", "openai/x", "--set", f"{SUITE}.count=0"), "count: Input should be greater"),
        (("--model", "openai/x", "--set", "mist.count=1"), "'mist', which is not in --suite"),
        (("--model", "openai/x", "--guard", "nothing=1"), "unknown setting 'nothing'"),
        (("--model", "openai/x", "--guard", "actions=flag"), "--guard actions must look like 'app"),
        (("--model", "openai/x", "--guard", "actions=age=explode"), "actions.age: input should be"),
        (("--replay", "nowhere"), "There is no run at nowhere"),
        (("--model", "openai/x", "--out", "file"), "file is a file where a folder is needed"),
        (("--model", "openai/x", "--record", "file"), "file is a file where a folder is needed"),
        (("--model", "openai/x", "--csv", "file/x.csv"), "file is a file where a folder is"),
        (("--model", "openai/x", "--set", f"{SUITE}.form=given"), "it needs given_logprobs"),
        (("--model", "openai/x", "--csv", ""), "'--csv': the path is empty"),
        (("--model", "openai/x", "--out", ""), "'--out': the path is empty"),
        (("--model", "openai/x", "--record", ""), "'--record': the path is empty"),
        (("--model", "openai/x", "--timeout", "nan"), "nan is not a number of seconds"),
        (("--model", "openai/x", "--timeout", "inf"), "inf is not a number of seconds"),
        (("--model", "openai/x", "--csv", "run.db.lock"), "has the name of a run's file"),
        (("--model", "openai/x", "--data", "nosuch"), "there is no file or folder nosuch"),
        (("--model", "openai/x", "--data", "file"), "is the same with and without file"),
    ],
)
def test_a_mistake_is_one_sentence_before_any_call(
    provider: Answering, args: tuple[str, ...], told: str
) -> None:
    Path("file").write_text("")
    result = run(*args)
    assert result.exit_code == 2
    assert told in result.output
    assert not provider.asked


@rows(
    "ids, told",
    [([], "has no items to ask"), (["a", "a"], "one has 'a'"), (["\ud800"], "ids of their own")],
)
def test_a_suite_without_sound_items_is_refused(
    provider: Answering, monkeypatch: pytest.MonkeyPatch, ids: list[str], told: str
) -> None:
    monkeypatch.setattr(Tiny, "items", lambda self: (Item(i, "", "") for i in ids))
    result = run("--model", "openai/x")
    assert result.exit_code == 2
    assert told in result.output
    assert not provider.asked


@pytest.mark.parametrize("command", ["plan", "run", "score"])
@pytest.mark.parametrize("names", ["", " , "])
def test_no_suite_is_none(command: str, names: str) -> None:
    more = ("--answers", "x.csv") if command == "score" else ("--model", "openai/x")
    result = call(command, "--suite", names, *more)
    assert result.exit_code == 2
    assert "--suite names no suite" in result.output


def test_score_takes_one_suite() -> None:
    result = call("score", "--suite", f"mist,{SUITE}", "--answers", "x.csv")
    assert result.exit_code == 2
    assert result.stderr == f"Error: --suite takes one suite here, got 'mist,{SUITE}'.\n"


def test_every_path_is_of_the_type_that_refuses_an_empty_one() -> None:
    def parameters(command: click.Command) -> Iterator[click.Parameter]:
        yield from command.params
        for inner in getattr(command, "commands", {}).values():
            yield from parameters(inner)

    paths = [one for one in parameters(audit) if isinstance(one.type, click.Path)]
    assert len(paths) > 20
    assert {one.name for one in paths if one.type is not PATH} == set()
    for args in (
        ("plan", "--suite", SUITE, "--latency", "nan"),
        ("history", "--suite", ""),
        ("history", "--csv", ""),
        ("report", "run", "--html", ""),
        ("report", ""),
    ):
        assert call(*args).exit_code == 2, args


def test_a_table_of_part_of_a_suite_says_so() -> None:
    Path("a.csv").write_text("id,response\n" + "".join(f"t{2 * n},first\n" for n in range(5)))
    part = call("score", "--suite", SUITE, "--answers", "a.csv")
    said = "This table has 5 of the suite's 40 items; none of odd."
    assert part.exit_code == 0
    assert said in part.stdout
    table = found(call("score", "--suite", SUITE, "--answers", "a.csv", "--json"))
    assert (table["suite_items"], table["warning"]) == (40, said)
    rows = "".join(f"t{n},first\n" * (1 + n % 2) for n in range(40))
    Path("a.csv").write_text(f"id,response\n{rows}")
    table = found(call("score", "--suite", SUITE, "--answers", "a.csv", "--json"))
    assert table["suite_items"] == 40
    assert "warning" not in table


def test_a_table_has_no_control_characters_and_is_read_again(provider: Answering) -> None:
    provider.answer = lambda messages: "first\0\x1b[2J\x7f"
    assert run("--model", "openai/x", "--csv", "items.csv").exit_code == 3
    text = Path("items.csv").read_bytes().decode()
    assert "first\ufffd\ufffd[2J\ufffd" in text
    assert all(c.isprintable() or c in "\r\n" for c in text)
    scored = call("score", "--suite", SUITE, "--answers", "items.csv", "--json")
    assert scored.exit_code == 3
    assert json.loads(scored.stdout)["outcomes"]["invalid"] == 40


def test_an_embedder_that_cannot_be_loaded_is_refused_before_any_call(
    provider: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    Path("empty").mkdir()
    Path("weightless").mkdir()
    Path("weightless/config.json").write_text('{"model_type": "bert"}')
    asked = ("--model", "openai/x", "--analyst", "patterns", "--sample", "4", "--plain-only")

    def refused(command: str, suites: str, name: str) -> str:
        result = call(command, "--suite", suites, *asked, "--embedder", name)
        assert result.exit_code == 2, result.output
        assert not provider.asked
        sentence = result.stderr.strip().splitlines()[-1]
        assert sentence.startswith(f"Error: The embedder '{name}' cannot be loaded (")
        assert "name mpnet (guard models get mpnet), the folder of a sentence" in sentence
        assert "Traceback" not in result.output
        return sentence

    for name in ("no/such-encoder", "empty"):
        # The first of the suites has no embedder, and its calls would be paid for.
        told = refused("run", f"{SUITE},badf", name)
        assert refused("plan", f"{SUITE},badf", name) == told
    refused("run", "badf", "weightless")


def test_an_unknown_suite_is_named() -> None:
    result = call("run", "--suite", "nosuch", "--model", "openai/x")
    assert result.exit_code == 2
    assert "There is no suite 'nosuch'" in result.output


def test_settings_that_hold_several_are_given_in_pairs(provider: Answering) -> None:
    def stopped(*settings: str) -> int:
        out = "-".join(settings)
        given = [part for setting in settings for part in ("--guard", setting)]
        args = ("--model", "openai/x", "--out", out, "--sample", "16", "--json", *given)
        (suite,) = found(run(*args))["suites"]
        return int(suite["guarded"]["outcomes"]["guarded"])

    all_of_it = stopped("timeout_ms=none")
    assert stopped("actions=gender=redact,age=flag") == all_of_it > 0
    assert stopped("actions=content=flag") == stopped("thresholds=gender=1, age=0.5") == 0


def test_rewriting_is_refused(provider: Answering) -> None:
    refused = run("--model", "openai/x", "--guard", "action=rewrite")
    assert refused.exit_code == 2
    assert "The action 'rewrite' asks the model again" in refused.output
    assert not provider.asked


def test_a_plan_spends_nothing_and_counts_what_a_run_asks(provider: Answering) -> None:
    args = ("--suite", SUITE, "--model", "openai/gpt-4o-mini", "--sample", "20")
    (plan,) = found(call("plan", *args, "--concurrency", "4", "--json"))["suites"]
    assert not provider.asked
    assert (plan["items"], plan["samples"], plan["calls"], plan["requests"]) == (20, 20, 30, 30)
    assert plan["requests_by_turn"] == {"1": 20, "2": 10}
    assert plan["seconds_by_part"]["calls"] == 30 / 4
    assert plan["seconds_by_part"]["guard"] > 0
    assert plan["answer_tokens_at_most"] == 30 * 8
    assert 0 < plan["cost_usd_at_most"] < 0.01
    assert plan["sampling"] == {"size": 20, "seed": 17}
    found(run("--model", "openai/x", "--sample", "20", "--json"))
    assert len(provider.asked) == plan["calls"]


def test_a_plan_is_readable_and_counts_equal_requests_once() -> None:
    result = call("plan", "--suite", SUITE, "--model", "local:x", "--set", f"{SUITE}.samples=3")
    assert result.exit_code == 0
    assert "60, equal requests asked once" in result.stdout
    assert "180 (turn 1: 120, turn 2: 60)" in result.stdout
    assert "LiteLLM has no price" in result.stdout
    assert "at 1 at a time" in result.stdout


def test_suites_are_listed() -> None:
    result = CliRunner().invoke(main, ["suites", "list", "--json"])
    assert result.exit_code == 0
    assert {"suites"} == set(json.loads(result.stdout))


def test_a_larger_sample_asks_only_what_the_smaller_did_not(provider: Answering) -> None:
    found(run("--model", "openai/x", "--sample", "10", "--json"))
    small = set(provider.asked)
    larger = found(run("--model", "openai/x", "--sample", "30", "--json"))["suites"][0]
    assert larger["samples"] == 30
    assert len(provider.asked) == len(set(provider.asked)) == 45
    assert small < set(provider.asked)
    # And the smaller one is there still.
    again = found(run("--model", "openai/x", "--sample", "10", "--json"))["suites"][0]
    assert again["samples"] == 10
    assert again["key"]["sampling"]["size"] == 10
    assert len(provider.asked) == 45


def test_an_edited_answer_is_refused_and_asked_again(provider: Answering) -> None:
    found(run("--model", "openai/x", "--out", "out", "--json"))
    path = Path("out/run.db")
    with sqlite3.connect(path) as file:
        query = "SELECT id, sum FROM reply WHERE pieces = '[\"second\"]'"
        edited, stored = file.execute(query).fetchone()
        file.execute("UPDATE reply SET pieces = '[\"nobody\"]' WHERE id = ?", (edited,))
    scored = call("score", "--suite", SUITE, "--json", "--answers", str(path))
    reported = call("report", "out", "--suite", SUITE)
    assert (scored.exit_code, reported.exit_code) == (2, 2)
    assert "out/run.db was edited: the reply" in scored.stderr
    assert not scored.stdout
    asked = len(provider.asked)
    resumed = run("--model", "openai/x", "--out", "out", "--json")
    assert resumed.exit_code == 2
    assert "was edited" in resumed.stderr
    # As the sentence says.
    with sqlite3.connect(path) as file:
        assert f"DELETE FROM reply WHERE sum = '{stored}'" in resumed.stderr
        file.execute("DELETE FROM reply WHERE sum = ?", (stored,))
    assert run("--model", "openai/x", "--out", "out", "--json").exit_code == 0
    assert len(provider.asked) == asked + 1


def test_a_plan_counts_the_messages_before_a_given_text() -> None:
    """HBB-SG scores sentences as a model's own turn: behind a system message and an instruction."""
    args = ("plan", "--suite", "hbb_sg", "--model", "local:x", "--sample", "10", "--json")
    (chat,) = found(call(*args))["suites"]
    (raw,) = found(call(*args, "--set", "hbb_sg.prompt=raw"))["suites"]
    assert chat["calls"] == raw["calls"]
    assert chat["prompt_tokens_estimate"] > raw["prompt_tokens_estimate"]


def test_bounds_of_a_plan_are_bounds_and_estimates_are_called_so(provider: Answering) -> None:
    def plan(model: str, *more: str) -> dict[str, Any]:
        args = ("plan", "--suite", SUITE, "--model", model, "--sample", "20", "--json", *more)
        read: dict[str, Any] = found(call(*args))["suites"][0]
        return read

    plain = plan("openai/gpt-4o-mini")
    assert plain["answer_tokens_at_most"] == 30 * 8
    assert plain["cost_usd_estimate"] < plain["cost_usd_at_most"]
    assert plain["calls_repeated_after_kill_at_most"] == 8
    # A model that reasons is not held by the suite's limit, and its reasoning is paid for.
    reasoning = plan("openai/o3")
    assert reasoning["answer_tokens_at_most"] == 30 * 100_000
    assert reasoning["cost_usd_at_most"] > 30 * 100_000 * 8e-6
    assert 30 * 8 < reasoning["answer_tokens_estimate"] < reasoning["answer_tokens_at_most"]
    limited = plan("openai/o3", "--set", "max_tokens=500")
    assert limited["answer_tokens_at_most"] == 30 * 500
    # Of what LiteLLM does not know, nothing is a bound.
    assert plan("openai/unknown", "--drop", "max_tokens")["answer_tokens_at_most"] is None
    readable = call("plan", "--suite", SUITE, "--model", "openai/gpt-4o-mini").stdout
    assert "calls asked again if a run is killed" in readable
    assert "8 at most" in readable


def test_a_plan_counts_log_probabilities_and_their_probe_as_a_run_asks_them(
    provider: Answering,
) -> None:
    args = ("--suite", "hbb", "--sample", "5", "--model", "openai/gpt-4o-mini")
    (plan,) = found(call("plan", *args, "--json"))["suites"]
    assert plan["probe_calls"] == 1
    assert plan["calls"] == 2 * plan["items"]
    assert plan["calls_without_logprobs"] == 10 * plan["items"]
    call("run", *args, "--plain-only", "--json")
    assert len(provider.asked) == plan["calls"] + plan["probe_calls"]
    (dropped,) = found(call("plan", *args, "--drop", "logprobs", "--json"))["suites"]
    assert (dropped["probe_calls"], dropped["calls"]) == (0, 10 * plan["items"])
    assert plan["settings"] == {"temperature": 1, "max_tokens": 128}
    without = {"temperature": 0.8, "top_p": 1, "max_tokens": 128}
    assert (plan["settings_without_logprobs"], dropped["settings"]) == (without, without)
    told = call("plan", *args).stdout
    assert "temperature 1, max_tokens 128 for log-probabilities; without them" in told
    assert "temperature 0.8, top_p 1, max_tokens 128" in told


def test_the_help_says_what_a_sample_counts_and_how_far_it_may_go() -> None:
    told = " ".join(call("run", "--help").stdout.split())
    assert "About N items of each suite" in told
    assert "up to 2 N items, or one question with its variants" in told
    assert "asks at most this many calls again" in told


def test_options_that_a_command_lacks_have_the_defaults_of_the_commands_that_have_them() -> None:
    defaults = {field.name: field.default for field in fields(AuditOptions)}
    for name in ("run", "plan", "score"):
        command = audit.commands[name]
        with command.make_context(name, [], resilient_parsing=True) as context:
            values = {p.name: p.get_default(context) for p in command.params if not p.required}
        for option, value in values.items():
            empty = value is None or value == () or repr(value).endswith("UNSET")
            assert empty or defaults[str(option)] == value, (name, option)
