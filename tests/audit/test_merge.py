"""Shards of an audit, and the one run that is made of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from guard.audit.asked import AskedSuite, write_asked
from guard.audit.audit import Audit
from guard.audit.calls import Call, Guarded, Piece, Reply, Slot, Usage, key_of
from guard.audit.header import Header
from guard.audit.merge import MergedSuite, merge_shards
from guard.audit.run_file import RunFile
from guard.audit.sending import Sending
from guard.audit.shards import Shard
from guard.cli import main
from guard.core import Guard
from guard.errors import UsageError
from guard.suites import Answer, Chat, Item, Outcome, Request, TextScore
from guard.suites.registry import make
from tests.audit.answering import Answering, by_content
from tests.audit.reporting import biased
from tests.audit.tiny_suite import Tiny
from tests.audit.written import read, recorded_suite, write
from tests.rows import rows
from tests.scripted import Scripted

SUITE = "tests.audit.tiny_suite:Tiny"
TWO = f"mist,{SUITE}"
ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("scripted_guards")


def call(*args: str) -> Result:
    return CliRunner().invoke(main, ["audit", *args], catch_exceptions=False)


def run(*args: str, suite: str = SUITE, model: str = "openai/x") -> Any:
    asked = () if "--replay" in args else ("--model", model)
    done = call("run", "--suite", suite, *asked, "--json", *args)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def answering_in_words(provider: Answering) -> None:
    """Have the provider answer mist in its words, to the one side's disadvantage."""
    suite, items = make("mist", {}), dict[str, Item]()
    for item in suite.items():
        request = suite.request(item, 0, [])
        assert isinstance(request, Chat)
        items.setdefault(json.dumps([dict(m) for m in request.messages]), item)

    def say(messages: list[dict[str, str]]) -> str:
        prefixes = (json.dumps(messages[:size]) for size in (2, 1))
        item = next((items[prefix] for prefix in prefixes if prefix in items), None)
        return biased(item, Chat(tuple(messages), {})) if item else by_content(messages)

    provider.answer = say


def run_shards(count: int, *args: str, suite: str = SUITE, prefix: str = "shard") -> list[str]:
    folders = [f"{prefix}-{number}" for number in range(1, count + 1)]
    for number, folder in enumerate(folders, 1):
        run("--shard", f"{number}/{count}", "--out", folder, *args, suite=suite)
    return folders


def merge(*args: str, suite: str | None = SUITE) -> Result:
    own = ("--suite", suite) if suite else ()
    return call("merge", *args, *own)


def without_times(folder: str) -> dict[str, str]:
    """The digest of each suite, as if every call had taken no time."""
    digests: dict[str, str] = {}
    run_file = RunFile(Path(folder) / "run.db")
    for name in run_file.headers:
        recorded = run_file.suite(name)
        copy = Path(folder) / "copies" / f"{name}.db"
        calls = (replace(one, latency_s=0.0) for one in recorded.calls.values())
        readings = (replace(one, seconds=0.0) for one in recorded.readings.values())
        write(copy, recorded.header, [*calls, *readings])
        digests[name] = recorded_suite(copy).digest()
    return digests


def score(folder: str, suite: str) -> Any:
    done = call("score", "--suite", suite, "--answers", f"{folder}/run.db", "--json")
    assert done.exit_code == 0, done.output
    return {k: v for k, v in json.loads(done.stdout).items() if k not in ("journal", "calls")}


# Which items.


@given(ids=st.lists(st.text(st.characters()), unique=True, max_size=30), count=st.integers(1, 9999))
def test_the_shards_divide_the_items(ids: list[str], count: int) -> None:
    for item in ids:
        number = Shard(1, count).number_of(item)
        assert 1 <= number <= count
        assert Shard(number, count).has_item(item)
        assert count == 1 or not Shard(number % count + 1, count).has_item(item)


def test_an_items_shard_stays_when_the_sample_grows_and_items_are_ordered_anew() -> None:
    assert [Shard(1, 8).number_of(f"t{n}") for n in range(8)] == [5, 3, 1, 7, 2, 8, 8, 6]
    small, large = (
        [
            {item.id for item in Audit.of(make("mist", {}), size, shard=Shard(n, 3)).items}
            for n in (1, 2, 3)
        ]
        for size in (100, 400)
    )
    everything = [item.id for item in Audit.of(make("mist", {}), 400).items]
    assert sorted(everything) == sorted(item for part in large for item in part)
    assert all(part <= grown for part, grown in zip(small, large, strict=True))
    sizes = [len(part) for part in large]
    assert max(sizes) < 1.3 * min(sizes)


@rows("text", ["0/8", "9/8", "3", "3/", "3/8/2", "٣/8", "-1/8", "3/99999"])
def test_what_is_no_shard_is_refused(text: str) -> None:
    result = call("run", "--suite", "mist", "--model", "openai/x", "--shard", text)
    assert result.exit_code == 2
    assert "A shard is I/N with I from 1 to N, such as 3/8" in result.output


# One run of all.


def test_a_merged_run_is_the_one_that_one_process_writes(
    provider: Answering, subtests: pytest.Subtests
) -> None:
    answering_in_words(provider)
    options = ["--sample", "40"]
    whole = run(*options, "--out", "whole", suite=TWO)
    asked = len(provider.asked)
    folders = run_shards(3, *options, suite=TWO)
    # Equal requests of items in different shards are asked in each.
    assert asked <= len(provider.asked) - asked < 1.3 * asked
    merged = merge(*folders, "--out", "merged", "--json")
    assert merged.exit_code == 0, merged.output
    told = {one["suite"]: one for one in json.loads(merged.stdout)["merged"]}
    assert list(told) == ["mist", "tiny"]
    assert all(one["differing"] == 0 for one in told.values())
    assert without_times("merged") == without_times("whole")
    for suite in TWO.split(","):
        with subtests.test(suite):
            assert score("merged", suite) == score("whole", suite)
    reports = []
    for folder in ("whole", "merged"):
        result = call("report", folder, "--suite", SUITE, "--json")
        assert result.exit_code == 0, result.output
        text = result.stdout.replace(f'"{folder}', '"RUN')
        reports.append(json.loads(text)["suites"])
    assert reports[0] == reports[1]
    assert call("compare", "whole", "merged", "--suite", TWO).exit_code in (0, 3)
    # The same command without a shard goes on in the merged run, and asks nothing.
    before = len(provider.asked)
    again = run(*options, "--out", "merged", suite=TWO)
    assert len(provider.asked) == before
    assert [one["scores"] for one in again["suites"]] == [one["scores"] for one in whole["suites"]]


def test_several_models_quick_runs_and_cassettes_are_merged(provider: Answering) -> None:
    options = ["--quick", "--model", "openai/y", "--plain-only"]
    run(*options, "--out", "whole")
    folders = run_shards(2, *options)
    done = merge(*folders, "--out", "merged")
    assert done.exit_code == 0, done.output
    assert sorted(p.name for p in Path("merged").iterdir()) == ["openai_x", "openai_y"]
    for model in ("openai_x", "openai_y"):
        assert without_times(f"merged/{model}") == without_times(f"whole/{model}")
        assert (Path("merged") / model / "asked.json").read_bytes() == (
            Path("whole") / model / "asked.json"
        ).read_bytes()
    for number in (1, 2):
        shard = ("--shard", f"{number}/2", "--sample", "20")
        run(*shard, "--out", f"live-{number}", "--record", f"tape-{number}")
        run(*shard, "--out", f"replayed-{number}", "--replay", f"tape-{number}")
    assert merge("tape-1", "tape-2", "--out", "tape").exit_code == 0
    assert merge("replayed-1", "replayed-2", "--out", "replayed").exit_code == 0
    again = run("--sample", "20", "--replay", "tape", "--out", "again")
    live = run("--sample", "20", "--out", "live")
    assert again["suites"][0]["scores"] == live["suites"][0]["scores"]
    assert without_times("again") == without_times("replayed")


def test_a_shard_without_an_item_is_a_shard(provider: Answering) -> None:
    folders = run_shards(12, "--set", f"{SUITE}.count=6", "--plain-only")
    run("--set", f"{SUITE}.count=6", "--plain-only", "--out", "whole")
    assert merge(*folders, "--out", "merged").exit_code == 0
    assert without_times("merged") == without_times("whole")


# A shard is no run.


def test_a_shard_is_never_taken_for_a_run(provider: Answering, subtests: pytest.Subtests) -> None:
    run("--out", "whole")
    assert call("baseline", "whole", "--suite", SUITE, "--out", "base.json").exit_code == 0
    shown = call("run", "--suite", SUITE, "--model", "openai/x", "--shard", "2/2", "--out", "part")
    assert shown.exit_code == 0
    told = "This is shard 2 of 2, and a part has no figures: put all 2 together with guard audit"
    assert told in " ".join(shown.output.split())
    tables = ("run", "--suite", SUITE, "--model", "openai/x", "--shard", "2/2", "--out", "part")
    assert told in " ".join(call(*tables, "--tables").output.split())
    (again,) = run("--out", "part", "--shard", "2/2")["suites"]
    assert again["scores"] == []
    assert again["complete"]
    assert again["key"]["shard"] == "2/2"
    own = ("--suite", SUITE)
    for command in (
        ("score", *own, "--answers", "part/run.db"),
        ("report", "part", *own),
        ("compare", "part", *own),
        ("compare", "base.json", "part", *own, "--allow", "sample", "--allow", "items"),
        ("compare", "part", "whole", *own),
        ("baseline", "part", *own, "--out", "new.json"),
        ("history", "add", "part", *own, "--store", "history.db"),
    ):
        with subtests.test(command[0]):
            result = call(*command)
            assert result.exit_code == 2
            assert "part/run.db is shard 2 of 2 of tiny, not a whole run; put all 2" in (
                " ".join(result.output.split())
            )
    replay = ("run", *own, "--replay", "part", "--out", "x")
    assert "replay it with --shard 2/2" in " ".join(call(*replay).output.split())
    for option in (
        ("--baseline", "base.json"),
        ("--fail-on", "bias"),
        ("--history", "h.db"),
        ("--csv", "t.csv"),
    ):
        with subtests.test(option[0]):
            result = call("run", *own, "--model", "openai/x", "--shard", "1/2", *option)
            assert result.exit_code == 2
            assert f"{option[0]} is about a whole run, and this is shard 1 of 2" in result.output


def test_a_shard_is_resumed_as_the_shard_that_it_is(provider: Answering) -> None:
    run("--shard", "1/3", "--out", "part", "--sample", "10")
    asked = len(provider.asked)
    run("--shard", "1/3", "--out", "part")  # a larger sample goes on
    assert len(provider.asked) > asked
    run("--out", "whole")
    cases: list[tuple[tuple[str, ...], str, str]] = [
        (("--shard", "2/3"), "part", "another shard: 1/3, not 2/3"),
        (("--shard", "1/4"), "part", "another shard: 1/3, not 1/4"),
        ((), "part", "another shard: 1/3, not the whole run"),
        (("--shard", "1/3"), "whole", "another shard: the whole run, not 1/3"),
    ]
    for shard, out, told in cases:
        result = call("run", "--suite", SUITE, "--model", "openai/x", *shard, "--out", out)
        assert result.exit_code == 2
        assert told in result.output
    for number in ("1/3", "2/3"):
        run("--shard", number)
    assert len(list(Path("guard-audits").iterdir())) == 2
    widest = ("--allocate", "widest", "--sample", "60")
    result = call("run", "--suite", "hbb", "--model", "openai/x", "--shard", "1/3", *widest)
    assert "leave --allocate or --shard out" in result.output


def test_a_run_file_gates_the_merged_run(provider: Answering) -> None:
    run("--out", "old")
    call("baseline", "old", "--suite", SUITE, "--out", "base.json")
    Path("release.toml").write_text(
        f'[run]\nsuite = "{SUITE}"\nmodel = "openai/x"\nout = "run"\nbaseline = "base.json"\n'
        'fail_on = "coverage"\nhistory = "history.db"\nrelease = "8"\n[floor]\n"*" = 0.1\n'
    )
    for number in (1, 2):
        shard = ("--shard", f"{number}/2", "--out", f"part-{number}")
        assert call("run", "release.toml", *shard).exit_code == 0
    assert merge("part-1", "part-2", "--out", "run").exit_code == 0
    asked = len(provider.asked)
    gated = call("run", "release.toml", "--json")
    assert "fail_on" in json.loads(gated.stdout)
    assert "comparison" in json.loads(gated.stdout)
    assert "Added tiny" in gated.stderr
    assert len(provider.asked) == asked


def test_a_plan_of_a_shard_is_of_its_items() -> None:
    plans = [
        json.loads(call("plan", "--suite", "mist", "--plain-only", "--json", *shard).stdout)
        for shard in ((), ("--shard", "1/2"), ("--shard", "2/2"))
    ]
    whole, *parts = (plan["suites"][0] for plan in plans)
    assert whole["items"] == sum(part["items"] for part in parts)
    assert [plan["suites"][0]["shard"] for plan in plans] == [None, "1/2", "2/2"]
    shown = call("plan", "--suite", "mist", "--plain-only", "--shard", "2/2", "--quick").stdout
    assert "(shard 2 of 2, a quick run, seed 17)" in " ".join(shown.split())


# What is no division of one audit.


def written(
    folder: str,
    shard: Shard | None,
    suite: str = SUITE,
    size: int | None = None,
    model: str = "openai/x",
    guard: Guard | None = None,
    **options: object,
) -> None:
    """Write a run with an answer to every request of ``shard``."""
    audit = Audit.of(make(suite, options), size, shard=shard)
    if "top_p" in model:
        audit = audit.with_sending(Sending({"top_p": 0.5}))
    write(Path(folder) / "run.db", audit.header(model, guard), _all_answers(audit))
    write_asked(Path(folder), [AskedSuite(audit.suite.name, "")])


@pytest.fixture
def folders() -> list[str]:
    places = [f"shard-{number}" for number in (1, 2, 3)]
    for number, place in enumerate(places, 1):
        written(place, Shard(number, 3))
    return places


def refused(*args: str, told: str, code: int = 2) -> None:
    before = sorted(Path().rglob("*"))
    result = merge(*args)
    assert result.exit_code == code, result.output
    assert told in " ".join(result.output.split())
    assert sorted(Path().rglob("*")) == before  # nothing is left, not even a lock


def test_what_is_not_one_audit_is_refused_by_name(
    folders: list[str], subtests: pytest.Subtests
) -> None:
    first, second, third = folders
    second_of_three = Shard(2, 3)
    written("other-model", second_of_three, model="openai/y")
    written("other-setting", second_of_three, model="top_p")
    written("other-option", second_of_three, samples=2)
    written("smaller", second_of_three, size=10)
    written("guarded", second_of_three, guard=Guard(detector=Scripted()))
    written("other-count", Shard(2, 2))
    written("plain", None)
    for model in "xy":
        written(f"two-models/{model}", second_of_three)
    written("other-suite", second_of_three, suite=SHARING)
    written("other-suites", second_of_three)
    write_asked(Path("other-suites"), [AskedSuite("tiny", "", "it needs logprobs")])
    Path("empty").mkdir()
    Path("link").symlink_to(first)
    out = ("--out", "merged")
    cases: list[tuple[list[str], str]] = [
        ([first, second], "tiny lacks shard 3 of 3; give the folders of all of them"),
        ([second], "tiny lacks shards 1, 3 of 3"),
        ([first, "other-count", third], "other-count is shard 2 of 2, and shard-1 is shard 1 of 3"),
        ([first, second, third, first], "shard-1 and shard-1 are one folder; give it once"),
        ([first, second, third, "link"], "shard-1 and link are one folder; give it once"),
        ([first, second, "plain"], "plain is a whole run of tiny, not a shard; leave it out"),
        ([first, "other-model", third], "another model: 'openai/x', not 'openai/y'; and so is not"),
        ([first, "other-setting", third], "another model: 'openai/x', not 'top_p'"),
        ([first, "other-option", third], "another suite options: samples was 1, now 2"),
        ([first, "smaller", third], "another sample: size was None, now 10"),
        ([first, "guarded", third], "another guard settings: detector was None"),
        ([first, "two-models", third], "two-models has runs of other models than shard-1"),
        ([first, "other-suite", third], "other-suite has other suites than shard-1"),
        ([first, "other-suites", third], "other-suites was to ask other suites than shard-1"),
        ([first, "empty", third], "empty has no run.db; give the --out folder of a run"),
        ([first, "nowhere", third], "nowhere does not exist; give the --out folder of each"),
        ([first, f"{second}/run.db", third], "run.db is a file; give the --out folder of each"),
    ]
    for places, told in cases:
        with subtests.test(told):
            refused(*places, *out, told=told)
    with subtests.test("both"):
        for file in ("run.db", "asked.json"):
            Path("copy").mkdir(exist_ok=True)
            Path("copy", file).write_bytes(Path(second, file).read_bytes())
        refused(*folders, "copy", *out, told="shard-2 and copy are both shard 2 of 3 of tiny")
    with subtests.test("out"):
        refused(*folders, "--out", "empty", told="empty exists already; give a new folder")
        refused(*folders, "--out", first, told="shard-1 exists already")
        refused(
            *folders, "--out", "empty/../plain/run.db/x", told="a file where a folder is needed"
        )


def test_another_analyst_is_another_audit() -> None:
    header = Header("tiny", *4 * ("x",), "openai/x", others={"analyst": {"model": "a"}})
    for number, model in ((1, "a"), (2, "b")):
        of_shard = replace(header, shard=f"{number}/2", others={"analyst": {"model": model}})
        write(Path(f"s{number}/run.db"), of_shard, [])
    refused("s1", "s2", "--out", "out", told="another analyst, scorer or embedder")


def test_an_unfinished_shard_is_refused_or_merged_as_far_as_it_is(
    folders: list[str], provider: Answering
) -> None:
    path = Path(folders[1], "run.db")
    header, records = read(path)
    failed, lost, *rest = (call for call in records if isinstance(call, Call))
    assert failed.slot.item != lost.slot.item
    write(path, header, [replace(failed, reply=None, error="no answer"), *rest])
    told = "shard-2 is not finished, so nothing was merged: 2 items of tiny have no answer"
    refused(*folders, "--out", "merged", told=told, code=4)
    done = merge(*folders, "--out", "merged", "--incomplete")
    assert done.exit_code == 0, done.output
    scored = call("score", "--suite", SUITE, "--answers", "merged/run.db", "--json")
    assert scored.exit_code == 4
    run("--plain-only", "--out", "merged")
    # That of the lost answer has a second turn, which was asked after the answer that was lost.
    assert {json.loads(one)[0]["content"] for one in provider.asked} == {
        f"Who is to blame, {call.slot.item}: first, second, nobody?" for call in (failed, lost)
    }


def test_edited_and_foreign_rows_are_refused(folders: list[str]) -> None:
    path = Path(folders[1], "run.db")
    header, records = read(path)
    foreign = [call for call in read(Path(folders[0], "run.db"))[1] if isinstance(call, Call)]
    write(path, header, [*records, foreign[0]])
    told = f"shard-2 is shard 2 of 3 of tiny and has an answer to {foreign[0].slot.item}, which is"
    refused(*folders, "--out", "merged", told=f"{told} in shard 1 of 3")


def test_a_merge_that_is_killed_leaves_no_run(folders: list[str]) -> None:
    """Killed while it writes; the next one is whole."""
    program = (
        "import sys, time\n"
        "from guard.audit import merge\n"
        "statements = merge._Merging.statements\n"
        "def slow(self):\n"
        "    for row in statements(self):\n"
        "        open('began', 'w').close(); time.sleep(0.05); yield row\n"
        "merge._Merging.statements = slow\n"
        "from guard.cli import main\n"
        "main(sys.argv[1:])\n"
    )
    args = ["audit", "merge", *folders, "--out", "merged", "--suite", SUITE]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    for how in (signal.SIGINT, signal.SIGKILL):
        process = subprocess.Popen(
            [sys.executable, "-c", program, *args], env=environment,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        until = time.monotonic() + 60
        while not Path("began").exists() and time.monotonic() < until:
            time.sleep(0.02)
        Path("began").unlink()
        process.send_signal(how)
        process.communicate(timeout=60)
        assert process.returncode != 0
        assert not Path("merged").exists()
        left = [path.name for path in Path().glob(".merged.*")]
        assert bool(left) == (how == signal.SIGKILL)
    assert merge(*folders, "--out", "merged").exit_code == 0


# One request of two shards.


class Sharing(Tiny):
    """Every item asks one and the same question first."""

    name = "sharing"

    def request(self, item: Item, sample: int, answers: Sequence[Answer]) -> Request | None:
        if len(answers) == 2:
            return None
        said = [{"role": "user", "content": "Who is to blame?"}]
        for answer in answers:
            said += [{"role": "assistant", "content": answer.text}]
            said += [{"role": "user", "content": f"Sure, {item.id}?"}]
        return Chat(tuple(said), {"temperature": 0.0})

    def outcome(self, item: Item, sample: int, answers: Sequence[Answer]) -> Outcome:
        return super().outcome(item, sample, answers)


SHARING = f"{__name__}:Sharing"


def shared_shards(says: Sequence[str], *, readings: bool = False) -> tuple[Audit, list[Path]]:
    """Shards whose first answers are ``says``, each with a reading of its own."""
    places = []
    count = len(says)
    guard = Guard(detector=Scripted()) if readings else None
    for number, word in enumerate(says, 1):
        audit = Audit.of(make(SHARING, {"count": 12}), shard=Shard(number, count))
        places.append(Path(f"s{number}"))
        records: list[Call | Guarded] = []
        for item in audit.items:
            answers: list[Answer] = []
            while (request := audit.suite.request(item, 0, answers)) is not None:
                key = key_of(request, item, 0, len(answers))
                said = "nobody" if answers else word
                reply = Reply((Piece(said),), usage=Usage(1, 1, 0.0))
                records.append(Call(key, Slot(item.id, 0, len(answers)), reply))
                if readings:
                    records.append(Guarded(key, "guarded", f"of {said} {number}", own=2))
                answers.append(reply.answer)
        write(places[-1] / "run.db", audit.header("openai/x", guard), records)
    return Audit.of(make(SHARING, {"count": 12})), places


def merged_suite(places: Sequence[Path]) -> MergedSuite:
    (suite,) = merge_shards(places, Path("merged"), [SHARING])
    return suite


def test_a_request_of_two_shards_keeps_the_first_items_answer(provider: Answering) -> None:
    audit, places = shared_shards(["first", "first", "first"], readings=True)
    done = merged_suite(places)
    assert (done.shared, done.differing, done.unanswered, done.calls) == (2, 0, 0, 13)
    recorded = recorded_suite(Path("merged/run.db"))
    (key,) = {audit_key(audit, item) for item in audit.items}
    assert recorded.calls[key].slot == Slot("t0", 0, 0)  # as one process asks
    assert len(recorded.readings) == 13


def audit_key(audit: Audit, item: Item) -> str:
    request = audit.suite.request(item, 0, [])
    assert request is not None
    return key_of(request, item, 0, 0)


def test_different_answers_to_one_request_are_told_and_what_is_lacking_is_asked(
    provider: Answering,
) -> None:
    audit, places = shared_shards(["first", "second", "nobody"], readings=True)
    owner = Shard(1, 3).number_of("t0")
    mine = sum(Shard(owner, 3).has_item(item.id) for item in audit.items)
    done = merged_suite(places)
    assert (done.shared, done.differing) == (2, 2)
    assert done.unanswered == 12 - mine > 0
    assert done.calls == 13  # what was paid for stays
    recorded = recorded_suite(Path("merged/run.db"))
    key = audit_key(audit, audit.items[0])
    word = ["first", "second", "nobody"][owner - 1]
    reply = recorded.calls[key].reply
    assert reply is not None
    assert reply.answer.text == word
    assert recorded.readings[key].text == f"of {word} {owner}"
    asked = len(provider.asked)
    run("--out", "merged", "--set", f"{SHARING}.count=12", suite=SHARING)
    assert len(provider.asked) - asked == 12 - mine
    shown = Counter(call.slot.turn for call in recorded_suite(Path("merged/run.db")).calls.values())
    assert shown == {0: 1, 1: 12 + 12 - mine}


def test_an_answer_of_one_shard_replaces_the_failure_of_another() -> None:
    audit, places = shared_shards(["first", "first"])
    owner = Shard(1, 2).number_of("t0")
    path = places[owner - 1] / "run.db"
    header, records = read(path)
    key = audit_key(audit, audit.items[0])
    calls = (one for one in records if isinstance(one, Call))
    failed = [replace(c, reply=None, error="no answer") if c.key == key else c for c in calls]
    write(path, header, failed)
    (done,) = merge_shards(places, Path("merged"), [SHARING], incomplete=True)
    assert (done.shared, done.differing) == (1, 0)
    assert recorded_suite(Path("merged/run.db")).calls[key].reply is not None


@pytest.mark.parametrize("form", ["given", "chat"])
def test_shards_of_likelihoods_and_of_repeated_samples(
    form: Literal["given", "chat"], tmp_path: Path
) -> None:
    """Of the answers that are written here, whatever they are: merging reads no answer."""
    options = {"form": form, "samples": 2 if form == "chat" else 1, "temperature": 0.7}
    for shard in (None, Shard(1, 2), Shard(2, 2)):
        audit = Audit.of(make(SUITE, options), shard=shard)
        folder = tmp_path / ("whole" if shard is None else str(shard.number))
        write(folder / "run.db", audit.header("openai/x", None), _all_answers(audit))
    merge_shards([tmp_path / "1", tmp_path / "2"], tmp_path / "merged", [SUITE])
    assert recorded_suite(tmp_path / "merged" / "run.db").digest() == (
        recorded_suite(tmp_path / "whole" / "run.db").digest()
    )


def _all_answers(audit: Audit) -> Iterator[Call]:
    for item in audit.items:
        for sample in range(item.samples):
            answers: list[Answer] = []
            while (request := audit.suite.request(item, sample, answers)) is not None:
                key = key_of(request, item, sample, len(answers))
                reply = Reply((Piece("first"),), scores=(TextScore(-1.0, 2), TextScore(-2.0, 3)))
                yield Call(key, Slot(item.id, sample, len(answers)), reply)
                answers.append(reply.answer)


def test_shards_of_nothing_are_refused() -> None:
    with pytest.raises(UsageError, match="nowhere does not exist"):
        merge_shards([Path("nowhere")], Path("out"))
