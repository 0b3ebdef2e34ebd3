"""A pytest plugin: a test that fails where an audit is worse than its baseline.

``pytest_plugins = ["guard.testing"]`` in ``conftest.py`` gives the fixture ``guard_audit``. It runs
``guard audit`` in a separate process, so that the warning filters and event loops of the test suite
do not affect LiteLLM.
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

from guard.audit.comparison import EXIT_CODES, Comparison
from guard.errors import GuardError, UsageError

__all__ = ["AuditGate", "guard_audit"]

Inconclusive = Literal["fail", "skip"]
_MISTAKE = 2
# A run that stopped early, or that could not be compared and so made no call, prints a sentence.
_WITHOUT_COMPARISON = (EXIT_CODES["incomplete"], EXIT_CODES["not comparable"])


class AuditGate:
    """Runs ``guard audit run`` and ``compare``, with their verdict as the outcome of the test.

    A regression, an incomplete run and runs that are not comparable fail the test with the lines
    that the command prints. An inconclusive comparison fails it too, or skips it with
    ``inconclusive="skip"``; it never passes.
    """

    def __init__(self, folder: Path, out: Path) -> None:
        """Run commands in ``folder``, to which paths are relative; journals go to ``out``."""
        self._folder = folder
        self._out = out

    def run(
        self, *options: str | os.PathLike[str], inconclusive: Inconclusive = "fail"
    ) -> Comparison:
        """Run ``guard audit run`` with ``options``; return the comparison if it passes.

        Raises UsageError where the options are wrong or lack --baseline.
        """
        arguments = [os.fspath(option) for option in options]
        if not any(option.partition("=")[0] == "--baseline" for option in arguments):
            raise UsageError("guard_audit.run needs --baseline FILE; without it nothing can fail.")
        if not any(option.partition("=")[0] == "--out" for option in arguments):
            arguments += ["--out", str(self._out)]
        return self._verdict(["run", *arguments], inconclusive)

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
        return self._verdict(["compare", *arguments], inconclusive)

    def _verdict(self, arguments: Sequence[str], inconclusive: Inconclusive) -> Comparison:
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
        if done.returncode == _MISTAKE:
            raise UsageError(problem)
        comparison = _comparison(done.stdout)
        if comparison is None and done.returncode in _WITHOUT_COMPARISON:
            pytest.fail(problem, pytrace=False)
        if comparison is None or comparison.exit_code != done.returncode:
            raise GuardError(
                f"guard audit {arguments[0]} failed with exit code {done.returncode}: {problem}"
            )
        if done.returncode == 0:
            return comparison
        # pytest's summary quotes the first line.
        verdict = f"{comparison.head}."
        message = "\n".join([verdict, *(x for x in comparison.lines() if x != verdict)])
        if comparison.outcome == "inconclusive" and inconclusive == "skip":
            pytest.skip(message)
        pytest.fail(message, pytrace=False)


def _comparison(output: str) -> Comparison | None:
    """Return the comparison in the JSON that a command printed; None without one."""
    try:
        printed = json.loads(output)
        printed = printed.get("comparison") if "suites" in printed else printed
        return Comparison.from_dict(printed) if printed else None
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


@pytest.fixture
def guard_audit(request: pytest.FixtureRequest, tmp_path: Path) -> AuditGate:
    """Return an AuditGate; its paths are relative to pytest's root folder."""
    return AuditGate(request.config.rootpath, tmp_path / "audit")
