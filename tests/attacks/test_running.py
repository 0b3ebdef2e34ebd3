"""Long runs of the attacks: how they end, what they go on from, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.attacks import running
from tests.attacks.attacker import Tally

SMALL = ("--streams", "450", "--no-proxy")


def run(monkeypatch: pytest.MonkeyPatch, *given: str) -> int:
    monkeypatch.setattr("sys.argv", ["attacks", *given])
    return running.main()


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the attacking processes do: blocks they get, what they find, after which they stop."""
    does: dict[str, Any] = {"got": [], "finds": [], "stops": None}

    def attack(options: Any, state: Any, url: str, port: int) -> None:
        for block in state.left:
            if block == does["stops"]:
                raise KeyboardInterrupt
            does["got"].append(block)
            state.add(block, Tally(found=list(does["finds"])))

    monkeypatch.setattr(running, "_attack", attack)
    return does


def test_a_run_goes_on_where_it_was_interrupted(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    blocks: dict[str, Any],
) -> None:
    state = ("--state", str(tmp_path / "state"))
    blocks["stops"] = 1
    assert run(monkeypatch, *SMALL, *state) == 130
    assert "goes on" in capsys.readouterr().out
    blocks["stops"] = None
    assert run(monkeypatch, *SMALL, *state) == 0
    assert blocks["got"] == [0, 1, 2]


def test_a_run_that_found_anything_ends_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blocks: dict[str, Any]
) -> None:
    state = ("--state", str(tmp_path / "state"))
    blocks["finds"] = [["7", "completion", "held", "9 characters over the bound"]]
    assert run(monkeypatch, *SMALL, *state) == 1
    assert run(monkeypatch, *SMALL, *state) == 1  # and so when asked again


def test_a_run_of_which_not_all_could_be_tried_ends_with_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_attack", lambda *given: None)  # its processes died
    assert run(monkeypatch, *SMALL, "--state", str(tmp_path / "state")) == 2


@pytest.mark.parametrize(
    "other", [("--seed", "2"), ("--streams", "460"), ("--streams", "450"), "code"]
)
def test_the_state_of_another_run_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    blocks: dict[str, Any],
    other: Any,
) -> None:
    state = ("--state", str(tmp_path / "state"))
    assert run(monkeypatch, *SMALL, *state) == 0
    given = (*SMALL, *other)
    if other == "code":
        given = SMALL
        monkeypatch.setattr(running, "_tried", lambda: {"code": "changed"})
    elif other == ("--streams", "450"):
        given = other  # with the proxy
    capsys.readouterr()
    assert run(monkeypatch, *given, *state) == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert "give another --state" in said.err


@pytest.mark.parametrize("text", ["", "{}", "[1]", json.dumps({"asked": {}, "done": 3})])
def test_what_is_no_state_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
) -> None:
    path = tmp_path / "state"
    path.write_text(text)
    assert run(monkeypatch, *SMALL, "--state", str(path)) == 2
    assert "is no state of a run" in capsys.readouterr().err
    assert path.read_text() == text


def test_a_state_that_cannot_be_written_is_told_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, *SMALL, "--state", str(tmp_path / "none" / "state")) == 2
    assert "cannot be used" in capsys.readouterr().err


@pytest.mark.parametrize(
    "given",
    [("--replay", "x"), ("--replay", "5q"), ("--replay", ""), ("--seed", "-1"), ("--streams", "0")],
)
def test_what_is_no_run_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], given: tuple[str, str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, *given)
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("python -m tests.attacks: error:")


@pytest.mark.slow("starts a process that imports LiteLLM")
def test_processes_attack_and_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state"
    given = ("--streams", "4", "--no-proxy", "--state", str(path))
    assert run(monkeypatch, *given) == 0
    said = json.loads(path.read_text())
    assert sum(said["tally"]["streams"].values()) + sum(said["tally"]["wholes"].values()) == 4
