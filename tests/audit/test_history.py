"""The history of audits: kept once, never changed, joined where it may be, on both databases."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import select

from guard.audit import sides
from guard.audit.audit import Audit
from guard.audit.baseline import run_identity
from guard.audit.history import Unfinished, add_runs
from guard.cli import main
from guard.core import Guard
from guard.policy import Policy
from guard.watch import schema
from guard.watch.store import Store
from tests.audit.gated_suite import NAME, Gated, GatedOptions, half, more, recorded
from tests.audit.written import read as read_run
from tests.audit.written import write as write_run
from tests.scripted import Scripted
from tests.watch.older import downgrade

ROOT = Path(__file__).parents[2]
MODEL, OTHER = "openai/kept-a", "openai/kept-b"
DAY = 86_400.0
OWN = ("--suite", NAME)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of ten days, of which the last five name the first more often; and some others."""
    folder = tmp_path_factory.mktemp("runs")
    for n in range(10):
        # Another answer to one item makes each a run of its own.
        of = more if n >= 5 else half
        said = lambda i, s, of=of, n=n: of(i) if i != 2 * n + 1 else "second"  # noqa: E731
        recorded(folder / f"day{n}", said, model=MODEL)
        aged(folder / f"day{n}", 20 - n)
    recorded(folder / "other", model=OTHER)
    recorded(folder / "begun", model=MODEL, most=20)
    for name, policy in (("guarded", Policy()), ("longer", Policy(max_segment_chars=300))):
        recorded(
            folder / name,
            lambda n, s: "BIAS second" if n % 4 == 0 else half(n),
            model=MODEL,
            guard=Guard(policy, detector=Scripted("BIAS")),
        )
    return folder


def aged(run: Path, days: float) -> None:
    when = time.time() - days * DAY
    os.utime(run / "run.db", (when, when))


def call(*args: str) -> Result:
    return CliRunner().invoke(main, ["audit", "history", *args], catch_exceptions=False)


def kept(url: str, *names: Path, args: tuple[str, ...] = ()) -> Result:
    result = call("add", *map(str, names), "--store", url, *OWN, *args)
    assert result.exit_code == 0, result.output
    return result


def shown(url: str, *args: str) -> list[dict[str, Any]]:
    result = call("--store", url, "--json", *args)
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)["series"]
    return found


def rows(url: str) -> list[list[tuple[Any, ...]]]:
    with Store(url).reading() as connection:
        return [
            sorted(map(repr, connection.execute(select(t)).all()))
            for t in (schema.audits, schema.audit_axes)
        ]


def test_a_run_is_kept_once_whatever_it_is_named(url: str, runs: Path, tmp_path: Path) -> None:
    first = kept(url, runs / "day0", runs / "day0")
    assert first.stdout.splitlines()[0].startswith(f"Added gated of {MODEL} (")
    assert "is in" in first.stdout.splitlines()[1]
    assert "already, so nothing was added." in first.stdout.splitlines()[1]
    there = rows(url)
    made = tmp_path / "base.json"
    args = ["audit", "baseline", str(runs / "day0"), "--out", str(made), *OWN]
    assert CliRunner().invoke(main, args).exit_code == 0
    for name in (made, runs / "day0" / "run.db"):
        again = kept(url, name, args=("--json",))
        (told,) = json.loads(again.stdout)["audits"]
        assert not told["new"]
    assert rows(url) == there
    assert len(there[0]) == 1
    assert len(there[1]) == 4


def test_nothing_that_is_kept_ever_changes(url: str, runs: Path) -> None:
    kept(url, runs / "day0", args=("--release", "v1"))
    before = rows(url)
    kept(url, runs / "day1", runs / "guarded", args=("--release", "v2"))
    kept(url, runs / "day0", args=("--release", "v3"))
    after = rows(url)
    for table, there in zip(before, after, strict=True):
        assert set(table) < set(there)
    assert len(after[0]) == 3
    # Neither does what deletes events.
    pruned = CliRunner().invoke(main, ["events", "prune", "--days", "1", url])
    assert pruned.output == "0 responses deleted.\n"
    assert rows(url) == after


def test_stores_that_are_written_at_once_lose_and_double_nothing(url: str, runs: Path) -> None:
    days = [(sides.read_side(runs / f"day{n}", [NAME]), float(n)) for n in range(10)]

    def adding(first: int) -> list[str]:
        store = Store(url)
        return [one.id for day in days[first:] for one in add_runs(store, [day]) if one.new]

    with ThreadPoolExecutor(4) as pool:
        new = [found for some in pool.map(adding, (0, 1, 2, 3)) for found in some]
    assert len(new) == len(set(new)) == 10
    assert [len(table) for table in rows(url)] == [10, 40]


@pytest.mark.slow("starts processes that write one store at once")
def test_processes_that_add_at_once_lose_and_double_nothing(url: str, runs: Path) -> None:
    def adding(first: int) -> subprocess.Popen[str]:
        names = [str(runs / f"day{n}") for n in range(first, first + 6)]
        command = [sys.executable, "-m", "guard", "audit", "history", "add", *names, *OWN]
        return subprocess.Popen(
            [*command, "--store", url, "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    processes = [adding(first) for first in (0, 4)]
    new: list[str] = []
    for process in processes:
        out, told = process.communicate(timeout=200)
        assert process.returncode == 0, told
        new += [one["id"] for one in json.loads(out)["audits"] if one["new"]]
    assert len(new) == len(set(new)) == 10
    found = rows(url)
    assert [len(table) for table in found] == [10, 40]


def test_figures_are_those_of_the_audit(url: str, runs: Path) -> None:
    path = runs / "day7" / "run.db"
    kept(url, path)
    result = Audit.of(Gated(GatedOptions())).result(path)
    of = {(line.measure.name, *line.measure.axis.values()): line.plain for line in result.lines}
    found = {(s["measure"], *s["axis"].values()): s["points"][0] for s in shown(url)}
    assert set(found) == {*of, ("coverage",)}
    for name, estimate in of.items():
        for part in ("value", "low", "high", "n"):
            assert found[name][part] == pytest.approx(getattr(estimate, part), abs=1e-12)
    assert found[("coverage",)]["value"] == 1
    # A baseline gives the same: it has the rows and takes the functions from the suite.
    side = sides.read_side(path, [NAME])
    assert run_identity(side.suites["gated"]) == found[("first",)]["id"]


def test_a_history_is_a_table_over_time(url: str, runs: Path) -> None:
    kept(url, *(runs / f"day{n}" for n in range(10)))
    (first,) = shown(url, "--axis", "gated/plain/first")
    values = [point["value"] for point in first["points"]]
    assert values == pytest.approx([0.5] * 5 + [0.7] * 5, abs=0.02)
    printed = call("--store", url)
    assert printed.stderr.startswith("4 series of 10 audits.")
    each = call("--store", url, "--points", "--axis", "gated/plain/coverage")
    title, *lines = each.stdout.splitlines()
    assert "coverage" in title
    assert len(lines) == 11
    assert each.stderr == "1 series of 10 audits.\n"
    table = call("--store", url, "--csv", "-")
    assert len(list(csv.DictReader(io.StringIO(table.stdout)))) == 40
    assert json.loads(call("--store", url, "--json").stdout)["format"] == 2


def test_since_leaves_out_what_is_older(url: str, runs: Path) -> None:
    kept(url, *(runs / f"day{n}" for n in range(10)))
    assert {len(s["points"]) for s in shown(url)} == {10}
    assert {len(s["points"]) for s in shown(url, "--since", "15d")} == {4}
    assert shown(url, "--since", "1h") == []
    none = call("--store", url, "--since", "1h")
    assert (none.exit_code, none.stderr) == (0, "There is no audit in this time.\n")
    kept(url, runs / "other", args=("--at", "2020-02-03T04:05+01:00"))
    (old,) = shown(url, "--model", OTHER, "--axis", "*/coverage")
    assert old["points"][0]["time"] == "2020-02-03T03:05Z"


def test_unequal_keys_are_not_joined_and_equal_ones_are(url: str, runs: Path) -> None:
    kept(url, runs / "day0", args=("--at", "2024-01-01"))
    kept(url, runs / "other", args=("--at", "2024-01-02"))
    kept(url, runs / "day1", args=("--at", "2024-01-03"))
    axis = ("--axis", "gated/plain/first")
    one, two = shown(url, *axis)
    assert [point["model"] for point in one["points"]] == [MODEL, MODEL]
    assert one["differs"] == {}
    assert two["differs"] == {"model": [f"'{MODEL}'", f"'{OTHER}'"]}
    assert "not joined with audits before 2024-01-02" in call("--store", url, *axis).stdout
    (joined,) = shown(url, *axis, "--allow", "model")
    assert [point["model"] for point in joined["points"]] == [MODEL, OTHER, MODEL]


def test_a_new_guard_breaks_the_guarded_arm_alone(url: str, runs: Path) -> None:
    kept(url, runs / "guarded", args=("--at", "2024-01-01"))
    kept(url, runs / "longer", args=("--at", "2024-01-02"))
    found = shown(url, "--axis", "*/coverage")
    sizes = {
        arm: [len(s["points"]) for s in found if s["arm"] == arm] for arm in ("plain", "guarded")
    }
    assert sizes == {"plain": [2], "guarded": [1, 1]}
    broken = [s for s in found if s["arm"] == "guarded"][1]
    assert list(broken["differs"]) == ["guard"]
    only = shown(url, "--arm", "guarded", "--allow", "guard")
    assert {s["arm"] for s in only} == {"guarded"}
    assert {len(s["points"]) for s in only} == {2}


def test_a_run_that_is_not_finished_is_refused_and_nothing_is_made(
    runs: Path, tmp_path: Path
) -> None:
    store = tmp_path / "h.db"
    result = call("add", str(runs / "day0"), str(runs / "begun"), "--store", str(store), *OWN)
    assert result.exit_code == 4
    assert (
        "begun is not finished, so nothing was added: 100 samples have no outcome" in result.stderr
    )
    assert not store.exists()
    with pytest.raises(Unfinished):
        add_runs(Store(str(store)), [(sides.read_side(runs / "begun", [NAME]), 0.0)])


def test_an_older_store_is_brought_up_to_date_and_keeps_its_events(url: str, runs: Path) -> None:
    store = Store(url)
    store.prepare()
    with store._connected().begin():
        connection = store._connected()
        of = {"reason": "full", "process": "p", "events": 3, "time": 1.0, "id": "d"}
        connection.execute(schema.drops.insert(), [of])
    store.disconnect()
    downgrade(url, 1)
    old = call("--store", url)
    assert old.exit_code == 2
    assert "by an older guard (its tables have version 1" in old.output
    kept(url, runs / "day0")
    assert len(rows(url)[0]) == 1
    with Store(url).reading() as connection:
        assert schema.version_of(connection) == schema.VERSION
        assert [row.events for row in connection.execute(select(schema.drops))] == [3]


@pytest.fixture
def place(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a store of one run, and files that are none of it."""
    monkeypatch.chdir(tmp_path)
    kept("h.db", runs / "day0")
    for name in ("good", "cut", "unfinished"):
        (tmp_path / name).mkdir()
        data = (runs / "day1" / "run.db").read_bytes()
        (tmp_path / name / "run.db").write_bytes(data[:9] if name == "cut" else data)
    header, records = read_run(tmp_path / "unfinished" / "run.db")
    write_run(tmp_path / "unfinished" / "run.db", header, records[:-5])
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("Some notes. " * 100)
    (tmp_path / "newer.db").write_bytes((tmp_path / "h.db").read_bytes())
    store = Store("newer.db")
    with store._connected().begin():
        of = schema.about.update().where(schema.about.c.name == "schema")
        store._connected().execute(of.values(value="99"))
    store.disconnect()
    return tmp_path


STORED = ("--store", "h.db")
DEAD = "postgresql://guard:hunter2@127.0.0.1:1/none"


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("add", "nowhere", *STORED), "There is no run and no baseline at nowhere"),
        (("add", "empty", *STORED), "empty has no run.db"),
        (("add", "notes.txt", *STORED), "notes.txt is not a baseline"),
        (("add", "cut", *STORED), "run.db is not the file of a run"),
        (("add", "good", *STORED, "--at", "yesterday"), "--at takes a time such as 2026-11-24"),
        (("add", "good", *STORED, "--at", "2999-01-01"), "is not between 1970 and now"),
        (("add", "good", "good", *STORED, "--at", "2024-01-01"), "--at is the time of one RUN"),
        (("add", "good", *STORED, "--release", " "), "--release takes 1 to 200 characters"),
        (("add", "good", *STORED, "--release", "v" * 2**20), "--release takes 1 to 200 characters"),
        (("add", "good", "--store", "newer.db"), "by a newer guard (its tables have version 99"),
        (("add", "good", "--store", "notes.txt"), "file is not a database"),
        (("add", "good", "--store", "no/folder/h.db"), "give a file in a folder that you may"),
        (("add", "good", "--store", DEAD), "check that the server runs and accepts this user"),
        (("add", "good", "--store", "mysql://x"), "--store: a store is sqlite:///FILE or"),
        (("add", "good"), "There is no store to read"),
        ((*STORED, "add", "good"), "Give options after add"),
        (("--store", "newer.db"), "use that guard or a newer one"),
        (("--store", "notes.txt"), "file is not a database"),
        (("--store", "none.db"), "There is no store at"),
        (("--store", DEAD), "check that the server runs and accepts this user"),
        ((*STORED, "--since", "yesterday"), "--since takes a time such as 90m, 12h, 7d or 2w"),
        ((*STORED, "--since", "0d"), "--since takes a time such as"),
        ((*STORED, "--since", "-3d"), "--since takes a time such as"),
        ((*STORED, "--since", "9999999d"), "--since takes a time such as"),
        ((*STORED, "--suite", "gatde"), "has no audit of the suite 'gatde' in that time; it has"),
        ((*STORED, "--model", "gpt"), f"the model 'gpt' in that time; it has {MODEL}"),
        ((*STORED, "--axis", "nothing"), "--axis 'nothing' matches none of 4 axes"),
        ((*STORED, "--arm", "guarded"), "has no guarded arm"),
        ((*STORED, "--allow", "modell"), "--allow takes one of version, data"),
        ((*STORED, "--json", "--csv", "-"), "--json uses standard output"),
        ((*STORED, "--html", "f", "--csv", "f"), "cannot both go to f"),
        ((*STORED, "--html", "notes.txt/x"), "cannot be written"),
    ],
)  # fmt: skip
def test_mistakes_are_one_sentence(place: Path, args: tuple[str, ...], told: str) -> None:
    before = files(place)
    own = OWN if "add" in args else ()
    result = call(*args, *own)
    assert result.exit_code == 2, result.output
    assert told in result.stderr
    assert "hunter2" not in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""
    assert files(place) == before


def files(folder: Path) -> dict[Path, bytes]:
    """All files but those that readers of SQLite share among themselves."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {p: p.read_bytes() for p in found if not p.name.endswith(("-shm", "-wal"))}


def test_a_run_without_its_end_is_not_finished(place: Path) -> None:
    result = call("add", "unfinished", *STORED, *OWN)
    assert result.exit_code == 4
    assert "unfinished is not finished" in result.stderr
    assert len(rows("h.db")[0]) == 1


def run(*args: str) -> Result:
    return CliRunner().invoke(main, ["audit", "run", *args], catch_exceptions=False)


def test_a_run_adds_itself_once_it_has_ended(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    replay = ("--suite", NAME, "--plain-only", "--replay", str(runs / "day0"), "--out", "o")
    lone = run(*replay, "--release", "v7")
    assert lone.exit_code == 2
    assert "--release names the run in a history; give --history." in lone.stderr
    wrong = run(*replay, "--history", "no/folder/h.db")
    assert wrong.exit_code == 2
    assert not Path("o").exists()
    done = run(*replay, "--history", "h.db", "--release", "v7")
    assert done.exit_code == 0, done.output
    assert f"Added gated of {MODEL} (" in done.stderr
    (found,) = shown("h.db", "--axis", "*/plain/first")
    assert [(p["release"], p["source"]) for p in found["points"]] == [("v7", "o")]
    assert "nothing was added" in run(*replay, "--history", "h.db").stderr
    assert "nothing was added" in kept("h.db", Path("o")).stdout


def test_a_run_that_did_not_end_is_not_added(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    replay = ("--suite", NAME, "--plain-only", "--replay", str(runs / "begun"), "--out", "o")
    result = run(*replay, "--history", "h.db")
    assert result.exit_code == 2, result.output
    assert "The run is not complete, so it was not added to the history." in result.stderr
    assert rows("h.db") == [[], []]
