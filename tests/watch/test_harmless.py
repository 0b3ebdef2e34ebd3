"""What others wrote into a store neither breaks a command nor acts upon a terminal."""

from __future__ import annotations

import getpass
from threading import Thread

import pytest
from click.testing import CliRunner

from guard.cli import main
from guard.errors import ConfigError, GuardError
from guard.policy import Policy
from guard.watch import review, schema
from guard.watch.store import Store
from tests.watch.reading import flushed, guard_with, rows

ODD = "x\x1b]0;owned\x07\x1b[2J\u202e\ty"


@pytest.fixture
def place(sqlite: str) -> str:
    guard = guard_with(sqlite, policy=Policy(labels={"tenant": ODD}), keep_text="full")
    for _ in range(6):
        list(guard.stream(["All is well. BIAS is here."]))
    flushed(guard)
    return sqlite


def run(*args: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, args, catch_exceptions=False)
    return done.exit_code, done.output


@pytest.mark.parametrize("form", [(), ("--csv", "-"), ("--html", "-")])
def test_labels_do_not_reach_a_terminal_as_they_are(place: str, form: tuple[str, ...]) -> None:
    code, shown = run("rates", place, "--by", "tenant", *form)
    assert code == 0
    assert "x\ufffd]0;owned" in shown
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)
    if not form:
        assert all(line.count("\t") == shown.splitlines()[0].count("\t")
                   for line in shown.splitlines() if "\t" in line)  # fmt: skip


@pytest.mark.parametrize(
    "args",
    [
        ("rates", "--since", "999999w"),
        ("rates", "--alert", "--baseline", "999999w"),
        ("review", "draw", "--since", "999999w"),
        ("rates", "--by", ",".join(f"label.x{n}" for n in range(40))),
    ],
)
def test_what_is_too_much_is_refused_before_anything_is_done(
    place: str, args: tuple[str, ...]
) -> None:
    command, *rest = args
    more = [rest.pop(0)] if command == "review" else []
    code, output = run(command, *more, place, *rest)
    assert code == 2
    assert "at most" in output
    assert rows(place, schema.draws) == []


def test_a_name_that_is_no_text_is_read_as_it_is_stored(place: str) -> None:
    assert run("rates", place, "--by", "label.\udcff")[0] == 0
    assert run("review", "draw", place)[0] == 0
    assert run("review", "next", place, "--reviewer", "x\udcff")[0] == 0


def test_a_store_whose_name_is_no_text_is_refused() -> None:
    with pytest.raises(ConfigError, match="has to be UTF-8"):
        Store("caf\udce9.db")


def test_a_reviewer_is_one_person_however_the_name_is_written(place: str) -> None:
    run("review", "draw", place)
    with Store(place).writing() as connection:
        item = review.next_item(connection, " ann ")
        assert item is not None
        review.mark(connection, item.id, " ann ", "right")
        second = review.next_item(connection, " ann ", "second")
        assert second is None
        assert review.next_item(connection, "bob", "second") is not None


def test_without_a_login_the_reviewer_has_to_be_named(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr(getpass, "getuser", nobody)
    code, output = run("review", "undo", place)
    assert code == 2
    assert "add --reviewer NAME" in output


def test_a_store_with_a_broken_key_is_named(place: str) -> None:
    store = Store(place)
    with store._connected().begin():
        change = schema.about.update().where(schema.about.c.name == "key").values(value="zz")
        store._connected().execute(change)
    store.disconnect()
    with pytest.raises(ConfigError, match="is damaged: its key cannot be read"):
        Store(place).prepare()


def test_of_draws_at_once_one_segment_is_drawn_from_once(place: str) -> None:
    failed: list[str] = []

    def draw() -> None:
        try:
            review.draw(Store(place), 0, 4e9, 4)
        except GuardError as error:
            failed.append(str(error))

    threads = [Thread(target=draw) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    drawn = [(row["response_id"], row["number"]) for row in rows(place, schema.items)]
    assert drawn
    assert len(set(drawn)) == len(drawn)
    assert len(rows(place, schema.draws)) + len(failed) == 6
