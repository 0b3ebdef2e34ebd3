"""Each exit code means one thing: the table of the docs, the code and the help agree."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import guard
from guard.cli import main
from guard.exit_codes import ExitCode, worst_code

ROOT = Path(guard.__file__).parents[1]
COMMANDS = sorted((ROOT / "guard" / "cli").glob("*.py"))


def table(page: str, heading: str) -> dict[int, str]:
    text = (ROOT / "docs" / page).read_text("utf-8").partition(heading)[2]
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", text, re.MULTILINE)
    return {int(code): meaning for code, meaning in rows}


def test_the_docs_have_every_code_and_no_other() -> None:
    found = table("errors.md", "## Exit codes of the command line")
    assert sorted(found) == sorted(ExitCode)
    words = {
        ExitCode.FOUND: "found", ExitCode.UNDECIDED: "undecided", ExitCode.INCOMPLETE: "incomplete",
        ExitCode.NOT_COMPARABLE: "not comparable", ExitCode.INTERRUPTED: "interrupted",
    }  # fmt: skip
    for code, word in words.items():
        assert found[code].startswith(word), found[code]


def test_the_page_on_audits_has_the_same_codes() -> None:
    found = table("gate.md", "## Against a baseline")
    assert set(found) <= set(ExitCode)
    assert found[ExitCode.INCOMPLETE].startswith("incomplete |")
    assert found[ExitCode.UNDECIDED].startswith("inconclusive |")


def test_no_command_ends_with_a_number_of_its_own() -> None:
    """Only :class:`ExitCode` may be given to sys.exit and click's Exit."""
    for place in COMMANDS:
        for node in ast.walk(ast.parse(place.read_text("utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func)
            if name in ("sys.exit", "click.exceptions.Exit", "_Exit"):
                parts = [part for argument in node.args for part in ast.walk(argument)]
                constants = [part.value for part in parts if isinstance(part, ast.Constant)]
                numbers = [value for value in constants if type(value) is int and value]
                assert not numbers, f"{place.name}: {ast.unparse(node)}"


@pytest.mark.parametrize(
    ("codes", "code"),
    [([], 0), ([0, 3], 3), ([3, 1], 1), ([1, 4, 0], 4), ([5, 1], 5), ([0, 0], 0)],
)
def test_of_several_verdicts_the_worst_counts(codes: list[int], code: int) -> None:
    assert worst_code(codes) == code


def test_a_suite_by_a_near_name_is_suggested() -> None:
    for wrong, right in (("hbb-sg", "hbb_sg"), ("Mist", "mist"), ("saiasa", "sai_asa")):
        result = CliRunner().invoke(main, ["audit", "plan", "--suite", wrong])
        assert result.exit_code == 2
        assert f"There is no suite {wrong!r}; did you mean {right}?" in result.stderr
    result = CliRunner().invoke(main, ["audit", "plan", "--suite", "qqqq"])
    assert "known are hbb, hbb_sg," in result.stderr


def test_audit_lists_its_suites_with_titles_needs_and_sizes() -> None:
    result = CliRunner().invoke(main, ["audit", "suites"])
    assert result.exit_code == 0
    assert result.stdout == CliRunner().invoke(main, ["suites", "list"]).stdout
    assert "sai_asa" in result.stdout
    assert "10,816 items, 10,816 samples; needs chat" in result.stdout
    assert "also asks analyst, embedder" in result.stdout
