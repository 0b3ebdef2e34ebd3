"""``python -m tests.attacks``."""

from __future__ import annotations

import sys

from tests.attacks.running import main

if __name__ == "__main__":
    sys.exit(main())
