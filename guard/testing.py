"""A pytest plugin: an audit that has to be no worse than its baseline, as a test.

One line in ``conftest.py``, ``pytest_plugins = ["guard.testing"]``, gives the fixture
``guard_audit``. It runs the command in a process of its own, so neither the filters of warnings nor
the event loops of a test suite meet those of LiteLLM.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pytest

from guard.audit.comparison import EXIT_CODES, Comparison
from guard.audit.comparison_text import lines
from guard.errors import UsageError

__all__ = ["AuditGate", "guard_audit"]

Inconclusive = Literal["fail", "skip"]


class AuditGate:
    """The commands that compare, with their verdict as the outcome of a test.

    A regression, an incomplete run and one that is not comparable fail the test with the lines that
    the command prints. An inconclusive one fails too, or with ``inconclusive="skip"`` is skipped
    with them; it never passes.
    """

    def __init__(self, folder: Path, out: Path) -> None:
        """Run commands in ``folder``, which paths are relative to; journals go to ``out``."""
        self._folder = folder
        self._out = out

    def run(
        self, *options: str | os.PathLike[str], inconclusive: Inconclusive = "fail"
    ) -> Comparison:
        """Return the comparison of ``guard audit run`` with these options where it passes.

        Raises UsageError where they are wrong, or have no --baseline.
        """
        arguments = [os.fspath(option) for option in options]
        if not any(option.partition("=")[0] == "--baseline" for option in arguments):
            raise UsageError("guard_audit.run needs --baseline FILE; without it nothing can fail.")
        if not any(option.partition("=")[0] == "--out" for option in arguments):
            arguments += ["--out", str(self._out)]
        return self._judged(["run", *arguments], inconclusive)

    def compare(
        self,
        base: str | os.PathLike[str],
        new: str | os.PathLike[str],
        *options: str | os.PathLike[str],
        inconclusive: Inconclusive = "fail",
    ) -> Comparison:
        """Return what ``guard audit compare`` says of two runs, baselines or logs, if they pass.

        Raises UsageError where one cannot be used, or the options are wrong.
        """
        arguments = [os.fspath(option) for option in (base, new, *options)]
        return self._judged(["compare", *arguments], inconclusive)

    def _judged(self, arguments: Sequence[str], inconclusive: Inconclusive) -> Comparison:
        done = subprocess.run(
            [sys.executable, "-m", "guard", "audit", *arguments, "--json"],
            cwd=self._folder,
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
        )
        if done.returncode not in EXIT_CODES.values():
            raise UsageError(
                done.stderr.strip().removeprefix("Error: ") or f"{arguments} was stopped."
            )
        comparison = _comparison(done.stdout)
        message = done.stderr.strip() if comparison is None else "\n".join(lines(comparison))
        if comparison is not None and done.returncode == 0:
            return comparison
        if (
            comparison is not None
            and comparison.outcome == "inconclusive"
            and inconclusive == "skip"
        ):
            pytest.skip(message)
        pytest.fail(message, pytrace=False)


def _comparison(output: str) -> Comparison | None:
    """Return the comparison in what a command printed; None where it came to none."""
    printed = json.loads(output) if output.strip() else {}
    printed = printed.get("comparison") if "suites" in printed else printed
    return Comparison.from_dict(printed) if printed else None


@pytest.fixture
def guard_audit(request: pytest.FixtureRequest, tmp_path: Path) -> AuditGate:
    """Return the gate of an audit; its paths are relative to pytest's root folder."""
    return AuditGate(request.config.rootpath, tmp_path / "audit")
