"""A pytest plugin: a test that fails where an audit finds bias, or is worse than its baseline.

``pytest_plugins = ["guard.testing"]`` in ``conftest.py`` gives the fixture ``guard_audit``. It runs
``guard audit`` in a separate process, so that the warning filters and event loops of the test suite
do not affect LiteLLM. :func:`check_suite` is for tests of a suite of one's own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

import pytest

from guard.audit.comparison import Comparison
from guard.audit.gating import ConditionResults
from guard.errors import GuardError, UsageError
from guard.exit_codes import ExitCode, worst_code
from guard.suites.promises import ContractError, check_suite

__all__ = ["AuditGate", "ContractError", "check_suite", "guard_audit"]

Inconclusive = Literal["fail", "skip"]
# A run that stopped early, or that could not be compared and so made no call, prints a sentence.
_WITHOUT_VERDICT = (ExitCode.INCOMPLETE, ExitCode.NOT_COMPARABLE)
_NOTHING_FAILS = (
    "guard_audit.run needs --fail-on CONDITIONS or --baseline FILE; without them nothing can fail."
)
_Verdicts = tuple[Comparison | None, ConditionResults | None]


class AuditGate:
    """Runs ``guard audit run`` and ``compare``, with their verdict as the outcome of the test.

    A regression, a condition of --fail-on, an incomplete run and runs that are not comparable fail
    the test with the lines that the command prints. What is inconclusive fails it too, or skips it
    with ``inconclusive="skip"``; it never passes.
    """

    def __init__(self, folder: Path, out: Path) -> None:
        """Run commands in ``folder``, to which paths are relative.

        Each run has its own folder in ``out``: a test may run several.
        """
        self._folder = folder
        self._out = out
        self._runs = 0

    def run(
        self, *options: str | os.PathLike[str], inconclusive: Inconclusive = "fail"
    ) -> Comparison | None:
        """Run ``guard audit run`` with ``options``; return the comparison with --baseline, if any.

        Raises UsageError where the options are wrong, or nothing in them can fail.
        """
        arguments = [os.fspath(option) for option in options]
        names = {option.partition("=")[0] for option in arguments}
        if not names & {"--baseline", "--fail-on"} and not any(n.endswith(".toml") for n in names):
            raise UsageError(_NOTHING_FAILS)
        if "--out" not in names:
            self._runs += 1
            arguments += ["--out", str(self._out / f"run{self._runs}")]
        comparison, _ = self._verdict(["run", *arguments], inconclusive)
        return comparison

    def compare(
        self,
        base: str | os.PathLike[str],
        new: str | os.PathLike[str],
        *options: str | os.PathLike[str],
        inconclusive: Inconclusive = "fail",
    ) -> Comparison:
        """Run ``guard audit compare`` on two runs, baselines or logs; return a passing comparison.

        Raises UsageError where one of them cannot be used, or the options are wrong.
        """
        arguments = [os.fspath(option) for option in (base, new, *options)]
        comparison, _ = self._verdict(["compare", *arguments], inconclusive)
        assert comparison is not None
        return comparison

    def _verdict(self, arguments: Sequence[str], inconclusive: Inconclusive) -> _Verdicts:
        if inconclusive not in get_args(Inconclusive):
            raise UsageError(f"inconclusive takes 'fail' or 'skip', got {inconclusive!r}.")
        done = subprocess.run(
            [sys.executable, "-m", "guard", "audit", *arguments, "--json"],
            cwd=self._folder,
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
        )
        problem = done.stderr.strip().removeprefix("Error: ") or "It printed nothing."
        if done.returncode == ExitCode.MISTAKE:
            raise UsageError(problem)
        printed = _printed_verdicts(done.stdout)
        comparison, conditions = printed or (None, None)
        verdicts = [verdict for verdict in (comparison, conditions) if verdict is not None]
        agree = worst_code(verdict.exit_code for verdict in verdicts) == done.returncode
        if not agree and done.returncode in _WITHOUT_VERDICT:
            pytest.fail(problem, pytrace=False)
        if printed and not verdicts and done.returncode in (ExitCode.DONE, ExitCode.UNDECIDED):
            raise UsageError(_NOTHING_FAILS)
        if not agree or printed is None:
            raise GuardError(
                f"guard audit {arguments[0]} failed with exit code {done.returncode}: {problem}"
            )
        if done.returncode == ExitCode.DONE:
            return comparison, conditions
        # pytest's summary quotes the first line.
        heads = [f"{verdict.head}." for verdict in verdicts]
        lines = [line for verdict in verdicts for line in verdict.lines() if line not in heads]
        message = "\n".join([*heads, *lines])
        if done.returncode == ExitCode.UNDECIDED and inconclusive == "skip":
            pytest.skip(message)
        pytest.fail(message, pytrace=False)


def _printed_verdicts(output: str) -> _Verdicts | None:
    """Return the comparison and the conditions of --fail-on in the JSON that a command printed.

    None where it printed no result.
    """
    try:
        printed = json.loads(output)
        if "suites" not in printed:
            return Comparison.from_dict(printed), None
        comparison, conditions = printed.get("comparison"), printed.get("fail_on")
        return (
            Comparison.from_dict(comparison) if comparison else None,
            ConditionResults.from_dict(conditions) if conditions else None,
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


@pytest.fixture
def guard_audit(request: pytest.FixtureRequest, tmp_path: Path) -> AuditGate:
    """Return an AuditGate; its paths are relative to pytest's root folder."""
    return AuditGate(request.config.rootpath, tmp_path / "audit")
