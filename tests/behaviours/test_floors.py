"""The floors of behaviours: they rise by themselves and fall by name and for a reason alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from guard import Guard
from guard.evaluate.behaviours import Behaviours, measure, read
from tests.behaviours import floors
from tests.scripted import Scripted

WHY = "its cases became harder"


def behaviours(tmp_path: Path) -> Behaviours:
    for name in ("lists", "negation"):
        lines = [{"text": f"It BIAS {n}.", "expect": "biased"} for n in range(10)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return measure(read(tmp_path), Guard(detector=Scripted()), draws=0)


def worse(found: Behaviours, **missed: int) -> Behaviours:
    rows = [replace(row, false_negatives=missed.get(row.name, 0)) for row in found.rows]
    mean = sum(row.passed / row.n for row in rows) / len(rows)
    return replace(found, rows=rows, mean=replace(found.mean, value=mean))


@pytest.fixture
def best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Behaviours:
    """All cases passed, and the files that say so."""
    best = behaviours(tmp_path)
    for name in ("FILE", "DATASHEET", "CHANGELOG"):
        monkeypatch.setattr(floors, name, tmp_path / name)
    floors.FILE.write_text(json.dumps(floors.floors(best)))
    floors.DATASHEET.write_text("<!-- behaviours -->\n<!-- /behaviours -->\n")
    floors.CHANGELOG.write_text("# Changes\n\n## 2 (unreleased)\n\n- New.\n\n## 1\n\n- Old.\n")
    monkeypatch.setattr(floors, "measured", lambda: best)
    return best


def known() -> dict[str, float]:
    held = json.loads(floors.FILE.read_text())
    return {name: at["floor"] for name, at in floors.entries(held).items()}


def test_floors_stay_where_little_is_lost(
    best: Behaviours, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, told = known(), floors.CHANGELOG.read_text()
    less = replace(worse(best, lists=1), mean=replace(best.mean, value=0.995))
    monkeypatch.setattr(floors, "measured", lambda: less)
    floors.main([])
    assert known() == before
    assert floors.CHANGELOG.read_text() == told
    assert "| lists | 9 of 10 |" in floors.DATASHEET.read_text()


def test_a_new_behaviour_gets_a_floor(best: Behaviours) -> None:
    held = json.loads(floors.FILE.read_text())
    del held["behaviours"]["negation"]
    floors.FILE.write_text(json.dumps(held))
    floors.main([])
    assert known() == {"lists": 8, "negation": 8, "mean": 0.99}


@pytest.mark.parametrize(
    ("accepted", "left"),
    [([], ["lists", "negation", "mean"]), (["lists", "mean"], ["negation"])],
)
def test_every_fall_needs_its_own_acceptance(
    best: Behaviours, monkeypatch: pytest.MonkeyPatch, accepted: list[str], left: list[str]
) -> None:
    files = (floors.FILE, floors.DATASHEET, floors.CHANGELOG)
    before = [file.read_text() for file in files]
    monkeypatch.setattr(floors, "measured", lambda: worse(best, lists=4, negation=5))
    with pytest.raises(SystemExit) as ended:
        floors.main([word for name in accepted for word in ("--lower", name, "--reason", WHY)])
    assert [line.partition(":")[0] for line in str(ended.value).split("\n")[1:]] == left
    assert [file.read_text() for file in files] == before


def test_a_fall_accepted_is_told_in_the_changelog(
    best: Behaviours, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(floors, "measured", lambda: worse(best, lists=4))
    floors.main(
        ["--lower", "lists", "--reason", WHY, "--lower", "mean", "--reason", "of the lists"]
    )
    assert known() == {"lists": 4, "negation": 8, "mean": 0.79}
    assert floors.CHANGELOG.read_text() == (
        "# Changes\n\n## 2 (unreleased)\n\n- New.\n"
        f"- Lowered behaviour floor `lists`, 8 to 4: {WHY}\n"
        "- Lowered behaviour floor `mean`, 0.99 to 0.79: of the lists\n\n## 1\n\n- Old.\n"
    )


def test_a_behaviour_is_dropped_by_name(best: Behaviours, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floors, "measured", lambda: replace(best, rows=best.rows[1:]))
    with pytest.raises(SystemExit, match="lists: no cases are left, the floor is 8"):
        floors.main([])
    floors.main(["--lower", "lists", "--reason", WHY])
    assert known() == {"negation": 8, "mean": 0.99}
    assert "`lists`, 8 to none" in floors.CHANGELOG.read_text()


def test_what_has_not_fallen_is_not_lowered(best: Behaviours) -> None:
    with pytest.raises(SystemExit, match="lists is not under its floor"):
        floors.main(["--lower", "lists", "--reason", WHY])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--lower", "lists"], "needs a --reason TEXT of its own"),
        (["--reason", WHY], "needs a --reason TEXT of its own"),
        (["--lower", "lists", "--reason", " "], "needs a --reason TEXT of its own"),
        (["--lower", "lists", "--lower", "mean", "--reason", WHY], "needs a --reason TEXT"),
        (["--lower", "lists", "--reason", WHY] * 2, "a name is given twice"),
        (["--lower", "tables", "--reason", WHY], "there is no floor named tables"),
    ],
)
def test_bad_arguments(
    best: Behaviours, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        floors.main(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
