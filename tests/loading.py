"""Which modules a piece of code loads, told by a process of its own."""

from __future__ import annotations

import subprocess
import sys


def modules_after(code: str) -> set[str]:
    command = [sys.executable, "-c", f"{code}; import sys; print(*sys.modules)"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
