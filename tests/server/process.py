"""A scripted detector served by a process of its own: ``python -m tests.server.process``."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from guard.server.run import serve_detector
from guard.server.settings import ServerLimits
from guard.verdict import Window
from tests.scripted import Scripted


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--release", type=Path, help="a file that HELD windows wait for")
    parser.add_argument("--index-version", default="index-1")
    parser.add_argument("--token")
    options = parser.parse_args()

    def before(window: Window) -> None:
        while "HELD" in window.text and not options.release.exists():
            time.sleep(0.01)

    detector = Scripted(before=before)
    detector.index_version = options.index_version
    serve_detector(
        detector,
        ServerLimits(timeout_s=30),
        options.host,
        options.port,
        options.token,
        (),
        lambda place, _: print(
            json.dumps({"port": int(place.url.rpartition(":")[2].strip("/"))}), flush=True
        ),
    )


if __name__ == "__main__":
    main()
