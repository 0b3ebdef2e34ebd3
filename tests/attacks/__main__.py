"""``python -m tests.attacks``."""

from __future__ import annotations

import os
import sys

from tests.attacks.running import main

if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # LiteLLM's clients import what they need to close: at an interpreter's end that may wait for
    # ever, for the lock of a thread that is no more.
    os._exit(status)
