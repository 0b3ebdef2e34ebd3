"""Runs the doors' tests on the oldest and on the newest LiteLLM that guard supports.

``python -m tests.versions`` lays each over the environment that runs it, in a folder of its own.
The newest is the newest release of the tested range on the package index. ``python -m
tests.versions 1.83.7`` runs others. The proxy is tested with the environment's own version alone.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from guard.doors.litellm import compat
from tests.data import ROOT


def released() -> list[Version]:
    """Return LiteLLM's releases, newest first; empty if there is no package index."""
    command = [sys.executable, "-m", "pip", "index", "versions", "litellm"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    found = re.search(r"Available versions: (.*)", asked.stdout)
    return sorted(map(Version, found[1].split(", ")), reverse=True) if found else []


def ends() -> list[str]:
    """Return the oldest supported version, and the newest release of the tested range."""
    tested = SpecifierSet(compat.TESTED)
    newest = next((str(v) for v in released() if v in tested), compat.NEWEST)
    return [compat.OLDEST, newest]


def run(version: str, folder: Path) -> int:
    """Run the doors' tests on a version of LiteLLM, without its proxy; return pytest's code."""
    install = ["-m", "pip", "install", "-q", "--no-deps", "--target", str(folder)]
    subprocess.run([sys.executable, *install, f"litellm=={version}"], check=True)
    paths = os.pathsep.join((str(folder), str(ROOT)))
    tests = ["-m", "pytest", "-q", "-n", "3", "--dist", "loadfile", "tests/doors"]
    environment = {**os.environ, "PYTHONPATH": paths}
    return subprocess.run(
        [sys.executable, *tests], cwd=ROOT, env=environment, check=False
    ).returncode


def main(versions: Sequence[str]) -> int:
    """Run the doors' tests on each version; return 1 if any fails."""
    failed = []
    for version in versions or ends():
        print(f"+ the doors on LiteLLM {version}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            failed += [version] * bool(run(version, Path(folder)))
    if failed:
        print(f"The doors' tests fail on LiteLLM {', '.join(failed)}.")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
