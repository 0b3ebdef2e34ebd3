"""What a command prints without --tables: the conclusions, last, in 40 lines whatever ran."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from guard.audit.comparison import Verdict
from guard.audit.report.content import Content
from guard.audit.report.terminal import LINES, show_result, show_short
from guard.audit.score import SuiteResult
from tests.audit.test_counts import compared


def printed(results: list[SuiteResult], width: int, most: int = LINES) -> list[str]:
    out = io.StringIO()
    show_short(Console(file=out, width=width), results, most=most)
    return [line.rstrip() for line in out.getvalue().splitlines()]


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_a_run_of_every_suite_is_told_in_forty_lines(whole: Content, width: int) -> None:
    results = [one.result for one in whole.suites]
    lines = printed(results, width)
    assert len(lines) <= LINES
    assert lines[-1].endswith("All tables: the same command with --tables.") or width == 40
    text = " ".join(" ".join(lines).split())
    for result in results:
        assert " ".join(result.title.split())[:30] in text
    if width >= 120:
        for result in results:
            assert " ".join(result.conclusions["plain"][0].split()) in text
        assert "are left out" in lines[-1]


def test_a_suite_alone_is_told_whole_with_its_conclusions_last(whole: Content) -> None:
    (result,) = [one.result for one in whole.suites if one.result.suite == "sai_asa"]
    lines = printed([result], 200)
    text = "\n".join(lines)
    places = [text.index(f"{arm}: {told[0][:60]}") for arm, told in result.conclusions.items()]
    assert text.index("coverage") < min(places)
    assert "left out" not in text
    out = io.StringIO()
    show_result(Console(file=out, width=200), result)
    whole_text = out.getvalue()
    assert whole_text.count("\n") > 60
    # The end of a log is read first: nothing comes after the conclusions.
    last = " ".join(whole_text.split()[-8:])  # wrapped at the console's width
    assert result.conclusions["guarded"][-1].endswith(last)


def test_many_suites_and_models_have_a_line_each(whole: Content) -> None:
    results = [
        replace(one.result, model=f"openai/m{number}")
        for number in range(6)
        for one in whole.suites
    ]
    lines = printed(results, 120)
    assert len(lines) == len(results) + 1 <= LINES
    for line, result in zip(lines, results, strict=False):
        assert f"({result.suite} " in line
        assert len(line) <= 120
    more = printed(results * 3, 120)
    assert len(more) == LINES
    assert more[-1].startswith(f"{3 * len(results) - LINES + 1} lines are left out.")


@pytest.mark.parametrize("most", [20, 40])
def test_a_comparison_is_told_in_few_lines_its_verdict_last(most: int) -> None:
    axes: list[tuple[Verdict, bool]] = [("pass", True)] * 40
    axes += [("inconclusive", True)] * 9 + [("regression", True)] * 5
    found = replace(compared(axes), next=[f"Step {n}." for n in range(30)])
    lines = list(found.lines(most))
    assert len(lines) <= most
    assert sum(line.startswith("  worse ") for line in lines) == 5
    assert any(line.endswith("further axes that decide: --tables lists them.") for line in lines)
    verdict = lines.index("REGRESSION: new is worse than old.")
    assert lines[verdict - 1] == "Of 54 axes 5 regressed, 9 are undecided, 40 pass."
    assert all(line.startswith("Next: ") for line in lines[verdict + 1 :])
    every = list(found.lines())
    assert len(every) == 54 + 2 + 30
    assert not any("--tables" in line for line in every)
